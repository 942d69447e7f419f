//! Any number of requests may be sent before a reply is read.

use std::io::Write;
use std::thread;

use tierce_harness::{Connection, encode};

use crate::server;

/// Sends from another thread. A client that only sends and does not read may fill both directions.
fn send_beside(connection: &Connection, bytes: Vec<u8>) -> thread::JoinHandle<()> {
    let mut sender = connection.sender();
    thread::spawn(move || sender.write_all(&bytes).expect("the server takes the bytes"))
}

#[test]
fn replies_come_in_order() {
    let server = server();
    for depth in [1, 2, 16, 127, 128, 129, 1000, 50_000] {
        let mut connection = server.connect();
        connection.ask("DEL counter");
        let sending = send_beside(&connection, encode(&["INCR", "counter"]).repeat(depth));
        for n in 1..=depth {
            assert_eq!(connection.reply().int(), n as i64, "depth {depth}");
        }
        sending.join().expect("sent");
    }
}

#[test]
fn each_request_sees_the_ones_before() {
    let server = server();
    let mut connection = server.connect();
    let mut requests = Vec::new();
    for n in 0..1000 {
        let (key, value) = (format!("key:{}", n % 7), n.to_string());
        requests.extend(encode(&["SET", &key, &value]));
        requests.extend(encode(&["GET", &key]));
        requests.extend(encode(&["DEL", &key]));
        requests.extend(encode(&["EXISTS", &key]));
    }
    let sending = send_beside(&connection, requests);
    for n in 0..1000 {
        connection.expect("+OK");
        connection.expect(&format!("\"{n}\""));
        connection.expect(":1");
        connection.expect(":0");
    }
    sending.join().expect("sent");
}

#[test]
fn large_and_small_values_mixed() {
    let server = server();
    let mut connection = server.connect();
    let large = vec![b'x'; 200_000];
    connection.call(&[&b"SET"[..], b"large", &large]);
    connection.ask("SET small s");
    let requests = [encode(&["GET", "large"]), encode(&["GET", "small"])].concat().repeat(50);
    let sending = send_beside(&connection, requests);
    for _ in 0..50 {
        assert!(connection.reply().bytes() == large);
        connection.expect("\"s\"");
    }
    sending.join().expect("sent");
}

/// A client that waits for the reply before it sends the rest must not wait forever.
#[test]
fn a_reply_leaves_while_half_a_request_waits() {
    let server = server();
    let mut connection = server.connect();
    let ping = encode(&["PING"]);
    for at in 1..ping.len() {
        connection.send([&ping[..], &ping[..at]].concat());
        connection.expect("+PONG");
        connection.send(&ping[at..]);
        connection.expect("+PONG");
    }
}

#[test]
fn requests_before_the_end_of_the_connection_are_answered() {
    let server = server();
    let mut connection = server.connect();
    connection.send(encode(&["PING"]).repeat(1000));
    connection.finish_sending();
    assert!(connection.rest() == b"+PONG\r\n".repeat(1000));
}

#[test]
fn nothing_is_executed_after_quit() {
    let server = server();
    let mut connection = server.connect();
    connection.send([encode(&["QUIT"]), encode(&["SET", "after", "quit"])].concat());
    assert_eq!(connection.rest(), b"+OK\r\n");
    server.connect().check("EXISTS after", ":0");
}
