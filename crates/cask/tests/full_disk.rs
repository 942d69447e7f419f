//! Small disks, and disks that are full: used to nearly their end, and usable again.

use std::sync::Arc;
use tierce_cask::disk::SimDisk;
use tierce_cask::{ColdBatch, ColdOptions, ColdStore, Durable, Wal, WalOptions};

const MIB: u64 = 1 << 20;

fn small_disk(capacity: u64) -> SimDisk {
    let disk = SimDisk::new(capacity);
    disk.set_capacity(Some(capacity));
    disk
}

#[test]
fn a_log_uses_a_small_disk_to_nearly_its_end() {
    for capacity in [3 * MIB, 18 * MIB, 60 * MIB] {
        let disk = small_disk(capacity);
        let options = WalOptions { background_threads: false, ..WalOptions::default() };
        let (log, _) = Wal::open_on(Arc::new(disk.clone()), "/log", options, |_| Ok(())).unwrap();
        let record = vec![7; 10_000];
        let mut appended = 0;
        let refused = loop {
            match log.append(&record) {
                Ok(()) => appended += record.len() as u64,
                Err(error) => break error,
            }
        };
        assert!(refused.is_no_space(), "{refused}");
        assert!(appended > capacity / 10 * 8, "{appended} of {capacity}");
        // What the log set aside at once is no more than a part of what was there.
        disk.set_capacity(Some(capacity + MIB));
        log.append(&record).unwrap();
        let image = disk.now().after_kill(1);
        let mut bytes = 0;
        let take = |record: &[u8]| {
            bytes += record.len() as u64;
            Ok(())
        };
        Wal::open_on(Arc::new(image), "/log", WalOptions::default(), take).unwrap();
        assert_eq!(bytes, appended + record.len() as u64);
    }
}

#[test]
fn spilled_values_use_a_small_disk_to_nearly_its_end() {
    for capacity in [3 * MIB, 18 * MIB, 60 * MIB] {
        let disk = small_disk(capacity);
        let options = ColdOptions::default();
        let store = ColdStore::open(Arc::new(disk.clone()), "/cold", options).unwrap();
        let write = |len: usize| {
            let mut batch = ColdBatch::default();
            batch.push(|out| out.resize(out.len() + len, 7)).unwrap();
            store.write(&mut batch, Durable::Yes).map(|locations| locations[0])
        };
        let mut locations = Vec::new();
        let refused = loop {
            match write(200_000) {
                Ok(location) => locations.push(location),
                Err(error) => break error,
            }
        };
        assert!(refused.is_no_space(), "{refused}");
        let written = locations.len() as u64 * 200_000;
        assert!(written > capacity / 10 * 8, "{written} of {capacity}");
        // Neither files nor segments are left behind by what was refused.
        let (files, figures) = (disk.paths().len(), store.figures());
        assert!((0..20).all(|_| write(200_000).is_err()));
        assert_eq!((disk.paths().len(), store.figures()), (files, figures));
        // Something shorter may still fit, and what is there can be read.
        locations.extend(write(100));
        let mut buffer = tierce_cask::ColdBuffer::default();
        for location in &locations {
            assert!(store.read(*location, &mut buffer).unwrap().iter().all(|byte| *byte == 7));
        }
        // With space again, it goes on.
        disk.set_capacity(Some(capacity + 4 * MIB));
        write(200_000).unwrap();
    }
}

/// What is there can be read whatever the disk is; writes are accepted again when there is space.
#[test]
fn a_log_opens_on_a_full_disk_and_takes_records_when_there_is_space() {
    let disk = small_disk(3 * MIB);
    let options = || WalOptions { background_threads: false, ..WalOptions::default() };
    let (log, _) = Wal::open_on(Arc::new(disk.clone()), "/log", options(), |_| Ok(())).unwrap();
    let record = vec![7; 10_000];
    let mut appended = 0;
    while log.append(&record).is_ok() {
        appended += 1;
    }
    let mut image = disk.now().after_kill(1);
    drop(log);
    for round in 0..4 {
        // Not even the manifest fits.
        image.set_capacity(Some(image.used()));
        let mut found = 0;
        let take = |_: &[u8]| {
            found += 1;
            Ok(())
        };
        let (log, _) = Wal::open_on(Arc::new(image.clone()), "/log", options(), take).unwrap();
        assert_eq!(found, appended, "round {round}");
        if round % 2 == 1 {
            image.set_capacity(None);
            log.append(&record).unwrap();
            appended += 1;
        }
        let next = image.now().after_kill(round);
        drop(log);
        image = next;
    }
}
