//! WATCH and UNWATCH: the changes after which EXEC does nothing.
//!
//! The expected replies are those of redis-server 7.0.15. All tests also run against it, except those of other
//! protocols and of the server's reports.

use tierce_harness::{Both, Connection, Server, encode, wait_until};

use crate::{launch, server};

/// Watches in one database while others change keys. Returns true if EXEC then does nothing.
fn is_dirty_after(server: &Server, before: &str, watch: &str, changes: &[&str]) -> bool {
    let (mut c, mut other) = (server.connect(), server.connect());
    other.check("FLUSHALL", "+OK");
    before.split("; ").filter(|line| !line.is_empty()).for_each(|line| _ = other.ask(line));
    other.check("SELECT 0", "+OK");
    c.check(watch, "+OK");
    changes.iter().for_each(|line| _ = other.ask(line));
    !exec(&mut c)
}

/// Returns true if a transaction is executed.
fn exec(c: &mut Connection) -> bool {
    c.check("MULTI", "+OK");
    c.check("PING", "+QUEUED");
    match c.ask("EXEC").to_string().as_str() {
        "[+PONG]" => true,
        "nil-array" | "null" => false,
        other => panic!("{other}"),
    }
}

#[test]
fn a_change_of_a_watched_key_fails_exec() {
    let server = server();
    for (before, change, is_dirty) in [
        ("", "SET k v", true),
        ("", "SET other v", false),
        ("", "GET k", false),
        ("", "DEL k", false),
        ("SET k v", "DEL k", true),
        ("SET k v", "SET k v", true),
        ("SET k v", "SET k w NX", false),
        ("SET k v", "LPUSH k a", false),
        ("SET k v", "APPEND k more", true),
        ("SET k v", "EXPIRE k 100", true),
        ("SET k v", "EXPIRE k 100 XX", false),
        ("SET k v EX 100", "PERSIST k", true),
        ("SET k v", "PERSIST k", false),
        ("SET k v EX 100", "GETEX k", false),
        ("SET k v", "OBJECT FREQ k", false),
        ("SET k v", "TOUCH k", false),
        ("SADD k a", "SADD k a", false),
        ("SADD k a", "SADD k b", true),
        ("SADD k a; SADD s b", "SUNIONSTORE k s", true),
        ("SADD k a", "SINTERSTORE k nosuch", true),
        ("SADD k a; SADD s b", "SMOVE s k b", true),
        ("ZADD k 1 a", "ZADD k 1 a", false),
        ("ZADD k 1 a", "ZADD k 2 a", true),
        ("HSET k f v", "HSET k f v", true),
        ("HSET k f v", "HDEL k g", false),
        ("RPUSH k a b", "LTRIM k 0 0", true),
        ("RPUSH k a b", "LREM k 0 c", false),
        ("RPUSH k a b", "RPOPLPUSH k k", true),
        ("XADD k 1-1 f v", "XADD k 2-1 f v", true),
        ("XADD k 1-1 f v", "XDEL k 9-9", false),
        ("PFADD k a", "PFADD k a", false),
        ("SET k v", "RENAME k other", true),
        ("SET a v", "RENAME a k", true),
        ("SET a v", "COPY a k", true),
        ("SET k v", "COPY k other", false),
        ("SET k v", "MOVE k 1", true),
        ("SET a v", "MOVE a 1", false),
        ("SELECT 1; SET k v", "MOVE k 0", false),
        ("RPUSH a 2 1", "SORT a STORE k", true),
        ("SET k v", "FLUSHDB", true),
        ("", "FLUSHDB", false),
        ("SET k v", "FLUSHALL", true),
        ("", "FLUSHALL", false),
        ("SELECT 1; SET k v", "FLUSHALL", false),
        ("SET k v", "SWAPDB 0 1", true),
        ("SELECT 1; SET k v", "SWAPDB 0 1", true),
        ("", "SWAPDB 0 1", false),
        ("SET k v", "SWAPDB 1 2", false),
        ("SET k v", "SWAPDB 0 0", false),
    ] {
        let found = is_dirty_after(&server, before, "WATCH k", &[change]);
        assert_eq!(found, is_dirty, "before: {before}; change: {change}");
    }
    let changes = ["SELECT 1", "SET k v"];
    assert!(!is_dirty_after(&server, "", "WATCH k", &changes), "a key of another database");
    assert!(is_dirty_after(&server, "", "WATCH a b c", &["SET b v"]));
    assert!(is_dirty_after(&server, "", "WATCH k k", &["SET k v"]));
}

