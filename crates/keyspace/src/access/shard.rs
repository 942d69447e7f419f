//! A shard: the part of every database whose keys hash to it, behind one lock.

use std::cell::RefCell;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::change::interest::Interest;
use crate::data::shard_db::{ShardDb, ShardDbs};
use crate::db_index::{DbIndex, DbSet};
use crate::interleaving::{self, Unlocked};
use crate::registries::cached::CachedKeys;
use crate::registries::snapshot::shard::ShardSnapshot;
use crate::registries::stats::ShardStats;
use crate::registries::waiters::Waiters;
use crate::registries::watch::registry::Registry;

/// One shard with its lock and its public figures.
///
/// Aligned to two cache lines, since x86_64 prefetches lines in pairs, so that neighbours do not slow each other
/// down. The lock, the data under it, and the counters that a request writes are in the first line. Only that line
/// moves between processors when threads take turns.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Slot {
    pub(crate) shard: Mutex<Locked>,
    pub(crate) stats: ShardStats,
}

impl Slot {
    pub(crate) fn new(databases: usize) -> Self {
        Self { shard: Mutex::new(Locked::new(databases)), stats: ShardStats::new(databases) }
    }
}

/// State under the lock: the data, and its observers. They are separate fields, so that code that changes the data
/// can query the observers.
#[derive(Debug)]
pub(crate) struct Locked {
    pub(crate) data: Shard,
    pub(crate) observers: Observers,
}

/// Clients to tell when keys change.
#[derive(Debug, Default)]
pub(crate) struct Observers {
    pub(crate) watched: Registry,
    /// In a cell, since code that changes a key takes it out.
    pub(crate) cached: RefCell<CachedKeys>,
}

impl Locked {
    fn new(databases: usize) -> Self {
        Self { data: Shard::new(databases), observers: Observers::default() }
    }
}

impl Deref for Locked {
    type Target = Shard;

    #[inline]
    fn deref(&self) -> &Shard {
        &self.data
    }
}

impl DerefMut for Locked {
    #[inline]
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.data
    }
}

/// The data of a shard.
///
/// The first database, which most users never leave, is stored next to the lock and not behind a pointer. In a
/// keyspace of moderate size a lookup mostly waits for caches, and this saves one wait.
#[derive(Debug)]
pub(crate) struct Shard {
    first: ShardDb,
    /// Other databases, from their first use until they are emptied. Usually most databases are empty, and each takes
    /// hundreds of bytes in every shard.
    others: Vec<Option<Box<ShardDb>>>,
    /// The first database, and those in `others`.
    used: DbSet,
    /// Empty stand-in for unused databases.
    unused: ShardDb,
    databases: usize,
    /// Snapshot in progress, unless it is done with this shard.
    pub(crate) snapshot: Option<Box<ShardSnapshot>>,
    /// Waiters for keys of this shard, if there are any.
    pub(crate) waiters: Option<Box<Waiters>>,
}

impl Shard {
    fn new(databases: usize) -> Self {
        Self {
            first: ShardDb::default(),
            others: Vec::new(),
            used: DbSet::from_iter([DbIndex::ZERO]),
            unused: ShardDb::default(),
            databases,
            snapshot: None,
            waiters: None,
        }
    }

    #[inline]
    pub(crate) fn db(&self, db: DbIndex) -> &ShardDb {
        #[cfg(test)]
        LOOKUPS.set(LOOKUPS.get() + 1);
        match db.get().checked_sub(1) {
            None => &self.first,
            Some(other) => match self.others.get(other) {
                Some(Some(used)) => used,
                _ => &self.unused,
            },
        }
    }

    #[inline]
    pub(crate) fn db_mut(&mut self, db: DbIndex) -> &mut ShardDb {
        match db.get().checked_sub(1) {
            None => &mut self.first,
            Some(other) => {
                debug_assert!(db.get() < self.databases);
                if other >= self.others.len() {
                    self.others.resize_with(other + 1, || None);
                }
                self.others[other].get_or_insert_with(|| {
                    self.used.insert(db);
                    Box::default()
                })
            }
        }
    }

    /// Takes a database out. It is unused then.
    pub(crate) fn take(&mut self, db: DbIndex) -> ShardDb {
        #[cfg(test)]
        LOOKUPS.set(LOOKUPS.get() + 1);
        match db.get().checked_sub(1) {
            None => mem::take(&mut self.first),
            Some(other) => {
                self.used.remove(db);
                self.others
                    .get_mut(other)
                    .and_then(Option::take)
                    .map_or_else(ShardDb::default, |db| *db)
            }
        }
    }

