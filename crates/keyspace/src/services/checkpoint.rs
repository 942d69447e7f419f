//! Writes every key to the log again, a few at a time. Afterwards, older parts of the log can be removed.
//!
//! A checkpoint is not the state of one moment, and need not be: the last record of a key wins. While it visits the
//! keys, other threads write, and their writes follow the beginning of the checkpoint in the log. A key that stays is
//! visited exactly once ([`scan`](crate::scan)). So after a complete pass, the log has each key's whole value after
//! the position where the pass began, and everything before it is obsolete. Nothing is copied, no lock covers more
//! than a few keys, and keys do not store their position in the log.
//!
//! Until a key has been visited, the new part of the log may have partial changes of its value without the value.
//! Replay skips these: the whole value follows.
//!
//! A large collection would lock its shard for too long, so it is written in parts, under a lock each: edits that
//! state the elements at that time. Changes between the parts are logged as well, even of elements that no part has
//! reached. List edits depend on positions, so the parts of a list build a staging list, which replaces the list at
//! the end.
//!
//! Libraries of functions and scripts come first, one under each lock, in the order of their names. One that stays is
//! visited, and one that is added or removed meanwhile is logged by that change.
//!
//! SWAPDB moves unvisited keys to positions that the pass has already visited, so the pass starts over. RENAME and MOVE
//! do this to one key, so meanwhile they log its whole value ([`PassUnderway`]).

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::access::keyspace::Keyspace;
use crate::access::shard_locks::ShardLocks;
use crate::change::Change;
use crate::change::log::batch::{Batch, BatchWriter, PassUnderway};
use crate::change::log::encode::{
    Out, begin_edits, encode_change, encode_code, encode_entry, encode_position, end_edits,
};
use crate::change::log::sink::{RecordKind, Sizes};
use crate::codec::Writer;
use crate::data::code::{CodeKind, Stored};
use crate::data::collections::convert;
use crate::data::entry::Entry;
use crate::db_index::DbIndex;
use crate::services::scan::scan_shard;

/// Number of keys visited under one lock; with another full bucket of the index, some microseconds.
const KEYS_PER_LOCK: usize = 16;

/// The number under a lock for which the pass has queued; less than a millisecond.
const KEYS_PER_QUEUED_LOCK: usize = 512;

/// Bounds of the time for which a step waits in the queue for a shard. Each vain step doubles it.
const QUEUE_MIN: Duration = Duration::from_millis(20);
const QUEUE_MAX: Duration = Duration::from_millis(640);

/// A pass over all keys, step by step.
#[derive(Debug)]
pub struct Checkpoint<'k> {
    keyspace: &'k Keyspace,
    /// Position of the next step: database, shard, position in the shard's table.
    db: usize,
    shard: usize,
    position: u64,
    /// Shards to visit: all, unless the pass is [divided](Checkpoint::divided).
    shards: Range<usize>,
    swaps: u64,
    /// Set from the first step on.
    batch: Option<Batch<'k>>,
    /// Large collections found by the last steps.
    large: Vec<Large>,
    code: CodeWalk,
    /// Time for which the next step queues for its shard, if another thread keeps that locked. Zero if the last shard
    /// was free.
    queues_for: Duration,
    /// True if the replication offset is in the log again.
    has_position: bool,
    _underway: Option<PassUnderway<'k>>,
}

/// Progress of logging libraries and scripts.
#[derive(Debug)]
enum CodeWalk {
    /// Up to and including this one.
    After(Option<(CodeKind, Box<[u8]>)>),
    Done,
}

/// A large collection, and the beginning of its next part.
#[derive(Debug)]
struct Large {
    db: DbIndex,
    key: Vec<u8>,
    cursor: u64,
}

/// Returns true if an entry is written in parts.
fn is_large(entry: &Entry, large_bytes_min: usize) -> bool {
    let Some(collection) = entry.collection() else { return false };
    collection.allocated_bytes() > large_bytes_min && entry.location().is_none()
}

/// State of a [`Checkpoint`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// There is more to do.
    Underway,
    /// Another thread keeps the next shard locked for long, as a script may do without end. Try again later.
    Busy,
    /// Every key is in the log again.
    Complete,
}

