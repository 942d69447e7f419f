//! The keyspace as a whole: its shards, the hash of keys, and shared state.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tierce_storage::ColdStore;

use crate::access::shard::{Held, Slot};
use crate::change::Removal;
use crate::change::event::EventSink;
use crate::change::interest::SharedInterest;
use crate::change::log::batch::BatchSink;
use crate::change::log::sink::{LogSink, Sizes};
use crate::change::stream_position::{KnownPosition, StreamPosition};
use crate::data::code::{CodeKind, CodeStore};
use crate::data::collections::limits::{LimitCells, Limits};
use crate::data::deadline::NO_DEADLINE;
use crate::data::entry::Entry;
use crate::data::key::{Key, KeyHash, KeyHasher, SHARD_BITS_MAX, VALUE_LEN_MAX};
use crate::db_index::{DATABASES_MAX, DbIndex};
use crate::registries::aging::Aging;
use crate::registries::busy::BusyShards;
use crate::registries::cached::Cached;
use crate::registries::lazy_free::LazyFreeQueue;
use crate::registries::pressure::Pressure;
use crate::registries::reaper_wakeup::ReaperWakeup;
use crate::registries::snapshot::backlog::Backlog;
use crate::registries::stats::{DbStats, DbTotal, Stats};
use crate::registries::waiters::{Forgotten, Sequences, Unserved};
use crate::registries::watch::registry::Board;

/// Maximum number of shards.
pub const SHARDS_MAX: usize = 1 << SHARD_BITS_MAX;

/// Number of keys below which prefetching does not pay: the keyspace is mostly in the processor's caches, and locks
/// cost more than misses. The index and short values of about so many keys fill a megabyte.
const PREFETCH_KEYS_MIN: u64 = 16 * 1024;

/// Parameters of a keyspace.
#[derive(Clone)]
pub struct Options {
    /// Number of shards, a power of two up to [`SHARDS_MAX`]. Use many more than threads, so that two threads seldom
    /// need the same shard.
    pub shards: usize,
    /// Number of databases, 1 to [`DATABASES_MAX`].
    pub databases: usize,
    /// Seed for the hash of keys. A server takes it from the operating system, so that no client can choose keys that
    /// collide.
    pub seed: u64,
    /// Maximum length of a value that an append or a write beyond the end makes.
    pub value_len_max: usize,
    /// Lower bound of the versions of keys. A server derives it from its start time, so that a version from before a
    /// restart never matches a value of this run.
    pub version_base: u64,
    /// Log for changes. Nothing must be logged while a keyspace loads from its log: see [`Keyspace::begin_logging`].
    pub log: Option<Arc<dyn LogSink>>,
    /// Sizes at which records are split. Tests make them short.
    pub log_sizes: Sizes,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shards: 256,
            databases: 16,
            seed: 0,
            value_len_max: 512 << 20,
            version_base: 0,
            log: None,
            log_sizes: Sizes::default(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("shards", &self.shards)
            .field("databases", &self.databases)
            .field("value_len_max", &self.value_len_max)
            .field("log", &self.log.is_some())
            .finish_non_exhaustive()
    }
}

/// Reason why a keyspace could not be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// Not a power of two, or too many.
    #[error("{0} shards: must be a power of two between 1 and {SHARDS_MAX}")]
    Shards(usize),
    /// None, or too many.
    #[error("{0} databases: must be between 1 and {DATABASES_MAX}")]
    Databases(usize),
}