    /// Takes all databases out, in the time that one takes. They are unused then.
    pub(crate) fn take_all(&mut self) -> ShardDbs {
        #[cfg(test)]
        LOOKUPS.set(LOOKUPS.get() + 1);
        self.used.clear();
        self.used.insert(DbIndex::ZERO);
        ShardDbs { first: mem::take(&mut self.first), others: mem::take(&mut self.others) }
    }

    /// Returns a database for callers that add nothing. An unused database stays unused, and looks empty.
    #[inline]
    pub(crate) fn present_mut(&mut self, db: DbIndex) -> &mut ShardDb {
        match db.get().checked_sub(1) {
            None => &mut self.first,
            Some(other) => match self.others.get_mut(other) {
                Some(Some(used)) => used,
                _ => {
                    debug_assert!(self.unused.table.is_empty(), "an unused database stays empty");
                    &mut self.unused
                }
            },
        }
    }

    /// Returns the databases that may contain data: the first one, and those that have had keys since they were last
    /// emptied.
    pub(crate) fn used(&self) -> &DbSet {
        &self.used
    }

    /// Iterates over these with their numbers, in order.
    pub(crate) fn dbs(&self) -> impl Iterator<Item = (DbIndex, &ShardDb)> {
        self.used.iter().map(|db| (db, self.db(db)))
    }

    pub(crate) fn swap(&mut self, a: DbIndex, b: DbIndex) {
        let taken = [a, b].map(|db| self.used.contains(db).then(|| self.take(db)));
        for (to, taken) in [b, a].into_iter().zip(taken) {
            if let Some(taken) = taken {
                *self.db_mut(to) = taken;
            }
        }
        if let Some(part) = &mut self.snapshot {
            part.swapped(a, b);
        }
    }

    /// Returns the earliest key deadline of all databases.
    pub(crate) fn next_deadline_ms(&self) -> Option<i64> {
        self.dbs().filter_map(|(_, db)| db.deadlines.next_ms()).min()
    }

    /// Returns the earliest field deadline of all databases.
    pub(crate) fn next_field_deadline_ms(&self) -> Option<i64> {
        self.dbs().filter_map(|(_, db)| db.field_deadlines.next_ms()).min()
    }
}

#[cfg(test)]
thread_local! {
    /// Number of databases that this thread has accessed: tests count it for operations that visit all databases.
    pub(crate) static LOOKUPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A locked shard.
#[derive(Debug)]
pub(crate) struct Held<'k> {
    pub(crate) index: usize,
    pub(crate) shard: MutexGuard<'k, Locked>,
    pub(crate) stats: &'k ShardStats,
    /// Declared after the guard, so that it is dropped after it.
    _unlocked: Unlocked,
}

impl<'k> Held<'k> {
    #[inline]
    pub(crate) fn lock(slots: &'k [Slot], index: usize) -> Self {
        Self::try_lock(slots, index).unwrap_or_else(|| Self::wait(slots, index))
    }

    #[cold]
    fn wait(slots: &'k [Slot], index: usize) -> Self {
        let slot = &slots[index];
        let held = Self::with(index, slot, interleaving::lock(&slot.shard));
        held.stats.lock_waits.add(1);
        held
    }

    /// Locks the shard if it is free.
    #[inline(always)]
    pub(crate) fn try_lock(slots: &'k [Slot], index: usize) -> Option<Self> {
        interleaving::pass("lock");
        let slot = &slots[index];
        Some(Self::with(index, slot, slot.shard.try_lock()?))
    }

    /// Locks the shard, and waits for `time` at most.
    pub(crate) fn try_lock_for(slots: &'k [Slot], index: usize, time: Duration) -> Option<Self> {
        let slot = &slots[index];
        Some(Self::with(index, slot, interleaving::try_lock_for(&slot.shard, time)?))
    }

    #[inline]
    fn with(index: usize, slot: &'k Slot, shard: MutexGuard<'k, Locked>) -> Self {
        Self { index, shard, stats: &slot.stats, _unlocked: Unlocked::of(&slot.shard) }
    }

    /// Tells writers of the shard if there is a waiter.
    pub(crate) fn note_waiters(&mut self) {
        let waiters = self.shard.waiters.as_ref();
        let [count, keys, woken_on_delete, woken_by_edits] = waiters
            .map_or([0; 4], |it| [it.len, it.queues.len(), it.woken_on_delete, it.woken_by_edits]);
        if count == 0 {
            self.shard.waiters = None;
        }
        self.stats.interest.set(Interest::WAITERS, count > 0);
        self.stats.interest.set(Interest::EDITS, woken_by_edits > 0);
        self.stats.awaited_keys.set(keys as u64);
        self.stats.awaited_removals.set(woken_on_delete as u64);
    }

