//! Writing every key to the log again, a few at a time, after which everything older can go.
//!
//! A checkpoint is no picture of one moment, and needs none: the log keeps the last word on every
//! key. While it goes through the keys, others write; what they write is in the log anyway, after
//! the checkpoint's beginning. A key that stays is visited exactly once ([`Locker::scan`](crate::Locker::scan)). So once a
//! pass is complete, each key's whole value stands in the log after the point where the pass began,
//! and what stands before that point is of no use any more. Nothing is copied aside, no lock is held
//! for more than a few keys, and the keys remember nothing of where they are logged.
//!
//! Until a key has been visited, changes of a part of its value may stand in the new part of the log
//! without the value they change. Replay passes over those: the whole value follows.
//!
//! SWAPDB moves keys that were not visited to where the pass has been already, so the pass starts
//! over then.

use std::sync::atomic::Ordering;

use super::op::encode_entry;
use crate::keyspace::Keyspace;

/// Keys visited under one lock; with a full bucket of the index more it is some microseconds.
const KEYS_PER_LOCK: usize = 16;

/// A record that was larger than this gives its memory back.
const RECORD_KEPT_BYTES: usize = 1 << 20;

/// A pass over all keys, step by step.
#[derive(Debug)]
pub struct Checkpoint<'k> {
    keyspace: &'k Keyspace,
    /// Where the next step begins: database, shard, position in the shard's table.
    db: usize,
    shard: usize,
    position: u64,
    swaps: u64,
    record: Vec<u8>,
}

/// Whether a [`Checkpoint`] has come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// There is more.
    Underway,
    /// Every key is in the log again.
    Complete,
}

impl<'k> Checkpoint<'k> {
    /// Begins a pass. From where the log ends now it holds everything once the pass is complete.
    #[must_use]
    pub fn begin(keyspace: &'k Keyspace) -> Self {
        let swaps = keyspace.swaps.load(Ordering::Relaxed);
        Self { keyspace, db: 0, shard: 0, position: 0, swaps, record: Vec::new() }
    }

    /// Logs some keys of one shard. Returns how many bytes that were.
    ///
    /// # Panics
    ///
    /// If changes do not go to a log.
    pub fn step(&mut self) -> (usize, Pass) {
        let log = self.keyspace.log().expect("a checkpoint is of a keyspace with a log");
        let Some(db) = self.keyspace.db_index(self.db) else { return (0, Pass::Complete) };
        let (record, mut bytes) = (&mut self.record, 0);
        record.clear();
        let mut locker = self.keyspace.locker();
        self.position = locker.scan_shard(db, self.shard, self.position, KEYS_PER_LOCK, |entry| {
            encode_entry(record, db, entry);
            // Keys need not be in one record, and large values would make it too long.
            if record.len() >= RECORD_KEPT_BYTES {
                bytes += record.len();
                log.append(record);
                record.clear();
            }
        });
        // With the shard still locked no change of these keys can get before this record.
        if !record.is_empty() {
            log.append(record);
        }
        drop(locker);
        bytes += record.len();
        self.record.shrink_to(RECORD_KEPT_BYTES);
        (bytes, self.advance())
    }

    fn advance(&mut self) -> Pass {
        if self.position == 0 {
            self.shard = (self.shard + 1) % self.keyspace.shard_count();
            self.db += usize::from(self.shard == 0);
        }
        if self.keyspace.swaps.load(Ordering::Relaxed) != self.swaps {
            *self = Self::begin(self.keyspace);
        }
        let complete = self.keyspace.db_index(self.db).is_none();
        if complete { Pass::Complete } else { Pass::Underway }
    }
}
