//! `tierce import` and `tierce export` read and write Redis' files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::process::Signal;
use tierce_harness::{Connection, Launch, Random, TempDir, encode, wait_until, words};

use crate::{launch, program};

fn tool(arguments: &[&str]) -> Output {
    Command::new(program()).args(arguments).output().expect("the program")
}

/// Runs a tool and returns its exit code and all output.
fn run(arguments: &[&str]) -> (i32, String) {
    let output = tool(arguments);
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().expect("no signal"), String::from_utf8_lossy(&said).into_owned())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

fn durable(dir: &Path) -> Launch {
    launch().with("appendonly", "yes").with("dir", text(dir))
}

/// Makes an append-only directory of Redis: a snapshot, and two files of commands.
pub fn append_only_dir(parent: &Path) -> PathBuf {
    let dir = parent.join("appendonlydir");
    fs::create_dir_all(&dir).expect("a directory");
    let base: &[&[&str]] = &[&["SELECT", "0"], &["SET", "counter", "41"], &["SET", "old", "1"]];
    let first: &[&[&str]] = &[
        &["SELECT", "0"],
        &["INCR", "counter"],
        &["MULTI"],
        &["MSET", "a", "1", "b", "2"],
        &["DEL", "old"],
        &["EXEC"],
    ];
    let second: &[&[&str]] = &[
        &["SELECT", "3"],
        &["SET", "mortal", "x", "PXAT", "32503680000000"],
        &["SET", "dead", "x", "PXAT", "1000"],
        &["SET", "saved", "1", "PXAT", "1000"],
        &["PERSIST", "saved"],
    ];
    let write = |name: &str, commands: &[&[&str]]| {
        let bytes: Vec<u8> = commands.iter().flat_map(|command| encode(command)).collect();
        fs::write(dir.join(name), bytes).expect("a file");
    };
    write("appendonly.aof.1.base.aof", base);
    write("appendonly.aof.1.incr.aof", first);
    write("appendonly.aof.2.incr.aof", second);
    let manifest = "file appendonly.aof.1.base.aof seq 1 type b\n\
                    file appendonly.aof.1.incr.aof seq 1 type i\n\
                    file appendonly.aof.2.incr.aof seq 2 type i\n";
    fs::write(dir.join("appendonly.aof.manifest"), manifest).expect("a file");
    dir
}

pub fn check_imported(launch: &Launch) {
    let server = launch.start();
    let mut c = server.connect();
    c.check("MGET counter a b old", r#"["42", "1", "2", nil]"#);
    c.check("SELECT 3", "+OK");
    c.check("PEXPIRETIME mortal", ":32503680000000");
    c.check("EXISTS dead", ":0");
    c.check("TTL saved", ":-1");
}

#[test]
fn an_append_only_directory_is_imported_and_durable() {
    let scratch = TempDir::new();
    let (source, dir) = (append_only_dir(scratch.path()), scratch.path().join("data"));
    let (code, said) = run(&["import", text(&source), "--dir", text(&dir)]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("keys there are now: 5"), "{said}");
    assert!(said.contains("1 key whose time had come"), "{said}");
    // Twice, because imported data are in the log and stay there.
    check_imported(&durable(&dir));
    check_imported(&durable(&dir));
    assert!(!dir.join("wal.importing").exists());
}

#[test]
fn a_key_that_is_too_long_is_named_shortly_and_may_be_left_out() {
    let scratch = TempDir::new();
    let mut file = b"REDIS0009\xfe\x00\x00\x01a\x01b".to_vec();
    for (letter, len) in [(b'k', 70_000), (b'l', 65_537), (b'm', 65_536)] {
        file.extend_from_slice(b"\x00\x80");
        file.extend_from_slice(&u32::to_be_bytes(len));
        file.extend(std::iter::repeat_n(letter, len as usize));
        file.extend_from_slice(b"\x01v");
    }
    // The end, without a checksum.
    file.extend_from_slice(b"\xff\0\0\0\0\0\0\0\0");
    let (source, dir) = (scratch.path().join("long.rdb"), scratch.path().join("data"));
    fs::write(&source, file).expect("a file");
    let import = ["import", text(&source), "--dir", text(&dir)];
    let (code, said) = run(&import);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("kkk... of 70000 bytes") && said.len() < 500, "{said}");
    assert!(said.contains("2 such keys") && said.contains("skip-unsupported"), "{said}");
    let (code, said) = run(&[&import[..], &["--skip-unsupported"]].concat());
    assert_eq!(code, 0, "{said}");
    let server = durable(&dir).start();
    let mut c = server.connect();
    c.check("DBSIZE", ":2");
    c.check("GET a", "\"b\"");
}