#[test]
fn a_transaction_ends_what_was_watched() {
    let server = server();
    let (mut c, mut other) = (server.connect(), server.connect());
    for end in ["UNWATCH", "DISCARD", "RESET", "EXEC"] {
        c.check("WATCH k", "+OK");
        other.check("SET k v", "+OK");
        if ["DISCARD", "EXEC"].contains(&end) {
            c.check("MULTI", "+OK");
        }
        _ = c.ask(end);
        assert!(exec(&mut c), "after {end}");
    }
    c.check("WATCH k", "+OK");
    c.check("SET k own", "+OK");
    assert!(!exec(&mut c), "its own changes count, too");
    assert!(exec(&mut c), "once");
}

#[test]
fn commands_between_multi_and_exec_count_if_others_sent_them() {
    let server = server();
    let (mut c, mut other) = (server.connect(), server.connect());
    c.check("WATCH k", "+OK");
    c.check("MULTI", "+OK");
    c.check("WATCH k", "-ERR WATCH inside MULTI is not allowed");
    c.check("SET k 1", "+QUEUED");
    c.check("INCR k", "+QUEUED");
    c.check("UNWATCH", "+QUEUED");
    c.check("EXEC", "[+OK, :2, +OK]");
    c.check("WATCH k", "+OK");
    c.check("MULTI", "+OK");
    c.check("SET k 1", "+QUEUED");
    other.check("SET k 7", "+OK");
    c.check("EXEC", "nil-array");
    c.check("GET k", "\"7\"");
    // An error while queueing takes precedence.
    c.check("WATCH k", "+OK");
    other.check("SET k 8", "+OK");
    c.check("MULTI", "+OK");
    c.check("GET", "-ERR wrong number of arguments for 'get' command");
    c.check("EXEC", "-EXECABORT Transaction discarded because of previous errors.");
    assert!(exec(&mut c));
}

#[test]
fn a_pipeline_sees_its_own_changes() {
    let server = server();
    let mut c = server.connect();
    let send = |c: &mut Connection, lines: &[&str]| {
        let bytes = lines.iter().flat_map(|line| encode(&line.split(' ').collect::<Vec<_>>()));
        c.send(bytes.collect::<Vec<_>>());
    };
    send(&mut c, &["SET k 1", "WATCH k", "GET k", "MULTI", "INCR k", "EXEC"]);
    let replies = ["+OK", "+OK", "\"1\"", "+OK", "+QUEUED", "[:2]"];
    replies.iter().for_each(|reply| c.expect(reply));
    send(&mut c, &["WATCH k", "SET k 5", "MULTI", "INCR k", "EXEC", "GET k"]);
    let replies = ["+OK", "+OK", "+OK", "+QUEUED", "nil-array", "\"5\""];
    replies.iter().for_each(|reply| c.expect(reply));
}

/// A command with so many arguments runs on another thread: watched keys and queued commands move there and back.
#[test]
fn any_number_of_keys_is_watched() {
    let server = server();
    let (mut c, mut other) = (server.connect(), server.connect());
    let many: String = (0..10_001).map(|number| format!(" k{number}")).collect();
    let watch = format!("WATCH{many}");
    c.check(&watch, "+OK");
    assert!(exec(&mut c), "nothing has changed");
    c.check(&watch, "+OK");
    other.check("SET k10000 v", "+OK");
    assert!(!exec(&mut c));
    c.check("WATCH k", "+OK");
    c.check(&watch, "+OK");
    other.check("SET k v", "+OK");
    assert!(!exec(&mut c), "what was watched before stays so");
    c.check("WATCH k", "+OK");
    c.check(&format!("TOUCH{many}"), ":1");
    other.check("SET k w", "+OK");
    assert!(!exec(&mut c), "behind another command with as many arguments");
    c.check("MULTI", "+OK");
    c.check("SET a 1", "+QUEUED");
    c.check(&watch, "-ERR WATCH inside MULTI is not allowed");
    c.check("INCR a", "+QUEUED");
    c.check("EXEC", "[+OK, :2]");
}

/// Returns the time of the server in milliseconds.
fn now_ms(c: &mut Connection) -> i64 {
    let reply = c.ask("TIME");
    let part = |n: usize| reply.items()[n].text().parse::<i64>().expect("a number");
    part(0) * 1000 + part(1) / 1000
}

