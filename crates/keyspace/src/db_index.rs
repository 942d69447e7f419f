//! Numbers of databases.

/// Maximum number of databases.
pub const DATABASES_MAX: usize = 1 << 16;

/// The number of a database that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DbIndex(u16);

impl DbIndex {
    /// The first database, which always exists.
    pub const ZERO: Self = Self(0);

    /// Iterates over the first `databases` ones, at most [`DATABASES_MAX`].
    pub(crate) fn below(databases: usize) -> impl Iterator<Item = Self> + use<> {
        (0..databases).map(|number| Self(number as u16))
    }

    /// Returns the number.
    #[inline]
    pub fn get(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the number in its stored form.
    #[inline]
    pub(crate) fn number(self) -> u16 {
        self.0
    }

    /// Reverses [`DbIndex::number`].
    #[inline]
    pub(crate) fn from_number(number: u16) -> Self {
        Self(number)
    }
}

/// A set of databases: a bit for each number up to the greatest one, so that iteration is fast even over a few of
/// many thousands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DbSet(Vec<u64>);

impl DbSet {
    fn place(db: DbIndex) -> (usize, u64) {
        (db.get() / 64, 1 << (db.get() % 64))
    }

    pub(crate) fn insert(&mut self, db: DbIndex) {
        let (word, bit) = Self::place(db);
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= bit;
    }

    pub(crate) fn remove(&mut self, db: DbIndex) {
        let (word, bit) = Self::place(db);
        if let Some(bits) = self.0.get_mut(word) {
            *bits &= !bit;
        }
    }

    pub(crate) fn contains(&self, db: DbIndex) -> bool {
        let (word, bit) = Self::place(db);
        self.0.get(word).is_some_and(|bits| bits & bit != 0)
    }

    /// Iterates over the members in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = DbIndex> + Clone {
        self.iter_from(0)
    }

    /// Iterates over the members from this number on.
    pub(crate) fn iter_from(&self, from: usize) -> impl Iterator<Item = DbIndex> + Clone {
        let first = u64::MAX << (from % 64);
        let words = self.0.iter().copied().enumerate().skip(from / 64);
        let masked =
            move |(word, bits)| (word, if word == from / 64 { bits & first } else { bits });
        words.map(masked).flat_map(|(word, bits)| members(word, bits))
    }

    /// Returns true if `other` has all members.
    pub(crate) fn is_subset(&self, other: &Self) -> bool {
        let others = other.0.iter().copied().chain(std::iter::repeat(0));
        self.0.iter().zip(others).all(|(bits, others)| bits & !others == 0)
    }

    /// Removes all members, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.0.fill(0);
    }

    /// Iterates over the members of both.
    pub(crate) fn intersection(&self, other: &Self) -> impl Iterator<Item = DbIndex> + Clone {
        let words = self.0.iter().zip(&other.0).map(|(a, b)| a & b).enumerate();
        words.flat_map(|(word, bits)| members(word, bits))
    }
}

impl FromIterator<DbIndex> for DbSet {
    fn from_iter<I: IntoIterator<Item = DbIndex>>(dbs: I) -> Self {
        let mut set = Self::default();
        dbs.into_iter().for_each(|db| set.insert(db));
        set
    }
}

/// Iterates over the databases of one word.
fn members(word: usize, mut bits: u64) -> impl Iterator<Item = DbIndex> + Clone {
    std::iter::from_fn(move || {
        let bit = bits.trailing_zeros();
        // Clears the lowest bit, if there is one.
        bits &= bits.checked_sub(1)?;
        Some(DbIndex((word * 64) as u16 + bit as u16))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use tierce_harness::effort;

    use super::*;

    fn some() -> impl Strategy<Value = Vec<u16>> {
        proptest::collection::vec(prop_oneof![0..200_u16, any::<u16>()], 0..40)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(160)))]

        #[test]
        fn a_set_of_databases_is_a_set(added in some(), removed in some(), other in some()) {
            let (mut set, mut model) = (DbSet::default(), BTreeSet::new());
            for db in added {
                set.insert(DbIndex(db));
                model.insert(DbIndex(db));
            }
            for db in removed {
                set.remove(DbIndex(db));
                model.remove(&DbIndex(db));
            }
            prop_assert!(set.iter().eq(model.iter().copied()));
            for from in other.iter().map(|db| usize::from(*db)).chain([0, 1 << 16]) {
                let expected = model.iter().copied().filter(|db| db.get() >= from);
                prop_assert!(set.iter_from(from).eq(expected));
            }
            let second: DbSet = other.iter().map(|db| DbIndex(*db)).collect();
            let of: BTreeSet<DbIndex> = other.into_iter().map(DbIndex).collect();
            prop_assert!(DbIndex::below(DATABASES_MAX).all(|db| set.contains(db) == model.contains(&db)));
            let both = model.iter().copied().filter(|db| of.contains(db));
            prop_assert!(set.intersection(&second).eq(both));
            prop_assert_eq!(set.is_subset(&second), model.is_subset(&of));
            let both = set.intersection(&second).collect::<DbSet>();
            prop_assert!(both.is_subset(&second) && both.is_subset(&set) && DbSet::default().is_subset(&set));
            set.clear();
            prop_assert_eq!(set.iter().count(), 0);
        }
    }
}
