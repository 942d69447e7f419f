//! Requests arrive in any pieces and are answered in order.

use std::io::Write;
use std::net::TcpStream;

use crate::support::{Client, Server};
use tierce_net::Config;

#[test]
fn requests_may_be_split_at_any_byte() {
    let server = Server::one_worker();
    let mut client = server.connect();
    client.stream.set_nodelay(true).unwrap();
    let text = "echo one\necho two three\necho \necho four\n";
    for split in 0..=text.len() {
        let (front, back) = text.split_at(split);
        client.send(front);
        // Reading the replies of the front makes sure it has arrived before the back is sent.
        let replies = ["one", "two three", "", "four"];
        let complete = front.matches('\n').count();
        replies[..complete].iter().for_each(|reply| client.expect(reply));
        client.send(back);
        replies[complete..].iter().for_each(|reply| client.expect(reply));
    }
}

#[test]
fn requests_may_arrive_byte_by_byte() {
    let server = Server::one_worker();
    let (mut client, key) = server.connect_known();
    client.stream.set_nodelay(true).unwrap();
    for (index, byte) in b"echo slowly".iter().enumerate() {
        client.stream.write_all(&[*byte]).unwrap();
        server.report_when(key, |report| report.input_bytes == index + 1);
    }
    client.check("", "slowly");
    assert_eq!(server.report_when(key, |_| true).input_bytes, 0);
}

#[test]
fn a_request_may_be_larger_than_all_buffers() {
    let server = Server::one_worker();
    let mut client = server.connect();
    // Below and above the limits: of a rest moved back to the worker's buffer, of the buffer
    // itself, of the largest block, and of one turn.
    for len in [1000, 4095, 4096, 4097, 65_530, 65_531, 100_000, 1 << 20, 5_000_000] {
        let text = String::from_utf8(crate::support::pattern(len)).unwrap();
        client.send(&format!("echo first\necho {text}\necho last\n"));
        client.expect("first");
        client.expect_pattern(len);
        client.expect("last");
    }
}

#[test]
fn a_deep_pipeline_is_answered_in_order() {
    let server = Server::one_worker();
    let mut client = server.connect();
    let writer = client.stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        let mut writer = std::io::BufWriter::new(writer);
        (0..200_000).for_each(|number| writeln!(writer, "echo {number}").unwrap());
    });
    for number in 0..200_000 {
        client.expect(&number.to_string());
    }
    sender.join().unwrap();
}

#[test]
fn a_session_may_yield_and_goes_on_without_new_input() {
    let server = Server::one_worker();
    let mut client = server.connect();
    client.send("yield\nyield\necho a\nyield\necho b\n");
    for reply in ["yielded", "yielded", "a", "yielded", "b"] {
        client.expect(reply);
    }
}

#[test]
fn replies_held_for_the_turn_keep_their_order() {
    let server = Server::one_worker();
    let mut client = server.connect();
    for _ in 0..50 {
        client.send("turn\necho a\nyield\nturn\nyield\necho b\n");
        for reply in ["turn", "a", "yielded", "turn", "yielded", "b"] {
            client.expect(reply);
        }
    }
}

#[test]
fn five_hundred_connections_are_spread_and_served() {
    let server = Server::start(Config { workers: 3, ..Config::default() });
    let mut clients: Vec<Client<TcpStream>> = (0..500).map(|_| server.connect()).collect();
    for round in 0..3 {
        for (index, client) in clients.iter_mut().enumerate() {
            client.send(&format!("echo {round}:{index}\n"));
        }
        for (index, client) in clients.iter_mut().enumerate() {
            client.expect(&format!("{round}:{index}"));
        }
    }
    let mut spread = server.handle().connections_by_worker();
    spread.sort_unstable();
    assert_eq!(spread, [166, 167, 167]);
    let metrics = server.handle().metrics();
    assert_eq!((metrics.accepted, metrics.closed, metrics.dropped), (500, 0, 0));
    clients.iter_mut().for_each(|client| client.check("quit", "bye"));
    clients.iter_mut().for_each(|client| assert_eq!(client.rest(), ""));
}

#[test]
fn timers_fire_without_input() {
    let server = Server::one_worker();
    let mut client = server.connect();
    client.check("timer 5", "timer");
    // Both are respected: moving it later, and setting it at once.
    client.send("timer 1000000\ntimer 0\n");
    client.expect("timer");
}
