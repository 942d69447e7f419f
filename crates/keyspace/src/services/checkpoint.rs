//! Writing every key to the log again, a few at a time, after which everything older can go.
//!
//! A checkpoint is not the state of one moment, and need not be: the last record of a key wins.
//! While it goes through the keys, others write, and their writes are in the log after the
//! checkpoint's beginning. A key that stays is visited exactly once
//! ([`scan`](crate::scan)). So once a pass is complete, each key's whole
//! value is in the log after the point where the pass began, and what is before that point is of no
//! use any more. Nothing is copied, no lock is held for more than a few keys, and keys do not store
//! where they are logged.
//!
//! Until a key has been visited, changes of a part of its value may be in the new part of the log
//! without the value they change. Replay passes over those: the whole value follows.
//!
//! A large collection is not written at once, which would hold its shard for too long, but in parts,
//! under a lock each: edits that say what was in the collection at that time. Changes between them are
//! in the log, too, and so are those of elements that no part has reached. The edits of a list depend
//! on positions, so its parts build a staging list, which replaces the list at the end.
//!
//! Libraries of functions and scripts come first, one under each lock, in the order of their names. One that stays is
//! met, and one that is added or removed meanwhile is in the log since then.
//!
//! SWAPDB moves keys that were not visited to where the pass has been already, so the pass starts
//! over then.

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::access::keyspace::Keyspace;
use crate::change::Change;
use crate::change::log::batch::{Batch, BatchWriter};
use crate::change::log::encode::{
    Out, begin_edits, encode_change, encode_code, encode_entry, encode_place, end_edits,
};
use crate::change::log::sink::{RecordKind, Sizes};
use crate::codec::Writer;
use crate::data::code::{CodeKind, Stored};
use crate::data::collections::convert;
use crate::data::entry::Entry;
use crate::db_index::DbIndex;
use crate::services::scan::scan_shard;

/// Keys visited under one lock; with a full bucket of the index more it is some microseconds.
const KEYS_PER_LOCK: usize = 16;

/// A pass over all keys, step by step.
#[derive(Debug)]
pub struct Checkpoint<'k> {
    keyspace: &'k Keyspace,
    /// Where the next step begins: database, shard, position in the shard's table.
    db: usize,
    shard: usize,
    position: u64,
    /// Those that are visited: all, unless the pass is [divided](Checkpoint::divided).
    shards: Range<usize>,
    swaps: u64,
    /// From the first step on.
    batch: Option<Batch<'k>>,
    /// Large collections that the last steps met.
    large: Vec<Large>,
    code: CodeWalk,
    /// The place in a stream is in the log again.
    has_place: bool,
}

/// How far the libraries and scripts are in the log.
#[derive(Debug)]
enum CodeWalk {
    /// Up to this one, or none.
    After(Option<(CodeKind, Box<[u8]>)>),
    Done,
}

/// A large collection, and where its next part begins.
#[derive(Debug)]
struct Large {
    db: DbIndex,
    key: Vec<u8>,
    cursor: u64,
}

