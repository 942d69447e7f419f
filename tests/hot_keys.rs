//! HOTKEYS finds the keys with the highest use, `tierce inspect` shows them, and both cost nothing when they are off.

use std::process::Command;

use tierce_harness::{Reply, Server, wait_until};

use crate::{launch, program};

fn report(server: &Server) -> Reply {
    let reply = server.connect_resp3().ask("HOTKEYS GET");
    reply.items()[0].clone()
}

/// Returns the keys of a list with names and figures in turn.
fn keys(list: &Reply) -> Vec<String> {
    list.items().chunks(2).map(|pair| pair[0].text().to_owned()).collect()
}

#[test]
fn hot_keys_of_all_ways_to_call_a_command() {
    let server = launch().start();
    let mut c = server.connect();
    c.check("HOTKEYS GET", "nil");
    c.check("HOTKEYS STOP", "nil");
    c.check("HOTKEYS START METRICS 2 NET CPU COUNT 2", "+OK");
    c.check("HOTKEYS START METRICS 1 CPU", "-ERR hotkeys tracking session already in progress");
    c.check("HOTKEYS RESET", "-ERR hotkeys tracking session in progress, stop tracking first");
    // A pipeline, a transaction and a single call.
    (0..100).for_each(|_| c.request(&["SET", "pipelined", &"v".repeat(100)]));
    (0..100).for_each(|_| c.expect("+OK"));
    c.check("MULTI", "+OK");
    (0..50).for_each(|_| c.check("INCR queued", "+QUEUED"));
    c.ask("EXEC");
    c.check("GET once", "nil");
    let active = report(&server);
    assert_eq!(active.field("tracking-active").int(), 1);
    assert_eq!(keys(active.field("by-net-bytes")), ["pipelined", "queued"], "{active}");
    c.check("HOTKEYS STOP", "+OK");
    c.check("GET once", "nil");
    let ended = report(&server);
    assert_eq!(ended.field("tracking-active").int(), 0);
    assert_eq!(ended.field("sample-ratio").int(), 1);
    // 100 times a request of 142 bytes, and +OK.
    let net = ended.field("by-net-bytes").items()[1].int();
    let request = tierce_harness::encode(&["SET", "pipelined", &"v".repeat(100)]).len() as i64;
    assert_eq!(net, 100 * (request + 5));
    assert!(ended.field("net-bytes-all-commands-all-slots").int() >= net, "{ended}");
    assert_eq!(ended.field("by-cpu-time-us").items().len(), 4);
    assert!(ended.field("collection-duration-ms").int() >= 0);
    assert!(ended.field("collection-start-time-unix-ms").int() > 1_700_000_000_000);
    // In RESP2, a map is names and values in turn.
    let flat = c.ask("HOTKEYS GET");
    assert_eq!(flat.items()[0].items()[0].text(), "tracking-active");
    c.check("HOTKEYS RESET", "+OK");
    c.check("HOTKEYS GET", "nil");
}

#[test]
fn what_a_client_gets_that_has_waited_counts() {
    let server = launch().start();
    let (mut c, mut waiting) = (server.connect(), server.connect());
    assert_eq!(c.call(&["RPUSH", "other", &"v".repeat(10_000)]).int(), 1);
    c.check("HOTKEYS START METRICS 1 NET", "+OK");
    waiting.request(&["BLPOP", "queue", "0"]);
    wait_until("it waits", || c.ask("INFO clients").text().contains("blocked_clients:1\r"));
    c.check("RENAME other queue", "+OK");
    assert_eq!(waiting.reply().items()[1].text().len(), 10_000);
    let by_bytes = report(&server).field("by-net-bytes").clone();
    assert_eq!(keys(&by_bytes)[0], "queue");
    // The request counts once.
    let sent = tierce_harness::encode(&["BLPOP", "queue", "0"]).len();
    let reply = "*2\r\n$5\r\nqueue\r\n$10000\r\n\r\n".len() + 10_000;
    let rename = (tierce_harness::encode(&["RENAME", "other", "queue"]).len() + 5) / 2;
    assert_eq!(by_bytes.items()[1].int() as usize, sent + reply + rename, "{by_bytes}");
}

#[test]
fn errors_and_nulls_count_as_bytes_of_their_keys() {
    let server = launch().start();
    let (mut c, mut waiting) = (server.connect(), server.connect());
    c.check("SET text x", "+OK");
    c.check("HOTKEYS START METRICS 1 NET", "+OK");
    let mut expected = Vec::new();
    let mut sent = |key: &str, call: &[&str], reply: &str| {
        expected.push((tierce_harness::encode(call).len() + reply.len(), key.to_owned()));
    };
    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    for _ in 0..3 {
        c.check("LLEN text", WRONG);
    }
    (0..3).for_each(|_| sent("text", &["LLEN", "text"], &format!("{WRONG}\r\n")));
    waiting.check("BLPOP absent 0.01", "nil-array");
    sent("absent", &["BLPOP", "absent", "0.01"], "*-1\r\n");
    // Unblocked by another client.
    waiting.check("CLIENT SETNAME unblocked", "+OK");
    let id = waiting.ask("CLIENT ID").int();
    waiting.request(&["BLPOP", "unblocked", "0"]);
    wait_until("it waits", || c.ask("INFO clients").text().contains("blocked_clients:1\r"));
    c.check(&format!("CLIENT UNBLOCK {id} ERROR"), ":1");
    let unblocked = "-UNBLOCKED client unblocked via CLIENT UNBLOCK";
    waiting.expect(unblocked);
    sent("unblocked", &["BLPOP", "unblocked", "0"], &format!("{unblocked}\r\n"));
    // Served when the client no longer has the right.
    c.check("ACL SETUSER ann on nopass +@all ~*", "+OK");
    waiting.check("AUTH ann any", "+OK");
    waiting.request(&["BLPOP", "denied", "0"]);
    wait_until("it waits", || c.ask("INFO clients").text().contains("blocked_clients:1\r"));
    c.check("ACL SETUSER ann resetkeys", "+OK");
    c.check("LPUSH denied x", ":1");
    sent("denied", &["LPUSH", "denied", "x"], ":1\r\n");
    let denied = "-NOPERM No permissions to access a key";
    waiting.expect(denied);
    sent("denied", &["BLPOP", "denied", "0"], &format!("{denied}\r\n"));
    let by_bytes = report(&server).field("by-net-bytes").clone();
    for key in ["text", "absent", "unblocked", "denied"] {
        let bytes: usize =
            expected.iter().filter(|(_, of)| of == key).map(|(bytes, _)| bytes).sum();
        let at = keys(&by_bytes).iter().position(|other| other == key).expect(key);
        assert_eq!(by_bytes.items()[2 * at + 1].int() as usize, bytes, "{key}: {by_bytes}");
    }
}

