//! `port`, `bind` and `unixsocket`, at the start and at run time.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;

use crate::operations::support::{Client, TestServer, free_port, is_closed};

#[test]
fn config_set_port_moves_the_listener_and_keeps_the_clients() {
    let server = TestServer::start();
    let (mut client, other) = (server.client(), free_port());
    client.check(&[(&format!("CONFIG SET port {other}"), "OK"), ("PING", "PONG")]);
    Client::connect(other)
        .check(&[("PING", "PONG"), ("CONFIG GET port", &format!("[port, {other}]"))]);
    assert!(is_closed(server.port));
    // There and back at once: the first listener leaves nothing in the way.
    client.check(&[(&format!("CONFIG SET port {}", server.port), "OK")]);
    server.client().check(&[("PING", "PONG")]);
    assert!(is_closed(other));
}

#[test]
fn a_port_in_use_refuses_the_change() {
    let server = TestServer::start();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut client = server.client();
    let reply = client.call(&format!("CONFIG SET maxclients 77 port {port}"));
    assert_eq!(
        reply,
        format!(
            "-ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen on \
             this port. could not listen on 127.0.0.1:{port}: address already in use"
        )
    );
    let present = format!("[port, {}, maxclients, 10000]", server.port);
    client.check(&[("CONFIG GET port maxclients", &present)]);
    server.client().check(&[("PING", "PONG")]);
}

#[test]
fn config_set_bind_keeps_the_listeners_that_stay() {
    let server = TestServer::start();
    let mut client = server.client();
    // While the workers sleep, this connection waits in the listener's queue.
    client.check(&[("CONFIG SET bind \"127.0.0.1 127.0.0.2\"", "OK")]);
    assert!(TcpStream::connect(("127.0.0.2", server.port)).is_ok());
    let mut early = server.client();
    client.check(&[("CONFIG SET bind 127.0.0.1", "OK")]);
    early.check(&[("PING", "PONG")]);
    assert!(TcpStream::connect(("127.0.0.2", server.port)).is_err());
    server.client().check(&[("PING", "PONG")]);
}

#[test]
fn one_address_and_all_addresses_replace_each_other() {
    let server = TestServer::start();
    let mut client = server.client();
    client.check(&[("CONFIG SET bind *", "OK")]);
    assert!(TcpStream::connect(("127.0.0.3", server.port)).is_ok());
    client.check(&[("CONFIG SET bind 127.0.0.1", "OK")]);
    assert!(TcpStream::connect(("127.0.0.3", server.port)).is_err());
    server.client().check(&[("PING", "PONG")]);
}

#[test]
fn an_address_that_cannot_be_had_leaves_all_as_it_was() {
    let server = TestServer::start();
    let mut client = server.client();
    let reply = client.call("CONFIG SET bind \"127.0.0.2 203.0.113.1\"");
    assert!(reply.contains("'bind') - Failed to bind to specified addresses."), "{reply}");
    client.check(&[("CONFIG GET bind", "[bind, 127.0.0.1]")]);
    assert!(TcpStream::connect(("127.0.0.2", server.port)).is_err());
    // This also holds if the own listener was in the way and had to stop for the attempt.
    let taken = TcpListener::bind(("127.0.0.4", server.port)).unwrap();
    let reply = client.call("CONFIG SET bind *");
    assert!(reply.starts_with("-ERR CONFIG SET failed"), "{reply}");
    drop(taken);
    server.client().check(&[("PING", "PONG")]);
}

#[test]
fn an_optional_address_may_be_missing() {
    let server = TestServer::with("--bind \"127.0.0.1 -203.0.113.1\"");
    server
        .client()
        .check(&[("CONFIG SET bind \"-203.0.113.2 127.0.0.1\"", "OK"), ("PING", "PONG")]);
}

/// The next start would be refused, and nobody could connect to change it back.
#[test]
fn the_last_port_stays() {
    let server = TestServer::with("");
    let mut client = server.client();
    let reply = client.call("CONFIG SET port 0");
    assert!(reply.contains("nothing to listen on"), "{reply}");
    client.check(&[("PING", "PONG")]);
    assert!(!is_closed(server.port));
}

#[test]
fn a_unix_socket_has_its_permissions_and_goes_with_the_server() {
    let server = TestServer::with("--unixsocket {dir}/s.sock --unixsocketperm 600");
    let path = server.dir.join("s.sock");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut client = Client::connect_unix(&path);
    client.check(&[("CONFIG SET port 0", "OK"), ("PING", "PONG")]);
    assert!(is_closed(server.port));
    let info = client.call("INFO server");
    assert!(info.contains("tcp_port:0\r\n") && !info.contains("listener0"), "{info}");
    assert!(info.contains(&format!("listener1:name=unix,bind={}\r\n", path.display())), "{info}");
    assert!(Client::connect_unix(&path).call("CLIENT LIST").contains(" flags=U "));
    drop(server);
    assert!(!path.exists());
}

#[test]
fn info_tells_the_listeners_as_configured() {
    let server = TestServer::with("--bind \"127.0.0.1 -::1\"");
    let info = server.client().call("INFO server");
    let line = format!("listener0:name=tcp,bind=127.0.0.1,bind=-::1,port={}\r\n", server.port);
    assert!(info.contains(&line), "{info}");
}
