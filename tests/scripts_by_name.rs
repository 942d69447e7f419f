//! SCRIPT REGISTER and EVALNAME: scripts that are called by name, and survive restarts.

use rustix::process::Signal;
use tierce_harness::{Connection, TempDir};

use crate::{launch, server};

const COUNT: &str = "return redis.call('incrby', KEYS[1], ARGV[1])";

#[track_caller]
fn check(c: &mut Connection, call: &[&str], expected: &str) {
    assert_eq!(c.call(call).to_string(), expected, "{call:?}");
}

#[test]
fn a_name_means_the_script_that_was_registered_last() {
    let server = server();
    let (mut c, mut other) = (server.connect(), server.connect());
    check(&mut c, &["SCRIPT", "REGISTER", "count", COUNT], "+OK");
    check(&mut other, &["EVALNAME", "count", "1", "visits", "10"], ":10");
    check(&mut c, &["SCRIPT", "REGISTER", "count", "return 'another'"], "+OK");
    check(&mut other, &["EVALNAME", "count", "0"], "\"another\"");
    check(&mut c, &["SCRIPT", "REGISTER", "a", "return 1"], "+OK");
    check(&mut c, &["SCRIPT", "NAMES"], "[\"a\", \"count\"]");
    check(&mut c, &["SCRIPT", "FLUSH"], "+OK");
    check(&mut c, &["FLUSHALL"], "+OK");
    check(&mut other, &["EVALNAME", "a", "0"], ":1");
    check(&mut c, &["SCRIPT", "UNREGISTER", "a"], ":1");
    check(&mut c, &["SCRIPT", "UNREGISTER", "a"], ":0");
    check(
        &mut other,
        &["EVALNAME", "a", "0"],
        "-NOSCRIPT No script has this name. Please use SCRIPT REGISTER.",
    );
    let broken = c.call(&["SCRIPT", "REGISTER", "a", "return +"]).to_string();
    assert!(broken.starts_with("-ERR Error compiling script"), "{broken}");
    check(
        &mut c,
        &["SCRIPT", "REGISTER", "", "return 1"],
        "-ERR the name of a script has 1 to 65536 bytes",
    );
    check(&mut c, &["SCRIPT", "NAMES"], "[\"count\"]");
}

/// A script that is called by its name has all rights of the caller.
#[test]
fn code_that_others_run_is_dangerous() {
    let server = server();
    let (mut c, mut user) = (server.connect(), server.connect());
    check(&mut c, &["SCRIPT", "REGISTER", "count", COUNT], "+OK");
    c.check("ACL SETUSER alice on >pw ~* +@all -@dangerous", "+OK");
    user.check("AUTH alice pw", "+OK");
    for call in [
        &["SCRIPT", "REGISTER", "count", "return 1"][..],
        &["SCRIPT", "UNREGISTER", "count"],
        &["FUNCTION", "LOAD", "REPLACE", "#!lua name=l\nredis.register_function('f', print)"],
        &["FUNCTION", "DELETE", "l"],
        &["FUNCTION", "FLUSH"],
        &["FUNCTION", "RESTORE", "x", "REPLACE"],
    ] {
        let denied = user.call(call).to_string();
        assert!(denied.starts_with("-NOPERM User alice has no permissions"), "{call:?}: {denied}");
    }
    check(&mut user, &["EVALNAME", "count", "1", "visits", "10"], ":10");
}

