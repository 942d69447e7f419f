//! A shard: the part of every database whose keys hash to it, behind one lock.

use std::sync::atomic::Ordering;

use parking_lot::{Mutex, MutexGuard};
use tierce_dash::Table;

use crate::db_index::DbIndex;
use crate::deadline::Deadlines;
use crate::entry::Entry;
use crate::keyspace::{Keyspace, NO_DEADLINE};
use crate::snapshot::Part;
use crate::spill::ColdCounts;
use crate::stats::ShardStats;
use crate::waiters::Waiters;

/// One shard with its lock and its public figures.
///
/// Aligned to two cache lines, for x86_64 prefetches lines in pairs: neighbours do not slow each
/// other down. The lock, what it protects, and the counters that a request writes are in the first
/// line, which is all that moves between processors when threads take turns.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Slot {
    pub(crate) shard: Mutex<Shard>,
    pub(crate) stats: ShardStats,
}

impl Slot {
    pub(crate) fn new(databases: usize) -> Self {
        Self { shard: Mutex::new(Shard::new(databases)), stats: ShardStats::new(databases) }
    }
}

/// What the lock protects.
///
/// The first database, which most users never leave, stands beside the lock and not behind a
/// pointer: a lookup in a keyspace of moderate size waits for caches most of the time, and this is
/// one wait less.
#[derive(Debug)]
pub(crate) struct Shard {
    first: ShardDb,
    /// The others up to the last one that was used; none for those that never were. Most of many
    /// databases are empty, and each takes hundreds of bytes in every shard.
    others: Vec<Option<Box<ShardDb>>>,
    /// What is seen of a database that was never used. Stays empty.
    unused: ShardDb,
    databases: usize,
    /// The snapshot in progress, unless it is done with this shard.
    pub(crate) snapshot: Option<Box<Part>>,
    /// Those who wait for keys of this shard, if there are any.
    pub(crate) waiters: Option<Box<Waiters>>,
}

impl Shard {
    fn new(databases: usize) -> Self {
        Self {
            first: ShardDb::default(),
            others: Vec::new(),
            unused: ShardDb::default(),
            databases,
            snapshot: None,
            waiters: None,
        }
    }

    #[inline]
    pub(crate) fn db(&self, db: DbIndex) -> &ShardDb {
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
                self.others[other].get_or_insert_default()
            }
        }
    }

    /// The same for who adds nothing: a database that was never used stays so, and looks empty.
    #[inline]
    pub(crate) fn present_mut(&mut self, db: DbIndex) -> &mut ShardDb {
        match db.get().checked_sub(1) {
            None => &mut self.first,
            Some(other) => match self.others.get_mut(other) {
                Some(Some(used)) => used,
                _ => {
                    debug_assert!(self.unused.table.is_empty(), "somebody has added to it");
                    &mut self.unused
                }
            },
        }
    }

    /// The number of databases up to the last one that was used.
    pub(crate) fn db_count(&self) -> usize {
        1 + self.others.len()
    }

    /// Whether a database was ever used, so that it may have something to take.
    pub(crate) fn is_used(&self, db: DbIndex) -> bool {
        let other = db.get().checked_sub(1);
        other.is_none_or(|other| matches!(self.others.get(other), Some(Some(_))))
    }

    /// All databases up to the last one that was used, in the order of their numbers.
    pub(crate) fn dbs(&self) -> impl Iterator<Item = &ShardDb> {
        let others = self.others.iter().map(|db| db.as_deref().unwrap_or(&self.unused));
        std::iter::once(&self.first).chain(others)
    }

    /// The databases that were ever used, from this number on.
    pub(crate) fn used_from(&self, from: usize) -> impl Iterator<Item = DbIndex> {
        let numbers = from..self.db_count();
        numbers.map(|db| DbIndex::from_number(db as u16)).filter(|db| self.is_used(*db))
    }

    pub(crate) fn swap(&mut self, a: DbIndex, b: DbIndex) {
        if self.is_used(a) || self.is_used(b) {
            let (low, high) = (a.get().min(b.get()), a.get().max(b.get()));
            if high > self.others.len() {
                self.others.resize_with(high, || None);
            }
            match low.checked_sub(1) {
                Some(low) => self.others.swap(low, high - 1),
                None => {
                    let other = self.others[high - 1].get_or_insert_default();
                    std::mem::swap(&mut self.first, other);
                }
            }
        }
        self.save_after_swap(a, b);
    }

    /// The earliest deadline of all databases.
    fn next_deadline_ms(&self) -> Option<i64> {
        self.dbs().filter_map(|db| db.deadlines.next_ms()).min()
    }

    /// The same of the fields of hashes.
    fn next_field_deadline_ms(&self) -> Option<i64> {
        self.dbs().filter_map(|db| db.field_deadlines.next_ms()).min()
    }
}

