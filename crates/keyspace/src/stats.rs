//! Figures that anyone may read without a lock.
//!
//! Each shard has its own, written only by whoever holds its lock, so that a plain load and a plain
//! store suffice. A reader gets sums of values that were each true a moment ago.

use std::alloc::{self, Layout};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::version::Versions;

/// A number with one writer at a time: the holder of the shard's lock.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    // Relaxed throughout: the number says nothing about other memory, and writers are ordered by
    // the lock.
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Sets the number and returns what it was; for one that others than the owner of the lock set, too.
    #[inline]
    pub(crate) fn swap(&self, value: u64) -> u64 {
        self.0.swap(value, Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.set(self.get().wrapping_add(more));
    }

    #[inline]
    pub(crate) fn sub(&self, less: u64) {
        self.set(self.get().wrapping_sub(less));
    }

    /// Follows a quantity that went from `before` to `after`.
    #[inline]
    pub(crate) fn follow(&self, before: usize, after: usize) {
        self.add((after as u64).wrapping_sub(before as u64));
    }
}

/// The figures of one shard, those first that ordinary requests change.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ShardStats {
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) changes: Counter,
    /// Bytes of entries and blobs.
    pub(crate) entry_bytes: Counter,
    pub(crate) expired: Counter,
    /// Bytes of the tables.
    pub(crate) index_bytes: Counter,
    /// Bytes of the deadline heaps.
    pub(crate) deadline_bytes: Counter,
    /// The sum of the three, as it was when the shard last told it.
    pub(crate) told_bytes: Counter,
    pub(crate) evicted: Counter,
    /// Those who wait for keys of this shard.
    pub(crate) waiters: Counter,
    /// Keys whose values are on disk only, and the bytes of these.
    pub(crate) spilled_keys: Counter,
    pub(crate) spilled_bytes: Counter,
    /// Values that came back, and those of them that somebody waited for under a lock.
    pub(crate) fetched: Counter,
    pub(crate) fetched_late: Counter,
    /// Where the search for the coldest entry goes on: a [`Hand`](crate::coldest::Hand).
    pub(crate) hand: Counter,
    /// Keys with waiters, and those of them whose removal ends a wait, too.
    pub(crate) awaited_keys: Counter,
    pub(crate) awaited_removals: Counter,
    pub(crate) dbs: Box<[DbCounters]>,
    pub(crate) versions: Versions,
}

impl ShardStats {
    pub(crate) fn new(databases: usize) -> Self {
        Self {
            hits: Counter::default(),
            misses: Counter::default(),
            expired: Counter::default(),
            evicted: Counter::default(),
            waiters: Counter::default(),
            spilled_keys: Counter::default(),
            spilled_bytes: Counter::default(),
            fetched: Counter::default(),
            fetched_late: Counter::default(),
            told_bytes: Counter::default(),
            hand: Counter::default(),
            awaited_keys: Counter::default(),
            awaited_removals: Counter::default(),
            changes: Counter::default(),
            entry_bytes: Counter::default(),
            index_bytes: Counter::default(),
            deadline_bytes: Counter::default(),
            dbs: DbCounters::zeroed(databases),
            versions: Versions::default(),
        }
    }
}

/// The figures of one database in one shard.
#[derive(Debug, Default)]
pub(crate) struct DbCounters {
    pub(crate) keys: Counter,
    /// Keys with a deadline.
    pub(crate) expires: Counter,
    /// Sum of all deadlines in units of [`DEADLINE_UNIT_MS`].
    pub(crate) deadline_sum: Counter,
}

/// Deadlines are summed up in units of about a second, and none counts for more than
/// [`DEADLINE_SUMMAND_MAX`], so that a shard's sum stays exact for 2^26 keys with the most absurd
/// deadlines.
const DEADLINE_UNIT_MS: i64 = 1024;
const DEADLINE_SUMMAND_MAX: i64 = 1 << 38;

impl DbCounters {
    /// What `deadline_ms` adds to `deadline_sum`.
    pub(crate) fn summand(deadline_ms: i64) -> u64 {
        (deadline_ms / DEADLINE_UNIT_MS).clamp(0, DEADLINE_SUMMAND_MAX) as u64
    }

    /// So many, all zero. Memory that is zero already is not written, so that those of databases nobody uses
    /// take none.
    fn zeroed(databases: usize) -> Box<[Self]> {
        let layout = Layout::array::<Self>(databases).expect("a few databases");
        assert_ne!(layout.size(), 0, "there is a database");
        // SAFETY: the layout has a size.
        let first = unsafe { alloc::alloc_zeroed(layout) }.cast::<Self>();
        if first.is_null() {
            alloc::handle_alloc_error(layout);
        }
        // SAFETY: the memory is that of a boxed slice of this layout, and all that is in it are atomic integers,
        // which may be zero.
        unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(first, databases)) }
    }

    fn all(&self) -> [&Counter; 3] {
        [&self.keys, &self.expires, &self.deadline_sum]
    }

    /// The database was emptied.
    pub(crate) fn reset(&self) {
        for counter in self.all() {
            counter.set(0);
        }
    }

    /// The database was exchanged with another one.
    pub(crate) fn swap(&self, other: &Self) {
        for (mine, theirs) in self.all().into_iter().zip(other.all()) {
            let value = mine.get();
            mine.set(theirs.get());
            theirs.set(value);
        }
    }
}

/// What happened since the start or the last reset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
    /// Keys removed because their deadline had come.
    pub expired: u64,
    /// Keys removed because memory ran short.
    pub evicted: u64,
    /// Changes to keys since the start, whatever was reset.
    pub changes: u64,
}

/// The size of a database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DbStats {
    /// Keys.
    pub keys: u64,
    /// Keys with a deadline.
    pub expires: u64,
    /// The mean time to live of these, give or take a second; 0 without any.
    pub ttl_mean_ms: u64,
}

impl DbStats {
    pub(crate) fn sum<'a>(counters: impl Iterator<Item = &'a DbCounters>, now_ms: i64) -> Self {
        let (mut stats, mut deadlines) = (Self::default(), 0u128);
        for db in counters {
            stats.keys += db.keys.get();
            stats.expires += db.expires.get();
            deadlines += u128::from(db.deadline_sum.get());
        }
        if stats.expires > 0 {
            // Each summand was rounded down, by half a unit on average.
            let mean_ms = deadlines * DEADLINE_UNIT_MS as u128 / u128::from(stats.expires);
            let ttl_ms = mean_ms as i64 + DEADLINE_UNIT_MS / 2 - now_ms;
            stats.ttl_mean_ms = ttl_ms.max(0) as u64;
        }
        stats
    }
}

/// Memory in bytes, as the allocator counts it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// Entries: headers, keys, values.
    pub entries: u64,
    /// Tables that find the entries.
    pub index: u64,
    /// Heaps that order the deadlines.
    pub deadlines: u64,
    /// What is removed already and waits for the reaper to free it.
    pub garbage: u64,
}

impl Memory {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.entries + self.index + self.deadlines + self.garbage
    }
}
