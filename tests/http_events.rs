//! SUBSCRIBE, PSUBSCRIBE and MONITOR over HTTP: server-sent events, access control, and slow readers.

use std::io::{Read, Write};
use std::net::TcpStream;

use tierce_harness::{Both, Connection, Launch, wait_until};

use crate::launch;

fn with(launch: Launch) -> Both {
    Both::start(launch, "http-port")
}

/// A stream of events, as text that includes the chunk framing.
struct Events {
    stream: TcpStream,
    seen: String,
}

impl Events {
    /// Sends a request for events and waits for the head of the response.
    fn begin(http: &Both, path: &str, head: &str) -> Self {
        let mut events = Self::ask(http, path, head);
        events.wait_for("\r\n\r\n");
        events
    }

    /// Sends a request for events.
    fn ask(http: &Both, path: &str, head: &str) -> Self {
        let mut stream = http.connect();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{head}Content-Length: 2\r\n\r\n[]"
        );
        stream.write_all(request.as_bytes()).expect("sent");
        Self { stream, seen: String::new() }
    }

    /// Like `begin`, for a request that is granted.
    fn open(http: &Both, path: &str) -> Self {
        let events = Self::begin(http, path, "");
        assert!(events.seen.starts_with("HTTP/1.1 200 OK\r\n"), "{}", events.seen);
        assert!(events.seen.contains("content-type: text/event-stream\r\n"), "{}", events.seen);
        events
    }

    fn wait_for(&mut self, text: &str) {
        let mut part = [0; 4096];
        while !self.seen.contains(text) {
            let count = self.stream.read(&mut part).expect("more");
            assert!(count > 0, "the end, and no {text:?}: {}", self.seen);
            self.seen.push_str(&String::from_utf8_lossy(&part[..count]));
        }
    }

    /// Waits for the end of the connection or of the body.
    fn wait_for_end(mut self) -> String {
        let mut part = [0; 4096];
        while !self.seen.contains("\r\n0\r\n\r\n") {
            match self.stream.read(&mut part) {
                Ok(0) | Err(_) => break,
                Ok(count) => self.seen.push_str(&String::from_utf8_lossy(&part[..count])),
            }
        }
        self.seen
    }
}

#[test]
fn messages_of_channels_and_patterns_are_events() {
    let http = with(launch());
    let mut c = http.server.connect();
    let mut news = Events::open(&http, "/subscribe/news/b%20c");
    news.wait_for("data: subscribe,news,1\n\n");
    news.wait_for("data: subscribe,b c,2\n\n");
    let mut pattern = Events::open(&http, "/psubscribe/n*");
    pattern.wait_for("data: psubscribe,n*,1\n\n");
    let mut bytes = Events::open(&http, "/subscribe/news?encoding=base64");
    bytes.wait_for("data: subscribe,bmV3cw==,1\n\n");
    c.check("PUBLISH news hello", ":3");
    news.wait_for("data: message,news,hello\n\n");
    pattern.wait_for("data: pmessage,n*,news,hello\n\n");
    bytes.wait_for("data: message,bmV3cw==,aGVsbG8=\n\n");
    // Lines stay within their event, and bytes are preserved on request.
    c.request(&[&b"PUBLISH"[..], b"news", b"1\ndata: 2\xff"]);
    c.expect(":3");
    news.wait_for("data: message,news,1\ndata: data: 2\u{fffd}\n\n");
    bytes.wait_for("data: message,bmV3cw==,MQpkYXRhOiAy/w==\n\n");
    // They are ordinary clients, with their own address.
    let peer = news.stream.local_addr().expect("an address").to_string();
    let list = c.ask("CLIENT LIST TYPE pubsub");
    assert!(list.text().contains(&format!("addr={peer} ")), "{list}");
    drop((news, pattern, bytes));
    wait_until("those that have gone are no subscribers", || c.ask("PUBSUB NUMPAT").int() == 0);
    wait_until("nor of channels", || c.ask("PUBLISH news x").int() == 0);
}

/// They are sent in many pieces, with others before and after them.
#[test]
fn long_messages_are_events_in_their_order() {
    let http = with(launch());
    let mut c = http.server.connect();
    let mut news = Events::open(&http, "/subscribe/news");
    news.wait_for("data: subscribe,news,1\n\n");
    let long = "m".repeat(1 << 18);
    for message in ["first", &long, "second", &long, "third"] {
        c.check(&format!("PUBLISH news {message}"), ":1");
    }
    news.wait_for("data: message,news,third\n\n");
    let begins: Vec<_> = news.seen.match_indices("data: message,news,").collect();
    let lens: Vec<_> = begins.windows(2).map(|two| (two[1].0 - two[0].0) >> 18).collect();
    assert_eq!(lens, [0, 1, 0, 1]);
}

