//! A command that locks shards for long delays no request that does not need them. Those that do are set aside, in
//! their order, and continue when the shards are free.

use std::io::{Read, Write};
use std::net::TcpStream;

use tierce_wire::pedrokv::{Kind, Request};
use tierce_wire::resp::Value;

use crate::operations::support::{Client, PATIENCE, TestServer, free_port};

/// Number of elements above the limit of one command on a worker.
pub const MANY: usize = 20_001;

/// Maximum number of accepted connections that the server does not count yet.
const UNCOUNTED_MAX: usize = 8;

/// Has each of the two workers serve a connection that came after all others.
#[track_caller]
pub fn workers_serve(server: &TestServer) {
    let mut first = server.client();
    let info = first.call("INFO clients");
    let there = info.lines().find_map(|line| line.strip_prefix("connected_clients:"));
    let there: usize = there.unwrap().trim().parse().unwrap();
    // Each goes to the worker with fewer connections, so with this many every worker gets one of them.
    let others = (0..there + UNCOUNTED_MAX).map(|_| server.client());
    for mut client in std::iter::once(first).chain(others.collect::<Vec<_>>()) {
        client.check(&[("PING", "PONG")]);
    }
}

/// Returns a key in another shard than these.
pub fn key_beside(server: &TestServer, keys: &[impl AsRef<str>]) -> String {
    let held: Vec<_> = keys.iter().map(|key| server.shards.of(key.as_ref())).collect();
    key_with(server, |shard| !held.contains(&shard))
}

/// Returns a key in a shard that `is_right`.
fn key_with(server: &TestServer, is_right: impl Fn(usize) -> bool) -> String {
    let mut names = (0..).map(|number: u32| format!("key:{number}"));
    names.find(|name| is_right(server.shards.of(name))).unwrap()
}

/// Sends a request that is set aside. Its worker has seen it when it serves another connection that came later, and
/// there are two workers. A request longer than one packet may arrive in parts: see [`send_long`].
pub fn send_and_wait(server: &TestServer, client: &mut Client, line: &str) {
    client.send(line);
    workers_serve(server);
}

#[test]
fn every_command_is_set_aside_or_answered_while_all_shards_are_held() {
    let server = TestServer::start();
    let Value::Array(table) = server.client().value("COMMAND") else { panic!("a table") };
    let calls = table.iter().map(|command| {
        let Value::Array(facts) = command else { panic!("facts") };
        let (Value::Bulk(name), Value::Int(arity)) = (&facts[0], &facts[1]) else {
            panic!("a name and an arity")
        };
        let args = " 1".repeat(arity.unsigned_abs() as usize - 1);
        format!("{}{args}", String::from_utf8_lossy(name))
    });
    let ends = ["shutdown", "monitor"];
    let calls: Vec<String> =
        calls.filter(|call| !ends.iter().any(|name| call.starts_with(name))).collect();
    assert!(calls.len() > 200, "{}", calls.len());
    let mut clients: Vec<Client> = calls.iter().map(|_| server.client()).collect();
    server.shards.hold(&[], || {
        for (client, call) in clients.iter_mut().zip(&calls) {
            client.send(call);
        }
        workers_serve(&server);
        server.client().check(&[("DBSIZE", ":0")]);
        assert!(server.client().call("INFO").contains("# Keyspace"));
    });
    for (client, call) in clients.iter_mut().zip(&calls) {
        assert!(client.read().is_some(), "{call}");
    }
}

#[test]
fn a_connection_keeps_the_order_of_its_requests() {
    let server = TestServer::start();
    let free = key_beside(&server, &["held"]);
    let (mut client, mut other) = (server.client(), server.client());
    server.shards.hold(&["held"], || {
        client.send(&format!("SET {free} before"));
        client.send("APPEND held x");
        client.send(&format!("SET {free} after"));
        client.send(&format!("MSET held y {free} both"));
        assert_eq!(client.next(), "OK");
        workers_serve(&server);
        other.check(&[(&format!("GET {free}"), "before"), ("EXISTS nosuchkey", ":0")]);
    });
    assert_eq!([client.next(), client.next(), client.next()], [":1", "OK", "OK"]);
    other.check(&[("GET held", "y"), (&format!("GET {free}"), "both")]);
}

