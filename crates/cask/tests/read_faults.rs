//! A failed read is reported to its caller only: the store continues to read and write, and no
//! written data is lost or comes back.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use tierce_cask::disk::{Fault, SimDisk};
use tierce_cask::{CompactionOptions, Db, Error, IndexKind, Options, SyncPolicy};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(disk: &SimDisk, index: IndexKind) -> tierce_cask::Result<Db> {
    let options = Options {
        index,
        shards: Some(2),
        segment_size_bytes: 700,
        tail_bytes: 1024,
        sync: SyncPolicy::None,
        compaction: CompactionOptions { garbage_ratio: 0.3, ..CompactionOptions::default() },
        read_cache_bytes: 0,
        background_threads: false,
        open_threads: 1,
        ..Options::default()
    };
    Db::open_on(Arc::new(disk.clone()), Path::new("/store"), options)
}

fn make(index: IndexKind) -> (SimDisk, Db, Model) {
    let disk = SimDisk::new(1);
    let db = open(&disk, index).unwrap();
    let mut model = Model::new();
    for i in 0..40u8 {
        let (key, value) = (vec![b'k', i % 25], vec![i; 60]);
        db.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    // Data in a tail is not read from the disk.
    db.close().unwrap();
    let db = open(&disk, index).unwrap();
    // The first write looks for an older tail, which is not the read that should fail.
    for shard in 0..8u8 {
        db.put(&[shard], b"").unwrap();
        model.insert(vec![shard], Vec::new());
    }
    (disk, db, model)
}

fn contents(db: &Db) -> Model {
    db.iter().map(|item| item.map(|(key, entry)| (key, entry.value.into_vec())).unwrap()).collect()
}

fn assert_names_a_segment(error: &Error) {
    match error {
        Error::Io { action: "read", path, .. } => {
            assert!(path.starts_with("/store") && path.extension().unwrap() == "seg", "{error}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn failed_read_is_told_once_and_latches_nothing() {
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        let (disk, db, mut model) = make(index);
        for key in model.keys().filter(|key| key.len() > 1) {
            disk.inject(Fault::Read, 0);
            assert_names_a_segment(&db.get(key).unwrap_err());
            assert_eq!(db.get(key).unwrap().unwrap().into_vec(), model[key]);
        }
        for skip in 0..10 {
            disk.inject(Fault::Read, skip);
            let (found, failed): (Vec<_>, Vec<_>) = db.iter().partition(Result::is_ok);
            // Records are read several at a time, and again one by one if that fails.
            assert!(failed.len() <= 1, "one fault, at most one error");
            assert_eq!(found.len() + failed.len(), model.len());
            failed.into_iter().for_each(|item| assert_names_a_segment(&item.unwrap_err()));
        }
        // A visitor needs fewer reads; a fault that is not triggered would stay.
        for skip in 0..3 {
            disk.inject(Fault::Read, skip);
            let mut visits = 0;
            let visit = |_: &[u8], _: &[u8]| {
                visits += 1;
                ControlFlow::Continue(())
            };
            match db.for_each(visit) {
                Ok(()) => assert_eq!(visits, model.len()),
                Err(error) => assert_names_a_segment(&error),
            }
        }
        let snapshot = db.snapshot().unwrap();
        disk.inject(Fault::Read, 0);
        assert_names_a_segment(&snapshot.get(b"k\x03").unwrap_err());
        assert_eq!(snapshot.get(b"k\x03").unwrap().unwrap().into_vec(), model[&b"k\x03"[..]]);
        if index == IndexKind::Ordered {
            disk.inject(Fault::Read, 3);
            let failed = db.range(b"", b"").unwrap().filter_map(Result::err).count();
            assert!(failed <= 1, "{failed} errors by one fault");
        }
        db.put(b"later", b"goes on").unwrap();
        model.insert(b"later".to_vec(), b"goes on".to_vec());
        assert_eq!(contents(&db), model);
    }
}

#[test]
fn compaction_that_cannot_read_changes_nothing() {
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        let mut failures = 0;
        for skip in 0..60 {
            let (disk, db, model) = make(index);
            disk.inject(Fault::Read, skip);
            // Unreadable hint files are not required, and distant faults are never triggered.
            let Err(error) = db.compact() else { continue };
            assert!(error.to_string().contains("/store"), "{error}");
            failures += 1;
            assert_eq!(contents(&db), model);
            db.put(b"later", b"goes on").unwrap();
            assert_eq!(db.get(b"later").unwrap().unwrap().into_vec(), b"goes on");
            db.compact().unwrap();
            db.delete(b"later").unwrap();
            assert_eq!(contents(&db), model);
            assert_eq!(contents(&open(&disk.now().after_kill(0), index).unwrap()), model);
        }
        assert!(failures > 0, "only {failures} of the faults were met");
    }
}

/// With the hash index, overwriting and deleting verify the old record's key on disk. If that
/// fails, the superseded record is unknown: continuing would let the old value come back.
#[test]
fn overwriting_what_cannot_be_read_leaves_no_second_truth() {
    for delete in [false, true] {
        let (disk, db, mut model) = make(IndexKind::Hash);
        disk.inject(Fault::Read, 0);
        let key = b"k\x07";
        let result = if delete { db.delete(key) } else { db.put(key, b"new") };
        assert_names_a_segment(&result.unwrap_err());
        assert!(matches!(db.put(b"other", b""), Err(Error::ReadOnly { .. })));
        // Reading continues, and reopening resolves it: the write is on disk.
        assert_eq!(contents(&db), model);
        drop(db);
        match delete {
            true => drop(model.remove(&key[..])),
            false => drop(model.insert(key.to_vec(), b"new".to_vec())),
        }
        let db = open(&disk, IndexKind::Hash).unwrap();
        assert_eq!(contents(&db), model);
        db.put(b"other", b"").unwrap();
    }
}

/// The ordered index has its keys, so writing reads nothing.
#[test]
fn ordered_store_overwrites_what_cannot_be_read() {
    let (disk, db, mut model) = make(IndexKind::Ordered);
    disk.inject(Fault::Read, 0);
    db.put(b"k\x07", b"new").unwrap();
    db.delete(b"k\x08").unwrap();
    model.insert(b"k\x07".to_vec(), b"new".to_vec());
    model.remove(&b"k\x08"[..]);
    assert_names_a_segment(&db.get(b"k\x09").unwrap_err());
    assert_eq!(contents(&db), model);
}
