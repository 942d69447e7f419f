//! Tests of an engine that a program opens by itself, without a server around it.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tierce_config::{Invocation, LogLevel, Peer, Settings, parse};
use tierce_engine::feed::Reader;
use tierce_engine::log::Log;
use tierce_engine::persistence::{Cause, CopySink, SaveError};
use tierce_engine::{Engine, OpenError, ReloadError};
use tierce_harness::TempDir;
use tierce_keyspace::{DbIndex, Expiry, Policy, StreamPosition, VersionFor, for_each_entry};
use tierce_storage::disk::OsDisk;

fn settings(dir: &Path, more: &[&str]) -> Settings {
    let mut args = vec!["--dir".into(), dir.into()];
    args.extend(more.iter().map(|arg| arg.into()));
    let Ok(Invocation::Serve(sources)) = parse(args, [], &[]) else { panic!("{more:?}") };
    sources.load(&mut std::io::empty()).expect("valid").settings
}

fn open(dir: &Path, more: &[&str]) -> Result<Arc<Engine>, OpenError> {
    let log = Log::open(None, LogLevel::Nothing).expect("nothing is opened");
    Engine::open(settings(dir, more), Arc::new(OsDisk), log)
}

fn set(engine: &Engine, name: &str, expiry: Expiry) {
    let key = engine.keyspace.key(name.as_bytes());
    let mut locks = engine.keyspace.locks();
    locks.db(DbIndex::ZERO, key.hash(), 0).set(key, "a value", expiry).expect("a string");
}

fn keys(engine: &Engine) -> Vec<String> {
    let mut names = Vec::new();
    for_each_entry(&mut engine.keyspace.locks(), DbIndex::ZERO, 0, |entry| {
        names.push(String::from_utf8(entry.key().to_vec()).expect("text"));
    });
    names.sort_unstable();
    names
}

#[test]
fn what_was_set_is_there_again_but_for_what_has_expired() {
    let dir = TempDir::new();
    let engine = open(dir.path(), &[]).expect("a new store");
    set(&engine, "kept", Expiry::Never);
    // Long past, by the clock of the machine.
    set(&engine, "expired", Expiry::At(1000));
    engine.close();
    let engine = open(dir.path(), &[]).expect("the store");
    assert_eq!(keys(&engine), ["kept"]);
    engine.close();
}

#[test]
fn without_a_log_the_snapshot_counts() {
    let dir = TempDir::new();
    let engine = open(dir.path(), &["--appendonly", "no"]).expect("a new store");
    set(&engine, "saved", Expiry::Never);
    let begun = engine.begin_save(&mut engine.keyspace.locks(), 0, Cause::Foreground, None);
    engine.persistence.wait(begun.expect("no other save")).expect("a disk");
    set(&engine, "later", Expiry::Never);
    engine.close();
    let engine = open(dir.path(), &["--appendonly", "no"]).expect("the store");
    assert_eq!(keys(&engine), ["saved"]);
    assert_eq!(engine.unsaved_changes(), 0);
    engine.close();
}

