//! A snapshot is the table as of the moment it began, each entry once, whatever happens meanwhile.

use crate::support::{Hashes, config};
use proptest::prelude::*;
use std::collections::BTreeMap;
use tierce_dash::{Snapshot, Table};

/// Entry of the table in these tests: a key and a value that changes.
#[derive(Clone, Copy, Debug)]
struct Record {
    id: u32,
    hash: u64,
    value: u32,
}

fn hash_of(record: &Record) -> u64 {
    record.hash
}

#[derive(Clone, Debug)]
enum Step {
    Write { from: u32, count: u32 },
    Remove { from: u32, count: u32 },
    Advance { count: u32 },
    Begin,
}

fn step(ids: u32, burst: u32) -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..ids, 1..8u32).prop_map(|(from, count)| Step::Write { from, count }),
        6 => (0..ids, 1..8u32).prop_map(|(from, count)| Step::Remove { from, count }),
        2 => (0..ids, 1..burst).prop_map(|(from, count)| Step::Write { from, count }),
        2 => (0..ids, 1..burst).prop_map(|(from, count)| Step::Remove { from, count }),
        12 => (1..20u32).prop_map(|count| Step::Advance { count }),
        1 => Just(Step::Begin),
    ]
}

/// A snapshot in progress, with its saved and its expected entries.
struct Running {
    snapshot: Snapshot,
    saved: BTreeMap<u32, u32>,
    expected: BTreeMap<u32, u32>,
    changes: u32,
    ways: Ways,
}

/// Entries that are saved before a change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ways {
    /// All entries of the bucket.
    Bucket,
    /// The bucket at every third change, and the entry at the others.
    Both,
}

impl Running {
    fn begin(model: &BTreeMap<u32, u32>, ways: Ways) -> Self {
        let snapshot = Snapshot::begin();
        Self { snapshot, saved: BTreeMap::new(), expected: model.clone(), changes: 0, ways }
    }

    fn save(saved: &mut BTreeMap<u32, u32>, record: &Record) {
        let before = saved.insert(record.id, record.value);
        assert_eq!(before, None, "{record:?} was saved twice");
    }

    fn before_change(&mut self, table: &Table<Record>, hash: u64) {
        let saved = &mut self.saved;
        let save = |record: &Record| Self::save(saved, record);
        self.changes += 1;
        if self.ways == Ways::Bucket || self.changes.is_multiple_of(3) {
            self.snapshot.before_change(table, hash, &hash_of, save);
        } else {
            self.snapshot.before_change_of_one(table, hash, &hash_of, save);
        }
    }

    fn advance(&mut self, table: &Table<Record>) {
        let saved = &mut self.saved;
        self.snapshot.advance(table, &hash_of, |record| Self::save(saved, record));
    }

    fn finish(mut self, table: &Table<Record>) {
        while !self.snapshot.is_complete() {
            self.advance(table);
        }
        self.advance(table);
        assert_eq!(self.saved, self.expected);
        assert_eq!(self.snapshot.interval_count(), 0);
    }
}

/// The table, its model, and any number of snapshots of it.
struct Store {
    hashes: Hashes,
    table: Table<Record>,
    model: BTreeMap<u32, u32>,
    running: Vec<Running>,
    next_value: u32,
    ways: Ways,
}

impl Store {
    fn new(hashes: Hashes) -> Self {
        let (table, model) = (Table::new(), BTreeMap::new());
        Self { hashes, table, model, running: Vec::new(), next_value: 0, ways: Ways::Both }
    }

    fn write(&mut self, id: u32) {
        let hash = self.announce(id);
        let value = self.next_value;
        self.next_value += 1;
        match self.table.find_mut(hash, |record| record.id == id) {
            Some(record) => record.value = value,
            None => _ = self.table.insert_unique(hash, Record { id, hash, value }, &hash_of),
        }
        self.model.insert(id, value);
    }

    fn remove(&mut self, id: u32) {
        let hash = self.announce(id);
        let removed = self.table.remove(hash, |record| record.id == id, &hash_of);
        assert_eq!(removed.map(|record| record.value), self.model.remove(&id));
    }

    fn announce(&mut self, id: u32) -> u64 {
        let hash = self.hashes.entry(id).hash;
        self.running.iter_mut().for_each(|running| running.before_change(&self.table, hash));
        hash
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Write { from, count } => (from..from + count).for_each(|id| self.write(id)),
            Step::Remove { from, count } => (from..from + count).for_each(|id| self.remove(id)),
            Step::Advance { count } => {
                for _ in 0..count {
                    self.running.iter_mut().for_each(|running| running.advance(&self.table));
                }
            }
            Step::Begin => self.running.push(Running::begin(&self.model, self.ways)),
        }
    }

    fn finish(self) {
        self.running.into_iter().for_each(|running| running.finish(&self.table));
    }
}

proptest! {
    #![proptest_config(config(40))]

    #[test]
    fn saves_the_moment_of_its_beginning(
        hashes in Hashes::any(),
        filled in 0..if cfg!(miri) { 60u32 } else { 2500 },
        steps in proptest::collection::vec(
            if cfg!(miri) { step(200, 80) } else { step(4000, 1500) },
            0..if cfg!(miri) { 12 } else { 60 },
        ),
    ) {
        let mut store = Store::new(hashes);
        (0..filled).for_each(|id| store.write(id));
        store.apply(&Step::Begin);
        steps.iter().for_each(|step| store.apply(step));
        store.finish();
    }
}

/// The table grows twentyfold and falls back while a snapshot of it goes on.
#[test]
fn lasts_through_growth_splits_and_merges() {
    let scale = if cfg!(miri) { 8 } else { 700 };
    let mut store = Store::new(Hashes::Even);
    (0..scale).for_each(|id| store.write(id));
    store.apply(&Step::Begin);
    for round in 0..20 {
        store.apply(&Step::Write { from: round * scale, count: scale * 3 / 2 });
        store.apply(&Step::Advance { count: 3 });
    }
    for round in 0..20 {
        store.apply(&Step::Remove { from: round * scale, count: scale });
        store.apply(&Step::Advance { count: 1 });
    }
    store.finish();
}

/// The memory of a snapshot is bounded by the buckets: intervals that touch become one.
#[test]
fn intervals_are_joined() {
    let count = if cfg!(miri) { 100 } else { 20_000 };
    let mut store = Store::new(Hashes::Even);
    (0..count).for_each(|id| store.write(id));
    store.ways = Ways::Bucket;
    store.apply(&Step::Begin);
    let mut most = 0;
    for id in 0..count {
        store.write(id);
        most = most.max(store.running[0].snapshot.interval_count());
    }
    assert!(most > 1);
    assert!(most <= count as usize / 14, "{most} intervals for {count} entries");
    assert_eq!(store.running[0].snapshot.interval_count(), 1, "all is saved: one interval");
    store.finish();
}

/// An empty table is saved at once, and later insertions are not saved.
#[test]
fn nothing_is_saved_of_an_empty_table() {
    let mut store = Store::new(Hashes::Even);
    store.apply(&Step::Begin);
    store.write(1);
    store.write(2);
    store.finish();
}
