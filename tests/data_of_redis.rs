//! If the log was never written to, a start imports the data of Redis: completely, once, and never silently not at
//! all.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tierce_harness::{Launch, Outcome, Server, TempDir, encode, wait_until};

use crate::import_and_export::{append_only_dir, check_imported};
use crate::{launch, program};

fn durable(dir: &TempDir) -> Launch {
    launch().with("appendonly", "yes").with("dir", text(dir.path()))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

/// Makes a start that is expected to fail, and returns its output.
fn refused(dir: &TempDir, more: &[(&str, &str)]) -> String {
    let mut start = Launch::new(program()).with("port", "0").with("dir", text(dir.path()));
    let socket = dir.path().join("socket");
    start = start.with("unixsocket", text(&socket));
    for (name, value) in more {
        start = start.with(name, value);
    }
    let Outcome { code, errors, output } = start.run();
    assert_eq!((code, errors.lines().count()), (Some(1), 1), "{errors}{output}");
    errors
}

fn commands(lines: &[&[&str]]) -> Vec<u8> {
    lines.iter().flat_map(|line| encode(line)).collect()
}

/// Returns every file in a directory with its bytes.
fn contents(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .expect("a directory")
        .flatten()
        .map(|entry| (text(&entry.path()).to_owned(), fs::read(entry.path()).expect("a file")))
        .collect();
    files.sort();
    files
}

pub fn compact(server: &Server) {
    let mut c = server.connect();
    c.ask("BGREWRITEAOF");
    wait_until("the log is compacted", || {
        let info = c.ask("INFO persistence").text().to_owned();
        info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0")
    });
}

#[test]
fn an_append_only_directory_is_taken_over_once() {
    let dir = TempDir::new();
    let source = append_only_dir(dir.path());
    let before = contents(&source);
    // Remainder of a killed import.
    fs::create_dir(dir.path().join("wal.importing")).expect("a directory");
    dir.write("wal.importing/00000001.seg", "half");
    // A start without Redis' files, or by a version that only offered them, leaves an empty log.
    fs::rename(&source, dir.path().join("elsewhere")).expect("a move");
    durable(&dir).start().connect().check("DBSIZE", ":0");
    fs::rename(dir.path().join("elsewhere"), &source).expect("a move");

    check_imported(&durable(&dir));
    assert_eq!(contents(&source), before);
    assert!(!dir.path().join("wal.importing").exists());
    let server = durable(&dir).start();
    assert!(!server.output().contains("mport"), "{}", server.output());
    // Deleted data do not come back, even if the log is empty.
    server.connect().check("FLUSHALL", "+OK");
    compact(&server);
    drop(server);
    let server = durable(&dir).start();
    server.connect().check("DBSIZE", ":0");
    assert!(!server.output().contains("mport"), "{}", server.output());
}

#[test]
fn a_snapshot_is_taken_over_where_redis_would_start_empty() {
    let dir = TempDir::new();
    let server = launch().with("dir", text(dir.path())).start();
    let mut c = server.connect();
    for line in ["SET a 1", "RPUSH l x y", "HSET h f v", "XADD s 1-1 f v"] {
        c.ask(line);
    }
    c.check("SAVE", "+OK");
    drop(server);
    let server = durable(&dir).start();
    let mut c = server.connect();
    c.check("GET a", "\"1\"");
    c.check("LRANGE l 0 -1", r#"["x", "y"]"#);
    c.check("XLEN s", ":1");
    let said = server.output();
    assert!(said.contains("Imported 4 keys") && said.contains("dump.rdb"), "{said}");
    c.check("DEL a", ":1");
    drop(server);
    durable(&dir).start().connect().check("DBSIZE", ":3");
}

/// Redis creates an empty appendonly.aof and keeps it until something is written, but never a snapshot without bytes.
#[test]
fn a_start_beside_a_snapshot_of_no_bytes_is_refused() {
    let dir = TempDir::new();
    let snapshot = dir.write("dump.rdb", "");
    for more in [&[("appendonly", "no")][..], &[("appendonly", "yes")]] {
        let said = refused(&dir, more);
        assert!(said.contains("dump.rdb"), "{said}");
    }
    fs::remove_file(&snapshot).expect("there");
    dir.write("appendonly.aof", "");
    durable(&dir).start().connect().check("DBSIZE", ":0");
}

#[test]
fn the_single_file_of_earlier_versions_may_have_a_torn_end() {
    let dir = TempDir::new();
    let whole = commands(&[&["SELECT", "0"], &["SET", "a", "1"], &["INCR", "a"]]);
    let torn = [&whole[..], b"*3\r\n$3\r\nSET\r\n$1\r\nb"].concat();
    fs::write(dir.path().join("appendonly.aof"), &torn).expect("a file");
    // If both exist, Redis reads the append-only files.
    dir.write("dump.rdb", "not a snapshot");
    let said = refused(&dir, &[("aof-load-truncated", "no")]);
    assert!(said.contains(&format!("byte {}", whole.len())), "{said}");
    assert!(said.contains("aof-load-truncated yes"), "{said}");
    let server = durable(&dir).start();
    server.connect().check("MGET a b", r#"["2", nil]"#);
    assert!(server.output().contains(&format!("byte {}", whole.len())), "{}", server.output());
    assert_eq!(fs::read(dir.path().join("appendonly.aof")).expect("there"), torn);
}

#[test]
fn what_cannot_be_taken_over_ends_the_start_with_the_way_out() {
    let dir = TempDir::new();
    let source = append_only_dir(dir.path());
    let last = source.join("appendonly.aof.2.incr.aof");
    fs::write(&last, commands(&[&["SET", "k", "v"], &["NOSUCHTHING", "x"]])).expect("a file");
    let said = refused(&dir, &[]);
    let manifest = source.join("appendonly.aof.manifest");
    let command = format!("tierce import {} --dir {}", manifest.display(), dir.path().display());
    assert!(said.contains("NOSUCHTHING") && said.contains(&command), "{said}");
    // As the message says.
    let outcome = Launch::new(program())
        .argument("import")
        .argument(&manifest)
        .with("dir", text(dir.path()))
        .argument("--skip-unknown")
        .run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    durable(&dir).start().connect().check("MGET counter k", r#"["42", "v"]"#);

    let dir = TempDir::new();
    fs::create_dir(dir.path().join("appendonlydir")).expect("a directory");
    dir.write("appendonlydir/other.aof.1.base.aof", "");
    assert!(refused(&dir, &[]).contains("manifest"));
    let dir = TempDir::new();
    dir.write("dump.rdb", "not a snapshot");
    assert!(refused(&dir, &[]).contains("dump.rdb"));
    fs::remove_file(dir.path().join("dump.rdb")).expect("there");
    durable(&dir).start().connect().check("DBSIZE", ":0");
}

/// Makes a snapshot with a library of functions for an engine, and a key.
fn snapshot_with_a_library(engine: &str) -> Vec<u8> {
    let library =
        format!("#!{engine} name=l\nredis.register_function('f', function() return 1 end)");
    let mut file = b"REDIS0010\xf5".to_vec();
    let library = library.as_bytes();
    file.extend([0x40, library.len() as u8]);
    file.extend(library);
    file.extend(b"\xfe\x00\x00\x01k\x01v\xff");
    // No checksum.
    file.extend([0; 8]);
    file
}

/// A user goes back to Redis for a while, and returns. Snapshots of Tierce itself cause no warning.
#[test]
fn what_redis_wrote_behind_the_log_is_named_at_the_start() {
    let dir = TempDir::new();
    let snapshot = dir.path().join("dump.rdb");
    let changed_later = || {
        let file = fs::File::options().write(true).open(&snapshot).expect("a file");
        file.set_modified(SystemTime::now() + Duration::from_secs(60)).expect("a time");
    };
    durable(&dir).start().connect().check("SET k log", "+OK");
    fs::write(&snapshot, snapshot_with_a_library("lua")).expect("a file");
    changed_later();
    let server = durable(&dir).start();
    let mut c = server.connect();
    c.check("GET k", "\"log\"");
    let said = server.output();
    let command = format!("tierce import {} --dir NEW-DIRECTORY", snapshot.display());
    assert!(said.contains("newer than Tierce's log") && said.contains(&command), "{said}");
    c.check("SAVE", "+OK");
    drop(server);
    changed_later();
    let said = durable(&dir).start().output();
    assert!(!said.contains("newer than Tierce's log"), "{said}");
}

#[test]
fn libraries_of_functions_are_taken_over() {
    for appendonly in ["yes", "no"] {
        let dir = TempDir::new();
        fs::write(dir.path().join("dump.rdb"), snapshot_with_a_library("lua")).expect("a file");
        let server = durable(&dir).with("appendonly", appendonly).start();
        server.connect().check("FCALL f 0", ":1");
        server.connect().check("GET k", "\"v\"");
    }
}

#[test]
fn what_this_version_lacks_is_left_out_only_when_told_so() {
    for appendonly in ["yes", "no"] {
        let dir = TempDir::new();
        fs::write(dir.path().join("dump.rdb"), snapshot_with_a_library("js")).expect("a file");
        let said = refused(&dir, &[("appendonly", appendonly)]);
        assert!(said.contains("library") && said.contains("skip-unsupported"), "{said}");
        let server =
            durable(&dir).with("appendonly", appendonly).with("skip-unsupported", "yes").start();
        server.connect().check("GET k", "\"v\"");
        assert!(server.output().contains("eft out"), "{}", server.output());
    }
    let dir = TempDir::new();
    fs::write(dir.path().join("source.rdb"), snapshot_with_a_library("js")).expect("a file");
    let import = || {
        let source = dir.path().join("source.rdb");
        Launch::new(program()).argument("import").argument(source).with("dir", text(dir.path()))
    };
    let outcome = import().run();
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.errors.contains("skip-unsupported"), "{outcome:?}");
    assert!(!dir.path().join("wal").exists());
    let outcome = import().argument("--skip-unsupported").run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.output.contains("1 function library"), "{outcome:?}");
}
