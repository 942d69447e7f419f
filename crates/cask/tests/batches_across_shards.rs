//! A batch whose keys belong to different shards takes effect as a whole or not at all, for a crash
//! at every call, and for every snapshot.
//!
//! Each batch sets all keys to its own number. Afterwards all keys must have the same number.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tierce_cask::disk::{Moment, SimDisk};
use tierce_cask::{Batch, Db, Durability, IndexKind, Options, SyncPolicy};
use tierce_harness::effort;

const KEYS: u8 = 10;
const BATCHES: u64 = 14;

/// Number of different power cuts at one moment.
const SEEDS: u64 = 3;

fn open(disk: &SimDisk, index: IndexKind, background_threads: bool) -> Db {
    let options = Options {
        index,
        shards: Some(8),
        segment_size_bytes: 2500,
        sync: SyncPolicy::None,
        tail_bytes: 4096,
        background_threads,
        open_threads: 1,
        ..Options::default()
    };
    Db::open_on(Arc::new(disk.clone()), Path::new("/store"), options).unwrap()
}

fn batch(number: u64) -> Batch {
    let mut batch = Batch::new();
    for key in 0..KEYS {
        batch.put([key], number.to_le_bytes());
    }
    batch
}

/// Returns the batch whose values all keys have; 0 if there are none.
fn found(db: &Db, context: &str) -> u64 {
    let numbers: BTreeSet<Option<u64>> = (0..KEYS)
        .map(|key| {
            let value = db.get(&[key]).unwrap();
            value.map(|value| u64::from_le_bytes(value.into_vec().try_into().unwrap()))
        })
        .collect();
    assert_eq!(numbers.len(), 1, "{context}: parts of several batches: {numbers:?}");
    numbers.first().copied().flatten().unwrap_or(0)
}

struct Written {
    number: u64,
    begun: u64,
    done: u64,
    is_synced: bool,
}

fn check(moment: &Moment, written: &[Written], index: IndexKind) {
    let calls = moment.calls;
    let highest = |is: &dyn Fn(&Written) -> bool| {
        written.iter().filter(|batch| is(batch)).map(|batch| batch.number).max().unwrap_or(0)
    };
    let begun = highest(&|batch| batch.begun <= calls);
    let done = highest(&|batch| batch.done <= calls);
    let synced = highest(&|batch| batch.done <= calls && batch.is_synced);
    for seed in (0..effort(1)).map(|number| (calls + number) % SEEDS).take(SEEDS as usize) {
        let context = format!("{index:?}, call {calls}, seed {seed}");
        let seen = found(&open(&moment.after_kill(seed), index, false), &context);
        assert!((done..=begun).contains(&seen), "{context}: {seen} after a kill");
        let seen = found(&open(&moment.after_power_cut(seed), index, false), &context);
        assert!((synced..=begun).contains(&seen), "{context}: {seen} after a power cut");
    }
}

#[test]
fn all_or_nothing_at_every_crash() {
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        let disk = SimDisk::new(5);
        let db = open(&disk, index, false);
        disk.record_history();
        let mut written = Vec::new();
        for number in 1..=BATCHES {
            let is_synced = number % 4 == 0;
            let durability = if is_synced { Durability::Synced } else { Durability::Policy };
            let begun = disk.calls();
            db.write_with(&batch(number), durability).unwrap();
            written.push(Written { number, begun, done: disk.calls(), is_synced });
            if number == 7 {
                db.compact().unwrap();
            }
        }
        let moments = disk.take_history();
        assert!(moments.len() > 40, "{} moments", moments.len());
        moments.iter().for_each(|moment| check(moment, &written, index));
    }
}

#[test]
fn all_or_nothing_for_snapshots() {
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        let disk = SimDisk::new(5);
        let db = open(&disk, index, true);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..2 {
                let (db, stop) = (&db, &stop);
                scope.spawn(move || {
                    for number in 1..=400u64 {
                        db.write(&batch(number * 2 + writer)).unwrap();
                    }
                    stop.store(true, Ordering::Relaxed);
                });
            }
            let mut looks = 0;
            while !stop.load(Ordering::Relaxed) || looks == 0 {
                let snapshot = db.snapshot().unwrap();
                let numbers: BTreeSet<_> = (0..KEYS)
                    .map(|key| snapshot.get(&[key]).unwrap().map(|v| v.into_vec()))
                    .collect();
                assert_eq!(numbers.len(), 1, "{index:?}: a snapshot sees parts of batches");
                looks += 1;
            }
        });
    }
}
