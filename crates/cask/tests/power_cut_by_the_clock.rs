//! `SyncPolicy::Every`: a write older than the interval survives a power cut, without an explicit
//! flush.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tierce_cask::disk::SimDisk;
use tierce_cask::{Batch, Db, IndexKind, Options, SyncPolicy};

fn open(disk: &SimDisk, sync: SyncPolicy) -> Db {
    let options = Options {
        index: IndexKind::Ordered,
        shards: Some(3),
        segment_size_bytes: 4096,
        sync,
        tail_bytes: 16 << 10,
        background_threads: sync != SyncPolicy::None,
        open_threads: 1,
        ..Options::default()
    };
    Db::open_on(Arc::new(disk.clone()), Path::new("/store"), options).unwrap()
}

/// Returns true if the key would survive every one of many power cuts at this moment.
fn is_durable(disk: &SimDisk, key: &[u8]) -> bool {
    let now = disk.now();
    (0..16).all(|seed| {
        let db = open(&now.after_power_cut(seed), SyncPolicy::None);
        db.get(key).unwrap().is_some()
    })
}

#[test]
fn the_clock_makes_writes_durable() {
    let disk = SimDisk::new(1);
    let db = open(&disk, SyncPolicy::Every(Duration::from_millis(1)));
    for round in 0..20u8 {
        let mut batch = Batch::new();
        for n in 0..6u8 {
            batch.put([round, n], [n; 700]);
        }
        db.write(&batch).unwrap();
        db.put(&[round], b"alone").unwrap();
        // Waits until it is durable; a store that never syncs would wait forever.
        while !(is_durable(&disk, &[round]) && is_durable(&disk, &[round, 0])) {
            std::thread::yield_now();
        }
    }
    assert_eq!(db.stats().keys, 20 * 7);
}

#[test]
fn before_its_time_nothing_is_durable_unless_flushed() {
    let disk = SimDisk::new(1);
    let db = open(&disk, SyncPolicy::Every(Duration::from_secs(3600)));
    db.put(b"early", &[1; 900]).unwrap();
    assert!(!is_durable(&disk, b"early"), "the hour has not passed");
    db.flush().unwrap();
    assert!(is_durable(&disk, b"early"));
}
