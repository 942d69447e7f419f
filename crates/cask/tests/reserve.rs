//! A full disk can be emptied: deletes are accepted on it, and the space they free comes back.
//!
//! A store holds space in reserve for tombstones and for the output of compaction. These tests fill a small disk, or
//! let other files fill it, and delete. They also run random operations on a disk that shrinks and grows, with kills
//! and power cuts, and compare with a map.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tierce_cask::disk::{Moment, SimDisk};
use tierce_cask::{CompactionOptions, Db, Error, IndexKind, Options, SyncPolicy};
use tierce_harness::{Random, effort};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Every combination of index, number of shards, and syncs.
fn all_options(segment_size_bytes: u64) -> Vec<Options> {
    let mut all = Vec::new();
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        for shards in [1, 3] {
            for sync in [SyncPolicy::None, SyncPolicy::Always] {
                let compaction = CompactionOptions { garbage_ratio: 0.5, ..Default::default() };
                all.push(Options {
                    index,
                    shards: Some(shards),
                    sync,
                    segment_size_bytes,
                    compaction,
                    tail_bytes: 4096,
                    background_threads: false,
                    open_threads: 1,
                    ..Options::default()
                });
            }
        }
    }
    all
}

fn open(disk: &SimDisk, options: &Options) -> Db {
    Db::open_on(Arc::new(disk.clone()), Path::new("/store"), options.clone()).unwrap()
}

fn contents(db: &Db) -> Model {
    db.iter().map(|item| item.map(|(key, entry)| (key, entry.value.into_vec())).unwrap()).collect()
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:05}").into_bytes()
}

/// Puts until the disk is full.
fn fill(db: &Db, model: &mut Model, first: u64, value_len: usize) -> Error {
    for n in first.. {
        let value = vec![n as u8; value_len];
        match db.put(&key(n), &value) {
            Ok(()) => drop(model.insert(key(n), value)),
            Err(error) => return error,
        }
    }
    unreachable!("the disk has an end")
}

