//! `tierce check` and `tierce repair` from outside: output and exit codes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tierce_cask::{Db, IndexKind, Options};
use tierce_harness::TempDir;

fn tool(name: &str, paths: &[&Path]) -> Output {
    Command::new(crate::program()).arg(name).args(paths).output().expect("the program")
}

/// Runs a tool. Returns exit code, standard output and standard error.
fn run(name: &str, paths: &[&Path]) -> (i32, String, String) {
    let output = tool(name, paths);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("no signal"), text(&output.stdout), text(&output.stderr))
}

const KEYS: u32 = 500;

fn options() -> Options {
    let index = IndexKind::Ordered;
    Options { shards: Some(2), segment_size_bytes: 16 << 10, index, ..Options::default() }
}

/// Makes a closed store of [`KEYS`] keys.
fn make(dir: &Path) {
    let db = Db::open(dir, options()).expect("a store");
    for n in 0..KEYS {
        db.put(&n.to_be_bytes(), &[n as u8; 100]).expect("a write");
    }
    db.close().expect("all is durable");
}

fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let paths = fs::read_dir(dir).expect("a store").map(|entry| entry.expect("it").path());
    let mut found: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|it| it == extension)).collect();
    found.sort();
    found
}

/// Flips a bit in the middle of the first segment and returns the segment.
fn damage(dir: &Path) -> (PathBuf, u64) {
    let segment = files(dir, "seg").remove(0);
    let mut bytes = fs::read(&segment).expect("a segment");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&segment, bytes).expect("a segment");
    (segment, middle as u64)
}

#[test]
fn a_sound_store_checks_out() {
    let scratch = TempDir::new();
    let store = scratch.path().join("store");
    make(&store);
    let (code, told, progress) = run("check", &[&store]);
    assert_eq!(code, 0, "{told}{progress}");
    assert!(told.contains("500 good records") && told.ends_with("the store is sound\n"), "{told}");
    assert_eq!(progress, "", "short work has no progress");
    let quiet = tool("check", &[&store, Path::new("--quiet")]);
    assert!(quiet.status.success() && quiet.stderr.is_empty());
}

#[test]
fn damage_is_named_by_file_and_offset_and_repair_saves_the_rest() {
    let scratch = TempDir::new();
    let (store, saved) = (scratch.path().join("store"), scratch.path().join("saved"));
    make(&store);
    let (segment, at) = damage(&store);

    let (code, told, _) = run("check", &[&store]);
    assert_eq!(code, 1, "{told}");
    let line = told.lines().find(|line| line.starts_with("damage: ")).expect("a line of damage");
    let named = format!("damage: {} is damaged at offset ", segment.display());
    let offset =
        line.strip_prefix(&named).and_then(|rest| rest.split_once(':')).expect("an offset");
    let offset: u64 = offset.0.parse().expect("a number");
    assert!(offset <= at && at - offset < 256, "the record of byte {at} begins at {offset}");
    assert!(told.ends_with("1 problem found\n"), "{told}");

    let (code, told, _) = run("repair", &[&store, &saved]);
    assert_eq!(code, 1, "something was lost: {told}");
    assert!(told.contains("saved: 499 records of ") && told.contains("skipped: "), "{told}");
    let (code, told, _) = run("check", &[&saved]);
    assert_eq!(code, 0, "{told}");

    let db = Db::open(&saved, options()).expect("the saved store");
    let found = db.iter().map(|item| item.expect("a sound record"));
    let right = found.filter(|(key, entry)| {
        let n = u32::from_be_bytes(key[..].try_into().expect("4 bytes"));
        entry.value[..] == [n as u8; 100]
    });
    assert_eq!(right.count(), KEYS as usize - 1);
    db.close().expect("closed");

    let third = scratch.path().join("third");
    let (code, told, _) = run("repair", &[&saved, &third]);
    assert_eq!(code, 0, "a second repair loses nothing: {told}");
    assert!(told.ends_with("everything was saved\n"), "{told}");
}

