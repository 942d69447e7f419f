//! An engine that a program opens by itself, without a server around it.

use std::path::Path;
use std::sync::Arc;

use tierce_cask::disk::OsDisk;
use tierce_config::{Invocation, LogLevel, Peer, Settings, parse};
use tierce_engine::log::Log;
use tierce_engine::persistence::Cause;
use tierce_engine::{Engine, OpenError};
use tierce_harness::TempDir;
use tierce_keyspace::{DbIndex, Expiry, Policy};

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
    engine.keyspace.locks().for_each(DbIndex::ZERO, 0, |entry| {
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
    // Long over, by the clock of the machine.
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
