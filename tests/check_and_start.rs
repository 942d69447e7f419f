//! `tierce check` of a data directory predicts the outcome of a start, for any damage.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tierce_harness::{Launch, Outcome, TempDir, free_port, takes_up_to_seconds, wait_until};

use crate::{launch, program};

const KEYS: usize = 600;

/// Adds directives with memory for a small part of the keys; the values of the others are on disk.
fn directives(launch: Launch, dir: &Path) -> Launch {
    launch
        .with("appendonly", "yes")
        .with("dir", &dir.display().to_string())
        .with("maxmemory", "1mb")
        // Expanding strings would take most of the time.
        .with("rdbcompression", "no")
        .with("maxmemory-policy", "spill")
}

/// Makes the directory that a kill leaves of a server with a log, spilled values and a snapshot.
fn make(dir: &Path) {
    let mut server = directives(launch(), dir).start();
    let mut c = server.connect();
    for key in 0..KEYS {
        c.call(&["SET", &format!("key:{key}"), &format!("{key}").repeat(1500)]);
    }
    wait_until("values are on disk", || {
        let memory = c.ask("INFO memory").text().to_owned();
        memory.lines().any(|line| line.starts_with("spilled_keys:") && line != "spilled_keys:0")
    });
    c.check("SAVE", "+OK");
    server.signal(rustix::process::Signal::KILL);
    server.wait_for_end();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).expect("it");
        match path.is_dir() {
            true => copy(&path, &to.join(name)),
            false => _ = fs::copy(&path, to.join(name)).expect("a copy"),
        }
    }
}

/// Returns all files below a directory except locks, which are empty, with relative paths.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("it").path();
        match path.is_dir() {
            true => found.extend(files(&path).into_iter().map(|file| {
                let name = path.file_name().expect("a name");
                Path::new(name).join(file)
            })),
            false if path.ends_with("LOCK") => {}
            false => found.push(path.file_name().expect("a name").into()),
        }
    }
    found.sort();
    found
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Removed,
    CutAt(u64),
    FlippedAt(u64),
}

impl Damage {
    /// Returns kinds of damage to a file with `len` bytes before its trailing zeros.
    fn kinds(len: u64) -> Vec<Self> {
        let mut kinds = vec![Self::Removed, Self::CutAt(0)];
        if len > 0 {
            kinds.extend([1, len / 2, len - 1].map(Self::CutAt));
            kinds.extend([0, len / 3, len - 1].map(Self::FlippedAt));
        }
        kinds
    }

    fn apply(self, path: &Path) {
        match self {
            Self::Removed => fs::remove_file(path).expect("a file"),
            Self::CutAt(len) => {
                let file = fs::OpenOptions::new().write(true).open(path).expect("a file");
                file.set_len(len).expect("it is cut");
            }
            Self::FlippedAt(at) => {
                let mut bytes = fs::read(path).expect("a file");
                bytes[at as usize] ^= 0x10;
                fs::write(path, bytes).expect("a file");
            }
        }
    }
}

fn check(dir: &Path) -> (i32, String) {
    let output = Command::new(program()).arg("check").arg(dir).output().expect("the program");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap_or_else(|| panic!("a signal: {said}{errors}")), said)
}

fn snapshot_of(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    files(dir)
        .into_iter()
        .map(|file| (file.clone(), fs::read(dir.join(file)).expect("it")))
        .collect()
}

/// Checks and starts, and compares the results.
fn compare(dir: &Path, what: &str) {
    let before = snapshot_of(dir);
    let (code, said) = check(dir);
    assert!(before == snapshot_of(dir), "{what}: checking has changed something");
    let last = said.lines().last().unwrap_or_else(|| panic!("{what}: nothing was said, {code}"));
    assert!(matches!(code, 0 | 1), "{what}: {code} {said}");
    if last.starts_with("a start succeeds") {
        let server = directives(launch(), dir).start();
        let keys = server.connect().ask("DBSIZE").to_string();
        let expected = format!("a start succeeds: {} key", &keys[1..]);
        assert!(last.starts_with(&expected), "{what}: {keys}, {said}");
    } else {
        assert!(last.starts_with("a start is refused") && code == 1, "{what}: {said}");
        let outcome = run(dir);
        assert_eq!(outcome.code, Some(1), "{what}: {said}{outcome:?}");
    }
}

/// Makes a start that is expected to fail.
fn run(dir: &Path) -> Outcome {
    let launch = Launch::new(program()).with("port", &free_port().to_string());
    directives(launch, dir).run()
}

