//! The table behaves like a `HashSet`, whatever the distribution of hashes.

use crate::support::{Hashes, config, contains, hash_of, insert, remove};
use proptest::prelude::*;
use std::collections::HashSet;
use tierce_dash::Table;

/// A step of a random history; numbers name entries.
#[derive(Clone, Debug)]
enum Step {
    Insert(u32),
    Remove(u32),
    InsertMany { from: u32, count: u32 },
    RemoveMany { from: u32, count: u32 },
    Find(u32),
    Clear,
}

fn step(ids: u32, burst: u32) -> impl Strategy<Value = Step> {
    prop_oneof![
        40 => (0..ids).prop_map(Step::Insert),
        40 => (0..ids).prop_map(Step::Remove),
        40 => (0..ids).prop_map(Step::Find),
        20 => (0..ids, 1..burst).prop_map(|(from, count)| Step::InsertMany { from, count }),
        15 => (0..ids, 1..burst).prop_map(|(from, count)| Step::RemoveMany { from, count }),
        1 => Just(Step::Clear),
    ]
}

fn check_against_model(hashes: Hashes, steps: Vec<Step>) {
    let mut table = Table::new();
    let mut model = HashSet::new();
    let put = |table: &mut Table<_>, model: &mut HashSet<u32>, id| {
        if model.insert(id) {
            insert(table, hashes.entry(id));
        }
    };
    let take = |table: &mut Table<_>, model: &mut HashSet<u32>, id| {
        let expected = model.remove(&id).then(|| hashes.entry(id));
        assert_eq!(remove(table, hashes.entry(id)), expected);
    };
    for step in steps {
        match step {
            Step::Insert(id) => put(&mut table, &mut model, id),
            Step::Remove(id) => take(&mut table, &mut model, id),
            Step::InsertMany { from, count } => {
                (from..from + count).for_each(|id| put(&mut table, &mut model, id));
            }
            Step::RemoveMany { from, count } => {
                (from..from + count).for_each(|id| take(&mut table, &mut model, id));
            }
            Step::Find(id) => {
                assert_eq!(contains(&table, hashes.entry(id)), model.contains(&id));
            }
            Step::Clear => {
                table.clear();
                model.clear();
            }
        }
        assert_eq!(table.len(), model.len());
        assert_eq!(table.memory_bytes() == 0, model.is_empty());
    }
    let listed: HashSet<u32> = table.iter().map(|entry| entry.id).collect();
    assert_eq!(table.iter().len(), model.len());
    let ahead = table.iter_ahead(hash_of);
    assert_eq!(ahead.len(), model.len());
    assert!(ahead.map(|entry| entry.id).eq(table.iter().map(|entry| entry.id)));
    assert_eq!(listed, model);
    for id in &model {
        assert!(contains(&table, hashes.entry(*id)), "{id} is lost");
        assert!(table.candidate(hashes.entry(*id).hash).is_some());
    }
    let owned: HashSet<u32> = table.into_iter().map(|entry| entry.id).collect();
    assert_eq!(owned, model);
}

proptest! {
    #![proptest_config(config(56))]

    #[test]
    fn behaves_like_a_set(
        hashes in Hashes::any(),
        steps in proptest::collection::vec(
            if cfg!(miri) { step(150, 60) } else { step(4000, 1000) },
            1..if cfg!(miri) { 12 } else { 80 },
        ),
    ) {
        check_against_model(hashes, steps);
    }
}

/// An entry found for a change is the one in the table.
#[test]
fn entries_can_be_changed_in_place() {
    let mut table: Table<(u64, u32)> = Table::new();
    let key_hash = |entry: &(u64, u32)| entry.0;
    for number in 0..100 {
        table.insert_unique(
            crate::support::mix(number),
            (crate::support::mix(number), 0),
            &key_hash,
        );
    }
    let hash = crate::support::mix(42);
    table.find_mut(hash, |entry| entry.0 == hash).expect("42 is there").1 = 7;
    assert_eq!(table.find(hash, |entry| entry.0 == hash), Some(&(hash, 7)));
    assert_eq!(table.iter().filter(|entry| entry.1 == 7).count(), 1);
}

/// Entries are dropped once, however they leave.
#[test]
fn entries_are_dropped_exactly_once() {
    use std::rc::Rc;
    let counted = Rc::new(());
    let hash = |entry: &(u64, Rc<()>)| entry.0;
    let fill = |count: u64| {
        let mut table = Table::new();
        for number in 0..count {
            let entry = (crate::support::mix(number), Rc::clone(&counted));
            table.insert_unique(entry.0, entry, &hash);
        }
        table
    };
    let count = if cfg!(miri) { 160 } else { 3000 };

    let mut table = fill(count);
    assert_eq!(Rc::strong_count(&counted), 1 + count as usize);
    for number in 0..count / 2 {
        let key = crate::support::mix(number);
        assert!(table.remove(key, |entry| entry.0 == key, &hash).is_some());
    }
    assert_eq!(Rc::strong_count(&counted), 1 + (count - count / 2) as usize);
    table.clear();
    assert_eq!(Rc::strong_count(&counted), 1);

    drop(fill(count));
    assert_eq!(Rc::strong_count(&counted), 1);

    let mut owned = fill(count).into_iter();
    let taken: Vec<_> = owned.by_ref().take(count as usize / 3).collect();
    assert_eq!(owned.len(), count as usize - taken.len());
    drop(owned);
    assert_eq!(Rc::strong_count(&counted), 1 + taken.len());
}

/// The hasher may panic in the middle of a rebuild: nothing is lost or duplicated by that.
#[test]
fn a_panicking_hasher_leaves_the_table_whole() {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let mut table = Table::new();
    let calls_left = Cell::new(usize::MAX);
    let hasher = |entry: &crate::support::Entry| {
        calls_left.set(calls_left.get().checked_sub(1).expect("no calls left"));
        hash_of(entry)
    };
    let mut inserted = Vec::new();
    let mut panics = 0;
    for id in 0..if cfg!(miri) { 150 } else { 3000 } {
        let entry = crate::support::even(id);
        calls_left.set(id as usize % 97);
        let insertion = catch_unwind(AssertUnwindSafe(|| {
            table.insert_unique(entry.hash, entry, &hasher);
        }));
        panics += usize::from(insertion.is_err());
        if insertion.is_err() {
            assert!(!contains(&table, entry));
            insert(&mut table, entry);
        }
        inserted.push(entry);
    }
    assert!(panics > 0);
    assert_eq!(table.len(), inserted.len());
    assert!(inserted.iter().all(|entry| contains(&table, *entry)));
}
