//! Checking finds every flipped bit of a segment; repairing saves every intact record.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tierce_cask::disk::SimDisk;
use tierce_cask::{Batch, Db, Error, IndexKind, Options, SyncPolicy, check_on, repair_on};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(disk: &SimDisk, dir: &str) -> Db {
    let options = Options {
        index: IndexKind::Ordered,
        shards: Some(2),
        segment_size_bytes: 1024,
        sync: SyncPolicy::None,
        tail_bytes: 1024,
        background_threads: false,
        open_threads: 1,
        ..Options::default()
    };
    Db::open_on(Arc::new(disk.clone()), Path::new(dir), options).unwrap()
}

fn contents(db: &Db) -> Model {
    db.iter().map(|item| item.map(|(key, entry)| (key, entry.value.into_vec())).unwrap()).collect()
}

/// Returns a closed store in which every key was written once, except that some were deleted.
fn make() -> (SimDisk, Model) {
    let disk = SimDisk::new(5);
    let db = open(&disk, "/old");
    for i in 0..30u8 {
        db.put(&[b'k', i], &[i; 50]).unwrap();
    }
    let mut batch = Batch::new();
    for i in 0..5u8 {
        batch.put([b'b', i], [i; 10]);
    }
    db.write(&batch).unwrap();
    for i in 0..3u8 {
        db.delete(&[b'k', i]).unwrap();
    }
    let model = contents(&db);
    db.close().unwrap();
    (disk, model)
}

fn segments(disk: &SimDisk) -> Vec<PathBuf> {
    disk.paths().into_iter().filter(|p| p.extension().is_some_and(|e| e == "seg")).collect()
}

fn check(disk: &SimDisk) -> tierce_cask::CheckReport {
    let mut last = None;
    let report = check_on(Arc::new(disk.clone()), Path::new("/old"), |progress| {
        assert!(progress.done <= progress.total);
        last = Some(progress);
    });
    let report = report.unwrap();
    assert!(last.is_none_or(|last| last.done == last.total));
    report
}

fn repair(disk: &SimDisk) -> tierce_cask::RepairReport {
    repair_on(Arc::new(disk.clone()), Path::new("/old"), Path::new("/new"), |_| {}).unwrap()
}

#[test]
fn sound_store_checks_out_and_repairs_to_the_same() {
    let (disk, model) = make();
    let report = check(&disk);
    assert!(report.problems.is_empty());
    assert_eq!((report.records, report.hints_missing, report.torn_bytes), (38, 0, 0));
    let repaired = repair(&disk);
    assert_eq!((repaired.records, repaired.bytes_skipped, repaired.members_skipped), (38, 0, 0));
    assert_eq!(contents(&open(&disk, "/new")), model);
    assert_eq!(contents(&open(&disk, "/old")), model);
}

#[test]
fn every_flipped_bit_of_a_segment_is_found_and_costs_at_most_one_record() {
    let (disk, model) = make();
    for path in segments(&disk) {
        let bits = disk.content(&path).unwrap().len() as u64 * 8;
        for bit in (0..bits).step_by(11) {
            let image = disk.now().after_kill(0);
            image.flip_bit(&path, bit);
            let report = check(&image);
            assert_eq!(report.problems.len(), 1, "{} bit {bit}", path.display());
            assert!(
                matches!(&report.problems[0], Error::Corrupt { path: named, .. } if *named == path)
            );
            let repaired = repair(&image);
            let found = contents(&open(&image, "/new"));
            if bit < 64 * 8 {
                assert!(repaired.problems.is_empty() && found == model, "the header is corrected");
                image.flip_bit(&path, (bit + 64) % 512);
                image
                    .paths()
                    .iter()
                    .filter(|path| path.starts_with("/new"))
                    .for_each(|path| image.erase(path));
                assert_eq!(repair(&image).problems.len(), 1, "with two wrong bytes it is lost");
                continue;
            }
            assert!(repaired.bytes_skipped > 0);
            let lost = model.iter().filter(|(key, value)| found.get(*key) != Some(value)).count();
            // A lost tombstone instead lets its key come back.
            let back = found.keys().filter(|key| !model.contains_key(*key)).count();
            assert!(lost + back <= 1, "{} bit {bit}: {lost} lost, {back} back", path.display());
        }
    }
}

#[test]
fn lost_manifest_is_told_and_can_be_done_without() {
    let (disk, model) = make();
    disk.flip_bit(Path::new("/old/MANIFEST"), 77);
    assert!(matches!(check(&disk).problems[..], [Error::Corrupt { .. }]));
    repair(&disk);
    assert_eq!(contents(&open(&disk, "/new")), model);
    let again = repair_on(Arc::new(disk), Path::new("/old"), Path::new("/new"), |_| {});
    assert!(matches!(again, Err(Error::Foreign { .. })));
}

#[test]
fn half_a_batch_at_a_torn_tail_is_not_saved() {
    let disk = SimDisk::new(9);
    let db = open(&disk, "/old");
    db.put(b"k", b"v").unwrap();
    let mut batch = Batch::new();
    batch.put(*b"b1", [1; 20]).put(*b"b2", [2; 20]);
    db.write(&batch).unwrap();
    // In the segment, with the shard's tail lost.
    db.flush().unwrap();
    let image = disk.now().after_kill(0);
    let is_tail = |path: &std::path::PathBuf| path.extension().is_some_and(|e| e == "tail");
    image.paths().into_iter().filter(is_tail).for_each(|path| image.erase(&path));
    let tail =
        segments(&image).into_iter().max_by_key(|path| image.content(path).unwrap().len()).unwrap();
    let mut content = image.content(&tail).unwrap();
    let used = content.iter().rposition(|&byte| byte != 0).unwrap();
    content.truncate(used);
    image.set_content(&tail, content);
    assert!(check(&image).torn_bytes > 0);
    assert_eq!(repair(&image).members_skipped, 1);
    let saved = contents(&open(&image, "/new"));
    assert_eq!(saved, Model::from([(b"k".to_vec(), b"v".to_vec())]));
}
