//! The server shuts down on request, and gives a clear reason if it cannot start.

use std::fs::OpenOptions;
use std::io::Read;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tierce_harness::{Launch, TempDir, encode};

use crate::{launch, program, server};

#[test]
fn signals_end_it_gracefully() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = server();
        let mut c = server.connect();
        c.check("SET a 1", "+OK");
        server.signal(signal);
        c.expect_closed();
        assert_eq!(server.wait_for_end().code(), Some(0), "{signal:?}");
        assert!(!server.errors().contains("panicked"), "{}", server.errors());
    }
}

#[test]
fn signals_end_a_start_that_loads() {
    for signal in [Signal::TERM, Signal::INT] {
        let dir = TempDir::new();
        // A snapshot whose bytes never come.
        let snapshot = dir.path().join("dump.rdb");
        let made = Command::new("mkfifo").arg(&snapshot).status().expect("mkfifo");
        assert!(made.success());
        let mut starting = Command::new(program())
            .args(["--port", "0", "--appendonly", "no"])
            .arg("--dir")
            .arg(dir.path())
            .arg("--unixsocket")
            .arg(dir.path().join("socket"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        // Opens when the other side does: then the program has begun to load.
        let _bytes = OpenOptions::new().write(true).open(&snapshot).expect("a pipe");
        kill_process(Pid::from_child(&starting), signal).expect("it runs");
        let status = starting.wait().expect("it has ended");
        let mut errors = String::new();
        starting.stderr.take().expect("a pipe").read_to_string(&mut errors).expect("text");
        assert_eq!(
            (status.code(), errors.as_str()),
            (Some(0), "tierce: A signal ends the start\n")
        );
    }
}

#[test]
fn shutdown_has_no_reply() {
    for command in ["SHUTDOWN", "SHUTDOWN NOSAVE", "SHUTDOWN NOW FORCE"] {
        let mut server = server();
        let (mut c, mut other) = (server.connect(), server.connect());
        other.check("PING", "+PONG");
        c.send([encode(&["PING"]), encode(&tierce_harness::words(command))].concat());
        c.expect("+PONG");
        c.expect_closed();
        other.expect_closed();
        assert_eq!(server.wait_for_end().code(), Some(0), "{command}");
    }
}

#[test]
fn misused_shutdown_is_an_error() {
    let server = server();
    let mut c = server.connect();
    c.check("SHUTDOWN NOSUCH", "-ERR syntax error");
    c.check("SHUTDOWN SAVE NOSAVE", "-ERR syntax error");
    c.check("SHUTDOWN ABORT", "-ERR No shutdown in progress.");
    c.check("PING", "+PONG");
}

#[test]
fn the_port_is_free_afterwards() {
    let mut first = server();
    let port = first.port();
    // Connections that the server closes keep its port busy for a while, unless the server avoids
    // that.
    let mut c = first.connect();
    c.check("PING", "+PONG");
    first.signal(Signal::TERM);
    first.wait_for_end();
    launch().on_port(port).start().connect().check("PING", "+PONG");
}

#[test]
fn a_port_in_use_is_one_line_and_exit_code_1() {
    let server = server();
    let outcome = Launch::new(program()).with("port", &server.port().to_string()).run();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert_eq!(outcome.errors.lines().count(), 1, "{outcome:?}");
    assert!(outcome.errors.starts_with("tierce: "), "{outcome:?}");
    assert!(outcome.errors.contains(&server.port().to_string()), "{outcome:?}");
    assert!(outcome.errors.to_lowercase().contains("address already in use"), "{outcome:?}");
    server.connect().check("PING", "+PONG");
}