/// All keys with their values. All threads share it.
///
/// It offers no reads or writes itself: a thread gets a [`ShardLocks`](crate::ShardLocks), which locks shards and
/// returns databases.
pub struct Keyspace {
    pub(crate) hasher: KeyHasher,
    pub(crate) slots: Box<[Slot]>,
    /// For each shard, a time not later than its earliest deadline, or [`NO_DEADLINE`]. Written under the shard's
    /// lock. Stored together, since the reaper checks all of them in each turn.
    pub(crate) next_deadlines_ms: Box<[AtomicI64]>,
    /// Like `next_deadlines_ms`, for fields of hashes. Separate, because eviction searches for keys that expire soon.
    pub(crate) next_field_deadlines_ms: Box<[AtomicI64]>,
    pub(crate) busy: BusyShards,
    pub(crate) reaper_wakeup: Arc<ReaperWakeup>,
    pub(crate) pressure: Pressure,
    pub(crate) limits: LimitCells,
    /// Limit for future writes. Relaxed, since it orders nothing.
    value_len_max: AtomicUsize,
    databases: usize,
    pub(super) lazy_free: LazyFreeQueue,
    version_base: u64,
    pub(crate) log: Option<BatchSink>,
    /// Replication offset of the data in the stream of a primary.
    pub(crate) stream_position: KnownPosition,
    /// Bytes of value copies that commands compute from.
    pub(crate) copies_bytes: AtomicU64,
    /// Total time that the reaper has spent on expiry, in nanoseconds. Relaxed: a statistic.
    pub(crate) expiry_nanos: AtomicU64,
    /// The longest round of the reaper since [`Keyspace::take_longest_expiry`].
    pub(crate) longest_expiry_nanos: AtomicU64,
    pub(crate) interest: SharedInterest,
    /// The receiver of events.
    pub(crate) sink: OnceLock<Box<dyn EventSink>>,
    /// Number of SWAPDB exchanges. Changes only while all shards are locked.
    pub(crate) swaps: AtomicU64,
    /// The snapshot in progress.
    pub(crate) snapshot: Mutex<Option<Arc<Backlog>>>,
    /// For waiters.
    pub(crate) sequences: Sequences,
    pub(crate) unserved: Unserved,
    pub(crate) forgotten: Forgotten,
    /// For clients that cache keys.
    pub(crate) cached: Cached,
    /// For watchers.
    pub(crate) watches: Arc<Board>,
    pub(super) code: CodeStore,
    /// Store for values on disk.
    pub(crate) cold: OnceLock<Arc<ColdStore>>,
    /// True if a value has ever been only on disk.
    pub(crate) has_spilled: AtomicBool,
    pub(crate) aging: Aging,
    /// True if another server decides about expiry. Relaxed: a moment more or less makes no difference.
    is_following: AtomicBool,
}

impl Keyspace {
    /// Returns an empty keyspace.
    ///
    /// # Errors
    ///
    /// If the numbers in `options` are out of bounds.
    pub fn new(options: Options) -> Result<Self, OptionsError> {
        let Options { shards, databases, seed, value_len_max, version_base, .. } = options;
        let Options { log, log_sizes, .. } = options;
        if !shards.is_power_of_two() || shards > SHARDS_MAX {
            return Err(OptionsError::Shards(shards));
        }
        if databases == 0 || databases > DATABASES_MAX {
            return Err(OptionsError::Databases(databases));
        }
        let reaper_wakeup = Arc::<ReaperWakeup>::default();
        Ok(Self {
            hasher: KeyHasher::new(seed, shards.trailing_zeros()),
            slots: (0..shards).map(|_| Slot::new(databases)).collect(),
            next_deadlines_ms: (0..shards).map(|_| AtomicI64::new(NO_DEADLINE)).collect(),
            next_field_deadlines_ms: (0..shards).map(|_| AtomicI64::new(NO_DEADLINE)).collect(),
            busy: BusyShards::new(shards),
            cached: Cached::default(),
            watches: Arc::new(Board::new(Arc::clone(&reaper_wakeup))),
            reaper_wakeup,
            pressure: Pressure::new(size_of::<Self>()),
            limits: LimitCells::new(&Limits::default()),
            value_len_max: AtomicUsize::new(value_len_max.min(VALUE_LEN_MAX)),
            databases,
            lazy_free: LazyFreeQueue::default(),
            version_base,
            log: log.map(|sink| BatchSink::new(sink, log_sizes)),
            stream_position: KnownPosition::default(),
            copies_bytes: AtomicU64::new(0),
            expiry_nanos: AtomicU64::new(0),
            longest_expiry_nanos: AtomicU64::new(0),
            interest: SharedInterest::default(),
            sink: OnceLock::new(),
            swaps: AtomicU64::new(0),
            snapshot: Mutex::default(),
            sequences: Sequences::default(),
            unserved: Unserved::default(),
            forgotten: Forgotten::default(),
            code: CodeStore::default(),
            cold: OnceLock::new(),
            has_spilled: AtomicBool::new(false),
            aging: Aging::default(),
            is_following: AtomicBool::new(false),
        })
    }

