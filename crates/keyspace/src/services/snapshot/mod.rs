//! All databases as they were at one moment, while they go on changing.
//!
//! [`Snapshot::begin`] locks all shards for a moment, of some tens of microseconds, and leaves a
//! `ShardSnapshot` (`registries/snapshot/shard.rs`) in each. From then on the caller's thread fetches batches of copies with
//! [`Snapshot::next`], which walks from shard to shard and holds a lock for some ten
//! microseconds at a time. A writer about to change an entry that the walk has not reached copies
//! it first (`batch.rs` there) and leaves the copy to that thread (`backlog.rs` there), which fetches it before
//! it walks on.
//!
//! What it guarantees: the batches together contain each key that was visible when the snapshot
//! began, once, with the value and the deadline it had then, in no particular order. Commands on
//! several keys are in it whole or not at all. FLUSHALL, SWAPDB, expiry and eviction change nothing
//! about that.
//!
//! What it costs: without a snapshot one branch for each change. With one, a look into a set for each
//! change ahead of the walk, and memory: the copies, some 16 bytes for each entry changed ahead of the
//! walk, at most about seven bytes for each entry there is, and tables that were flushed meanwhile, until the
//! walk is through with them. [`Keyspace::snapshot_memory`] says how much.
//!
//! Collections of [`LARGE_BYTES_MIN`] and more are not copied, but saved in slices, last (`large.rs`). What
//! that costs are copies of members that change before their turn, some 30 bytes each.
//!
//! Values on disk are read when their batch is asked for (`resolve.rs`).
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

/// Copies that wait may take this part of what the data takes, or [`COPIES_BYTES_MIN`] if that is
/// more, before a snapshot is given up.
const COPIES_SHARE: u64 = 8;

/// A snapshot of little data is not given up for less than this.
const COPIES_BYTES_MIN: usize = 64 << 20;

/// Collections of this many bytes and more are saved in slices. Copying less under a lock takes a
/// millisecond at most.
const LARGE_BYTES_MIN: usize = 256 << 10;

/// The size of a database when the snapshot began. Keys whose deadline had come count here if they
/// had not been removed yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SavedDb {
    /// The database.
    pub db: DbIndex,
    /// Its keys.
    pub keys: u64,
    /// Those with a deadline.
    pub expires: u64,
    /// Hashes with fields that have deadlines.
    pub volatile_hashes: usize,
}

/// A part of a snapshot.
#[derive(Debug)]
pub enum SnapshotPiece<'s> {
    /// Some entries; never none.
    Batch(SnapshotBatch),
    /// A large collection, whose members come in slices.
    Large(SavedLarge<'s>),
}

/// A snapshot in progress. Dropping it ends it.
pub struct Snapshot {
    keyspace: Arc<Keyspace>,
    backlog: Arc<Backlog>,
    dbs: Vec<SavedDb>,
    code: Arc<CodeSet>,
    changes: u64,
    /// The shard being walked; all before are done.
    shard: usize,
    /// A batch whose values are on disk, and being read.
    resolving: Option<Resolving>,
    pause: Duration,
}

impl Snapshot {
    /// Begins a snapshot of what `locks` would see at `now_ms`.
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

    /// The same. `moment` is called when all shards are locked: every change before it is in the snapshot, and none
    /// after it. It must be quick, and must not call the keyspace.
    ///
    /// # Errors
    ///
    /// As there; `moment` is not called then.
    pub fn begin_at(
        keyspace: &Arc<Keyspace>,
        locks: &mut ShardLocks<'_>,
        now_ms: i64,
        moment: impl FnOnce(),
    ) -> Result<Self, SnapshotError> {
        Self::begin_full(keyspace, locks, now_ms, LARGE_BYTES_MIN, moment)
    }

    /// The same with another size from which on collections are saved in slices: for tests.
    ///
    /// # Errors
    ///
    /// As there.
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

    /// The databases that had keys when the snapshot began.
    pub fn dbs(&self) -> &[SavedDb] {
        &self.dbs
    }

    /// The libraries of functions and named scripts that were there when the snapshot began.
    pub fn code(&self) -> &CodeSet {
        &self.code
    }

    /// What [`Stats::changes`](crate::Stats::changes) was when the snapshot began.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// How long all shards were locked in the beginning, from when the last lock was taken.
    pub fn pause(&self) -> Duration {
        self.pause
    }

    /// What comes next; `None` when there is no more. Large collections come last, when no key is left
    /// that a writer could have to copy: so nothing piles up while one of them is being written.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::TooSlow`], [`SnapshotError::Unreadable`]; nothing more is to be had from the snapshot then.
    #[expect(clippy::should_implement_trait, reason = "it lends, and fails")]
    pub fn next(&mut self) -> Result<Option<SnapshotPiece<'_>>, SnapshotError> {
        if let Some(batch) = self.next_batch()? {
            return Ok(Some(SnapshotPiece::Batch(batch)));
        }
        Ok(SavedLarge::first(&self.keyspace, &self.backlog).map(SnapshotPiece::Large))
    }

    /// The next entries; `None` when there are no more. Never empty.
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
            // Nothing is added to them any more. They are handed on like any others.
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
            // Freed when the lock is released.
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