#[test]
fn what_is_asked_for_has_to_make_sense() {
    let server = launch().start();
    let mut c = server.connect();
    for (options, error) in [
        ("METRIC 1 CPU", "METRICS parameter is required"),
        ("METRICS 3 CPU NET CPU", "METRICS count must be 1 or 2"),
        ("METRICS 2 CPU", "METRICS count does not match number of metric types provided"),
        ("METRICS 2 CPU CPU", "METRICS count does not match number of metric types provided"),
        ("METRICS 1 CPU COUNT 65", "COUNT must be between 1 and 64"),
        ("METRICS 1 CPU DURATION 0", "DURATION must be between 1 and 1000000"),
        ("METRICS 1 CPU SAMPLE 0", "SAMPLE ratio must be positive"),
        ("METRICS 1 CPU SLOTS 1 0", "SLOTS parameter cannot be used in non-cluster mode"),
        ("METRICS 1 CPU NET", "syntax error"),
    ] {
        c.check(&format!("HOTKEYS START {options}"), &format!("-ERR {error}"));
    }
    c.check("HOTKEYS GET", "nil");
    // Only administrators see the keys of others.
    c.check("ACL SETUSER ann on nopass ~* +@all -@admin", "+OK");
    c.check("AUTH ann x", "+OK");
    let refused = c.ask("HOTKEYS START METRICS 1 CPU");
    assert!(refused.text().starts_with("NOPERM"), "{refused}");
}

fn inspect(server: &Server, options: &[&str]) -> (i32, String, String) {
    let port = server.address().port().to_string();
    let output = Command::new(program())
        .args(["inspect", "-p", &port])
        .args(options)
        .env_remove("REDISCLI_AUTH")
        .output()
        .expect("the program");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("no signal"), text(output.stdout), text(output.stderr))
}

#[test]
fn inspect_shows_big_keys_of_each_type() {
    let server = launch().start();
    let mut c = server.connect();
    for n in 0..2000 {
        c.request(&["SET", &format!("small:{n}"), "v"]);
    }
    (0..2000).for_each(|_| c.expect("+OK"));
    c.request(&["SET", "huge", &"v".repeat(100_000)]);
    c.expect("+OK");
    c.check("RPUSH list a b c", ":3");
    c.check("HSET hash f v", ":1");
    c.check("XADD stream 1-1 f v", "\"1-1\"");
    let (code, said, progress) = inspect(&server, &["--big", "-n", "1"]);
    assert_eq!(code, 0, "{progress}");
    assert!(said.starts_with("2004 keys\n"), "{said}");
    let lines: Vec<_> = said.lines().map(str::trim).collect();
    assert!(lines.contains(&"100000 bytes           huge"), "{said}");
    assert!(lines.contains(&"3 elements        list"), "{said}");
    assert!(said.contains("\nhash: 1 key,") && said.contains(", 1 field\n"), "{said}");
    assert!(said.contains("\nstream: 1 key,") && said.contains(", 1 entry\n"), "{said}");
    assert!(lines.contains(&"1 field           hash"), "{said}");
    // Without a terminal, short work shows no progress.
    assert_eq!(progress, "");
}

#[test]
fn inspect_shows_hot_keys_and_leaves_a_session_of_others_alone() {
    let server = launch().start();
    let mut c = server.connect();
    c.check("HOTKEYS START METRICS 1 CPU", "+OK");
    let (code, _, error) = inspect(&server, &["--hot", "--seconds", "1"]);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("being collected already"), "{error}");
    assert_eq!(report(&server).field("tracking-active").int(), 1);
    c.check("HOTKEYS STOP", "+OK");

    let load = std::thread::scope(|scope| {
        let shown = scope.spawn(|| inspect(&server, &["--hot", "--seconds", "1"]));
        while !shown.is_finished() {
            c.check("SET hot v", "+OK");
        }
        shown.join().expect("no panic")
    });
    let (code, said, error) = load;
    assert_eq!(code, 0, "{error}");
    assert!(said.contains("hot keys, measured for ") && said.contains(" hot\n"), "{said}");
    c.check("HOTKEYS GET", "nil");

    let refused = inspect(&launch().with("requirepass", "secret").start(), &["--big"]);
    assert_eq!(refused.0, 2);
    assert!(refused.2.contains("NOAUTH"), "{}", refused.2);
}
