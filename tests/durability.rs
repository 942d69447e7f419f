//! Acknowledged writes are there after the server was killed and started again.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::Signal;
use tierce_harness::{
    Connection, Launch, Reply, Server, TempDir, encode, free_port, takes_up_to_seconds, wait_until,
};

use crate::launch;

fn durable(dir: &Path) -> Launch {
    launch().with("appendonly", "yes").with("dir", &dir.display().to_string())
}

/// Kills the server, and starts another one on its data.
fn restart(server: Server, launch: &Launch) -> Server {
    drop(server);
    launch.start()
}

#[test]
fn every_kind_of_write_is_there_after_a_kill() {
    let dir = TempDir::new();
    let launch = durable(dir.path());
    let server = launch.start();
    let mut c = server.connect();
    c.check("SET text hello", "+OK");
    c.check("SET number 41", "+OK");
    c.check("INCR number", ":42");
    c.check("APPEND text -world", ":11");
    c.check("SETRANGE text 0 J", ":11");
    c.check("SET short-lived 1 PX 1", "+OK");
    c.check("SET long-lived 1 EX 10000", "+OK");
    c.check("SET eternal 1 EX 10000", "+OK");
    c.check("PERSIST eternal", ":1");
    c.check("MSET a 1 b 2 c 3", "+OK");
    c.check("DEL b", ":1");
    c.check("RENAME c d", "+OK");
    c.check("COPY a e DB 5", ":1");
    c.check("SELECT 3", "+OK");
    c.check("SET gone 1", "+OK");
    c.check("FLUSHDB", "+OK");
    c.check("SET here 1", "+OK");
    c.check("SWAPDB 3 4", "+OK");
    let big = vec![b'x'; 3 << 20];
    c.call(&[&b"SET"[..], b"big", &big]);

    let server = restart(server, &launch);
    let mut c = server.connect();
    c.check("GET text", "\"Jello-world\"");
    c.check("GET number", "\"42\"");
    c.check("OBJECT ENCODING number", "\"int\"");
    c.check("EXISTS short-lived b c", ":0");
    let Reply::Int(ttl) = c.ask("TTL long-lived") else { panic!("a TTL is a number") };
    assert!((9_000..=10_000).contains(&ttl), "{ttl}");
    c.check("TTL eternal", ":-1");
    c.check("MGET a d", r#"["1", "3"]"#);
    c.check("DBSIZE", ":6");
    c.check("SELECT 5", "+OK");
    c.check("GET e", "\"1\"");
    c.check("SELECT 3", "+OK");
    // The big value was set after the swap.
    c.check("STRLEN big", ":3145728");
    c.check("DBSIZE", ":1");
    c.check("SELECT 4", "+OK");
    c.check("GET here", "\"1\"");
    c.check("DBSIZE", ":1");
}

#[test]
fn without_a_log_nothing_is_written() {
    let dir = TempDir::new();
    let launch = launch().with("appendonly", "no").with("dir", &dir.path().display().to_string());
    let server = launch.start();
    server.connect().check("SET a 1", "+OK");
    assert!(!dir.path().join("wal").exists());
    let server = restart(server, &launch);
    server.connect().check("GET a", "nil");
}

/// A new log would replace it, and with it all keys that were never loaded.
#[test]
fn a_log_that_is_not_loaded_is_kept() {
    let dir = TempDir::new();
    let server = durable(dir.path()).start();
    server.connect().check("SET k old", "+OK");
    let server = restart(server, &durable(dir.path()).with("appendonly", "no"));
    let told = || server.errors() + &server.output();
    wait_until("the log is named", || told().contains("is not loaded, and its keys are not there"));
    let mut c = server.connect();
    c.check("GET k", "nil");
    let reply = c.ask("CONFIG SET appendonly yes").to_string();
    assert!(reply.contains("was not loaded") && reply.contains("would be replaced"), "{reply}");
    c.check("CONFIG GET appendonly", r#"["appendonly", "no"]"#);
    let server = restart(server, &durable(dir.path()));
    server.connect().check("GET k", r#""old""#);
    // Now it is clear that the old log is not meant.
    let server = restart(server, &durable(dir.path()).with("appendonly", "no"));
    std::fs::rename(dir.path().join("wal"), dir.path().join("old")).expect("moved");
    let mut c = server.connect();
    c.check("SET k new", "+OK");
    c.check("CONFIG SET appendonly yes", "+OK");
    // A server may replace its own log.
    c.check("CONFIG SET appendonly no", "+OK");
    c.check("CONFIG SET appendonly yes", "+OK");
    wait_until("the log is complete", || info_field(&mut c, "aof_rewrite_in_progress") == "0");
    let server = restart(server, &durable(dir.path()));
    server.connect().check("GET k", r#""new""#);
}

#[test]
fn a_data_directory_serves_one_server_at_a_time() {
    let dir = TempDir::new();
    let _server = durable(dir.path()).start();
    let second = durable(dir.path()).with("port", &free_port().to_string()).run();
    assert_eq!(second.code, Some(1), "{second:?}");
    assert!(second.errors.contains("in use") || second.errors.contains("lock"), "{second:?}");
}

#[test]
fn a_client_chooses_how_durable_its_writes_are() {
    let dir = TempDir::new();
    let server = durable(dir.path()).start();
    let mut c = server.connect();
    c.check("CLIENT DURABILITY sometimes", "-ERR syntax error");
    let syncs =
        |c: &mut Connection| -> u64 { info_field(c, "log_syncs").parse().expect("a number") };
    c.check("CLIENT DURABILITY always", "+OK");
    let before = syncs(&mut c);
    for i in 0..20 {
        c.check(&format!("SET k {i}"), "+OK");
    }
    // One connection that waits for each reply gets a sync for each.
    assert!(syncs(&mut c) >= before + 20);
    c.check("CLIENT DURABILITY default", "+OK");
    c.check("SET k 1", "+OK");
    c.check("WAITAOF 1 0 0", "[:1, :0]");
    let info = c.ask("INFO persistence").to_string();
    let field =
        |name: &str| info.split(name).nth(1).unwrap().split("\\r").next().unwrap().to_owned();
    assert_eq!(field("log_records:"), field("log_records_durable:"));
    c.check("WAITAOF 2 0 0", "-ERR value is out of range, value must between 0 and 1");
}

fn info_field(c: &mut Connection, name: &str) -> String {
    let info = c.ask("INFO persistence");
    let mut lines = info.text().lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(field, _)| *field == name).expect("a field of INFO");
    value.to_owned()
}

/// Replies that wait for the disk do not delay other clients, and all of them come, in order.
#[test]
fn always_holds_back_only_the_replies_of_writes() {
    let dir = TempDir::new();
    let server = durable(dir.path()).with("appendfsync", "always").start();
    let mut connections: Vec<_> = (0..20).map(|_| server.connect()).collect();
    for round in 0..10 {
        for (number, c) in connections.iter_mut().enumerate() {
            let set = encode(&["SET", &format!("k{number}"), &format!("v{round}")]);
            let get = encode(&["GET", &format!("k{number}")]);
            c.send([set, get, encode(&["INCR", "all"])].concat());
        }
        for c in &mut connections {
            c.expect("+OK");
            c.expect(&format!("\"v{round}\""));
            assert!(matches!(c.reply(), Reply::Int(_)));
        }
    }
    connections[0].check("GET all", "\"200\"");
}

#[test]
fn the_log_is_compacted_and_stays_bounded() {
    let dir = TempDir::new();
    let launch = durable(dir.path())
        .with("auto-aof-rewrite-min-size", "1mb")
        .with("compaction-bytes-per-second", "0");
    let server = launch.start();
    let mut c = server.connect();
    let value = "v".repeat(1000);
    let rounds = 60;
    for round in 0..rounds {
        let requests =
            (0..500).map(|key| encode(&["SET", &format!("k{key}"), &format!("{round}{value}")]));
        c.send(requests.collect::<Vec<_>>().concat());
        (0..500).for_each(|_| c.expect("+OK"));
    }
    // 30 MB were written, of which 0.5 MB are live. A running pass may have begun long ago.
    wait_until("a pass begins", || c.ask("BGREWRITEAOF").text().ends_with("rewriting started"));
    wait_until("the log is compacted", || bytes_in(&dir.path().join("wal")) < 6 << 20);
    c.check("SET last 1", "+OK");
    let server = restart(server, &launch);
    let mut c = server.connect();
    c.check("DBSIZE", ":501");
    for key in 0..500 {
        c.check(&format!("GET k{key}"), &format!("\"{}{value}\"", rounds - 1));
    }
}

/// Values larger than one piece of the log, in commands that change several keys or whole values.
#[test]
fn large_values_are_there_after_a_kill() {
    let dir = TempDir::new();
    let launch = durable(dir.path());
    let server = launch.start();
    let mut c = server.connect();
    let element = vec![b'e'; 1 << 20];
    for number in 0..12 {
        let member = [number.to_string().as_bytes(), &element].concat();
        c.call(&[&b"RPUSH"[..], b"list", &member, b"short"]);
        c.call(&[&b"SADD"[..], b"set", &member]);
        c.call(&[&b"APPEND"[..], b"text", &member]);
    }
    let text = c.ask("STRLEN text").int();
    c.check("RENAME list renamed", "+OK");
    c.check("PEXPIREAT renamed 99999999999999", ":1");
    c.check("COPY renamed copy", ":1");
    c.check("COPY text text2 DB 3", ":1");
    c.check("SUNIONSTORE union set", ":12");
    c.check("MOVE set 2", ":1");
    c.call(&[&b"MSET"[..], b"a", &element, b"b", &element, b"c", b"small"]);
    c.call(&[&b"RPUSH"[..], b"two", &element.repeat(3), &element.repeat(2)]);

    let server = restart(server, &launch);
    let mut c = server.connect();
    c.check("EXISTS list set", ":0");
    c.check("LLEN renamed", ":24");
    c.check("PEXPIRETIME renamed", ":99999999999999");
    c.check("PEXPIRETIME copy", ":99999999999999");
    c.check("LLEN copy", ":24");
    c.check("LINDEX copy -1", "\"short\"");
    c.check("STRLEN text", &format!(":{text}"));
    c.check("SCARD union", ":12");
    c.check("MGET c nothing", "[\"small\", nil]");
    c.check("STRLEN b", ":1048576");
    assert_eq!(c.ask("LINDEX two 1").bytes(), element.repeat(2));
    c.check("SELECT 2", "+OK");
    c.check("SCARD set", ":12");
    c.check("SELECT 3", "+OK");
    c.check("STRLEN text2", &format!(":{text}"));
}

/// A bit at the end of a string of 512 MiB causes neither a log of that size nor that memory use.
#[test]
fn zero_bytes_that_nobody_wrote_are_not_logged() {
    let dir = TempDir::new();
    let server = durable(dir.path()).start();
    let mut c = server.connect();
    c.check("SETBIT bits 4294967295 1", ":0");
    c.check("SETRANGE range 500000000 end", ":500000003");
    let logged: u64 = info_field(&mut c, "aof_current_size").parse().expect("a number");
    assert!(logged < 10_000, "{logged} bytes");
    assert!(server.resident_bytes() < 256 << 20, "{} bytes", server.resident_bytes());
    c.check("GETBIT bits 4294967295", ":1");
    c.check("GETRANGE range 499999999 -1", "\"\\x00end\"");
}

fn bytes_in(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir).expect("a directory");
    // Compaction may remove a file between the listing and the stat.
    files.filter_map(|file| Some(file.ok()?.metadata().ok()?.len())).sum()
}

/// Acknowledged and requested steps of a client of the kill test.
#[derive(Default)]
struct Expected {
    asked: AtomicU64,
    told: AtomicU64,
}

/// Clients write without pause while the server is killed repeatedly. After each start every client
/// finds its acknowledged writes, and a prefix of its later ones.
#[test]
fn nothing_that_was_acknowledged_is_lost() {
    takes_up_to_seconds(180);
    const CLIENTS: usize = 4;
    for policy in ["everysec", "always", "no"] {
        let dir = TempDir::new();
        let launch = durable(dir.path())
            .with("appendfsync", policy)
            .with("auto-aof-rewrite-min-size", "64kb");
        let expected: Vec<Expected> = (0..CLIENTS).map(|_| Expected::default()).collect();
        for cycle in 0..kill_cycles() {
            let server = launch.start();
            let ends = AtomicBool::new(false);
            let checked = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for (number, expected) in expected.iter().enumerate() {
                    let (server, ends, checked) = (&server, &ends, &checked);
                    scope.spawn(move || {
                        let mut c = server.connect();
                        check_client(&mut c, number, expected);
                        checked.fetch_add(1, Ordering::Relaxed);
                        run_client(c, number, expected, ends);
                    });
                }
                wait_until("all have looked", || checked.load(Ordering::Relaxed) == CLIENTS as u64);
                // The kill comes after some progress, not after some time.
                let goal = expected[cycle % CLIENTS].told.load(Ordering::Relaxed) + 100;
                wait_until("clients make progress", || {
                    expected[cycle % CLIENTS].told.load(Ordering::Relaxed) >= goal
                });
                server.signal(Signal::KILL);
                ends.store(true, Ordering::Relaxed);
            });
            drop(server);
        }
        let server = launch.start();
        for (number, expected) in expected.iter().enumerate() {
            check_client(&mut server.connect(), number, expected);
        }
    }
}

