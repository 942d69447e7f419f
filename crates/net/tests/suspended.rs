//! A suspended session is not called until it is resumed.

use std::io::{ErrorKind, Write};

use crate::support::{PATIENCE, Server, Stream};
use tierce_net::{CloseReason, Config};

#[test]
fn requests_wait_and_are_served_after_resuming() {
    let server = Server::one_worker();
    let (mut client, key) = server.connect_known();
    client.send("echo before\nsuspend\necho after\n");
    client.expect("before");
    server.wait_for_suspension(key);
    client.send("echo later\n");
    let waiting = "echo after\necho later\n".len();
    let report = server.report_when(key, |report| report.input_bytes == waiting);
    assert_eq!((report.lines, report.suspended), (2, true));
    server.handle().resume(key);
    client.expect("after");
    client.expect("later");
    assert!(!server.report_when(key, |_| true).suspended);
}

#[test]
fn a_message_resumes_with_a_reply() {
    let server = Server::one_worker();
    let (mut client, key) = server.connect_known();
    client.send("suspend\necho next\n");
    server.wait_for_suspension(key);
    server.with(key, |conn| {
        conn.output().buffer().extend_from_slice(b"popped\n");
        conn.resume();
    });
    client.expect("popped");
    client.expect("next");
}

#[test]
fn a_timer_resumes() {
    let server = Server::one_worker();
    let (mut client, _) = server.connect_known();
    client.send("timer 10\nsuspend\necho next\n");
    client.expect("timer");
    client.expect("next");
}

#[test]
fn input_of_a_suspended_session_is_bounded() {
    let server = Server::start(Config {
        workers: 1,
        suspended_input_bytes_max: 100_000,
        ..Config::default()
    });
    let (mut client, key) = server.connect_known();
    client.send("suspend\n");
    server.wait_for_suspension(key);
    // Sends until the socket is full, so the server has stopped reading.
    client.stream.set_nonblocking(true).unwrap();
    let line = b"echo flood\n".repeat(1000);
    let mut sent = 0;
    loop {
        match client.stream.write(&line[sent % line.len()..]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                // Full for now; the bound is reached if it stays full after a report.
                let kept = server.report_when(key, |_| true).input_bytes;
                if kept >= 100_000 {
                    assert!(kept < 100_000 + 64 * 1024, "{kept} bytes kept");
                    break;
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
    client.stream.set_nonblocking(false).unwrap();
    server.handle().resume(key);
    let reader = std::thread::spawn(move || {
        (0..sent / 11).for_each(|_| client.expect("flood"));
        client
    });
    let mut client = reader.join().unwrap();
    client.send(&"echo flood\n"[sent % 11..]);
    client.expect("flood");
    client.check("echo end", "end");
}

#[test]
fn a_peer_that_leaves_ends_a_session_that_may_wait_for_ever() {
    let server = Server::one_worker();
    let (mut client, key) = server.connect_known();
    client.send("suspend\necho lost\n");
    server.wait_for_suspension(key);
    client.stream.shut_write();
    assert!(matches!(server.wait_for_close(key), CloseReason::Peer));
    assert_eq!(client.rest(), "");
}

#[test]
fn a_session_certain_to_be_resumed_outlives_its_peers_last_byte() {
    let server = Server::one_worker();
    let (mut client, key) = server.connect_known();
    client.send("wait\necho answered\n");
    client.stream.shut_write();
    server.wait_for_suspension(key);
    server.handle().resume(key);
    assert!(matches!(server.wait_for_close(key), CloseReason::Peer));
    assert_eq!(client.rest(), "answered\n");
}

/// Received requests are executed even if the peer is gone. Only their replies are lost.
#[test]
fn a_session_certain_to_be_resumed_outlives_its_connection() {
    let server = Server::one_worker();
    let (mut client, key) = server.connect_known();
    // The unread reply makes the close a reset.
    client.send("bytes 100000\nwait\nyield\nwait\n");
    server.wait_for_suspension(key);
    drop(client);
    // The reset is noticed before that: it comes first to a worker that has two connections.
    server.connect().check("echo other", "other");
    server.handle().resume(key);
    server.wait_for_suspension(key);
    server.handle().resume(key);
    let reason = server.wait_for_close(key);
    assert!(matches!(reason, CloseReason::Peer | CloseReason::Io(_)), "{reason:?}");
}

/// The worker learns in one turn that the session is resumed and that the socket has failed.
#[test]
fn a_reset_that_comes_with_the_resumption_ends_the_session() {
    let server = Server::one_worker();
    let (mut client, key) = server.connect_known();
    // The unread reply makes the close a reset.
    client.send("bytes 100000\nwait\n");
    server.wait_for_suspension(key);
    let (go_on, barrier) = std::sync::mpsc::channel::<()>();
    let (arrive, arrived) = std::sync::mpsc::channel();
    server.with(key, move |_| {
        arrive.send(()).expect("the test waits");
        barrier.recv().expect("the test goes on");
    });
    arrived.recv_timeout(PATIENCE).expect("the worker stands still");
    drop(client);
    server.handle().resume(key);
    go_on.send(()).expect("the worker waits");
    let reason = server.wait_for_close(key);
    assert!(matches!(reason, CloseReason::Peer | CloseReason::Io(_)), "{reason:?}");
}
