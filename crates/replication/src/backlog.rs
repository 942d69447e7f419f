//! A stream of bytes with offsets, shared by all its readers.
//!
//! One thread appends. Any number of readers read, each at its own speed, and all from the same memory. The recent
//! past is kept for readers that reconnect ([`Backlog::reader_at`]); older bytes are kept only while a reader still
//! needs them.
//!
//! Memory: the recent past and the unread bytes of the slowest reader, rounded up to blocks. The allowed lag bounds
//! the latter: a reader that lags more is [lost](Taken::Lost). The appending thread never waits for a reader,
//! unless it calls [`Backlog::wait_for_readers`].

use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Size of a block of bytes; bytes that are no longer needed are freed block by block.
const BLOCK_BYTES: usize = 16 << 10;

/// Upper bound of free blocks kept for reuse: the number that is appended at once under load. Allocating and
/// freeing them each time would cost page faults.
const SPARE_MAX: usize = 4;

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// This many bytes were read; there may be more.
    Bytes(usize),
    /// The reader has read everything.
    Nothing,
    /// The bytes that the reader needs are gone: it lagged too much.
    Lost,
}

/// The stream.
#[derive(Debug)]
pub struct Backlog {
    state: Mutex<State>,
    /// Notified when a reader has read something or is gone.
    progress: Condvar,
}

#[derive(Debug)]
struct State {
    /// All blocks are full except the last one.
    blocks: VecDeque<Vec<u8>>,
    /// Offset of the first byte in `blocks`.
    begin: u64,
    /// Offset behind the last byte.
    end: u64,
    /// Number of past bytes kept for future readers.
    kept_bytes: usize,
    /// Offset of each reader, by its key.
    readers: HashMap<u64, u64>,
    next_reader: u64,
    /// Empty blocks for reuse.
    spare: Vec<Vec<u8>>,
}

/// Reader of the stream. Dropping it frees the bytes that are kept for it.
#[derive(Debug)]
pub struct Reader {
    backlog: Arc<Backlog>,
    key: u64,
}

impl Backlog {
    /// Returns a stream that begins at an offset, and keeps this many past bytes.
    #[must_use]
    pub fn new(begin: u64, kept_bytes: usize) -> Arc<Self> {
        let state = State {
            blocks: VecDeque::new(),
            begin,
            end: begin,
            kept_bytes,
            readers: HashMap::new(),
            next_reader: 0,
            spare: Vec::new(),
        };
        Arc::new(Self { state: Mutex::new(state), progress: Condvar::new() })
    }

    /// Appends bytes, and frees blocks that nobody needs any more. Readers that lag more than `lag_max` behind the
    /// new end are lost; zero means no limit. Returns the new end.
    pub fn append(&self, bytes: &[u8], lag_max: usize) -> u64 {
        let mut state = self.state.lock();
        state.push(bytes);
        if lag_max > 0 {
            let oldest = state.end.saturating_sub(lag_max as u64);
            state.readers.retain(|_, at| *at >= oldest);
        }
        state.trim();
        state.end
    }

    /// Returns the offset behind the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.state.lock().end
    }

    /// Returns the offsets at which a reader can begin.
    #[must_use]
    pub fn offsets(&self) -> RangeInclusive<u64> {
        let state = self.state.lock();
        state.begin..=state.end
    }

    /// Returns the memory of all blocks.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let state = self.state.lock();
        (state.blocks.len() + state.spare.len()) * BLOCK_BYTES
    }

    /// Changes the number of past bytes that are kept.
    pub fn set_kept_bytes(&self, kept_bytes: usize) {
        let mut state = self.state.lock();
        state.kept_bytes = kept_bytes;
        state.trim();
    }

    /// Removes all bytes, and restarts at an offset. All readers are lost.
    pub fn restart(&self, begin: u64) {
        let mut state = self.state.lock();
        state.readers.clear();
        state.blocks.clear();
        (state.begin, state.end) = (begin, begin);
        drop(state);
        self.progress.notify_all();
    }

    /// Loses all readers. The bytes stay for those that reconnect.
    pub fn lose_readers(&self) {
        let mut state = self.state.lock();
        state.readers.clear();
        state.trim();
        drop(state);
        self.progress.notify_all();
    }

    /// Returns a reader that begins at an offset, if the bytes from there on are kept.
    #[must_use]
    pub fn reader_at(self: &Arc<Self>, offset: u64) -> Option<Reader> {
        let mut state = self.state.lock();
        if !(state.begin..=state.end).contains(&offset) {
            return None;
        }
        let key = state.next_reader;
        state.next_reader += 1;
        state.readers.insert(key, offset);
        Some(Reader { backlog: Arc::clone(self), key })
    }

    /// Waits until no reader lags more than `lag_max` bytes. If no reader makes progress for `patience`, the
    /// lagging readers are lost. Returns true if there are readers.
    pub fn wait_for_readers(&self, lag_max: usize, patience: Duration) -> bool {
        let mut state = self.state.lock();
        let mut deadline = Instant::now() + patience;
        let mut slowest = state.slowest();
        loop {
            let oldest = state.end.saturating_sub(lag_max as u64);
            match state.slowest() {
                None => return false,
                Some(at) if at >= oldest => return true,
                Some(at) if slowest != Some(at) => {
                    slowest = Some(at);
                    deadline = Instant::now() + patience;
                }
                Some(_) => {}
            }
            if self.progress.wait_until(&mut state, deadline).timed_out() {
                state.readers.retain(|_, at| *at >= oldest);
                state.trim();
                deadline = Instant::now() + patience;
            }
        }
    }
}

