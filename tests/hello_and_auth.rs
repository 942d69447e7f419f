//! HELLO selects the protocol version, AUTH authenticates.

use tierce_harness::encode;

use crate::{launch, server};

#[test]
fn a_connection_speaks_resp2_until_it_says_hello_3() {
    let server = server();
    let mut c = server.connect();
    c.check("GET absent", "nil");
    let hello = c.ask("HELLO");
    assert_eq!(hello.field("proto").int(), 2);
    assert!(hello.to_string().starts_with("[\"server\", \"redis\", "), "{hello}");
    let hello = c.ask("HELLO 3");
    assert!(hello.to_string().starts_with("{\"server\": \"redis\", "), "{hello}");
    assert_eq!(hello.field("proto").int(), 3);
    assert_eq!(hello.field("mode").text(), "standalone");
    assert_eq!(hello.field("role").text(), "master");
    assert_eq!(hello.field("modules").items(), []);
    assert_eq!(hello.field("id"), &c.ask("CLIENT ID"));
    c.check("GET absent", "null");
    c.ask("HELLO 2");
    c.check("GET absent", "nil");
}

/// Libraries compare the version to find out which commands they may use.
#[test]
fn the_version_is_one_that_clients_understand() {
    let server = server();
    let hello = server.connect().ask("HELLO");
    let version = hello.field("version").text();
    let parts: Vec<u32> = version.split('.').map(|part| part.parse().expect("a number")).collect();
    assert!(parts.len() == 3 && parts[0] >= 7, "{version}");
    let info = server.connect().ask("INFO server");
    assert!(info.text().contains(&format!("redis_version:{version}\r\n")), "{info}");
}

#[test]
fn hello_understands_its_options_or_does_nothing() {
    let server = server();
    let mut c = server.connect();
    c.ask("HELLO 3 SETNAME me");
    c.check("CLIENT GETNAME", "\"me\"");
    c.check("HELLO 4", "-NOPROTO unsupported protocol version");
    c.check("HELLO 1", "-NOPROTO unsupported protocol version");
    c.check("HELLO x", "-ERR Protocol version is not an integer or out of range");
    c.check("HELLO 2 NOSUCH", "-ERR Syntax error in HELLO option 'NOSUCH'");
    c.check("HELLO 2 SETNAME", "-ERR Syntax error in HELLO option 'SETNAME'");
    c.check("HELLO 2 AUTH a", "-ERR Syntax error in HELLO option 'AUTH'");
    c.check(
        "HELLO 2 SETNAME 'a b'",
        "-ERR Client names cannot contain spaces, newlines or special characters.",
    );
    c.check(
        "HELLO 2 AUTH nobody x",
        "-WRONGPASS invalid username-password pair or user is disabled.",
    );
    // Nothing of the refused call took effect.
    c.check("GET absent", "null");
    c.check("CLIENT GETNAME", "\"me\"");
}

#[test]
fn reset_returns_to_the_beginning() {
    let server = server();
    let mut c = server.connect();
    c.ask("HELLO 3 SETNAME me");
    c.ask("SELECT 5");
    c.check("RESET", "+RESET");
    c.check("GET absent", "nil");
    c.check("CLIENT GETNAME", "nil");
    c.check("SET here 1", "+OK");
    let mut other = server.connect();
    other.check("GET here", "\"1\"");
}

#[test]
fn without_a_password_everybody_may_enter() {
    let server = server();
    let mut c = server.connect();
    c.check("AUTH default anything", "+OK");
    c.check(
        "AUTH secret",
        "-ERR AUTH <password> called without any password configured for the default user. Are \
         you sure your configuration is correct?",
    );
    c.check("AUTH other x", "-WRONGPASS invalid username-password pair or user is disabled.");
    c.check("AUTH a b c", "-ERR syntax error");
    c.check("AUTH", "-ERR wrong number of arguments for 'auth' command");
}

const REFUSED: &str = "-NOAUTH Authentication required.";
const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.";

#[test]
fn with_a_password_the_door_is_closed() {
    let server = launch().with("requirepass", "open sesame").start();
    let mut c = server.connect();
    c.check("GET a", REFUSED);
    c.check("PING", REFUSED);
    c.check("CLIENT LIST", REFUSED);
    let hello = c.ask("HELLO 3");
    assert!(hello.text().starts_with("NOAUTH HELLO must be called with the client"), "{hello}");
    c.check("AUTH open", WRONG);
    c.check("AUTH 'open sesame!'", WRONG);
    c.check("AUTH ''", WRONG);
    c.check("AUTH nobody 'open sesame'", WRONG);
    c.check("GET a", REFUSED);
    c.check("AUTH 'open sesame'", "+OK");
    c.check("GET a", "nil");
    c.check("AUTH wrong", WRONG);
    c.check("GET a", "nil");
    c.check("RESET", "+RESET");
    c.check("GET a", REFUSED);
    c.check("QUIT", "+OK");
    c.expect_closed();
}

#[test]
fn hello_opens_the_door_too() {
    let server = launch().with("requirepass", "secret").start();
    let mut c = server.connect();
    c.check("HELLO 3 AUTH default wrong", WRONG);
    let hello = c.ask("HELLO 3 AUTH default secret SETNAME me");
    assert_eq!(hello.field("proto").int(), 3);
    c.check("CLIENT GETNAME", "\"me\"");
}

#[test]
fn a_pipeline_may_begin_with_auth() {
    let server = launch().with("requirepass", "secret").start();
    let mut c = server.connect();
    let requests = [&["GET", "a"][..], &["AUTH", "secret"], &["SET", "a", "1"], &["GET", "a"]];
    c.send(requests.map(encode).concat());
    c.expect(REFUSED);
    c.expect("+OK");
    c.expect("+OK");
    c.expect("\"1\"");
}

/// A client that is not authenticated yet may only use little memory of the server.
#[test]
fn requests_are_small_before_the_door() {
    let server = launch().with("requirepass", "secret").start();
    for (sent, error) in [
        ("*11\r\n", "unauthenticated multibulk length"),
        ("*1\r\n$16385\r\n", "unauthenticated bulk length"),
    ] {
        let mut c = server.connect();
        c.send(sent);
        let rest = c.rest().escape_ascii().to_string();
        assert_eq!(rest, format!("-ERR Protocol error: {error}\\r\\n"));
    }
}

#[test]
fn the_password_may_change() {
    let server = server();
    let mut inside = server.connect();
    inside.check("CONFIG SET requirepass new", "+OK");
    inside.check("PING", "+PONG");
    let mut c = server.connect();
    c.check("PING", REFUSED);
    c.check("AUTH new", "+OK");
    c.check("CONFIG SET requirepass ''", "+OK");
    server.connect().check("PING", "+PONG");
}

#[test]
fn hello_needs_no_password_when_there_is_none_any_more() {
    let server = launch().with("requirepass", "secret").start();
    let mut operator = server.connect();
    operator.check("AUTH secret", "+OK");
    let mut early = server.connect();
    early.check("GET k", "-NOAUTH Authentication required.");
    assert_eq!(operator.call(&["CONFIG", "SET", "requirepass", ""]).text(), "OK");
    let greeting = early.ask("HELLO 2");
    assert!(!greeting.items().is_empty(), "{greeting:?}");
}
