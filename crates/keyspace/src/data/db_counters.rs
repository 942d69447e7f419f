//! Counters of a shard's databases, readable without a lock.
//!
//! - The first database, which most users never leave, costs no pointer.
//! - Memory for the others is allocated in groups when one of a group is first written to: thousands of databases in
//!   hundreds of shards would take tens of megabytes, which most users do not need.
//! - A bit for each database says if it has figures, so that a sum over all databases visits only these.
//! - Like all figures of a shard they are written only by the holder of its lock.

use std::iter;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::data::counter::Counter;
use crate::db_index::DbIndex;

/// Number of databases that get their memory together, and have their bits in one number.
const GROUP_LEN: usize = 32;

type Group = [DbCounters; GROUP_LEN];

/// Stand-in for a database that was never written to. Stays zero.
static UNUSED: DbCounters = DbCounters::zero();

/// The figures of one database in one shard.
#[derive(Debug)]
pub(crate) struct DbCounters {
    pub(crate) keys: Counter,
    /// Keys with a deadline.
    pub(crate) expires: Counter,
    /// Sum of all deadlines in units of [`DEADLINE_UNIT_MS`].
    pub(crate) deadline_sum: Counter,
}

/// Deadlines are summed in units of about a second, and none counts for more than [`DEADLINE_SUMMAND_MAX`]. So a
/// shard's sum stays exact for 2^26 keys, even with extreme deadlines.
pub(crate) const DEADLINE_UNIT_MS: i64 = 1024;
const DEADLINE_SUMMAND_MAX: i64 = 1 << 38;

impl DbCounters {
    const fn zero() -> Self {
        let (keys, expires, deadline_sum) = (Counter::zero(), Counter::zero(), Counter::zero());
        Self { keys, expires, deadline_sum }
    }

    /// Returns the summand of `deadline_ms` in `deadline_sum`.
    pub(crate) fn summand(deadline_ms: i64) -> u64 {
        (deadline_ms / DEADLINE_UNIT_MS).clamp(0, DEADLINE_SUMMAND_MAX) as u64
    }

    fn all(&self) -> [&Counter; 3] {
        [&self.keys, &self.expires, &self.deadline_sum]
    }
}

/// The figures of all databases in one shard.
#[derive(Debug)]
pub(crate) struct PerDbCounters {
    first: DbCounters,
    /// Figures of all databases. The slot of the first one is not used.
    groups: Box<[OnceLock<Box<Group>>]>,
    /// For each group, the databases that were written to since they were last emptied.
    used: Box<[AtomicU32]>,
}

/// Returns the bit of a database in the number of its group.
fn bit(db: usize) -> u32 {
    1 << (db % GROUP_LEN)
}

