//! Snapshots of all databases as of one moment, while they change.
//!
//! [`Snapshot::begin`] locks all shards for a moment, some tens of microseconds, and leaves a `ShardSnapshot`
//! (`registries/snapshot/shard.rs`) in each. From then on the caller's thread fetches batches of copies with
//! [`Snapshot::next`], which walks from shard to shard and locks one for some ten microseconds at a time. A writer
//! about to change an entry that the walk has not reached copies it first (`batch.rs` there) and queues the copy
//! (`backlog.rs` there). The caller's thread fetches the queue before it continues the walk.
//!
//! Guarantee: the batches together contain each key that was visible at the beginning of the snapshot exactly once,
//! with its value and deadline at that time, in no particular order. Commands on several keys are included completely
//! or not at all. FLUSHALL, SWAPDB, expiry and eviction do not affect that.
//!
//! Cost without a snapshot: one branch for each change. Cost with one: a lookup in a set for each change ahead of the
//! walk, and memory for the copies, for some 16 bytes for each entry changed ahead of the walk (at most about seven
//! bytes for each existing entry), and for flushed tables until the walk has finished them.
//! [`Keyspace::snapshot_memory`] reports the memory.
//!
//! Collections of [`LARGE_BYTES_MIN`] and more are not copied, but saved in slices, last (`large.rs`). This costs
//! copies of members that change before their turn, some 30 bytes each.
//!
//! Values on disk are read when their batch is fetched (`resolve.rs`).
//!
//! There is one snapshot at a time.

mod large;
mod resolve;
mod walk;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::access::keyspace::Keyspace;
use crate::access::shard::Held;
use crate::access::shard_locks::ShardLocks;
use crate::data::code::CodeSet;
use crate::db_index::DbIndex;
use crate::error::SnapshotError;
use crate::registries::flushed::Flushed;
use crate::registries::snapshot::backlog::Backlog;
use crate::registries::snapshot::batch::SnapshotBatch;
use crate::registries::snapshot::shard::{Begun, ShardSnapshot, Turn};
pub use large::SavedLarge;
use resolve::Resolving;

/// Maximum share of waiting copies in the memory of the data before a snapshot is cancelled; at least
/// [`COPIES_BYTES_MIN`].
const COPIES_SHARE: u64 = 8;

/// Minimum of that limit, for small data sets.
const COPIES_BYTES_MIN: usize = 64 << 20;

/// Minimum size of collections that are saved in slices. Copying a smaller one under a lock takes at most a
/// millisecond.
const LARGE_BYTES_MIN: usize = 256 << 10;

/// Size of a database at the beginning of the snapshot. Expired keys count if they had not been removed yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SavedDb {
    /// The database.
    pub db: DbIndex,
    /// Number of keys.
    pub keys: u64,
    /// Number of keys with a deadline.
    pub expires: u64,
    /// Number of hashes with field deadlines.
    pub volatile_hashes: usize,
}

/// A part of a snapshot.
#[derive(Debug)]
pub enum SnapshotPiece<'s> {
    /// Some entries; never empty.
    Batch(SnapshotBatch),
    /// A large collection, whose members are read in slices.
    Large(SavedLarge<'s>),
}

/// A snapshot in progress. Dropping it ends the snapshot.
pub struct Snapshot {
    keyspace: Arc<Keyspace>,
    backlog: Arc<Backlog>,
    dbs: Vec<SavedDb>,
    code: Arc<CodeSet>,
    changes: u64,
    /// Shard of the walk; all before are done.
    shard: usize,
    /// Batch whose values are being read from disk.
    resolving: Option<Resolving>,
    pause: Duration,
}

impl Snapshot {
    /// Begins a snapshot of the data visible to `locks` at `now_ms`.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::InProgress`].
    pub fn begin(
        keyspace: &Arc<Keyspace>,
        locks: &mut ShardLocks<'_>,
        now_ms: i64,
    ) -> Result<Self, SnapshotError> {
        Self::begin_with(keyspace, locks, now_ms, LARGE_BYTES_MIN)
    }

    /// Like [`Snapshot::begin`], but calls `moment` when all shards are locked: every change before it is in the
    /// snapshot, and none after it. It must be quick, and must not call the keyspace.
    ///
    /// # Errors
    ///
    /// As for [`Snapshot::begin`]; `moment` is not called then.
    pub fn begin_at(
        keyspace: &Arc<Keyspace>,
        locks: &mut ShardLocks<'_>,
        now_ms: i64,
        moment: impl FnOnce(),
    ) -> Result<Self, SnapshotError> {
        Self::begin_full(keyspace, locks, now_ms, LARGE_BYTES_MIN, moment)
    }

    /// Like [`Snapshot::begin`], with another minimum size of collections that are saved in slices: for tests.
    ///
    /// # Errors
    ///
    /// As for [`Snapshot::begin`].
    pub fn begin_with(
        keyspace: &Arc<Keyspace>,
        locks: &mut ShardLocks<'_>,
        now_ms: i64,
        large_bytes_min: usize,
    ) -> Result<Self, SnapshotError> {
        Self::begin_full(keyspace, locks, now_ms, large_bytes_min, || {})
    }