/// Sets a key that expires in a moment.
fn set_short(c: &mut Connection, key: &str) -> i64 {
    let deadline_ms = now_ms(c) + 20;
    c.check(&format!("SET {key} v PXAT {deadline_ms}"), "+OK");
    deadline_ms
}

fn wait_for(c: &mut Connection, deadline_ms: i64) {
    wait_until("a deadline comes", || now_ms(c) > deadline_ms);
}

#[test]
fn a_key_that_expires_while_it_is_watched_has_changed() {
    let server = server();
    let (mut c, mut other) = (server.connect(), server.connect());
    let mut deadline_ms = 0;
    wait_until("it is watched before its deadline", || {
        c.check("UNWATCH", "+OK");
        deadline_ms = set_short(&mut other, "k");
        c.check("WATCH k", "+OK");
        now_ms(&mut c) < deadline_ms
    });
    wait_for(&mut other, deadline_ms);
    assert!(!exec(&mut c));
}

#[test]
fn a_key_that_had_expired_before_it_was_watched_was_not_there() {
    // Expired keys stay until they are read.
    let server = launch().with("enable-debug-command", "yes").start();
    let (mut c, mut other) = (server.connect(), server.connect());
    other.check("DEBUG SET-ACTIVE-EXPIRE 0", "+OK");
    for (look, is_dirty) in [("GET k", false), ("SET k v", true), ("FLUSHALL", false)] {
        let deadline_ms = set_short(&mut other, "k");
        wait_for(&mut other, deadline_ms);
        c.check("WATCH k", "+OK");
        _ = other.ask(look);
        assert_eq!(!exec(&mut c), is_dirty, "{look}");
    }
    // An expired key of another database does not count as one that came.
    other.check("FLUSHALL", "+OK");
    other.check("SELECT 1", "+OK");
    let deadline_ms = set_short(&mut other, "k");
    wait_for(&mut other, deadline_ms);
    c.check("WATCH k", "+OK");
    other.check("SWAPDB 0 1", "+OK");
    other.check("SELECT 0", "+OK");
    other.check("GET k", "nil");
    assert!(exec(&mut c));
}

#[test]
fn other_protocols_change_watched_keys() {
    let memcached = Both::start(launch(), "memcached-port");
    let pedrokv = Both::start(launch(), "pedrokv-port");
    let put = [0, 10, 1, 2, 0, 0, 0, 0, b'k', b'v'];
    for (both, bytes) in [(memcached, &b"set k 0 0 1\r\nv\r\n"[..]), (pedrokv, &put)] {
        let mut c = both.server.connect();
        c.check("WATCH k", "+OK");
        assert!(!both.talk([bytes]).is_empty());
        c.check("GET k", "\"v\"");
        assert!(!exec(&mut c));
    }
}

#[test]
fn it_is_shown_who_watches() {
    let server = server();
    let (mut c, mut other) = (server.connect(), server.connect());
    let mut shown = |what: &str| {
        let info = other.ask("INFO clients").text().to_owned();
        let line = info.lines().find_map(|line| line.strip_prefix(&format!("{what}:")));
        line.expect("a field").parse::<u64>().expect("a number")
    };
    let field = |c: &mut Connection, name: &str| {
        let line = c.ask("CLIENT INFO").text().to_owned();
        let field = line.split(' ').find_map(|it| it.strip_prefix(&format!("{name}=")));
        field.expect("a field").trim().to_owned()
    };
    assert_eq!(field(&mut c, "watch"), "0");
    c.check("WATCH a b a c", "+OK");
    assert_eq!((field(&mut c, "watch"), field(&mut c, "flags")), ("3".into(), "N".into()));
    assert_eq!((shown("watching_clients"), shown("total_watched_keys")), (1, 3));
    c.check("SET b v", "+OK");
    assert_eq!((field(&mut c, "watch"), field(&mut c, "flags")), ("0".into(), "d".into()));
    assert_eq!(shown("watching_clients"), 0);
    c.check("UNWATCH", "+OK");
    assert_eq!((shown("total_watched_keys"), field(&mut c, "flags")), (0, "N".into()));
    c.check("WATCH a b", "+OK");
    assert_eq!((shown("watching_clients"), shown("total_watched_keys")), (1, 2));
    drop(c);
    wait_until("its end", || (shown("watching_clients"), shown("total_watched_keys")) == (0, 0));
}
