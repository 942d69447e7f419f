//! The whole: shards, their hash, and what all of them share.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tierce_cask::ColdStore;

use crate::aging::Aging;
use crate::alarm::Alarm;
use crate::change::{Event, Observer};
use crate::collections::limits::{LimitCells, Limits};
use crate::db_index::{DATABASES_MAX, DbIndex};
use crate::garbage::{Fate, Garbage, Piece};
use crate::key::{Key, KeyHash, KeyHasher, SHARD_BITS_MAX, VALUE_LEN_MAX};
use crate::locker::Locker;
use crate::log::batch::Outlet;
use crate::log::{LogSink, Sizes};
use crate::pressure::Pressure;
use crate::shard::Slot;
use crate::snapshot::Backlog;
use crate::stats::{DbStats, Memory, Stats};
use crate::waiters::{Tickets, Unserved};

/// At most this many shards.
pub const SHARDS_MAX: usize = 1 << SHARD_BITS_MAX;

/// The next deadline of a shard where there is none.
pub(crate) const NO_DEADLINE: i64 = i64::MAX;

/// How a keyspace is built.
#[derive(Clone)]
pub struct Options {
    /// Number of shards, a power of two up to [`SHARDS_MAX`]. Many more than threads, so that two
    /// threads seldom meet in one.
    pub shards: usize,
    /// Number of databases, 1 to [`DATABASES_MAX`].
    pub databases: usize,
    /// Seeds the hash of keys. A server draws it from the operating system, so that nobody outside
    /// can choose keys that collide.
    pub seed: u64,
    /// The longest value that an append or a write beyond the end may make.
    pub value_len_max: usize,
    /// Versions of keys are larger than this. A server derives it from the time of its start, so that
    /// a version handed out in an earlier life fits no value of this one.
    pub version_base: u64,
    /// Who is told of changes.
    pub observer: Option<Arc<dyn Observer>>,
    /// Where changes are logged. While a keyspace is being loaded from its log nothing must go
    /// there: see [`Keyspace::begin_logging`].
    pub log: Option<Arc<dyn LogSink>>,
    /// How records are cut. Whoever tests that makes them short.
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
            observer: None,
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
            .field("observer", &self.observer.is_some())
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
/// Nothing is read or written here directly: a thread gets a [`Locker`], which locks shards and
/// hands out databases.
pub struct Keyspace {
    pub(crate) hasher: KeyHasher,
    pub(crate) slots: Box<[Slot]>,
    /// For each shard a time not later than its earliest deadline, or [`NO_DEADLINE`]. Written under
    /// the shard's lock. All in one place, since the reaper looks at all of them in each turn.
    pub(crate) next_deadlines_ms: Box<[AtomicI64]>,
    /// The same for the fields of hashes. Apart, because eviction looks for keys that expire soon.
    pub(crate) next_field_deadlines_ms: Box<[AtomicI64]>,
    pub(crate) alarm: Alarm,
    pub(crate) pressure: Pressure,
    pub(crate) limits: LimitCells,
    /// A bound for writes to come; relaxed, for it orders nothing.
    value_len_max: AtomicUsize,
    databases: usize,
    garbage: Garbage,
    version_base: u64,
    observer: Option<Arc<dyn Observer>>,
    log: Option<Outlet>,
    logging: AtomicBool,
    /// How often two databases were exchanged. Changes only while all shards are locked.
    pub(crate) swaps: AtomicU64,
    /// The snapshot in progress.
    pub(crate) snapshot: Mutex<Option<Arc<Backlog>>>,
    /// For those who wait for keys.
    pub(crate) tickets: Tickets,
    pub(crate) unserved: Unserved,
    /// Where values are that are not in memory.
    pub(crate) cold: OnceLock<Arc<ColdStore>>,
    /// Whether a value has ever been nowhere else.
    pub(crate) has_spilled: AtomicBool,
    pub(crate) aging: Aging,
}

impl Keyspace {
    /// An empty keyspace.
    ///
    /// # Errors
    ///
    /// If the numbers in `options` are out of bounds.
    pub fn new(options: Options) -> Result<Self, OptionsError> {
        let Options { shards, databases, seed, value_len_max, version_base, observer, .. } =
            options;
        let Options { log, log_sizes, .. } = options;
        if !shards.is_power_of_two() || shards > SHARDS_MAX {
            return Err(OptionsError::Shards(shards));
        }
        if databases == 0 || databases > DATABASES_MAX {
            return Err(OptionsError::Databases(databases));
        }
        Ok(Self {
            hasher: KeyHasher::new(seed, shards.trailing_zeros()),
            slots: (0..shards).map(|_| Slot::new(databases)).collect(),
            next_deadlines_ms: (0..shards).map(|_| AtomicI64::new(NO_DEADLINE)).collect(),
            next_field_deadlines_ms: (0..shards).map(|_| AtomicI64::new(NO_DEADLINE)).collect(),
            alarm: Alarm::default(),
            pressure: Pressure::new(),
            limits: LimitCells::new(&Limits::default()),
            value_len_max: AtomicUsize::new(value_len_max.min(VALUE_LEN_MAX)),
            databases,
            garbage: Garbage::default(),
            version_base,
            observer,
            log: log.map(|sink| Outlet::new(sink, log_sizes)),
            logging: AtomicBool::new(false),
            swaps: AtomicU64::new(0),
            snapshot: Mutex::default(),
            tickets: Tickets::default(),
            unserved: Unserved::default(),
            cold: OnceLock::new(),
            has_spilled: AtomicBool::new(false),
            aging: Aging::default(),
        })
    }

    /// A key with its hash.
    #[inline]
    #[must_use]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        self.hasher.key(bytes)
    }