fn kill_cycles() -> usize {
    std::env::var("TIERCE_KILL_CYCLES").map_or(3, |cycles| cycles.parse().expect("a number"))
}

/// Sends steps, a few at a time, until the connection breaks.
fn run_client(mut c: Connection, number: usize, expected: &Expected, ends: &AtomicBool) {
    const WINDOW: u64 = 8;
    while !ends.load(Ordering::Relaxed) {
        let first = expected.asked.load(Ordering::Relaxed) + 1;
        let steps = first..first + WINDOW;
        expected.asked.store(steps.end - 1, Ordering::Relaxed);
        let requests: Vec<_> = steps.clone().map(|step| requests_of(number, step)).collect();
        if c.try_send(requests.concat()).is_err() {
            return;
        }
        for step in steps {
            for _ in 0..REPLIES_A_STEP {
                if c.reply_or_rest().is_empty() {
                    return;
                }
            }
            expected.told.store(step, Ordering::Relaxed);
        }
    }
}

/// Replies to the requests of one step.
const REPLIES_A_STEP: usize = 10;

/// Writes a key that it declares, and others that it does not.
const SCRIPT: &str = "redis.call('append', KEYS[1], 'x') redis.call('set', KEYS[1] .. ':last', ARGV[1]) \
                      redis.call('rpush', KEYS[1] .. ':all', ARGV[1]) return ARGV[1]";

