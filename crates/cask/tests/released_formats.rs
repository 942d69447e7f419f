//! Stores written by released versions open with all their data.
//!
//! `tests/fixtures/<version>/` holds one for each kind of index, closed and killed. Before a format changes, the
//! previous version is frozen, by the code of that version:
//!
//! ```text
//! cargo test -p tierce-cask --test released_formats -- --ignored freeze_this_version
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tierce_cask::{Batch, Compression, Db, IndexKind, Options, SyncPolicy};
use tierce_harness::{TempDir, freeze, thaw};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
const KINDS: [(&str, IndexKind); 2] = [("hash", IndexKind::Hash), ("ordered", IndexKind::Ordered)];
const KEYS: usize = 400;

fn options(index: IndexKind, compression: Compression) -> Options {
    Options {
        index,
        compression,
        shards: Some(2),
        segment_size_bytes: 16 * 1024,
        tail_bytes: 8 * 1024,
        sync: SyncPolicy::None,
        background_threads: false,
        ..Options::default()
    }
}

fn value(key: usize, round: usize) -> Vec<u8> {
    format!("value {key} of round {round} ").repeat(1 + key % 7).into_bytes()
}

fn name(key: usize) -> Vec<u8> {
    format!("key:{key:05}").into_bytes()
}

/// Writes: overwrites, deletes, batches, compressed records, and a compaction between them.
fn fill(db: &Db) {
    for key in 0..KEYS {
        db.put(&name(key), &value(key, 0)).expect("written");
    }
    for key in (0..KEYS).step_by(3) {
        db.delete(&name(key)).expect("written");
    }
    db.compact().expect("compacted");
    for key in (0..KEYS).step_by(4) {
        let mut batch = Batch::new();
        batch.put(name(key), value(key, 1)).delete(name(key + 1));
        db.write(&batch).expect("written");
    }
    db.put(b"", b"empty key").expect("written");
    db.put(b"empty value", b"").expect("written");
}

/// Returns the same content, computed by rules instead of writes.
fn expected() -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut contents = BTreeMap::new();
    for key in 0..KEYS {
        match (key % 4, key % 3) {
            (0, _) => _ = contents.insert(name(key), value(key, 1)),
            (1, _) | (_, 0) => {}
            _ => _ = contents.insert(name(key), value(key, 0)),
        }
    }
    contents.insert(Vec::new(), b"empty key".to_vec());
    contents.insert(b"empty value".to_vec(), Vec::new());
    contents
}

fn contents(db: &Db) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let items = db.iter().map(|item| item.expect("readable"));
    items.map(|(key, entry)| (key, entry.value.into_vec())).collect()
}

#[test]
fn stores_of_all_released_versions_open_with_all_their_data() {
    let mut tried = 0;
    for version in std::fs::read_dir(FIXTURES).expect("fixtures") {
        let version = version.expect("an entry").path();
        for (kind, index) in KINDS {
            for end in ["closed", "killed"] {
                let dir = TempDir::new();
                thaw(&version.join(format!("{kind}-{end}")), dir.path());
                // The second opening reads the files as this version rewrote them.
                for _ in 0..2 {
                    let db = Db::open(dir.path(), options(index, Compression::None));
                    let db = db.unwrap_or_else(|error| panic!("{}: {error}", version.display()));
                    assert_eq!(contents(&db), expected(), "{} {kind} {end}", version.display());
                    db.compact().expect("compacted");
                }
                tried += 1;
            }
        }
    }
    assert!(tried >= 4, "at least one version has been released");
}

#[test]
#[ignore = "writes fixtures; see the head of this file"]
fn freeze_this_version() {
    let version = env!("CARGO_PKG_VERSION").rsplit_once('.').expect("three numbers").0;
    let to = |name: String| -> PathBuf { Path::new(FIXTURES).join(version).join(name) };
    for (kind, index) in KINDS {
        let dir = TempDir::new();
        let db = Db::open(dir.path(), options(index, Compression::Snappy)).expect("opened");
        fill(&db);
        assert_eq!(contents(&db), expected());
        // As the death of the process would leave it: no shutdown work is done.
        freeze(dir.path(), &to(format!("{kind}-killed")));
        db.close().expect("closed");
        freeze(dir.path(), &to(format!("{kind}-closed")));
    }
}
