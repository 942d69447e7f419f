//! Input that has arrived and waits for more: the incomplete rest of a request, or whole requests
//! of a suspended session.
//!
//! - Owns nothing while empty.
//! - Whatever length a request announces, room is made for at most [`READ_AHEAD_FACTOR`] times the
//!   bytes that have arrived, and at most [`READ_AHEAD_BYTES_MAX`] more than have arrived or twice
//!   as many.

use super::pool::{BLOCK_BYTES_MAX, Block, Pool};

/// Room made for announced bytes before they arrive. A peer that announces much and sends little
/// costs no more than this.
pub const READ_AHEAD_BYTES_MAX: usize = 1024 * 1024;

/// Room made for announced bytes, as a multiple of those that have arrived. The first 64 KiB of a
/// large value get a megabyte, while thousands of connections with a length and nothing behind it
/// get the smallest block each.
pub(crate) const READ_AHEAD_FACTOR: usize = 16;

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

    /// Drops all but the first `count` bytes, which are copied to a block of their size.
    pub(crate) fn truncate(&mut self, count: usize, pool: &Pool) {
        let rest = std::mem::take(self);
        self.append(&rest.bytes()[..count], 0, pool);
    }

    /// Puts `bytes` between the first `at` bytes and the others.
    pub(crate) fn insert(&mut self, at: usize, bytes: &[u8]) {
        let (front, back) = self.bytes().split_at(at);
        let joined = [front, bytes, back].concat();
        *self = Rest { start: 0, end: joined.len(), storage: Storage::Heap(joined), wanted: 0 };
    }

    fn room(&self) -> usize {
        self.storage.bytes().len() - self.end
    }

    /// Moves the bytes to storage with room for `more`, at least doubling in size so that the
    /// moves of a growing request add up to less than twice its length. Where its length is known, a
    /// vector grows in small steps and no further: large blocks grow where they are, and what is received
    /// into memory that was just cleared finds it in the cache.
    fn make_room(&mut self, more: usize, pool: &Pool) {
        let len = self.len();
        let capacity = self.capacity();
        // Room at the front suffices if at least half is free: then moving is paid for by the
        // bytes that were consumed.
        if len + more <= capacity && len <= capacity / 2 {
            self.storage.bytes_mut().copy_within(self.start..self.end, 0);
        } else {
            let arrived = len + more;
            let ahead_max = READ_AHEAD_BYTES_MAX.min((READ_AHEAD_FACTOR - 1) * arrived);
            let expected = self.wanted.min(arrived + ahead_max);
            if let Storage::Heap(bytes) = &mut self.storage
                && self.start == 0
            {
                let room = if expected >= arrived { expected } else { arrived + ahead_max };
                if room > bytes.capacity() {
                    // Of what is set aside only what is needed is touched.
                    let doubled = if expected >= arrived { room } else { room.max(2 * len) };
                    bytes.reserve_exact(doubled - bytes.len());
                }
                bytes.resize(room, 0);
                return;
            }
            let room = (2 * len).max(arrived).max(expected);
            let mut storage = Storage::with_room(room, pool);
            storage.bytes_mut()[..len].copy_from_slice(self.bytes());
            self.storage = storage;
        }
        self.start = 0;
        self.end = len;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Append(usize),
        Receive { min: usize, count: usize },
        Discard { count: usize, wanted: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..3000usize).prop_map(Step::Append),
            (1..3000usize, 0..5000usize).prop_map(|(min, count)| Step::Receive { min, count }),
            (0..6000usize, 0..100_000usize)
                .prop_map(|(count, wanted)| Step::Discard { count, wanted }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]
        #[test]
        fn keeps_the_bytes_like_a_queue(steps in prop::collection::vec(step(), 1..40)) {
            let pool = Pool::default();
            let mut rest = Rest::default();
            let mut model: VecDeque<u8> = VecDeque::new();
            let mut bytes = (0..=250u8).cycle();
            let mut next = |count: usize| -> Vec<u8> { bytes.by_ref().take(count).collect() };
            for step in steps {
                match step {
                    Step::Append(count) => {
                        let new = next(count);
                        rest.append(&new, 0, &pool);
                        model.extend(new);
                    }
                    Step::Receive { min, count } => {
                        let spare = rest.spare(min, &pool);
                        prop_assert!(spare.len() >= min);
                        let new = next(count.min(spare.len()));
                        spare[..new.len()].copy_from_slice(&new);
                        rest.extend(new.len());
                        model.extend(new);
                    }
                    Step::Discard { count, wanted } => {
                        let count = count.min(rest.len());
                        rest.discard(count, wanted);
                        model.drain(..count);
                    }
                }
                prop_assert!(model.iter().eq(rest.bytes()));
                prop_assert_eq!(model.len(), rest.len());
            }
            rest.clear();
            prop_assert_eq!(pool.stats().used_bytes, 0);
        }
    }

    #[test]
    fn owns_nothing_while_empty() {
        let pool = Pool::default();
        let mut rest = Rest::default();
        rest.append(b"GET ", 0, &pool);
        assert_eq!(rest.capacity(), 256);
        rest.discard(4, 0);
        assert_eq!((rest.capacity(), pool.stats().used_bytes), (0, 0));
    }

    #[test]
    fn an_announced_length_reserves_only_so_much_ahead() {
        let pool = Pool::default();
        let announced = 512 * 1024 * 1024;
        let mut rest = Rest::default();
        rest.append(b"*3 $512m", announced, &pool);
        assert_eq!(rest.capacity(), 256);
        for _ in 0..64 {
            rest.append(&[0; 64 * 1024], announced, &pool);
            let (arrived, capacity) = (rest.len(), rest.capacity());
            assert!(capacity >= 1024 * 1024, "{capacity} for {arrived}");
            // The next power of two, while the pool has blocks of the size.
            assert!(capacity <= 2 * (arrived + READ_AHEAD_BYTES_MAX), "{capacity} for {arrived}");
        }
    }

    #[test]
    fn a_growing_request_is_moved_few_times() {
        let pool = Pool::default();
        let mut rest = Rest::default();
        let (mut moves, mut capacity) = (0, 0);
        let piece = [1; 16 * 1024];
        for _ in 0..1024 {
            rest.append(&piece, 0, &pool);
            moves += usize::from(rest.capacity() != capacity);
            capacity = rest.capacity();
        }
        assert_eq!(rest.len(), 16 * 1024 * 1024);
        // Up to a block of the pool it doubles; beyond, a MiB more each time is a mapping that grows.
        assert!(moves <= 7 + 16, "{moves} moves");
        assert!(rest.capacity() <= 2 * rest.len());
    }
}
