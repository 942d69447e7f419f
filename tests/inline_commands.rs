//! Inline commands: a user can type them without a client library.

use crate::{launch, server};

#[test]
fn a_line_is_a_request() {
    let server = server();
    let mut c = server.connect();
    for (line, reply) in [
        ("PING\r\n", "+PONG"),
        ("PING\n", "+PONG"),
        ("  SET   key\tvalue  \r\n", "+OK"),
        ("GET key\n", "\"value\""),
        ("SET key \"a b\"\n", "+OK"),
        ("GET key\n", "\"a b\""),
        (r#"SET key "\x00\xfF\n\r\t\a\b\\\"""#, ""),
        ("\n", "+OK"),
        ("GET key\n", r#""\x00\xff\n\r\t\x07\x08\\\"""#),
        (r"SET key 'it\'s \x00'", ""),
        ("\n", "+OK"),
        ("GET 'key'\n", r#""it\'s \\x00""#),
        ("SET key \"\"\n", "+OK"),
        ("GET key\n", "\"\""),
        ("ECHO\n", "-ERR wrong number of arguments for 'echo' command"),
    ] {
        c.send(line);
        if !reply.is_empty() {
            let got = c.reply().to_string();
            assert_eq!(got, reply, "the reply to: {line:?}");
        }
    }
}

#[test]
fn empty_lines_are_no_requests() {
    let server = server();
    let mut c = server.connect();
    c.send("\r\n\n\r\n   \r\nPING\r\n");
    c.expect("+PONG");
    c.check("PING", "+PONG");
}

#[test]
fn lines_and_arrays_mix() {
    let server = server();
    let mut c = server.connect();
    c.send("SET a 1\r\n*2\r\n$4\r\nINCR\r\n$1\r\na\r\nGET a\n*1\r\n$4\r\nPING\r\n");
    c.expect("+OK");
    c.expect(":2");
    c.expect("\"2\"");
    c.expect("+PONG");
}

#[test]
fn a_line_may_be_long_but_not_endless() {
    let server = server();
    let mut c = server.connect();
    let value = "x".repeat(60_000);
    c.send(format!("SET key {value}\r\n"));
    c.expect("+OK");
    assert_eq!(c.ask("GET key").text(), value);
    c.send("x".repeat(70_000));
    let rest = c.rest().escape_ascii().to_string();
    assert_eq!(rest, "-ERR Protocol error: too big inline request\\r\\n");
}

#[test]
fn a_stranger_may_send_less() {
    let server = launch().with("requirepass", "pw").start();
    let mut c = server.connect();
    c.check(
        &format!("AUTH {}", "x".repeat(10_000)),
        "-WRONGPASS invalid username-password pair or user is disabled.",
    );
    c.send("x".repeat(40_000));
    assert_eq!(c.rest(), b"-ERR Protocol error: too big inline request\r\n");
}

/// As in Redis, which receives 16 KiB and looks for the end of the line before it checks its length.
#[test]
fn a_line_that_ends_soon_behind_the_limit_is_a_request() {
    let server = server();
    let mut c = server.connect();
    // Half of it has arrived when the rest comes.
    c.send(format!("PING\nECHO {}", "x".repeat(40_000)));
    c.expect("+PONG");
    c.send(format!("{}\n", "x".repeat(26_000)));
    assert_eq!(c.reply().bytes().len(), 66_000);
    c.send(format!("ECHO {}\n", "x".repeat(90_000)));
    assert_eq!(c.rest(), b"-ERR Protocol error: too big inline request\r\n");
}
