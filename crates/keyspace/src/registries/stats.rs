//! Statistics that can be read without a lock.
//!
//! Each shard has its own, written only by the holder of its lock, so that a plain load and a plain
//! store suffice. A reader gets sums of values that were each true a moment ago.

use crate::change::interest::ShardInterest;
use crate::change::version::Versions;
use crate::data::counter::Counter;
use crate::data::db_counters::{DEADLINE_UNIT_MS, DbCounters, PerDbCounters};
use crate::registries::pressure::Pressure;

/// The figures of one shard, those first that ordinary requests change.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ShardStats {
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) changes: Counter,
    /// Bytes of entries and blobs.
    pub(crate) entry_bytes: Counter,
    pub(crate) interest: ShardInterest,
    /// Bytes of the tables.
    pub(crate) index_bytes: Counter,
    /// Bytes of the deadline heaps.
    pub(crate) deadline_bytes: Counter,
    /// Bytes of the table of keys that clients may have cached; see [`crate::registries::cached`].
    pub(crate) cached_bytes: Counter,
    /// The sum of the four, as the shard last reported it.
    pub(crate) told_bytes: Counter,
    pub(crate) expired: Counter,
    pub(crate) evicted: Counter,
    /// Keys whose values are on disk only, and the bytes of these.
    pub(crate) spilled_keys: Counter,
    pub(crate) spilled_bytes: Counter,
    /// Values that came back, and those of them that a command waited for under a lock.
    pub(crate) fetched: Counter,
    pub(crate) fetched_late: Counter,
    /// Times that a thread found the shard locked, and waited.
    pub(crate) lock_waits: Counter,
    /// Where the search for the coldest entry continues: a
    /// [`ClockHand`](crate::services::coldest::ClockHand).
    pub(crate) clock_hand: Counter,
    /// Keys that are watched; see [`crate::services::watch`].
    pub(crate) watched_keys: Counter,
    /// Keys with waiters, and those of them whose removal ends a wait, too.
    pub(crate) awaited_keys: Counter,
    pub(crate) awaited_removals: Counter,
    pub(crate) dbs: PerDbCounters,
    pub(crate) versions: Versions,
}

impl ShardStats {
    pub(crate) fn new(databases: usize) -> Self {
        Self {
            hits: Counter::default(),
            misses: Counter::default(),
            expired: Counter::default(),
            evicted: Counter::default(),
            interest: ShardInterest::default(),
            spilled_keys: Counter::default(),
            spilled_bytes: Counter::default(),
            fetched: Counter::default(),
            fetched_late: Counter::default(),
            told_bytes: Counter::default(),
            lock_waits: Counter::default(),
            clock_hand: Counter::default(),
            watched_keys: Counter::default(),
            awaited_keys: Counter::default(),
            awaited_removals: Counter::default(),
            changes: Counter::default(),
            entry_bytes: Counter::default(),
            index_bytes: Counter::default(),
            deadline_bytes: Counter::default(),
            cached_bytes: Counter::default(),
            dbs: PerDbCounters::new(databases),
            versions: Versions::default(),
        }
    }

    fn bytes(&self) -> u64 {
        self.entry_bytes.get()
            + self.index_bytes.get()
            + self.deadline_bytes.get()
            + self.cached_bytes.get()
    }

    /// Bytes since the shard last reported.
    fn untold(&self) -> i64 {
        self.bytes().wrapping_sub(self.told_bytes.get()) as i64
    }

    /// Adds the change of size since the last report to the sum. Needs no lock: each report swaps the reported
    /// size, so concurrent ones add up.
    pub(crate) fn tell(&self, pressure: &Pressure) {
        loop {
            let bytes = self.bytes();
            let before = self.told_bytes.swap(bytes);
            pressure.tell(bytes.wrapping_sub(before) as i64);
            // The size may have changed since it was read: the last report has to be right.
            if self.bytes() == bytes {
                return;
            }
        }
    }

    /// Reports the size, while the shard is locked, if it has moved enough.
    #[inline]
    pub(crate) fn follow_size(&self, pressure: &Pressure) {
        let step = pressure.step();
        if step != u64::MAX && self.untold().unsigned_abs() >= step {
            self.tell(pressure);
        }
    }
}

/// Counts of events since the start.
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
    /// Changes to keys.
    pub changes: u64,
    /// Times that a thread waited for the lock of a shard.
    pub lock_waits: u64,
    /// Nanoseconds that the reaper has spent on expiry.
    pub expiry_nanos: u64,
    /// Values and tables that the reaper has freed.
    pub lazily_freed: u64,
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

/// The figures of a database, summed up over the shards.
#[derive(Debug, Default)]
pub(crate) struct DbTotal {
    keys: u64,
    expires: u64,
    deadline_sum: u128,
}

impl DbTotal {
    pub(crate) fn add(&mut self, counters: &DbCounters) {
        self.keys += counters.keys.get();
        self.expires += counters.expires.get();
        self.deadline_sum += u128::from(counters.deadline_sum.get());
    }

    pub(crate) fn stats(&self, now_ms: i64) -> DbStats {
        let mut stats = DbStats { keys: self.keys, expires: self.expires, ttl_mean_ms: 0 };
        if stats.expires > 0 {
            // Each summand was rounded down, by half a unit on average.
            let mean_ms = self.deadline_sum * DEADLINE_UNIT_MS as u128 / u128::from(stats.expires);
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
    /// Tables of keys that clients may have cached.
    pub cached: u64,
    /// What is removed already and waits for the reaper to free it.
    pub lazy_free: u64,
    /// What long commands have copied to compute from.
    pub copies: u64,
    /// Libraries of functions and named scripts.
    pub code: u64,
}

impl Memory {
    /// All of it.
    pub fn total(&self) -> u64 {
        let data = self.entries + self.index + self.deadlines + self.code;
        data + self.cached + self.lazy_free + self.copies
    }

    /// About what a [`Checkpoint`](crate::log::Checkpoint) writes to the log.
    pub fn logged(&self) -> u64 {
        self.entries + self.code
    }
}
