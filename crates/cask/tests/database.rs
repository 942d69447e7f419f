//! Normal operation of the database, compared with a `BTreeMap`.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use tierce_cask::disk::SimDisk;
use tierce_cask::{
    Attributes, Batch, CompactionOptions, Compression, Db, Durability, Error, IndexKind, Options,
    Snapshot, SyncPolicy,
};
use tierce_harness::effort;

fn options(index: IndexKind) -> Options {
    Options {
        index,
        shards: Some(3),
        segment_size_bytes: 4096,
        sync: SyncPolicy::None,
        compaction: CompactionOptions { garbage_ratio: 0.3, ..CompactionOptions::default() },
        tail_bytes: 4096,
        background_threads: false,
        open_threads: 1,
        ..Options::default()
    }
}

fn open(disk: &SimDisk, index: IndexKind) -> Db {
    Db::open_on(Arc::new(disk.clone()), Path::new("/store"), options(index)).unwrap()
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn contents(db: &Db) -> Model {
    let mut found = Model::new();
    for item in db.iter() {
        let (key, entry) = item.unwrap();
        assert_eq!(found.insert(key, entry.value.into_vec()), None, "a key came twice");
    }
    assert_eq!(visited(|visitor| db.for_each(visitor)), found, "visitor and iterator agree");
    found
}

/// Returns the keys and values passed to a visitor.
fn visited(
    visit: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> tierce_cask::Result<()>,
) -> Model {
    let mut found = Model::new();
    visit(&mut |key, value| {
        assert_eq!(found.insert(key.to_vec(), value.to_vec()), None, "a key came twice");
        ControlFlow::Continue(())
    })
    .unwrap();
    found
}

fn snapshot_contents(snapshot: &Snapshot) -> Model {
    let mut found = Model::new();
    for item in snapshot.iter() {
        let (key, entry) = item.unwrap();
        assert_eq!(found.insert(key, entry.value.into_vec()), None, "a key came twice");
    }
    assert_eq!(visited(|visitor| snapshot.for_each(visitor)), found, "visitor and iterator agree");
    found
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u16),
    Delete(u8),
    Batch(Vec<(u8, Option<u16>)>),
    Compact,
    Flush,
    Reopen,
    Snapshot,
    DropSnapshot,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        10 => (any::<u8>(), 0u16..300).prop_map(|(key, len)| Step::Put(key % 60, len)),
        4 => any::<u8>().prop_map(|key| Step::Delete(key % 60)),
        2 => prop::collection::vec((0u8..60, prop::option::of(0u16..200)), 1..8).prop_map(Step::Batch),
        1 => Just(Step::Compact),
        1 => Just(Step::Flush),
        1 => Just(Step::Reopen),
        1 => Just(Step::Snapshot),
        1 => Just(Step::DropSnapshot),
    ];
    prop::collection::vec(step, 1..250)
}

fn key(n: u8) -> Vec<u8> {
    // Keys of several lengths, including the empty one.
    match n {
        0 => Vec::new(),
        _ => format!("{n:03}").repeat(usize::from(n % 5) + 1).into_bytes(),
    }
}

fn value(len: u16, step: usize) -> Vec<u8> {
    // Some compress, some do not.
    let seed = step as u32 + u32::from(len);
    (0..u32::from(len))
        .map(|i| {
            if len.is_multiple_of(2) {
                step as u8
            } else {
                ((i ^ seed).wrapping_mul(0x9e37_79b1) >> 13) as u8
            }
        })
        .collect()
}

fn check_step(
    disk: &SimDisk,
    index: IndexKind,
    db: &mut Db,
    model: &mut Model,
    snapshots: &mut Vec<(Snapshot, Model)>,
    (at, step): (usize, Step),
) {
    match step {
        Step::Put(n, len) => {
            db.put(&key(n), &value(len, at)).unwrap();
            model.insert(key(n), value(len, at));
            assert_eq!(db.get(&key(n)).unwrap().unwrap().into_vec(), value(len, at));
        }
        Step::Delete(n) => {
            assert_eq!(db.exists(&key(n)).unwrap(), model.contains_key(&key(n)));
            db.delete(&key(n)).unwrap();
            model.remove(&key(n));
            assert_eq!(db.get(&key(n)).unwrap(), None);
        }
        Step::Batch(changes) => {
            let mut batch = Batch::new();
            for (n, len) in changes {
                match len {
                    Some(len) => {
                        batch.put(key(n), value(len, at));
                        model.insert(key(n), value(len, at));
                    }
                    None => {
                        batch.delete(key(n));
                        model.remove(&key(n));
                    }
                }
            }
            db.write(&batch).unwrap();
        }
        Step::Compact => drop(db.compact().unwrap()),
        Step::Flush => db.flush().unwrap(),
        Step::Reopen => {
            snapshots.clear();
            db.close().unwrap();
            *db = open(disk, index);
            assert_eq!(db.recovery().torn_tails, []);
            assert_eq!(contents(db), *model);
        }
        Step::Snapshot => snapshots.push((db.snapshot().unwrap(), model.clone())),
        Step::DropSnapshot => drop((!snapshots.is_empty()).then(|| snapshots.remove(0))),
    }
}

