//! A snapshot keeps its moment, whatever is done and rolled back while it runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use tierce_collections::random::Random;
use tierce_collections::{CollectionKind, IntText};

use super::act::act;
use super::world::{NOW_MS, World, recount};
use crate::access::keyspace::Keyspace;
use crate::data::collections::SavedCollection;
use crate::random::mix;
use crate::registries::snapshot::batch::SavedValue;
use crate::services::scan::for_each_entry;
use crate::services::snapshot::{Snapshot, SnapshotPiece};

type Saved = BTreeMap<(usize, Vec<u8>), (Vec<String>, Option<i64>)>;

fn parts_of(collection: &SavedCollection<'_>, parts: &mut Vec<String>) {
    parts.extend(collection.parts().map(|part| format!("{part:?}")));
}

fn value_of(value: &SavedValue<'_>) -> Vec<String> {
    let mut parts = Vec::new();
    match value {
        SavedValue::Collection(collection) => {
            parts_of(collection, &mut parts);
            in_order(collection.kind(), parts)
        }
        string => {
            let mut text = IntText::new();
            let bytes = string.string(&mut text).expect("no collection");
            vec![bytes.escape_ascii().to_string()]
        }
    }
}

fn in_order(kind: CollectionKind, mut parts: Vec<String>) -> Vec<String> {
    if kind != CollectionKind::List {
        parts.sort();
    }
    parts
}

fn state(keyspace: &Keyspace) -> Saved {
    let (mut state, mut locks, mut copy) = (Saved::new(), keyspace.locks(), Vec::new());
    for db in keyspace.db_indices() {
        for_each_entry(&mut locks, db, NOW_MS, |entry| {
            let value = value_of(&SavedValue::of(&entry.value(), &mut copy));
            state.insert((db.get(), entry.key().to_vec()), (value, entry.deadline_ms()));
        });
    }
    state
}

/// A guard that is rolled back, partly or entirely.
fn disturb(world: &World, random: &mut Random) {
    let mut locks = world.keyspace.locks();
    let mut all = locks.lock_all();
    let locks = all.locks();
    locks.begin_undo();
    (0..random.below(10)).for_each(|_| act(locks, random.word()));
    let mark = locks.savepoint();
    (0..random.below(10)).for_each(|_| act(locks, random.word()));
    if random.below(2) == 0 {
        locks.rollback_to(mark);
    }
    match random.below(3) {
        0 => locks.commit(),
        _ => locks.rollback(),
    }
    recount(locks);
}

fn check(seed: u64) {
    let world = World::new(seed, 300);
    let mut random = Random::new(mix(seed));
    let expected = state(&world.keyspace);
    let mut locks = world.keyspace.locks();
    let snapshot = Snapshot::begin_with(&world.keyspace, &mut locks, NOW_MS, 250);
    drop(locks);
    let (mut snapshot, mut saved) = (snapshot.unwrap(), Saved::new());
    disturb(&world, &mut random);
    loop {
        let mut add = |key: (usize, Vec<u8>), value| {
            assert_eq!(saved.insert(key.clone(), value), None, "seed {seed}: {key:?} twice");
        };
        match snapshot.next().expect("nothing is too slow") {
            None => break,
            Some(SnapshotPiece::Batch(batch)) => {
                for entry in &batch {
                    let key = (entry.db.get(), entry.key.to_vec());
                    add(key, (value_of(&entry.value), entry.deadline_ms));
                }
            }
            Some(SnapshotPiece::Large(mut large)) => {
                let (head, mut parts) = (large.head().clone(), Vec::new());
                while let Some(slice) = large.next_slice().expect("it is not lost") {
                    parts_of(&slice, &mut parts);
                    disturb(&world, &mut random);
                }
                let value = in_order(head.kind, parts);
                add((head.db.get(), head.key), (value, head.deadline_ms));
            }
        }
        disturb(&world, &mut random);
    }
    for (key, value) in &expected {
        assert_eq!(saved.get(key), Some(value), "seed {seed}: {key:?}");
    }
    assert_eq!(saved.len(), expected.len(), "seed {seed}");
    drop(snapshot);
    assert_eq!(Arc::strong_count(&world.keyspace), 1, "the snapshot has ended");
}

#[test]
fn a_snapshot_under_way_has_its_moment() {
    (0..150).for_each(check);
}
