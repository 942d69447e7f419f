//! Encrypted records on their way to the socket, with the number of plain bytes in each.

use std::collections::VecDeque;

use rustls::server::ServerConnectionData;
use rustls::unbuffered::{EncodeTlsData, WriteTraffic};

use super::session::failure;
use std::io;

/// Maximum number of plain bytes in one record, by the protocol.
pub(super) const RECORD_PLAIN_MAX: usize = 16 * 1024;

/// Upper bound of a record's bytes beyond its plain bytes, for any cipher, with a key update message in front of it.
const RECORD_OVERHEAD_MAX: usize = 256;

/// Maximum number of plain bytes encrypted before the socket gets them.
pub(super) const BATCH_PLAIN_MAX: usize = 4 * RECORD_PLAIN_MAX;

/// One record, or several of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// Number of unsent bytes.
    unsent: usize,
    /// Number of plain bytes; none in a message of the protocol itself.
    plain: usize,
}

/// Encrypted bytes in sending order.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    /// Number of bytes at the front that are sent.
    sent: usize,
    pieces: VecDeque<Piece>,
}

impl Outgoing {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns the unsent bytes.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Returns the memory owned.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Notes that the socket has taken `count` bytes. Returns the number of plain bytes of records that are completely
    /// sent.
    pub(super) fn advance(&mut self, mut count: usize) -> usize {
        self.sent += count;
        let mut plain = 0;
        while let Some(piece) = self.pieces.front_mut() {
            if piece.unsent > count {
                piece.unsent -= count;
                return plain;
            }
            count -= piece.unsent;
            plain += piece.plain;
            self.pieces.pop_front();
        }
        self.clear();
        plain
    }

    /// Drops everything and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.pieces.clear();
        self.sent = 0;
    }

    /// Appends the unsent bytes to `to`.
    pub(super) fn move_to(&mut self, to: &mut Outgoing) {
        to.bytes.extend_from_slice(self.unsent());
        to.pieces.extend(self.pieces.drain(..));
        self.clear();
    }

    /// Encrypts at most [`RECORD_PLAIN_MAX`] bytes.
    pub(super) fn encrypt(
        &mut self,
        traffic: &mut WriteTraffic<'_, ServerConnectionData>,
        plain: &[u8],
    ) -> io::Result<()> {
        debug_assert!(plain.len() <= RECORD_PLAIN_MAX);
        self.append(plain.len(), |room| traffic.encrypt(plain, room).map_err(failure))
    }

    /// Appends a message of the protocol itself.
    pub(super) fn encode(
        &mut self,
        message: &mut EncodeTlsData<'_, ServerConnectionData>,
    ) -> io::Result<()> {
        use rustls::unbuffered::EncodeError;
        let needed = match message.encode(&mut []) {
            Err(EncodeError::InsufficientSize(size)) => size.required_size,
            Ok(_) | Err(EncodeError::AlreadyEncoded) => return Ok(()),
        };
        self.append_sized(needed, 0, |room| message.encode(room).map_err(failure))
    }

    /// Appends the close_notify alert.
    pub(super) fn close_notify(
        &mut self,
        traffic: &mut WriteTraffic<'_, ServerConnectionData>,
    ) -> io::Result<()> {
        self.append(0, |room| traffic.queue_close_notify(room).map_err(failure))
    }

    fn append(
        &mut self,
        plain: usize,
        write: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<()> {
        self.append_sized(plain + RECORD_OVERHEAD_MAX, plain, write)
    }

    fn append_sized(
        &mut self,
        room: usize,
        plain: usize,
        write: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<()> {
        let end = self.bytes.len();
        self.bytes.resize(end + room, 0);
        let written = write(&mut self.bytes[end..]);
        let unsent = *written.as_ref().unwrap_or(&0);
        self.bytes.truncate(end + unsent);
        if unsent > 0 {
            self.pieces.push_back(Piece { unsent, plain });
        }
        written.map(drop)
    }
}
