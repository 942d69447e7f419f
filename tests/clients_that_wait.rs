//! Blocking commands: the client that is served, the order, and the end of waiting.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use tierce_harness::{Connection, Server, TempDir, encode, wait_until};

use crate::{launch, server};

/// A server with blocked clients.
struct Waiting {
    server: Server,
    observer: Connection,
    blocked: i64,
}

impl Waiting {
    fn new() -> Self {
        let server = server();
        let observer = server.connect();
        Self { server, observer, blocked: 0 }
    }

    /// Returns a client that has sent this command and is blocked.
    fn client(&mut self, command: &str) -> Connection {
        let mut client = self.server.connect();
        self.block(&mut client, command);
        client
    }

    fn block(&mut self, client: &mut Connection, command: &str) {
        client.request(&tierce_harness::words(command));
        self.blocked += 1;
        self.wait_for_blocked(self.blocked);
    }

    fn wait_for_blocked(&mut self, count: i64) {
        self.blocked = count;
        let observer = &mut self.observer;
        wait_until("clients wait", || {
            let info = observer.ask("INFO clients").text().to_owned();
            info.contains(&format!("blocked_clients:{count}\r"))
        });
    }
}

/// The pusher's reply is sent last: when it has arrived, the replies of the clients that it woke are there. Several
/// pushes in one batch wake several clients.
#[test]
fn clients_are_woken_before_the_pusher_has_its_reply() {
    const CLIENTS: usize = 20;
    let dir = TempDir::new();
    let path = dir.path().join("tierce.sock");
    let path_text = path.to_str().expect("UTF-8");
    for durability in ["no", "everysec"] {
        let launch = launch().with("unixsocket", path_text).with("threads", "1");
        let server = launch.with("appendonly", "yes").with("appendfsync", durability).start();
        let mut waiting = Waiting { observer: server.connect(), server, blocked: 0 };
        let mut clients: Vec<UnixStream> = Vec::new();
        for blocked in 1..=CLIENTS {
            let mut client = UnixStream::connect(&path).expect("a socket");
            client.write_all(&encode(&["BLPOP", "jobs", "0"])).expect("sent");
            client.set_nonblocking(true).expect("an option of the socket");
            clients.push(client);
            waiting.wait_for_blocked(blocked as i64);
        }
        let mut pusher = Connection::unix(&path);
        pusher.send(encode(&["RPUSH", "jobs", "one"]).repeat(CLIENTS));
        (0..CLIENTS).for_each(|_| pusher.expect(":1"));
        for client in &mut clients {
            let mut reply = [0; 64];
            let received = client.read(&mut reply).expect("a reply");
            assert_eq!(&reply[..received], b"*2\r\n$4\r\njobs\r\n$3\r\none\r\n");
        }
    }
}

#[test]
fn keys_that_clients_wait_for_are_counted() {
    let mut waiting = Waiting::new();
    let mut c = waiting.server.connect();
    let mut counts = move || {
        let info = c.ask("INFO clients").text().to_owned();
        let figure = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().parse::<i64>().unwrap()
        };
        (figure("total_blocking_keys:"), figure("total_blocking_keys_on_nokey:"))
    };
    assert_eq!(counts(), (0, 0));
    let list = waiting.client("BLPOP a b 0");
    let same_list = waiting.client("BLPOP b 0");
    assert_eq!(counts(), (2, 0));
    let mut c = waiting.server.connect();
    c.check("XGROUP CREATE s g $ MKSTREAM", "+OK");
    let group = waiting.client("XREADGROUP GROUP g me BLOCK 0 STREAMS s >");
    let same_group = waiting.client("XREADGROUP GROUP g you BLOCK 0 STREAMS s >");
    assert_eq!(counts(), (3, 1));
    drop(group);
    waiting.wait_for_blocked(3);
    assert_eq!(counts(), (3, 1));
    c.check("DEL s", ":1");
    waiting.wait_for_blocked(2);
    assert_eq!(counts(), (2, 0));
    drop((list, same_list, same_group));
    waiting.wait_for_blocked(0);
    assert_eq!(counts(), (0, 0));
}

