//! The contents of one write, encoded before any lock is taken.
//!
//! The writing thread compresses, copies and checksums. Under the shard's lock only the sequence numbers and
//! offsets are added, which are not known before.

use crate::checksum::Salt;
use crate::location::SEGMENT_LEN_MAX;
use crate::segment::record::{Fields, Kind, Membership, encode, stamp};

/// One change of one key within a [`Write`].
#[derive(Clone, Copy, Debug)]
pub struct Op {
    pub kind: Kind,
    /// Hash of the key, for an index; zero in a log.
    pub hash: u64,
    /// Offset of the record in the frame.
    pub start: usize,
    pub len: usize,
    pub key_start: usize,
    pub key_len: usize,
}

/// Records that are written together, as one run of bytes.
#[derive(Debug)]
pub struct Write {
    pub frame: Vec<u8>,
    pub ops: Ops,
}

/// Operations of a write. A single one, the usual case, needs no allocation.
#[derive(Debug)]
pub enum Ops {
    One(Op),
    Batch(Vec<Op>),
}

impl Ops {
    pub fn as_slice(&self) -> &[Op] {
        match self {
            Ops::One(op) => std::slice::from_ref(op),
            Ops::Batch(ops) => ops,
        }
    }
}

impl Op {
    pub fn key<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        &frame[self.key_start..self.key_start + self.key_len]
    }
}

impl Write {
    /// Encodes a record without a key, for a log, which has no lookups. `value` is its stored form.
    pub fn record(compression: u8, value: &[u8]) -> Self {
        let mut frame = Vec::new();
        let (key, membership) = (&b""[..], Membership::Alone);
        let (expiry, version) = (None, None);
        let fields =
            Fields { kind: Kind::Put, membership, compression, expiry, version, key, value };
        encode(&mut frame, &fields);
        let key_start = fields.header_len();
        let len = frame.len();
        let op = Op { kind: Kind::Put, hash: 0, start: 0, len, key_start, key_len: 0 };
        Write { frame, ops: Ops::One(op) }
    }

    /// Returns true if the write only deletes.
    pub fn only_deletes(&self) -> bool {
        self.ops.as_slice().iter().all(|op| op.kind == Kind::Delete)
    }

    /// Gives the records their sequence numbers, counting from `seq`, and their offsets.
    pub fn stamp(&mut self, seq: u64, synced: u64, salt: Salt, offset: u64) {
        debug_assert!(offset + self.frame.len() as u64 <= SEGMENT_LEN_MAX);
        // The only record, or the head of a batch, is at the beginning.
        stamp(&mut self.frame, seq, synced, salt, offset);
        let Ops::Batch(ops) = &self.ops else { return };
        for (op, seq) in ops.iter().zip(seq..) {
            stamp(&mut self.frame[op.start..], seq, synced, salt, offset + op.start as u64);
        }
    }
}
