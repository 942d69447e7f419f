//! Publish/subscribe: the receivers of messages, their order, and the permitted commands of
//! subscribers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tierce_harness::{Connection, Random, Reply, Server, encode, wait_until};

use crate::{launch, server};

/// Number of workers; each has clients.
const WORKERS: usize = 4;

fn workers() -> Server {
    launch().with("threads", &WORKERS.to_string()).start()
}

fn subscriber(server: &Server, lines: &[&str]) -> Connection {
    let mut c = server.connect();
    for line in lines {
        c.ask(line);
    }
    c
}

fn in_resp3(server: &Server) -> Connection {
    let mut c = server.connect();
    c.ask("HELLO 3");
    c
}

/// Returns a field of INFO.
fn info(c: &mut Connection, name: &str) -> u64 {
    let info = c.ask("INFO everything").text().to_owned();
    let field = info.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    field.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number")
}

/// Returns the payload of a message to a channel, in either protocol version.
fn payload(c: &mut Connection) -> String {
    match c.reply() {
        Reply::Array(parts) | Reply::Push(parts) => {
            parts.last().expect("a payload").text().to_owned()
        }
        other => panic!("not a message: {other}"),
    }
}

#[test]
fn messages_reach_channels_and_patterns() {
    let server = workers();
    let mut publisher = server.connect();
    publisher.check("PUBLISH news x", ":0");
    let mut plain = server.connect();
    plain.check("SUBSCRIBE news", r#"["subscribe", "news", :1]"#);
    let mut both = in_resp3(&server);
    both.check("SUBSCRIBE news sport", r#">["subscribe", "news", :1]"#);
    both.expect(r#">["subscribe", "sport", :2]"#);
    both.check("PSUBSCRIBE n[aeo]ws* *", r#">["psubscribe", "n[aeo]ws*", :3]"#);
    both.expect(r#">["psubscribe", "*", :4]"#);
    publisher.check("PUBLISH news first", ":4");
    publisher.check("PUBLISH sport second", ":2");
    publisher.check("PUBLISH '' ''", ":1");
    plain.expect(r#"["message", "news", "first"]"#);
    let mut got: Vec<_> = (0..6).map(|_| both.reply().to_string()).collect();
    // Patterns have no order among themselves.
    got[1..3].sort();
    assert_eq!(
        got,
        [
            r#">["message", "news", "first"]"#,
            r#">["pmessage", "*", "news", "first"]"#,
            r#">["pmessage", "n[aeo]ws*", "news", "first"]"#,
            r#">["message", "sport", "second"]"#,
            r#">["pmessage", "*", "sport", "second"]"#,
            r#">["pmessage", "*", "", ""]"#,
        ]
    );
    publisher.check("PUBSUB NUMSUB news sport none", r#"["news", :2, "sport", :1, "none", :0]"#);
    publisher.check("PUBSUB NUMPAT", ":2");
    both.check("UNSUBSCRIBE news", r#">["unsubscribe", "news", :3]"#);
    both.check("PUNSUBSCRIBE *", r#">["punsubscribe", "*", :2]"#);
    publisher.check("PUBLISH news third", ":2");
    plain.expect(r#"["message", "news", "third"]"#);
    both.expect(r#">["pmessage", "n[aeo]ws*", "news", "third"]"#);
    drop(both);
    wait_until("it has left", || publisher.ask("PUBSUB NUMPAT").int() == 0);
    publisher.check("PUBSUB CHANNELS", r#"["news"]"#);
    publisher.check("PUBSUB CHANNELS s*", "[]");
}

#[test]
fn channels_of_shards_are_apart() {
    let server = workers();
    let mut publisher = server.connect();
    let mut c = in_resp3(&server);
    c.check("SUBSCRIBE a", r#">["subscribe", "a", :1]"#);
    c.check("PSUBSCRIBE *", r#">["psubscribe", "*", :2]"#);
    c.check("SSUBSCRIBE a b a", r#">["ssubscribe", "a", :1]"#);
    c.expect(r#">["ssubscribe", "b", :2]"#);
    c.expect(r#">["ssubscribe", "a", :2]"#);
    publisher.check("SPUBLISH a x", ":1");
    c.expect(r#">["smessage", "a", "x"]"#);
    publisher.check("PUBSUB SHARDCHANNELS a*", r#"["a"]"#);
    publisher.check("PUBSUB SHARDNUMSUB a c", r#"["a", :1, "c", :0]"#);
    c.check("SUNSUBSCRIBE a", r#">["sunsubscribe", "a", :1]"#);
    c.check("SUNSUBSCRIBE", r#">["sunsubscribe", "b", :0]"#);
    c.check("SUNSUBSCRIBE", r#">["sunsubscribe", null, :0]"#);
    publisher.check("SPUBLISH a x", ":0");
    c.check("PING", "+PONG");
}

#[test]
fn a_subscriber_in_resp2_may_do_little() {
    let server = server();
    let mut c = server.connect();
    c.check("UNSUBSCRIBE", r#"["unsubscribe", nil, :0]"#);
    c.check("PUNSUBSCRIBE x y", r#"["punsubscribe", "x", :0]"#);
    c.expect(r#"["punsubscribe", "y", :0]"#);
    c.check("SSUBSCRIBE s", r#"["ssubscribe", "s", :1]"#);
    c.check("SUBSCRIBE a", r#"["subscribe", "a", :1]"#);
    for (line, name) in [("GET k", "get"), ("client list", "client|list"), ("HELLO 3", "hello")] {
        let refused = format!(
            "-ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
             allowed in this context"
        );
        c.check(line, &refused);
    }
    c.check("GET", "-ERR wrong number of arguments for 'get' command");
    c.check("PING", r#"["pong", ""]"#);
    c.check("PING hi", r#"["pong", "hi"]"#);
    c.check("PING a b", "-ERR wrong number of arguments for 'ping' command");
    c.check("UNSUBSCRIBE a", r#"["unsubscribe", "a", :0]"#);
    c.check("PING", r#"["pong", ""]"#);
    c.check("SUNSUBSCRIBE s", r#"["sunsubscribe", "s", :0]"#);
    c.check("PING", "+PONG");
    c.check("SET k v", "+OK");
    // All in one pipeline.
    c.send("SUBSCRIBE a\r\nGET k\r\nUNSUBSCRIBE\r\nGET k\r\nPSUBSCRIBE p\r\nQUIT\r\n");
    c.expect(r#"["subscribe", "a", :1]"#);
    assert!(c.reply().text().starts_with("ERR Can't execute 'get'"));
    c.expect(r#"["unsubscribe", "a", :0]"#);
    c.expect("\"v\"");
    c.expect(r#"["psubscribe", "p", :1]"#);
    c.expect("+OK");
    c.expect_closed();
}

#[test]
fn a_subscriber_in_resp3_may_do_everything() {
    let server = server();
    let mut c = in_resp3(&server);
    c.check("SUBSCRIBE a", r#">["subscribe", "a", :1]"#);
    c.check("SET k v", "+OK");
    c.check("GET k", "\"v\"");
    c.check("PING hi", "\"hi\"");
    // Back to RESP2, where the protocol must not change again.
    c.ask("HELLO 2");
    server.connect().check("PUBLISH a 1", ":1");
    c.expect(r#"["message", "a", "1"]"#);
    assert!(c.ask("GET k").text().starts_with("ERR Can't execute 'get'"));
    c.check("RESET", "+RESET");
    c.check("GET k", "\"v\"");
    server.connect().check("PUBLISH a 1", ":0");
}

#[test]
fn messages_to_oneself_follow_the_reply() {
    let server = workers();
    let mut c = in_resp3(&server);
    c.ask("SUBSCRIBE a");
    c.ask("PSUBSCRIBE a*");
    c.send("PUBLISH a 1\r\nPUBLISH a 2\r\nPING\r\nUNSUBSCRIBE\r\nPUBLISH a 3\r\n");
    for number in 1..=2 {
        c.expect(":2");
        c.expect(&format!(r#">["message", "a", "{number}"]"#));
        c.expect(&format!(r#">["pmessage", "a*", "a", "{number}"]"#));
    }
    c.expect("+PONG");
    c.expect(r#">["unsubscribe", "a", :1]"#);
    c.expect(":1");
    c.expect(r#">["pmessage", "a*", "a", "3"]"#);
}

#[test]
fn messages_of_a_transaction_follow_its_reply() {
    let server = workers();
    let mut c = in_resp3(&server);
    c.ask("SUBSCRIBE a");
    c.send("MULTI\r\nPUBLISH a 1\r\nSUBSCRIBE b\r\nPUBLISH b 2\r\nUNSUBSCRIBE a\r\nPUBLISH a 3\r\nEXEC\r\nPING\r\n");
    c.expect("+OK");
    (0..5).for_each(|_| c.expect("+QUEUED"));
    c.expect(r#"[:1, >["subscribe", "b", :2], :1, >["unsubscribe", "a", :1], :0]"#);
    c.expect(r#">["message", "a", "1"]"#);
    c.expect(r#">["message", "b", "2"]"#);
    c.expect("+PONG");
}

#[test]
fn a_transaction_subscribes_to_no_channel_of_a_shard() {
    let server = server();
    let mut c = in_resp3(&server);
    c.send("MULTI\r\nSSUBSCRIBE s\r\nSUNSUBSCRIBE s\r\nEXEC\r\n");
    c.expect("+OK");
    (0..2).for_each(|_| c.expect("+QUEUED"));
    c.expect(
        r#"[-ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client, >["sunsubscribe", "s", :0]]"#,
    );
    c.check("PUBSUB SHARDCHANNELS", "[]");
}

#[test]
fn client_reply_silences_no_messages() {
    let server = server();
    let mut c = in_resp3(&server);
    c.send("CLIENT REPLY OFF\r\nSUBSCRIBE a\r\nPUBLISH a 1\r\nGET k\r\nUNSUBSCRIBE\r\nCLIENT REPLY ON\r\n");
    c.expect(r#">["subscribe", "a", :1]"#);
    c.expect(r#">["message", "a", "1"]"#);
    c.expect(r#">["unsubscribe", "a", :0]"#);
    c.expect("+OK");
    c.send("CLIENT REPLY SKIP\r\nSUBSCRIBE b\r\nPING\r\n");
    c.expect(r#">["subscribe", "b", :1]"#);
    c.expect("+PONG");
}

#[test]
fn subscribers_are_listed_counted_and_killed() {
    let server = workers();
    let mut admin = server.connect();
    let mut c = subscriber(&server, &["HELLO 3", "SUBSCRIBE a b", "PSUBSCRIBE p", "SSUBSCRIBE s"]);
    (0..1).for_each(|_| drop(c.reply()));
    let line = c.ask("CLIENT INFO").text().to_owned();
    assert!(line.contains(" flags=P db=0 sub=2 psub=1 ssub=1 "), "{line}");
    let listed = admin.ask("CLIENT LIST TYPE pubsub").text().to_owned();
    assert_eq!(listed.lines().count(), 1, "{listed}");
    assert_eq!(admin.ask("CLIENT LIST TYPE normal").text().lines().count(), 1);
    let names = ["pubsub_channels", "pubsub_patterns", "pubsubshard_channels"];
    assert_eq!(names.map(|name| info(&mut admin, name)), [2, 1, 1]);
    if std::env::var_os("TIERCE_TEST_PROGRAM").is_none() {
        assert_eq!(info(&mut admin, "pubsub_clients"), 1);
    }
    admin.check("CLIENT KILL TYPE pubsub", ":1");
    c.expect_closed();
    wait_until("it has left", || admin.ask("PUBSUB CHANNELS").to_string() == "[]");
    assert_eq!(names.map(|name| info(&mut admin, name)), [0, 0, 0]);
    admin.check("CLIENT LIST TYPE pubsub", "\"\"");
}

#[test]
fn every_subscriber_sees_the_messages_of_a_channel_in_one_order() {
    const PUBLISHERS: usize = 3;
    const MESSAGES: usize = 400;
    let server = workers();
    let mut subscribers: Vec<_> = (0..2 * WORKERS)
        .map(|n| match n % 2 {
            0 => subscriber(&server, &["SUBSCRIBE a"]),
            _ => subscriber(&server, &["HELLO 3", "PSUBSCRIBE ?"]),
        })
        .collect();
    thread::scope(|scope| {
        for publisher in 0..PUBLISHERS {
            let mut c = server.connect();
            scope.spawn(move || {
                let calls =
                    (0..MESSAGES).map(|n| encode(&["PUBLISH", "a", &format!("{publisher}:{n}")]));
                c.send(calls.collect::<Vec<_>>().concat());
                (0..MESSAGES).for_each(|_| c.expect(&format!(":{}", 2 * WORKERS)));
            });
        }
    });
    let mut seen: Vec<Vec<String>> = subscribers
        .iter_mut()
        .map(|c| (0..PUBLISHERS * MESSAGES).map(|_| payload(c)).collect())
        .collect();
    seen.dedup();
    assert_eq!(seen.len(), 1, "all have seen the same");
    let mut next = BTreeMap::new();
    for message in &seen[0] {
        let (publisher, number) = message.split_once(':').expect("a number");
        let next: &mut usize = next.entry(publisher.to_owned()).or_default();
        assert_eq!(number.parse(), Ok(*next), "of {publisher}");
        *next += 1;
    }
}

#[test]
fn publish_returns_how_many_get_the_message_while_they_come_and_go() {
    let server = workers();
    let is_over = AtomicBool::new(false);
    let (sent, received) = thread::scope(|scope| {
        let clients: Vec<_> = (0..2 * WORKERS)
            .map(|seed| {
                let (server, is_over) = (&server, &is_over);
                scope.spawn(move || come_and_go(server, seed as u64, is_over))
            })
            .collect();
        let mut publisher = server.connect();
        let mut sent = 0;
        for _ in 0..1500 {
            sent += publisher.ask("PUBLISH a x").int();
        }
        is_over.store(true, Ordering::Relaxed);
        let received: i64 =
            clients.into_iter().map(|client| client.join().expect("no panic")).sum();
        (sent, received)
    });
    assert_eq!(sent, received);
    assert!(sent > 0);
}

/// Subscribes and unsubscribes until the end. Returns the number of messages received.
fn come_and_go(server: &Server, seed: u64, is_over: &AtomicBool) -> i64 {
    let mut random = Random::new(seed);
    let mut c = server.connect();
    let mut received = 0;
    while !is_over.load(Ordering::Relaxed) {
        let (come, go) = match random.below(2) {
            0 => ("SUBSCRIBE a b", "UNSUBSCRIBE"),
            _ => ("PSUBSCRIBE a b*", "PUNSUBSCRIBE"),
        };
        c.send(format!("{come}\r\n{go}\r\n"));
        let mut left = 4;
        while left > 0 {
            let Reply::Array(parts) = c.reply() else { panic!("not an array") };
            match parts[0].text() {
                "message" | "pmessage" => received += 1,
                _ => left -= 1,
            }
        }
    }
    received
}

#[test]
fn a_message_reaches_thousands() {
    const CLIENTS: usize = 1500;
    tierce_harness::allow_many_files();
    // On one worker, which delivers it in several turns.
    let server = launch().with("threads", "1").start();
    let mut subscribers: Vec<_> =
        (0..CLIENTS).map(|_| subscriber(&server, &["SUBSCRIBE a"])).collect();
    let mut publisher = in_resp3(&server);
    publisher.ask("SUBSCRIBE b");
    let large = "x".repeat(100_000);
    publisher.send(encode(&["PUBLISH", "a", "1"]));
    publisher.send(encode(&["PUBLISH", "a", &large]));
    publisher.send(encode(&["PUBLISH", "b", "3"]));
    publisher.expect(&format!(":{CLIENTS}"));
    publisher.expect(&format!(":{CLIENTS}"));
    publisher.expect(":1");
    publisher.expect(r#">["message", "b", "3"]"#);
    for c in &mut subscribers {
        assert_eq!(payload(c), "1");
        assert_eq!(payload(c).len(), large.len());
    }
    // Many clients leave at once.
    subscribers.truncate(10);
    wait_until("the others have left", || {
        publisher.ask("PUBSUB NUMSUB a").to_string() == r#"["a", :10]"#
    });
    publisher.check("PUBLISH a 4", ":10");
    subscribers.iter_mut().for_each(|c| assert_eq!(payload(c), "4"));
}

#[test]
fn long_names_and_messages() {
    let server = workers();
    let name = vec![b'n'; 64 << 10];
    let pattern = [&name[..], b"*"].concat();
    let message = vec![b'm'; 3 << 20];
    let mut c = in_resp3(&server);
    c.call(&[b"SUBSCRIBE", &name[..]]);
    c.call(&[b"PSUBSCRIBE", &pattern[..]]);
    let mut publisher = server.connect();
    assert_eq!(publisher.call(&[b"PUBLISH", &name[..], &message]).int(), 2);
    let bulk = |bytes: &[u8]| Reply::Bulk(bytes.to_vec());
    assert_eq!(c.reply(), Reply::Push(vec![bulk(b"message"), bulk(&name), bulk(&message)]));
    assert_eq!(
        c.reply(),
        Reply::Push(vec![bulk(b"pmessage"), bulk(&pattern), bulk(&name), bulk(&message)])
    );
    assert_eq!(publisher.call(&[b"PUBLISH", &name[1..], &message]).int(), 0);
}

#[test]
fn a_subscriber_that_never_reads_loses_its_connection_and_no_one_else() {
    let server = launch().with("client-output-buffer-limit", "pubsub 1mb 0 0").start();
    let mut deaf = subscriber(&server, &["HELLO 3", "PSUBSCRIBE *"]);
    let mut c = subscriber(&server, &["SUBSCRIBE a"]);
    let mut publisher = server.connect();
    let closed = |c: &mut Connection| info(c, "client_output_buffer_limit_disconnections");
    let message = "x".repeat(10_000);
    let mut count = 0;
    while closed(&mut publisher) == 0 {
        assert!(count < 3000, "30 MB are more than sockets and 1 MB take");
        for _ in 0..10 {
            publisher.call(&["PUBLISH", "a", &message]);
            assert_eq!(payload(&mut c).len(), message.len());
            count += 1;
        }
    }
    wait_until("it has left", || publisher.ask("PUBLISH a last").int() == 1);
    while payload(&mut c) != "last" {}
    assert_eq!(closed(&mut publisher), 1);
    assert_eq!(info(&mut publisher, "pubsub_patterns"), 0);
    // The messages that it received are complete, except for the last.
    assert!(deaf.rest().starts_with(b">4\r\n$8\r\npmessage\r\n"));
}

#[test]
fn subscribers_are_not_idle() {
    let server = server();
    let mut idle = server.connect();
    idle.check("PING", "+PONG");
    let mut subscriber = subscriber(&server, &["SUBSCRIBE a"]);
    let mut c = server.connect();
    c.check("CONFIG SET timeout 1", "+OK");
    wait_until("the idle one is gone", || c.ask("CLIENT LIST").text().lines().count() == 2);
    idle.expect_closed();
    c.check("PUBLISH a 1", ":1");
    assert_eq!(payload(&mut subscriber), "1");
}
