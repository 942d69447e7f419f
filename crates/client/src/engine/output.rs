//! The bytes of requests, to be sent or sent again.
//!
//! A chunk is one batch from the window. Nothing is copied: the buffer that callers encoded into is sent as is, kept
//! while one of its requests is in flight, and then returned to the window.

use std::collections::VecDeque;

use super::in_flight::ByteRange;

/// Maximum number of spare buffers, and of bytes in each.
const SPARE_BUFFERS_MAX: usize = 8;
const SPARE_CAPACITY_MAX: usize = 256 * 1024;

#[derive(Debug, Default)]
struct Chunk {
    bytes: Vec<u8>,
    /// Number of bytes that the socket has taken.
    sent: usize,
    /// Number of requests that need the bytes.
    pins: usize,
    /// True if the chunk is queued for sending.
    is_queued: bool,
    /// True if its first byte, or an earlier one of the same request, was sent.
    is_begun: bool,
}

#[derive(Debug, Default)]
pub(super) struct Output {
    chunks: Vec<Chunk>,
    free: Vec<u32>,
    queue: VecDeque<u32>,
    spare: Vec<Vec<u8>>,
}

impl Output {
    /// Queues bytes that hold this many requests. Returns the number of the chunk.
    pub(super) fn push(&mut self, bytes: Vec<u8>, pins: usize) -> u32 {
        let chunk = Chunk { bytes, sent: 0, pins, is_queued: true, is_begun: false };
        let number = match self.free.pop() {
            Some(number) => {
                self.chunks[number as usize] = chunk;
                number
            }
            None => {
                self.chunks.push(chunk);
                self.chunks.len() as u32 - 1
            }
        };
        self.queue.push_back(number);
        number
    }

    /// Returns an empty buffer, a spare one if possible.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Returns the bytes to send next.
    pub(super) fn front(&self) -> Option<&[u8]> {
        let chunk = &self.chunks[*self.queue.front()? as usize];
        Some(&chunk.bytes[chunk.sent..])
    }

    /// Notes that the socket has taken this many bytes of the [`front`](Output::front).
    pub(super) fn advance(&mut self, count: usize) {
        let Some(&number) = self.queue.front() else { return };
        let chunk = &mut self.chunks[number as usize];
        chunk.sent += count;
        chunk.is_begun |= count > 0;
        debug_assert!(chunk.sent <= chunk.bytes.len());
        if chunk.sent >= chunk.bytes.len() {
            self.queue.pop_front();
            chunk.is_queued = false;
            self.free_if_done(number);
        }
    }

    /// Returns the bytes of a request, to write its id or to send it again.
    pub(super) fn bytes_mut(&mut self, range: ByteRange) -> &mut [u8] {
        &mut self.chunks[range.chunk as usize].bytes[range.offset..range.offset + range.len]
    }

    /// Returns true if no byte of the request was sent.
    #[inline]
    pub(super) fn is_unsent(&self, range: ByteRange) -> bool {
        let chunk = &self.chunks[range.chunk as usize];
        chunk.is_queued && range.offset >= chunk.sent
    }

    /// Notes that a request does not need its bytes any more.
    #[inline]
    pub(super) fn unpin(&mut self, range: ByteRange) {
        let chunk = &mut self.chunks[range.chunk as usize];
        chunk.pins -= 1;
        if chunk.pins == 0 {
            self.free_if_done(range.chunk);
        }
    }

    fn free_if_done(&mut self, number: u32) {
        let chunk = &mut self.chunks[number as usize];
        if chunk.is_queued || chunk.pins > 0 {
            return;
        }
        let mut bytes = std::mem::take(&mut chunk.bytes);
        self.free.push(number);
        if bytes.capacity() <= SPARE_CAPACITY_MAX && self.spare.len() < SPARE_BUFFERS_MAX {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    /// Removes unsent requests from the queue. `unsent` are the ranges of all requests of which nothing was sent.
    /// `rest` determines if the rest of a partly sent request stays.
    pub(super) fn take_back(&mut self, unsent: &[ByteRange], rest: Rest) {
        let begun = match rest {
            Rest::Stays => self.rest_of_begun(unsent),
            Rest::Goes => None,
        };
        while let Some(number) = self.queue.pop_front() {
            self.chunks[number as usize].is_queued = false;
            self.free_if_done(number);
        }
        if let Some(bytes) = begun {
            let number = self.push(bytes, 0);
            self.chunks[number as usize].is_begun = true;
        }
    }

    /// Returns the unsent rest of the request that was sent in part.
    fn rest_of_begun(&self, unsent: &[ByteRange]) -> Option<Vec<u8>> {
        let &number = self.queue.front()?;
        let chunk = &self.chunks[number as usize];
        let offsets = unsent.iter().filter(|range| range.chunk == number).map(|range| range.offset);
        let end = offsets.min().unwrap_or(chunk.bytes.len());
        (chunk.is_begun && chunk.sent < end).then(|| chunk.bytes[chunk.sent..end].to_vec())
    }
}

/// Handling of a request of which only the beginning was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// The connection goes on, and its peer waits for the rest.
    Stays,
    /// The connection is gone.
    Goes,
}