#[test]
fn a_client_that_is_killed_while_its_request_is_set_aside_leaves_nothing() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.client(), server.client());
    let id = client.call("CLIENT ID");
    server.shards.hold(&["held"], || {
        send_and_wait(&server, &mut client, "SET held x");
        other.check(&[(&format!("CLIENT KILL ID {}", &id[1..]), ":1")]);
        assert_eq!(client.next(), "(closed)");
    });
    other.check(&[("GET held", "(nil)")]);
}

/// Returns a request with so many arguments that it leaves its worker, whatever is locked.
fn large(name: &str, key: &str) -> String {
    let words: Vec<_> = (0..MANY / 2).map(|number| format!("{key}{number} x")).collect();
    format!("{name} {}", words.join(" "))
}

/// Sends a request of many arguments, and waits until its worker has sent it to another thread.
fn send_long(server: &TestServer, client: &mut Client, name: &str, key: &str) {
    let id = client.call("CLIENT ID");
    client.send(&large(name, key));
    let list = format!("CLIENT LIST ID {}", &id[1..]);
    let mut observer = server.client();
    observer.ask_until(&list, |reply| reply.contains(&format!("cmd={name} ")));
    // The worker has begun the request, and is done with it when it serves others.
    workers_serve(server);
}

/// Keeps both threads for long commands busy while `others` runs.
pub fn with_busy_threads(server: &TestServer, others: impl FnOnce()) {
    let mut busy = [server.client(), server.client()];
    server.shards.hold(&[], || {
        busy.iter_mut().for_each(|client| send_long(server, client, "mget", "key"));
        others();
    });
    busy.iter_mut().for_each(|client| assert!(client.next().starts_with("[(nil), ")));
}

#[test]
fn a_long_command_passes_the_gates_when_its_turn_comes() {
    let server = TestServer::start();
    let (mut paused, mut killed, mut other) = (server.client(), server.client(), server.client());
    let id = killed.call("CLIENT ID");
    with_busy_threads(&server, || {
        send_long(&server, &mut paused, "mset", "paused");
        send_long(&server, &mut killed, "mset", "killed");
        other.check(&[
            (&format!("CLIENT KILL ID {}", &id[1..]), ":1"),
            ("CLIENT PAUSE 1000000 WRITE", "OK"),
        ]);
    });
    // Long reads behind them continue.
    for _ in 0..4 {
        assert!(other.call(&large("MGET", "key")).starts_with("[(nil), "));
    }
    other.check(&[("EXISTS paused0 killed0", ":0"), ("CLIENT UNPAUSE", "OK")]);
    assert_eq!(paused.next(), "OK");
    other.check(&[("EXISTS paused0 killed0", ":1")]);
}

#[test]
fn what_was_set_aside_passes_the_gates_again() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.client(), server.client());
    server.shards.hold(&["held"], || {
        send_and_wait(&server, &mut client, "SET held x");
        other.check(&[("CLIENT PAUSE 1000000 WRITE", "OK")]);
    });
    workers_serve(&server);
    other.check(&[("GET held", "(nil)"), ("CLIENT UNPAUSE", "OK")]);
    assert_eq!(client.next(), "OK");
}

