//! A scan visits every lasting entry exactly once, while others come and go and the table grows and
//! shrinks.

use crate::support::{Entry, Hashes, config, even, hash_of, insert, remove};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use tierce_dash::Table;

/// Change between two calls of a scan.
#[derive(Clone, Debug)]
enum Between {
    Nothing,
    Insert { count: u32 },
    Remove { count: u32 },
    RemoveAllButStable,
}

fn between(burst: u32) -> impl Strategy<Value = Between> {
    prop_oneof![
        10 => Just(Between::Nothing),
        6 => (1..8u32).prop_map(|count| Between::Insert { count }),
        6 => (1..8u32).prop_map(|count| Between::Remove { count }),
        2 => (1..burst).prop_map(|count| Between::Insert { count }),
        2 => (1..burst).prop_map(|count| Between::Remove { count }),
        1 => Just(Between::RemoveAllButStable),
    ]
}

/// A table with entries that stay and entries that come and go.
struct Changing {
    table: Table<Entry>,
    hashes: Hashes,
    passing: Vec<Entry>,
    next_id: u32,
    /// Number of insertions of each entry.
    insertions: HashMap<Entry, usize>,
}

impl Changing {
    fn new(hashes: Hashes, stable: u32, passing: u32) -> Self {
        let mut table = Table::new();
        (0..stable).for_each(|id| insert(&mut table, hashes.entry(id)));
        let insertions = (0..stable).map(|id| (hashes.entry(id), 1)).collect();
        let mut changing = Self { table, hashes, passing: Vec::new(), next_id: stable, insertions };
        changing.apply(&Between::Insert { count: passing });
        changing
    }

    fn apply(&mut self, change: &Between) {
        match change {
            Between::Nothing => {}
            Between::Insert { count } => {
                for _ in 0..*count {
                    let entry = self.hashes.entry(self.next_id);
                    self.next_id += 1;
                    insert(&mut self.table, entry);
                    *self.insertions.entry(entry).or_default() += 1;
                    self.passing.push(entry);
                }
            }
            Between::Remove { count } => self.remove(*count as usize),
            Between::RemoveAllButStable => self.remove(usize::MAX),
        }
    }

    fn remove(&mut self, count: usize) {
        for entry in self.passing.drain(..count.min(self.passing.len())) {
            assert_eq!(remove(&mut self.table, entry), Some(entry));
        }
    }
}

fn check_scan(mut changing: Changing, stable: u32, changes: &[Between]) {
    let mut visits: HashMap<Entry, usize> = HashMap::new();
    let mut changes = changes.iter();
    let mut cursor = 0;
    for calls in 0.. {
        let next = changing.table.scan(cursor, &hash_of, |entry| {
            *visits.entry(*entry).or_default() += 1;
        });
        if next == 0 {
            break;
        }
        assert!(next > cursor, "the cursor must move on");
        assert!(next < 1 << 48);
        assert!(calls < 1_000_000, "the scan does not end");
        cursor = next;
        if let Some(change) = changes.next() {
            changing.apply(change);
        }
    }
    for id in 0..stable {
        let entry = changing.hashes.entry(id);
        assert_eq!(visits.get(&entry), Some(&1), "{entry:?} stayed all the time");
    }
    for (entry, visits) in visits {
        assert!(visits <= changing.insertions[&entry], "{entry:?} was visited {visits} times");
    }
}

proptest! {
    #![proptest_config(config(48))]

    #[test]
    fn what_stays_is_visited_exactly_once(
        hashes in Hashes::any(),
        stable in 0..if cfg!(miri) { 60u32 } else { 1500 },
        passing in 0..if cfg!(miri) { 60u32 } else { 3000 },
        changes in proptest::collection::vec(between(if cfg!(miri) { 80 } else { 2000 }), 0..30),
    ) {
        check_scan(Changing::new(hashes, stable, passing), stable, &changes);
    }
}