fn requests_of(number: usize, step: u64) -> Vec<u8> {
    let name = |what: &str| format!("{number}:{what}");
    let text = step.to_string();
    [
        encode(&["INCR", &name("count")]),
        encode(&["APPEND", &name("long"), "x"]),
        encode(&["MSET", &name("left"), &text, &name("right"), &text]),
        encode(&["RENAME", &name("left"), &name("middle")]),
        encode(&["MULTI"]),
        encode(&["SET", &name("together"), &text]),
        encode(&["APPEND", &name("with"), "x"]),
        encode(&["RPUSH", &name("these"), &text]),
        encode(&["EXEC"]),
        encode(&["EVAL", SCRIPT, "1", &name("script"), &text]),
    ]
    .concat()
}

/// Compares the data with the acknowledged writes, and continues from the data.
fn check_client(c: &mut Connection, number: usize, expected: &Expected) {
    let (told, asked) =
        (expected.told.load(Ordering::Relaxed), expected.asked.load(Ordering::Relaxed));
    let count = number_of(c, &format!("GET {number}:count"));
    assert!((told..=asked).contains(&count), "client {number}: {told} <= {count} <= {asked}");
    let long = number_of(c, &format!("STRLEN {number}:long"));
    assert!((told..=count).contains(&long), "client {number}: {told} <= {long} <= {count}");
    let right = number_of(c, &format!("GET {number}:right"));
    assert!((told..=long).contains(&right), "client {number}: {told} <= {right} <= {long}");
    // A step sets both names at once, and moves one of them afterwards, atomically.
    let left = number_of(c, &format!("GET {number}:left"));
    let middle = number_of(c, &format!("GET {number}:middle"));
    assert!(left == right || (left == 0 && middle == right), "{left} {middle} {right}");
    // A transaction is there completely or not at all.
    let together = number_of(c, &format!("GET {number}:together"));
    assert!((told..=right).contains(&together), "client {number}: {told} <= {together} <= {right}");
    assert_eq!(number_of(c, &format!("STRLEN {number}:with")), together);
    assert_eq!(number_of(c, &format!("LLEN {number}:these")), together);
    // So are the writes of a script.
    let script = number_of(c, &format!("STRLEN {number}:script"));
    assert!(
        (told..=together).contains(&script),
        "client {number}: {told} <= {script} <= {together}"
    );
    assert_eq!(number_of(c, &format!("LLEN {number}:script:all")), script);
    assert_eq!(number_of(c, &format!("GET {number}:script:last")), script);
    // Writes in progress when the server died may be there in part: continue from one state.
    for what in ["count", "right", "middle"] {
        c.check(&format!("SET {number}:{what} {asked}"), "+OK");
    }
    let missing = "x".repeat((asked - long) as usize);
    c.call(&["APPEND", &format!("{number}:long"), &missing]);
    c.ask(&format!("DEL {number}:left"));
    c.check(&format!("SET {number}:together {asked}"), "+OK");
    let missing = vec!["x"; (asked - together) as usize];
    if !missing.is_empty() {
        c.call(&["APPEND", &format!("{number}:with"), &missing.concat()]);
        c.ask(&format!("RPUSH {number}:these {}", missing.join(" ")));
    }
    for step in script + 1..=asked {
        let (key, text) = (format!("{number}:script"), step.to_string());
        c.call(&["EVAL", SCRIPT, "1", &key, &text]);
    }
    expected.told.store(asked, Ordering::Relaxed);
}

fn number_of(c: &mut Connection, request: &str) -> u64 {
    match c.ask(request) {
        Reply::Int(number) => number as u64,
        Reply::Bulk(text) => String::from_utf8_lossy(&text).parse().expect("a number"),
        Reply::Nil => 0,
        reply => panic!("{request}: {reply}"),
    }
}
