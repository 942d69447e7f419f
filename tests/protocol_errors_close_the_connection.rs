//! A protocol error is answered with an error, and then the connection is closed.

use tierce_harness::{encode, wait_until};

use crate::server;

#[test]
fn malformed_requests() {
    let server = server();
    let invalid_count = "invalid multibulk length";
    let invalid_len = "invalid bulk length";
    let digits = "1".repeat(70_000);
    let cases: &[(&str, &str)] = &[
        ("*a\r\n", invalid_count),
        ("*1a\r\n", invalid_count),
        ("* 1\r\n", invalid_count),
        ("*+1\r\n", invalid_count),
        ("*01\r\n", invalid_count),
        ("*2147483648\r\n", invalid_count),
        ("*9223372036854775808\r\n", invalid_count),
        ("*1\r\n:5\r\n", "expected '$', got ':'"),
        ("*1\r\nPING\r\n", "expected '$', got 'P'"),
        ("*1\r\n*1\r\n", "expected '$', got '*'"),
        ("*1\r\n$-1\r\n", invalid_len),
        ("*1\r\n$-2\r\n", invalid_len),
        ("*1\r\n$\r\n", invalid_len),
        ("*1\r\n$x\r\n", invalid_len),
        ("*1\r\n$+4\r\nPING\r\n", invalid_len),
        ("*1\r\n$04\r\nPING\r\n", invalid_len),
        ("*1\r\n$536870913\r\n", invalid_len),
        ("*1\r\n$9223372036854775808\r\n", invalid_len),
        ("*2\r\n$3\r\nGET\r\n$99999999999999999999\r\n", invalid_len),
        ("ECHO \"unbalanced\r\n", "unbalanced quotes in request"),
        ("ECHO 'unbalanced\r\n", "unbalanced quotes in request"),
        ("ECHO \"a\"b\r\n", "unbalanced quotes in request"),
        (&digits, "too big inline request"),
        (&format!("*{digits}"), "too big mbulk count string"),
        (&format!("*1\r\n${digits}"), "too big bulk count string"),
    ];
    for (sent, error) in cases {
        let mut connection = server.connect();
        connection.send(sent);
        let rest = connection.rest();
        let rest = String::from_utf8_lossy(&rest);
        let shown = &sent[..sent.len().min(40)];
        assert_eq!(rest, format!("-ERR Protocol error: {error}\r\n"), "the reply to: {shown:?}");
    }
    server.connect().check("PING", "+PONG");
}

#[test]
fn requests_before_the_error_are_executed_and_those_after_it_are_not() {
    let server = server();
    let mut connection = server.connect();
    let (set, late) = (encode(&["SET", "before", "1"]), encode(&["SET", "after", "1"]));
    connection.send([&set[..], b"*1\r\n$-5\r\n", &late].concat());
    let rest = connection.rest();
    assert_eq!(
        rest.escape_ascii().to_string(),
        "+OK\\r\\n-ERR Protocol error: invalid bulk length\\r\\n"
    );
    let mut other = server.connect();
    other.check("GET before", "\"1\"");
    other.check("GET after", "nil");
}

#[test]
fn errors_are_counted() {
    let server = server();
    let mut connection = server.connect();
    connection.send("*x\r\n");
    connection.rest();
    let stats = server.connect().ask("INFO errorstats").text().to_owned();
    assert!(!stats.contains("panicked"), "{stats}");
    server.connect().check("PING", "+PONG");
}

/// A web page can make the browser send a request here, with commands in its body. They must not
/// run.
#[test]
fn a_browser_is_no_client() {
    let server = server();
    for request in [
        "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nSET pwned 1\r\n",
        "post\r\nSET pwned 1\r\n",
        "Host: 127.0.0.1\r\nSET pwned 1\r\n",
        "*2\r\n$5\r\nhOST:\r\n$1\r\nx\r\nSET pwned 1\r\n",
    ] {
        let mut c = server.connect();
        c.send(format!("PING\r\n{request}"));
        assert_eq!(c.rest(), b"+PONG\r\n", "{request:?}");
    }
    let mut c = server.connect();
    c.check("EXISTS pwned", ":0");
    c.check("POSTS", "-ERR unknown command 'POSTS', with args beginning with: ");
    c.check("PING", "+PONG");
    wait_until("the log tells", || server.output().matches("SECURITY ATTACK").count() == 4);
}
