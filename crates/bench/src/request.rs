//! One encoded request, of any protocol.

use tierce_wire::resp::{Encoder, Proto};

use crate::digits::DIGITS_LEN;
use crate::random::Random;

/// Parameters that all requests of a run share.
#[derive(Clone, Debug)]
pub(crate) struct Filling<'a> {
    pub(crate) key_prefix: &'a str,
    pub(crate) data_size: usize,
}

/// One encoded request, and the offsets at which digits are written before it is sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) bytes: Vec<u8>,
    /// Offsets of the digits of keys, ascending.
    pub(crate) keys: Vec<usize>,
    /// Offsets of the digits of other numbers, ascending.
    pub(crate) numbers: Vec<usize>,
}

impl Request {
    /// Requests are arrays of strings in every version of the protocol.
    pub(crate) fn encoder(&mut self) -> Encoder<'_> {
        Encoder::new(&mut self.bytes, Proto::Resp2)
    }

    pub(crate) fn key(&mut self, filling: &Filling<'_>) {
        self.bytes.extend_from_slice(filling.key_prefix.as_bytes());
        self.keys.push(self.bytes.len());
        self.bytes.extend_from_slice(&[b'0'; DIGITS_LEN]);
    }

    pub(crate) fn number(&mut self) {
        self.numbers.push(self.bytes.len());
        self.bytes.extend_from_slice(&[b'0'; DIGITS_LEN]);
    }

    pub(crate) fn data(&mut self, size: usize, random: &mut Random) {
        const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
        const ALL: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
        for index in 0..size {
            let from = if index == 0 { LETTERS } else { ALL };
            self.bytes.push(from[random.below(from.len() as u64) as usize]);
        }
    }
}