/// The table doubles several times within one scan, then falls back to a tenth.
#[test]
fn survives_mass_growth_and_mass_removal() {
    let scale = if cfg!(miri) { 20 } else { 2000 };
    let mut changes = vec![Between::Insert { count: scale }; 8];
    changes.extend(vec![Between::Remove { count: scale }; 8]);
    check_scan(Changing::new(Hashes::Even, scale / 2, 0), scale / 2, &changes);
}

/// Entries with equal positions are visited in one call: a cursor could not tell them apart.
#[test]
fn equal_positions_are_not_split_between_calls() {
    let mut table = Table::new();
    let count = if cfg!(miri) { 35 } else { 500 };
    let twins: Vec<Entry> =
        (0..count).map(|id| Entry { hash: 7 << 50 | u64::from(id), id }).collect();
    twins.iter().for_each(|entry| insert(&mut table, *entry));
    (count..3 * count).for_each(|id| insert(&mut table, even(id)));
    let mut cursor = 0;
    let mut calls_with_twins = 0;
    loop {
        let mut visited = HashSet::new();
        cursor = table.scan(cursor, &hash_of, |entry| assert!(visited.insert(*entry)));
        let seen = twins.iter().filter(|entry| visited.contains(*entry)).count();
        assert!(seen == 0 || seen == twins.len());
        calls_with_twins += usize::from(seen > 0);
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(calls_with_twins, 1);
}

/// The work of one call is bounded: a bucket's worth.
#[test]
fn a_call_visits_few_entries() {
    let mut table = Table::new();
    let count = if cfg!(miri) { 160 } else { 50_000 };
    (0..count).for_each(|id| insert(&mut table, even(id)));
    let (mut cursor, mut calls, mut visited_in_all) = (0, 0, 0);
    loop {
        let mut visited = 0;
        cursor = table.scan(cursor, &hash_of, |_| visited += 1);
        assert!(visited <= 64, "{visited} entries in one call");
        visited_in_all += visited;
        calls += 1;
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(visited_in_all, count);
    assert!(calls <= count / 8);
}

/// Cursors come from clients: any number gets a valid answer.
#[test]
fn foreign_cursors_do_no_harm() {
    let mut table = Table::new();
    assert_eq!(table.scan(0, &hash_of, |_| unreachable!()), 0);
    assert_eq!(table.scan(12345, &hash_of, |_| unreachable!()), 0);
    (0..if cfg!(miri) { 40 } else { 1000 }).for_each(|id| insert(&mut table, even(id)));
    for cursor in [1 << 48, u64::MAX, (1 << 48) + 1] {
        assert_eq!(table.scan(cursor, &hash_of, |_| unreachable!()), 0);
    }
    assert_eq!(table.scan((1 << 48) - 1, &hash_of, |_| ()), 0);
    let middle = 1 << 47 | 12345;
    let next = table.scan(middle, &hash_of, |entry| assert!(entry.hash >> 16 >= middle));
    assert!(next > middle);
}

/// A round of [`Table::visit_bucket_mut`] over an unchanged table, for all distributions of
/// entries.
#[test]
fn a_round_of_buckets_visits_every_entry_once() {
    for hashes in [Hashes::Even, Hashes::Clustered, Hashes::Sequential] {
        for count in [0, 1, 14, 15, 100, 600, if cfg!(miri) { 700 } else { 20_000 }] {
            let mut table = Table::new();
            (0..count).for_each(|id| insert(&mut table, hashes.entry(id)));
            for _ in 0..2 {
                let (mut cursor, mut visited) = (0, Vec::new());
                loop {
                    let before = cursor;
                    cursor = table.visit_bucket_mut(cursor, |entry| visited.push(entry.id));
                    assert!(cursor == 0 || cursor > before, "a cursor moves on");
                    if cursor == 0 {
                        break;
                    }
                }
                visited.sort_unstable();
                assert!(visited.into_iter().eq(0..count), "{count} entries, {hashes:?}");
            }
        }
    }
    assert_eq!(Table::<Entry>::new().visit_bucket_mut(u64::MAX, |_| unreachable!()), 0);
}