#[test]
fn the_patience_of_clients_ends_and_they_are_unblocked_while_their_shard_is_held() {
    let server = TestServer::start();
    let (mut patient, mut hasty) = (server.client(), server.client());
    let id = patient.call("CLIENT ID");
    patient.send("BLPOP held 0");
    let mut observer = server.client();
    observer.ask_until("INFO clients", |reply| reply.contains("blocked_clients:1\r\n"));
    hasty.send("BLPOP held 0.2");
    observer.ask_until("INFO clients", |reply| reply.contains("blocked_clients:2\r\n"));
    server.shards.hold(&["held"], || {
        assert_eq!(hasty.next(), "(nil)");
        observer.check(&[(&format!("CLIENT UNBLOCK {} ERROR", &id[1..]), ":1")]);
        assert!(patient.next().starts_with("-UNBLOCKED"));
    });
    observer.check(&[("RPUSH held x", ":1"), ("LLEN held", ":1")]);
}

#[test]
fn a_client_is_served_when_the_shard_is_free_that_it_moves_an_element_to() {
    let server = TestServer::start();
    let source = key_beside(&server, &["held"]);
    let (mut client, mut other) = (server.client(), server.client());
    client.send(&format!("BLMOVE {source} held LEFT LEFT 0"));
    other.ask_until("INFO clients", |reply| reply.contains("blocked_clients:1\r\n"));
    server.shards.hold(&["held"], || {
        other.check(&[(&format!("RPUSH {source} x"), ":1")]);
        workers_serve(&server);
    });
    assert_eq!(client.next(), "x");
    other.check(&[("LRANGE held 0 -1", "[x]"), (&format!("LLEN {source}"), ":0")]);
}

#[test]
fn clients_of_memcached_and_pedrokv_are_set_aside_too() {
    let (memcached, pedrokv) = (free_port(), free_port());
    let server =
        TestServer::with(&format!("--memcached-port {memcached} --pedrokv-port {pedrokv}"));
    let free = key_beside(&server, &["held"]);
    let mut text = TcpStream::connect(("127.0.0.1", memcached)).unwrap();
    let mut frames = TcpStream::connect(("127.0.0.1", pedrokv)).unwrap();
    let mut puts = Vec::new();
    for (id, key) in [(1, free.as_bytes()), (2, b"held"), (3, b"held")] {
        Request { kind: Kind::Put, id, key, value: b"v" }.write(&mut puts).unwrap();
    }
    server.shards.hold(&["held"], || {
        let set = |key: &str| format!("set {key} 0 0 1\r\nx\r\n");
        let lines = format!("{}{}get {free} held\r\n", set(&free), set("held"));
        text.write_all(lines.as_bytes()).unwrap();
        expect(&mut text, b"STORED\r\n");
        frames.write_all(&puts).unwrap();
        let mut response = [0; 7];
        frames.read_exact(&mut response).unwrap();
        workers_serve(&server);
    });
    let values = format!("STORED\r\nVALUE {free} 0 1\r\nv\r\nVALUE held 0 1\r\n");
    let mut rest = vec![0; values.len()];
    text.read_exact(&mut rest).unwrap();
    assert!(rest.starts_with(b"STORED\r\nVALUE "), "{}", rest.escape_ascii());
    let mut responses = [0; 14];
    frames.read_exact(&mut responses).unwrap();
    assert_eq!(server.client().call("GET held").len(), 1);
}

/// They wait for one shard, but for different keys: they resume on two workers in any order, and a value that is too
/// large removes the one before it.
#[test]
fn keys_in_base64_and_values_that_are_too_large_are_set_aside_too() {
    let memcached = free_port();
    let server = TestServer::with(&format!("--memcached-port {memcached} --item-size-max 2048"));
    let (mut text, mut large) =
        [(); 2].map(|()| TcpStream::connect(("127.0.0.1", memcached)).unwrap()).into();
    let same_shard = key_with(&server, |shard| shard == server.shards.of("held"));
    let mut client = server.client();
    client.check(&[("SET held before", "OK"), (&format!("SET {same_shard} old"), "OK")]);
    server.shards.hold(&["held"], || {
        text.write_all(b"mg aGVsZA== b v\r\nms aGVsZA== 5 b\r\nafter\r\nmn\r\n").unwrap();
        let value = "x".repeat(3000);
        large.write_all(format!("set {same_shard} 0 0 3000\r\n{value}\r\n").as_bytes()).unwrap();
        workers_serve(&server);
    });
    expect(&mut text, b"VA 6\r\nbefore\r\nHD\r\nMN\r\n");
    expect(&mut large, b"SERVER_ERROR object too large for cache\r\n");
    client.check(&[("GET held", "after"), (&format!("EXISTS {same_shard}"), ":0")]);
}