impl State {
    fn push(&mut self, mut bytes: &[u8]) {
        self.end += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.blocks.back().is_none_or(|block| block.len() == BLOCK_BYTES) {
                let block = self.spare.pop();
                self.blocks.push_back(block.unwrap_or_else(|| Vec::with_capacity(BLOCK_BYTES)));
            }
            let Some(block) = self.blocks.back_mut() else { return };
            let count = bytes.len().min(BLOCK_BYTES - block.len());
            block.extend_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
        }
    }

    fn slowest(&self) -> Option<u64> {
        self.readers.values().min().copied()
    }

    /// Frees the blocks that neither a reader nor the recent past needs.
    fn trim(&mut self) {
        let oldest_kept = self.end.saturating_sub(self.kept_bytes as u64);
        let oldest = self.slowest().map_or(oldest_kept, |at| at.min(oldest_kept));
        while self.blocks.front().is_some_and(|block| {
            block.len() == BLOCK_BYTES && self.begin + BLOCK_BYTES as u64 <= oldest
        }) {
            self.begin += BLOCK_BYTES as u64;
            if let Some(mut block) = self.blocks.pop_front()
                && self.spare.len() < SPARE_MAX
            {
                block.clear();
                self.spare.push(block);
            }
        }
    }

    /// Appends to `into` at most `max` of the bytes behind `from`. Returns their number.
    fn copy(&self, from: u64, max: usize, into: &mut Vec<u8>) -> usize {
        let behind = (from - self.begin) as usize;
        let (mut index, mut at) = (behind / BLOCK_BYTES, behind % BLOCK_BYTES);
        let mut copied = 0;
        while let Some(block) = self.blocks.get(index).filter(|_| copied < max) {
            let bytes = &block[at..at + (block.len() - at).min(max - copied)];
            into.extend_from_slice(bytes);
            copied += bytes.len();
            (index, at) = (index + 1, 0);
        }
        copied
    }
}

impl Reader {
    /// Appends to `into` at most `max` of the next bytes.
    pub fn take(&mut self, max: usize, into: &mut Vec<u8>) -> Taken {
        let mut state = self.backlog.state.lock();
        let Some(from) = state.readers.get(&self.key).copied() else { return Taken::Lost };
        let count = state.copy(from, max, into);
        if count == 0 {
            return Taken::Nothing;
        }
        state.readers.insert(self.key, from + count as u64);
        let is_slowest = state.slowest().is_none_or(|at| at > from);
        drop(state);
        if is_slowest {
            self.backlog.progress.notify_all();
        }
        Taken::Bytes(count)
    }

