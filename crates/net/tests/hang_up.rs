//! Connections end: by the peer, by the service, by shutting down.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::support::{Client, Event, Server, Stream, eventually};
use tierce_net::{Clock, CloseReason, Config, ConnKey};

#[test]
fn requests_before_the_peers_last_byte_are_answered() {
    let server = Server::one_worker();
    for count in [1, 10, 20_000] {
        let (mut client, key) = server.connect_known();
        let requests = "echo x\n".repeat(count);
        let mut writer = crate::support::Client::new(client.stream.try_clone().unwrap());
        let sender = std::thread::spawn(move || {
            writer.send(&requests);
            // The incomplete rest is dropped.
            writer.send("echo incompl");
            writer.stream.shut_write();
        });
        assert_eq!(client.rest(), "x\n".repeat(count));
        sender.join().unwrap();
        assert!(matches!(server.wait_for_close(key), CloseReason::Peer));
    }
}

#[test]
fn large_output_reaches_a_peer_that_has_shut_its_sending_half() {
    let server = Server::one_worker();
    let (mut client, key) = server.connect_known();
    client.send("attach 20000000\nbytes 3000000\n");
    client.stream.shut_write();
    server.report_when(key, |report| report.output_bytes > 0);
    client.expect_pattern(20_000_000);
    client.expect_pattern(3_000_000);
    assert_eq!(client.rest(), "");
}

/// More bytes than the socket buffers hold.
const LONG: usize = 40_000_000;

/// Returns a peer that has asked for a long reply and shut down its sending half, and the offset of the server's clock.
fn shut_before_a_long_reply() -> (Arc<AtomicU64>, Server, Client<TcpStream>, ConnKey) {
    let ahead_ms = Arc::new(AtomicU64::new(0));
    let clock = Clock::ahead_by(Arc::clone(&ahead_ms));
    let server = Server::start(Config { workers: 1, clock, ..Config::default() });
    let (mut client, key) = server.connect_known();
    client.send(&format!("bytes {LONG}\n"));
    client.stream.shut_write();
    (ahead_ms, server, client, key)
}

#[test]
fn a_peer_that_has_shut_its_sending_half_may_read_slowly() {
    let (ahead_ms, server, mut client, key) = shut_before_a_long_reply();
    let mut received = vec![0; LONG + 1];
    let mut left = server.report_when(key, |report| report.output_bytes > 0).output_bytes;
    let mut chunks = received.chunks_mut(1_000_000);
    while left > 0 {
        // Reads until the server notices, which takes nearly the maximum time.
        let noticed = |server: &Server| {
            let report = server.report().into_iter().find(|report| report.id == key.id);
            report.map_or(0, |report| report.output_bytes)
        };
        while noticed(&server) == left {
            let Some(chunk) = chunks.next() else { break };
            client.read_exactly(chunk);
        }
        left = noticed(&server);
        ahead_ms.fetch_add(50_000, Relaxed);
    }
    chunks.for_each(|chunk| client.read_exactly(chunk));
    assert_eq!(received.pop(), Some(b'\n'));
    assert!(received == crate::support::pattern(LONG));
    assert!(ahead_ms.load(Relaxed) > 200_000);
    eventually(|| server.report().is_empty());
}

#[test]
fn a_peer_that_has_shut_its_sending_half_and_reads_nothing_is_given_up() {
    let (ahead_ms, server, _client, key) = shut_before_a_long_reply();
    server.report_when(key, |report| report.output_bytes > 0);
    ahead_ms.fetch_add(50_000, Relaxed);
    assert_eq!(server.report().len(), 1, "there is time left");
    ahead_ms.fetch_add(20_000, Relaxed);
    eventually(|| server.report().is_empty());
}

#[test]
fn last_words_survive_input_that_nobody_reads() {
    let server = Server::one_worker();
    let (mut client, key) = server.connect_known();
    // More than the loop has read when the session ends. Closing at once would reset the connection, and the reply
    // would be lost.
    let mut writer = crate::support::Client::new(client.stream.try_clone().unwrap());
    let sender = std::thread::spawn(move || {
        writer.send(&format!("quit\n{}", "x".repeat(3_000_000)));
    });
    assert!(matches!(server.wait_for_close(key), CloseReason::Service));
    sender.join().unwrap();
    assert_eq!(client.rest(), "bye\n");
}

#[test]
fn a_peer_that_vanishes_ends_its_session_and_no_other() {
    let server = Server::one_worker();
    let (mut other, _) = server.connect_known();
    for _ in 0..20 {
        let (mut client, key) = server.connect_known();
        // Unread replies make the close a reset.
        client.send("bytes 100000\necho x\n");
        server.report_when(key, |report| report.lines == 2);
        drop(client);
        let reason = server.wait_for_close(key);
        assert!(matches!(reason, CloseReason::Peer | CloseReason::Io(_)), "{reason:?}");
    }
    other.check("echo alive", "alive");
    assert_eq!(server.handle().connections_by_worker(), [1]);
}

#[test]
fn draining_sends_what_waits_and_ends() {
    let server = Server::one_worker();
    let (mut busy, key) = server.connect_known();
    let (mut idle, idle_key) = server.connect_known();
    busy.send("attach 20000000\n");
    server.report_when(key, |report| report.output_bytes > 0);
    server.handle().drain(crate::support::PATIENCE);
    assert!(matches!(server.wait_for_close(idle_key), CloseReason::Shutdown));
    assert_eq!(idle.rest(), "");
    busy.expect_pattern(20_000_000);
    assert_eq!(busy.rest(), "");
    let address = server.tcp_address();
    server.join();
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn draining_does_not_wait_for_ever() {
    let server = Server::one_worker();
    let (mut client, key) = server.connect_known();
    client.send("attach 20000000\n");
    server.report_when(key, |report| report.output_bytes > 0);
    server.handle().drain(Duration::from_millis(20));
    assert!(matches!(server.wait_for_close(key), CloseReason::Shutdown));
    server.join();
}

#[test]
fn accepting_can_stop_while_connections_go_on() {
    let server = Server::one_worker();
    let (mut client, _) = server.connect_known();
    server.handle().stop_accepting();
    // Waits until the listener is closed: until then connections are still completed.
    while let Ok(stream) = std::net::TcpStream::connect(server.tcp_address()) {
        drop(stream);
    }
    client.check("echo alive", "alive");
}

#[test]
fn every_session_ends_exactly_once() {
    let server = Server::one_worker();
    let mut clients: Vec<_> = (0..40).map(|_| server.connect_known().0).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        client.send(["quit\n", "suspend\n", "attach 9000000\n", "echo x\n"][index % 4]);
    }
    clients.truncate(20);
    server.handle().drain(Duration::from_millis(10));
    let mut ended: Vec<u64> = (0..40)
        .map(|_| {
            server.wait_for(|event| match event {
                Event::Closed(key, _) => Some(key.id),
                _ => None,
            })
        })
        .collect();
    server.join();
    ended.sort_unstable();
    assert!(ended.into_iter().eq(1..=40));
}
