//! Other threads send messages to workers, which pass them to their connections.

use std::net::TcpStream;

use crate::support::{Client, Event, Message, Server};
use tierce_net::{CloseReason, Config, ConnKey};

#[test]
fn a_message_reaches_one_connection() {
    let server = Server::start(Config { workers: 2, ..Config::default() });
    let mut clients: Vec<(Client<TcpStream>, ConnKey)> =
        (0..6).map(|_| server.connect_known()).collect();
    for (index, (_, key)) in clients.iter().enumerate() {
        server.with(*key, move |conn| {
            assert_eq!(conn.session().lines, 0);
            conn.output().buffer().extend_from_slice(format!("for {index}\n").as_bytes());
        });
    }
    for (index, (client, _)) in clients.iter_mut().enumerate() {
        client.expect(&format!("for {index}"));
    }
}

#[test]
fn a_broadcast_reaches_all_connections_in_order() {
    let server = Server::start(Config { workers: 3, ..Config::default() });
    let mut clients: Vec<_> = (0..30).map(|_| server.connect_known().0).collect();
    for number in 0..100 {
        server.handle().broadcast(|_| Message::Shout(format!("shout {number}")));
    }
    for client in &mut clients {
        (0..100).for_each(|number| client.expect(&format!("shout {number}")));
        client.check("echo then", "then");
    }
}

#[test]
fn messages_between_replies_do_not_disturb_them() {
    let server = Server::one_worker();
    let mut client = server.connect_known().0;
    let handle = server.handle().clone();
    let shouter = std::thread::spawn(move || {
        (0..2000).for_each(|_| handle.broadcast(|_| Message::Shout("shout".into())));
    });
    client.send(&"echo reply\nturn\n".repeat(2000));
    let mut counts = [0; 3];
    for _ in 0..6000 {
        match client.line().as_str() {
            "reply" => counts[0] += 1,
            "turn" => counts[1] += 1,
            "shout" => counts[2] += 1,
            other => panic!("{other:?}"),
        }
    }
    shouter.join().unwrap();
    assert_eq!(counts, [2000; 3]);
}

#[test]
fn a_connection_can_be_closed_from_another_thread() {
    let server = Server::one_worker();
    let (mut first, first_key) = server.connect_known();
    let (mut second, second_key) = server.connect_known();
    server.handle().close(first_key);
    assert!(matches!(server.wait_for_close(first_key), CloseReason::Requested));
    assert_eq!(first.drain(), 0);
    server.with(second_key, |conn| {
        conn.output().buffer().extend_from_slice(b"killed\n");
        conn.close_after_flush();
    });
    assert!(matches!(server.wait_for_close(second_key), CloseReason::Service));
    assert_eq!(second.rest(), "killed\n");
}

#[test]
fn a_key_of_a_closed_connection_never_means_another() {
    let server = Server::one_worker();
    let (client, old_key) = server.connect_known();
    drop(client);
    server.wait_for_close(old_key);
    // The slot is used again.
    let (mut client, key) = server.connect_known();
    assert_ne!(key, old_key);
    server.handle().close(old_key);
    server.handle().resume(old_key);
    server.with(old_key, |_| panic!("the connection is gone"));
    client.check("echo alive", "alive");
}

#[test]
fn ids_count_connections_in_the_order_of_arrival() {
    let server = Server::start(Config { workers: 2, ..Config::default() });
    let clients: Vec<_> = (0..5).map(|_| server.connect_known()).collect();
    assert!(clients.iter().map(|(_, key)| key.id).eq(1..=5));
}

#[test]
fn a_refused_connection_gets_the_last_words() {
    let listener = tierce_net::Listener::tcp(
        ([127, 0, 0, 1], 0).into(),
        16,
        tierce_net::ListenerTag::default(),
    );
    let server = Server::start_on(Config::default(), listener.unwrap(), 2);
    let mut welcome = [server.connect_known().0, server.connect_known().0];
    let mut refused = server.connect();
    // Its input is discarded, and does not cost it the answer.
    refused.send("echo hello\n");
    assert_eq!(refused.rest(), "too many\n");
    welcome.iter_mut().for_each(|client| client.check("echo hello", "hello"));
    drop(welcome);
    for _ in 0..2 {
        let event = server.next_event();
        assert!(matches!(event, Event::Closed(_, CloseReason::Peer)), "{event:?}");
    }
}
