//! Unconsumed input: the incomplete rest of a request, or whole requests of a suspended session.
//!
//! - Owns nothing while empty. When at least as many bytes were consumed as are left, it owns at most [`SLACK_FACTOR`]
//!   times these, or [`SLACK_BYTES_MAX`]: an idle connection does not keep the memory of its last request.
//! - Memory grows with received bytes, never with a declared length: there is room for at most [`READ_AHEAD_FACTOR`]
//!   times the received bytes, and at most [`READ_AHEAD_BYTES_MAX`] more than were received or twice as many.

/// Maximum room allocated for declared bytes before they arrive. A peer that declares much and sends little costs no
/// more than this.
pub const READ_AHEAD_BYTES_MAX: usize = 1024 * 1024;

/// Room allocated for declared bytes, as a multiple of the received ones. The first 64 KiB of a large value get a
/// megabyte, while thousands of connections with only a declared length get the smallest block each.
pub(crate) const READ_AHEAD_FACTOR: usize = 16;

/// Least room allocated. A session with an incomplete request costs at least this much.
const ROOM_BYTES_MIN: usize = 256;

/// Memory that may stay unused behind consumed requests. At most this many bytes are moved to the worker's buffer when
/// the next ones arrive (`REJOIN_BYTES_MAX`), so keeping more memory for them would save nothing.
const SLACK_BYTES_MAX: usize = 4 * 1024;

/// This limit as a multiple of the remaining bytes.
const SLACK_FACTOR: usize = 4;

/// Unconsumed input of one connection: `start <= end <= memory.len()`.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// Its length is the highest position ever written.
    memory: Vec<u8>,
    start: usize,
    end: usize,
    /// Number of bytes the session expects its first request to have; 0 if it does not know.
    wanted: usize,
}

impl Rest {
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    /// Returns the memory owned.
    pub(crate) fn capacity(&self) -> usize {
        self.memory.capacity()
    }

    /// Drops the first `count` bytes. Frees memory when nothing or little is left. Only consumption frees memory: room
    /// allocated ahead stays until it is used. The consumed bytes pay for moving as many to smaller memory.
    pub(crate) fn discard(&mut self, count: usize, wanted: usize) {
        debug_assert!(count <= self.len());
        self.start += count;
        if self.start == self.end {
            *self = Rest::default();
        } else if count > 0
            && self.start >= self.len()
            && self.capacity() > SLACK_BYTES_MAX.max(SLACK_FACTOR * self.len())
        {
            self.truncate(self.len());
        }
        self.wanted = wanted;
    }

    pub(crate) fn clear(&mut self) {
        *self = Rest::default();
    }

    /// Appends a copy of `bytes`.
    pub(crate) fn append(&mut self, bytes: &[u8], wanted: usize) {
        if bytes.is_empty() {
            return;
        }
        self.wanted = wanted;
        if self.room() < bytes.len() {
            self.make_room(bytes.len());
        }
        self.memory.truncate(self.end);
        self.memory.extend_from_slice(bytes);
        self.end = self.memory.len();
    }

    /// Returns room behind the bytes to receive into: at least `min` bytes. The room grows at most with the bytes
    /// present, so that arriving bytes pay for the moves.
    pub(crate) fn spare(&mut self, min: usize) -> &mut [u8] {
        if self.room() < min {
            self.make_room(min);
        }
        // Zeroed once, and not again at each receive.
        self.memory.resize(self.memory.capacity(), 0);
        &mut self.memory[self.end..]
    }

    /// Adds `count` bytes that were written to the beginning of [`spare`](Rest::spare).
    pub(crate) fn extend(&mut self, count: usize) {
        assert!(count <= self.memory.len() - self.end, "received more than there was room");
        self.end += count;
    }

    /// Drops all but the first `count` bytes, which are copied to memory of their size.
    pub(crate) fn truncate(&mut self, count: usize) {
        let rest = std::mem::take(self);
        self.append(&rest.bytes()[..count], 0);
    }

    /// Inserts `bytes` behind the first `at` bytes.
    pub(crate) fn insert(&mut self, at: usize, bytes: &[u8]) {
        let (front, back) = self.bytes().split_at(at);
        let joined = [front, bytes, back].concat();
        *self = Rest { start: 0, end: joined.len(), memory: joined, wanted: 0 };
    }

    fn room(&self) -> usize {
        self.capacity() - self.end
    }

