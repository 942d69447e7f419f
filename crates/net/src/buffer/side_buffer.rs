//! A side buffer: a large part of a request is received into a vector of its own, which the command that stores it
//! keeps.
//!
//! - Received bytes are never moved, zeroed beforehand, or copied behind the earlier input.
//! - Memory is touched as bytes arrive. Room ahead of them is bounded by [`READ_AHEAD_FACTOR`].

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::mm::{Advice, madvise};
use rustix::param::page_size;

use super::rest::READ_AHEAD_FACTOR;
use crate::tls::Buffers;
use crate::transport::Transport;

/// Least room that is allocated at a time.
const ROOM_BYTES_MIN: usize = 1024 * 1024;

/// Bounds of the room that is populated at a time. One call for this many pages costs less than a page fault for each.
/// Meanwhile the peer fills the socket, so larger steps also mean fewer and longer `recv`s. A step is never larger than
/// the received bytes, or the minimum.
const POPULATED_BYTES_MIN: usize = 1024 * 1024;
const POPULATED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes of the input that are received into a side buffer.
#[derive(Debug)]
pub(crate) struct SideBuffer {
    /// Position of the value in the input.
    at: usize,
    /// Final number of bytes.
    len: usize,
    bytes: Vec<u8>,
    /// End of the part of the vector that is in memory: at least its length, at most its capacity.
    populated: usize,
}

impl SideBuffer {
    /// Creates an empty side buffer for `len` bytes at `at`.
    pub(crate) fn new(at: usize, len: usize) -> Self {
        Self { at, len, bytes: Vec::new(), populated: 0 }
    }

    /// Creates a complete one.
    pub(crate) fn from_bytes(at: usize, bytes: Vec<u8>) -> Self {
        Self { at, len: bytes.len(), populated: bytes.len(), bytes }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Returns the received bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns how many bytes of the vector are in memory.
    pub(crate) fn populated(&self) -> usize {
        self.populated
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.bytes.len() == self.len
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Appends a copy of bytes that were received elsewhere.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len - self.bytes.len(), "only what belongs here");
        self.bytes.extend_from_slice(bytes);
        self.populated = self.populated.max(self.bytes.len());
    }

    /// Receives once, at most `max` bytes, which must not be 0. Returns the number of bytes received, and the room that
    /// there was.
    pub(crate) fn receive(
        &mut self,
        transport: &mut Transport,
        socket: BorrowedFd<'_>,
        max: usize,
        tls: &mut Buffers,
    ) -> (usize, io::Result<usize>) {
        let arrived = self.bytes.len();
        if arrived == self.bytes.capacity() {
            let ahead = ROOM_BYTES_MIN.max((READ_AHEAD_FACTOR - 1) * arrived);
            self.bytes.reserve_exact(ahead.min(self.len - arrived));
        }
        self.populate();
        let room = max.min(self.len - arrived).min(self.populated - arrived);
        let spare = &mut self.bytes.spare_capacity_mut()[..room];
        let result = transport.receive_uninit(socket, spare, tls);
        if let Ok(count) = result {
            assert!(count <= room);
            // SAFETY: the first `count` bytes of the spare capacity were just received, so they are
            // initialized.
            unsafe { self.bytes.set_len(arrived + count) };
        }
        (room, result)
    }

    /// Populates a step of the room, unless more than a quarter of the last one is left.
    fn populate(&mut self) {
        let arrived = self.bytes.len();
        let ahead = self.populated - arrived;
        let step = arrived.clamp(POPULATED_BYTES_MIN, POPULATED_BYTES_MAX);
        if ahead > step / 4 {
            return;
        }
        let room = &mut self.bytes.spare_capacity_mut()[ahead..];
        // Steps end at page boundaries, so that no page is left to a page fault.
        let end = (room.as_ptr().addr() + step) / page_size() * page_size();
        let step = (end - room.as_ptr().addr()).min(room.len());
        populate_pages(&mut room[..step]);
        self.populated += step;
    }
}

/// Asks the kernel to populate the whole pages of `room` at once. Before Linux 5.14 the kernel cannot do this, and
/// populates each page when it is written.
fn populate_pages(room: &mut [MaybeUninit<u8>]) {
    let page = page_size();
    let skipped = room.as_ptr().align_offset(page);
    let Some(pages) = room.get_mut(skipped..) else { return };
    let len = pages.len() / page * page;
    // SAFETY: the range is inside of `room`, which is borrowed exclusively, and the advice changes nothing of
    // its contents.
    let _ = unsafe { madvise(pages.as_mut_ptr().cast(), len, Advice::LinuxPopulateWrite) };
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "there are no sockets")]
    fn receives_just_what_belongs_to_it_and_makes_room_as_it_comes() {
        let (mut peer, socket) = UnixStream::pair().unwrap();
        let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        let mut side_buffer = SideBuffer::new(7, 2_999_000);
        side_buffer.append(&sent[..1000]);
        let rest = sent[1000..].to_vec();
        let sender = std::thread::spawn(move || peer.write_all(&rest).map(|()| peer).unwrap());
        while !side_buffer.is_complete() {
            let buffers = &mut Buffers::default();
            let (room, count) =
                side_buffer.receive(&mut Transport::Plain, socket.as_fd(), 100_000, buffers);
            assert!(count.unwrap() <= room && room <= 100_000);
            let ahead = side_buffer.bytes.capacity() - side_buffer.bytes().len();
            let bound = ROOM_BYTES_MIN.max((READ_AHEAD_FACTOR - 1) * side_buffer.bytes().len());
            assert!(ahead <= bound, "{ahead} ahead");
            let populated = side_buffer.populated() - side_buffer.bytes().len();
            let bound = side_buffer.bytes().len().clamp(POPULATED_BYTES_MIN, POPULATED_BYTES_MAX);
            assert!(populated <= bound, "{populated} of them in memory");
        }
        assert_eq!(side_buffer.bytes.capacity(), 2_999_000);
        assert_eq!(side_buffer.bytes(), &sent[..2_999_000]);
        let mut left = Vec::new();
        while left.len() < 1000 {
            let mut buffer = [0; 2000];
            let count = crate::socket::receive(socket.as_fd(), &mut buffer).unwrap();
            left.extend_from_slice(&buffer[..count]);
        }
        assert_eq!(left, &sent[2_999_000..], "what follows is left to others");
        drop(sender.join());
    }
}