#[test]
fn commands_of_all_clients_are_events() {
    let http = with(launch());
    let mut monitor = Events::open(&http, "/monitor");
    monitor.wait_for("data: \"OK\"\n\n");
    let mut c = http.server.connect();
    c.check("SET k v", "+OK");
    let shown = format!("[0 {}] \"SET\" \"k\" \"v\"\n\n", c.local_address());
    monitor.wait_for(&shown);
    c.check(&format!("SET k {}", "v".repeat(200_000)), "+OK");
    monitor.wait_for("vvv\"\n\n");
}

#[test]
fn only_what_users_may_hear_is_heard_and_only_while_they_may() {
    let http = with(launch());
    let mut c = http.server.connect();
    c.check("ACL SETUSER ann on >secret +@pubsub resetchannels &news &more", "+OK");
    c.check("ACL SETUSER default off", "+OK");
    let ann = "Authorization: Bearer ann:secret\r\n";
    for (path, head, status, text) in [
        ("/subscribe/news", "", "401 ", "NOAUTH"),
        ("/subscribe/news", "Authorization: Bearer ann:wrong\r\n", "401 ", "WRONGPASS"),
        ("/subscribe/other", ann, "403 ", "NOPERM"),
        ("/psubscribe/*", ann, "403 ", "NOPERM"),
        ("/monitor", ann, "403 ", "NOPERM"),
        ("/subscribe", ann, "400 ", "wrong number of arguments"),
        ("/subscribe/news?encoding=hex", ann, "400 ", "encoding=base64"),
    ] {
        let mut refused = Events::begin(&http, path, head);
        refused.wait_for("\"}");
        let seen = refused.seen;
        assert!(
            seen.starts_with(&format!("HTTP/1.1 {status}")) && seen.contains(text),
            "{path}: {seen}"
        );
    }
    let mut stays = Events::begin(&http, "/subscribe/more", ann);
    stays.wait_for("data: subscribe,more,1\n\n");
    let mut ends = Events::begin(&http, "/subscribe/news", ann);
    ends.wait_for("data: subscribe,news,1\n\n");
    c.check("ACL SETUSER ann resetchannels &more", "+OK");
    c.check("PUBLISH news secret", ":0");
    assert!(!ends.wait_for_end().contains("secret"));
    c.check("PUBLISH more still", ":1");
    stays.wait_for("data: message,more,still\n\n");
    c.check("ACL DELUSER ann", ":1");
    stays.wait_for_end();
}

/// RESP clients may continue, as in Redis. But a stream is an HTTP request, which its user must be allowed to make.
#[test]
fn streams_end_when_their_user_may_not_open_them_any_more() {
    let http = with(launch());
    let mut c = http.server.connect();
    let rules = "reset on >secret +monitor +@pubsub &news &n* &more (+subscribe &other)";
    for (path, begin, is_harmless, ends_by) in [
        (
            "/monitor",
            "\"OK\"",
            "ACL SETUSER ann -@pubsub resetchannels",
            "ACL SETUSER ann -monitor",
        ),
        ("/monitor", "\"OK\"", "ACL SETUSER bob on", "ACL SETUSER ann off"),
        ("/monitor", "\"OK\"", "ACL DELUSER bob", "ACL DELUSER ann"),
        (
            "/subscribe/news",
            "subscribe,news,1",
            "ACL SETUSER ann -monitor",
            "ACL SETUSER ann -subscribe",
        ),
        (
            "/subscribe/news",
            "subscribe,news,1",
            "ACL SETUSER ann -psubscribe",
            "ACL SETUSER ann off",
        ),
        (
            "/subscribe/news/more",
            "subscribe,more,2",
            "ACL SETUSER bob on",
            "ACL SETUSER ann resetchannels &news",
        ),
        ("/subscribe/news", "subscribe,news,1", "ACL DELUSER bob", "ACL DELUSER ann"),
        (
            "/subscribe/other",
            "subscribe,other,1",
            "ACL SETUSER ann -subscribe",
            "ACL SETUSER ann clearselectors",
        ),
        (
            "/psubscribe/n*",
            "psubscribe,n*,1",
            "ACL SETUSER ann -subscribe",
            "ACL SETUSER ann -psubscribe",
        ),
        (
            "/psubscribe/n*",
            "psubscribe,n*,1",
            "ACL SETUSER ann -subscribe",
            "ACL SETUSER ann resetchannels &news",
        ),
        (
            "/ssubscribe/news",
            "ssubscribe,news,1",
            "ACL SETUSER ann -subscribe",
            "ACL SETUSER ann -ssubscribe",
        ),
        (
            "/ssubscribe/news",
            "ssubscribe,news,1",
            "ACL SETUSER ann -subscribe",
            "ACL SETUSER ann off",
        ),
    ] {
        c.check(&format!("ACL SETUSER ann {rules}"), "+OK");
        let mut events = Events::begin(&http, path, "Authorization: Bearer ann:secret\r\n");
        events.wait_for(&format!("data: {begin}\n\n"));
        c.request(&is_harmless.split(' ').collect::<Vec<_>>());
        c.reply();
        // Closed connections are not listed.
        let is_there = |c: &mut Connection| c.ask("CLIENT LIST").text().contains("user=ann ");
        assert!(is_there(&mut c), "{path} is closed by {is_harmless}");
        c.request(&ends_by.split(' ').collect::<Vec<_>>());
        c.reply();
        wait_until("the stream is closed", || !is_there(&mut c));
        events.wait_for_end();
    }
    // Also for the default user.
    let mut monitor = Events::open(&http, "/monitor");
    monitor.wait_for("data: \"OK\"\n\n");
    c.check("ACL SETUSER default -monitor", "+OK");
    monitor.wait_for_end();
}