#[test]
fn keys_that_are_there_are_safe_unless_somebody_says_otherwise() {
    let scratch = TempDir::new();
    let (source, dir) = (append_only_dir(scratch.path()), scratch.path().join("data"));
    let launch = durable(&dir);
    let server = launch.start();
    server.connect().check("MSET mine 1 a mine", "+OK");
    let import = ["import", text(&source), "--dir", text(&dir)];
    let (code, said) = run(&import);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("in use"), "{said}");
    let (code, said) = run(&["export", text(&scratch.path().join("all.rdb")), "--dir", text(&dir)]);
    assert_eq!(code, 2, "{said}");
    assert!(said.lines().next().is_some_and(|first| first.contains("BACKUP FILE")), "{said}");
    drop(server);

    let (code, said) = run(&import);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("2 keys") && said.contains("--merge"), "{said}");
    launch.start().connect().check("MGET mine a b", r#"["1", "mine", nil]"#);

    let (code, said) = run(&[&import[..], &["--merge"]].concat());
    assert_eq!(code, 0, "{said}");
    launch.start().connect().check("MGET mine a b", r#"["1", "1", "2"]"#);

    let (code, said) = run(&[&import[..], &["--replace"]].concat());
    assert_eq!(code, 0, "{said}");
    launch.start().connect().check("MGET mine a b", r#"[nil, "1", "2"]"#);
}

/// Commands of the file that edit a value must not edit an existing value.
#[test]
fn an_append_only_file_is_merged_key_by_key() {
    let scratch = TempDir::new();
    let (source, dir) = (scratch.path().join("appendonly.aof"), scratch.path().join("data"));
    let server = durable(&dir).start();
    let mut c = server.connect();
    let commands = ["RPUSH l old", "SET mine 1", "SET gone 1", "HSET h old 1"];
    commands.iter().for_each(|line| _ = c.ask(line));
    drop(server);
    let library = "#!lua name=l\nredis.register_function('f', function() return 1 end)";
    let lines =
        ["RPUSH l a b", "INCR n", "SET gone 2", "DEL gone", "HSET h a 1", "SELECT 3", "APPEND s x"];
    let mut file: Vec<u8> = lines.iter().flat_map(|line| encode(&words(line))).collect();
    file.extend(encode(&["FUNCTION", "LOAD", library]));
    fs::write(&source, file).expect("a file");
    for _ in 0..2 {
        let (code, said) = run(&["import", text(&source), "--dir", text(&dir), "--merge"]);
        assert_eq!(code, 0, "{said}");
        let server = durable(&dir).start();
        let mut c = server.connect();
        c.check("LRANGE l 0 -1", r#"["a", "b"]"#);
        c.check("MGET n mine gone", r#"["1", "1", "1"]"#);
        c.check("HGETALL h", r#"["a", "1"]"#);
        c.check("FCALL f 0", ":1");
        c.check("SELECT 3", "+OK");
        c.check("GET s", r#""x""#);
    }
}

/// The functions of one of them could not be called.
#[test]
fn a_library_is_not_merged_beside_another_one_with_its_function() {
    let scratch = TempDir::new();
    let library =
        |name| format!("#!lua name={name}\nredis.register_function('f', function() return 1 end)");
    let import = |source: &Path, dir: &Path, mode: &[&str]| {
        run(&[&["import", text(source), "--dir", text(dir)], mode].concat())
    };
    let aof = scratch.path().join("appendonly.aof");
    let load = encode(&["FUNCTION", "LOAD", &library("new")]);
    fs::write(&aof, [encode(&["SET", "k", "v"]), load].concat()).expect("a file");
    let (other, rdb) = (scratch.path().join("other"), scratch.path().join("all.rdb"));
    assert_eq!(import(&aof, &other, &[]).0, 0);
    assert_eq!(run(&["export", text(&rdb), "--dir", text(&other)]).0, 0);
    // The existing function, a key or none, and a file.
    for (number, (key, mode, source)) in
        [(true, &["--merge"][..], &aof), (true, &["--merge"], &rdb), (false, &[], &rdb)]
            .into_iter()
            .enumerate()
    {
        let dir = scratch.path().join(number.to_string());
        let server = durable(&dir).start();
        let mut c = server.connect();
        let loaded = c.call(&["FUNCTION", "LOAD", &library("old").replace("'f'", "'F'")]);
        assert_eq!(loaded.to_string(), "\"old\"");
        if key {
            c.check("SET mine 1", "+OK");
        }
        drop(server);
        let (code, said) = import(source, &dir, mode);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("the libraries old and new both have a function f"), "{said}");
        let server = durable(&dir).start();
        let mut c = server.connect();
        c.check("FCALL F 0", ":1");
        c.check("DBSIZE", if key { ":1" } else { ":0" });
        c.check("FUNCTION DELETE old", "+OK");
        drop(server);
        let (code, said) = import(source, &dir, mode);
        assert_eq!(code, 0, "{said}");
        durable(&dir).start().connect().check("FCALL f 0", ":1");
    }
}

#[test]
fn an_unknown_command_is_named_and_nothing_is_imported() {
    let scratch = TempDir::new();
    let dir = scratch.path().join("data");
    let first = encode(&["SET", "k", "v"]);
    let rest = encode(&["NOSUCHTHING", "queue", "job"]);
    let source = scratch.path().join("appendonly.aof");
    let cut = encode(&["SET", "never", "acknowledged"]);
    let file = [&first[..], &rest, &cut[..10]].concat();
    fs::write(&source, file).expect("a file");
    let import = ["import", text(&source), "--dir", text(&dir)];
    let (code, said) = run(&import);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains(&format!("NOSUCHTHING at offset {}", first.len())), "{said}");
    durable(&dir).start().connect().check("DBSIZE", ":0");
    let (code, said) = run(&[&import[..], &["--skip-unknown"]].concat());
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("1 NOSUCHTHING") && said.contains("keys there are now: 1"), "{said}");
    assert!(said.contains(&format!("byte {}", first.len() + rest.len())), "{said}");
}

#[test]
fn what_is_exported_can_be_imported() {
    let scratch = TempDir::new();
    let (source, dir) = (append_only_dir(scratch.path()), scratch.path().join("data"));
    assert_eq!(run(&["import", text(&source), "--dir", text(&dir)]).0, 0);
    for (format, name) in [("rdb", "out.rdb"), ("aof", "out-aof/")] {
        let out = scratch.path().join(name);
        let export = ["export", text(&out), "--format", format, "--dir", text(&dir)];
        let (code, said) = run(&export);
        assert_eq!(code, 0, "{said}");
        assert!(said.contains("5 keys"), "{said}");
        let (code, said) = run(&export);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("exists already"), "{said}");
        let other = scratch.path().join(format!("data-{format}"));
        let (code, said) = run(&["import", text(&out), "--dir", text(&other)]);
        assert_eq!(code, 0, "{said}");
        check_imported(&durable(&other));
    }
    // Not among the files of the server, which would load some of them.
    let linked = scratch.path().join("linked");
    std::os::unix::fs::symlink(&dir, &linked).expect("a link");
    for (format, target) in [
        ("rdb", dir.join("dump.rdb")),
        ("aof", linked.join("appendonlydir")),
        ("jsonl", linked.join("wal/out.jsonl")),
        ("rdb", scratch.path().join("missing/../data/dump.rdb")),
        ("rdb", scratch.path().join("missing/../linked/dump.rdb")),
    ] {
        for dir in [&dir, &linked] {
            let export = ["export", text(&target), "--format", format, "--dir", text(dir)];
            let (code, said) = run(&export);
            assert!(code == 2 && said.contains("is in the data directory"), "{said}");
            assert!(!target.exists());
        }
    }
    let nothing = scratch.path().join("nothing");
    let out = scratch.path().join("out");
    let (code, said) = run(&["export", text(&out), "--dir", text(&nothing)]);
    assert_eq!(code, 2, "{said}");
    assert!(!nothing.exists());
}

#[test]
fn an_import_that_fails_leaves_nothing_behind() {
    let scratch = TempDir::new();
    let source = scratch.path().join("appendonly.aof");
    fs::write(&source, encode(&["NOSUCHTHING"])).expect("a file");
    let above = scratch.path().join("a");
    let dir = above.join("b/data");
    let import = ["import", text(&source), "--dir", text(&dir)];
    assert_eq!(run(&import).0, 2);
    assert!(!above.exists());
    // Existing files are kept.
    fs::create_dir_all(&dir).expect("a directory");
    fs::write(dir.join("mine"), "").expect("a file");
    assert_eq!(run(&import).0, 2);
    let names: Vec<_> = fs::read_dir(&dir).expect("there").flatten().collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

/// A failed copy leaves such files.
#[test]
fn a_file_of_no_bytes_is_refused_unless_redis_makes_such_files() {
    let scratch = TempDir::new();
    let dir = scratch.path().join("data");
    let launch = durable(&dir);
    launch.start().connect().check("SET mine 1", "+OK");
    let import = |source: &Path| run(&["import", text(source), "--dir", text(&dir), "--replace"]);
    let aof = scratch.path().join("appendonlydir");
    fs::create_dir(&aof).expect("a directory");
    let write = |name: &str, content: &str| {
        fs::write(aof.join(name), content).expect("a file");
    };
    let manifest = |base: &str| {
        let increment = "file appendonly.aof.1.incr.aof seq 1 type i";
        let text = format!("file {base} seq 1 type b\n{increment}\n");
        write("appendonly.aof.manifest", &text);
    };
    let refused = |source: &Path, named: &str| {
        let (code, said) = import(source);
        assert_eq!((code, said.lines().count()), (2, 1), "{said}");
        assert!(said.contains(named), "{said}");
        launch.start().connect().check("GET mine", "\"1\"");
    };
    for name in ["dump.rdb", "appendonly.aof", "all.jsonl"] {
        refused(&scratch.write(name, ""), &format!("{name} is empty"));
    }
    refused(&aof, "manifest");
    write("appendonly.aof.manifest", "");
    refused(&aof, "manifest");
    manifest("appendonly.aof.1.base.rdb");
    write("appendonly.aof.1.base.rdb", "");
    write("appendonly.aof.1.incr.aof", "");
    refused(&aof, "appendonly.aof.1.base.rdb is empty");
    // A base of commands is empty if there were no keys, and an increment is, if nothing was written since.
    manifest("appendonly.aof.1.base.aof");
    write("appendonly.aof.1.base.aof", "");
    let (code, said) = import(&aof);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("keys there are now: 0"), "{said}");
}

/// Returns every file below a directory with its bytes and modification time; directories with theirs.
fn everything(dir: &Path) -> Vec<(PathBuf, std::time::SystemTime, Vec<u8>)> {
    let metadata = fs::metadata(dir).expect("there");
    let mut all = vec![(dir.to_owned(), metadata.modified().expect("a time"), Vec::new())];
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(everything(&path));
        } else {
            let modified = entry.metadata().expect("there").modified().expect("a time");
            all.push((path.clone(), modified, fs::read(&path).expect("a file")));
        }
    }
    all.sort();
    all
}