fn check(index: IndexKind, steps: Vec<Step>) {
    let disk = SimDisk::new(7);
    let mut db = open(&disk, index);
    let mut model = Model::new();
    let mut snapshots: Vec<(Snapshot, Model)> = Vec::new();
    for step in steps.into_iter().enumerate() {
        check_step(&disk, index, &mut db, &mut model, &mut snapshots, step);
        if let Some((snapshot, then)) = snapshots.first() {
            for n in 0..60 {
                let found = snapshot.get(&key(n)).unwrap().map(|value| value.into_vec());
                assert_eq!(found.as_ref(), then.get(&key(n)), "snapshot of key {n}");
            }
        }
    }
    assert_eq!(contents(&db), model);
    assert_eq!(db.stats().keys as usize, model.len());
    for (snapshot, then) in &snapshots {
        assert_eq!(snapshot_contents(snapshot), *then);
        if index == IndexKind::Ordered {
            let keys = |item: tierce_cask::Result<(Vec<u8>, _)>| item.unwrap().0;
            let forward: Vec<_> = snapshot.range(b"", b"").unwrap().map(keys).collect();
            let mut backward: Vec<_> = snapshot.range(b"", b"").unwrap().rev().map(keys).collect();
            backward.reverse();
            assert_eq!(forward, then.keys().cloned().collect::<Vec<_>>());
            assert_eq!(backward, forward);
        }
    }
    drop(snapshots);
    db.compact().unwrap();
    assert_eq!(contents(&db), model);
    drop(db);
    assert_eq!(contents(&open(&disk, index)), model);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(40)))]
    #[test]
    fn hashed_store_behaves_like_a_map(steps in steps()) {
        check(IndexKind::Hash, steps);
    }

    #[test]
    fn ordered_store_behaves_like_a_map(steps in steps()) {
        check(IndexKind::Ordered, steps);
    }

    #[test]
    fn ranges_agree_with_a_map(
        keys in prop::collection::btree_set(prop::collection::vec(0u8..4, 0..4), 0..60),
        bounds in prop::collection::vec((prop::collection::vec(0u8..5, 0..4), prop::collection::vec(0u8..5, 0..4)), 1..20),
        ends in prop::collection::vec(any::<bool>(), 80),
    ) {
        let db = open(&SimDisk::new(1), IndexKind::Ordered);
        for key in &keys {
            db.put(key, key).unwrap();
        }
        for (lower, upper) in bounds {
            let inside = |key: &&Vec<u8>| **key >= lower && (upper.is_empty() || **key < upper);
            let mut expected: std::collections::VecDeque<_> = keys.iter().filter(inside).cloned().collect();
            // Taken from both ends in any order, every key comes once.
            let mut range = db.range(&lower, &upper).unwrap();
            for from_front in &ends {
                let (found, expected) = match from_front {
                    true => (range.next(), expected.pop_front()),
                    false => (range.next_back(), expected.pop_back()),
                };
                prop_assert_eq!(found.map(|item| item.unwrap().0), expected);
            }
            let with_prefix: Vec<_> = db.prefix(&lower).unwrap().map(|item| item.unwrap().0).collect();
            let expected: Vec<_> = keys.iter().filter(|key| key.starts_with(&lower)).cloned().collect();
            prop_assert_eq!(with_prefix, expected);
        }
    }
}

#[test]
fn attributes_come_back_and_survive_compaction() {
    let disk = SimDisk::new(1);
    let db = open(&disk, IndexKind::Hash);
    let attributes = Attributes { expiry_ms: Some(77), version: Some(u64::MAX) };
    db.put_with(b"k", b"v", attributes, Durability::Synced).unwrap();
    for i in 0..200u32 {
        db.put(b"other", &i.to_le_bytes().repeat(20)).unwrap();
    }
    assert!(db.compact().unwrap().segments > 0);
    drop(db);
    let db = open(&disk, IndexKind::Hash);
    let entry = db.get_entry(b"k").unwrap().unwrap();
    assert_eq!((&*entry.value, entry.attributes, entry.seq), (&b"v"[..], attributes, 1));
}