#[test]
fn a_client_may_wait_until_a_list_is_long_enough() {
    for (grow, moved) in [
        ("RPUSH from c d", "a b c"),
        ("LPUSH from z", "z a b"),
        ("RPUSHX from c", "a b c"),
        ("LINSERT from AFTER a m", "a m b"),
        ("LMOVE feed from LEFT RIGHT", "a b 3"),
        ("LMOVEM feed from LEFT LEFT COUNT 3 OBO", "2 1 3"),
        ("SORT feed STORE from", "1 2 3"),
        ("RENAME feed from", "3 1 2"),
        ("EVAL 'redis.call(\"RPUSH\", KEYS[1], \"c\")' 1 from", "a b c"),
    ] {
        let mut waiting = Waiting::new();
        let mut c = waiting.server.connect();
        c.check("RPUSH feed 3 1 2", ":3");
        let mut some = waiting.client("BLMOVEM from first LEFT RIGHT 0 COUNT 2 BULK");
        let mut exact = waiting.client("BLMOVEM from to LEFT RIGHT 0 EXACTLY 3 BULK");
        c.check("RPUSH from x", ":1");
        some.expect(r#"["x"]"#);
        waiting.wait_for_blocked(1);
        c.check("RPUSH from a b", ":2");
        c.check("LSET from 0 a", "+OK");
        c.check("LRANGE from 0 -1", r#"["a", "b"]"#);
        c.ask(grow);
        let elements: Vec<_> = moved.split(' ').map(|word| format!("{word:?}")).collect();
        let elements = format!("[{}]", elements.join(", "));
        exact.expect(&elements);
        c.check("LRANGE to 0 -1", &elements);
        waiting.wait_for_blocked(0);
    }
}

/// Clients behind one that needs more elements than there are get them.
#[test]
fn a_client_that_needs_more_keeps_nothing_from_others() {
    let mut waiting = Waiting::new();
    let mut c = waiting.server.connect();
    let mut pairs = [(); 2].map(|()| waiting.client("BLMOVEM l to RIGHT LEFT 0 EXACTLY 2 OBO"));
    let mut one = waiting.client("BLPOP l 0");
    c.check("RPUSH l a", ":1");
    one.expect(r#"["l", "a"]"#);
    c.check("RPUSH l b", ":1");
    c.check("RPUSH l c d e", ":4");
    pairs[0].expect(r#"["d", "e"]"#);
    pairs[1].expect(r#"["b", "c"]"#);
    c.check("LRANGE to 0 -1", r#"["b", "c", "d", "e"]"#);
    waiting.wait_for_blocked(0);
    let mut client = waiting.client("BLMOVEM l text LEFT RIGHT 0 EXACTLY 2 BULK");
    c.check("SET text v", "+OK");
    c.check("RPUSH l a", ":1");
    waiting.wait_for_blocked(1);
    c.check("RPUSH l b", ":2");
    client.expect("-WRONGTYPE Operation against a key holding the wrong kind of value");
    c.check("LLEN l", ":2");
    for line in [
        "MULTI",
        "BLMOVEM l to LEFT RIGHT 0 EXACTLY 3 BULK",
        "BLMOVEM l to LEFT RIGHT 0 COUNT 3 BULK",
    ] {
        c.ask(line);
    }
    c.check("EXEC", r#"[nil-array, ["a", "b"]]"#);
}

#[test]
fn whoever_came_first_is_served_first_whichever_key_it_is() {
    let mut waiting = Waiting::new();
    let mut clients: Vec<_> = (0..5).map(|_| waiting.client("BLPOP a b 0")).collect();
    let mut pusher = waiting.server.connect();
    pusher.check("RPUSH b 1", ":1");
    pusher.check("RPUSH a 2 3", ":2");
    pusher.check("LPUSH b 4 5", ":2");
    let got = [("b", "1"), ("a", "2"), ("a", "3"), ("b", "5"), ("b", "4")];
    for (client, (key, element)) in clients.iter_mut().zip(got) {
        client.expect(&format!("[\"{key}\", \"{element}\"]"));
    }
    pusher.check("EXISTS a b", ":0");
    waiting.wait_for_blocked(0);
}

#[test]
fn elements_are_gone_before_the_next_command_of_a_pipeline() {
    let mut waiting = Waiting::new();
    let mut client = waiting.client("BRPOP q 0");
    let mut pusher = waiting.server.connect();
    pusher.send([encode(&["LPUSH", "q", "x"]), encode(&["LLEN", "q"])].concat());
    pusher.expect(":1");
    pusher.expect(":0");
    client.expect("[\"q\", \"x\"]");
}

#[test]
fn what_one_moves_another_may_wait_for() {
    let mut waiting = Waiting::new();
    let mut mover = waiting.client("BLMOVE from to LEFT RIGHT 0");
    let mut popper = waiting.client("BLMPOP 0 2 other to RIGHT COUNT 5");
    waiting.server.connect().check("RPUSH from element", ":1");
    mover.expect("\"element\"");
    popper.expect("[\"to\", [\"element\"]]");
    waiting.server.connect().check("EXISTS from to", ":0");
}

#[test]
fn the_timeout_is_the_last_argument_to_be_looked_at() {
    let server = server();
    let mut client = server.connect();
    for (command, ends) in [("BLMPOP", "LEFT"), ("BZMPOP", "MIN")] {
        let count = "-ERR count should be greater than 0";
        client.check(&format!("{command} x 1 k {ends} COUNT 0"), count);
        client.check(&format!("{command} -1 1 k {ends} NOSUCH 1"), "-ERR syntax error");
        client.check(&format!("{command} -1 1 k {ends}"), "-ERR timeout is negative");
    }
}

#[test]
fn a_value_of_another_type_serves_nobody_who_waits() {
    let mut waiting = Waiting::new();
    let mut client = waiting.client("BLPOP k 0");
    let mut other = waiting.server.connect();
    other.check("SET k string", "+OK");
    other.check("DEL k", ":1");
    other.check("RPUSH k element", ":1");
    client.expect("[\"k\", \"element\"]");
    other.check("SET k string", "+OK");
    assert!(other.ask("BLPOP k 0").text().starts_with("WRONGTYPE"));
}

#[test]
fn a_key_that_comes_by_rename_or_from_another_database_counts() {
    let mut waiting = Waiting::new();
    let mut other = waiting.server.connect();
    let mut client = waiting.client("BLPOP k 0");
    other.check("RPUSH elsewhere 1", ":1");
    other.check("RENAME elsewhere k", "+OK");
    client.expect("[\"k\", \"1\"]");
    waiting.blocked -= 1;
    waiting.block(&mut client, "BLPOP k 0");
    other.check("SELECT 1", "+OK");
    other.check("RPUSH k 2", ":1");
    other.check("SWAPDB 0 1", "+OK");
    client.expect("[\"k\", \"2\"]");
}

#[test]
fn patience_ends_in_nothing_and_unblock_in_what_was_asked_for() {
    let mut waiting = Waiting::new();
    let mut client = waiting.server.connect();
    client.check("BLPOP k 0.01", "nil-array");
    client.check("BLMOVE k l LEFT LEFT 0.01", "nil-array");
    client.check("BLMOVEM k l LEFT LEFT 0.01 EXACTLY 3 OBO", "nil-array");
    let id = client.ask("CLIENT ID").int();
    for (reason, reply) in [
        ("", "nil-array"),
        (" TIMEOUT", "nil-array"),
        (" ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK"),
    ] {
        waiting.block(&mut client, "BRPOP k 0");
        waiting.observer.check(&format!("CLIENT UNBLOCK {id}{reason}"), ":1");
        client.expect(reply);
        waiting.observer.check(&format!("CLIENT UNBLOCK {id}"), ":0");
        waiting.wait_for_blocked(0);
    }
    client.check("BLPOP k -1", "-ERR timeout is negative");
    client.check("BLPOP k x", "-ERR timeout is not a float or out of range");
}

/// Regression: a new `timeout` used to replace the timeout of blocked clients.
#[test]
fn a_new_idle_timeout_ends_no_waiting() {
    let mut waiting = Waiting::new();
    let mut client = waiting.client("BLPOP k 0");
    let mut idle = waiting.server.connect();
    idle.check("PING", "+PONG");
    waiting.observer.check("CONFIG SET timeout 1", "+OK");
    idle.expect_closed();
    waiting.server.connect().check("RPUSH k 1", ":1");
    client.expect("[\"k\", \"1\"]");
}

#[test]
fn what_a_client_would_have_got_that_is_gone_stays() {
    let mut waiting = Waiting::new();
    drop(waiting.client("BLPOP k 0"));
    waiting.wait_for_blocked(0);
    let mut other = waiting.server.connect();
    other.check("RPUSH k 1", ":1");
    other.check("LLEN k", ":1");
}

#[test]
fn requests_behind_one_that_waits_wait_as_well() {
    let mut waiting = Waiting::new();
    let mut client = waiting.server.connect();
    client.send([encode(&["BLPOP", "k", "0"]), encode(&["PING"])].concat());
    waiting.wait_for_blocked(1);
    waiting.server.connect().check("RPUSH k 1", ":1");
    client.expect("[\"k\", \"1\"]");
    client.expect("+PONG");
}

/// A command with so many arguments runs on another thread, which registers its client.
#[test]
fn any_number_of_keys_is_waited_for() {
    let mut waiting = Waiting::new();
    let mut other = waiting.server.connect();
    let keys: String = (0..10_001).map(|number| format!(" k{number}")).collect();
    let mut client = waiting.server.connect();
    client.check("WATCH w", "+OK");
    let calls = [format!("BLPOP{keys} 0"), format!("BRPOP{keys} 100"), format!("BZPOPMIN{keys} 0")];
    for (call, add, reply) in [
        (&calls[0], "RPUSH k10000 a", "[\"k10000\", \"a\"]"),
        (&calls[1], "RPUSH k5 b", "[\"k5\", \"b\"]"),
        (&calls[2], "ZADD k7 1 c", "[\"k7\", \"c\", \"1\"]"),
    ] {
        waiting.block(&mut client, call);
        other.check(add, ":1");
        client.expect(reply);
        waiting.wait_for_blocked(0);
    }
    let streams: String = (0..5_001).map(|number| format!(" s{number}")).collect();
    let ends = " $".repeat(5_001);
    waiting.block(&mut client, &format!("XREAD BLOCK 0 STREAMS{streams}{ends}"));
    other.check("XADD s5000 1-1 a b", "\"1-1\"");
    client.expect("[[\"s5000\", [[\"1-1\", [\"a\", \"b\"]]]]]");
    waiting.wait_for_blocked(0);
    client.check(&format!("BLPOP{keys} 0.001"), "nil-array");
    waiting.block(&mut client, &calls[0]);
    let id = waiting.server.connect().ask("CLIENT LIST").text().lines().find_map(|line| {
        let id = line.split(' ').next().expect("the first field");
        line.contains("cmd=blpop").then(|| id.replace("id=", ""))
    });
    other.check(&format!("CLIENT UNBLOCK {}", id.expect("it is listed")), ":1");
    client.expect("nil-array");
    other.check("SET w 1", "+OK");
    client.check("MULTI", "+OK");
    client.check("PING", "+QUEUED");
    client.check("EXEC", "nil-array");
    waiting.wait_for_blocked(0);
    waiting.block(&mut client, &calls[0]);
    drop(client);
    waiting.wait_for_blocked(0);
    other.check("RPUSH k1 a", ":1");
    other.check("LLEN k1", ":1");
}

#[test]
fn many_who_push_and_many_who_wait_lose_and_double_nothing() {
    const CLIENTS: usize = 8;
    const EACH: usize = 200;
    let server = server();
    let pop = |_: usize| {
        let mut client = server.connect();
        let element = |_| client.ask("BLPOP a b 30").items()[1].text().to_owned();
        (0..EACH).map(element).collect::<Vec<_>>()
    };
    let push = |number: usize| {
        let mut client = server.connect();
        for element in 0..EACH {
            let key = if element % 3 == 0 { "a" } else { "b" };
            client.ask(&format!("RPUSH {key} {number}-{element}"));
        }
    };
    let (pop, push) = (&pop, &push);
    let mut popped: Vec<String> = std::thread::scope(|scope| {
        let poppers: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || pop(number))).collect();
        for number in 0..CLIENTS {
            scope.spawn(move || push(number));
        }
        poppers.into_iter().flat_map(|popper| popper.join().expect("a popper ends")).collect()
    });
    assert_eq!(popped.len(), CLIENTS * EACH);
    popped.sort_unstable();
    popped.dedup();
    assert_eq!(popped.len(), CLIENTS * EACH, "an element came twice");
    server.connect().check("EXISTS a b", ":0");
}

/// The reply is longer than one piece of an output buffer.
#[test]
fn a_client_that_waits_may_get_a_long_reply() {
    const ELEMENTS: usize = 30_000;
    let mut waiting = Waiting::new();
    let mut client = waiting.client(&format!("BLMPOP 0 1 q LEFT COUNT {ELEMENTS}"));
    let elements: Vec<String> = (0..ELEMENTS).map(|n| format!("element-{n:064}")).collect();
    let push: Vec<&str> = ["RPUSH", "q"].into_iter().chain(elements.iter().map(|e| &**e)).collect();
    let mut pusher = waiting.server.connect();
    pusher.send(encode(&push));
    pusher.expect(&format!(":{ELEMENTS}"));
    pusher.check("EXISTS q", ":0");
    let reply = client.reply();
    assert_eq!(reply.items()[0].text(), "q");
    let got: Vec<&str> = reply.items()[1].items().iter().map(|item| item.text()).collect();
    assert_eq!(got, elements);
}

/// The served reply may never come. Other replies come although the client sends nothing more.
#[test]
fn a_client_that_sends_nothing_more_does_not_wait_for_keys_replicas_or_the_end_of_a_pause() {
    let server = server();
    let mut observer = server.connect();
    observer.check("SET a old", "+OK");
    let half_closed = |requests: &[&[&str]]| {
        let mut client = server.connect();
        client.send(requests.iter().flat_map(|request| encode(request)).collect::<Vec<u8>>());
        client.finish_sending();
        String::from_utf8(client.rest()).expect("text")
    };
    let waits: [&[&str]; 2] = [&["BLPOP", "list", "0"], &["WAIT", "1", "0"]];
    for request in waits {
        assert_eq!(half_closed(&[&["SET", "b", request[0]], request]), "+OK\r\n");
        observer.check("GET b", &format!("{:?}", request[0]));
    }
    assert_eq!(
        half_closed(&[&["CLIENT", "PAUSE", "1", "WRITE"], &["GET", "a"]]),
        "+OK\r\n$3\r\nold\r\n"
    );
    observer.check("CLIENT PAUSE 100000 WRITE", "+OK");
    assert_eq!(half_closed(&[&["GET", "a"], &["SET", "a", "new"]]), "$3\r\nold\r\n");
    observer.check("CLIENT UNPAUSE", "+OK");
    observer.check("GET a", "\"old\"");
    assert_eq!(half_closed(&[&["SET", "a", "new"], &["GET", "a"]]), "+OK\r\n$3\r\nnew\r\n");
}