    fn begin_full(
        keyspace: &Arc<Keyspace>,
        locks: &mut ShardLocks<'_>,
        now_ms: i64,
        large_bytes_min: usize,
        moment: impl FnOnce(),
    ) -> Result<Self, SnapshotError> {
        let copies_max = (keyspace.memory().total() / COPIES_SHARE) as usize;
        let backlog = Backlog::new(copies_max.max(COPIES_BYTES_MIN), large_bytes_min);
        let backlog = Arc::new(backlog);
        {
            let mut running = keyspace.snapshot.lock();
            if running.is_some() {
                return Err(SnapshotError::InProgress);
            }
            *running = Some(Arc::clone(&backlog));
        }
        let databases = keyspace.db_indices().count();
        let begun = Begun { at_ms: now_ms, is_following: keyspace.is_following() };
        let new_part = |_| Box::new(ShardSnapshot::new(&backlog, begun, databases));
        let parts: Vec<Box<ShardSnapshot>> = (0..keyspace.shard_count()).map(new_part).collect();

        let mut all = match locks.try_lock_all() {
            Ok(all) => all,
            Err(busy) => {
                *keyspace.snapshot.lock() = None;
                return Err(busy.into());
            }
        };
        let begun = Instant::now();
        let mut dbs: BTreeMap<DbIndex, SavedDb> = BTreeMap::new();
        for (held, mut part) in all.locks().all_held().iter_mut().zip(parts) {
            for (db, data) in held.shard.dbs().filter(|(_, data)| !data.table.is_empty()) {
                part.enroll(db);
                let counters = held.stats.dbs.get(db);
                let saved = dbs.entry(db).or_insert(SavedDb { db, ..SavedDb::default() });
                saved.keys += counters.keys.get();
                saved.expires += counters.expires.get();
                saved.volatile_hashes += data.volatile_hashes;
            }
            held.shard.snapshot = Some(part);
        }
        let dbs = dbs.into_values().collect();
        let (changes, code) = (keyspace.stats().changes, keyspace.code().all());
        moment();
        let pause = begun.elapsed();
        drop(all);
        Ok(Self {
            keyspace: Arc::clone(keyspace),
            backlog,
            dbs,
            code,
            changes,
            shard: 0,
            resolving: None,
            pause,
        })
    }

    /// Returns the databases that had keys at the beginning of the snapshot.
    pub fn dbs(&self) -> &[SavedDb] {
        &self.dbs
    }

    /// Returns the libraries of functions and named scripts as of the beginning of the snapshot.
    pub fn code(&self) -> &CodeSet {
        &self.code
    }

    /// Returns [`Stats::changes`](crate::Stats::changes) as of the beginning of the snapshot.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the time for which all shards were locked at the beginning, since the last lock was taken.
    pub fn pause(&self) -> Duration {
        self.pause
    }

    /// Returns the next piece; `None` if there are no more. Large collections come last, when writers have no more
    /// keys to copy, so that nothing piles up while one of them is being written.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::TooSlow`], [`SnapshotError::Unreadable`]; then the snapshot returns nothing more.
    #[expect(clippy::should_implement_trait, reason = "it lends, and fails")]
    pub fn next(&mut self) -> Result<Option<SnapshotPiece<'_>>, SnapshotError> {
        if let Some(batch) = self.next_batch()? {
            return Ok(Some(SnapshotPiece::Batch(batch)));
        }
        Ok(SavedLarge::first(&self.keyspace, &self.backlog).map(SnapshotPiece::Large))
    }

    /// Returns the next entries; `None` if there are no more. Never empty.
    fn next_batch(&mut self) -> Result<Option<SnapshotBatch>, SnapshotError> {
        loop {
            if self.backlog.is_given_up() {
                return Err(SnapshotError::TooSlow { bytes_max: self.backlog.bytes_max() });
            }
            if let Some(resolving) = &mut self.resolving
                && let Some(store) = self.keyspace.cold_store()
            {
                match resolving.next(store)? {
                    Some(batch) => return Ok(Some(batch)),
                    None => self.resolving = None,
                }
            }
            let batch = match self.backlog.pop() {
                Some(batch) => batch,
                None if self.shard == self.keyspace.shard_count() => return Ok(None),
                None => self.walk_on(),
            };
            if batch.has_spilled() {
                self.resolving = Some(Resolving::new(batch));
            } else if !batch.is_empty() {
                return Ok(Some(batch));
            }
        }
    }

    /// Yields the processor: sleeps for `time`, or until too many copies wait.
    pub fn rest(&self, time: Duration) {
        self.backlog.rest(time);
    }

    /// Copies some entries of the current shard under its lock.
    fn walk_on(&mut self) -> SnapshotBatch {
        let (mut batch, mut done) = (SnapshotBatch::default(), Vec::<Flushed>::new());
        let mut held = Held::lock(&self.keyspace.slots, self.shard);
        let turn = held.shard.walk_on(&self.keyspace.hasher, &mut batch, &mut done);
        drop(held);
        if let Turn::Finished(mut part) = turn {
            self.shard += 1;
            // No more copies are added to these. They are queued like any others.
            let copies = part.take_copies();
            if !copies.is_empty() {
                self.backlog.push(copies);
            }
        }
        batch
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.backlog.close();
        for index in self.shard..self.keyspace.shard_count() {
            // Freed after the lock is released.
            let part = Held::lock(&self.keyspace.slots, index).shard.snapshot.take();
            drop(part);
        }
        self.backlog.larges.end_all(&self.keyspace);
        *self.keyspace.snapshot.lock() = None;
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("dbs", &self.dbs).field("shard", &self.shard).finish()
    }
}