impl PerDbCounters {
    pub(crate) fn new(databases: usize) -> Self {
        let groups = databases.div_ceil(GROUP_LEN);
        Self {
            first: DbCounters::zero(),
            groups: (0..groups).map(|_| OnceLock::new()).collect(),
            used: (0..groups).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Returns the figures for reading.
    #[inline]
    pub(crate) fn get(&self, db: DbIndex) -> &DbCounters {
        match db.get() {
            0 => &self.first,
            db => self.groups[db / GROUP_LEN].get().map_or(&UNUSED, |group| &group[db % GROUP_LEN]),
        }
    }

    /// Returns the figures for writing, by the holder of the shard's lock.
    #[inline]
    pub(crate) fn of(&self, db: DbIndex) -> &DbCounters {
        match db.get() {
            0 => &self.first,
            db => {
                if !self.is_used(db) {
                    self.set_used(db, true);
                }
                let new_group = || Box::new([const { DbCounters::zero() }; GROUP_LEN]);
                &self.groups[db / GROUP_LEN].get_or_init(new_group)[db % GROUP_LEN]
            }
        }
    }

    /// Iterates over the first database, and those written to since they were last emptied. All others are zero.
    pub(crate) fn used(&self) -> impl Iterator<Item = (DbIndex, &DbCounters)> {
        let groups = self.used.iter().map(|bits| bits.load(Ordering::Relaxed)).enumerate();
        // Most groups of many databases have none.
        let groups = groups.filter(|(_, bits)| *bits != 0);
        let others = groups.flat_map(|(group, bits)| {
            let places = (0..GROUP_LEN).filter(move |place| bits & bit(*place) != 0);
            places.map(move |place| DbIndex::from_number((group * GROUP_LEN + place) as u16))
        });
        iter::once((DbIndex::ZERO, &self.first)).chain(others.map(|db| (db, self.get(db))))
    }

    // Relaxed, like the figures: a reader without the lock that does not see the bit yet sees the database in its
    // previous state.
    fn is_used(&self, db: usize) -> bool {
        db == 0 || self.used[db / GROUP_LEN].load(Ordering::Relaxed) & bit(db) != 0
    }

    fn set_used(&self, db: usize, is_used: bool) {
        if db != 0 {
            let bits = self.used[db / GROUP_LEN].load(Ordering::Relaxed) & !bit(db);
            let bits = if is_used { bits | bit(db) } else { bits };
            self.used[db / GROUP_LEN].store(bits, Ordering::Relaxed);
        }
    }

    /// Returns the figures of a database.
    pub(crate) fn figures(&self, db: DbIndex) -> [u64; 3] {
        self.get(db).all().map(Counter::get)
    }

    /// Sets the figures of a database.
    pub(crate) fn set_figures(&self, db: DbIndex, figures: [u64; 3]) {
        let all = self.of(db).all().into_iter().zip(figures);
        all.for_each(|(counter, value)| counter.set(value));
    }

    /// Resets the figures of an emptied database.
    pub(crate) fn reset(&self, db: DbIndex) {
        if self.is_used(db.get()) {
            self.get(db).all().into_iter().for_each(|counter| counter.set(0));
            self.set_used(db.get(), false);
        }
    }

    /// Resets the figures of all databases after a flush. Returns the number of their keys.
    pub(crate) fn reset_all(&self) -> u64 {
        let mut keys = 0;
        for (_, db) in self.used() {
            keys += db.keys.get();
            db.all().into_iter().for_each(|counter| counter.set(0));
        }
        self.used.iter().for_each(|bits| bits.store(0, Ordering::Relaxed));
        keys
    }

    /// Exchanges the figures of two databases.
    pub(crate) fn swap(&self, a: DbIndex, b: DbIndex) {
        let were_used = [a, b].map(|db| self.is_used(db.get()));
        if were_used == [false; 2] {
            return;
        }
        for (a, b) in self.of(a).all().into_iter().zip(self.of(b).all()) {
            let value = a.get();
            a.set(b.get());
            b.set(value);
        }
        [b, a]
            .into_iter()
            .zip(were_used)
            .for_each(|(db, is_used)| self.set_used(db.get(), is_used));
    }
}

/// Figures of a database's values on disk in a shard.
#[derive(Debug, Default)]
pub(crate) struct ColdCounts {
    /// Number of entries with a location, even if their values are in memory as well.
    pub(crate) placed: usize,
    /// Number of entries whose values are only on disk.
    pub(crate) spilled_keys: u64,
    /// Bytes of these.
    pub(crate) spilled_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_take_memory_when_they_are_written() {
        let counters = PerDbCounters::new(10_000);
        let db = |number| DbIndex::below(10_000).nth(number).unwrap();
        let groups = || counters.groups.iter().filter(|group| group.get().is_some()).count();
        let keys = |number| counters.get(db(number)).keys.get();
        assert!((0..10_000).all(|number| keys(number) == 0));
        counters.reset(db(9_999));
        counters.swap(db(5), db(9_999));
        counters.of(DbIndex::ZERO).keys.set(1);
        assert_eq!(
            groups(),
            0,
            "looking, emptying and exchanging take none, nor does the first one"
        );
        counters.of(db(9_999)).keys.set(2);
        assert_eq!((groups(), keys(0), keys(9_998), keys(9_999)), (1, 1, 0, 2));
        counters.swap(db(0), db(9_999));
        counters.swap(db(9_999), db(40));
        assert_eq!((groups(), keys(0), keys(40), keys(9_999)), (2, 2, 1, 0));
        let used = || counters.used().map(|(db, counters)| (db.get(), counters.keys.get()));
        assert!(used().eq([(0, 2), (40, 1)]), "those that were emptied are not visited");
        counters.reset(db(40));
        counters.reset(db(0));
        assert!(used().eq([(0, 0)]));
        assert!((0..10_000).all(|number| keys(number) == 0));
        [0, 31, 32, 9_999].into_iter().for_each(|number| counters.of(db(number)).keys.add(1));
        assert!(used().eq([(0, 1), (31, 1), (32, 1), (9_999, 1)]));
        assert_eq!((counters.reset_all(), counters.reset_all()), (4, 0));
        assert!(used().eq([(0, 0)]) && (0..10_000).all(|number| keys(number) == 0));
    }
}