#[test]
fn limits_are_errors_and_the_largest_key_works() {
    let db = open(&SimDisk::new(1), IndexKind::Hash);
    let key = vec![7; tierce_cask::KEY_LEN_MAX];
    db.put(&key, b"long").unwrap();
    assert_eq!(db.get(&key).unwrap().unwrap().into_vec(), b"long");
    let longer = vec![7; tierce_cask::KEY_LEN_MAX + 1];
    assert!(matches!(db.put(&longer, b""), Err(Error::KeyTooLong { .. })));
    assert!(matches!(db.get(&longer), Err(Error::KeyTooLong { .. })));
    assert!(matches!(db.range(b"", b""), Err(Error::Unordered)));
}

#[test]
fn values_longer_than_a_segment_work() {
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        let disk = SimDisk::new(1);
        let db = open(&disk, index);
        let long =
            |n: u32| -> Vec<u8> { (0..100_000).map(|i| (i * n).wrapping_mul(i) as u8).collect() };
        for n in 1..6 {
            db.put(&[n as u8 % 3], &long(n)).unwrap();
            db.put(b"short", &n.to_le_bytes()).unwrap();
        }
        db.compact().unwrap();
        for (key, n) in [(0, 3), (1, 4), (2, 5)] {
            assert_eq!(db.get(&[key]).unwrap().unwrap().into_vec(), long(n));
        }
        drop(db);
        let db = open(&disk, index);
        assert_eq!(db.get(&[1]).unwrap().unwrap().into_vec(), long(4));
        assert!(disk.used() < 420_000, "garbage is gone: {} bytes", disk.used());
    }
}

#[test]
fn iterating_a_closed_store_fails_once_and_ends() {
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        let db = open(&SimDisk::new(1), index);
        db.put(b"k", b"v").unwrap();
        let iter = db.iter();
        db.close().unwrap();
        let items: Vec<_> = iter.collect();
        assert!(matches!(items[..], [Err(Error::Closed)]), "{index:?}");
        let visit = db.for_each(|_, _| panic!("there is nothing to visit"));
        assert!(matches!(visit, Err(Error::Closed)), "{index:?}");
    }
}

#[test]
fn visitor_that_breaks_off_is_not_called_again() {
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        let db = open(&SimDisk::new(1), index);
        (0..100u8).for_each(|n| db.put(&[n], &[n; 50]).unwrap());
        let mut calls = 0;
        let visit = |key: &[u8], value: &[u8]| {
            assert_eq!(value, [key[0]; 50]);
            calls += 1;
            if calls == 7 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        db.for_each(visit).unwrap();
        assert_eq!(calls, 7);
    }
}

#[test]
fn second_opening_is_refused_while_the_first_lives() {
    let disk = SimDisk::new(1);
    let db = open(&disk, IndexKind::Hash);
    let open_again =
        || Db::open_on(Arc::new(disk.clone()), Path::new("/store"), options(IndexKind::Hash));
    assert!(matches!(open_again().err(), Some(Error::Locked { .. })));
    db.close().unwrap();
    assert!(matches!(db.put(b"k", b"v"), Err(Error::Closed)));
    assert!(matches!(db.get(b"k"), Err(Error::Closed)));
    open_again().unwrap();
}

#[test]
fn shards_index_and_compression_may_change_between_openings() {
    let disk = SimDisk::new(1);
    let mut model = Model::new();
    let compressions = [Compression::None, Compression::Snappy, Compression::Lz4];
    for round in 0..6usize {
        let index = if round % 2 == 0 { IndexKind::Hash } else { IndexKind::Ordered };
        let options = Options {
            shards: Some(1 + round as u32 * 3 % 7),
            compression: compressions[round % 3],
            ..options(index)
        };
        let db = Db::open_on(Arc::new(disk.clone()), Path::new("/store"), options).unwrap();
        assert_eq!(contents(&db), model);
        for i in 0..40 {
            let key = format!("{}", (i * 7 + round * 3) % 50).into_bytes();
            if i % 5 == 0 {
                db.delete(&key).unwrap();
                model.remove(&key);
            } else {
                let value = vec![round as u8; 100 + i];
                db.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
    }
}

#[test]
fn hot_keys_do_not_fill_the_disk() {
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        let disk = SimDisk::new(1);
        let db = open(&disk, index);
        db.put(b"cold", &[1; 3000]).unwrap();
        for i in 0..3000u32 {
            let key = (i % 7).to_le_bytes();
            // Keys that come and go leave only tombstones behind.
            let passing = [b"passing".as_slice(), &i.to_le_bytes()].concat();
            db.put(&key, &[i as u8; 60]).unwrap();
            db.put(&passing, b"").unwrap();
            db.delete(&passing).unwrap();
            if i % 100 == 0 {
                db.compact().unwrap();
            }
        }
        db.compact().unwrap();
        assert!(disk.used() < 80_000, "{} bytes for 8 keys", disk.used());
        assert_eq!(contents(&db).len(), 8);
        drop(db);
        assert_eq!(contents(&open(&disk, index)).len(), 8);
    }
}