#[test]
fn an_export_and_an_import_that_is_refused_change_no_file_of_the_data() {
    let scratch = TempDir::new();
    let dir = scratch.path().join("data");
    let mut server = durable(&dir).start();
    let mut c = server.connect();
    c.check("MSET a 1 b 2", "+OK");
    c.check("LPUSH l x", ":1");
    server.signal(Signal::KILL);
    server.wait_for_end();
    let before = everything(&dir);
    for format in ["rdb", "aof", "jsonl"] {
        let out = scratch.path().join(format);
        let (code, said) = run(&["export", text(&out), "--format", format, "--dir", text(&dir)]);
        assert_eq!(code, 0, "{said}");
        assert!(said.contains("3 keys"), "{said}");
        assert!(everything(&dir) == before, "{format}");
    }
    let (whole, unknown) = (scratch.path().join("rdb"), scratch.path().join("unknown.aof"));
    fs::write(&unknown, encode(&["NOSUCHTHING"])).expect("a file");
    for arguments in [&[text(&whole)][..], &[text(&unknown), "--replace"]] {
        let (code, said) = run(&[&["import", "--dir", text(&dir)], arguments].concat());
        assert_eq!(code, 2, "{said}");
        assert!(everything(&dir) == before, "{arguments:?}");
    }
    let (code, said) = run(&["import", text(&whole), "--merge", "--dir", text(&dir)]);
    assert_eq!(code, 0, "{said}");
    durable(&dir).start().connect().check("MGET a b", r#"["1", "2"]"#);
}

/// Among them negative zero, which large sorted sets have, as in Redis.
#[test]
fn scores_come_back_exactly() {
    let mut random = Random::new(11);
    let special =
        ["-0", "0", "5e-324", "-5e-324", "2.2250738585072014e-308", "0.1", "-1e-7", "1e15"];
    let extremes = ["inf", "-inf", "1.7976931348623157e308", "9007199254740993", "-123456789.125"];
    let any = (0..300).map(|_| f64::from_bits(random.next_u64())).filter(|score| !score.is_nan());
    // A set being loaded is small until it has many members, so it begins with the lowest.
    let scores: Vec<String> = any.map(|score| score.abs().to_string()).collect();
    let scratch = TempDir::new();
    let dir = scratch.path().join("data");
    let mut server = durable(&dir).start();
    let mut c = server.connect();
    for (number, score) in scores.iter().enumerate() {
        c.call(&["ZADD", "large", score, &format!("m{number}")]);
    }
    for score in special.into_iter().chain(extremes) {
        for key in ["large", "small"] {
            c.call(&["ZADD", key, score, &format!("of {score}")]);
        }
        c.call(&["ZADD", "changed", "1", score]);
        c.call(&["ZADD", "changed", score, score]);
    }
    c.check("ZSCORE large 'of -0'", "\"-0\"");
    c.check("ZSCORE small 'of -0'", "\"0\"");
    let all = |c: &mut Connection| {
        ["large", "small", "changed"].map(|key| c.ask(&format!("ZRANGE {key} 0 -1 WITHSCORES")))
    };
    let before = all(&mut c);
    let dump = c.ask("DUMP large").bytes().to_vec();
    c.call(&[&b"RESTORE"[..], b"large", b"0", &dump, b"REPLACE"]);
    assert!(all(&mut c) == before, "DUMP");
    server.signal(Signal::KILL);
    server.wait_for_end();
    let server = durable(&dir).start();
    let mut c = server.connect();
    assert!(all(&mut c) == before, "log");
    crate::data_of_redis::compact(&server);
    drop(server);
    assert!(all(&mut durable(&dir).start().connect()) == before, "compaction");
    for format in ["rdb", "aof", "jsonl"] {
        let (out, other) =
            (scratch.path().join(format), scratch.path().join(format!("of-{format}")));
        let export = ["export", text(&out), "--format", format, "--dir", text(&dir)];
        assert_eq!(run(&export).0, 0);
        assert_eq!(run(&["import", text(&out), "--dir", text(&other)]).0, 0);
        assert!(all(&mut durable(&other).start().connect()) == before, "{format}");
    }
}

#[test]
fn a_backup_is_a_copy_of_one_moment() {
    let scratch = TempDir::new();
    let dir = scratch.path().join("data");
    let server = durable(&dir).start();
    let mut c = server.connect();
    c.check("MSET a 1 b 2", "+OK");
    c.check("BACKUP copy.rdb", "+OK");
    c.check("SET a later", "+OK");
    let path = fs::canonicalize(&dir).unwrap().join("copy.rdb");
    let exists = format!("-ERR {} exists already; REPLACE overwrites it", path.display());
    c.check("BACKUP copy.rdb", &exists);
    c.check("BACKUP copy.rdb NOW", "-ERR syntax error");
    c.check(
        "BACKUP wal/MANIFEST REPLACE",
        "-ERR a backup cannot have the place of the server's own files",
    );
    assert!(c.ask("BACKUP absent/copy.rdb").text().starts_with("ERR the directory"));
    let outside = scratch.path().join("outside.rdb");
    let refused = c.ask(&format!("BACKUP {}", outside.display()));
    assert!(refused.text().contains("outside of the data directory"), "{refused}");
    assert!(!outside.exists());
    c.check("LASTSAVE", &c_lastsave(&server));
    drop(server);

    let other = scratch.path().join("other");
    assert_eq!(run(&["import", text(&path), "--dir", text(&other)]).0, 0);
    durable(&other).start().connect().check("MGET a b", r#"["1", "2"]"#);

    let server = durable(&dir).with("enable-protected-configs", "local").start();
    let mut c = server.connect();
    c.check("BACKUP copy.rdb REPLACE", "+OK");
    c.check(&format!("BACKUP {}", outside.display()), "+OK");
    assert_eq!(fs::metadata(&outside).unwrap().len(), fs::metadata(&path).unwrap().len());
}

/// A backup does not count as a save: the time is that of the start.
fn c_lastsave(server: &tierce_harness::Server) -> String {
    server.connect().ask("LASTSAVE").to_string()
}

/// After the server's death, its log and its snapshot both have the right contents.
#[test]
fn a_snapshot_beside_the_log_leaves_both_right() {
    let scratch = TempDir::new();
    let dir = scratch.path().join("data");
    let launch = durable(&dir);
    let server = launch.start();
    let mut c = server.connect();
    for i in 0..2000 {
        c.request(&["SET", &format!("k{i}"), "before"]);
    }
    (0..2000).for_each(|_| c.expect("+OK"));
    let payload = c.ask("DUMP k1");
    c.check("SELECT 5", "+OK");
    c.check("SET gone 1", "+OK");
    c.check("FLUSHDB", "+OK");
    c.check("SELECT 0", "+OK");
    c.check("BGSAVE", "+Background saving started");
    c.request(&[&b"RESTORE"[..], b"restored", b"0", payload.bytes()]);
    c.expect("+OK");
    for i in 0..1000 {
        c.request(&["SET", &format!("k{i}"), "after"]);
    }
    (0..1000).for_each(|_| c.expect("+OK"));
    wait_until("the save ends", || {
        c.ask("INFO persistence").text().contains("rdb_bgsave_in_progress:0")
    });
    drop(server);

    let server = launch.start();
    let mut c = server.connect();
    c.check("DBSIZE", ":2001");
    c.check("MGET k0 k999 k1000 restored", r#"["after", "after", "before", "before"]"#);
    c.check("FLUSHALL", "+OK");
    drop(server);
    launch.start().connect().check("DBSIZE", ":0");

    let snapshot = dir.join("dump.rdb");
    let other = scratch.path().join("other");
    assert_eq!(run(&["import", text(&snapshot), "--dir", text(&other)]).0, 0);
    let server = durable(&other).start();
    server.connect().check("DBSIZE", ":2000");
    server.connect().check("MGET k0 k1000", r#"["before", "before"]"#);
}

/// A log damaged in its middle prevents a start. A repair makes one that opens.
#[test]
fn a_damaged_log_is_named_and_can_be_repaired() {
    let scratch = TempDir::new();
    let dir = scratch.path().join("data");
    let mut server = durable(&dir).start();
    let mut c = server.connect();
    // One after the other, so that each is a separate record.
    for i in 0..200 {
        c.check(&format!("SET k{i} {}", "v".repeat(200)), "+OK");
    }
    c.request(&["SHUTDOWN"]);
    server.wait_for_end();
    let log = dir.join("wal");
    let mut segments: Vec<_> = fs::read_dir(&log)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "seg"))
        .collect();
    segments.sort_by_key(|path| fs::metadata(path).unwrap().len());
    let segment = segments.pop().unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&segment, bytes).unwrap();

    let outcome = durable(&dir).run();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let repaired = PathBuf::from(format!("{}.repaired", log.display()));
    let advice = format!("tierce repair {} {}", log.display(), repaired.display());
    for part in [text(&segment), "at offset", &advice] {
        assert!(outcome.errors.contains(part), "{part}: {outcome:?}");
    }
    let (code, said) = run(&["check", text(&log)]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains(text(&segment)), "{said}");
    let (code, said) = run(&["repair", text(&log), text(&repaired)]);
    assert_eq!(code, 1, "{said}");
    fs::rename(&log, scratch.path().join("damaged")).unwrap();
    fs::rename(&repaired, &log).unwrap();
    let (code, said) = run(&["check", text(&log)]);
    assert_eq!(code, 0, "{said}");
    let server = durable(&dir).start();
    server.connect().check("DBSIZE", ":199");
    server.connect().check("SET more 1", "+OK");
    drop(server);
    durable(&dir).start().connect().check("DBSIZE", ":200");
}

/// Everything that JSON lines preserve: into lines, into another directory, and into a server.
#[test]
fn lines_of_json_keep_everything() {
    let scratch = TempDir::new();
    let dir = scratch.path().join("data");
    let server = durable(&dir).start();
    let mut c = server.connect();
    c.check("SET text ä PXAT 32503680000000", "+OK");
    c.request(&[&b"SET"[..], b"by\xfftes", b"\0\xff\n"]);
    c.expect("+OK");
    c.check("RPUSH list b a", ":2");
    c.check("SADD set a", ":1");
    c.check("ZADD zset 0.1 a inf b", ":2");
    c.check("HSET hash f v g w", ":2");
    c.check("HPEXPIREAT hash 32503680000000 FIELDS 1 f", "[:1]");
    c.check("XADD stream 5-1 f v", "\"5-1\"");
    c.check("XGROUP CREATE stream g 0", "+OK");
    c.ask("XREADGROUP GROUP g ann STREAMS stream >");
    let library = "#!lua name=lib\nredis.register_function('f', function() return 'called' end)";
    c.request(&["FUNCTION", "LOAD", library]);
    c.expect("\"lib\"");
    c.check("SELECT 3", "+OK");
    c.check("SET elsewhere 1", "+OK");
    drop(server);

    let lines = scratch.path().join("lines.jsonl");
    let export = ["export", text(&lines), "--format", "jsonl", "--dir", text(&dir)];
    let (code, said) = run(&export);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("8 keys"), "{said}");
    let (code, said) = run(&export);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("exists already"), "{said}");
    let written = fs::read_to_string(&lines).expect("UTF-8");
    let first = written.lines().next().expect("a line");
    assert!(first.contains("\"format\":\"tierce-jsonl\""), "{first}");
    assert!(written.ends_with("{\"type\":\"end\",\"keys\":8}\n"), "{written}");

    let other = scratch.path().join("other");
    let (code, said) = run(&["import", text(&lines), "--dir", text(&other)]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.starts_with("imported 8 keys (") && said.contains("keys there are now: 8"),
        "{said}"
    );
    let server = durable(&other).start();
    let mut c = server.connect();
    c.check("PEXPIRETIME text", ":32503680000000");
    c.request(&[&b"GET"[..], b"by\xfftes"]);
    assert_eq!(c.reply().bytes(), b"\0\xff\n");
    c.check("LRANGE list 0 -1", r#"["b", "a"]"#);
    c.check("SMEMBERS set", r#"["a"]"#);
    c.check("ZRANGE zset 0 -1 WITHSCORES", r#"["a", "0.1", "b", "inf"]"#);
    c.check("HPEXPIRETIME hash FIELDS 2 f g", "[:32503680000000, :-1]");
    c.check("XPENDING stream g", r#"[:1, "5-1", "5-1", [["ann", "1"]]]"#);
    c.check("FCALL f 0", "\"called\"");
    c.check("SELECT 3", "+OK");
    c.check("GET elsewhere", "\"1\"");
}

#[test]
fn code_that_does_not_compile_and_streams_that_cannot_be_are_refused() {
    let scratch = TempDir::new();
    let (source, dir) = (scratch.path().join("lines.jsonl"), scratch.path().join("data"));
    let stream =
        |element: &str| format!("{{\"type\":\"stream\",\"key\":\"s\",\"value\":[{element}]}}");
    for (line, expected) in [
        (
            r##"{"type":"script","name":"n","source":"return ("}"##.to_owned(),
            "line 3: ERR Error compiling script",
        ),
        (
            r##"{"type":"function","source":"#!lua name=lib\nredis.register_function('f', 5)"}"##
                .to_owned(),
            "line 3: ERR ",
        ),
        (
            r##"{"type":"function","source":"#!lua name=lib\nreturn 1"}"##.to_owned(),
            "No functions registered",
        ),
        (
            stream(r#"{"state":{"last_id":"0-0","max_deleted_id":"0-0","entries_added":5}}"#),
            "line 3: `entries_added` is 5, and the last ID is 0-0",
        ),
        (stream(r#"{"entry":{"id":"1-1","fields":[]}}"#), "line 3: the entry 1-1 has no fields"),
        (stream(r#"{"entry":{"id":"0-0","fields":["a","b"]}}"#), "line 3: there is no entry 0-0"),
    ] {
        let file = format!(
            "{{\"type\":\"header\",\"format\":\"tierce-jsonl\",\"version\":1}}\n\
             {{\"type\":\"string\",\"key\":\"a\",\"value\":\"1\"}}\n{line}\n{{\"type\":\"end\"}}\n"
        );
        fs::write(&source, file).expect("a file");
        let (code, said) = run(&["import", text(&source), "--dir", text(&dir)]);
        assert_eq!(code, 2, "{line}: {said}");
        assert!(said.contains(expected), "{line}: {said}");
        assert!(!dir.exists(), "{line}");
    }
}

#[test]
fn a_wrong_line_of_json_is_named_and_nothing_is_imported() {
    let scratch = TempDir::new();
    let (source, dir) = (scratch.path().join("lines.jsonl"), scratch.path().join("data"));
    durable(&dir).start().connect().check("SET mine 1", "+OK");
    let file = "{\"type\":\"header\",\"format\":\"tierce-jsonl\",\"version\":1}\n\
                {\"type\":\"string\",\"key\":\"a\",\"value\":\"1\"}\n\
                {\"type\":\"string\",\"key\":\"b\",\"value\":2}\n\
                {\"type\":\"end\"}\n";
    fs::write(&source, file).expect("a file");
    for mode in ["--merge", "--replace"] {
        let (code, said) = run(&["import", text(&source), "--dir", text(&dir), mode]);
        assert_eq!(code, 2, "{said}");
        let expected = format!("{}, line 3: invalid type: integer `2`", source.display());
        assert!(said.contains(&expected), "{said}");
        let server = durable(&dir).start();
        server.connect().check("MGET mine a b", r#"["1", nil, nil]"#);
    }
}
