//! `open_files_max` limits the descriptors of a store, as seen from outside.
//!
//! Alone in its file: descriptors belong to the process, and other tests would add theirs.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tierce_cask::{Compression, Db, IndexKind, Options, SyncPolicy};

const OPEN_FILES_MAX: usize = 5;
const SHARDS: usize = 2;
const READERS: usize = 3;
const LOOKS_MIN: usize = 50;

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Descriptors of this process that lead to segments in `dir`.
fn open_segments(dir: &Path) -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    // A descriptor that was closed since the listing has no target.
    let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    targets.filter(|path| path.starts_with(dir) && path.to_string_lossy().contains(".seg")).count()
}

#[test]
fn no_more_segments_are_open_than_allowed() {
    let dir = std::env::temp_dir().join(format!("tierce-cask-open-files-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let dir = Scratch(dir.canonicalize().unwrap());
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        let path = dir.0.join(format!("{index:?}"));
        let options = Options {
            index,
            shards: Some(SHARDS as u32),
            segment_size_bytes: 4096,
            compression: Compression::None,
            sync: SyncPolicy::None,
            read_cache_bytes: 0,
            open_files_max: OPEN_FILES_MAX,
            background_threads: false,
            ..Options::default()
        };
        let db = Db::open(&path, options).unwrap();
        for n in 0..400u32 {
            db.put(&n.to_be_bytes(), &[n as u8; 300]).unwrap();
        }
        let segments = db.stats().segments as usize;
        assert!(segments > 4 * OPEN_FILES_MAX, "{segments} segments say nothing");
        let (stop, looks) = (AtomicBool::new(false), AtomicUsize::new(0));
        let mut most = 0;
        std::thread::scope(|scope| {
            for reader in 0..READERS as u32 {
                let (db, stop, looks) = (&db, &stop, &looks);
                scope.spawn(move || {
                    // Until it was checked often enough while reads went on.
                    for n in
                        (0..).take_while(|n| *n < 4000 || looks.load(Ordering::Relaxed) < LOOKS_MIN)
                    {
                        let n = (n % 400 * 7919 + reader * 131) % 400;
                        assert_eq!(db.get(&n.to_be_bytes()).unwrap().unwrap()[0], n as u8);
                    }
                    stop.store(true, Ordering::Relaxed);
                });
            }
            while !stop.load(Ordering::Relaxed) {
                most = most.max(open_segments(&path));
                looks.fetch_add(1, Ordering::Relaxed);
            }
        });
        // In addition to those kept: the segments being written, and one that each reader still
        // holds while it is evicted and another one is opened.
        assert!(most <= OPEN_FILES_MAX + SHARDS + 2 * READERS, "{most} descriptors");
        assert!(most > SHARDS, "{most} descriptors: nothing was read meanwhile");
        let rest = open_segments(&path);
        assert!(rest <= OPEN_FILES_MAX + SHARDS, "{rest} descriptors are kept");
        assert!(db.stats().open_files as usize <= OPEN_FILES_MAX);
        db.close().unwrap();
        drop(db);
        assert_eq!(open_segments(&path), 0, "closing closes them all");
    }
}
