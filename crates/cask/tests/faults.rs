//! Failing calls: a store in an uncertain state stops writing and says why; a full disk only pauses
//! writes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tierce_cask::disk::{Fault, SimDisk};
use tierce_cask::{CompactionOptions, Db, Error, IndexKind, Options, SyncPolicy};

type Pair = (Vec<u8>, Vec<u8>);
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(disk: &SimDisk, sync: SyncPolicy) -> tierce_cask::Result<Db> {
    let options = Options {
        index: IndexKind::Ordered,
        shards: Some(2),
        segment_size_bytes: 600,
        sync,
        compaction: CompactionOptions { garbage_ratio: 0.3, ..CompactionOptions::default() },
        tail_bytes: 1024,
        background_threads: false,
        open_threads: 1,
        ..Options::default()
    };
    Db::open_on(Arc::new(disk.clone()), Path::new("/store"), options)
}

fn contents(db: &Db) -> Model {
    db.iter().map(|item| item.map(|(key, entry)| (key, entry.value.into_vec())).unwrap()).collect()
}

/// Puts, compacts and flushes until something fails. Returns what was acknowledged, the write
/// that failed if it was one, and the error.
fn work(db: &Db, model: &mut Model) -> Option<(Option<Pair>, Error)> {
    for i in 0..60u8 {
        let (key, value) = (vec![i % 9], vec![i; 90]);
        if let Err(error) = db.put(&key, &value) {
            return Some((Some((key, value)), error));
        }
        model.insert(key, value);
        if i % 20 == 19
            && let Err(error) = db.compact()
        {
            return Some((None, error));
        }
    }
    db.flush().err().map(|error| (None, error))
}

#[test]
fn failed_call_latches_the_store_and_loses_nothing() {
    let kinds = [
        Fault::Write,
        Fault::Sync,
        Fault::SyncDir,
        Fault::Open,
        Fault::Rename,
        Fault::Remove,
        Fault::Truncate,
    ];
    let mut failures = 0;
    for kind in kinds {
        for skip in 0..120 {
            let disk = SimDisk::new(skip);
            let db = open(&disk, SyncPolicy::Always).unwrap();
            disk.inject(kind, skip);
            let mut model = Model::new();
            let Some((failed, error)) = work(&db, &mut model) else { continue };
            failures += 1;
            let context = format!("{kind:?} after {skip}: {error}");
            assert!(error.to_string().contains("/store"), "{context}");
            match db.put(b"later", b"") {
                Err(Error::ReadOnly { cause }) => assert_eq!(cause, error.to_string()),
                // A failure to open files for reading is no reason to stop writing.
                Ok(()) => {
                    assert!(kind == Fault::Open, "{context}");
                    model.insert(b"later".to_vec(), Vec::new());
                }
                Err(other) => panic!("{context}, then {other}"),
            }
            // Acknowledged writes are still readable, and exist after any restart. The failed write
            // may be readable as well, or not.
            for (key, value) in &model {
                let found = db.get(key).unwrap().unwrap().into_vec();
                let is_failed =
                    failed.as_ref().is_some_and(|failed| (key, &found) == (&failed.0, &failed.1));
                assert!(found == *value || is_failed, "{context}");
            }
            for image in [disk.now().after_kill(skip), disk.now().after_power_cut(skip)] {
                let reopened = open(&image, SyncPolicy::Always).unwrap();
                let mut found = contents(&reopened);
                // The write that failed may have happened or not.
                if let Some((key, value)) = &failed
                    && found.get(key) == Some(value)
                {
                    found.remove(key);
                    found.extend(model.get(key).map(|value| (key.clone(), value.clone())));
                }
                assert_eq!(found, model, "{context}");
                reopened.put(b"later", b"again").unwrap();
            }
        }
    }
    assert!(failures > 100, "only {failures} of the faults were met");
}

#[test]
fn lack_of_descriptors_refuses_a_write_and_passes() {
    const EMFILE: i32 = 24;
    let mut refused = 0;
    for skip in 0..150 {
        let disk = SimDisk::new(skip);
        let db = open(&disk, SyncPolicy::Always).unwrap();
        disk.inject_os_error(Fault::Open, skip, EMFILE);
        let mut model = Model::new();
        while let Some((failed, error)) = work(&db, &mut model) {
            assert!(error.is_transient() && !error.is_no_space(), "{error}");
            refused += 1;
            // A refused write left nothing behind.
            if let Some((key, _)) = failed {
                let kept = db.get(&key).unwrap().map(|value| value.into_vec());
                assert_eq!(kept.as_ref(), model.get(&key), "after {skip}");
            }
        }
        disk.clear_faults();
        assert_eq!(contents(&db), model, "after {skip}");
        for image in [disk.now().after_kill(skip), disk.now().after_power_cut(skip)] {
            assert_eq!(contents(&open(&image, SyncPolicy::Always).unwrap()), model);
        }
    }
    assert!(refused > 20, "only {refused} of the calls were met");
}

#[test]
fn full_disk_refuses_writes_and_recovers() {
    for capacity in (600..6000).step_by(41) {
        let disk = SimDisk::new(capacity);
        let db = open(&disk, SyncPolicy::None).unwrap();
        disk.set_capacity(Some(capacity));
        let mut model = Model::new();
        let mut refused = 0;
        for i in 0..80u8 {
            let (key, value) = (vec![i], vec![i.wrapping_mul(31); usize::from(i) * 3]);
            match db.put(&key, &value) {
                Ok(()) => drop(model.insert(key, value)),
                Err(error) if error.is_no_space() => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(refused > 0, "{capacity} bytes were enough");
        assert_eq!(contents(&db), model, "with {capacity} bytes");
        let image = disk.now().after_kill(1);
        assert_eq!(contents(&open(&image, SyncPolicy::None).unwrap()), model);
        // Space returns: everything continues normally.
        disk.set_capacity(None);
        for i in 0..80u8 {
            db.put(&[i], b"after").unwrap();
            model.insert(vec![i], b"after".to_vec());
        }
        db.compact().unwrap();
        assert_eq!(contents(&db), model);
        db.close().unwrap();
        assert_eq!(contents(&open(&disk, SyncPolicy::None).unwrap()), model);
    }
}

#[test]
fn compaction_on_a_full_disk_changes_nothing() {
    let disk = SimDisk::new(1);
    let db = open(&disk, SyncPolicy::None).unwrap();
    let mut model = Model::new();
    for i in 0..60u8 {
        db.put(&[i % 20], &[i; 90]).unwrap();
        model.insert(vec![i % 20], vec![i; 90]);
    }
    let before = disk.used();
    for spare in (0..2000).step_by(50) {
        disk.set_capacity(Some(disk.used() + spare));
        match db.compact() {
            Ok(_) => break,
            Err(error) if error.is_no_space() => assert_eq!(contents(&db), model),
            Err(error) => panic!("{error}"),
        }
    }
    disk.set_capacity(None);
    db.compact().unwrap();
    assert!(disk.used() < before);
    assert_eq!(contents(&db), model);
    drop(db);
    assert_eq!(contents(&open(&disk, SyncPolicy::None).unwrap()), model);
}
