//! Compiled scripts of a machine, with LRU eviction.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::hash::{BuildHasherDefault, Hasher};

use crate::sha1::Sha1;

/// Maximum number of scripts that a machine keeps compiled.
const CHUNKS_MAX: usize = 1000;

/// Maximum bytes of their sources.
const SOURCES_LEN_MAX: usize = 16 * 1024 * 1024;

struct Chunk {
    /// Reference in the registry.
    reference: c_int,
    source_len: usize,
    /// True if it was used since it was last at the front of the queue.
    is_used: bool,
}

/// Compiled scripts, by the SHA-1 of their source.
#[derive(Default)]
pub(super) struct Chunks {
    chunks: HashMap<Sha1, Chunk, BuildHasherDefault<FirstBytes>>,
    /// All of them, the next one to be evicted first; a used one moves to the end again.
    queue: VecDeque<Sha1>,
    sources_len: usize,
}

impl Chunks {
    /// Returns the reference of a compiled script.
    #[inline]
    pub(super) fn get(&mut self, sha: &Sha1) -> Option<c_int> {
        let chunk = self.chunks.get_mut(sha)?;
        chunk.is_used = true;
        Some(chunk.reference)
    }

    /// Adds a script. Returns the references of those that are evicted for it.
    pub(super) fn insert(&mut self, sha: Sha1, source_len: usize, reference: c_int) -> Vec<c_int> {
        let mut forgotten = Vec::new();
        while self.chunks.len() >= CHUNKS_MAX || self.sources_len + source_len > SOURCES_LEN_MAX {
            match self.forget_one() {
                Some(reference) => forgotten.push(reference),
                None => break,
            }
        }
        self.sources_len += source_len;
        self.chunks.insert(sha, Chunk { reference, source_len, is_used: false });
        self.queue.push_back(sha);
        forgotten
    }

    fn forget_one(&mut self) -> Option<c_int> {
        loop {
            let sha = self.queue.pop_front()?;
            let chunk = self.chunks.get_mut(&sha)?;
            if chunk.is_used {
                chunk.is_used = false;
                self.queue.push_back(sha);
                continue;
            }
            self.sources_len -= chunk.source_len;
            let reference = chunk.reference;
            self.chunks.remove(&sha);
            return Some(reference);
        }
    }
}

/// Hasher for a SHA-1: takes eight bytes of it, which are evenly distributed already. It also hashes numbers.
#[derive(Default)]
pub(super) struct FirstBytes(u64);

impl Hasher for FirstBytes {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    /// Hashes a sequential number by spreading its bits.
    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// Ignores the length that arrays are hashed with.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sha1::sha1;

    #[test]
    fn what_was_used_stays() {
        let mut chunks = Chunks::default();
        let sha = |number: c_int| sha1(&number.to_le_bytes());
        for number in 0..CHUNKS_MAX as c_int {
            assert!(chunks.insert(sha(number), 10, number).is_empty());
        }
        assert_eq!(chunks.get(&sha(0)), Some(0));
        assert_eq!(chunks.insert(sha(-1), 10, -1), [1]);
        assert_eq!((chunks.get(&sha(0)), chunks.get(&sha(1))), (Some(0), None));
        // A large one evicts all others, and none is too large.
        let forgotten = chunks.insert(sha(-2), 2 * SOURCES_LEN_MAX, -2);
        assert_eq!(forgotten.len(), CHUNKS_MAX);
        assert_eq!(chunks.get(&sha(-2)), Some(-2));
        assert_eq!(chunks.insert(sha(-3), 10, -3), [-2]);
    }
}
