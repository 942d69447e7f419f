//! A large part of a request that is received into a vector of its own, where whoever stores it keeps it.
//!
//! - What has arrived is never moved by the program, cleared beforehand, or copied behind what stood before it.
//! - Memory is touched as bytes arrive. Room ahead of them is bounded by [`READ_AHEAD_FACTOR`].

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::mm::{Advice, madvise};
use rustix::param::page_size;

use super::rest::READ_AHEAD_FACTOR;
use crate::transport::Transport;

/// Least room that is made at a time.
const ROOM_BYTES_MIN: usize = 1024 * 1024;

/// How much of the room is given memory at a time. One call for so many pages costs less than a page fault for
/// each.
const FAULTED_IN_BYTES: usize = 1024 * 1024;

/// Bytes of the input that are kept out of it.
#[derive(Debug)]
pub(crate) struct Apart {
    /// Where in the input they stood.
    at: usize,
    /// How many there will be.
    len: usize,
    bytes: Vec<u8>,
    /// Up to where the vector has been given memory.
    faulted_in: usize,
}

impl Apart {
    /// Of `len` bytes that stand at `at`, none have arrived.
    pub(crate) fn new(at: usize, len: usize) -> Self {
        Self { at, len, bytes: Vec::new(), faulted_in: 0 }
    }

    /// A complete one.
    pub(crate) fn from_bytes(at: usize, bytes: Vec<u8>) -> Self {
        Self { at, len: bytes.len(), faulted_in: bytes.len(), bytes }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// What has arrived.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
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
    }

    /// Receives once, at most `max` bytes, which must not be 0. Returns how many came, and how many
    /// could have.
    pub(crate) fn receive(
        &mut self,
        transport: Transport,
        socket: BorrowedFd<'_>,
        max: usize,
    ) -> (usize, io::Result<usize>) {
        let arrived = self.bytes.len();
        if arrived == self.bytes.capacity() {
            let ahead = ROOM_BYTES_MIN.max((READ_AHEAD_FACTOR - 1) * arrived);
            self.bytes.reserve_exact(ahead.min(self.len - arrived));
        }
        let room = max.min(self.len - arrived).min(self.bytes.capacity() - arrived);
        if self.faulted_in < arrived + room {
            let spare = self.bytes.spare_capacity_mut();
            let ahead = FAULTED_IN_BYTES.min(spare.len());
            fault_in(&mut spare[..ahead]);
            self.faulted_in = arrived + ahead;
        }
        let spare = &mut self.bytes.spare_capacity_mut()[..room];
        let result = transport.receive_uninit(socket, spare);
        if let Ok(count) = result {
            assert!(count <= room);
            // SAFETY: the first `count` bytes of the spare capacity were just received, so they are
            // initialized.
            unsafe { self.bytes.set_len(arrived + count) };
        }
        (room, result)
    }
}

/// Has the kernel give memory to the whole pages of `room` at once. Where it does not know how (before Linux
/// 5.14), they get it one by one when they are written.
fn fault_in(room: &mut [MaybeUninit<u8>]) {
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
            let (room, count) = apart.receive(Transport::Plain, socket.as_fd(), 100_000);
            assert!(count.unwrap() <= room && room <= 100_000);
            let ahead = apart.bytes.capacity() - apart.bytes().len();
            let bound = ROOM_BYTES_MIN.max((READ_AHEAD_FACTOR - 1) * apart.bytes().len());
            assert!(ahead <= bound, "{ahead} ahead");
        }
        assert_eq!(apart.bytes.capacity(), 2_999_000);
        assert_eq!(apart.bytes(), &sent[..2_999_000]);
        let mut left = Vec::new();
        while left.len() < 1000 {
            let mut buffer = [0; 2000];
            let count = Transport::Plain.receive(socket.as_fd(), &mut buffer).unwrap();
            left.extend_from_slice(&buffer[..count]);
        }
        assert_eq!(left, &sent[2_999_000..], "what follows is left to others");
        drop(sender.join());
    }
}
