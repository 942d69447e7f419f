//! Input that has arrived and waits for more: the incomplete rest of a request, or whole requests
//! of a suspended session.
//!
//! - Owns nothing while empty.
//! - Reserves at most [`READ_AHEAD_BYTES_MAX`] beyond twice the bytes that have arrived, whatever
//!   length a request announces.

use super::pool::{BLOCK_BYTES_MAX, Block, Pool};

/// Room made for announced bytes before they arrive. A peer that announces much and sends little
/// costs no more than this.
pub const READ_AHEAD_BYTES_MAX: usize = 1024 * 1024;

#[derive(Debug, Default)]
enum Storage {
    #[default]
    None,
    Pooled(Block),
    /// Larger than the pool gives in one piece; the length of the vector is the room.
    Heap(Vec<u8>),
}

impl Storage {
    fn bytes(&self) -> &[u8] {
        match self {
            Storage::None => &[],
            Storage::Pooled(block) => block,
            Storage::Heap(bytes) => bytes,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Storage::None => &mut [],
            Storage::Pooled(block) => block,
            Storage::Heap(bytes) => bytes,
        }
    }

    fn with_room(room: usize, pool: &Pool) -> Storage {
        if room <= BLOCK_BYTES_MAX {
            Storage::Pooled(pool.take(room))
        } else {
            Storage::Heap(vec![0; room])
        }
    }
}

/// The unconsumed input of one connection: `start <= end <= storage.bytes().len()`.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    storage: Storage,
    start: usize,
    end: usize,
    /// Bytes the session expects its first request to have; 0 if it does not know.
    wanted: usize,
}

impl Rest {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.storage.bytes()[self.start..self.end]
    }

    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    /// Memory owned.
    pub(crate) fn capacity(&self) -> usize {
        self.storage.bytes().len()
    }

    /// Drops the first `count` bytes; gives the memory back with the last one.
    pub(crate) fn discard(&mut self, count: usize, wanted: usize) {
        debug_assert!(count <= self.len());
        self.start += count;
        self.wanted = wanted;
        if self.start == self.end {
            *self = Rest::default();
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Rest::default();
    }

    /// Appends a copy of `bytes`.
    pub(crate) fn append(&mut self, bytes: &[u8], wanted: usize, pool: &Pool) {
        if bytes.is_empty() {
            return;
        }
        self.wanted = wanted;
        if self.room() < bytes.len() {
            self.make_room(bytes.len(), pool);
        }
        self.storage.bytes_mut()[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Room behind the bytes, to receive into: at least `min` bytes.
    pub(crate) fn spare(&mut self, min: usize, pool: &Pool) -> &mut [u8] {
        if self.room() < min {
            self.make_room(min, pool);
        }
        &mut self.storage.bytes_mut()[self.end..]
    }

    /// Tells that `count` bytes were written to the beginning of [`spare`](Rest::spare).
    pub(crate) fn extend(&mut self, count: usize) {
        assert!(count <= self.room(), "received more than there was room");
        self.end += count;
    }

    fn room(&self) -> usize {
        self.storage.bytes().len() - self.end
    }

    /// Moves the bytes to storage with room for `more`, at least doubling in size so that the
    /// moves of a growing request add up to less than twice its length.
    fn make_room(&mut self, more: usize, pool: &Pool) {
        let len = self.len();
        let capacity = self.capacity();
        // Room at the front suffices if at least half is free: then moving is paid for by the
        // bytes that were consumed.
        if len + more <= capacity && len <= capacity / 2 {
            self.storage.bytes_mut().copy_within(self.start..self.end, 0);
        } else {
            let expected = self.wanted.min(len + READ_AHEAD_BYTES_MAX);
            let mut storage = Storage::with_room((2 * len).max(len + more).max(expected), pool);
            storage.bytes_mut()[..len].copy_from_slice(self.bytes());
            self.storage = storage;
        }
        self.start = 0;
        self.end = len;
    }
}
