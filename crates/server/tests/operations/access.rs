//! Access control: passwords, protected mode, the number of clients.

use std::io::Read;
use std::net::{IpAddr, TcpStream, UdpSocket};

use crate::operations::support::TestServer;

#[test]
fn a_password_set_at_run_time_is_for_new_clients() {
    let server = TestServer::start();
    let mut early = server.client();
    early.check(&[("CONFIG SET requirepass secret", "OK"), ("GET k", "(nil)")]);
    let mut late = server.client();
    late.check(&[
        ("GET k", "-NOAUTH Authentication required."),
        ("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("AUTH someone secret", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("AUTH secret", "OK"),
        ("GET k", "(nil)"),
        ("RESET", "RESET"),
        ("GET k", "-NOAUTH Authentication required."),
        ("AUTH default secret", "OK"),
    ]);
    let mut waiting = server.client();
    waiting.check(&[("PING", "-NOAUTH Authentication required.")]);
    early.check(&[("CONFIG SET requirepass \"\"", "OK")]);
    waiting.check(&[("PING", "PONG")]);
}

#[test]
fn hello_tells_what_is_missing() {
    let server = TestServer::with("--requirepass secret");
    let mut client = server.client();
    let missing = "-NOAUTH HELLO must be called with the client already authenticated, otherwise \
                   the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the \
                   client and select the RESP protocol version at the same time";
    client.check(&[
        ("HELLO", missing),
        ("HELLO 3", missing),
        ("HELLO 4", "-NOPROTO unsupported protocol version"),
        ("HELLO x", "-ERR Protocol version is not an integer or out of range"),
        ("HELLO 3 AUTH default", "-ERR Syntax error in HELLO option 'AUTH'"),
        (
            "HELLO 3 AUTH default wrong SETNAME me",
            "-WRONGPASS invalid username-password pair or user is disabled.",
        ),
    ]);
    assert!(client.call("HELLO 3 AUTH default secret SETNAME me").starts_with("{server=redis, "));
    client.check(&[("CLIENT GETNAME", "me")]);
}

/// Returns an address of this machine that is not its loopback, if it has one.
fn outer_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: connecting only chooses a route. The address is one for documentation.
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

#[test]
fn protected_mode_keeps_strangers_out() {
    // A machine without a network has no remote clients.
    let Some(ip) = outer_address() else { return };
    let server = TestServer::with("--bind *");
    let greeting = || {
        let mut stream = TcpStream::connect((ip, server.port)).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let denied = greeting();
    assert!(denied.starts_with("-DENIED Redis is running in protected mode "), "{denied}");
    assert!(denied.ends_with("\r\n") && denied.lines().count() == 1, "{denied}");
    let mut local = server.client();
    let info = local.call("INFO stats");
    assert!(info.contains("rejected_connections:1\r\n"), "{info}");
    for directive in ["protected-mode no", "protected-mode yes requirepass secret"] {
        local.check(&[(&format!("CONFIG SET {directive}"), "OK")]);
        let mut stream = TcpStream::connect((ip, server.port)).unwrap();
        std::io::Write::write_all(&mut stream, b"PING\r\n").unwrap();
        let mut first = [0];
        stream.read_exact(&mut first).unwrap();
        assert!(b"+-".contains(&first[0]));
    }
}

#[test]
fn maxclients_bounds_and_is_bounded() {
    let server = TestServer::with("--maxclients 2");
    let (mut one, mut two) = (server.client(), server.client());
    one.check(&[("PING", "PONG")]);
    two.check(&[("PING", "PONG")]);
    assert_eq!(server.client().next(), "-ERR max number of clients reached");
    one.check(&[("CONFIG SET maxclients 3", "OK")]);
    server.client().check(&[("PING", "PONG")]);
    // More than any kernel allows, so that this is refused even if the test may raise limits.
    let reply = one.call("CONFIG SET maxclients 4294967295");
    let expected = "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - The \
                    operating system is not able to handle the specified number of clients, try \
                    with ";
    assert!(reply.starts_with(expected), "{reply}");
    assert!(reply[expected.len()..].parse::<u64>().is_ok(), "{reply}");
    one.check(&[("CONFIG GET maxclients", "[maxclients, 3]")]);
}

#[test]
fn the_longest_value_follows_the_directive() {
    let server = TestServer::with("--proto-max-bulk-len 2mb");
    let mut client = server.client();
    let too_long = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    client.check(&[
        ("SETRANGE k 2097151 x", ":2097152"),
        ("SETRANGE k 2097152 x", too_long),
        ("APPEND k x", too_long),
        ("CONFIG SET proto-max-bulk-len 3mb", "OK"),
        ("APPEND k x", ":2097153"),
        ("CONFIG SET proto-max-bulk-len 1mb", "OK"),
        ("APPEND k x", too_long),
        ("STRLEN k", ":2097153"),
    ]);
    client.send_raw(b"*2\r\n$3\r\nGET\r\n$1048577\r\n");
    assert_eq!(client.next(), "-ERR Protocol error: invalid bulk length");
    assert_eq!(client.next(), "(closed)");
}
