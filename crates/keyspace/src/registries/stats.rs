//! Statistics that can be read without a lock.
//!
//! Each shard has its own statistics. Only the holder of its lock writes them, so a plain load and a plain store
//! suffice. A reader gets sums of values that were each correct a moment ago.

use crate::change::interest::ShardInterest;
use crate::change::version::Versions;
use crate::data::counter::Counter;
use crate::data::db_counters::{DEADLINE_UNIT_MS, DbCounters, PerDbCounters};
use crate::registries::pressure::Pressure;

/// Statistics of one shard; those that ordinary requests change come first.
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
    /// Sum of the four, as of the shard's last report.
    pub(crate) told_bytes: Counter,
    pub(crate) expired: Counter,
    pub(crate) evicted: Counter,
    /// Number of keys whose values are only on disk, and the bytes of these.
    pub(crate) spilled_keys: Counter,
    pub(crate) spilled_bytes: Counter,
    /// Number of fetched values, and of those that a command waited for under a lock.
    pub(crate) fetched: Counter,
    pub(crate) fetched_late: Counter,
    /// Number of times that a thread found the shard locked, and waited.
    pub(crate) lock_waits: Counter,
    /// Position of the search for the coldest entry: a [`ClockHand`](crate::services::coldest::ClockHand).
    pub(crate) clock_hand: Counter,
    /// Number of watched keys; see [`crate::services::watch`].
    pub(crate) watched_keys: Counter,
    /// Number of keys with waiters, and of those whose removal also ends a wait.
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

    /// Returns the change in bytes since the shard's last report.
    fn untold(&self) -> i64 {
        self.bytes().wrapping_sub(self.told_bytes.get()) as i64
    }

    /// Adds the change of size since the last report to the sum. Needs no lock: each report swaps the reported size,
    /// so concurrent reports add up.
    pub(crate) fn tell(&self, pressure: &Pressure) {
        loop {
            let bytes = self.bytes();
            let before = self.told_bytes.swap(bytes);
            pressure.tell(bytes.wrapping_sub(before) as i64);
            // The size may have changed since it was read: the last report must be correct.
            if self.bytes() == bytes {
                return;
            }
        }
    }

    /// Reports the size, while the shard is locked, if it has changed enough.
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
    /// Reads of absent keys.
    pub misses: u64,
    /// Expired keys.
    pub expired: u64,
    /// Evicted keys.
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
    /// Mean time to live of these, within a second; 0 without any.
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
    /// Removed data that wait for the reaper to free them.
    pub lazy_free: u64,
    /// Copies that long commands compute from.
    pub copies: u64,
    /// Libraries of functions and named scripts.
    pub code: u64,
}

impl Memory {
    /// Returns the sum.
    pub fn total(&self) -> u64 {
        let data = self.entries + self.index + self.deadlines + self.code;
        data + self.cached + self.lazy_free + self.copies
    }

    /// Returns the approximate size of a [`Checkpoint`](crate::log::Checkpoint) in the log.
    pub fn logged(&self) -> u64 {
        self.entries + self.code
    }
}
