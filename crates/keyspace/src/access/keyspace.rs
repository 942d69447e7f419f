//! The keyspace as a whole: shards, their hash, and what they share.

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
use crate::change::stream_place::{KnownPlace, StreamPlace};
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

/// At most this many shards.
pub const SHARDS_MAX: usize = 1 << SHARD_BITS_MAX;

/// In a keyspace of fewer keys than this, prefetching does not pay: it is mostly in the processor's caches, where locks
/// cost more than misses. About the number of keys whose index and short values fill a megabyte.
const PREFETCH_KEYS_MIN: u64 = 16 * 1024;

/// How a keyspace is built.
#[derive(Clone)]
pub struct Options {
    /// Number of shards, a power of two up to [`SHARDS_MAX`]. Many more than threads, so that two
    /// threads seldom meet in one.
    pub shards: usize,
    /// Number of databases, 1 to [`DATABASES_MAX`].
    pub databases: usize,
    /// Seeds the hash of keys. A server draws it from the operating system, so that no client
    /// can choose keys that collide.
    pub seed: u64,
    /// The longest value that an append or a write beyond the end may make.
    pub value_len_max: usize,
    /// Versions of keys are larger than this. A server derives it from the time of its start, so that
    /// a version handed out in an earlier life fits no value of this one.
    pub version_base: u64,
    /// Where changes are logged. While a keyspace is being loaded from its log nothing must go
    /// there: see [`Keyspace::begin_logging`].
    pub log: Option<Arc<dyn LogSink>>,
    /// How records are cut. Tests make them short.
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

/// Why a keyspace could not be built.
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

/// All keys with their values, shared by all threads.
///
/// Nothing is read or written here directly: a thread gets a [`ShardLocks`](crate::ShardLocks), which locks shards and
/// hands out databases.
pub struct Keyspace {
    pub(crate) hasher: KeyHasher,
    pub(crate) slots: Box<[Slot]>,
    /// For each shard a time not later than its earliest deadline, or [`NO_DEADLINE`]. Written under
    /// the shard's lock. All in one place, since the reaper looks at all of them in each turn.
    pub(crate) next_deadlines_ms: Box<[AtomicI64]>,
    /// The same for the fields of hashes. Apart, because eviction looks for keys that expire soon.
    pub(crate) next_field_deadlines_ms: Box<[AtomicI64]>,
    pub(crate) busy: BusyShards,
    pub(crate) reaper_wakeup: Arc<ReaperWakeup>,
    pub(crate) pressure: Pressure,
    pub(crate) limits: LimitCells,
    /// A bound for writes to come; relaxed, for it orders nothing.
    value_len_max: AtomicUsize,
    databases: usize,
    pub(super) lazy_free: LazyFreeQueue,
    version_base: u64,
    pub(super) log: Option<BatchSink>,
    /// Where the data are in the stream of a primary.
    pub(crate) stream_place: KnownPlace,
    /// Bytes of the copies that commands compute from.
    pub(crate) copies_bytes: AtomicU64,
    /// For how long the reaper has looked for what has expired, and removed it, in nanoseconds. Relaxed: a figure.
    pub(crate) expiry_nanos: AtomicU64,
    /// The longest round of the reaper since [`Keyspace::take_longest_expiry`].
    pub(crate) longest_expiry_nanos: AtomicU64,
    pub(crate) interest: SharedInterest,
    /// The receiver of events.
    pub(crate) sink: OnceLock<Box<dyn EventSink>>,
    /// How often two databases were exchanged. Changes only while all shards are locked.
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
    /// Where values are that are not in memory.
    pub(crate) cold: OnceLock<Arc<ColdStore>>,
    /// Whether a value has ever been nowhere else.
    pub(crate) has_spilled: AtomicBool,
    pub(crate) aging: Aging,
    /// Another server decides what expires. Relaxed: a moment more or less makes no difference.
    is_following: AtomicBool,
}

impl Keyspace {
    /// An empty keyspace.
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
            stream_place: KnownPlace::default(),
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

    /// A key with its hash.
    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        self.hasher.key(bytes)
    }

