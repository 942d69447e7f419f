#![allow(dead_code, reason = "each test uses its part of this")]

//! Shared by the tests: entries with a freely chosen hash, and a source of hashes.

use proptest::prelude::*;
use tierce_dash::Table;
use tierce_harness::effort;

/// An entry with its own hash, so that tests can choose it, and a number that makes it unique.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Entry {
    pub(crate) hash: u64,
    pub(crate) id: u32,
}

pub(crate) fn hash_of(entry: &Entry) -> u64 {
    entry.hash
}

/// Scatters neighbouring 64-bit numbers; it is a bijection.
pub(crate) fn mix(number: u64) -> u64 {
    let first = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let second = (first ^ first >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    second ^ second >> 31
}

/// Returns an entry with an evenly distributed hash.
pub(crate) fn even(id: u32) -> Entry {
    Entry { hash: mix(u64::from(id) + 1), id }
}

pub(crate) fn insert(table: &mut Table<Entry>, entry: Entry) {
    assert_eq!(*table.insert_unique(entry.hash, entry, &hash_of), entry);
}

pub(crate) fn remove(table: &mut Table<Entry>, entry: Entry) -> Option<Entry> {
    table.remove(entry.hash, |other| *other == entry, &hash_of)
}

pub(crate) fn contains(table: &Table<Entry>, entry: Entry) -> bool {
    table.find(entry.hash, |other| *other == entry).is_some()
}

/// Fewer cases under Miri, which interprets every step, and no files of found cases, as there is no
/// file system.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases: if cfg!(miri) { (cases / 64).max(2) } else { effort(cases) },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Distribution of a test's hashes over the axis.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hashes {
    /// Evenly, as the table requires.
    Even,
    /// In a few narrow clusters.
    Clustered,
    /// Consecutive numbers: all in one corner of the axis, most with equal positions.
    Sequential,
    /// Three different values.
    Equal,
}

impl Hashes {
    pub(crate) fn any() -> impl Strategy<Value = Self> {
        prop_oneof![
            4 => Just(Self::Even),
            1 => Just(Self::Clustered),
            1 => Just(Self::Sequential),
            1 => Just(Self::Equal),
        ]
    }

    pub(crate) fn entry(self, id: u32) -> Entry {
        let number = u64::from(id);
        let hash = match self {
            Self::Even => mix(number + 1),
            Self::Clustered => mix(number % 5).wrapping_add(number << 20),
            Self::Sequential => number << 12,
            Self::Equal => mix(number % 3),
        };
        Entry { hash, id }
    }
}