#[test]
fn registered_code_counts_towards_maxmemory() {
    let server = server();
    let mut c = server.connect();
    c.check("CONFIG SET maxmemory 5mb", "+OK");
    let source = format!("return 1 --{}", "x".repeat(1_000_000));
    let registered = (0..15)
        .take_while(|number| {
            let reply = c.call(&["SCRIPT", "REGISTER", &number.to_string(), &source]).to_string();
            assert!(reply == "+OK" || reply.starts_with("-OOM"), "{reply}");
            reply == "+OK"
        })
        .count();
    // Half of the memory is for code.
    assert_eq!(registered, 2);
    let memory = c.ask("INFO memory").text().to_owned();
    let shown = memory.lines().find_map(|line| line.strip_prefix("used_memory_scripts:"));
    let shown: usize = shown.expect("the field").trim().parse().expect("a number");
    assert!(shown > registered * source.len(), "{shown}");
    // The rest is for keys.
    let value = "v".repeat(100_000);
    let keys = (0..100)
        .take_while(|number| c.call(&["SET", &number.to_string(), &value]).to_string() == "+OK")
        .count();
    assert!((25..35).contains(&keys), "{keys}");
    for number in 0..registered {
        check(&mut c, &["SCRIPT", "UNREGISTER", &number.to_string()], ":1");
    }
    c.check("SET k v", "+OK");
}

/// Keys must not be evicted for code, which eviction cannot free.
#[test]
fn code_takes_at_most_half_of_the_memory_and_evicts_no_key() {
    let server = launch().with("maxmemory", "5mb").with("maxmemory-policy", "allkeys-lru").start();
    let mut c = server.connect();
    let value = "v".repeat(10_000);
    for number in 0..200 {
        check(&mut c, &["SET", &number.to_string(), &value], "+OK");
    }
    let library = |name: &str, len| {
        let code = format!("redis.register_function('{name}', function() return 1 end)");
        format!("#!lua name={name}\n{code} --{}", "x".repeat(len))
    };
    let script = |len| format!("return 1 --{}", "x".repeat(len));
    let (small, large) = (1_000_000, 2_700_000);
    check(&mut c, &["FUNCTION", "LOAD", &library("a", small)], "\"a\"");
    check(&mut c, &["SCRIPT", "REGISTER", "s", &script(small)], "+OK");
    let dump = c.call(&["FUNCTION", "DUMP"]).bytes().to_vec();
    for call in [
        &["FUNCTION", "LOAD", &library("b", small)][..],
        &["FUNCTION", "LOAD", "REPLACE", &library("a", large)],
        &["SCRIPT", "REGISTER", "s", &script(large)],
        &["SCRIPT", "REGISTER", "t", &script(small)],
    ] {
        let refused = c.call(call).to_string();
        assert!(refused.starts_with("-OOM"), "{refused}");
    }
    // There is room for a replacement.
    check(&mut c, &["FUNCTION", "LOAD", "REPLACE", &library("a", small + 1)], "\"a\"");
    c.check("FUNCTION FLUSH", "+OK");
    check(&mut c, &["SCRIPT", "REGISTER", "t", &script(small)], "+OK");
    let restore = [&b"FUNCTION"[..], b"RESTORE", &dump];
    let refused = c.call(&restore).to_string();
    assert!(refused.starts_with("-OOM"), "{refused}");
    c.check("SCRIPT UNREGISTER t", ":1");
    assert_eq!(c.call(&restore).to_string(), "+OK");
    c.check("DBSIZE", ":200");
}

#[test]
fn names_survive_the_end_of_the_server() {
    let dir = TempDir::new();
    let start = |log: &str| {
        launch().with("dir", dir.path().to_str().unwrap()).with("appendonly", log).start()
    };
    let mut server = start("yes");
    let mut c = server.connect();
    check(&mut c, &["SCRIPT", "REGISTER", "count", COUNT], "+OK");
    check(&mut c, &["SCRIPT", "REGISTER", "gone", COUNT], "+OK");
    check(&mut c, &["SCRIPT", "UNREGISTER", "gone"], ":1");
    server.signal(Signal::KILL);
    server.wait_for_end();
    let server = start("yes");
    let mut c = server.connect();
    check(&mut c, &["SCRIPT", "NAMES"], "[\"count\"]");
    check(&mut c, &["EVALNAME", "count", "1", "n", "2"], ":2");
}