impl<'k> Checkpoint<'k> {
    /// Begins a pass. When it is complete, the log has everything after its present end.
    pub fn begin(keyspace: &'k Keyspace) -> Self {
        Self::of_shards(keyspace, 0..keyspace.shard_count())
    }

    /// Returns up to `parts` passes for as many threads, which together log everything. If databases are exchanged,
    /// each running pass starts over with all shards.
    pub fn divided(keyspace: &'k Keyspace, parts: usize) -> Vec<Self> {
        let count = keyspace.shard_count();
        let parts = parts.clamp(1, count);
        let bound = |part: usize| part * count / parts;
        let pass = |part| Self {
            code: if part == 0 { CodeWalk::After(None) } else { CodeWalk::Done },
            has_position: part > 0,
            ..Self::of_shards(keyspace, bound(part)..bound(part + 1))
        };
        (0..parts).map(pass).collect()
    }

    fn of_shards(keyspace: &'k Keyspace, shards: Range<usize>) -> Self {
        let swaps = keyspace.swaps.load(Ordering::Relaxed);
        Self {
            keyspace,
            db: 0,
            shard: shards.start,
            position: 0,
            shards,
            swaps,
            batch: None,
            large: Vec::new(),
            code: CodeWalk::After(None),
            queues_for: Duration::ZERO,
            has_position: false,
            _underway: keyspace.log.as_ref().map(PassUnderway::begin),
        }
    }

    /// Logs a library or script, some keys of one shard, or a part of a large one. Returns the number of bytes. Waits
    /// for milliseconds at most for a thread that keeps a shard locked for long.
    ///
    /// # Panics
    ///
    /// If changes are not logged.
    pub fn step(&mut self) -> (usize, Pass) {
        let log = self.keyspace.log().expect("a checkpoint is of a keyspace with a log");
        let Some(db) = self.keyspace.db_index(self.db) else { return (0, Pass::Complete) };
        let batch = self.batch.take();
        let batch = batch.unwrap_or_else(|| Batch::new(log, RecordKind::Restatement));
        let stepped = self.step_into(&mut batch.writer(), db, &log.sizes);
        self.batch = Some(batch);
        stepped
    }

    fn step_into(
        &mut self,
        log: &mut BatchWriter<'_>,
        db: DbIndex,
        sizes: &Sizes,
    ) -> (usize, Pass) {
        if !std::mem::replace(&mut self.has_position, true) {
            self.log_position(log);
        }
        if let CodeWalk::After(_) = self.code {
            return self.log_code(log);
        }
        let logged = match self.large.pop() {
            Some(large) => self.log_part(large, log, sizes.part_bytes),
            None => self.log_keys(db, log, sizes.large_bytes_min),
        };
        match logged {
            Some(bytes) => (bytes, self.advance()),
            None => (0, Pass::Busy),
        }
    }

    /// Returns true if other threads keep shards locked that the pass needs.
    pub fn is_queueing(&self) -> bool {
        !self.queues_for.is_zero()
    }