#[test]
fn puts_that_go_shard_by_shard_run_once_and_are_answered_in_order() {
    const PUTS: u32 = 200;
    let pedrokv = free_port();
    let server = TestServer::with(&format!("--pedrokv-port {pedrokv}"));
    let mut frames = TcpStream::connect(("127.0.0.1", pedrokv)).unwrap();
    let mut puts = Vec::new();
    for id in 0..PUTS {
        let key = format!("key{id}");
        Request { kind: Kind::Put, id, key: key.as_bytes(), value: b"first" }
            .write(&mut puts)
            .unwrap();
    }
    // Those of some shards have run when one has to wait.
    let held = format!("key{}", PUTS - 1);
    let done = server.shards.hold(&[&held], || {
        frames.write_all(&puts).unwrap();
        workers_serve(&server);
        let mut client = server.client();
        let others = (0..PUTS).map(|id| format!("key{id}"));
        let others = others.filter(|key| server.shards.of(key) != server.shards.of(&held));
        let done: Vec<_> =
            others.filter(|key| client.call(&format!("GET {key}")) == "first").collect();
        for key in &done {
            client.check(&[(&format!("SET {key} second"), "OK")]);
        }
        done
    });
    for id in 0..PUTS {
        let mut response = [0; 7];
        frames.read_exact(&mut response).unwrap();
        assert_eq!((response[2], &response[3..]), (0, &id.to_be_bytes()[..]), "{response:?}");
    }
    let mut client = server.client();
    client.check(&[("DBSIZE", &format!(":{PUTS}")), (&format!("GET {held}"), "first")]);
    for key in done {
        client.check(&[(&format!("GET {key}"), "second")]);
    }
}

#[track_caller]
fn expect(stream: &mut TcpStream, expected: &[u8]) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = Vec::new();
    // The bytes so far show which reply is missing.
    let ended = stream.take(expected.len() as u64).read_to_end(&mut bytes);
    let (bytes, expected) = (bytes.escape_ascii(), expected.escape_ascii());
    assert_eq!(bytes.to_string(), expected.to_string(), "{ended:?}");
}

#[test]
fn a_server_ends_while_requests_are_set_aside() {
    let mut server = TestServer::start();
    let mut client = server.client();
    server.shards.hold(&["held"], || {
        send_and_wait(&server, &mut client, "SET held x");
        server.client().send("SHUTDOWN NOSAVE");
    });
    server.join();
}

/// Starts with a list, a set, a sorted set and a stream of many elements, and as many keys.
fn with_much_data(options: &str) -> TestServer {
    let server = TestServer::with(options);
    let mut client = server.client();
    for from in (0..MANY).step_by(1000) {
        let numbers = from..MANY.min(from + 1000);
        let words: Vec<String> = numbers.clone().map(|number| number.to_string()).collect();
        let words = words.join(" ");
        let scored: Vec<String> = numbers.map(|number| format!("{number} {number}")).collect();
        client.value(&format!("RPUSH list {words}"));
        client.value(&format!("SADD set {words}"));
        client.value(&format!("ZADD scores {}", scored.join(" ")));
        client.value(&format!("HSET hash {}", scored.join(" ")));
    }
    server
}

