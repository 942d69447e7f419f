//! SCRIPT REGISTER and EVALNAME: scripts that are called by names, and survive.

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
