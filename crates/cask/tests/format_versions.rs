//! Manifests of other versions, and tails that the manifest lists.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use tierce_cask::disk::{Disk, SimDisk};
use tierce_cask::{Db, Error, Options, check_on, repair_on};
use tierce_storage::{Wal, WalOptions};

const DIR: &str = "/store";

fn tail() -> PathBuf {
    Path::new(DIR).join("0000.tail")
}

fn manifest() -> PathBuf {
    Path::new(DIR).join("MANIFEST")
}

fn open_log(disk: &SimDisk) -> tierce_cask::Result<(Wal, u64)> {
    let options =
        WalOptions { tail_bytes: 4096, background_threads: false, ..WalOptions::default() };
    let (log, found) = Wal::open_on(Arc::new(disk.clone()), DIR, options, |_| Ok(()))?;
    Ok((log, found.records))
}

fn open_db(disk: &SimDisk) -> tierce_cask::Result<Db> {
    let options = Options {
        shards: Some(1),
        tail_bytes: 4096,
        background_threads: false,
        ..Options::default()
    };
    Db::open_on(Arc::new(disk.clone()), Path::new(DIR), options)
}

fn on(disk: &SimDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

/// Gives the manifest another version, with a valid checksum.
fn set_version(disk: &SimDisk, version: u32) {
    let mut bytes = disk.content(&manifest()).unwrap();
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let end = bytes.len() - 4;
    let crc = crc32c::crc32c(&bytes[..end]).to_le_bytes();
    bytes[end..].copy_from_slice(&crc);
    disk.set_content(&manifest(), bytes);
}

fn version(disk: &SimDisk) -> u8 {
    disk.content(&manifest()).unwrap()[8]
}

fn misses_tail<T>(result: tierce_cask::Result<T>) {
    match result.map(drop) {
        Err(Error::Missing { path }) => assert_eq!(path, tail()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_log_notices_that_its_tail_is_missing() {
    let disk = SimDisk::new(1);
    let (log, _) = open_log(&disk).unwrap();
    log.append(b"first").unwrap();
    let dead = disk.now().after_kill(1);
    dead.erase(&tail());
    misses_tail(open_log(&dead));
    let report = check_on(on(&dead), Path::new(DIR), |_| {}).unwrap();
    misses_tail(Err::<(), _>(report.problems.into_iter().next().unwrap()));
    // Same result if it existed from the start.
    let alive = disk.now().after_kill(1);
    let (again, records) = open_log(&alive).unwrap();
    assert_eq!(records, 1);
    again.append(b"second").unwrap();
    let dead = alive.now().after_kill(1);
    dead.erase(&tail());
    misses_tail(open_log(&dead));
    // A closed log has everything in segments.
    log.close().unwrap();
    disk.erase(&tail());
    assert!(check_on(on(&disk), Path::new(DIR), |_| {}).unwrap().problems.is_empty());
    drop(log);
    assert_eq!(open_log(&disk).unwrap().1, 1);
}

#[test]
fn a_database_notices_that_its_tail_is_missing() {
    let disk = SimDisk::new(2);
    let db = open_db(&disk).unwrap();
    db.put(b"key", b"value").unwrap();
    let dead = disk.now().after_kill(1);
    dead.erase(&tail());
    misses_tail(open_db(&dead));
    db.close().unwrap();
    drop(db);
    disk.erase(&tail());
    assert!(open_db(&disk).unwrap().get(b"key").unwrap().is_some());
}

#[test]
fn a_tail_is_listed_before_anything_in_it_is_acknowledged() {
    let disk = SimDisk::new(3);
    disk.record_history();
    let (log, _) = open_log(&disk).unwrap();
    log.append(b"record").unwrap();
    let opened = disk.calls();
    drop(log);
    let mut missed = 0;
    for moment in disk.take_history().into_iter().filter(|moment| moment.calls <= opened) {
        for seed in 0..4 {
            for image in [moment.after_kill(seed), moment.after_power_cut(seed)] {
                let whole = image.now().after_kill(0);
                let Ok((_, records)) = open_log(&whole) else { panic!("it opens as it is") };
                image.erase(&tail());
                match open_log(&image) {
                    Ok((_, left)) => assert_eq!(left, records, "after {}", moment.calls),
                    Err(Error::Missing { .. }) => missed += 1,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
    assert!(missed > 0);
}

#[test]
fn a_store_of_version_1_opens_and_is_rewritten() {
    let disk = SimDisk::new(4);
    let db = open_db(&disk).unwrap();
    db.put(b"key", b"value").unwrap();
    db.close().unwrap();
    drop(db);
    set_version(&disk, 1);
    let db = open_db(&disk).unwrap();
    assert_eq!(db.get(b"key").unwrap().unwrap().into_vec(), b"value");
    assert_eq!(version(&disk), 2);
}

#[test]
fn a_store_of_a_newer_version_is_refused_and_left_alone() {
    let disk = SimDisk::new(5);
    let (log, _) = open_log(&disk).unwrap();
    log.append(b"record").unwrap();
    log.close().unwrap();
    drop(log);
    set_version(&disk, 7);
    let calls = disk.calls();
    let refused =
        [open_log(&disk).map(drop), check_on(on(&disk), Path::new(DIR), |_| {}).map(drop)];
    assert_eq!(disk.calls(), calls, "nothing was written");
    let repaired = repair_on(on(&disk), Path::new(DIR), Path::new("/new"), |_| {}).map(drop);
    for refused in refused.into_iter().chain([repaired]) {
        let text = refused.unwrap_err().to_string();
        assert_eq!(text, "/store/MANIFEST has format version 7; this version reads 1 to 2");
    }
    set_version(&disk, 2);
    assert_eq!(open_log(&disk).unwrap().1, 1);
}
