//! Keys with a time to live end at that time, and not before.
//!
//! Nothing here depends on the speed of the machine: tests wait for expiry, and keys that must not
//! expire yet have a hundred seconds.

use tierce_harness::{Connection, wait_until};

use crate::server;

const FAR_MS: &str = "99999999999999";

fn wait_for_end(c: &mut Connection, key: &str) {
    wait_until("the key expires", || c.ask(&format!("EXISTS {key}")).int() == 0);
}

#[test]
fn an_expired_key_is_absent_for_every_command() {
    let server = server();
    let mut c = server.connect();
    c.check("SET a 1 PX 20", "+OK");
    wait_for_end(&mut c, "a");
    c.check("GET a", "nil");
    c.check("STRLEN a", ":0");
    c.check("TYPE a", "+none");
    c.check("TTL a", ":-2");
    c.check("PTTL a", ":-2");
    c.check("EXPIRETIME a", ":-2");
    c.check("PERSIST a", ":0");
    c.check("EXPIRE a 100", ":0");
    c.check("RENAME a b", "-ERR no such key");
    c.check("COPY a b", ":0");
    c.check("MOVE a 1", ":0");
    c.check("DEL a", ":0");
    c.check("GETDEL a", "nil");
    c.check("KEYS *", "[]");
    c.check("SCAN 0", "[\"0\", []]");
    c.check("RANDOMKEY", "nil");
    c.check("SET a 2 XX", "nil");
    c.check("SETNX a 3", ":1");
    c.check("TTL a", ":-1");
}

#[test]
fn a_counter_starts_over() {
    let server = server();
    let mut c = server.connect();
    c.check("SET a 41 PX 20", "+OK");
    wait_for_end(&mut c, "a");
    c.check("INCR a", ":1");
    c.check("TTL a", ":-1");
}

/// A deadline belongs to a value, and is removed with it, unless a command only changes the value.
#[test]
fn what_keeps_the_time_and_what_ends_it() {
    let server = server();
    let mut c = server.connect();
    let keeps = [
        "INCR k",
        "APPEND k 1",
        "SETRANGE k 0 5",
        "GETRANGE k 0 1",
        "SET k 1 KEEPTTL",
        "INCRBYFLOAT k 1",
        "GETEX k",
        "COPY k k2",
        "TOUCH k",
        "DECRBY k 3",
        "SET k 9 KEEPTTL GET",
    ];
    for command in keeps {
        c.check(&format!("SET k 10 PXAT {FAR_MS}"), "+OK");
        c.ask(command);
        c.check("PEXPIRETIME k", &format!(":{FAR_MS}"));
    }
    c.check("PEXPIRETIME k2", &format!(":{FAR_MS}"));
    for command in
        ["SET k 1", "GETSET k 1", "MSET k 1", "PERSIST k", "GETEX k PERSIST", "SET k 1 GET"]
    {
        c.check(&format!("SET k 10 PXAT {FAR_MS}"), "+OK");
        c.ask(command);
        c.check("PEXPIRETIME k", ":-1");
    }
}

#[test]
fn a_new_time_replaces_the_old_one() {
    let server = server();
    let mut c = server.connect();
    c.check("SET a 1 PX 30", "+OK");
    c.check("SET a 2 EX 100", "+OK");
    for (key, renews) in [("b", "EXPIRE b 100"), ("c", "PERSIST c")] {
        // In one transaction, so that it has not expired before.
        c.check("MULTI", "+OK");
        c.check(&format!("SET {key} 1 PX 30"), "+QUEUED");
        c.check(renews, "+QUEUED");
        c.check("EXEC", "[+OK, :1]");
    }
    c.check("SET probe 1 PX 60", "+OK");
    wait_for_end(&mut c, "probe");
    c.check("MGET a b c", "[\"2\", \"1\", \"1\"]");
}

#[test]
fn the_time_travels_with_the_key() {
    let server = server();
    let mut c = server.connect();
    c.check(&format!("SET a 1 PXAT {FAR_MS}"), "+OK");
    c.check("SET taken 2", "+OK");
    c.check("RENAME a taken", "+OK");
    c.check("PEXPIRETIME taken", &format!(":{FAR_MS}"));
    c.check("MOVE taken 3", ":1");
    c.check("SELECT 3", "+OK");
    c.check("PEXPIRETIME taken", &format!(":{FAR_MS}"));
    c.check("SET plain 1", "+OK");
    c.check("RENAME plain taken", "+OK");
    c.check("PEXPIRETIME taken", ":-1");
}

