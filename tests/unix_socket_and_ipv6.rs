//! All addresses that the server listens on have the same data.

use std::net::{Ipv6Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;

use tierce_harness::{Connection, Launch, TempDir, encode};

use crate::{launch, program};

#[test]
fn a_unix_socket_besides_tcp() {
    let dir = TempDir::new();
    let path = dir.path().join("tierce.sock");
    let server = launch()
        .with("unixsocket", path.to_str().expect("UTF-8"))
        .with("unixsocketperm", "700")
        .start();
    let mode = std::fs::metadata(&path).expect("the socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let mut unix = Connection::unix(&path);
    unix.check("SET a 1", "+OK");
    server.connect().check("GET a", "\"1\"");
    unix.send(encode(&["INCR", "a"]).repeat(1000));
    (2..=1001).for_each(|n| assert_eq!(unix.reply().int(), n));
    let line = unix.ask("CLIENT INFO").text().to_owned();
    assert!(line.contains(&format!("addr={}:0 ", path.display())), "{line}");
    assert!(line.contains(" flags=U "), "{line}");
}

#[test]
fn the_socket_is_removed_at_the_end_and_an_old_one_is_replaced() {
    let dir = TempDir::new();
    let path = dir.path().join("tierce.sock");
    let launch = launch().with("unixsocket", path.to_str().expect("UTF-8"));
    // Killed: the file stays.
    drop(launch.start());
    assert!(path.exists());
    let mut server = launch.start();
    Connection::unix(&path).check("PING", "+PONG");
    server.signal(rustix::process::Signal::TERM);
    server.wait_for_end();
    assert!(!path.exists());
}

#[test]
fn several_addresses() {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        println!("this machine has no IPv6 loopback interface: nothing to test");
        return;
    }
    let dir = TempDir::new();
    let file = dir.write("server.conf", "bind 127.0.0.1 ::1 127.0.0.2\n");
    let server = launch().file(file).start();
    let mut v6 = Connection::tcp((Ipv6Addr::LOCALHOST, server.port()).into());
    v6.check("SET a 1", "+OK");
    let line = v6.ask("CLIENT INFO").text().to_owned();
    assert!(line.contains(&format!("addr={} ", v6.local_address())), "{line}");
    assert!(line.contains(&format!("laddr=[::1]:{} ", server.port())), "{line}");
    server.connect().check("GET a", "\"1\"");
    Connection::tcp(([127, 0, 0, 2], server.port()).into()).check("GET a", "\"1\"");
}

#[test]
fn an_address_that_is_not_ours() {
    let bind = |address: &str| Launch::new(program()).with("port", "1").with("bind", address).run();
    let outcome = bind("192.0.2.1");
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.errors.contains("192.0.2.1"), "{outcome:?}");
    assert_eq!(outcome.errors.lines().count(), 1, "{outcome:?}");
}

#[test]
fn loopback_only_by_default() {
    let server = launch().start();
    let bind = server.connect().ask("CONFIG GET bind").to_string();
    assert_eq!(bind, "[\"bind\", \"127.0.0.1 -::1\"]");
}