/// One database's part in a shard.
#[derive(Debug, Default)]
pub(crate) struct ShardDb {
    pub(crate) table: Table<Entry>,
    pub(crate) deadlines: Deadlines,
    /// The earliest deadlines of hashes' fields.
    pub(crate) field_deadlines: Deadlines,
    /// Hashes whose fields have deadlines.
    pub(crate) volatile_hashes: usize,
    /// Bytes of the entries in `table`, their blobs included.
    pub(crate) entry_bytes: usize,
    pub(crate) cold: ColdCounts,
}

/// A locked shard.
#[derive(Debug)]
pub(crate) struct Held<'k> {
    pub(crate) index: usize,
    pub(crate) shard: MutexGuard<'k, Shard>,
    pub(crate) stats: &'k ShardStats,
}

impl<'k> Held<'k> {
    #[inline]
    pub(crate) fn lock(slots: &'k [Slot], index: usize) -> Self {
        let slot = &slots[index];
        Self { index, shard: slot.shard.lock(), stats: &slot.stats }
    }

    /// Tells the reaper the shard's earliest deadlines, exactly.
    pub(crate) fn publish_next_deadline(&self, keyspace: &Keyspace) {
        let next_ms = self.shard.next_deadline_ms().unwrap_or(NO_DEADLINE);
        keyspace.next_deadlines_ms[self.index].store(next_ms, Ordering::Relaxed);
        let next_ms = self.shard.next_field_deadline_ms().unwrap_or(NO_DEADLINE);
        keyspace.next_field_deadlines_ms[self.index].store(next_ms, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::Options;
    use crate::policy::Policy;
    use crate::pressure::Eviction;
    use crate::string::Expiry;

    #[test]
    fn a_database_takes_memory_from_its_first_use_on() {
        let mut shard = Shard::new(10_000);
        let db = |number| DbIndex::below(10_000).nth(number).unwrap();
        assert!(DbIndex::below(10_000).all(|db| shard.db(db).table.is_empty()));
        shard.swap(db(7), db(8));
        assert_eq!(shard.others.capacity(), 0, "looking and exchanging uses none");
        shard.db_mut(db(30)).volatile_hashes = 1;
        assert!(shard.is_used(db(30)) && !shard.is_used(db(29)) && !shard.is_used(db(31)));
        assert_eq!((shard.used_from(0).count(), shard.others.len()), (2, 30));
        shard.swap(db(30), db(9_999));
        assert_eq!(shard.used_from(1).collect::<Vec<_>>(), [db(9_999)], "none is made by it");
        assert_eq!(shard.db(db(9_999)).volatile_hashes, 1);
        assert_eq!(shard.db(db(30)).volatile_hashes, 0);
        assert_eq!(shard.dbs().count(), 10_000);
        shard.swap(db(9_999), db(0));
        assert_eq!((shard.first.volatile_hashes, shard.db(db(9_999)).volatile_hashes), (1, 0));
    }

    #[test]
    fn who_only_looks_uses_no_database() {
        let options = Options { shards: 1, databases: 1000, ..Options::default() };
        let keyspace = Keyspace::new(options).unwrap();
        let (mut locker, unused) = (keyspace.locker(), keyspace.db_index(700).unwrap());
        let key = keyspace.key(b"key");
        let mut db = locker.db(unused, key.hash(), 1);
        assert_eq!(db.get(key).map(|value| value.is_none()), Ok(true));
        assert!(!db.exists(key) && !db.touch(key) && !db.remove(key) && !db.clear_deadline(key));
        db.prefetch_elements(key, [b"element".as_slice()].into_iter());
        assert_eq!(locker.random_key(unused, 1, 1), None);
        locker.db(DbIndex::ZERO, key.hash(), 1).set(key, b"value", Expiry::Never).unwrap();
        locker.age_uses(1);
        keyspace.set_eviction(&Eviction {
            policy: Policy::AllkeysLru,
            limit_bytes: 1,
            ..Eviction::default()
        });
        locker.evict(1, usize::MAX);
        assert!(keyspace.is_empty(DbIndex::ZERO), "the hand came by");
        assert_eq!(locker.held(0).shard.others.capacity(), 0);
    }
}
