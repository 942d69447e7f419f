//! A large part of a request that is received into a vector of its own, which the command that stores
//! it keeps.
//!
//! - What has arrived is never moved by the program, cleared beforehand, or copied behind what stood before it.
//! - Memory is touched as bytes arrive. Room ahead of them is bounded by [`READ_AHEAD_FACTOR`].

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::mm::{Advice, madvise};
use rustix::param::page_size;

use super::rest::READ_AHEAD_FACTOR;
use crate::tls::Buffers;
use crate::transport::Transport;

/// Least room that is made at a time.
const ROOM_BYTES_MIN: usize = 1024 * 1024;

/// Least and most of the room that is populated at a time. One call for this many pages costs less than a page fault
/// for each. Meanwhile the peer fills the socket, so that larger steps also mean fewer and longer `recv`s. A step is
/// never larger than what has arrived, or the least.
const POPULATED_BYTES_MIN: usize = 1024 * 1024;
const POPULATED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes of the input that are kept out of it.
#[derive(Debug)]
pub(crate) struct Apart {
    /// Where in the input they stood.
    at: usize,
    /// How many there will be.
    len: usize,
    bytes: Vec<u8>,
    /// Up to where the vector is in memory: never less than its length, nor more than its capacity.
    populated: usize,
}

impl Apart {
    /// Of `len` bytes that are at `at`, none have arrived.
    pub(crate) fn new(at: usize, len: usize) -> Self {
        Self { at, len, bytes: Vec::new(), populated: 0 }
    }

    /// A complete one.
    pub(crate) fn from_bytes(at: usize, bytes: Vec<u8>) -> Self {
        Self { at, len: bytes.len(), populated: bytes.len(), bytes }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// What has arrived.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How much of the vector is in memory.
    pub(crate) fn populated(&self) -> usize {
        self.populated
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.bytes.len() == self.len
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Appends a copy of bytes that have arrived elsewhere.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len - self.bytes.len(), "only what belongs here");
        self.bytes.extend_from_slice(bytes);
        self.populated = self.populated.max(self.bytes.len());
    }

    /// Receives once, at most `max` bytes, which must not be 0. Returns how many came, and how many
    /// could have.
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
        // Steps end between two pages, so that none is left to a page fault.
        let end = (room.as_ptr().addr() + step) / page_size() * page_size();
        let step = (end - room.as_ptr().addr()).min(room.len());
        populate_pages(&mut room[..step]);
        self.populated += step;
    }
}

/// Has the kernel populate the whole pages of `room` at once. Where it does not know how (before Linux 5.14), it
/// does so one by one when they are written.
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
        let mut apart = Apart::new(7, 2_999_000);
        apart.append(&sent[..1000]);
        let rest = sent[1000..].to_vec();
        let sender = std::thread::spawn(move || peer.write_all(&rest).map(|()| peer).unwrap());
        while !apart.is_complete() {
            let buffers = &mut Buffers::default();
            let (room, count) =
                apart.receive(&mut Transport::Plain, socket.as_fd(), 100_000, buffers);
            assert!(count.unwrap() <= room && room <= 100_000);
            let ahead = apart.bytes.capacity() - apart.bytes().len();
            let bound = ROOM_BYTES_MIN.max((READ_AHEAD_FACTOR - 1) * apart.bytes().len());
            assert!(ahead <= bound, "{ahead} ahead");
            let populated = apart.populated() - apart.bytes().len();
            let bound = apart.bytes().len().clamp(POPULATED_BYTES_MIN, POPULATED_BYTES_MAX);
            assert!(populated <= bound, "{populated} of them in memory");
        }
        assert_eq!(apart.bytes.capacity(), 2_999_000);
        assert_eq!(apart.bytes(), &sent[..2_999_000]);
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