    /// Locks a shard for a moment, unless another thread keeps it locked for long. After such an attempt the next one
    /// queues for the shard, and longer each time, so that threads which lock it in turn do not exclude the pass.
    fn lock(&mut self, shard: usize) -> Option<ShardLocks<'k>> {
        let mut locks = self.keyspace.locks();
        if locks.try_reach_shard(shard) {
            self.queues_for = Duration::ZERO;
            return Some(locks);
        }
        let patience = self.queues_for;
        if !patience.is_zero() {
            locks = self.keyspace.impatient_long_locks(patience);
            if locks.reach_shard(shard).is_ok() {
                return Some(locks);
            }
        }
        self.queues_for = (patience * 2).clamp(QUEUE_MIN, QUEUE_MAX);
        None
    }

    /// Logs the replication offset of the data, if there is one: changes beyond it follow.
    fn log_position(&self, log: &mut BatchWriter<'_>) {
        let known = self.keyspace.stream_position.lock();
        if let Some(position) = &*known {
            encode_position(log.ops(), Some(position));
            log.finish();
        }
    }

    /// Logs the next library or script, if there is one.
    fn log_code(&mut self, log: &mut BatchWriter<'_>) -> (usize, Pass) {
        // While any shard is locked, code does not change.
        let Some(locks) = self.lock(self.shards.start) else { return (0, Pass::Busy) };
        let CodeWalk::After(last) = &self.code else { return (0, Pass::Underway) };
        let all = self.keyspace.code().all();
        let Some(Stored { kind, name, source }) = all.next_after(last.as_ref()) else {
            self.code = CodeWalk::Done;
            return (0, Pass::Underway);
        };
        encode_code(log, kind, name, Some(source));
        log.cut();
        let logged = log.finish();
        drop(locks);
        self.code = CodeWalk::After(Some((kind, name.into())));
        (logged, Pass::Underway)
    }

    /// Logs the next keys of the shard. Returns the number of bytes; `None` if the shard is busy.
    fn log_keys(
        &mut self,
        db: DbIndex,
        log: &mut BatchWriter<'_>,
        large_bytes_min: usize,
    ) -> Option<usize> {
        let mut locks = self.lock(self.shard)?;
        let count = if self.is_queueing() { KEYS_PER_QUEUED_LOCK } else { KEYS_PER_LOCK };
        let large = &mut self.large;
        let mut bytes = 0;
        self.position = scan_shard(&mut locks, db, self.shard, self.position, count, |entry| {
            if is_large(entry, large_bytes_min) {
                large.push(Large { db, key: entry.key().to_vec(), cursor: 0 });
                return;
            }
            encode_entry(log, db, entry);
            // Keys may be in different batches.
            if log.is_long() {
                bytes += log.finish();
            }
        });
        // The shard is still locked, so no change of these keys can precede this record.
        bytes += log.finish();
        drop(locks);
        Some(bytes)
    }

    /// Logs a part of a large collection, unless it is gone. Its replacement was logged by the change; logging parts
    /// of it again does no harm. Returns the number of bytes; `None` if the shard is busy.
    ///
    /// Each part states the deadline of the key. For a reader it may be the first part, even if others came before
    /// and all their elements have been removed since.
    fn log_part(
        &mut self,
        large: Large,
        log: &mut BatchWriter<'_>,
        part_bytes: usize,
    ) -> Option<usize> {
        let Some(mut locks) = self.lock(self.shard) else {
            self.large.push(large);
            return None;
        };
        let Large { db, key: bytes, cursor } = large;
        let key = self.keyspace.key(&bytes);
        let mut shard = locks.db(db, key.hash(), i64::MIN);
        let Some(entry) = shard.peek(key) else { return Some(0) };
        let collection = if entry.location().is_none() { entry.collection() } else { None };
        let Some(collection) = collection else {
            // It has moved to disk meanwhile, or was replaced.
            encode_entry(log, db, entry);
            return Some(log.finish());
        };
        let record = log.ops();
        let start = begin_edits(record, db, &bytes, 0, entry.deadline_ms());
        let edits = &mut Writer::new(record);
        let cursor = convert::encode_part(&collection, cursor, part_bytes, edits);
        if record.len() > start {
            end_edits(record, start);
        } else {
            // All remaining elements have been removed.
            record.clear();
            encode_change(log, db, entry, Change::Deadline);
        }
        log.cut();
        let logged = log.finish();
        if cursor != 0 {
            self.large.push(Large { db, key: bytes, cursor });
        }
        Some(logged)
    }

    fn advance(&mut self) -> Pass {
        if self.position == 0 && self.large.is_empty() {
            self.shard += 1;
            if self.shard == self.shards.end {
                (self.shard, self.db) = (self.shards.start, self.db + 1);
            }
        }
        if self.keyspace.swaps.load(Ordering::Relaxed) != self.swaps {
            *self = Self::begin(self.keyspace);
        }
        let complete = self.keyspace.db_index(self.db).is_none();
        if complete { Pass::Complete } else { Pass::Underway }
    }
}
