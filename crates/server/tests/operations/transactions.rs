//! The locks that EXEC needs, and the thread that runs it.

use crate::operations::set_aside::{MANY, key_beside, send_and_wait, workers_serve};
use crate::operations::support::{Client, TestServer};

/// Queues these commands.
fn queue(client: &mut Client, lines: &[&str]) {
    client.check(&[("MULTI", "OK")]);
    for line in lines {
        assert_eq!(client.call(line), "QUEUED", "{line}");
    }
}

#[test]
fn only_the_shards_of_its_keys_are_needed() {
    let server = TestServer::start();
    let free = key_beside(&server, &["held"]);
    let (mut lucky, mut waiting, mut other) = (server.client(), server.client(), server.client());
    server.shards.hold(&["held"], || {
        queue(&mut lucky, &[&format!("SET {free} 1"), "PING", &format!("INCR {free}")]);
        lucky.check(&[("EXEC", "[OK, PONG, :2]")]);
        queue(&mut waiting, &[&format!("SET {free} 3"), "SET held x", &format!("GET {free}")]);
        waiting.send("EXEC");
        workers_serve(&server);
        // It is set aside as a whole.
        other.check(&[(&format!("GET {free}"), "2")]);
    });
    assert_eq!(waiting.next(), "[OK, OK, 3]");
    other.check(&[("GET held", "x"), (&format!("GET {free}"), "3")]);
}

#[test]
fn one_without_keys_needs_no_shard_for_long() {
    let server = TestServer::start();
    let mut client = server.client();
    queue(&mut client, &["PING", "SELECT 1", "WAIT 1 0", "CLIENT REPLY ON"]);
    client.check(&[("EXEC", "[PONG, OK, :0, OK]"), ("EXEC", "-ERR EXEC without MULTI")]);
}

#[test]
fn what_was_set_aside_passes_the_gates_again() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.client(), server.client());
    server.shards.hold(&["held"], || {
        queue(&mut client, &["SET held x"]);
        send_and_wait(&server, &mut client, "EXEC");
        other.check(&[("CLIENT PAUSE 1000000 WRITE", "OK")]);
    });
    workers_serve(&server);
    other.check(&[("GET held", "(nil)"), ("CLIENT UNPAUSE", "OK")]);
    assert_eq!(client.next(), "[OK]");
}

/// Returns the keys, in two shards, at which [`with_busy_threads`] blocks the threads.
pub fn held_keys(server: &TestServer) -> [String; 2] {
    ["held".to_owned(), key_beside(server, &["held"])]
}

/// Keeps both threads for long commands busy while `others` runs, which uses no shard of [`held_keys`].
pub fn with_busy_threads(server: &TestServer, others: impl FnOnce()) {
    let held = held_keys(server);
    let mut busy = [server.client(), server.client()];
    for (client, key) in busy.iter_mut().zip(&held) {
        queue(client, &[format!("GET {key}").as_str(); MANY / 10]);
    }
    server.shards.hold_as_if_briefly(&held.each_ref().map(String::as_str), || {
        // A short request, which arrives as a whole.
        busy.iter_mut().for_each(|client| send_and_wait(server, client, "EXEC"));
        others();
    });
    busy.iter_mut().for_each(|client| assert!(client.next().starts_with("[(nil), ")));
}

/// Returns requests that are long only together.
fn many(counter: &str, from: usize) -> Vec<String> {
    (0..MANY / 5).map(|number| format!("INCRBY {counter} {}", from + number)).collect()
}

#[test]
fn a_long_one_runs_away_from_its_worker_and_its_caller_comes_back() {
    let server = TestServer::with("--appendfsync always");
    let (mut client, mut other) = (server.client(), server.client());
    let id = client.call("CLIENT ID");
    let counter = key_beside(&server, &held_keys(&server));
    let queued = many(&counter, 0);
    let queued: Vec<&str> = queued.iter().map(String::as_str).collect();
    queue(&mut client, &queued);
    for line in ["SELECT 3", "SET here yes", "HELLO 3", "CLIENT NO-TOUCH ON", "HGETALL none"] {
        assert_eq!(client.call(line), "QUEUED", "{line}");
    }
    let list = format!("CLIENT LIST ID {}", &id[1..]);
    with_busy_threads(&server, || {
        send_and_wait(&server, &mut client, "EXEC");
        other.check(&[(&format!("EXISTS {counter}"), ":0")]);
        assert!(other.call(&list).contains(" flags=x "));
    });
    let reply = client.next();
    assert!(reply.starts_with("[:0, :1, :3, ") && reply.ends_with(", OK, {}]"), "{reply}");
    client.check(&[("GET here", "yes"), ("HGETALL none", "{}")]);
    let line = client.call("CLIENT INFO");
    assert!(line.contains(" flags=T db=3 ") && line.contains(" multi=-1 "), "{line}");
    assert!(line.contains(" resp=3 "), "{line}");
    let stats = client.call("INFO commandstats");
    for calls in [format!("incrby:calls={},", queued.len()), "exec:calls=3,".to_owned()] {
        assert!(stats.contains(&format!("cmdstat_{calls}")), "{calls} {stats}");
    }
}

