//! Reading without the page cache returns the same bytes as reading through it, at every alignment.

use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tierce_cask::disk::{Disk, OpenMode, OsDisk, SimDisk};
use tierce_cask::{Compression, Db, IndexKind, Options, SyncPolicy};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(disk: Arc<dyn Disk>, dir: &Path, index: IndexKind, direct_io: bool) -> Db {
    let options = Options {
        index,
        shards: Some(2),
        segment_size_bytes: 64 << 10,
        compression: Compression::None,
        sync: SyncPolicy::None,
        read_cache_bytes: 0,
        direct_io,
        background_threads: false,
        ..Options::default()
    };
    Db::open_on(disk, dir, options).unwrap()
}

/// Values of all lengths around the block size, and some that span several blocks.
fn fill(db: &Db) -> Model {
    let mut model = Model::new();
    let lens = (0..200).chain(4000..4120).chain([8150, 12_288, 40_000, 100_001]);
    for (n, len) in lens.enumerate() {
        let key = format!("key{n}").into_bytes();
        let value: Vec<u8> = (0..len).map(|i| (i * 7 + n) as u8).collect();
        db.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    model
}

fn check(disk: Arc<dyn Disk>, dir: &Path, index: IndexKind) {
    let db = open(disk.clone(), dir, index, true);
    let mut model = fill(&db);
    for _ in 0..2 {
        for (key, value) in &model {
            assert_eq!(*db.get(key).unwrap().unwrap(), **value);
        }
        let found: Model = db
            .iter()
            .map(|item| item.map(|(key, entry)| (key, entry.value.into_vec())).unwrap())
            .collect();
        assert_eq!(found, model);
        // Again, with some of it overwritten and compacted.
        for n in 0..100 {
            let key = format!("key{n}").into_bytes();
            db.put(&key, b"new").unwrap();
            model.insert(key, b"new".to_vec());
        }
        db.compact().unwrap();
    }
    db.close().unwrap();
    for direct_io in [true, false] {
        let db = open(disk.clone(), dir, index, direct_io);
        for (key, value) in &model {
            assert_eq!(*db.get(key).unwrap().unwrap(), **value);
        }
        assert_eq!(db.get(b"nothing").unwrap(), None);
    }
}

#[test]
fn real_disk() {
    let dir = std::env::temp_dir().join(format!("tierce-cask-direct-{}", std::process::id()));
    let dir = Scratch(dir);
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        check(Arc::new(OsDisk), &dir.0.join(format!("{index:?}")), index);
    }
}

#[test]
fn simulated_disk() {
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        check(Arc::new(SimDisk::new(1)), Path::new("/store"), index);
    }
}

/// If the file system supports direct I/O, finished segments are really read that way.
#[test]
fn descriptors_have_the_flag() {
    let dir = std::env::temp_dir().join(format!("tierce-cask-flag-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let dir = Scratch(dir.canonicalize().unwrap());
    let probe = dir.0.join("probe");
    std::fs::write(&probe, b"").unwrap();
    let is_known = OsDisk.open(&probe, OpenMode::Direct).unwrap().is_direct();
    let db = open(Arc::new(OsDisk), &dir.0.join("store"), IndexKind::Hash, true);
    let model = fill(&db);
    db.close().unwrap();
    let db = open(Arc::new(OsDisk), &dir.0.join("store"), IndexKind::Hash, true);
    for key in model.keys() {
        db.get(key).unwrap();
    }
    let mut seen = 0;
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let entry = entry.unwrap();
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        if !target.starts_with(dir.0.join("store")) || target.extension().is_none_or(|e| e != "seg")
        {
            continue;
        }
        let info = Path::new("/proc/self/fdinfo").join(entry.file_name());
        let info = std::fs::read_to_string(info).unwrap();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
        let flags = u32::from_str_radix(flags.trim(), 8).unwrap();
        assert_eq!(flags & OFlags::DIRECT.bits() != 0, is_known, "{}", target.display());
        seen += 1;
    }
    assert!(seen > 2, "{seen} segments are open");
}