    /// The same where the hash of some bytes is known: it is used if these are the very bytes, in the same
    /// place.
    #[inline]
    #[must_use]
    pub fn key_as<'a>(&self, bytes: &'a [u8], hashed: Option<(&[u8], KeyHash)>) -> Key<'a> {
        match hashed {
            Some((same, hash)) if std::ptr::eq(same, bytes) => Key::new(bytes, hash),
            _ => self.hasher.key(bytes),
        }
    }

    /// The hash of a key.
    #[inline]
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.hasher.hash_bytes(key)
    }

    /// The number of the shard of a key.
    #[must_use]
    pub fn shard_of(&self, key: KeyHash) -> usize {
        self.hasher.shard(key)
    }

    /// Access for one thread. Cheap; one for each batch of requests is fine.
    #[inline]
    #[must_use]
    pub fn locker(&self) -> Locker<'_> {
        Locker::new(self)
    }

    /// The database of this number, if there is one.
    #[inline]
    #[must_use]
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

    /// The longest value that an append or a write beyond the end may make.
    #[must_use]
    pub fn value_len_max(&self) -> usize {
        self.value_len_max.load(Ordering::Relaxed)
    }

    /// Changes that bound. Values that are longer already stay.
    pub fn set_value_len_max(&self, len: usize) {
        self.value_len_max.store(len.min(VALUE_LEN_MAX), Ordering::Relaxed);
    }

    /// Up to which size collections are compact.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits.all()
    }

    /// Changes these limits. Collections adopt them when they are next edited.
    pub fn set_limits(&self, limits: &Limits) {
        self.limits.set_all(limits);
    }

    /// The number of shards.
    #[must_use]
    pub fn shard_count(&self) -> usize {
        self.slots.len()
    }

    /// The number of keys in a database. Takes no lock: exact when nobody writes, and otherwise a
    /// number that was right shard by shard.
    #[must_use]
    pub fn len(&self, db: DbIndex) -> u64 {
        self.slots.iter().map(|slot| slot.stats.dbs[db.get()].keys.get()).sum()
    }

    /// Whether a database has no keys; see [`Keyspace::len`].
    #[must_use]
    pub fn is_empty(&self, db: DbIndex) -> bool {
        self.len(db) == 0
    }

    /// The size of a database, without a lock.
    #[must_use]
    pub fn db_stats(&self, db: DbIndex, now_ms: i64) -> DbStats {
        DbStats::sum(self.slots.iter().map(|slot| &slot.stats.dbs[db.get()]), now_ms)
    }

    /// What happened, without a lock.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for slot in &self.slots {
            stats.hits += slot.stats.hits.get();
            stats.misses += slot.stats.misses.get();
            stats.expired += slot.stats.expired.get();
            stats.evicted += slot.stats.evicted.get();
            stats.changes += slot.stats.changes.get();
        }
        stats
    }

    /// Keys that clients wait for, and those of them whose removal ends a wait, too. Without a lock.
    #[must_use]
    pub fn awaited_keys(&self) -> (u64, u64) {
        let of = |slot: &Slot| (slot.stats.awaited_keys.get(), slot.stats.awaited_removals.get());
        self.slots.iter().map(of).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// The memory taken, without a lock.
    #[must_use]
    pub fn memory(&self) -> Memory {
        let mut memory = Memory { garbage: self.garbage.bytes(), ..Memory::default() };
        for slot in &self.slots {
            memory.entries += slot.stats.entry_bytes.get();
            memory.index += slot.stats.index_bytes.get();
            memory.deadlines += slot.stats.deadline_bytes.get();
        }
        memory
    }

    /// A time not later than the earliest deadline of all keys and fields; `None` if there is no
    /// deadline.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<i64> {
        let times = self.next_deadlines_ms.iter().chain(&self.next_field_deadlines_ms);
        let times = times.map(|time_ms| time_ms.load(Ordering::Relaxed));
        times.min().filter(|time_ms| *time_ms != NO_DEADLINE)
    }

    /// The version that the last of so many changes in a shard made.
    #[inline]
    pub(crate) fn version_after(&self, changes: u64) -> NonZeroU64 {
        let version = self.version_base.wrapping_add(changes).wrapping_add(1);
        NonZeroU64::new(version).unwrap_or(NonZeroU64::MIN)
    }

    /// From now on changes go to the log of [`Options::log`], except in shards that are locked at
    /// this moment. So a [`Checkpoint`](crate::log::Checkpoint) that begins afterwards misses none.
    pub fn begin_logging(&self) {
        self.logging.store(true, Ordering::Release);
    }

    /// From now on changes are not logged any more; see [`Keyspace::begin_logging`].
    pub fn end_logging(&self) {
        self.logging.store(false, Ordering::Release);
    }

    /// The log, while changes go there.
    #[inline]
    pub(crate) fn log(&self) -> Option<&Outlet> {
        self.log.as_ref().filter(|_| self.logging.load(Ordering::Acquire))
    }

    /// Tells the observer, if there is one.
    #[inline]
    pub(crate) fn notify(&self, event: &Event<'_>) {
        if let Some(observer) = &self.observer {
            observer.event(event);
        }
    }

    /// Frees something large, by the reaper if possible.
    pub(crate) fn discard(&self, piece: Piece) {
        if self.garbage.push(piece) == Fate::Queued {
            self.alarm.ring();
        }
    }

    /// How many large things were removed and wait to be freed.
    #[must_use]
    pub fn garbage_pieces(&self) -> usize {
        self.garbage.pieces()
    }

    pub(crate) fn garbage(&self) -> &Garbage {
        &self.garbage
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