/// Whether an entry is written in parts.
fn is_large(entry: &Entry, large_bytes_min: usize) -> bool {
    let Some(collection) = entry.collection() else { return false };
    collection.allocated_bytes() > large_bytes_min && entry.location().is_none()
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
    pub fn begin(keyspace: &'k Keyspace) -> Self {
        Self::of_shards(keyspace, 0..keyspace.shard_count())
    }

    /// The same as up to `parts` passes for as many threads, which together log everything. Each that is underway when
    /// databases are exchanged begins anew with all shards.
    pub fn divided(keyspace: &'k Keyspace, parts: usize) -> Vec<Self> {
        let count = keyspace.shard_count();
        let parts = parts.clamp(1, count);
        let bound = |part: usize| part * count / parts;
        let pass = |part| Self {
            code: if part == 0 { CodeWalk::After(None) } else { CodeWalk::Done },
            has_place: part > 0,
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
            has_place: false,
        }
    }

    /// Logs a library or script, some keys of one shard, or a part of a large one. Returns how many bytes that were.
    ///
    /// # Panics
    ///
    /// If changes do not go to a log.
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
        if !std::mem::replace(&mut self.has_place, true) {
            self.log_place(log);
        }
        if let Some(bytes) = self.log_code(log) {
            return (bytes, Pass::Underway);
        }
        let bytes = match self.large.pop() {
            Some(large) => self.log_part(large, log, sizes.part_bytes),
            None => self.log_keys(db, log, sizes.large_bytes_min),
        };
        (bytes, self.advance())
    }

    /// Logs up to where the data are those of a stream, if they are: what leads on is behind it.
    fn log_place(&self, log: &mut BatchWriter<'_>) {
        let known = self.keyspace.stream_place.lock();
        if let Some(place) = &*known {
            encode_place(log.ops(), Some(place));
            log.finish();
        }
    }

    /// Logs the next library or script; `None` when there are no more.
    fn log_code(&mut self, log: &mut BatchWriter<'_>) -> Option<usize> {
        let CodeWalk::After(last) = &self.code else { return None };
        // While any shard is locked, code does not change.
        let mut locks = self.keyspace.locks();
        locks.held(0);
        let all = self.keyspace.code().all();
        let Some(Stored { kind, name, source }) = all.next_after(last.as_ref()) else {
            self.code = CodeWalk::Done;
            return None;
        };
        encode_code(log, kind, name, Some(source));
        log.cut();
        let logged = log.finish();
        drop(locks);
        self.code = CodeWalk::After(Some((kind, name.into())));
        Some(logged)
    }

    fn log_keys(
        &mut self,
        db: DbIndex,
        log: &mut BatchWriter<'_>,
        large_bytes_min: usize,
    ) -> usize {
        let large = &mut self.large;
        let mut bytes = 0;
        let mut locks = self.keyspace.locks();
        self.position =
            scan_shard(&mut locks, db, self.shard, self.position, KEYS_PER_LOCK, |entry| {
                if is_large(entry, large_bytes_min) {
                    large.push(Large { db, key: entry.key().to_vec(), cursor: 0 });
                    return;
                }
                encode_entry(log, db, entry);
                // Keys need not be in one batch.
                if log.is_long() {
                    bytes += log.finish();
                }
            });
        // With the shard still locked no change of these keys can get before this record.
        bytes += log.finish();
        drop(locks);
        bytes
    }

    /// Logs a part of a large collection, unless that is gone. One that has come in its place is in the
    /// log since then; that parts of it are written again does no harm.
    ///
    /// Each part says which deadline the key has: for a reader it may be the first that there is of the
    /// key, also where others came before it and all that was in them has been removed since.
    fn log_part(&mut self, large: Large, log: &mut BatchWriter<'_>, part_bytes: usize) -> usize {
        let Large { db, key: bytes, cursor } = large;
        let mut locks = self.keyspace.locks();
        let key = self.keyspace.key(&bytes);
        let mut shard = locks.db(db, key.hash(), i64::MIN);
        let Some(entry) = shard.peek(key) else { return 0 };
        let collection = if entry.location().is_none() { entry.collection() } else { None };
        let Some(collection) = collection else {
            // It has gone to disk meanwhile, or something else is there.
            encode_entry(log, db, entry);
            return log.finish();
        };
        let record = log.ops();
        let start = begin_edits(record, db, &bytes, 0, entry.deadline_ms());
        let edits = &mut Writer::new(record);
        let cursor = convert::encode_part(&collection, cursor, part_bytes, edits);
        if record.len() > start {
            end_edits(record, start);
        } else {
            // Whatever was ahead has been removed.
            record.clear();
            encode_change(log, db, entry, Change::Deadline);
        }
        log.cut();
        let logged = log.finish();
        if cursor != 0 {
            self.large.push(Large { db, key: bytes, cursor });
        }
        logged
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