    /// Returns a key with its hash.
    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        self.hasher.key(bytes)
    }

    /// Like [`Keyspace::key`], but reuses a known hash if it belongs to this very slice (same address).
    #[inline]
    pub fn key_as<'a>(&self, bytes: &'a [u8], hashed: Option<(&[u8], KeyHash)>) -> Key<'a> {
        match hashed {
            Some((same, hash)) if std::ptr::eq(same, bytes) => Key::new(bytes, hash),
            _ => self.hasher.key(bytes),
        }
    }

    /// Returns the hash of a key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.hasher.hash_bytes(key)
    }

    /// Returns the shard number of a key.
    pub fn shard_of(&self, key: KeyHash) -> usize {
        self.hasher.shard(key)
    }

    /// Returns the database of this number, if there is one.
    #[inline]
    pub fn db_index(&self, number: usize) -> Option<DbIndex> {
        if number < self.databases {
            u16::try_from(number).ok().map(DbIndex::from_number)
        } else {
            None
        }
    }

    /// Returns all databases.
    pub fn db_indices(&self) -> impl Iterator<Item = DbIndex> + use<> {
        DbIndex::below(self.databases)
    }

    /// Sets if the keyspace follows another server. While it does, nothing is evicted, and expired keys stay, but
    /// hidden, until the other server removes them. Callers that apply changes must see all keys: they pass a time
    /// before any deadline.
    pub fn set_following(&self, is_following: bool) {
        self.is_following.store(is_following, Ordering::Relaxed);
        self.reaper_wakeup.notify();
    }

    /// Sets the replication offset of the loaded data, as a snapshot states it.
    pub fn note_loaded_position(&self, position: StreamPosition) {
        *self.stream_position.lock() = Some(position);
    }

    /// Returns the offset of the data in the stream of a primary, as the log has it.
    pub fn stream_position(&self) -> Option<StreamPosition> {
        *self.stream_position.lock()
    }

    /// Returns true if another server decides about expiry.
    #[must_use]
    pub fn is_following(&self) -> bool {
        self.is_following.load(Ordering::Relaxed)
    }

    /// Returns the reason if an entry has expired; see [`Removal::due`].
    #[inline]
    pub(crate) fn expiry_of(&self, entry: &Entry, now_ms: i64) -> Option<Removal> {
        Removal::due(entry, now_ms, || self.is_following())
    }

    /// Returns the maximum length of a value that an append or a write beyond the end makes.
    pub fn value_len_max(&self) -> usize {
        self.value_len_max.load(Ordering::Relaxed)
    }

    /// Changes that limit. Longer values that already exist stay.
    pub fn set_value_len_max(&self, len: usize) {
        self.value_len_max.store(len.min(VALUE_LEN_MAX), Ordering::Relaxed);
    }

    /// Returns the limits up to which collections keep their compact encoding.
    pub fn limits(&self) -> Limits {
        self.limits.all()
    }

    /// Changes these limits. A collection adopts them at its next edit.
    pub fn set_limits(&self, limits: &Limits) {
        self.limits.set_all(limits);
    }

    /// Returns the libraries of functions and named scripts that clients store here.
    #[inline]
    pub fn code(&self) -> &CodeStore {
        &self.code
    }

    /// Puts or removes code, which counts against the memory limit. Returns the previous source. The caller has
    /// locked all shards.
    pub(crate) fn set_code(
        &self,
        kind: CodeKind,
        name: &[u8],
        source: Option<Arc<[u8]>>,
    ) -> Option<Arc<[u8]>> {
        let bytes = self.code.memory_bytes();
        let before = self.code.set(kind, name, source);
        self.pressure.tell(self.code.memory_bytes() as i64 - bytes as i64);
        before
    }

    /// Returns true if [`ShardLocks::prefetch`](crate::ShardLocks::prefetch) pays for keys of this database.
    /// Estimated from the size of one shard's part.
    #[inline]
    pub fn gains_from_prefetch(&self, db: DbIndex) -> bool {
        let keys = self.slots[0].stats.dbs.get(db).keys.get();
        keys * self.shard_count() as u64 >= PREFETCH_KEYS_MIN
    }

    /// Returns the number of shards.
    pub fn shard_count(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of keys in a database, without a lock. Exact without concurrent writers; otherwise each
    /// shard contributes a number that was correct at some moment.
    pub fn len(&self, db: DbIndex) -> u64 {
        self.slots.iter().map(|slot| slot.stats.dbs.get(db).keys.get()).sum()
    }

    /// Returns true if all keys of a database have deadlines; as exact as [`Keyspace::len`].
    pub(crate) fn all_expire(&self, db: DbIndex) -> bool {
        let counters = self.slots.iter().map(|slot| slot.stats.dbs.get(db));
        counters.map(|db| db.keys.get().saturating_sub(db.expires.get())).sum::<u64>() == 0
    }

    /// Returns the number of keys in all databases; see [`Keyspace::len`].
    #[must_use]
    pub fn total_len(&self) -> u64 {
        let counters = self.slots.iter().flat_map(|slot| slot.stats.dbs.used());
        counters.map(|(_, db)| db.keys.get()).sum()
    }

    /// Returns the longest round of the reaper that removed keys, and resets it.
    pub fn take_longest_expiry(&self) -> Duration {
        Duration::from_nanos(self.longest_expiry_nanos.swap(0, Ordering::Relaxed))
    }

    /// Estimates the number of keys in all databases; too high if values are long. Takes one step for each shard,
    /// however many databases there are.
    #[must_use]
    pub fn estimated_len(&self) -> u64 {
        const ENTRY_BYTES: u64 = 32;
        self.slots.iter().map(|slot| slot.stats.entry_bytes.get()).sum::<u64>() / ENTRY_BYTES
    }

    /// Returns true if a database has no keys; see [`Keyspace::len`].
    pub fn is_empty(&self, db: DbIndex) -> bool {
        self.len(db) == 0
    }

    /// Returns the size of a database, without a lock.
    pub fn db_stats(&self, db: DbIndex, now_ms: i64) -> DbStats {
        let mut total = DbTotal::default();
        self.slots.iter().for_each(|slot| total.add(slot.stats.dbs.get(db)));
        total.stats(now_ms)
    }

    /// Returns the sizes of all databases that have keys, in the order of their numbers, without a lock.
    #[must_use]
    pub fn sizes(&self, now_ms: i64) -> Vec<(DbIndex, DbStats)> {
        let mut totals: Vec<DbTotal> = Vec::new();
        for (db, counters) in self.slots.iter().flat_map(|slot| slot.stats.dbs.used()) {
            if db.get() >= totals.len() {
                totals.resize_with(db.get() + 1, DbTotal::default);
            }
            totals[db.get()].add(counters);
        }
        let sizes = self.db_indices().zip(totals).map(|(db, total)| (db, total.stats(now_ms)));
        sizes.filter(|(_, stats)| stats.keys > 0).collect()
    }

    /// Returns the counters, without a lock.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            expiry_nanos: self.expiry_nanos.load(Ordering::Relaxed),
            lazily_freed: self.lazy_free.freed(),
            ..Stats::default()
        };
        for slot in &self.slots {
            stats.hits += slot.stats.hits.get();
            stats.misses += slot.stats.misses.get();
            stats.expired += slot.stats.expired.get();
            stats.evicted += slot.stats.evicted.get();
            stats.changes += slot.stats.changes.get();
            stats.lock_waits += slot.stats.lock_waits.get();
        }
        stats
    }

    /// Returns a time not later than the earliest deadline of all keys and fields; `None` without deadlines.
    pub fn next_deadline_ms(&self) -> Option<i64> {
        let times = self.next_deadlines_ms.iter().chain(&self.next_field_deadlines_ms);
        let times = times.map(|time_ms| time_ms.load(Ordering::Relaxed));
        times.min().filter(|time_ms| *time_ms != NO_DEADLINE)
    }

    /// Tells the reaper the exact earliest deadlines of a shard.
    pub(crate) fn publish_next_deadline(&self, held: &Held<'_>) {
        let next_ms = held.shard.next_deadline_ms().unwrap_or(NO_DEADLINE);
        self.next_deadlines_ms[held.index].store(next_ms, Ordering::Relaxed);
        let next_ms = held.shard.next_field_deadline_ms().unwrap_or(NO_DEADLINE);
        self.next_field_deadlines_ms[held.index].store(next_ms, Ordering::Relaxed);
    }

    /// Returns the version that the last of this many changes in a shard made.
    #[inline]
    pub(crate) fn version_after(&self, changes: u64) -> NonZeroU64 {
        let version = self.version_base.wrapping_add(changes).wrapping_add(1);
        NonZeroU64::new(version).unwrap_or(NonZeroU64::MIN)
    }
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyspace")
            .field("shards", &self.slots.len())
            .field("databases", &self.databases)
            .field("memory", &self.memory())
            .finish_non_exhaustive()
    }
}