    /// Tells writers of the shard if any key is watched.
    pub(crate) fn note_watched(&self) {
        let keys = self.shard.observers.watched.len();
        self.stats.watched_keys.set(keys as u64);
        self.stats.interest.set(Interest::WATCHED, keys > 0);
    }
}

/// Takes a database out of a shard. Returns its figures as well.
pub(crate) fn take_db(held: &mut Held<'_>, db: DbIndex) -> (ShardDb, [u64; 3]) {
    let taken = held.shard.take(db);
    let (stats, [entries, index, heaps]) = (held.stats, taken.memory_bytes());
    stats.spilled_keys.sub(taken.cold.spilled_keys);
    stats.spilled_bytes.sub(taken.cold.spilled_bytes);
    stats.entry_bytes.follow(entries, 0);
    stats.index_bytes.follow(index, 0);
    stats.deadline_bytes.follow(heaps, 0);
    let figures = stats.dbs.figures(db);
    stats.dbs.reset(db);
    (taken, figures)
}

/// Reverses [`take_db`]. The present database must be empty and without memory.
pub(crate) fn put_db(held: &mut Held<'_>, db: DbIndex, taken: ShardDb, figures: [u64; 3]) {
    let (stats, [entries, index, heaps]) = (held.stats, taken.memory_bytes());
    stats.spilled_keys.add(taken.cold.spilled_keys);
    stats.spilled_bytes.add(taken.cold.spilled_bytes);
    stats.entry_bytes.follow(0, entries);
    stats.index_bytes.follow(0, index);
    stats.deadline_bytes.follow(0, heaps);
    stats.dbs.set_figures(db, figures);
    *held.shard.db_mut(db) = taken;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::keyspace::{Keyspace, Options};
    use crate::access::prefetch::prefetch_elements;
    use crate::data::expiry::Expiry;
    use crate::registries::policy::Policy;
    use crate::registries::pressure::Eviction;
    use crate::services::aging::age_uses;
    use crate::services::evict::evict;
    use crate::services::scan::random_key;

    #[test]
    fn a_database_takes_memory_from_its_first_use_on() {
        let mut shard = Shard::new(10_000);
        let db = |number| DbIndex::below(10_000).nth(number).unwrap();
        assert!(DbIndex::below(10_000).all(|db| shard.db(db).table.is_empty()));
        shard.swap(db(7), db(8));
        assert_eq!(shard.others.capacity(), 0, "looking and exchanging uses none");
        shard.db_mut(db(30)).volatile_hashes = 1;
        assert!(shard.used().iter().eq([db(0), db(30)]));
        shard.swap(db(30), db(9_999));
        assert!(shard.used().iter().eq([db(0), db(9_999)]), "none is made by it");
        assert_eq!(shard.db(db(9_999)).volatile_hashes, 1);
        assert_eq!(shard.db(db(30)).volatile_hashes, 0);
        shard.swap(db(9_999), db(0));
        assert_eq!((shard.first.volatile_hashes, shard.db(db(9_999)).volatile_hashes), (1, 0));
        assert_eq!(shard.take(db(0)).volatile_hashes + shard.take(db(9_999)).volatile_hashes, 1);
        assert_eq!(shard.take(db(5)).volatile_hashes, 0);
        assert!(shard.used().iter().eq([db(0)]) && shard.others.iter().all(Option::is_none));
    }

    #[test]
    fn who_only_looks_uses_no_database() {
        let options = Options { shards: 1, databases: 1000, ..Options::default() };
        let keyspace = Keyspace::new(options).unwrap();
        let (mut locks, unused) = (keyspace.locks(), keyspace.db_index(700).unwrap());
        let key = keyspace.key(b"key");
        let mut db = locks.db(unused, key.hash(), 1);
        assert_eq!(db.get(key).map(|value| value.is_none()), Ok(true));
        assert!(!db.exists(key) && !db.touch(key) && !db.remove(key) && !db.clear_deadline(key));
        prefetch_elements(&mut db, key, [b"element".as_slice()].into_iter());
        assert_eq!(random_key(&mut locks, unused, 1, 1), None);
        locks.db(DbIndex::ZERO, key.hash(), 1).set(key, b"value", Expiry::Never).unwrap();
        age_uses(&mut locks, 1);
        keyspace.set_eviction(&Eviction {
            policy: Policy::AllkeysLru,
            limit_bytes: 1,
            ..Eviction::default()
        });
        evict(&mut locks, 1, usize::MAX);
        assert!(keyspace.is_empty(DbIndex::ZERO), "the hand came by");
        assert_eq!(locks.held(0).shard.others.capacity(), 0);
    }
}
