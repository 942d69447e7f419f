//! SAVE, BGSAVE and save points write a file that a server can start from: a consistent snapshot.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use tierce_harness::{Connection, Launch, Server, TempDir, free_port, wait_until};

use crate::{launch, program};

/// Makes a launch with its data in `dir`, which outlives the server.
fn in_dir(dir: &TempDir) -> Launch {
    launch().with("dir", &dir.path().display().to_string())
}

fn dump_file(dir: &TempDir) -> std::path::PathBuf {
    dir.path().join("dump.rdb")
}

fn kill(mut server: Server) {
    server.signal(Signal::KILL);
    server.wait_for_end();
}

/// Returns a field of INFO persistence.
fn info(c: &mut Connection, name: &str) -> String {
    let text = c.ask("INFO persistence").text().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name}")).to_owned()
}

fn wait_for_save(c: &mut Connection) {
    wait_until("the save ends", || info(c, "rdb_bgsave_in_progress") == "0");
}

/// Writes many keys, each of which takes a while to save.
fn slow_to_save(c: &mut Connection, keys: usize, micros: usize) {
    c.check(&format!("CONFIG SET rdb-key-save-delay {micros}"), "+OK");
    for key in 0..keys {
        c.request(&["SET", &format!("filler:{key}"), "x"]);
    }
    (0..keys).for_each(|_| c.expect("+OK"));
}

#[test]
fn all_that_was_saved_is_there_again() {
    let dir = TempDir::new();
    let server = in_dir(&dir).start();
    let mut c = server.connect();
    let blob = "b".repeat(100_000);
    c.check("SET text hello", "+OK");
    c.check("SET number -123456789", "+OK");
    c.check("SET empty ''", "+OK");
    c.call(&[&b"SET"[..], b"bytes\x00\r\n", b"\xff\x00\r\n"]);
    c.call(&["SET", "blob", &blob]);
    c.check("APPEND text ' world'", ":11");
    c.check("SET mortal soon PXAT 32503680000000", "+OK");
    c.check("SET gone x PX 1", "+OK");
    c.check("SELECT 7", "+OK");
    c.check("SET text other", "+OK");
    c.check("SAVE", "+OK");
    c.check("SET text unsaved", "+OK");
    kill(server);

    let server = in_dir(&dir).start();
    let mut c = server.connect();
    c.check("DBSIZE", ":6");
    c.check("GET text", "\"hello world\"");
    c.check("GET number", "\"-123456789\"");
    c.check("OBJECT ENCODING number", "\"int\"");
    c.check("GET empty", "\"\"");
    assert_eq!(c.call(&[&b"GET"[..], b"bytes\x00\r\n"]).bytes(), b"\xff\x00\r\n");
    assert_eq!(c.ask("GET blob").bytes(), blob.as_bytes());
    c.check("PEXPIRETIME mortal", ":32503680000000");
    c.check("PTTL text", ":-1");
    assert_eq!(info(&mut c, "rdb_last_load_keys_loaded"), "7");
    assert_eq!(info(&mut c, "rdb_changes_since_last_save"), "0");
    c.check("SELECT 7", "+OK");
    c.check("GET text", "\"other\"");
}