#[test]
fn long_commands_reply_in_their_place_and_are_counted_once() {
    let server = with_much_data("");
    let mut client = server.client();
    client.check(&[("CONFIG SET slowlog-log-slower-than 0", "OK"), ("CONFIG RESETSTAT", "OK")]);
    let replies = [
        ("SORT list DESC LIMIT 0 2", "[20000, 19999]"),
        ("ECHO between", "between"),
        ("ZUNIONSTORE union 2 scores set", ":20001"),
        ("ZSCORE union 20000", "20001"),
        ("SUNIONSTORE sets set set", ":20001"),
        ("COPY hash copy", ":1"),
        ("HLEN copy", ":20001"),
        ("LREM list 0 7", ":1"),
    ];
    for (line, _) in replies {
        client.send(line);
    }
    for (line, reply) in replies {
        assert_eq!(client.next(), reply, "{line}");
    }
    for (line, replies) in [("LRANGE list 0 -1", MANY - 1), ("SMEMBERS set", MANY)] {
        let Value::Array(elements) = client.value(line) else { panic!("{line}") };
        assert_eq!(elements.len(), replies, "{line}");
    }
    let stats = client.call("INFO commandstats");
    for name in ["sort", "zunionstore", "sunionstore", "copy", "lrem", "lrange", "smembers"] {
        assert!(stats.contains(&format!("cmdstat_{name}:calls=1,")), "{name}: {stats}");
    }
    assert!(client.call("SLOWLOG GET -1").contains("ZUNIONSTORE"));
    client.check(&[
        ("SORT list FOO", "-ERR syntax error"),
        ("SORT hash", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ]);
}

#[test]
fn what_a_long_command_has_changed_is_in_the_log_and_those_who_wait_are_served() {
    let server = with_much_data("--appendfsync always --enable-debug-command yes");
    let (mut client, mut waiting) = (server.client(), server.client());
    waiting.send("BLPOP sorted 0");
    client.ask_until("INFO clients", |reply| reply.contains("blocked_clients:1\r\n"));
    client.check(&[("SORT list STORE sorted", ":20001")]);
    assert_eq!(waiting.next(), "[sorted, 0]");
    client.check(&[
        ("LLEN sorted", ":20000"),
        ("DEBUG POPULATE 20001", "OK"),
        ("DEBUG RELOAD", "OK"),
        ("LLEN sorted", ":20000"),
        ("DBSIZE", ":20006"),
    ]);
    let Value::Array(keys) = client.value("KEYS key:*") else { panic!("keys") };
    assert_eq!(keys.len(), MANY);
    client.check(&[("FLUSHALL SYNC", "OK"), ("DBSIZE", ":0")]);
}

/// A worker that cannot look up a value's location, because its shard is locked, does not read it from disk itself once
/// the shard is free.
#[test]
fn a_spilled_value_whose_shard_is_held_is_fetched_afterwards() {
    const KEYS: usize = 600;
    let options = "--appendonly no --maxmemory 1mb --maxmemory-policy spill";
    let server = TestServer::with(options);
    let mut client = server.client();
    let value = |key: usize| format!("{key}:").repeat(600);
    for key in 0..KEYS {
        client.check(&[(&format!("SET key:{key} {}", value(key)), "OK")]);
    }
    // About a third of the values is on disk.
    let mut readers: Vec<(usize, Client)> =
        (0..KEYS).step_by(4).map(|key| (key, server.client())).collect();
    server.shards.hold(&[], || {
        for (key, reader) in &mut readers {
            reader.send(&format!("GET key:{key}"));
        }
        workers_serve(&server);
    });
    for (key, reader) in &mut readers {
        assert_eq!(reader.next(), value(*key));
    }
    let info = client.call("INFO memory");
    let figure = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|number| number.parse::<u64>().ok()).unwrap_or_else(|| panic!("{info}"))
    };
    assert!(figure("spilled_reads:") > 0, "{info}");
    // A value may be spilled again between the lookup and the command.
    assert!(figure("spilled_reads_late:") <= figure("spilled_reads:") / 10, "{info}");
}
