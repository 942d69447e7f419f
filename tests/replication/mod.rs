//! Primaries and their replicas: their messages to each other, and the effects on writes and data.
//!
//! - `primary`: the handshake and full copies; `stream`: the commands after them; `functions`: functions alone. The
//!   replica is a test, with the code in `fake_replica`.
//! - `replica`: a server that follows a primary, which is a test with the code in `fake_primary`.
//! - `roles`: a server that changes its role while a stream arrives; `scripts`: a primary that replicates calls of
//!   scripts.
//! - `chain`: replicas of replicas, and resynchronization; `items`: memcached's items on replicas.
//! - `durability`: restarts of a primary, and writes that wait for replicas.

mod chain;
mod durability;
pub(crate) mod fake_primary;
pub(crate) mod fake_replica;
mod functions;
mod items;
mod primary;
pub(crate) mod replica;
mod roles;
mod scripts;
mod stream;

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use tierce_harness::{Connection, Launch, Server, TempDir, wait_until};

use crate::program;

/// Makes a launch of a server whose disk is full: no file can grow beyond this number of KiB.
pub(crate) fn on_a_full_disk(dir: &TempDir, kib: u32) -> Launch {
    let limited = dir.path().join("limited");
    let (blocks, program) = (kib * 2, program().display().to_string());
    let script = format!("#!/bin/sh\ntrap '' XFSZ\nulimit -f {blocks}\nexec '{program}' \"$@\"\n");
    std::fs::write(&limited, script).expect("a file");
    std::fs::set_permissions(&limited, Permissions::from_mode(0o755)).expect("a mode");
    Launch::new(limited)
}

/// Writes more than fits on the disk of [`on_a_full_disk`], until writes are refused.
pub(crate) fn fill_disk(server: &Server) {
    let mut unlucky = server.connect();
    unlucky.request(&[&b"SET"[..], b"large", &vec![b'x'; 12_000_000]]);
    // It may be acknowledged before the disk is full.
    unlucky.reply_or_rest();
    wait_until("writes are refused", || {
        // A write that was accepted is not acknowledged after the log has failed: its connection is closed.
        let mut c = server.connect();
        c.request(&["SET", "a", "1"]);
        c.reply_or_rest().starts_with(b"-MISCONF")
    });
}

/// Returns the value of a line of `INFO replication`.
pub(crate) fn info(c: &mut Connection, name: &str) -> String {
    let text = c.ask("INFO everything").text().to_owned();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
}

/// Writes to one of several keys `K`, with a number `N`.
const WRITES: &[&str] = &[
    "SET s:K N",
    "SET s:K N EX 1000",
    "APPEND s:K N",
    "INCRBY n:K N",
    "INCRBYFLOAT n:K 0.5",
    "PERSIST s:K",
    "SETRANGE s:K 5 N",
    "DEL s:K",
    "GETDEL n:K",
    "EXPIRE n:K 5000",
    "SETBIT s:K 77 1",
    "RPUSH l:K N a b",
    "LPUSH l:K N",
    "LPOP l:K",
    "LINSERT l:K BEFORE a N",
    "LREM l:K 1 a",
    "LSET l:K 0 N",
    "SADD t:K N m",
    "SPOP t:K",
    "ZADD z:K N m",
    "ZADD z:K N N",
    "ZINCRBY z:K 1.5 m",
    "ZPOPMIN z:K",
    "HSET h:K f N g N",
    "HINCRBY h:K f N",
    "HDEL h:K g",
    "XADD x:K * f N",
    "XTRIM x:K MAXLEN 5",
    "PFADD p:K N",
    "RENAME l:K l:0",
    "COPY h:K h:1 REPLACE",
    "SMOVE t:K t:0 m",
    "EVAL \"redis.call('SET', KEYS[1], ARGV[1]); return redis.call('INCR', KEYS[1])\" 1 n:K N",
];

/// Returns all keys with their values and deadlines. Sets and hashes are sorted.
fn contents(c: &mut Connection) -> BTreeMap<String, (Vec<Vec<u8>>, i64)> {
    let keys = c.ask("KEYS *");
    let value = |c: &mut Connection, key: &str| {
        let value = match c.ask(&format!("TYPE {key}")).text() {
            "set" => c.ask(&format!("SMEMBERS {key}")),
            "hash" => c.ask(&format!("HGETALL {key}")),
            _ => return vec![c.ask(&format!("DUMP {key}")).bytes().to_vec()],
        };
        let mut elements: Vec<_> = value.items().iter().map(|item| item.bytes().to_vec()).collect();
        elements.sort();
        elements
    };
    let keys = keys.items().iter().map(|key| key.text().to_owned());
    keys.map(|key| {
        let value = value(c, &key);
        let deadline = c.ask(&format!("PEXPIRETIME {key}")).int();
        (key, (value, deadline))
    })
    .collect()
}

/// Fails for the first key that differs.
#[track_caller]
pub(crate) fn assert_same(one: &mut Connection, other: &mut Connection) {
    let (one, other) = (contents(one), contents(other));
    assert!(!one.is_empty());
    for (key, value) in &one {
        assert_eq!(other.get(key), Some(value), "{key}");
    }
    assert_eq!(one.len(), other.len());
}