/// Writers change pairs of keys atomically, and never stop. The pairs in the snapshot agree, for
/// any time of the snapshot. It has one connection's changes before BGSAVE, and not those after it.
#[test]
fn a_background_save_is_of_the_moment_of_its_reply() {
    let dir = TempDir::new();
    let server = in_dir(&dir).start();
    let mut c = server.connect();
    slow_to_save(&mut c, 2000, 100);
    let stops = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let (server, stops) = (&server, &stops);
            scope.spawn(move || {
                let mut c = server.connect();
                for count in 0.. {
                    if stops.load(Ordering::Relaxed) {
                        break;
                    }
                    let pair = count % 50;
                    c.check(
                        &format!("MSET {writer}:a:{pair} {count} {writer}:b:{pair} {count}"),
                        "+OK",
                    );
                }
            });
        }
        wait_until("all pairs exist", || c.ask("DBSIZE").to_string() == ":2300");
        c.check("SET order before", "+OK");
        c.check("BGSAVE", "+Background saving started");
        c.check("SET order after", "+OK");
        c.check("SET late x", "+OK");
        c.check("DEL filler:0 filler:1999", ":2");
        assert_eq!(info(&mut c, "rdb_bgsave_in_progress"), "1");
        c.check("BGSAVE", "-ERR Background save already in progress");
        c.check("SAVE", "-ERR Background save already in progress");
        wait_for_save(&mut c);
        stops.store(true, Ordering::Relaxed);
    });
    assert_eq!(info(&mut c, "rdb_last_bgsave_status"), "ok");
    assert_ne!(info(&mut c, "rdb_changes_since_last_save"), "0");
    kill(server);

    let server = in_dir(&dir).start();
    let mut c = server.connect();
    c.check("DBSIZE", ":2301");
    c.check("GET order", "\"before\"");
    c.check("EXISTS late filler:0 filler:1999", ":2");
    for writer in 0..3 {
        for pair in 0..50 {
            let both = c.ask(&format!("MGET {writer}:a:{pair} {writer}:b:{pair}")).to_string();
            let (a, b) = both.trim_matches(['[', ']']).split_once(", ").expect("two values");
            assert!(a == b && a != "nil", "{both}");
        }
    }
}

/// Commands that empty or swap databases meanwhile do not affect the file.
#[test]
fn a_flush_during_a_save_leaves_the_file_whole() {
    let dir = TempDir::new();
    let server = in_dir(&dir).start();
    let mut c = server.connect();
    slow_to_save(&mut c, 1000, 100);
    c.check("SELECT 1", "+OK");
    c.check("SET one 1", "+OK");
    c.check("BGSAVE", "+Background saving started");
    c.check("SWAPDB 0 1", "+OK");
    c.check("SET one 2", "+OK");
    c.check("FLUSHALL", "+OK");
    c.check("SET new x", "+OK");
    wait_for_save(&mut c);
    kill(server);

    let server = in_dir(&dir).start();
    let mut c = server.connect();
    c.check("DBSIZE", ":1000");
    c.check("SELECT 1", "+OK");
    c.check("DBSIZE", ":1");
    c.check("GET one", "\"1\"");
}

/// SAVE blocks its own client, whose later requests keep their order, and no other client.
#[test]
fn only_the_client_that_says_save_waits_for_it() {
    let dir = TempDir::new();
    let server = in_dir(&dir).with("threads", "1").start();
    let (mut c, mut other) = (server.connect(), server.connect());
    slow_to_save(&mut c, 1000, 300);
    c.send(b"SAVE\r\nSET a 1\r\nGET a\r\n");
    wait_until("the save begins", || info(&mut other, "current_save_keys_total") == "1000");
    other.check("GET a", "nil");
    other.check("PING", "+PONG");
    assert_eq!(info(&mut other, "rdb_bgsave_in_progress"), "0", "it is in the foreground");
    assert!(!dump_file(&dir).exists());
    for reply in ["+OK", "+OK", "\"1\""] {
        c.expect(reply);
    }
    assert!(dump_file(&dir).exists());
}

#[test]
fn a_save_point_saves_by_itself() {
    let dir = TempDir::new();
    let server = in_dir(&dir).with("save", "3600 1 1 5").start();
    let mut c = server.connect();
    let before: i64 = c.ask("LASTSAVE").to_string()[1..].parse().expect("a time");
    for key in 0..4 {
        c.check(&format!("SET {key} x"), "+OK");
    }
    assert_eq!(info(&mut c, "rdb_changes_since_last_save"), "4");
    c.check("SET 4 x", "+OK");
    wait_until("a save", || info(&mut c, "rdb_saves") == "1");
    assert_eq!(info(&mut c, "rdb_changes_since_last_save"), "0");
    let after: i64 = c.ask("LASTSAVE").to_string()[1..].parse().expect("a time");
    assert!(after > before);
    assert!(dump_file(&dir).exists());
    c.check("CONFIG SET save ''", "+OK");
    c.check("CONFIG GET save", "[\"save\", \"\"]");
}