    /// Returns its offset, unless it is lost.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        self.backlog.state.lock().readers.get(&self.key).copied()
    }

    /// Returns the number of unread bytes; `None` if it is lost.
    #[must_use]
    pub fn lag(&self) -> Option<u64> {
        let state = self.backlog.state.lock();
        state.readers.get(&self.key).map(|at| state.end - at)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.backlog.state.lock();
        state.readers.remove(&self.key);
        state.trim();
        drop(state);
        self.backlog.progress.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tierce_harness::effort;

    use super::*;

    /// Returns the byte at an offset.
    fn byte(at: u64) -> u8 {
        (at % 251) as u8
    }

    fn bytes(from: u64, count: usize) -> Vec<u8> {
        (from..from + count as u64).map(byte).collect()
    }

    #[derive(Clone, Debug)]
    enum Step {
        Append(usize),
        Come { back: u64 },
        Take { reader: usize, max: usize },
        Leave(usize),
        Keep(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..3 * BLOCK_BYTES).prop_map(Step::Append),
            (0..4 * BLOCK_BYTES as u64).prop_map(|back| Step::Come { back }),
            (0..4_usize, 0..2 * BLOCK_BYTES).prop_map(|(reader, max)| Step::Take { reader, max }),
            (0..4_usize).prop_map(Step::Leave),
            (0..4 * BLOCK_BYTES).prop_map(Step::Keep),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        /// Readers get the bytes at their offsets, whatever other readers do. The guaranteed past is kept, and not
        /// much more.
        #[test]
        fn readers_get_the_stream(begin in 0..1000_u64, steps in prop::collection::vec(step(), 1..80)) {
            const LAG_MAX: usize = 6 * BLOCK_BYTES;
            let mut kept = 2 * BLOCK_BYTES;
            let backlog = Backlog::new(begin, kept);
            let mut end = begin;
            let mut readers: Vec<(Reader, u64)> = Vec::new();
            // Oldest offset that was guaranteed when the bytes before `end` were appended.
            let mut oldest = begin;
            for step in steps {
                match step {
                    Step::Append(count) => {
                        prop_assert_eq!(backlog.append(&bytes(end, count), LAG_MAX), end + count as u64);
                        end += count as u64;
                    }
                    Step::Come { back } => {
                        let at = end.saturating_sub(back);
                        let is_kept = backlog.offsets().contains(&at);
                        let reader = backlog.reader_at(at);
                        prop_assert_eq!(reader.is_some(), is_kept);
                        readers.extend(reader.map(|reader| (reader, at)));
                    }
                    Step::Take { reader, max } if !readers.is_empty() => {
                        let index = reader % readers.len();
                        let (reader, at) = &mut readers[index];
                        let mut taken = Vec::new();
                        match reader.take(max, &mut taken) {
                            Taken::Bytes(count) => {
                                prop_assert_eq!(&taken, &bytes(*at, count));
                                prop_assert!(count <= max);
                                *at += count as u64;
                            }
                            Taken::Nothing => prop_assert!(*at == end || max == 0),
                            Taken::Lost => {
                                prop_assert!(end - *at > LAG_MAX as u64);
                                readers.swap_remove(index);
                            }
                        }
                    }
                    Step::Leave(reader) if !readers.is_empty() => {
                        readers.swap_remove(reader % readers.len());
                    }
                    Step::Keep(bytes) => {
                        kept = bytes;
                        backlog.set_kept_bytes(bytes);
                    }
                    Step::Take { .. } | Step::Leave(_) => {}
                }
                oldest = oldest.max(end.saturating_sub(kept as u64));
                prop_assert!(*backlog.offsets().start() <= oldest);
                let needed = LAG_MAX.max(kept) + 2 * BLOCK_BYTES;
                prop_assert!(backlog.memory_bytes() <= needed + SPARE_MAX * BLOCK_BYTES);
            }
        }
    }

    #[test]
    fn a_reader_that_lags_is_lost_and_frees_its_bytes() {
        let backlog = Backlog::new(0, 0);
        let mut slow = backlog.reader_at(0).unwrap();
        let mut quick = backlog.reader_at(0).unwrap();
        let mut taken = Vec::new();
        for _ in 0..4 {
            backlog.append(&[b'x'; BLOCK_BYTES], 3 * BLOCK_BYTES);
            assert_eq!(quick.take(usize::MAX, &mut taken), Taken::Bytes(BLOCK_BYTES));
        }
        assert_eq!(slow.take(1, &mut taken), Taken::Lost);
        assert_eq!((slow.lag(), quick.lag()), (None, Some(0)));
        assert!(backlog.memory_bytes() <= (1 + SPARE_MAX) * BLOCK_BYTES);
    }

    #[test]
    fn one_that_waits_goes_on_when_the_slowest_has_read() {
        let backlog = Backlog::new(0, 0);
        let mut reader = backlog.reader_at(0).unwrap();
        backlog.append(&[b'x'; 100], 0);
        let patience = Duration::from_secs(60);
        let waiting = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| backlog.wait_for_readers(50, patience));
            let mut taken = Vec::new();
            assert_eq!(reader.take(60, &mut taken), Taken::Bytes(60));
            waiting.join().unwrap()
        });
        assert!(waiting);
        assert!(!{
            drop(reader);
            backlog.wait_for_readers(50, patience)
        });
    }

    #[test]
    fn one_that_waits_in_vain_loses_those_that_lag() {
        let backlog = Backlog::new(0, 0);
        let mut reader = backlog.reader_at(0).unwrap();
        backlog.append(&[b'x'; 100], 0);
        assert!(!backlog.wait_for_readers(50, Duration::ZERO));
        assert_eq!(reader.take(1, &mut Vec::new()), Taken::Lost);
    }

    #[test]
    fn lost_readers_may_come_back() {
        let backlog = Backlog::new(5, 1 << 20);
        let mut reader = backlog.reader_at(5).unwrap();
        backlog.append(b"abc", 0);
        backlog.lose_readers();
        let mut taken = Vec::new();
        assert_eq!(reader.take(9, &mut taken), Taken::Lost);
        assert_eq!(backlog.reader_at(6).unwrap().take(9, &mut taken), Taken::Bytes(2));
        assert_eq!(taken, b"bc");
    }

    #[test]
    fn a_new_beginning_has_no_past() {
        let backlog = Backlog::new(0, 1 << 20);
        backlog.append(b"abc", 0);
        let mut reader = backlog.reader_at(1).unwrap();
        backlog.restart(1000);
        assert_eq!(reader.take(1, &mut Vec::new()), Taken::Lost);
        assert_eq!(backlog.offsets(), 1000..=1000);
        assert!(backlog.reader_at(1).is_none());
        backlog.append(b"d", 0);
        let mut taken = Vec::new();
        assert_eq!(backlog.reader_at(1000).unwrap().take(9, &mut taken), Taken::Bytes(1));
        assert_eq!(taken, b"d");
    }
}