#[test]
fn a_check_says_what_a_start_does_for_each_damage_of_each_file() {
    takes_up_to_seconds(180);
    let scratch = TempDir::new();
    let whole = scratch.path().join("whole");
    make(&whole);
    let sound = scratch.path().join("sound");
    copy(&whole, &sound);
    let (code, said) = check(&sound);
    assert_eq!(code, 0, "{said}");
    assert!(said.ends_with(&format!("a start succeeds: {KEYS} keys\n")), "{said}");
    compare(&sound, "nothing is damaged");
    for file in files(&whole) {
        let bytes = fs::read(whole.join(&file)).expect("a file");
        let len = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1) as u64;
        for damage in Damage::kinds(len) {
            let dir = scratch.path().join("damaged");
            copy(&whole, &dir);
            damage.apply(&dir.join(&file));
            compare(&dir, &format!("{} {damage:?}", file.display()));
            fs::remove_dir_all(&dir).expect("it goes");
        }
    }
}

#[test]
fn missing_spilled_values_are_told_with_their_number() {
    let scratch = TempDir::new();
    make(scratch.path());
    let cold = scratch.path().join("cold");
    let file = files(&cold).into_iter().find(|file| file.extension().is_some());
    fs::remove_file(cold.join(file.expect("a file of values"))).expect("it goes");
    for dir in [scratch.path().to_owned(), scratch.path().join("wal")] {
        let (code, said) = check(&dir);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("a start is refused; with `spill-lost-values accept`"), "{said}");
        assert!(said.contains(" keys without a value: "), "{said}");
    }
}

#[test]
fn the_advice_of_a_refused_start_names_all_missing_files() {
    let dir = TempDir::new();
    make(dir.path());
    let cold = dir.path().join("cold");
    let removed: Vec<PathBuf> =
        files(&cold).into_iter().filter(|file| file.extension().is_some()).collect();
    removed.iter().for_each(|file| fs::remove_file(cold.join(file)).expect("it goes"));
    assert!(!removed.is_empty());
    let outcome = run(dir.path());
    let advice = format!("tierce check {}. ", dir.path().display());
    assert!(outcome.code == Some(1) && outcome.errors.contains(&advice), "{outcome:?}");
    let (code, said) = check(dir.path());
    assert_eq!(code, 1, "{said}");
    for file in removed {
        let line = format!("values lost: {} is missing", cold.join(file).display());
        assert!(said.contains(&line), "{line}: {said}");
    }
    // The files alone do not tell how many there were.
    let (code, said) = check(&cold);
    assert!(code == 0 && said.contains("only by a check of the data directory"), "{said}");
}

#[test]
fn a_check_reads_the_snapshot_that_a_start_imports() {
    let scratch = TempDir::new();
    let source = scratch.path().join("source");
    fs::create_dir(&source).expect("a directory");
    let server = launch().with("dir", &source.display().to_string()).start();
    let mut c = server.connect();
    c.check("SET key value", "+OK");
    c.check("SAVE", "+OK");
    drop(server);
    let snapshot = fs::read(source.join("dump.rdb")).expect("a snapshot");
    for has_log in [false, true] {
        for len in [snapshot.len(), snapshot.len() / 2] {
            let what = format!("snapshot-{len}-has-log-{has_log}");
            let dir = scratch.path().join(&what);
            fs::create_dir(&dir).expect("a directory");
            if has_log {
                drop(directives(launch(), &dir).start());
            }
            fs::write(dir.join("dump.rdb"), &snapshot[..len]).expect("a file");
            let (_, said) = check(&dir);
            let is_imported = said.contains("dump.rdb: data of Redis, which a start imports\n");
            assert!(is_imported && !said.contains("a sound snapshot"), "it is read once: {said}");
            let expected = match len == snapshot.len() {
                true => "a start succeeds: 1 key\n",
                false => "There is no Tierce data in ",
            };
            assert!(said.contains(expected), "{what}: {said}");
            compare(&dir, &what);
        }
    }
}

#[test]
fn a_check_reads_the_append_only_files_of_redis_that_a_start_imports() {
    const MANIFEST: &str = "file appendonly.aof.1.incr.aof seq 1 type i\n";
    for (call, expected) in [
        ("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n", Ok("a start succeeds: 1 key\n")),
        ("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$x\r\nv\r\n", Err("a start is refused\n")),
    ] {
        let dir = TempDir::new();
        dir.write("appendonlydir/appendonly.aof.manifest", MANIFEST);
        dir.write("appendonlydir/appendonly.aof.1.incr.aof", call);
        let (code, said) = check(dir.path());
        let found = dir.path().join("appendonlydir/appendonly.aof.manifest");
        let found = format!("{}: data of Redis, which a start imports\n", found.display());
        assert!(said.starts_with(&found), "{said}");
        let (Ok(end) | Err(end)) = expected;
        assert!(said.ends_with(end) && code == i32::from(expected.is_err()), "{code} {said}");
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 1, "it creates nothing");
    }
}

