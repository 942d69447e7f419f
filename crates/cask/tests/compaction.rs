//! Compaction: no record is lost, no deleted record comes back, tombstones are dropped when they
//! may be and not before, and the statistics are consistent.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tierce_cask::disk::SimDisk;
use tierce_cask::{CompactionOptions, Compression, Db, IndexKind, Options, SyncPolicy};
use tierce_harness::{Random, effort};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
const BOTH: [IndexKind; 2] = [IndexKind::Hash, IndexKind::Ordered];

fn open(disk: &SimDisk, index: IndexKind, garbage_ratio: f64) -> Db {
    let options = Options {
        index,
        shards: Some(2),
        segment_size_bytes: 2000,
        tail_bytes: 1024,
        compression: Compression::None,
        sync: SyncPolicy::None,
        compaction: CompactionOptions { garbage_ratio, ..CompactionOptions::default() },
        background_threads: false,
        open_threads: 1,
        ..Options::default()
    };
    Db::open_on(Arc::new(disk.clone()), Path::new("/store"), options).unwrap()
}

fn contents(db: &Db) -> Model {
    db.iter().map(|item| item.map(|(key, entry)| (key, entry.value.into_vec())).unwrap()).collect()
}

/// Deletes all hint files, so that opening must read all records.
fn erase_hints(disk: &SimDisk) {
    for path in disk.paths() {
        if path.extension().is_some_and(|extension| extension == "hint") {
            disk.erase(&path);
        }
    }
}

#[test]
fn what_was_deleted_stays_deleted_whatever_is_compacted_first() {
    for index in BOTH {
        for seed in 0..effort(12) {
            let mut random = Random::new(seed);
            let disk = SimDisk::new(seed);
            let mut model = Model::new();
            let mut db = open(&disk, index, 0.1 + (seed % 12) as f64 * 0.07);
            for step in 0..400u64 {
                let key = format!("key{}", random.u64_below(40)).into_bytes();
                match random.u64_below(20) {
                    0 => drop(db.compact().unwrap()),
                    1 => {
                        db.close().unwrap();
                        if random.u64_below(2) == 0 {
                            erase_hints(&disk);
                        }
                        db = open(&disk, index, 0.1 + random.u64_below(8) as f64 * 0.1);
                        assert_eq!(contents(&db), model, "{index:?}, seed {seed}, step {step}");
                    }
                    2..10 => {
                        db.delete(&key).unwrap();
                        model.remove(&key);
                    }
                    _ => {
                        let value = vec![step as u8; random.u64_below(150) as usize];
                        db.put(&key, &value).unwrap();
                        model.insert(key, value);
                    }
                }
            }
            assert_eq!(contents(&db), model, "{index:?}, seed {seed}");
        }
    }
}

#[test]
fn tombstone_stays_while_an_older_segment_holds_its_key() {
    for index in BOTH {
        let disk = SimDisk::new(1);
        // Only segments that are nearly all garbage are compacted: never the one with the first
        // values.
        let db = open(&disk, index, 0.9);
        for n in 0..40u8 {
            db.put(&[n], &[n; 80]).unwrap();
        }
        db.close().unwrap();
        // One key of forty is deleted; then the segment with its tombstone becomes garbage around
        // it.
        let db = open(&disk, index, 0.9);
        db.delete(&[7]).unwrap();
        for _ in 0..3 {
            for n in 0..40u8 {
                db.put(&[100 + n % 5], &[n; 80]).unwrap();
            }
        }
        db.close().unwrap();
        let db = open(&disk, index, 0.9);
        let report = db.compact().unwrap();
        assert!(report.segments > 0, "there was garbage");
        assert!(db.stats().tombstone_bytes > 0, "the first value is still there");
        db.close().unwrap();
        erase_hints(&disk);
        let db = open(&disk, index, 0.9);
        assert_eq!(db.get(&[7]).unwrap(), None, "{index:?}: back from the dead");
        // Everything is overwritten or deleted: no tombstone is needed, and none stays.
        for n in 0..40u8 {
            db.delete(&[n]).unwrap();
        }
        db.close().unwrap();
        let db = open(&disk, index, 0.01);
        while db.compact().unwrap().segments > 0 {}
        assert_eq!(db.stats().tombstone_bytes, 0, "{index:?}");
        assert_eq!(db.stats().keys, 5);
    }
}

#[test]
fn deleting_everything_gives_the_disk_back() {
    for index in BOTH {
        let disk = SimDisk::new(1);
        let db = open(&disk, index, 0.5);
        for n in 0..300u32 {
            db.put(&n.to_le_bytes(), &[1; 100]).unwrap();
        }
        let full = disk.used();
        for n in 0..300u32 {
            db.delete(&n.to_le_bytes()).unwrap();
        }
        db.close().unwrap();
        let db = open(&disk, index, 0.5);
        while db.compact().unwrap().segments > 0 {}
        let stats = db.stats();
        assert_eq!((stats.keys, stats.live_bytes, stats.tombstone_bytes), (0, 0, 0));
        // Only the tails and a manifest remain.
        assert!(disk.used() < full / 10, "{} bytes of {full} are left", disk.used());
    }
}

