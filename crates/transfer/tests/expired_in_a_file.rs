//! Keys that had expired when a snapshot was written stay expired, whatever the clock says when it is loaded or
//! imported.

use std::fs::write;
use std::path::{Path, PathBuf};

use tierce_config::LogLevel;
use tierce_engine::clock::unix_ms;
use tierce_engine::loading::Loading;
use tierce_engine::log::Log;
use tierce_engine::persistence::{Unfit, load};
use tierce_harness::TempDir;
use tierce_keyspace::{Keyspace, Options};
use tierce_rdb::{Attributes, Writer, WriterOptions};
use tierce_transfer::{ImportMode, ImportOptions, import};

const HOUR_MS: i64 = 60 * 60 * 1000;

/// Writes a snapshot that states when it was written; its file changes now. Its key has a deadline.
fn snapshot(dir: &TempDir, written: i64, deadline_ms: i64) -> PathBuf {
    let mut writer = Writer::new(Vec::new(), WriterOptions::default()).unwrap();
    writer.aux(b"ctime", written.to_string().as_bytes()).unwrap();
    let expiry_ms = Some(deadline_ms as u64);
    let attributes = Attributes { expiry_ms, ..Attributes::default() };
    writer.entry(b"key", &attributes).string(b"value").unwrap();
    let path = dir.path().join("from-elsewhere.rdb");
    write(&path, writer.finish().unwrap()).unwrap();
    path
}

/// Passes snapshots to `read`, which returns the number of keys and the number of expired ones.
fn check(read: impl Fn(&Path) -> (u64, u64)) {
    let now_ms = unix_ms();
    let loaded = |written, deadline_ms| {
        let dir = TempDir::new();
        read(&snapshot(&dir, written, deadline_ms))
    };
    let hours = |hours: i64| now_ms + hours * HOUR_MS;
    // The clock is an hour behind the clock of the writer.
    assert_eq!(loaded(hours(2) / 1000, hours(1)), (0, 1), "it comes back");
    assert_eq!(loaded(hours(2) / 1000, hours(3)), (1, 0));
    // Milliseconds instead of seconds, and a clock that was years ahead.
    for written in [now_ms, hours(50_000) / 1000, i64::MAX] {
        assert_eq!(loaded(written, hours(48)), (1, 0), "written {written}");
        assert_eq!(loaded(written, hours(12)), (0, 1), "believed up to a day: {written}");
    }
}

#[test]
fn in_a_snapshot_that_is_loaded() {
    check(|path| {
        let keyspace = Keyspace::new(Options::default()).unwrap();
        let log = Log::open(None, LogLevel::Nothing).unwrap();
        let loading = Loading::default();
        let report = load(path, &keyspace, &log, true, Unfit::Refuse, &loading);
        let report = report.unwrap().expect("a file");
        (report.keys, report.expired)
    });
}

#[test]
fn in_a_snapshot_that_is_imported() {
    check(|path| {
        let dir = TempDir::new();
        let options = ImportOptions {
            source: path.to_owned(),
            dir: dir.path().join("data"),
            databases: 1,
            mode: ImportMode::IntoEmpty,
            skip_unknown: false,
            unfit: Unfit::Refuse,
            accepts_cut_off: false,
        };
        let imported = import(&options, |_| {}).unwrap();
        (imported.keys, imported.expired)
    });
}