#[test]
fn a_long_one_passes_the_gates_when_its_turn_comes() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.client(), server.client());
    let counter = key_beside(&server, &held_keys(&server));
    let queued = many(&counter, 1);
    queue(&mut client, &queued.iter().map(String::as_str).collect::<Vec<_>>());
    with_busy_threads(&server, || {
        send_and_wait(&server, &mut client, "EXEC");
        other.check(&[("CLIENT PAUSE 1000000 WRITE", "OK")]);
    });
    workers_serve(&server);
    other.check(&[(&format!("EXISTS {counter}"), ":0"), ("CLIENT UNPAUSE", "OK")]);
    assert!(client.next().starts_with("[:1, :3, :6, "));
}

#[test]
fn the_sizes_of_values_make_one_long() {
    let server = TestServer::start();
    let mut client = server.client();
    let list = key_beside(&server, &held_keys(&server));
    let numbers: Vec<String> = (0..MANY).map(|number| number.to_string()).collect();
    for numbers in numbers.chunks(1000) {
        client.value(&format!("RPUSH {list} {}", numbers.join(" ")));
    }
    let sort = format!("SORT {list}");
    let sort_some = format!("{sort} DESC LIMIT 0 1");
    queue(&mut client, &["SELECT 1", &sort, "SELECT 0", &sort_some]);
    let mut other = server.client();
    with_busy_threads(&server, || {
        send_and_wait(&server, &mut client, "EXEC");
        // It was not executed on the worker.
        let stats = other.call("INFO commandstats");
        assert!(!stats.contains("cmdstat_exec") && !stats.contains("cmdstat_sort"), "{stats}");
    });
    assert_eq!(client.next(), "[OK, [], OK, [20000]]");
    // A command in another database is not.
    queue(&mut client, &["SELECT 1", &sort]);
    with_busy_threads(&server, || client.check(&[("EXEC", "[OK, []]")]));
}

#[test]
fn what_is_watched_stays_watched_while_long_commands_run() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.client(), server.client());
    let long = format!("MGET{}", " none".repeat(MANY));
    client.check(&[("WATCH key", "OK")]);
    assert!(client.call(&long).starts_with("[(nil), "));
    other.check(&[("SET key changed", "OK")]);
    queue(&mut client, &["SET key mine"]);
    client.check(&[("EXEC", "(nil)")]);
    // A long transaction takes it along.
    let queued = many("key", 1);
    let queued: Vec<&str> = queued.iter().map(String::as_str).collect();
    for changes in ["SET key 5", "GET key"] {
        client.check(&[("WATCH key", "OK")]);
        queue(&mut client, &queued);
        other.call(changes);
        let reply = client.call("EXEC");
        assert_eq!(reply == "(nil)", changes.starts_with("SET"), "{reply}");
        assert!(client.call("CLIENT INFO").contains(" watch=0 "));
    }
}

#[test]
fn a_count_makes_one_long() {
    let server = TestServer::start();
    let mut client = server.client();
    let list = key_beside(&server, &held_keys(&server));
    let numbers: Vec<String> = (0..MANY).map(|number| number.to_string()).collect();
    for numbers in numbers.chunks(1000) {
        client.value(&format!("RPUSH {list} {}", numbers.join(" ")));
    }
    queue(&mut client, &[&format!("LPOP {list} 1"), &format!("LPOP {list} 20000")]);
    let mut other = server.client();
    with_busy_threads(&server, || {
        send_and_wait(&server, &mut client, "EXEC");
        other.check(&[(&format!("LLEN {list}"), ":20001")]);
    });
    assert!(client.next().starts_with("[[0], [1, 2, "));
    other.check(&[(&format!("EXISTS {list}"), ":0")]);
}