/// A snapshot that a start without a log imports does not hide that the log has lost its manifest.
#[test]
fn a_log_without_its_manifest_is_refused_with_its_remedy() {
    let dir = TempDir::new();
    let server = directives(launch(), dir.path()).start();
    server.connect().check("SET key value", "+OK");
    drop(server);
    let log = dir.path().join("wal");
    fs::remove_file(log.join("MANIFEST")).expect("a file");
    let log = log.display();
    let missing = format!("{log}/MANIFEST is missing, though the store needs it. ");
    let remedy = format!("tierce repair {log} {log}.repaired, ");
    for has_snapshot in [false, true] {
        if has_snapshot {
            dir.write("dump.rdb", "REDIS");
        }
        let (code, said) = check(dir.path());
        let outcome = run(dir.path());
        assert_eq!((code, outcome.code), (1, Some(1)), "{said}{outcome:?}");
        for text in [said, outcome.errors] {
            assert!(text.contains(&missing) && text.contains(&remedy), "{text}");
            assert!(!text.contains("data of Redis"), "{text}");
        }
    }
}

/// The manifest of a log that was created at run time is lost. The advice keeps the data, and can be followed.
#[test]
fn a_later_log_without_its_manifest_is_refused_and_can_be_repaired() {
    let dir = TempDir::new();
    let start = |appendonly| {
        launch().with("appendonly", appendonly).with("dir", &dir.path().display().to_string())
    };
    let server = start("no").start();
    let mut c = server.connect();
    c.check("CONFIG SET appendonly yes", "+OK");
    c.check("SET key value", "+OK");
    wait_until("it is complete", || dir.path().join("wal-2.complete").exists());
    drop(server);
    let log = dir.path().join("wal-2");
    fs::remove_file(log.join("MANIFEST")).expect("a file");
    let outcome = run(dir.path());
    let advice = format!("tierce repair {log} {log}.repaired, ", log = log.display());
    assert!(outcome.code == Some(1) && outcome.errors.contains(&advice), "{outcome:?}");
    let (code, said) = check(dir.path());
    assert!(code == 1 && said.contains(&advice), "{said}");
    let repaired = dir.path().join("wal-2.repaired");
    let mut repair = Command::new(program());
    let repair = repair.arg("repair").arg(dir.path()).arg(&repaired).output().expect("the program");
    assert!(matches!(repair.status.code(), Some(0 | 1)), "{repair:?}");
    fs::rename(&log, dir.path().join("away")).expect("it moves");
    fs::rename(&repaired, &log).expect("it moves");
    start("yes").start().connect().check("GET key", "\"value\"");
}

/// Data of Redis does not replace a lost log: an empty log would make the spilled values garbage.
#[test]
fn a_start_without_its_log_keeps_spilled_values_and_imports_nothing() {
    let scratch = TempDir::new();
    make(scratch.path());
    fs::rename(scratch.path().join("wal"), scratch.path().join("elsewhere")).expect("it moves");
    scratch.write("dump.rdb", "REDIS");
    let before = snapshot_of(&scratch.path().join("cold"));
    let (code, said) = check(scratch.path());
    let outcome = run(scratch.path());
    assert_eq!((code, outcome.code), (1, Some(1)), "{said}{outcome:?}");
    let source = scratch.path().join("dump.rdb");
    let mut import = Command::new(program());
    let import = import.arg("import").arg(source).arg("--dir").arg(scratch.path());
    let import = import.output().expect("the program");
    assert!(!import.status.success());
    for text in [said, outcome.errors, String::from_utf8_lossy(&import.stderr).into_owned()] {
        assert!(text.contains("put the log back"), "{text}");
    }
    assert!(before == snapshot_of(&scratch.path().join("cold")), "values are gone");
    fs::rename(scratch.path().join("elsewhere"), scratch.path().join("wal")).expect("it moves");
    fs::remove_file(scratch.path().join("dump.rdb")).expect("a file");
    compare(scratch.path(), "with its log again");
}

/// A pipe has no end, and its other side may never be opened.
#[test]
fn a_check_opens_no_pipes() {
    let dir = TempDir::new();
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .expect("a pipe");
    let output = Command::new(program()).arg("check").arg(&pipe).output().expect("the program");
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("pipe is no directory"), "{errors}");
}