#[test]
fn figures_add_up() {
    for index in BOTH {
        let disk = SimDisk::new(1);
        let db = open(&disk, index, 0.3);
        for n in 0..400u32 {
            db.put(&(n % 50).to_le_bytes(), &[n as u8; 96]).unwrap();
        }
        // A record: 32 bytes of header, 4 of key, 96 of value, and padding to a multiple of 8.
        let record = 136;
        let before = db.stats();
        assert_eq!(before.bytes_written, 400 * record);
        assert_eq!(before.live_bytes, 50 * record);
        assert_eq!((before.bytes_compacted, before.compactions), (0, 0));
        assert_eq!(before.write_amplification(), 1.0);
        assert!(before.space_amplification() > 7.0, "{}", before.space_amplification());
        let report = db.compact().unwrap();
        let after = db.stats();
        assert_eq!(after.compactions, report.segments as u64);
        assert_eq!(after.bytes_compacted, report.bytes_after);
        assert_eq!(after.live_bytes, before.live_bytes);
        assert_eq!(before.disk_bytes - after.disk_bytes, report.bytes_before - report.bytes_after);
        let expected = 1.0 + report.bytes_after as f64 / (400 * record) as f64;
        assert!((after.write_amplification() - expected).abs() < 1e-9);
        assert!(after.space_amplification() < 2.0, "{}", after.space_amplification());
        assert_eq!(db.compact().unwrap().segments, 0, "nothing is left to do");
    }
}

/// A segment whose hint file shows no live record is not read.
#[test]
fn segments_without_anything_live_are_not_read() {
    let disk = SimDisk::new(1);
    let db = open(&disk, IndexKind::Ordered, 0.5);
    for n in 0..200u32 {
        db.put(b"one key", &[n as u8; 200]).unwrap();
    }
    let report = db.compact().unwrap();
    assert!(report.segments > 10);
    assert_eq!(report.bytes_after, 0, "the newest value stands in the segment being written");
    assert_eq!(*db.get(b"one key").unwrap().unwrap(), [199; 200]);
}

const WRITERS: u64 = 3;
const KEYS_EACH: u64 = 30;
const STEPS: u64 = 2500;

/// Writers overwrite and delete keys of their own while compaction runs without pause and readers
/// read the same keys: the values they see of a key never go back in time.
#[test]
fn readers_and_writers_beside_compaction() {
    for (index, seed) in [(IndexKind::Hash, 11), (IndexKind::Ordered, 12)] {
        let disk = SimDisk::new(seed);
        let db = open(&disk, index, 0.2);
        let stop = AtomicBool::new(false);
        let compacted = AtomicU64::new(0);
        let mut model = Model::new();
        std::thread::scope(|scope| {
            let (db, stop, compacted) = (&db, &stop, &compacted);
            let writers: Vec<_> =
                (0..WRITERS).map(|writer| scope.spawn(move || write(db, writer, seed))).collect();
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let report = db.compact().unwrap();
                    compacted.fetch_add(report.segments as u64, Ordering::Relaxed);
                }
            });
            for reader in 0..2 {
                scope.spawn(move || watch(db, reader, stop));
            }
            for writer in writers {
                model.append(&mut writer.join().unwrap());
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(compacted.into_inner() > 20, "compaction was at work");
        assert_eq!(contents(&db), model, "{index:?}");
        db.close().unwrap();
        erase_hints(&disk);
        assert_eq!(contents(&open(&disk, index, 0.2)), model, "{index:?}, opened again");
    }
}

fn write(db: &Db, writer: u64, seed: u64) -> Model {
    let mut random = Random::new(seed * 100 + writer);
    let mut model = Model::new();
    for step in 1..=STEPS {
        let key = format!("{writer}/{}", random.u64_below(KEYS_EACH)).into_bytes();
        if random.u64_below(4) == 0 {
            db.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let mut value = step.to_le_bytes().to_vec();
            value.resize(8 + random.u64_below(120) as usize, b'.');
            db.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
    model
}

fn watch(db: &Db, reader: u64, stop: &AtomicBool) {
    let mut random = Random::new(reader);
    let mut newest: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    while !stop.load(Ordering::Relaxed) {
        let key =
            format!("{}/{}", random.u64_below(WRITERS), random.u64_below(KEYS_EACH)).into_bytes();
        let Some(value) = db.get(&key).unwrap() else { continue };
        let step = u64::from_le_bytes(*value.first_chunk().unwrap());
        let last = newest.entry(key).or_insert(0);
        assert!(step >= *last, "a key went back from {last} to {step}");
        *last = step;
    }
}