/// Returns keys in an order that leaves a live record in every segment until the end.
fn scattered(model: &Model) -> Vec<Vec<u8>> {
    let mut keys: Vec<_> = model.keys().cloned().collect();
    let mut random = Random::new(7);
    for i in (1..keys.len()).rev() {
        keys.swap(i, random.below(i + 1));
    }
    keys
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Restart {
    No,
    Close,
    Kill,
}

#[test]
fn everything_is_deleted_from_a_full_disk_and_space_comes_back() {
    for (at, options) in all_options(8 << 10).iter().enumerate() {
        let restarts = [Restart::No, Restart::Close, Restart::Kill];
        // A different restart for each, or several.
        for restart in restarts.into_iter().cycle().skip(at).take(effort(1).min(restarts.len())) {
            for value_len in [[0, 700][(at / 2 + restart as usize) % 2]] {
                let mut disk = SimDisk::new(at as u64);
                disk.set_capacity(Some(160 << 10));
                let mut db = open(&disk, options);
                let mut model = Model::new();
                let context = format!("{at}, {restart:?}, values of {value_len}");
                let refused = fill(&db, &mut model, 0, value_len);
                assert!(refused.is_no_space(), "{context}: {refused}");
                let stored = model.len();
                assert!(stored * (value_len + 40) > 50 << 10, "{context}: {stored} stored");
                if restart != Restart::No {
                    if restart == Restart::Close {
                        db.close().unwrap();
                    }
                    let image = disk.now().after_kill(1);
                    drop(db);
                    // Another file takes the space that closing has freed.
                    image.set_capacity(Some(image.used()));
                    db = open(&image, options);
                    disk = image;
                }
                assert_eq!(contents(&db), model, "{context}");
                for key in scattered(&model) {
                    db.delete(&key).unwrap_or_else(|e| panic!("{context}: {e}"));
                    model.remove(&key);
                    if model.len().is_multiple_of(499) {
                        assert_eq!(contents(&db), model, "{context}");
                    }
                }
                // Absent keys cost nothing.
                (0..2000).for_each(|n| db.delete(&key(n)).unwrap());
                db.compact().unwrap();
                fill(&db, &mut model, 0, value_len);
                let again = model.len();
                assert!(again * 10 > stored * 8, "{context}: {stored}, then {again}");
                assert_eq!(contents(&db), model, "{context}");
                drop(db);
                assert_eq!(contents(&open(&disk, options)), model, "{context}");
            }
        }
    }
}

#[test]
fn deletes_are_accepted_when_other_files_have_taken_the_space() {
    for (at, options) in all_options(2 << 10).iter().enumerate() {
        for keys in [1, 30, 300] {
            let disk = SimDisk::new(at as u64);
            disk.set_capacity(Some(1 << 20));
            let db = open(&disk, options);
            let mut model = Model::new();
            for n in 0..keys {
                db.put(&key(n), &[1; 90]).unwrap();
                model.insert(key(n), vec![1; 90]);
            }
            disk.set_capacity(Some(disk.used()));
            let context = format!("{at}, {keys} keys");
            for key in scattered(&model) {
                db.delete(&key).unwrap_or_else(|e| panic!("{context}: {e}"));
            }
            assert_eq!(contents(&db), Model::new(), "{context}");
            let image = disk.now().after_kill(1);
            image.set_capacity(Some(image.used()));
            let db = open(&image, options);
            assert_eq!(contents(&db), Model::new(), "{context}");
        }
    }
}

#[test]
fn a_directory_without_a_reserve_opens_on_a_full_disk_and_gets_one() {
    let reserve = Path::new("/store/RESERVE");
    for (at, options) in all_options(2 << 10).iter().enumerate() {
        let disk = SimDisk::new(at as u64);
        let db = open(&disk, options);
        let mut model = Model::new();
        for n in 0..200 {
            db.put(&key(n), &[2; 90]).unwrap();
            model.insert(key(n), vec![2; 90]);
        }
        let image = disk.now().after_kill(1);
        drop(db);
        image.erase(reserve);
        image.set_capacity(Some(image.used()));
        let db = open(&image, options);
        assert_eq!(contents(&db), model, "{at}");
        let refused = db.put(b"key", b"value").unwrap_err();
        assert!(refused.is_no_space(), "{refused}");
        let Error::NoReserve { needed, .. } = refused else { panic!("{refused}") };
        assert!(refused.to_string().contains(&format!("RESERVE, in which {needed} bytes")));
        // This is enough, except for the segment of the new write and its list.
        image.set_capacity(Some(image.used() + needed + 4096));
        db.put(b"key", b"value").unwrap();
        model.insert(b"key".to_vec(), b"value".to_vec());
        assert!(image.content(reserve).unwrap().len() as u64 >= needed, "{at}");
        db.compact().unwrap();
        drop(db);
        assert_eq!(contents(&open(&image, options)), model, "{at}");
    }
}

#[test]
fn a_disk_that_is_too_small_says_what_is_needed() {
    for options in all_options(2 << 10) {
        let disk = SimDisk::new(1);
        disk.set_capacity(Some(600));
        let db = open(&disk, &options);
        let refused = db.put(b"key", b"value").unwrap_err();
        let Error::NoReserve { needed, .. } = refused else { panic!("{refused}") };
        assert_eq!(db.get(b"key").unwrap(), None);
        disk.set_capacity(Some(2 * needed + 16384));
        db.put(b"key", b"value").unwrap();
    }
}

#[test]
fn a_closed_store_holds_little() {
    let disk = SimDisk::new(1);
    let db = open(&disk, &Options { background_threads: false, ..all_options(1 << 20)[0].clone() });
    db.put(b"key", b"value").unwrap();
    let open_len = disk.content(Path::new("/store/RESERVE")).unwrap().len();
    db.close().unwrap();
    let closed_len = disk.content(Path::new("/store/RESERVE")).unwrap().len();
    assert!(open_len > 1 << 20 && closed_len < 16 << 10, "{open_len}, then {closed_len}");
}

/// A store on a disk that changes its size, and its expected content.
struct Life {
    disk: SimDisk,
    db: Option<Db>,
    model: Model,
    refused: usize,
    deleted_while_full: usize,
}

impl Life {
    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn change(&mut self, random: &mut Random, context: &str) {
        let key = key(random.below(60) as u64);
        if random.below(5) < 3 {
            let value = vec![random.next_u64() as u8; random.below(400)];
            match self.db().put(&key, &value) {
                Ok(()) => drop(self.model.insert(key, value)),
                Err(error) => {
                    assert!(error.is_no_space(), "{context}: {error}");
                    self.refused += 1;
                }
            }
            return;
        }
        self.db().delete(&key).unwrap_or_else(|e| panic!("{context}: {e}"));
        self.deleted_while_full += usize::from(self.refused > 0);
        self.model.remove(&key);
    }

    fn resize(&mut self, random: &mut Random) {
        // Other files take the free space, or a part of it, or are deleted.
        let space = [0, 300, 2000, 20_000][random.below(4)];
        self.disk.set_capacity(Some(self.disk.used() + space));
    }

    fn restart(&mut self, random: &mut Random, options: &Options) {
        if random.below(2) == 0 {
            self.db().close().unwrap_or_else(|e| assert!(e.is_no_space(), "{e}"));
        }
        let is_durable = options.sync == SyncPolicy::Always;
        let seed = random.next_u64();
        let image = match is_durable && random.below(2) == 0 {
            true => self.disk.now().after_power_cut(seed),
            false => self.disk.now().after_kill(seed),
        };
        self.db = None;
        image.set_capacity(Some(image.used()));
        self.disk = image;
        self.db = Some(open(&self.disk, options));
    }
}

#[test]
fn nothing_is_lost_on_a_disk_that_shrinks_and_grows() {
    let (mut refused, mut deleted) = (0, 0);
    let seeds = effort(48);
    for seed in 0..seeds {
        let options = &all_options([700, 3000][seed as usize / 8 % 2])[seed as usize % 8];
        let mut random = Random::new(seed);
        let disk = SimDisk::new(seed);
        disk.set_capacity(Some(60 << 10));
        let db = Some(open(&disk, options));
        let mut life = Life { disk, db, model: Model::new(), refused: 0, deleted_while_full: 0 };
        for step in 0..300 {
            let context = format!("seed {seed}, step {step}");
            match random.below(40) {
                0 => life.resize(&mut random),
                1 => life.restart(&mut random, options),
                2 => {
                    if let Err(error) = life.db().compact() {
                        assert!(error.is_no_space(), "{context}: {error}");
                    }
                }
                _ => life.change(&mut random, &context),
            }
            if step % 10 == 0 {
                assert_eq!(contents(life.db()), life.model, "{context}");
            }
        }
        refused += life.refused;
        deleted += life.deleted_while_full;
    }
    let rarest = refused.min(deleted) as u64;
    assert!(rarest > 10 * seeds, "{refused} refused, {deleted} deleted after that");
}

/// Kills the process at each call that changes the disk, while everything is deleted from a full one.
#[test]
fn no_delete_is_lost_when_the_process_dies_on_a_full_disk() {
    let mut images = 0;
    for (at, options) in all_options(1 << 10).iter().enumerate() {
        let disk = SimDisk::new(at as u64);
        disk.set_capacity(Some(40 << 10));
        let db = open(&disk, options);
        let mut model = Model::new();
        fill(&db, &mut model, 0, 150);
        disk.record_history();
        // For each key, the last call at which it certainly exists, and the first at which it does not.
        let mut deletes = Vec::new();
        for key in scattered(&model) {
            let begun = disk.calls();
            db.delete(&key).unwrap();
            deletes.push((key, begun, disk.calls()));
        }
        db.compact().unwrap();
        let is_tried = |moment: &&Moment| (moment.calls + 12 * at as u64) % 97 < effort(1);
        for moment in disk.take_history().iter().filter(is_tried) {
            let mut ways = vec![(moment.after_kill(moment.calls), "kill")];
            if options.sync == SyncPolicy::Always {
                ways.push((moment.after_power_cut(moment.calls), "power cut"));
            }
            for (image, way) in ways {
                let context = format!("{at}, {way} at call {}", moment.calls);
                image.set_capacity(Some(40 << 10));
                let reopened = open(&image, options);
                let found = contents(&reopened);
                for (key, begun, done) in &deletes {
                    if *done <= moment.calls {
                        assert!(!found.contains_key(key), "{context}: it came back");
                    } else if *begun > moment.calls {
                        assert_eq!(found.get(key), model.get(key), "{context}: it is lost");
                    }
                }
                images += 1;
                for key in found.keys() {
                    reopened.delete(key).unwrap_or_else(|e| panic!("{context}: {e}"));
                }
                assert_eq!(contents(&reopened), Model::new(), "{context}");
            }
        }
    }
    println!("{images} images");
    assert!(images > 40, "only {images} images");
}