    /// The same where the hash of some bytes is known: it is used if these are the very bytes, in the same
    /// place.
    #[inline]
    pub fn key_as<'a>(&self, bytes: &'a [u8], hashed: Option<(&[u8], KeyHash)>) -> Key<'a> {
        match hashed {
            Some((same, hash)) if std::ptr::eq(same, bytes) => Key::new(bytes, hash),
            _ => self.hasher.key(bytes),
        }
    }

    /// The hash of a key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.hasher.hash_bytes(key)
    }

    /// The number of the shard of a key.
    pub fn shard_of(&self, key: KeyHash) -> usize {
        self.hasher.shard(key)
    }

    /// The database of this number, if there is one.
    #[inline]
    pub fn db_index(&self, number: usize) -> Option<DbIndex> {
        if number < self.databases {
            u16::try_from(number).ok().map(DbIndex::from_number)
        } else {
            None
        }
    }

    /// All databases.
    pub fn db_indices(&self) -> impl Iterator<Item = DbIndex> + use<> {
        DbIndex::below(self.databases)
    }

    /// Says whether the keyspace follows that of another server. While it does, keys whose deadline has come stay, but
    /// are not shown, until the other server removes them, and nothing is evicted. Callers that change keys have to
    /// see all of them then: they say that it is a time before any deadline.
    pub fn set_following(&self, is_following: bool) {
        self.is_following.store(is_following, Ordering::Relaxed);
        self.reaper_wakeup.notify();
    }

    /// What was loaded is that of a place, as a snapshot says.
    pub fn note_loaded_place(&self, place: StreamPlace) {
        *self.stream_place.lock() = Some(place);
    }

    /// The place of the data in the stream of a primary, as the log has it.
    pub fn stream_place(&self) -> Option<StreamPlace> {
        *self.stream_place.lock()
    }

    /// Whether another server decides what expires.
    #[must_use]
    pub fn is_following(&self) -> bool {
        self.is_following.load(Ordering::Relaxed)
    }

    /// Why a key is gone by itself, if it is; see [`Removal::due`].
    #[inline]
    pub(crate) fn expiry_of(&self, entry: &Entry, now_ms: i64) -> Option<Removal> {
        Removal::due(entry, now_ms, || self.is_following())
    }

    /// The longest value that an append or a write beyond the end may make.
    pub fn value_len_max(&self) -> usize {
        self.value_len_max.load(Ordering::Relaxed)
    }

    /// Changes that bound. Values that are longer already stay.
    pub fn set_value_len_max(&self, len: usize) {
        self.value_len_max.store(len.min(VALUE_LEN_MAX), Ordering::Relaxed);
    }

    /// Up to which size collections are compact.
    pub fn limits(&self) -> Limits {
        self.limits.all()
    }

    /// Changes these limits. Collections adopt them when they are next edited.
    pub fn set_limits(&self, limits: &Limits) {
        self.limits.set_all(limits);
    }

    /// The libraries of functions and named scripts that clients keep here.
    #[inline]
    pub fn code(&self) -> &CodeStore {
        &self.code
    }

    /// Puts or removes code, which counts against the limit of memory. Returns what was there. For a holder of all
    /// shards.
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

    /// True if [`ShardLocks::prefetch`](crate::ShardLocks::prefetch) pays for keys of this database, judged by the size
    /// of one shard's part.
    #[inline]
    pub fn gains_from_prefetch(&self, db: DbIndex) -> bool {
        let keys = self.slots[0].stats.dbs.get(db).keys.get();
        keys * self.shard_count() as u64 >= PREFETCH_KEYS_MIN
    }

    /// The number of shards.
    pub fn shard_count(&self) -> usize {
        self.slots.len()
    }

    /// The number of keys in a database. Takes no lock: exact without writers, and otherwise a
    /// number that was right shard by shard.
    pub fn len(&self, db: DbIndex) -> u64 {
        self.slots.iter().map(|slot| slot.stats.dbs.get(db).keys.get()).sum()
    }

    /// Whether all keys of a database have deadlines; exact as [`Keyspace::len`] is.
    pub(crate) fn all_expire(&self, db: DbIndex) -> bool {
        let counters = self.slots.iter().map(|slot| slot.stats.dbs.get(db));
        counters.map(|db| db.keys.get().saturating_sub(db.expires.get())).sum::<u64>() == 0
    }

    /// The number of keys in all databases; see [`Keyspace::len`].
    #[must_use]
    pub fn total_len(&self) -> u64 {
        let counters = self.slots.iter().flat_map(|slot| slot.stats.dbs.used());
        counters.map(|(_, db)| db.keys.get()).sum()
    }

    /// The longest round in which the reaper has removed keys, since this was asked last.
    pub fn take_longest_expiry(&self) -> Duration {
        Duration::from_nanos(self.longest_expiry_nanos.swap(0, Ordering::Relaxed))
    }

    /// About how many keys there are in all databases, or more if values are long: found in the time that it takes to
    /// ask each shard, however many databases there are.
    #[must_use]
    pub fn estimated_len(&self) -> u64 {
        const ENTRY_BYTES: u64 = 32;
        self.slots.iter().map(|slot| slot.stats.entry_bytes.get()).sum::<u64>() / ENTRY_BYTES
    }

    /// Whether a database has no keys; see [`Keyspace::len`].
    pub fn is_empty(&self, db: DbIndex) -> bool {
        self.len(db) == 0
    }

    /// The size of a database, without a lock.
    pub fn db_stats(&self, db: DbIndex, now_ms: i64) -> DbStats {
        let mut total = DbTotal::default();
        self.slots.iter().for_each(|slot| total.add(slot.stats.dbs.get(db)));
        total.stats(now_ms)
    }

    /// The sizes of all databases that have keys, in the order of their numbers, without a lock.
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

    /// What happened, without a lock.
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

    /// A time not later than the earliest deadline of all keys and fields; `None` if there is no
    /// deadline.
    pub fn next_deadline_ms(&self) -> Option<i64> {
        let times = self.next_deadlines_ms.iter().chain(&self.next_field_deadlines_ms);
        let times = times.map(|time_ms| time_ms.load(Ordering::Relaxed));
        times.min().filter(|time_ms| *time_ms != NO_DEADLINE)
    }

    /// Tells the reaper the earliest deadlines of a shard, exactly.
    pub(crate) fn publish_next_deadline(&self, held: &Held<'_>) {
        let next_ms = held.shard.next_deadline_ms().unwrap_or(NO_DEADLINE);
        self.next_deadlines_ms[held.index].store(next_ms, Ordering::Relaxed);
        let next_ms = held.shard.next_field_deadline_ms().unwrap_or(NO_DEADLINE);
        self.next_field_deadlines_ms[held.index].store(next_ms, Ordering::Relaxed);
    }

    /// The version that the last of this many changes in a shard made.
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