/// Takes a full copy, up to so many bytes, and records its outcome.
#[derive(Clone, Default)]
struct Sink {
    bytes: Arc<Mutex<Vec<u8>>>,
    outcome: Arc<Mutex<Option<Result<(), String>>>>,
    bytes_max: usize,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut taken = self.bytes.lock().unwrap();
        if taken.len() + bytes.len() > self.bytes_max {
            return Err(io::Error::other("all replicas have gone"));
        }
        taken.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl CopySink for Sink {
    fn end(self: Box<Self>, outcome: Result<(), &SaveError>) {
        *self.outcome.lock().unwrap() = Some(outcome.map_err(|error| error.to_string()));
    }
}

#[test]
fn a_full_copy_has_what_there_was_at_its_moment() {
    let dir = TempDir::new();
    let engine = open(dir.path(), &["--appendonly", "no"]).expect("a new store");
    (0..100).for_each(|number| set(&engine, &format!("before:{number}"), Expiry::Never));
    let sink = Sink { bytes_max: usize::MAX, ..Sink::default() };
    let is_called = Arc::new(Mutex::new(false));
    let noted = Arc::clone(&is_called);
    let begun = engine.begin_copy(&mut engine.keyspace.locks(), 0, Box::new(sink.clone()), || {
        *noted.lock().unwrap() = true;
    });
    assert!(*is_called.lock().unwrap(), "called before it returns");
    set(&engine, "after", Expiry::Never);
    engine.persistence.wait(begun.expect("no other save")).expect("nothing fails");
    assert_eq!(*sink.outcome.lock().unwrap(), Some(Ok(())));
    assert_eq!(engine.persistence.report().saves, 0, "it is no save");
    assert_eq!(engine.unsaved_changes(), 101);
    engine.close();

    let copied = TempDir::new();
    std::fs::write(copied.path().join("dump.rdb"), &*sink.bytes.lock().unwrap()).expect("a file");
    let engine = open(copied.path(), &["--appendonly", "no"]).expect("the copy");
    let expected: std::collections::BTreeSet<_> =
        (0..100).map(|number| format!("before:{number}")).collect();
    assert_eq!(keys(&engine), expected.into_iter().collect::<Vec<_>>());
    engine.close();
}

#[test]
fn a_copy_that_is_not_wanted_any_more_replaces_nothing() {
    let dir = TempDir::new();
    let engine = open(dir.path(), &["--appendonly", "no"]).expect("a new store");
    set(&engine, "of the copy", Expiry::Never);
    let (file, mut locks) = (dir.path().join("dump.rdb"), engine.keyspace.locks());
    let begun = engine.begin_save(&mut locks, 0, Cause::Background, None);
    locks.release();
    engine.persistence.wait(begun.expect("no other save")).expect("nothing fails");
    set(&engine, "written since", Expiry::Never);
    let place = StreamPosition { stream: [b'a'; 40], offset: 1, db: DbIndex::ZERO };
    let replaced = engine.replace_all(&file, &mut locks, place, || false);
    assert!(matches!(replaced, Err(ReloadError::NotWanted)), "{replaced:?}");
    locks.release();
    assert_eq!(keys(&engine), ["of the copy", "written since"]);
    engine.replace_all(&file, &mut locks, place, || true).expect("a whole file");
    locks.release();
    assert_eq!(keys(&engine), ["of the copy"]);
    drop(locks);
    engine.close();
}

/// Returns the bytes of a snapshot with more keys than are loaded at once.
fn snapshot_of_many_keys() -> Vec<u8> {
    let dir = TempDir::new();
    let engine = open(dir.path(), &["--appendonly", "no"]).expect("a new store");
    (0..10_000).for_each(|number| set(&engine, &format!("key:{number}"), Expiry::Never));
    let (file, mut locks) = (dir.path().join("dump.rdb"), engine.keyspace.locks());
    let begun = engine.begin_save(&mut locks, 0, Cause::Background, None);
    locks.release();
    engine.persistence.wait(begun.expect("no other save")).expect("nothing fails");
    drop(locks);
    engine.close();
    std::fs::read(file).expect("a snapshot")
}

/// Holds also for a server without data, which does not verify the file in advance.
#[test]
fn nothing_of_a_damaged_copy_stays() {
    let mut bytes = snapshot_of_many_keys();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    for (has_data, log) in [(false, "yes"), (true, "yes"), (false, "no"), (true, "no")] {
        let dir = TempDir::new();
        let engine = open(dir.path(), &["--appendonly", log]).expect("a new store");
        if has_data {
            set(&engine, "of before", Expiry::Never);
        }
        let before = keys(&engine);
        let damaged = dir.path().join("damaged.rdb");
        let place = StreamPosition { stream: [b'a'; 40], offset: 1, db: DbIndex::ZERO };
        for len in [bytes.len(), middle] {
            std::fs::write(&damaged, &bytes[..len]).expect("a file");
            let mut locks = engine.keyspace.locks();
            let replaced = engine.replace_all(&damaged, &mut locks, place, || true);
            assert!(matches!(replaced, Err(ReloadError::Load(_))), "{replaced:?}");
            drop(locks);
            assert_eq!(keys(&engine), before);
        }
        engine.close();
        if log == "no" {
            continue;
        }
        let engine = open(dir.path(), &["--appendonly", "yes"]).expect("the same store");
        assert_eq!(keys(&engine), before);
        engine.close();
    }
}

/// Holds also without a log, where the server is emptied before the load.
#[test]
fn a_value_that_is_too_long_is_noticed_before_the_old_data_go() {
    let (dir, file) = (TempDir::new(), b"REDIS0010\xfe\x00\x00\x01k\x80\x00\x20\x00\x00".to_vec());
    let len = 2 << 20;
    let bytes = [file, vec![b'x'; len], vec![0xff, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
    let path = dir.path().join("copy.rdb");
    std::fs::write(&path, bytes).expect("a file");
    let options = ["--appendonly", "no", "--proto-max-bulk-len", "1mb"];
    let engine = open(dir.path(), &options).expect("a new store");
    set(&engine, "of before", Expiry::Never);
    let mut locks = engine.keyspace.locks();
    let place = StreamPosition { stream: [b'a'; 40], offset: 1, db: DbIndex::ZERO };
    let replaced = engine.replace_all(&path, &mut locks, place, || true);
    let error = replaced.map(drop).expect_err("the limit is lower").to_string();
    assert!(
        error.contains("a value of 2097152 bytes is longer than the 1048576 allowed"),
        "{error}"
    );
    drop(locks);
    assert_eq!(keys(&engine), ["of before"]);
    engine.close();
}

/// A server without a log may lack data for a moment, so it is emptied first.
#[test]
fn a_copy_that_breaks_off_without_a_log_leaves_nothing() {
    let dir = TempDir::new();
    let (file, bytes) = (dir.path().join("copy.rdb"), snapshot_of_many_keys());
    std::fs::write(&file, &bytes).expect("a file");
    let engine = open(dir.path(), &["--appendonly", "no"]).expect("a new store");
    set(&engine, "of before", Expiry::Never);
    let mut locks = engine.keyspace.locks();
    let place = StreamPosition { stream: [b'a'; 40], offset: 1, db: DbIndex::ZERO };
    let break_off = || {
        std::fs::write(&file, &bytes[..bytes.len() / 2]).expect("a file");
        true
    };
    let replaced = engine.replace_all(&file, &mut locks, place, break_off);
    assert!(matches!(replaced, Err(ReloadError::Load(_))), "{replaced:?}");
    drop(locks);
    assert_eq!((keys(&engine), engine.keyspace.stream_position()), (Vec::new(), None));
    engine.close();
}

/// Values longer than the read-ahead, among many short ones, go into a replica whose own feed is paused.
#[test]
fn a_copy_replaces_all_and_is_no_change_for_a_follower_that_pauses() {
    const LONG: usize = 3 << 20;
    let value = |number: usize| match number % 1000 {
        7 => vec![b'x'; LONG + number],
        _ => number.to_string().into_bytes(),
    };
    let key = |number: usize| format!("key:{number}");
    let dir = TempDir::new();
    let file = dir.path().join("dump.rdb");
    let primary = open(dir.path(), &["--appendonly", "no"]).expect("a new store");
    let mut locks = primary.keyspace.locks();
    for number in 0..10_000 {
        let name = key(number);
        let key = primary.keyspace.key(name.as_bytes());
        let mut db = locks.db(DbIndex::ZERO, key.hash(), 0);
        db.set(key, value(number).as_slice(), Expiry::Never).expect("a string");
    }
    locks.release();
    let begun = primary.begin_save(&mut locks, 0, Cause::Background, None);
    locks.release();
    primary.persistence.wait(begun.expect("no other save")).expect("nothing fails");

    let place = StreamPosition { stream: [b'a'; 40], offset: 1, db: DbIndex::ZERO };
    for log in ["no", "yes"] {
        let dir = TempDir::new();
        let replica = open(dir.path(), &["--appendonly", log]).expect("a new store");
        set(&replica, "of before", Expiry::Never);
        set(&replica, "key:5", Expiry::Never);
        let mut follower = replica.follow(Reader::Replicas, usize::MAX).expect("there is none");
        replica.keyspace.set_following(true);
        replica.feed.pause(Reader::Replicas);
        let mut locks = replica.keyspace.locks();
        let loaded = replica.replace_all(&file, &mut locks, place, || true).expect("a whole file");
        assert_eq!((loaded.keys, replica.keyspace.stream_position()), (10_000, Some(place)));
        for number in 0..10_000 {
            let name = key(number);
            let key = replica.keyspace.key(name.as_bytes());
            let mut db = locks.db(DbIndex::ZERO, key.hash(), 0);
            let item = db.item(key, VersionFor::None).expect("a string").expect("a key");
            assert!(item.value.to_vec() == value(number), "{name}");
        }
        drop(locks);
        assert_eq!(keys(&replica).len(), 10_000);
        replica.feed.resume(Reader::Replicas);
        assert!(follower.wait(Duration::ZERO).expect("few bytes").is_empty());
        set(&replica, "of now", Expiry::Never);
        assert!(!follower.wait(Duration::ZERO).expect("few bytes").is_empty());
        drop(follower);
        replica.close();
    }
    drop(locks);
    primary.close();
}

/// The loaded part stays, and no longer has the old replication offset: neither now nor after a restart.
#[test]
fn a_copy_that_breaks_off_while_it_is_loaded_leaves_data_of_no_place() {
    let dir = TempDir::new();
    let (file, bytes) = (dir.path().join("copy.rdb"), snapshot_of_many_keys());
    std::fs::write(&file, &bytes).expect("a file");
    let engine = open(dir.path(), &["--appendonly", "yes"]).expect("a new store");
    set(&engine, "of before", Expiry::Never);
    let place = StreamPosition { stream: [b'a'; 40], offset: 1, db: DbIndex::ZERO };
    engine.keyspace.set_following(true);
    let mut locks = engine.keyspace.locks();
    locks.move_to(Some(place));
    locks.release();
    assert_eq!(engine.keyspace.stream_position(), Some(place));
    let break_off = || {
        std::fs::write(&file, &bytes[..bytes.len() / 2]).expect("a file");
        true
    };
    let later = StreamPosition { offset: 2, ..place };
    let replaced = engine.replace_all(&file, &mut locks, later, break_off);
    assert!(matches!(replaced, Err(ReloadError::Load(_))), "{replaced:?}");
    drop(locks);
    assert!(keys(&engine).len() > 1, "a part was loaded");
    assert_eq!(engine.keyspace.stream_position(), None);
    engine.close();
    let engine = open(dir.path(), &["--appendonly", "yes"]).expect("the same store");
    assert_eq!(engine.keyspace.stream_position(), None);
    engine.close();
}

#[test]
fn a_full_copy_that_fails_is_told_and_held_against_nothing() {
    let dir = TempDir::new();
    let engine = open(dir.path(), &["--appendonly", "no"]).expect("a new store");
    (0..1000).for_each(|number| set(&engine, &format!("key:{number}"), Expiry::Never));
    let sink = Sink { bytes_max: 20, ..Sink::default() };
    let mut locks = engine.keyspace.locks();
    let begun = engine.begin_copy(&mut locks, 0, Box::new(sink.clone()), || {});
    engine.persistence.wait(begun.expect("no other save")).expect_err("the sink fails");
    let told = sink.outcome.lock().unwrap().take().expect("the end is told");
    assert!(told.is_err_and(|error| error.contains("all replicas have gone")));
    let report = engine.persistence.report();
    assert!(report.is_last_ok && report.running.is_none() && !engine.persistence.refuses_writes());
    // The next copy can begin.
    let sink = Sink { bytes_max: usize::MAX, ..Sink::default() };
    let begun = engine.begin_copy(&mut locks, 0, Box::new(sink), || {});
    engine.persistence.wait(begun.expect("no other save")).expect("nothing fails");
    drop(locks);
    engine.close();
}

#[test]
fn changes_of_the_configuration_take_effect() {
    let dir = TempDir::new();
    let engine = open(dir.path(), &[]).expect("a new store");
    let pairs: [(&[u8], &[u8]); 3] = [
        (b"maxmemory", b"1gb"),
        (b"maxmemory-policy", b"allkeys-lfu"),
        (b"proto-max-bulk-len", b"1mb"),
    ];
    engine.config.set(&pairs, Peer::Local).expect("valid");
    let eviction = engine.keyspace.eviction();
    assert_eq!((eviction.limit_bytes, eviction.policy), (1 << 30, Policy::AllkeysLfu));
    assert_eq!(engine.keyspace.value_len_max(), 1 << 20);
    engine.close();
}

#[test]
fn a_directory_belongs_to_one_engine_at_a_time() {
    let dir = TempDir::new();
    let engine = open(dir.path(), &[]).expect("a new store");
    let Err(error) = open(dir.path(), &[]) else { panic!("opened twice") };
    assert!(matches!(error, OpenError::Recovery(_)), "{error}");
    engine.close();
    open(dir.path(), &[]).expect("it is free").close();
}
