//! Many threads on one store, on the real disk, with compaction running all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tierce_cask::{Batch, CompactionOptions, Db, IndexKind, Options, SyncPolicy};

const WRITERS: u64 = 4;
const STEPS: u64 = 3000;
const KEYS: u64 = 64;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tierce-cask-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn options(index: IndexKind) -> Options {
    Options {
        index,
        shards: Some(4),
        segment_size_bytes: 16 << 10,
        sync: SyncPolicy::Every(Duration::from_millis(2)),
        compaction: CompactionOptions {
            garbage_ratio: 0.2,
            interval: Duration::from_millis(1),
            bytes_per_second: 0,
            ..CompactionOptions::default()
        },
        read_cache_bytes: 64 << 10,
        open_files_max: 4,
        direct_io: true,
        direct_writes: index == IndexKind::Hash,
        // Short, so that blocks are flushed and reused all the time.
        tail_bytes: if index == IndexKind::Hash { 32 << 10 } else { 3 << 10 },
        ..Options::default()
    }
}

fn key(writer: u64, n: u64) -> Vec<u8> {
    format!("{writer}/{n:03}").into_bytes()
}

/// Writes, at least until compaction has had something to do. Each writer owns its keys and knows their values; its
/// model is returned.
fn write(db: &Db, writer: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut model = BTreeMap::new();
    for step in 0..40 * STEPS {
        if step >= STEPS && step % 100 == 0 && db.stats().compactions > 0 {
            break;
        }
        let n = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        let key = key(writer, n % KEYS);
        if n % 7 == 0 {
            db.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let value = format!("{writer}.{step}.{}", "y".repeat((n % 200) as usize)).into_bytes();
            db.put(&key, &value).unwrap();
            model.insert(key.clone(), value);
        }
        let found = db.get(&key).unwrap().map(|value| value.into_vec());
        assert_eq!(found.as_ref(), model.get(&key), "a writer reads what it wrote");
        if step % 100 == 0 {
            // Two keys that always change together, for the snapshots.
            let mut batch = Batch::new();
            batch.put(*b"pair/left", step.to_le_bytes()).put(*b"pair/right", step.to_le_bytes());
            db.write(&batch).unwrap();
        }
    }
    model
}

/// Reads everything until told to stop, and returns the number of rounds.
fn look(db: &Db, index: IndexKind, stop: &AtomicBool) -> usize {
    let mut looks = 0;
    while !stop.load(Ordering::Relaxed) || looks == 0 {
        let snapshot = db.snapshot().unwrap();
        assert_eq!(snapshot.get(b"pair/left").unwrap(), snapshot.get(b"pair/right").unwrap());
        let mut seen = BTreeMap::new();
        for item in snapshot.iter() {
            let (key, entry) = item.unwrap();
            assert!(entry.seq <= snapshot.seq());
            assert!(seen.insert(key, entry.value).is_none(), "a key came twice");
        }
        let mut visited = BTreeMap::new();
        let visit = |key: &[u8], value: &[u8]| {
            assert!(visited.insert(key.to_vec(), value.to_vec()).is_none(), "a key came twice");
            ControlFlow::Continue(())
        };
        snapshot.for_each(visit).unwrap();
        let seen_bytes = seen.iter().map(|(key, value)| (&key[..], &value[..]));
        assert!(visited.iter().map(|(key, value)| (&key[..], &value[..])).eq(seen_bytes));
        let mut current = BTreeSet::new();
        let visit = |key: &[u8], _: &[u8]| {
            assert!(current.insert(key.to_vec()), "a key came twice");
            ControlFlow::Continue(())
        };
        db.for_each(visit).unwrap();
        for pair in [&b"pair/left"[..], b"pair/right"] {
            // Never deleted, so later readers find it, too.
            assert!(!seen.contains_key(pair) || current.contains(pair), "{pair:?} was left out");
        }
        for (key, value) in &seen {
            assert_eq!(snapshot.get(key).unwrap().as_ref(), Some(value), "a snapshot changed");
        }
        if index == IndexKind::Ordered {
            let keys: Vec<_> = db.range(b"", b"").unwrap().map(|item| item.unwrap().0).collect();
            assert!(keys.is_sorted_by(|a, b| a < b), "ascending while being written");
            let then: Vec<_> =
                snapshot.range(b"", b"").unwrap().rev().map(|item| item.unwrap().0).collect();
            assert!(then.iter().rev().eq(seen.keys()), "both ways to look agree");
        }
        looks += 1;
    }
    looks
}

fn check(name: &str, index: IndexKind) {
    let scratch = Scratch::new(name);
    let db = Db::open(&scratch.0, options(index)).unwrap();
    let stop = AtomicBool::new(false);
    let looks = AtomicUsize::new(0);
    let mut model = BTreeMap::new();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| looks.fetch_add(look(&db, index, &stop), Ordering::Relaxed));
        }
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn({
                    let db = &db;
                    move || write(db, writer)
                })
            })
            .collect();
        for writer in writers {
            model.append(&mut writer.join().unwrap());
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(looks.into_inner() > 0);
    let contents = |db: &Db| -> BTreeMap<Vec<u8>, Vec<u8>> {
        let pairs = db.iter().map(|item| item.unwrap());
        let pairs = pairs.filter(|(key, _)| !key.starts_with(b"pair/"));
        pairs.map(|(key, entry)| (key, entry.value.into_vec())).collect()
    };
    assert_eq!(contents(&db), model);
    assert!(db.stats().compactions > 0, "compaction was at work");
    assert!(db.stats().open_files <= 4, "few files are open");
    db.close().unwrap();
    let db = Db::open(&scratch.0, options(index)).unwrap();
    assert_eq!(contents(&db), model);
}

#[test]
fn hashed_store_is_consistent_under_concurrency() {
    check("concurrent-hash", IndexKind::Hash);
}

#[test]
fn ordered_store_is_consistent_under_concurrency() {
    check("concurrent-ordered", IndexKind::Ordered);
}