#[test]
fn a_lost_manifest_is_damage_and_can_be_repaired() {
    let scratch = TempDir::new();
    let (store, saved) = (scratch.path().join("store"), scratch.path().join("saved"));
    make(&store);
    fs::write(store.join("MANIFEST"), "rubbish").expect("a file");
    let (code, told, _) = run("check", &[&store]);
    assert_eq!(code, 1, "{told}");
    assert!(told.contains("MANIFEST is damaged at offset "), "{told}");
    let (code, told, _) = run("repair", &[&store, &saved]);
    assert_eq!(code, 0, "all records are there: {told}");
    assert_eq!(run("check", &[&saved]).0, 0);
}

#[test]
fn a_repair_finds_the_log_in_a_data_directory() {
    let scratch = TempDir::new();
    let (data, saved) = (scratch.path().join("data"), scratch.path().join("saved"));
    let log = data.join("wal");
    fs::create_dir(&data).expect("a directory");
    make(&log);
    fs::remove_file(log.join("MANIFEST")).expect("a file");
    let (code, told, error) = run("repair", &[&data, &data]);
    assert_eq!((code, told.as_str()), (2, ""), "{error}");
    let (code, told, error) = run("repair", &[&data, &saved]);
    assert_eq!(code, 0, "all records are there: {told}{error}");
    let advice = format!("move {} away and {} into its place\n", log.display(), saved.display());
    assert!(told.ends_with(&advice), "{told}");
    assert_eq!(run("check", &[&saved]).0, 0);
    assert!(log.exists() && !data.join("MANIFEST").exists(), "the damaged store is not touched");
}

#[test]
fn what_cannot_be_checked_is_said_in_one_line() {
    let scratch = TempDir::new();
    let (store, empty) = (scratch.path().join("store"), scratch.path().join("empty"));
    make(&store);
    fs::create_dir(&empty).expect("a directory");
    let into = scratch.path().join("into");
    let refused = |name: &str, paths: &[&Path], reason: &str| {
        let (code, told, error) = run(name, paths);
        assert_eq!((code, told.as_str()), (2, ""), "{name} {paths:?}: {error}");
        assert!(error.contains(reason) && error.lines().count() == 1, "{error}");
    };
    refused("check", &[&empty], "holds no store; name the directory");
    refused("check", &[&scratch.path().join("nowhere")], "holds no store");
    refused("repair", &[&empty, &into], "holds no store");
    refused("repair", &[&store, &store], "");
    let other = scratch.path().join("other");
    make(&other);
    refused("repair", &[&store, &other], "a repair needs a directory without a store");
    assert_eq!(fs::read_dir(&empty).expect("a directory").count(), 0, "checking leaves nothing");
    assert!(!into.exists(), "a refused repair leaves nothing");
    assert_eq!(tool("check", &[]).status.code(), Some(2));
}

/// First message of a tool about a store that is in use.
const WAITS: &str = " is in use by another process; waiting up to 5 s for its end\n";

#[test]
fn a_store_that_stays_in_use_is_refused() {
    let scratch = TempDir::new();
    let store = scratch.path().join("store");
    make(&store);
    let db = Db::open(&store, options()).expect("a store");
    let (code, told, error) = run("check", &[&store]);
    assert_eq!((code, told.as_str()), (2, ""), "{error}");
    let refusal = error.strip_prefix(&format!("tierce: {}{WAITS}", store.display())).expect(&error);
    assert!(refusal.contains("is in use by another process; stop the server or"), "{error}");
    assert_eq!(refusal.lines().count(), 1, "{error}");
    db.close().expect("closed");
}

#[test]
fn tools_wait_for_the_end_of_a_server_that_leaves_its_store() {
    let scratch = TempDir::new();
    let (store, into) = (scratch.path().join("store"), scratch.path().join("into"));
    make(&store);
    for (name, paths) in [("check", vec![&store]), ("repair", vec![&store, &into])] {
        let db = Db::open(&store, options()).expect("a store");
        let mut child = Command::new(crate::program())
            .arg(name)
            .args(paths)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program");
        let mut errors = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        errors.read_line(&mut line).expect("a line");
        assert!(line.ends_with(WAITS), "{line}");
        db.close().expect("closed");
        let output = child.wait_with_output().expect("the program");
        assert_eq!(output.status.code(), Some(0), "{name}");
    }
}
