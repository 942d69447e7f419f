//! Clients that wait for keys notice every change: by time, the memory limit, other protocols, loads. A command of a
//! client that has gone is not executed.

use std::io::Write;
use std::net::TcpStream;

use tierce_wire::pedrokv::{Kind, Request};

use crate::operations::set_aside::{MANY, key_beside, workers_serve};
use crate::operations::support::{Client, TestServer, free_port};
use crate::operations::transactions::{held_keys, with_busy_threads};

/// Returns a client that waits for entries of the stream `s`, which exists.
fn reader(server: &TestServer) -> Client {
    let mut client = server.client();
    client.check(&[("XGROUP CREATE s g $ MKSTREAM", "OK")]);
    client.send("XREADGROUP GROUP g me BLOCK 0 STREAMS s >");
    let mut observer = server.client();
    observer.ask_until("INFO clients", |reply| reply.contains("blocked_clients:1\r\n"));
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
    // In the snapshot, not in memory, and a client waits for it.
    client.check(&[("RPUSH list a", ":1"), ("SAVE", "OK"), ("DEL list", ":1")]);
    let mut waiting = server.client();
    waiting.send("BLPOP list 0");
    client.ask_until("INFO clients", |reply| reply.contains("blocked_clients:1\r\n"));
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
    other.ask_until("INFO clients", |reply| reply.contains("connected_clients:1\r\n"));
    other.check(&[("CLIENT UNPAUSE", "OK"), ("SET after 1", "OK"), ("EXISTS held", ":0")]);
}

/// Creates a list, a sorted set and a stream of [`MANY`] elements under these names.
fn make_large(client: &mut Client, [list, scores, stream]: [&str; 3]) {
    client.check(&[(&format!("XGROUP CREATE {stream} g 0 MKSTREAM"), "OK")]);
    for from in (0..MANY).step_by(1000) {
        let numbers = from..MANY.min(from + 1000);
        let words: Vec<String> = numbers.clone().map(|number| number.to_string()).collect();
        let scored: Vec<String> = numbers.map(|number| format!("{number} {number}")).collect();
        client.value(&format!("RPUSH {list} {}", words.join(" ")));
        client.value(&format!("ZADD {scores} {}", scored.join(" ")));
        client.send_raw(format!("XADD {stream} * n 1\r\n").repeat(words.len()).as_bytes());
        words.iter().for_each(|_| assert!(client.next().contains('-')));
    }
}

#[test]
fn who_waits_takes_nothing_once_a_pause_has_begun() {
    let server = TestServer::start();
    let (mut waiting, mut other) = (server.client(), server.client());
    let [first, second] = held_keys(&server);
    let source = key_beside(&server, &[&first, &second]);
    let wanted = key_beside(&server, &[&first, &second, &source]);
    make_large(&mut other, [&source, "scores", "stream"]);
    waiting.send(&format!("BLMPOP 0 1 {wanted} LEFT COUNT {MANY}"));
    other.ask_until("INFO clients", |reply| reply.contains("blocked_clients:1\r\n"));
    with_busy_threads(&server, || {
        other.check(&[(&format!("RENAME {source} {wanted}"), "OK")]);
        other.check(&[("CLIENT PAUSE 1000000 WRITE", "OK")]);
    });
    // These run after it on the threads for long commands.
    for _ in 0..5 {
        let all = other.call(&format!("LRANGE {wanted} 0 -1"));
        assert_eq!(all.matches(", ").count(), MANY - 1);
    }
    other.check(&[("CLIENT UNPAUSE", "OK")]);
    assert!(waiting.next().contains(&format!("{wanted}, [0, 1, 2, ")));
    other.check(&[(&format!("EXISTS {wanted}"), ":0")]);
}

/// They get their elements on another thread, in their order of arrival, and the worker continues meanwhile.
#[test]
fn who_waits_for_many_elements_is_served_away_from_the_worker() {
    let server = TestServer::start();
    let mut other = server.client();
    let held = held_keys(&server).map(|key| server.shards.of(&key));
    let mut names = (0..).map(|number| format!("free:{number}"));
    let mut free = || names.find(|name| !held.contains(&server.shards.of(name))).unwrap();
    let [list, scores, stream, wanted] = [(); 4].map(|()| free());
    make_large(&mut other, [&list, &scores, &stream]);
    for (source, command, next, begin) in [
        (list, format!("BLMPOP 0 1 {wanted} LEFT COUNT {MANY}"), "BLPOP", "[0, 1, 2, "),
        (scores, format!("BZMPOP 0 1 {wanted} MIN COUNT {MANY}"), "BZPOPMIN", "[[0, 0], [1, 1], "),
        (stream, format!("XREAD BLOCK 0 STREAMS {wanted} 0"), "", "["),
    ] {
        let mut waiting = [server.client(), server.client()];
        let mut calls = vec![command];
        if !next.is_empty() {
            calls.push(format!("{next} {wanted} 0"));
        }
        for (number, (client, call)) in waiting.iter_mut().zip(&calls).enumerate() {
            client.send(call);
            let blocked = format!("blocked_clients:{}\r\n", number + 1);
            other.ask_until("INFO clients", |reply| reply.contains(&blocked));
        }
        with_busy_threads(&server, || {
            other.check(&[(&format!("RENAME {source} {wanted}"), "OK")]);
            let more = match next {
                "BLPOP" => "RPUSH wanted last",
                "BZPOPMIN" => "ZADD wanted 99999 last",
                _ => "XADD wanted * n 1",
            };
            other.value(&more.replace("wanted", &wanted));
            workers_serve(&server);
            assert!(other.call("INFO clients").contains(&format!("_clients:{}\r\n", calls.len())));
        });
        let reply = waiting[0].next();
        assert!(reply.contains(&format!("{wanted}, {begin}")), "{reply:.100}");
        let last = match next {
            "BLPOP" => format!("[{wanted}, last]"),
            "BZPOPMIN" => format!("[{wanted}, last, 99999]"),
            _ => {
                other.check(&[(&format!("DEL {wanted}"), ":1")]);
                continue;
            }
        };
        assert_eq!(waiting[1].next(), last);
        other.check(&[(&format!("EXISTS {wanted}"), ":0")]);
    }
}

/// It takes away nothing that they want, so they need not wait until there is a thread for it.
#[test]
fn a_reader_of_much_keeps_nobody_behind_it_from_a_key() {
    let server = TestServer::start();
    let mut other = server.client();
    let [first, second] = held_keys(&server);
    let source = key_beside(&server, &[&first, &second]);
    let wanted = key_beside(&server, &[&first, &second, &source]);
    make_large(&mut other, ["list", "scores", &source]);
    let mut waiting = [server.client(), server.client()];
    for (number, (client, count)) in waiting.iter_mut().zip(["", "COUNT 1 "]).enumerate() {
        client.send(&format!("XREAD {count}BLOCK 0 STREAMS {wanted} 0"));
        let blocked = format!("blocked_clients:{}\r\n", number + 1);
        other.ask_until("INFO clients", |reply| reply.contains(&blocked));
    }
    let [mut much, mut little] = waiting;
    with_busy_threads(&server, || {
        other.check(&[(&format!("RENAME {source} {wanted}"), "OK")]);
        assert_eq!(little.next().matches("[n, 1]").count(), 1);
        assert!(other.call("INFO clients").contains("blocked_clients:1\r\n"));
    });
    assert_eq!(much.next().matches("[n, 1]").count(), MANY);
}
