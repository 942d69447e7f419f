//! Keyspace notifications: events on keys are published in order, for changes of any client.

use tierce_harness::{Both, Connection, Server, encode};

use crate::pedrokv::{DELETE, GET, PUT, request};
use crate::{launch, server};

/// A subscriber to all events, and the connection that reads them.
struct Listener {
    subscriber: Connection,
    publisher: Connection,
}

impl Listener {
    fn of(server: &Server, classes: &str) -> Self {
        let (mut subscriber, mut publisher) = (server.connect(), server.connect());
        subscriber.check("PSUBSCRIBE __key*@*__:* end", r#"["psubscribe", "__key*@*__:*", :1]"#);
        subscriber.expect(r#"["psubscribe", "end", :2]"#);
        publisher.check(&format!("CONFIG SET notify-keyspace-events {classes}"), "+OK");
        Self { subscriber, publisher }
    }

    /// Returns the next message: the channel without its brackets, and the payload.
    fn next(&mut self) -> String {
        let reply = self.subscriber.reply();
        let [_, _, channel, payload] = reply.items() else { panic!("not a message: {reply}") };
        let channel = channel.text().trim_start_matches("__key").replace("__:", " ");
        format!("{channel} {}", payload.text())
    }

    /// Returns the messages so far.
    fn all(&mut self) -> Vec<String> {
        self.publisher.check("PUBLISH end .", ":1");
        let messages =
            std::iter::from_fn(|| Some(self.next()).filter(|message| message != "end ."));
        messages.collect()
    }

    /// Returns the events, and the messages of `ch`, so far.
    fn told(&mut self) -> Vec<String> {
        self.publisher.check("PUBLISH ch end", ":1");
        let told = std::iter::from_fn(|| {
            loop {
                let reply = self.subscriber.reply();
                let [.., channel, text] = reply.items() else { panic!("not a message: {reply}") };
                match channel.text().split_once(":") {
                    None => break Some(text.text().to_owned()).filter(|text| text != "end"),
                    Some(("__keyevent@0__", event)) => {
                        break Some(format!("{event} {}", text.text()));
                    }
                    Some(_) => {}
                }
            }
        });
        told.collect()
    }

    /// Checks the events and messages that `line` causes.
    fn check(&mut self, client: &mut Connection, line: &str, expected: &[&str]) {
        client.ask(line);
        assert_eq!(self.all(), expected, "{line}");
    }
}

#[test]
fn a_change_is_published_to_the_channels_of_its_key_and_of_its_event() {
    let server = server();
    let mut listener = Listener::of(&server, "KEA");
    let mut client = server.connect();
    let of_set = ["space@0 k set", "event@0 set k"];
    listener.check(&mut client, "SET k v", &of_set);
    client.check("SELECT 3", "+OK");
    let of_expire = ["space@3 k set", "event@3 set k", "space@3 k expire", "event@3 expire k"];
    listener.check(&mut client, "SET k v EX 100", &of_expire);
    listener.check(&mut client, "GET k", &[]);
    listener.check(&mut client, "DEL none", &[]);
    listener.check(&mut client, "DEL k", &["space@3 k del", "event@3 del k"]);
}

#[test]
fn classes_and_channels_are_chosen_at_run_time() {
    let server = server();
    let mut listener = Listener::of(&server, "Eg");
    let mut client = server.connect();
    listener.check(&mut client, "SET k v", &[]);
    listener.check(&mut client, "EXPIRE k 100", &["event@0 expire k"]);
    for (given, shown, expected) in [
        ("K$", "$K", &["space@0 k set"][..]),
        ("KA", "AK", &["space@0 k set"]),
        ("xE", "xE", &[]),
        ("g$lshzxetdKEm", "AKEm", &["space@0 k set", "event@0 set k"]),
        // Without a channel class, there are no events.
        ("A", "A", &[]),
        ("''", "", &[]),
    ] {
        client.check(&format!("CONFIG SET notify-keyspace-events {given}"), "+OK");
        let expected_reply = format!(r#"["notify-keyspace-events", "{shown}"]"#);
        client.check("CONFIG GET notify-keyspace-events", &expected_reply);
        listener.check(&mut client, "SET k v", expected);
    }
    assert!(client.ask("CONFIG SET notify-keyspace-events KQ").text().contains("event class"));
    client.check("CONFIG SET notify-keyspace-events KEm", "+OK");
    listener.check(&mut client, "GET none", &["space@0 none keymiss", "event@0 keymiss none"]);
}

#[test]
fn what_blocked_clients_are_served_is_published_behind_what_serves_them() {
    let server = server();
    let mut listener = Listener::of(&server, "EA");
    for (wait, serve, expected) in [
        ("BLPOP l 0", "RPUSH l a", &["event@0 rpush l", "event@0 lpop l", "event@0 del l"][..]),
        ("BRPOP l 0", "LPUSH l a b", &["event@0 lpush l", "event@0 rpop l"]),
        (
            "BLMOVE from to LEFT RIGHT 0",
            "RPUSH from a",
            &["event@0 rpush from", "event@0 rpush to", "event@0 lpop from", "event@0 del from"],
        ),
        ("BLMPOP 0 1 m LEFT", "RPUSH m a b", &["event@0 rpush m", "event@0 lpop m"]),
        ("BZPOPMIN z 0", "ZADD z 1 a", &["event@0 zadd z", "event@0 zpopmin z", "event@0 del z"]),
        ("BZMPOP 0 1 y MAX", "ZADD y 1 a 2 b", &["event@0 zadd y", "event@0 zpopmax y"]),
    ] {
        let (mut waiting, mut client) = (server.connect(), server.connect());
        waiting.request(&wait.split(' ').collect::<Vec<_>>());
        tierce_harness::wait_until("the client waits", || {
            client.ask("INFO clients").text().contains("blocked_clients:1\r\n")
        });
        listener.check(&mut client, serve, expected);
        waiting.reply();
    }
}

#[test]
fn keys_that_expire_are_published_without_being_looked_at() {
    let server = server();
    let mut listener = Listener::of(&server, "Ex");
    let mut client = server.connect();
    for name in ["one", "two"] {
        client.check(&format!("SET {name} v PX 10"), "+OK");
        assert_eq!(listener.next(), format!("event@0 expired {name}"));
    }
}

#[test]
fn evicted_keys_are_published() {
    let server = server();
    let mut listener = Listener::of(&server, "Ee");
    let mut client = server.connect();
    for number in 0..20 {
        client.check(&format!("SET key:{number} {}", "v".repeat(10_000)), "+OK");
    }
    client.check("CONFIG SET maxmemory-policy allkeys-random", "+OK");
    client.check("CONFIG SET maxmemory 100000", "+OK");
    assert!(listener.next().starts_with("event@0 evicted key:"));
}

#[test]
fn a_message_of_the_same_client_comes_behind_what_it_has_changed() {
    let server = server();
    let mut listener = Listener::of(&server, "EA");
    let mut client = server.connect();
    let lines = [
        &["SET", "k", "v"][..],
        &["PUBLISH", "end", "first"],
        &["DEL", "k"],
        &["PUBLISH", "end", "last"],
    ];
    client.send(lines.map(encode).concat());
    let messages: Vec<_> = (0..4).map(|_| listener.next()).collect();
    assert_eq!(messages, ["event@0 set k", "end first", "event@0 del k", "end last"]);
}

/// A client that gets both has seen the events of all earlier changes when it gets a message.
#[test]
fn messages_of_transactions_and_programs_come_between_the_events_of_their_changes() {
    for threads in ["1", "2"] {
        let server = launch().with("threads", threads).start();
        let mut listener = Listener::of(&server, "KE$g");
        let mut client = server.connect();
        listener.subscriber.check("SUBSCRIBE ch", r#"["subscribe", "ch", :3]"#);
        let script = "redis.call('publish', KEYS[1], 0) redis.call('set', KEYS[2], 1) redis.call('publish', KEYS[1], 1) redis.call('del', KEYS[2]) redis.call('publish', KEYS[1], 2)";
        let of_script = ["0", "set s", "1", "del s", "2"];
        let hash = client.call(&["SCRIPT", "LOAD", script]).text().to_owned();
        let call = format!("EVALSHA {hash} 2 ch s");
        client.check(&call, "nil");
        assert_eq!(listener.told(), of_script, "{threads} threads");
        client.check("MULTI", "+OK");
        for line in
            ["SET a v", "PUBLISH ch x", &call, "SET b v", "SPUBLISH ch y", "DEL a", "PUBLISH ch z"]
        {
            client.check(line, "+QUEUED");
        }
        client.ask("EXEC");
        let expected = [&["set a", "x"][..], &of_script, &["set b", "del a", "z"]].concat();
        assert_eq!(listener.told(), expected, "{threads} threads");
    }
}

#[test]
fn what_memcached_changes_is_published() {
    let both = Both::start(launch(), "memcached-port");
    let mut listener = Listener::of(&both.server, "EA");
    for (request, expected) in [
        ("set k 0 0 1\r\n5\r\n", &["event@0 set k"][..]),
        ("set k 0 1000 1\r\n5\r\n", &["event@0 set k", "event@0 expire k"]),
        ("add k 0 0 1\r\n5\r\n", &[]),
        ("replace k 0 0 1\r\n5\r\n", &["event@0 set k"]),
        ("incr k 1\r\n", &["event@0 incrby k"]),
        ("decr k 1\r\n", &["event@0 incrby k"]),
        ("append k 0 0 1\r\n5\r\n", &["event@0 append k"]),
        ("prepend k 0 0 1\r\n5\r\n", &["event@0 set k"]),
        ("touch k 1000\r\n", &["event@0 expire k"]),
        ("gat 0 k\r\n", &["event@0 persist k"]),
        ("touch k -1\r\n", &["event@0 del k"]),
        ("delete k\r\n", &[]),
        ("ms k 1 T100\r\n5\r\n", &["event@0 set k", "event@0 expire k"]),
        ("ma k\r\n", &["event@0 incrby k"]),
        ("mg k v T200\r\n", &["event@0 expire k"]),
        ("md k\r\n", &["event@0 del k"]),
        ("mg k v N100\r\n", &["event@0 set k", "event@0 expire k"]),
        ("delete k\r\n", &["event@0 del k"]),
    ] {
        both.talk([request.as_bytes()]);
        assert_eq!(listener.all(), expected, "{request:?}");
    }
}

#[test]
fn what_pedrokv_changes_is_published() {
    let both = Both::start(launch(), "pedrokv-port");
    let mut listener = Listener::of(&both.server, "EA");
    for (kind, expected) in
        [(PUT, &["event@0 set k"][..]), (GET, &[]), (DELETE, &["event@0 del k"]), (DELETE, &[])]
    {
        let value = if kind == PUT { &b"v"[..] } else { b"" };
        both.talk([&request(kind, 1, b"k", value)[..]]);
        assert_eq!(listener.all(), expected, "{kind}");
    }
}
