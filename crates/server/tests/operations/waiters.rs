//! Clients that wait for keys hear of changes by whomever: time, the limit of memory, other protocols,
//! loads. And what a client wanted that has gone is not done.

use std::io::Write;
use std::net::TcpStream;

use tierce_wire::pedrokv::{Kind, Request};

use crate::support::{Client, TestServer, free_port};

/// A client that waits for entries of the stream `s`, which is there.
fn reader(server: &TestServer) -> Client {
    let mut client = server.client();
    client.check(&[("XGROUP CREATE s g $ MKSTREAM", "OK")]);
    client.send("XREADGROUP GROUP g me BLOCK 0 STREAMS s >");
    let mut observer = server.client();
    while !observer.call("INFO clients").contains("blocked_clients:1\r\n") {
        std::thread::yield_now();
    }
    client
}

#[track_caller]
fn hears_of_the_end(mut reader: Client) {
    let reply = reader.next();
    assert!(reply.starts_with("-NOGROUP No such key 's' or consumer group 'g'"), "{reply}");
}

#[test]
fn a_reader_hears_that_its_stream_has_expired() {
    let server = TestServer::start();
    let reader = reader(&server);
    server.client().check(&[("PEXPIRE s 20", ":1")]);
    hears_of_the_end(reader);
}

#[test]
fn a_reader_hears_that_its_stream_was_evicted() {
    let server = TestServer::start();
    let reader = reader(&server);
    server.client().check(&[
        ("CONFIG SET maxmemory-policy allkeys-random", "OK"),
        ("CONFIG SET maxmemory 1", "OK"),
    ]);
    hears_of_the_end(reader);
}

#[test]
fn a_reader_hears_what_clients_of_memcached_do() {
    let port = free_port();
    let server = TestServer::with(&format!("--memcached-port {port}"));
    for (request, error) in [
        ("delete s\r\n", "-NOGROUP "),
        ("flush_all\r\n", "-NOGROUP "),
        ("set s 0 0 1\r\nx\r\n", "-WRONGTYPE "),
    ] {
        let mut reader = reader(&server);
        let mut other = TcpStream::connect(("127.0.0.1", port)).unwrap();
        other.write_all(request.as_bytes()).unwrap();
        let reply = reader.next();
        assert!(reply.starts_with(error), "{request}: {reply}");
    }
}

#[test]
fn a_reader_hears_what_clients_of_pedrokv_do() {
    let port = free_port();
    let server = TestServer::with(&format!("--pedrokv-port {port}"));
    for (kind, error) in [(Kind::Delete, "-NOGROUP "), (Kind::Put, "-WRONGTYPE ")] {
        let mut reader = reader(&server);
        let mut frame = Vec::new();
        Request { kind, id: 1, key: b"s", value: b"" }.write(&mut frame).unwrap();
        let mut other = TcpStream::connect(("127.0.0.1", port)).unwrap();
        other.write_all(&frame).unwrap();
        let reply = reader.next();
        assert!(reply.starts_with(error), "{kind:?}: {reply}");
    }
}

#[test]
fn who_waits_for_a_key_is_served_when_it_is_loaded() {
    let server = TestServer::with("--enable-debug-command yes --appendonly no");
    let mut client = server.client();
    // In the snapshot, not in memory, and somebody waits for it.
    client.check(&[("RPUSH list a", ":1"), ("SAVE", "OK"), ("DEL list", ":1")]);
    let mut waiting = server.client();
    waiting.send("BLPOP list 0");
    while !client.call("INFO clients").contains("blocked_clients:1\r\n") {
        std::thread::yield_now();
    }
    client.check(&[("DEBUG RELOAD NOSAVE", "OK")]);
    assert_eq!(waiting.next(), "[list, a]");
}

#[test]
fn a_request_that_a_pause_holds_back_is_dropped_with_its_client() {
    let server = TestServer::start();
    let mut other = server.client();
    other.check(&[("CLIENT PAUSE 100000 WRITE", "OK")]);
    let mut leaving = server.client();
    leaving.send("GET held");
    leaving.send("SET held 1");
    assert_eq!(leaving.next(), "(nil)");
    drop(leaving);
    while !other.call("INFO clients").contains("connected_clients:1\r\n") {
        std::thread::yield_now();
    }
    other.check(&[("CLIENT UNPAUSE", "OK"), ("SET after 1", "OK"), ("EXISTS held", ":0")]);
}
