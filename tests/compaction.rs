//! Changes during a compaction of the log are there after a start.

use std::path::Path;

use tierce_harness::{Connection, Launch, TempDir, encode, wait_until};

use crate::launch;

/// Makes a launch with compactions that take a second for each megabyte.
fn slow(dir: &Path) -> Launch {
    launch()
        .with("appendonly", "yes")
        .with("dir", &dir.display().to_string())
        .with("databases", "16")
        .with("compaction-bytes-per-second", "1mb")
}

fn persistence(c: &mut Connection, field: &str) -> u64 {
    let info = c.ask("INFO persistence");
    let mut fields = info.text().lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(name, _)| *name == field).expect("a field of INFO");
    value.parse().expect("a number")
}

fn is_compacting(c: &mut Connection) -> bool {
    persistence(c, "aof_rewrite_in_progress") == 1
}

/// Begins a compaction, and returns when it has written something.
fn begin_compaction(c: &mut Connection) {
    let before = persistence(c, "aof_current_size");
    c.ask("BGREWRITEAOF");
    wait_until("the pass has begun", || persistence(c, "aof_current_size") > before + 100_000);
}

fn send_all(c: &mut Connection, requests: impl Iterator<Item = Vec<u8>>) {
    let requests: Vec<_> = requests.collect();
    let count = requests.len();
    c.send(requests.concat());
    (0..count).for_each(|_| _ = c.reply());
}

#[test]
fn emptying_a_database_loses_no_list_of_another() {
    let dir = TempDir::new();
    let launch = slow(dir.path());
    let server = launch.start();
    let mut c = server.connect();
    let element = "e".repeat(1000);
    send_all(&mut c, (0..1500).map(|_| encode(&["RPUSH", "list", &element])));
    begin_compaction(&mut c);
    c.check("SELECT 5", "+OK");
    c.check("FLUSHDB", "+OK");
    c.check("SELECT 0", "+OK");
    assert!(is_compacting(&mut c), "too quick to test anything");
    c.check("RPUSH list after", ":1501");
    wait_until("the pass is complete", || !is_compacting(&mut c));
    drop(server);
    let server = launch.start();
    let mut c = server.connect();
    c.check("LLEN list", ":1501");
    c.check("LINDEX list -1", "\"after\"");
}

#[test]
fn what_is_edited_and_expires_before_its_turn_does_not_come_back() {
    const KEYS: usize = 200;
    let dir = TempDir::new();
    let launch = slow(dir.path());
    let server = launch.start();
    let mut c = server.connect();
    let value = "v".repeat(1000);
    send_all(&mut c, (0..4000).map(|n| encode(&["SET", &format!("s:{n}"), &value])));
    let name = |n| format!("h:{n}");
    send_all(&mut c, (0..KEYS).map(|n| encode(&["HSET", &name(n), "a", "1"])));
    send_all(&mut c, (0..KEYS).map(|n| encode(&["PEXPIRE", &name(n), "2000"])));
    begin_compaction(&mut c);
    send_all(&mut c, (0..KEYS).map(|n| encode(&["HSET", &name(n), "b", "2"])));
    assert!((0..KEYS).all(|n| c.ask(&format!("TTL {}", name(n))).int() >= 0), "too slow");
    wait_until("the keys have expired", || c.ask("DBSIZE").int() == 4000);
    assert!(is_compacting(&mut c), "too quick to test anything");
    wait_until("the pass is complete", || !is_compacting(&mut c));
    drop(server);
    let server = launch.start();
    let mut c = server.connect();
    c.check("DBSIZE", ":4000");
    assert!((0..KEYS).all(|n| c.ask(&format!("EXISTS {}", name(n))).int() == 0));
}