/// Creates an obstacle that no file can replace.
fn obstruct(dir: &TempDir) {
    std::fs::create_dir_all(dump_file(dir).join("in the way")).expect("a directory");
}

fn unobstruct(dir: &TempDir) {
    std::fs::remove_dir_all(dump_file(dir)).expect("a directory");
}

fn files(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).expect("the directory");
    names.map(|entry| entry.expect("a name").file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_failed_save_refuses_writes_and_leaves_nothing_behind() {
    const MISCONF: &str = "-MISCONF Redis is configured to save RDB snapshots, but it's currently \
                           unable to persist to disk. ";
    let dir = TempDir::new();
    let server = in_dir(&dir).with("save", "3600 1000").start();
    let mut c = server.connect();
    obstruct(&dir);
    c.check("SET a 1", "+OK");
    c.check("BGSAVE", "+Background saving started");
    wait_for_save(&mut c);
    assert_eq!(info(&mut c, "rdb_last_bgsave_status"), "err");
    assert_eq!(files(dir.path()), ["dump.rdb"]);
    // The operator gets the message after the figures have changed.
    wait_until("the operator is told", || server.output().contains("dump.rdb"));
    for line in ["SET a 2", "DEL a", "FLUSHALL", "PING"] {
        let reply = c.ask(line).to_string();
        assert!(reply.starts_with(MISCONF), "{line}: {reply}");
    }
    // As in Redis, this check comes before that for missing replicas.
    c.check("CONFIG SET min-replicas-to-write 1", "+OK");
    for line in ["SET a 2", "EVAL 'return redis.call(\"SET\", KEYS[1], 2)' 1 a"] {
        let reply = c.ask(line).to_string();
        assert!(reply.starts_with(MISCONF), "{line}: {reply}");
    }
    c.check("CONFIG SET min-replicas-to-write 0", "+OK");
    // And before the role.
    c.check("REPLICAOF 127.0.0.1 1", "+OK");
    let reply = c.ask("SET a 2").to_string();
    assert!(reply.starts_with(MISCONF), "{reply}");
    c.check("REPLICAOF NO ONE", "+OK");
    // An operator's pause continues if the server cannot end.
    c.check("CLIENT PAUSE 100000 WRITE", "+OK");
    c.check("SHUTDOWN SAVE", "-ERR Errors trying to SHUTDOWN. Check logs.");
    let clients = c.ask("INFO clients").text().to_owned();
    assert!(clients.contains("paused_reason:client_pause"), "{clients}");
    c.check("CLIENT UNPAUSE", "+OK");
    c.check("GET a", "\"1\"");
    let error = c.ask("SAVE").to_string();
    assert!(error.starts_with("-ERR ") && error.contains("dump.rdb"), "{error}");

    c.check("CONFIG SET stop-writes-on-bgsave-error no", "+OK");
    c.check("SET a 3", "+OK");
    c.check("CONFIG SET stop-writes-on-bgsave-error yes", "+OK");
    assert!(c.ask("SET a 4").to_string().starts_with(MISCONF));
    unobstruct(&dir);
    c.check("BGSAVE", "+Background saving started");
    wait_for_save(&mut c);
    c.check("SET a 5", "+OK");
    assert_eq!(files(dir.path()), ["dump.rdb"]);
}

/// The file of a save whose process was killed would otherwise stay for good.
#[test]
fn a_start_removes_what_a_save_left_that_was_killed() {
    let dir = TempDir::new();
    let begun = |dir: &TempDir| {
        let names = std::fs::read_dir(dir.path()).expect("a directory");
        let mut names = names.map(|entry| entry.expect("an entry").file_name());
        names.any(|name| name.to_string_lossy().starts_with("temp-"))
    };
    let server = in_dir(&dir).start();
    let mut c = server.connect();
    slow_to_save(&mut c, 1000, 100_000);
    c.check("BGSAVE", "+Background saving started");
    wait_until("the save begins", || begun(&dir));
    kill(server);
    assert!(begun(&dir), "it is still there");
    let server = in_dir(&dir).start();
    assert!(!begun(&dir));
    server.connect().check("SAVE", "+OK");
}

#[test]
fn a_shutdown_saves_if_asked_to_or_if_there_are_save_points() {
    for (points, how, saves) in [
        ("", "SHUTDOWN", false),
        ("", "SHUTDOWN SAVE", true),
        ("3600 1", "SHUTDOWN", true),
        ("3600 1", "SHUTDOWN NOSAVE", false),
        ("", "SIGTERM", false),
        ("3600 1", "SIGTERM", true),
    ] {
        let dir = TempDir::new();
        let mut server = in_dir(&dir).with("save", points).start();
        let mut c = server.connect();
        c.check("SET a 1", "+OK");
        match how {
            "SIGTERM" => server.signal(Signal::TERM),
            command => c.send(format!("{command}\r\n")),
        }
        c.expect_closed();
        assert_eq!(server.wait_for_end().code(), Some(0));
        assert_eq!(dump_file(&dir).exists(), saves, "{how} with {points:?}");
        if saves {
            in_dir(&dir).start().connect().check("GET a", "\"1\"");
        }
    }
}

/// A shutdown during a BGSAVE ends that and takes its own snapshot.
#[test]
fn a_shutdown_during_a_save_has_the_latest_data() {
    let dir = TempDir::new();
    let mut server = in_dir(&dir).with("save", "3600 1").start();
    let mut c = server.connect();
    slow_to_save(&mut c, 1000, 1000);
    c.check("BGSAVE", "+Background saving started");
    c.check("SET late 1", "+OK");
    c.check("CONFIG SET rdb-key-save-delay 0", "+OK");
    server.signal(Signal::TERM);
    c.expect_closed();
    assert_eq!(server.wait_for_end().code(), Some(0));
    in_dir(&dir).start().connect().check("GET late", "\"1\"");
    assert_eq!(files(dir.path()), ["dump.rdb"]);
}

#[test]
fn a_shutdown_that_cannot_save_is_none() {
    let dir = TempDir::new();
    let mut server = in_dir(&dir).with("save", "3600 1").start();
    let (mut c, mut other) = (server.connect(), server.connect());
    obstruct(&dir);
    c.check("SET a 1", "+OK");
    c.check("SHUTDOWN", "-ERR Errors trying to SHUTDOWN. Check logs.");
    c.check("SET a 2", "+OK");
    server.signal(Signal::TERM);
    wait_until("it stays up", || server.output().matches("can't exit").count() == 2);
    other.check("SET a 3", "+OK");
    c.send("SHUTDOWN FORCE\r\n");
    c.expect_closed();
    assert_eq!(server.wait_for_end().code(), Some(0));
}

#[test]
fn a_damaged_file_is_refused_in_one_line() {
    let dir = TempDir::new();
    let server = in_dir(&dir).start();
    let mut c = server.connect();
    c.call(&["SET", "key", &"some text ".repeat(20)]);
    c.check("SAVE", "+OK");
    kill(server);
    let whole = std::fs::read(dump_file(&dir)).expect("the file");
    let middle = whole.len() / 2;
    let damaged = [&whole[..middle], &[!whole[middle]], &whole[middle + 1..]].concat();
    for content in [&whole[..whole.len() - 10], &damaged, b"nonsense", b""] {
        std::fs::write(dump_file(&dir), content).expect("the file");
        let path = dir.path().display().to_string();
        let launch = Launch::new(program()).with("port", &free_port().to_string());
        let outcome = launch.with("dir", &path).with("appendonly", "no").run();
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert_eq!(outcome.errors.lines().count(), 1, "{outcome:?}");
        assert!(outcome.errors.contains("dump.rdb"), "{outcome:?}");
    }
    std::fs::write(dump_file(&dir), &whole).expect("the file");
    in_dir(&dir).start().connect().check("DBSIZE", ":1");
}

/// Makes an RDB file with these keys and values in database 0, without a checksum.
fn file_of(entries: &[&[u8]]) -> Vec<u8> {
    [&b"REDIS0010\xfe\x00"[..], &entries.concat(), b"\xff\0\0\0\0\0\0\0\0"].concat()
}

#[test]
fn a_value_that_cannot_be_is_named_with_its_key() {
    let dir = TempDir::new();
    let twice = file_of(&[b"\x00\x01a\x01v", b"\x02\x05label\x02\x01m\x01m"]);
    std::fs::write(dump_file(&dir), twice).expect("the file");
    let launch = Launch::new(program()).with("port", &free_port().to_string());
    let path = dir.path().display().to_string();
    let outcome = launch.with("dir", &path).with("appendonly", "no").run();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let expected = "dump.rdb: the key label, near offset 28: it has the same member twice";
    assert!(outcome.errors.contains(expected), "{outcome:?}");
}

/// Redis has written such files, and loads them.
#[test]
fn empty_collections_are_left_out_of_a_file() {
    let dir = TempDir::new();
    let entries: [&[u8]; 3] = [b"\x00\x01a\x01v", b"\x02\x05empty\x00", b"\x01\x01l\x01\x01e"];
    std::fs::write(dump_file(&dir), file_of(&entries)).expect("the file");
    let server = in_dir(&dir).start();
    server.connect().check("DBSIZE", ":2");
    assert!(server.output().contains("the key empty before offset"), "{}", server.output());
}

#[test]
fn a_file_without_checksum_is_loaded_and_a_name_can_be_chosen() {
    let dir = TempDir::new();
    let start = || {
        let options =
            [("dbfilename", "other.rdb"), ("rdbchecksum", "no"), ("rdbcompression", "no")];
        options.iter().fold(in_dir(&dir), |launch, (name, value)| launch.with(name, value)).start()
    };
    let server = start();
    let mut c = server.connect();
    let text = "a".repeat(1000);
    c.call(&["SET", "key", &text]);
    c.check("SAVE", "+OK");
    kill(server);
    let file = std::fs::read(dir.path().join("other.rdb")).expect("the file");
    assert!(file.ends_with(&[0; 8]) && file.len() > 1000);
    assert_eq!(start().connect().ask("GET key").bytes(), text.as_bytes());
}

#[test]
fn debug_reload_goes_over_the_disk() {
    let dir = TempDir::new();
    let server = in_dir(&dir).with("enable-debug-command", "yes").start();
    let mut c = server.connect();
    c.check("SET a 1 EX 1000", "+OK");
    let deadline = c.ask("PEXPIRETIME a").int();
    c.check("DEBUG RELOAD", "+OK");
    c.check("PEXPIRETIME a", &format!(":{deadline}"));
    c.check("SET a 2", "+OK");
    c.check("SET b 2", "+OK");
    c.check("DEBUG RELOAD NOSAVE", "+OK");
    c.check("MGET a b", "[\"1\", nil]");
    c.check("SET b 3", "+OK");
    c.check("DEBUG RELOAD NOSAVE NOFLUSH", "+OK");
    c.check("MGET a b", "[\"1\", \"3\"]");
}

/// Pushes to a list until `end` is set. Returns the number of acknowledged pushes.
fn push_until(server: &Server, key: &str, end: &AtomicBool) -> i64 {
    let mut c = server.connect();
    let mut acknowledged = 0;
    while !end.load(Ordering::Relaxed) {
        acknowledged += 1;
        c.check(&format!("RPUSH {key} {acknowledged}"), &format!(":{acknowledged}"));
    }
    acknowledged
}

/// Reloads while others write, then kills the server: no acknowledged write is lost.
fn reload_under_writes(dir: &TempDir, shards: &str) {
    const RELOADS: usize = 30;
    let durable = || {
        let launch = launch().with("dir", &dir.path().display().to_string());
        let launch = launch.with("appendonly", "yes").with("enable-debug-command", "yes");
        launch.with("shards", shards).with("threads", "3").start()
    };
    let server = durable();
    let mut c = server.connect();
    c.check("MSET a 1 b 2", "+OK");
    let end = AtomicBool::new(false);
    let pushed: Vec<i64> = std::thread::scope(|scope| {
        let push = |key: &'static str| {
            let (server, end) = (&server, &end);
            scope.spawn(move || push_until(server, key, end))
        };
        let writers = [push("list:1"), push("list:2")];
        (0..RELOADS).for_each(|_| c.check("DEBUG RELOAD", "+OK"));
        end.store(true, Ordering::Relaxed);
        writers.map(|writer| writer.join().expect("a writer")).into()
    });
    let lengths = |c: &mut Connection| {
        ["list:1", "list:2"].map(|key| c.ask(&format!("LLEN {key}")).to_string())
    };
    let expected = [0, 1].map(|at| format!(":{}", pushed[at]));
    assert_eq!(lengths(&mut c), expected);
    c.check("DEBUG RELOAD", "+OK");
    kill(server);
    let server = durable();
    let mut c = server.connect();
    assert_eq!(lengths(&mut c), expected);
    c.check("MGET a b", r#"["1", "2"]"#);
}

#[test]
fn debug_reload_loses_nothing_that_others_write() {
    reload_under_writes(&TempDir::new(), "0");
}

#[test]
fn debug_reload_works_with_a_single_shard() {
    reload_under_writes(&TempDir::new(), "1");
}

/// The log is complete at each moment, so the server may die at any time.
#[test]
fn a_death_during_debug_reload_loses_nothing() {
    const KEYS: usize = 3000;
    for round in 0..4 {
        let dir = TempDir::new();
        let durable =
            || in_dir(&dir).with("appendonly", "yes").with("enable-debug-command", "yes").start();
        let server = durable();
        let mut c = server.connect();
        for key in 0..KEYS {
            c.request(&["SET", &format!("k{key}"), "value"]);
        }
        (0..KEYS).for_each(|_| c.expect("+OK"));
        // Some rounds die in the save, others in the load or after it.
        (0..round).for_each(|_| c.check("DEBUG RELOAD", "+OK"));
        c.send("DEBUG RELOAD\r\n");
        c.send("PING\r\n");
        server.connect().check("DBSIZE", &format!(":{KEYS}"));
        kill(server);
        durable().connect().check("DBSIZE", &format!(":{KEYS}"));
    }
}

#[test]
fn a_file_that_cannot_be_loaded_leaves_all_as_it_was() {
    let dir = TempDir::new();
    let server = in_dir(&dir).with("enable-debug-command", "yes").start();
    let mut c = server.connect();
    let failed = "-ERR Error trying to load the RDB dump, check server logs.";
    c.check("SET a 1", "+OK");
    c.check("DEBUG RELOAD NOSAVE", failed);
    let damaged = file_of(&[b"\x00\x01a\x01v", b"\x02\x05label\x02\x01m\x01m"]);
    std::fs::write(dump_file(&dir), damaged).expect("the file");
    c.check("DEBUG RELOAD NOSAVE", failed);
    c.check("KEYS *", r#"["a"]"#);
    c.check("GET a", "\"1\"");
    assert!(server.output().contains("the key label"), "{}", server.output());
}

#[test]
fn who_waits_for_a_key_gets_it_from_debug_reload() {
    let dir = TempDir::new();
    let server = in_dir(&dir).with("enable-debug-command", "yes").start();
    let mut c = server.connect();
    c.check("RPUSH list element", ":1");
    c.check("SAVE", "+OK");
    c.check("DEL list", ":1");
    let mut waiting = server.connect();
    waiting.send("BLPOP list 0\r\n");
    wait_until("it waits", || {
        let clients = c.ask("INFO clients").text().to_owned();
        clients.contains("blocked_clients:1")
    });
    c.check("DEBUG RELOAD NOSAVE", "+OK");
    waiting.expect(r#"["list", "element"]"#);
    c.check("EXISTS list", ":0");
}