    /// Makes room for `more` behind the bytes, and for the expected request. There is room for as many bytes as are
    /// moved besides `more`, so the moves of a growing request add up to less than twice its length. A large request of
    /// known length grows in small steps and not beyond it: large allocations grow in place.
    fn make_room(&mut self, more: usize) {
        let len = self.len();
        let fits = len + more <= self.capacity();
        self.memory.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, len);
        // Room at the front suffices if at least half is free: then the consumed bytes pay for the move.
        if fits && len <= self.capacity() / 2 {
            return;
        }
        let arrived = len + more;
        let ahead_max = READ_AHEAD_BYTES_MAX.min((READ_AHEAD_FACTOR - 1) * arrived);
        let expected = self.wanted.min(arrived + ahead_max);
        let is_known = len >= READ_AHEAD_BYTES_MAX && expected >= arrived;
        let room = if is_known { expected } else { expected.max(arrived + len) };
        self.memory.truncate(len);
        self.memory.reserve_exact(room.max(ROOM_BYTES_MIN) - len);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;
    use tierce_harness::effort;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Append(usize),
        Receive { min: usize, count: usize },
        Discard(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..3000usize).prop_map(Step::Append),
            (1..3000usize, 0..5000usize).prop_map(|(min, count)| Step::Receive { min, count }),
            (0..6000usize).prop_map(Step::Discard),
        ]
    }

    /// Upper bound of the average number of moves of a byte; a byte that arrives with a growth of memory counts as
    /// moved. Each byte is moved once at that time (1). Between two growths at least as many bytes arrive as the first
    /// has moved, so the second moves at most those (1), as many again (1), and those that arrived with the first (1).
    /// The consumed bytes pay for the move to smaller memory (1), and for the growth after it, which moves these bytes
    /// again (1).
    const MOVES_MAX: usize = 6;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { effort(256) },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]
        #[test]
        fn keeps_the_bytes_like_a_queue(
            steps in prop::collection::vec(step(), 1..40),
            wanted in prop_oneof![Just(0), 0..100_000usize],
        ) {
            let mut rest = Rest::default();
            let mut model: VecDeque<u8> = VecDeque::new();
            let mut bytes = (0..=250u8).cycle();
            let mut next = |count: usize| -> Vec<u8> { bytes.by_ref().take(count).collect() };
            let (mut arrived, mut moved) = (0, 0);
            for step in steps {
                let capacity = rest.capacity();
                match step {
                    Step::Append(count) => {
                        let new = next(count);
                        rest.append(&new, 0);
                        arrived += new.len();
                        model.extend(new);
                    }
                    Step::Receive { min, count } => {
                        let min = min.min(rest.len()).max(1);
                        let spare = rest.spare(min);
                        prop_assert!(spare.len() >= min);
                        let new = next(count.min(spare.len()));
                        spare[..new.len()].copy_from_slice(&new);
                        rest.extend(new.len());
                        arrived += new.len();
                        model.extend(new);
                    }
                    Step::Discard(count) => {
                        let count = count.min(rest.len());
                        rest.discard(count, wanted);
                        model.drain(..count);
                        let kept_max = SLACK_BYTES_MAX.max(SLACK_FACTOR * model.len());
                        let is_paid = count > 0 && rest.start >= rest.len();
                        prop_assert!(!is_paid || rest.capacity() <= kept_max);
                    }
                }
                prop_assert!(model.iter().eq(rest.bytes()));
                prop_assert_eq!(model.len(), rest.len());
                moved += if rest.capacity() == capacity { 0 } else { rest.len() };
                prop_assert!(moved <= MOVES_MAX * arrived, "{moved} of {arrived}");
            }
            rest.clear();
            prop_assert_eq!(rest.capacity(), 0);
        }
    }

    #[test]
    fn owns_nothing_while_empty() {
        let mut rest = Rest::default();
        rest.append(b"GET ", 0);
        assert_eq!(rest.capacity(), 256);
        rest.discard(4, 0);
        assert_eq!(rest.capacity(), 0);
    }

    #[test]
    fn the_beginning_of_a_request_does_not_keep_the_memory_of_the_one_before() {
        let mut rest = Rest::default();
        let request = vec![1; 16 * 1024 * 1024];
        rest.append(&request, 0);
        rest.append(b"*2\r\n$3\r\nGE", 0);
        rest.discard(request.len(), 0);
        assert_eq!((rest.bytes(), rest.capacity()), (&b"*2\r\n$3\r\nGE"[..], 256));
    }

    #[test]
    fn room_made_ahead_is_kept_while_nothing_is_consumed() {
        let mut rest = Rest::default();
        rest.append(&[0; 10_000], 1024 * 1024);
        let capacity = rest.capacity();
        assert!(capacity > SLACK_BYTES_MAX.max(SLACK_FACTOR * rest.len()));
        rest.discard(0, 1024 * 1024);
        assert_eq!(rest.capacity(), capacity);
    }

    #[test]
    fn small_pieces_do_not_move_what_is_there_each_time() {
        let mut rest = Rest::default();
        rest.append(&[1; 4097], 0);
        let (mut moves, mut capacity) = (0, rest.capacity());
        for _ in 0..4096 {
            rest.spare(4096);
            rest.extend(1);
            moves += usize::from(rest.capacity() != capacity);
            capacity = rest.capacity();
        }
        assert!(moves <= 1, "{moves} moves");
    }

    #[test]
    fn an_announced_length_reserves_only_so_much_ahead() {
        let announced = 512 * 1024 * 1024;
        let mut rest = Rest::default();
        rest.append(b"*3 $512m", announced);
        assert_eq!(rest.capacity(), 256);
        for _ in 0..64 {
            rest.append(&[0; 64 * 1024], announced);
            let (arrived, capacity) = (rest.len(), rest.capacity());
            assert!(capacity >= 1024 * 1024, "{capacity} for {arrived}");
            assert!(capacity <= 2 * (arrived + READ_AHEAD_BYTES_MAX), "{capacity} for {arrived}");
        }
    }

    #[test]
    fn a_growing_request_is_moved_few_times() {
        let mut rest = Rest::default();
        let (mut moves, mut capacity) = (0, 0);
        let piece = [1; 16 * 1024];
        for _ in 0..1024 {
            rest.append(&piece, 0);
            moves += usize::from(rest.capacity() != capacity);
            capacity = rest.capacity();
        }
        assert_eq!(rest.len(), 16 * 1024 * 1024);
        assert!(moves <= 12, "{moves} moves");
        assert!(rest.capacity() <= 2 * rest.len());
    }
}