#[test]
fn conditions_of_expire() {
    let server = server();
    let mut c = server.connect();
    c.check("SET k 1", "+OK");
    for (command, changed, time) in [
        ("EXPIREAT k 5000000000 XX", 0, -1_i64),
        ("EXPIREAT k 5000000000 GT", 0, -1),
        ("EXPIREAT k 5000000000 NX", 1, 5_000_000_000),
        ("EXPIREAT k 6000000000 NX", 0, 5_000_000_000),
        ("EXPIREAT k 5000000000 GT", 0, 5_000_000_000),
        ("EXPIREAT k 5000000001 GT", 1, 5_000_000_001),
        ("EXPIREAT k 5000000002 LT", 0, 5_000_000_001),
        ("EXPIREAT k 4000000000 LT", 1, 4_000_000_000),
        ("EXPIREAT k 4500000000 XX GT", 1, 4_500_000_000),
        ("PERSIST k", 1, -1),
        ("EXPIREAT k 4000000000 LT", 1, 4_000_000_000),
    ] {
        c.check(command, &format!(":{changed}"));
        c.check("EXPIRETIME k", &format!(":{time}"));
    }
    let together = "-ERR NX and XX, GT or LT options at the same time are not compatible";
    for options in ["NX XX", "NX GT", "LT NX"] {
        c.check(&format!("EXPIRE k 100 {options}"), together);
    }
    c.check("EXPIRE k 100 GT LT", "-ERR GT and LT options at the same time are not compatible");
    c.check("EXPIRE k 100 NOSUCH", "-ERR Unsupported option NOSUCH");
}

#[test]
fn a_time_in_the_past_deletes() {
    let server = server();
    let mut c = server.connect();
    for command in
        ["EXPIRE k 0", "EXPIRE k -1", "PEXPIRE k -100", "EXPIREAT k 1", "PEXPIREAT k 1000"]
    {
        c.check("SET k 1", "+OK");
        c.check(command, ":1");
        c.check("EXISTS k", ":0");
    }
    c.check("SET k 1 PXAT 1", "+OK");
    c.check("EXISTS k", ":0");
    c.check("SET k 1", "+OK");
    c.check("GETEX k EXAT 1", "\"1\"");
    c.check("EXISTS k", ":0");
}

#[test]
fn times_that_make_no_sense_are_refused() {
    let server = server();
    let mut c = server.connect();
    c.check("SET k 1", "+OK");
    let set = "-ERR invalid expire time in 'set' command";
    for options in ["EX 0", "EX -1", "PX 0", "EXAT 0", "PXAT -5", "EX 9223372036854775807"] {
        c.check(&format!("SET k 2 {options}"), set);
    }
    c.check("SETEX k 0 2", "-ERR invalid expire time in 'setex' command");
    c.check("PSETEX k -1 2", "-ERR invalid expire time in 'psetex' command");
    c.check("GETEX k EX 0", "-ERR invalid expire time in 'getex' command");
    c.check("EXPIRE k 9223372036854775807", "-ERR invalid expire time in 'expire' command");
    c.check("EXPIRE k -9223372036854775808", "-ERR invalid expire time in 'expire' command");
    c.check("PEXPIRE k 9223372036854775807", "-ERR invalid expire time in 'pexpire' command");
    c.check("EXPIRE k x", "-ERR value is not an integer or out of range");
    c.check("SET k 2 EX 1.5", "-ERR value is not an integer or out of range");
    c.check("SET k 2 EX 10 PX 10", "-ERR syntax error");
    c.check("SET k 2 EX 10 KEEPTTL", "-ERR syntax error");
    c.check("GET k", "\"1\"");
    c.check("TTL k", ":-1");
}

#[test]
fn remaining_times() {
    let server = server();
    let mut c = server.connect();
    c.check("SET k 1 EX 100", "+OK");
    assert!((90..=100).contains(&c.ask("TTL k").int()));
    assert!((90_000..=100_000).contains(&c.ask("PTTL k").int()));
    let now: i64 = c.ask("TIME").items()[0].text().parse().expect("seconds");
    let until = c.ask("EXPIRETIME k").int();
    assert!((now + 90..=now + 101).contains(&until), "{now} {until}");
    c.check("TTL absent", ":-2");
    c.check("SET k 1", "+OK");
    c.check("TTL k", ":-1");
    c.check("PTTL k", ":-1");
}

/// The memory of expired keys that are never read is freed, too.
#[test]
fn forgotten_keys_are_removed() {
    const KEYS: usize = 20_000;
    let server = server();
    let mut c = server.connect();
    for n in 0..KEYS {
        c.request(&["SET", &format!("short:{n}"), &"x".repeat(100), "PX", "50"]);
    }
    (0..KEYS).for_each(|_| c.expect("+OK"));
    c.check("SET long 1 EX 1000", "+OK");
    c.check("SET forever 1", "+OK");
    // DBSIZE does not access single keys, so it cannot be the cause of their removal.
    wait_until("all short keys are gone", || c.ask("DBSIZE").int() == 2);
    let stats = c.ask("INFO stats").text().to_owned();
    assert!(stats.contains(&format!("expired_keys:{KEYS}\r\n")), "{stats}");
    c.check("MGET long forever", "[\"1\", \"1\"]");
    let keyspace = c.ask("INFO keyspace").text().to_owned();
    assert!(keyspace.contains("db0:keys=2,expires=1,"), "{keyspace}");
}
