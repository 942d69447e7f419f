//! Output that the socket did not take, or may not get yet.
//!
//! Bytes are copied into pooled blocks, attached values stay references. A queue exists only while
//! it holds something.

use std::collections::VecDeque;
use std::io::IoSlice;

use super::{Attachment, Output, Part, Piece};
use crate::buffer::pool::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Block, Pool};
use crate::transport::SLICES_MAX;

#[derive(Debug)]
enum Bytes {
    Pooled {
        block: Block,
        len: usize,
    },
    /// More than the pool gives in one piece.
    Heap(Vec<u8>),
    Attached(Attachment),
}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            Bytes::Pooled { block, len } => &block[..*len],
            Bytes::Heap(bytes) => bytes,
            Bytes::Attached(attachment) => attachment.bytes(),
        }
    }

    /// Appends the beginning of `bytes` as far as there is room, and returns the rest.
    fn fill<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Bytes::Pooled { block, len } = self else { return bytes };
        let (now, later) = bytes.split_at(bytes.len().min(block.len() - *len));
        block[*len..*len + now.len()].copy_from_slice(now);
        *len += now.len();
        later
    }
}

/// Unsent output of one connection.
#[derive(Debug, Default)]
pub(crate) struct OutputQueue {
    chunks: VecDeque<Bytes>,
    /// Bytes of the first chunk that are sent.
    sent: usize,
    /// Bytes unsent in all chunks.
    bytes: usize,
}

impl OutputQueue {
    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of separate pieces that wait.
    pub(crate) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Appends what remains of a part after its first `skip` bytes.
    pub(crate) fn push_part(&mut self, output: &Output, part: Part, skip: usize, pool: &Pool) {
        let mut skip = skip;
        for piece in output.pieces(part) {
            let len = piece.bytes().len();
            if skip >= len {
                skip -= len;
                continue;
            }
            match piece {
                Piece::Bytes(bytes) => self.push_bytes(&bytes[skip..], pool),
                Piece::Attached(attachment) => self.push_attachment(attachment, skip),
            }
            skip = 0;
        }
    }

    fn push_bytes(&mut self, bytes: &[u8], pool: &Pool) {
        self.bytes += bytes.len();
        let rest = match self.chunks.back_mut() {
            Some(chunk) => chunk.fill(bytes),
            None => bytes,
        };
        if rest.is_empty() {
            return;
        }
        if rest.len() > BLOCK_BYTES_MAX {
            self.chunks.push_back(Bytes::Heap(rest.to_vec()));
            return;
        }
        // A block as large as all that waits already, so that many small outputs make few chunks.
        let wanted = rest.len().max(self.bytes.min(BLOCK_BYTES_MAX / 16)).max(BLOCK_BYTES_MIN);
        let mut chunk = Bytes::Pooled { block: pool.take(wanted), len: 0 };
        let none_left = chunk.fill(rest);
        debug_assert!(none_left.is_empty());
        self.chunks.push_back(chunk);
    }

    fn push_attachment(&mut self, attachment: &Attachment, skip: usize) {
        let mut attachment = attachment.clone();
        attachment.range.start += skip;
        self.bytes += attachment.range.len();
        self.chunks.push_back(Bytes::Attached(attachment));
    }

    /// The first slices, for one system call.
    pub(crate) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let mut skip = self.sent;
        let mut count = 0;
        for (slice, chunk) in slices.iter_mut().zip(&self.chunks) {
            *slice = IoSlice::new(&chunk.get()[skip..]);
            skip = 0;
            count += 1;
        }
        count
    }

    /// Drops the first `count` bytes, for they were sent.
    pub(crate) fn advance(&mut self, count: usize) {
        assert!(count <= self.bytes, "sent more than was queued");
        self.bytes -= count;
        self.sent += count;
        while let Some(chunk) = self.chunks.front() {
            let len = chunk.get().len();
            if self.sent < len {
                break;
            }
            self.sent -= len;
            self.chunks.pop_front();
        }
    }
}