#[test]
fn a_stream_that_a_pause_holds_back_is_not_opened_for_a_user_that_is_off() {
    let http = with(launch());
    let mut c = http.server.connect();
    c.check("ACL SETUSER ann on >secret +subscribe &news", "+OK");
    c.check("CLIENT PAUSE 60000 ALL", "+OK");
    let events = Events::ask(&http, "/subscribe/news", "Authorization: Bearer ann:secret\r\n");
    let is_there = |c: &mut Connection| c.ask("CLIENT LIST").text().contains("user=ann ");
    wait_until("the stream waits", || is_there(&mut c));
    c.check("ACL SETUSER ann off", "+OK");
    wait_until("the stream is closed", || !is_there(&mut c));
    c.check("CLIENT UNPAUSE", "+OK");
    let seen = events.wait_for_end();
    assert!(!seen.contains("data: subscribe"), "{seen}");
}

#[test]
fn slow_readers_are_bounded_and_dropped() {
    let http = with(launch().with("client-output-buffer-limit", "pubsub 4mb 4mb 0"));
    let mut c = http.server.connect();
    let mut slow = Events::open(&http, "/subscribe/c");
    slow.wait_for("data: subscribe,c,1\n\n");
    let mut quick = Events::open(&http, "/subscribe/c");
    quick.wait_for("data: subscribe,c,1\n\n");
    // Nothing is read from the first one. The sockets in between buffer some megabytes.
    let message = "m".repeat(100_000);
    let mut sent = 0;
    while c.ask(&format!("PUBLISH c {message}")).int() == 2 {
        quick.seen.clear();
        quick.wait_for("data: message,c,");
        quick.wait_for("\n\n");
        sent += 1;
        assert!(sent < 2000, "no slow reader is dropped");
    }
    c.check("PUBLISH c last", ":1");
    quick.wait_for("data: message,c,last\n\n");
    drop(slow);
}

#[test]
fn a_message_is_in_memory_once_for_all_slow_readers() {
    let http = with(launch());
    let mut c = http.server.connect();
    let mut all: Vec<_> = (0..6).map(|_| Events::open(&http, "/subscribe/c")).collect();
    all.iter_mut().for_each(|slow| slow.wait_for("data: subscribe,c,1\n\n"));
    let before = http.server.peak_resident_bytes();
    c.call(&[&b"PUBLISH"[..], b"c", &vec![b'm'; 16 << 20]]);
    all.iter_mut().for_each(|slow| slow.wait_for("data: message,c,m"));
    let added = http.server.peak_resident_bytes() - before;
    assert!(added < 80 << 20, "{} MB for one of 16 MB", added >> 20);
}

/// The client may come back later, so the status shows that the request is not at fault.
#[test]
fn a_subscriber_beyond_maxclients_is_told_so() {
    let http = with(launch().with("maxclients", "9"));
    let mut all = Vec::new();
    let mut refused = loop {
        let events = Events::begin(&http, "/subscribe/c", "");
        if !events.seen.starts_with("HTTP/1.1 200 OK\r\n") {
            break events;
        }
        all.push(events);
        assert!(all.len() <= 9, "maxclients is for subscribers as well");
    };
    refused.wait_for("max number of clients reached");
    assert!(refused.seen.starts_with("HTTP/1.1 503 "), "{}", refused.seen);
}

#[test]
fn many_subscribers_hold_up_no_request_and_end_with_the_server() {
    let http = with(launch().with("http-maxclients", "400"));
    let mut c = http.server.connect();
    let mut all: Vec<_> = (0..200).map(|_| Events::open(&http, "/subscribe/c")).collect();
    for events in &mut all {
        events.wait_for("data: subscribe,c,1\n\n");
    }
    c.check("PUBLISH c x", ":200");
    let mut stream = http.connect();
    let request = "GET /get/k HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    assert!(answer.ends_with("{\"result\":null}"), "{answer}");
    for events in &mut all {
        events.wait_for("data: message,c,x\n\n");
    }
    let Both { mut server, .. } = http;
    c.request(&["SHUTDOWN", "NOSAVE"]);
    all.into_iter().for_each(|events| drop(events.wait_for_end()));
    server.wait_for_end();
}
