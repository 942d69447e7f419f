//! Commands that never block: the connection continues, and the result comes later, on it or on another one.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread;

use tierce_harness::{Connection, Random, Reply, Server, encode, wait_until, words};

use crate::{launch, server};

/// Number of workers; each has clients.
const WORKERS: usize = 4;

fn workers() -> Server {
    launch().with("threads", &WORKERS.to_string()).start()
}

fn id(c: &mut Connection) -> i64 {
    c.ask("CLIENT ID").int()
}

/// Sends a command that has no reply of its own, and waits until it has begun. In one piece, so that its result
/// always comes after the PONG.
fn begin(c: &mut Connection, line: &str) {
    c.send([encode(&words(line)), encode(&["PING"])].concat());
    c.expect("+PONG");
}

/// Opens a connection that gets results of other clients.
fn receiver(server: &Server) -> (Connection, i64) {
    let mut c = server.connect();
    c.check("CLIENT ACCEPTNB ON", "+OK");
    let id = id(&mut c);
    (c, id)
}

/// Returns the number of pending results.
fn pending(c: &mut Connection) -> i64 {
    let info = c.ask("INFO clients").text().to_owned();
    let line = info.lines().find_map(|line| line.strip_prefix("pending_results:"));
    line.expect("the field").parse().expect("a number")
}

fn wait_for_pending(c: &mut Connection, count: i64) {
    wait_until("results are pending", || pending(c) == count);
}

#[test]
fn what_is_there_is_replied_at_once() {
    let server = server();
    let mut c = server.connect();
    c.check("RPUSH list a b c d", ":4");
    c.check("ZADD scores 1 low 2 high", ":2");
    c.check("XADD stream 1-1 k v", r#""1-1""#);
    c.check("NBLPOP none list 0 0", r#"["list", "a"]"#);
    // The receiver of the result does not matter.
    let (_receiver, other) = receiver(&server);
    c.check(&format!("NBRPOP none list 0 {other}"), r#"["list", "d"]"#);
    c.check("NBLMPOP 0 2 none list LEFT COUNT 5 0", r#"["list", ["b", "c"]]"#);
    c.check("RPUSH list x", ":1");
    c.check("NBLMOVE list moved LEFT LEFT 0 0", r#""x""#);
    c.check("NBZPOPMIN scores 0 0", r#"["scores", "low", "1"]"#);
    c.check("NBZPOPMAX scores 0 0", r#"["scores", "high", "2"]"#);
    c.check("NBXREAD STREAMS stream 0 0", r#"[["stream", [["1-1", ["k", "v"]]]]]"#);
    c.check("NBXREAD STREAMS stream $ 0", "nil-array");
    c.check("NBLIST", "[]");
}

#[test]
fn calls_that_are_wrong_wait_for_nothing() {
    let server = server();
    let mut c = server.connect();
    let mut memcached = server.connect();
    let other = id(&mut memcached);
    let no_client = "-ERR The client ID you want redirect to does not exist";
    let not_an_integer = "-ERR value is not an integer or out of range";
    c.check("SET string v", "+OK");
    for (line, error) in [
        ("NBLPOP list 0 1000000", no_client),
        ("NBKEYS * 1000000", no_client),
        ("NBLPOP list 0 x", not_an_integer),
        ("NBLPOP list 0 -1", not_an_integer),
        ("NBLPOP list -1 0", "-ERR timeout is negative"),
        ("NBLPOP list x 0", "-ERR timeout is not a float or out of range"),
        ("NBLPOP list 0", "-ERR wrong number of arguments for 'nblpop' command"),
        ("NBLMOVE a b LEFT UP 0 0", "-ERR syntax error"),
        ("NBLMPOP 0 0 list LEFT 0", "-ERR numkeys should be greater than 0"),
        (
            "NBXREAD BLOCK 0 STREAMS a b 0 0",
            "-ERR Unbalanced 'xread' list of streams: for each \
             stream key an ID or '$' must be specified.",
        ),
        ("NBLPOP string 0 0", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("NBCANCEL one", not_an_integer),
        ("CLIENT ACCEPTNB maybe", "-ERR syntax error"),
    ] {
        c.check(line, error);
    }
    let refused = c.ask(&format!("NBLPOP list 0 {other}")).to_string();
    assert!(refused.contains("CLIENT ACCEPTNB ON"), "{refused}");
    c.check("NBLIST", "[]");
    assert_eq!(pending(&mut c), 0);
}

#[test]
fn the_connection_goes_on_until_the_result_comes() {
    let server = workers();
    let mut pusher = server.connect();
    let mut plain = server.connect();
    begin(&mut plain, "NBLPOP list other 0 0");
    plain.check("SET k v", "+OK");
    plain.check("GET k", r#""v""#);
    pusher.check("RPUSH list a", ":1");
    plain.expect(r#"["list", "a"]"#);
    let mut modern = server.connect_resp3();
    let id = id(&mut modern);
    begin(&mut modern, "NBLPOP list other 0 0");
    begin(&mut modern, "NBRPOP other 0 0");
    pusher.check("RPUSH list b", ":1");
    modern.expect(&format!(r#">["nblpop", :{id}, :1, ["list", "b"]]"#));
    pusher.check("RPUSH other c d", ":2");
    modern.expect(&format!(r#">["nbrpop", :{id}, :2, ["other", "d"]]"#));
    pusher.check("LRANGE other 0 -1", r#"["c"]"#);
}

#[test]
fn every_command_waits_for_what_it_wants() {
    let server = workers();
    let mut c = server.connect();
    let mut other = server.connect();
    for (waits, gives, result) in [
        ("NBLPOP a b 0 0", "RPUSH b 1", r#"["b", "1"]"#),
        ("NBRPOP a b 0 0", "LPUSH a 1", r#"["a", "1"]"#),
        ("NBLMPOP 0 2 a b RIGHT COUNT 9 0", "RPUSH b 1 2", r#"["b", ["2", "1"]]"#),
        ("NBLMOVE a to LEFT RIGHT 0 0", "RPUSH a 1", r#""1""#),
        ("NBZPOPMIN a b 0 0", "ZADD b 1 x 2 y", r#"["b", "x", "1"]"#),
        ("NBZPOPMAX a c 0 0", "ZADD c 1 x 2 y", r#"["c", "y", "2"]"#),
        (
            "NBXREAD COUNT 1 BLOCK 0 STREAMS s t $ 0 0",
            "XADD s 5-5 k v",
            r#"[["s", [["5-5", ["k", "v"]]]]]"#,
        ),
    ] {
        begin(&mut c, waits);
        other.ask(gives);
        c.expect(result);
    }
    c.check("LRANGE to 0 -1", r#"["1"]"#);
    // In RESP3 scores are doubles, and streams are in a map.
    let mut modern = server.connect_resp3();
    let id = id(&mut modern);
    begin(&mut modern, "NBZPOPMIN z 0 0");
    other.ask("ZADD z 1.5 m");
    modern.expect(&format!(r#">["nbzpopmin", :{id}, :1, ["z", "m", ,1.5]]"#));
    begin(&mut modern, "NBXREAD BLOCK 0 STREAMS s $ 0");
    other.ask("XADD s 6-6 k v");
    modern.expect(&format!(r#">["nbxread", :{id}, :2, {{"s": [["6-6", ["k", "v"]]]}}]"#));
}

#[test]
fn results_go_to_the_client_that_accepts_them() {
    let server = workers();
    let mut sender = server.connect();
    let from = id(&mut sender);
    for _ in 0..2 * WORKERS {
        let (mut plain, to) = receiver(&server);
        begin(&mut sender, &format!("NBLPOP list 0 {to}"));
        sender.check("RPUSH list a", ":1");
        plain.expect(r#"["list", "a"]"#);
        let mut modern = server.connect_resp3();
        modern.check("CLIENT ACCEPTNB ON", "+OK");
        let to = id(&mut modern);
        begin(&mut sender, &format!("NBLPOP list 0 {to}"));
        sender.check("RPUSH list b", ":1");
        let Reply::Push(parts) = modern.reply() else { panic!("no push message") };
        assert_eq!(parts[1].int(), from);
        assert_eq!(parts[3].to_string(), r#"["list", "b"]"#);
    }
    // A client's own id needs no consent.
    begin(&mut sender, &format!("NBLPOP list 0 {from}"));
    let mut other = server.connect();
    other.check("RPUSH list c", ":1");
    sender.expect(r#"["list", "c"]"#);
}

#[test]
fn names_of_keys_always_come_later() {
    let server = workers();
    let mut c = server.connect_resp3();
    let from = id(&mut c);
    c.check("MSET user:1 a order:1 b", "+OK");
    c.request(&["NBKEYS", "user:*", "0"]);
    c.expect(&format!(r#">["nbkeys", :{from}, :1, ["user:1"]]"#));
    let (mut plain, to) = receiver(&server);
    begin(&mut c, &format!("NBKEYS nosuch* {to}"));
    plain.expect("[]");
    // It uses the selected database, and is counted under its name.
    c.check("SELECT 1", "+OK");
    c.request(&["NBKEYS", "*", "0"]);
    c.expect(&format!(r#">["nbkeys", :{from}, :3, []]"#));
    let stats = c.ask("INFO commandstats").to_string();
    assert!(stats.contains("cmdstat_nbkeys:calls=3"), "{stats}");
}

#[test]
fn clients_that_block_and_those_that_do_not_are_served_in_their_order() {
    let server = server();
    let mut free = server.connect();
    begin(&mut free, "NBLPOP list 0 0");
    let mut blocked = server.connect();
    blocked.request(&["BLPOP", "list", "0"]);
    let mut c = server.connect();
    wait_until("a client waits", || c.ask("INFO clients").text().contains("blocked_clients:1\r\n"));
    begin(&mut free, "NBRPOP list 0 0");
    c.check("RPUSH list 1 2 3 4", ":4");
    free.expect(r#"["list", "1"]"#);
    free.expect(r#"["list", "4"]"#);
    blocked.expect(r#"["list", "2"]"#);
    c.check("LRANGE list 0 -1", r#"["3"]"#);
    assert_eq!(pending(&mut c), 0);
}

#[test]
fn the_time_of_a_result_ends() {
    let server = workers();
    let mut c = server.connect();
    // One connection has several deadlines, and continues meanwhile.
    let lines =
        ["NBLPOP list 0.02 0", "NBXREAD BLOCK 20 STREAMS s $ 0", "NBLPOP other 0 0", "PING"];
    c.send(lines.map(|line| encode(&words(line))).concat());
    ["+PONG", "nil-array", "nil-array"].iter().for_each(|reply| c.expect(reply));
    c.check("PING", "+PONG");
    let (mut plain, to) = receiver(&server);
    begin(&mut c, &format!("NBLMOVE list other LEFT LEFT 0.01 {to}"));
    plain.expect("nil-array");
    let mut modern = server.connect_resp3();
    let from = id(&mut modern);
    begin(&mut modern, "NBZPOPMIN z 0.01 0");
    modern.expect(&format!(r#">["nbzpopmin", :{from}, :1, null]"#));
    modern.check("RPUSH list stays", ":1");
    modern.check("RPUSH other goes", ":1");
    c.expect(r#"["other", "goes"]"#);
    assert_eq!(pending(&mut modern), 0);
}

#[test]
fn pending_results_are_listed_limited_and_cancelled() {
    let server = launch().with("client-pending-results", "3").start();
    let mut c = server.connect();
    let own = id(&mut c);
    for line in ["NBLPOP a 0 0", "NBRPOP b 0 0", "NBZPOPMIN c 100 0"] {
        begin(&mut c, line);
    }
    c.check(
        "NBLIST",
        &format!(r#"[[:1, "nblpop", :{own}], [:2, "nbrpop", :{own}], [:3, "nbzpopmin", :{own}]]"#),
    );
    let refused = "-ERR 3 results are pending, and client-pending-results allows no more";
    c.check("NBLPOP a 0 0", refused);
    c.check("NBKEYS * 0", refused);
    assert_eq!(pending(&mut c), 3);
    c.check("NBCANCEL 2 2 7", ":1");
    c.check("CLIENT UNBLOCK 1", ":0");
    c.check("CONFIG SET client-pending-results 4", "+OK");
    begin(&mut c, "NBRPOP b 0 0");
    let mut other = server.connect();
    other.check(&format!("CLIENT UNBLOCK {own} ERROR"), ":0");
    other.check("NBCANCEL 1", ":0");
    c.check("NBCANCEL", ":3");
    c.check("NBLIST", "[]");
    other.check("RPUSH a 1", ":1");
    other.check("RPUSH b 1", ":1");
    c.check("LLEN a", ":1");
    assert_eq!(pending(&mut c), 0);
}

/// Ends the waiting of a client in some way. Returns the client if it is still connected.
type End = fn(&mut Connection, Connection) -> Option<Connection>;

#[test]
fn nothing_is_popped_for_a_client_that_has_gone() {
    let drops: End = |_, _| None;
    let is_killed: End = |other, mut c| {
        let id = id(&mut c);
        other.check(&format!("CLIENT KILL ID {id}"), ":1");
        Some(c)
    };
    let resets: End = |_, mut c| {
        c.check("RESET", "+RESET");
        Some(c)
    };
    let declines: End = |_, mut c| {
        c.check("CLIENT ACCEPTNB OFF", "+OK");
        Some(c)
    };
    for (is_sender, end) in [
        (true, drops),
        (true, is_killed),
        (true, resets),
        (false, drops),
        (false, is_killed),
        (false, resets),
        (false, declines),
    ] {
        let server = workers();
        let mut other = server.connect();
        let mut sender = server.connect();
        let (to, id) = receiver(&server);
        begin(&mut sender, &format!("NBLPOP list 0 {id}"));
        begin(&mut sender, &format!("NBXREAD BLOCK 100000 STREAMS s $ {id}"));
        begin(&mut sender, &format!("NBLPOP nosuch list 100 {id}"));
        assert_eq!(pending(&mut other), 3);
        let _rest =
            if is_sender { (end(&mut other, sender), to) } else { (end(&mut other, to), sender) };
        wait_for_pending(&mut other, 0);
        other.check("RPUSH list a", ":1");
        other.check("LRANGE list 0 -1", r#"["a"]"#);
        // The reaper removes them from the queues.
        wait_until("no client is in a queue", || {
            other.ask("INFO clients").text().contains("total_blocking_keys:0\r\n")
        });
    }
}

#[test]
fn a_transaction_gets_all_its_replies_at_once() {
    let server = server();
    let mut c = server.connect_resp3();
    let from = id(&mut c);
    let mut other = server.connect();
    c.check("RPUSH list a", ":1");
    begin(&mut c, "NBLPOP queue 0 0");
    c.check("MULTI", "+OK");
    for line in
        ["NBLPOP list 0 0", "NBLPOP list 0 0", "NBKEYS * 0", "NBLPOP x 0 99999", "NBCANCEL 5"]
    {
        c.check(line, "+QUEUED");
    }
    // A result comes between two replies.
    other.check("RPUSH queue b", ":1");
    c.expect(&format!(r#">["nblpop", :{from}, :1, ["queue", "b"]]"#));
    c.check(
        "EXEC",
        r#"[["list", "a"], null, [], -ERR The client ID you want redirect to does not exist, :0]"#,
    );
    // An element that EXEC pushes goes to the waiting client.
    begin(&mut c, "NBLPOP queue 0 0");
    other.check("MULTI", "+OK");
    other.check("RPUSH queue c d", "+QUEUED");
    other.check("EXEC", "[:2]");
    c.expect(&format!(r#">["nblpop", :{from}, :2, ["queue", "c"]]"#));
}

#[test]
fn results_are_in_the_version_that_their_receiver_has_chosen_last() {
    let server = server();
    let mut c = server.connect();
    let from = id(&mut c);
    let mut other = server.connect();
    begin(&mut c, "NBZPOPMIN a 0 0");
    begin(&mut c, "NBZPOPMIN b 0 0");
    c.ask("HELLO 3");
    other.ask("ZADD a 1.5 m");
    c.expect(&format!(r#">["nbzpopmin", :{from}, :1, ["a", "m", ,1.5]]"#));
    c.ask("HELLO 2");
    other.ask("ZADD b 1.5 m");
    c.expect(r#"["b", "m", "1.5"]"#);
}

#[test]
fn a_client_that_waits_for_a_reply_or_for_messages_gets_results_too() {
    let server = workers();
    let mut other = server.connect();
    let (mut blocked, to) = receiver(&server);
    blocked.request(&["BLPOP", "nosuch", "0"]);
    begin(&mut other, &format!("NBLPOP list 0 {to}"));
    other.check("RPUSH list a", ":1");
    blocked.expect(r#"["list", "a"]"#);
    let (mut subscriber, to) = receiver(&server);
    subscriber.check("SUBSCRIBE news", r#"["subscribe", "news", :1]"#);
    begin(&mut other, &format!("NBLPOP list 0 {to}"));
    other.check("RPUSH list b", ":1");
    subscriber.expect(r#"["list", "b"]"#);
    let (mut silent, to) = receiver(&server);
    silent.request(&["CLIENT", "REPLY", "OFF"]);
    begin(&mut other, &format!("NBLPOP list 0 {to}"));
    other.check("RPUSH list c", ":1");
    silent.expect(r#"["list", "c"]"#);
}

#[test]
fn databases_that_change_places_wake_those_who_wait() {
    let server = server();
    let mut c = server.connect();
    let mut other = server.connect();
    begin(&mut c, "NBLPOP list 0 0");
    other.check("SELECT 1", "+OK");
    other.check("RPUSH list a", ":1");
    c.check("SWAPDB 0 1", "+OK");
    c.expect(r#"["list", "a"]"#);
    other.check("FLUSHALL", "+OK");
    begin(&mut c, "NBLPOP list 0 0");
    other.check("FLUSHALL", "+OK");
    other.check("SELECT 0", "+OK");
    other.check("SET list string", "+OK");
    other.check("DEL list", ":1");
    other.check("RPUSH list b", ":1");
    c.expect(r#"["list", "b"]"#);
}

#[test]
fn clients_that_wait_for_results_are_not_idle() {
    let server = launch().with("timeout", "1").start();
    let mut waits = server.connect();
    begin(&mut waits, "NBLPOP list 0 0");
    let mut idle = server.connect();
    idle.check("PING", "+PONG");
    idle.expect_closed();
    waits.check("RPUSH list a", ":1");
    waits.expect(r#"["list", "a"]"#);
    // After the result, the connection is idle, although the client has sent nothing since.
    begin(&mut waits, "NBLPOP list 1.5 0");
    waits.expect("nil-array");
    waits.expect_closed();
}

/// The server does nothing more for a client after QUIT, however slowly it reads the rest.
#[test]
fn nothing_is_done_for_a_client_that_has_said_quit() {
    let server = launch().with("client-output-buffer-limit", "normal 0 0 0 pubsub 0 0 0").start();
    let (mut c, mut other) = (server.connect_resp3(), server.connect());
    other.check("SETRANGE large 50000000 v", ":50000001");
    c.check("SUBSCRIBE news", r#">["subscribe", "news", :1]"#);
    begin(&mut c, "NBLPOP list 0 0");
    // More than the socket buffers hold.
    c.send(b"GET large\r\nQUIT\r\n");
    wait_for_pending(&mut other, 0);
    other.check("RPUSH list a", ":1");
    other.check("LLEN list", ":1");
    other.check("PUBSUB NUMSUB news", r#"["news", :0]"#);
    // It is still connected, and gets the earlier replies.
    assert_eq!(c.reply().text().len(), 50_000_001);
    c.expect("+OK");
    c.expect_closed();
}

#[test]
fn a_receiver_that_does_not_read_is_disconnected() {
    let server = workers_with_little_output();
    let mut c = server.connect();
    let name = "k".repeat(1_000);
    for index in 0..2_000 {
        c.check(&format!("SET {name}{index} v"), "+OK");
    }
    let (_to, id) = receiver(&server);
    begin(&mut c, &format!("NBKEYS * {id}"));
    wait_until("it is disconnected", || {
        let info = c.ask("INFO stats").text().to_owned();
        info.contains("client_output_buffer_limit_disconnections:1\r")
    });
    c.check(
        &format!("NBLPOP list 0 {id}"),
        "-ERR The client ID you want redirect to does not exist",
    );
}

fn workers_with_little_output() -> Server {
    launch().with("client-output-buffer-limit", "normal 1mb 0 0").start()
}

#[test]
fn a_result_is_on_the_device_when_it_comes() {
    let dir = tierce_harness::TempDir::new();
    let durable = launch()
        .with("appendonly", "yes")
        .with("appendfsync", "always")
        .with("dir", &dir.path().display().to_string());
    let server = durable.start();
    let mut c = server.connect();
    let (mut to, id) = receiver(&server);
    for _ in 0..20 {
        begin(&mut c, &format!("NBLMOVE from to LEFT RIGHT 0 {id}"));
        c.check("RPUSH from a", ":1");
        to.expect(r#""a""#);
    }
    drop(server);
    let server = durable.start();
    let mut c = server.connect();
    c.check("LLEN to", ":20");
    c.check("EXISTS from", ":0");
}

/// Returns the elements of the queue that one client has got while it waited and cancelled.
fn take_some(server: &Server, seed: u64) -> Vec<String> {
    let mut c = server.connect_resp3();
    let mut random = Random::new(seed);
    let mut got = Vec::new();
    for _ in 0..150 {
        let count = 1 + random.below(3);
        for _ in 0..count {
            c.request(&["NBLPOP", "queue", "0", "0"]);
        }
        let mut cancelled = None;
        c.request(&["NBCANCEL"]);
        let mut came = 0;
        // Exactly those results come that were not cancelled.
        while cancelled.is_none_or(|cancelled| came + cancelled < count) {
            match c.reply() {
                Reply::Int(count) => cancelled = Some(count as usize),
                Reply::Push(parts) => {
                    came += 1;
                    // If another thread was just looking for an element, null means that there was none.
                    if let Reply::Array(parts) = &parts[3] {
                        got.push(parts[1].text().to_owned());
                    }
                }
                Reply::Array(parts) => {
                    came += 1;
                    got.push(parts[1].text().to_owned());
                }
                other => panic!("{other}"),
            }
        }
    }
    assert_eq!(c.ask("PING").text(), "PONG");
    got
}

#[test]
fn every_element_is_got_once_or_stays() {
    const PUSHED: usize = 1_500;
    let server = workers();
    let all = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for seed in 0..4 {
            let (server, all) = (&server, &all);
            scope.spawn(move || {
                let got = take_some(server, seed);
                all.lock().expect("no other failed").extend(got);
            });
        }
        let mut c = server.connect();
        for element in 0..PUSHED {
            c.ask(&format!("RPUSH queue {element}"));
        }
    });
    let mut all = all.into_inner().expect("none failed");
    let mut c = server.connect();
    all.extend(c.ask("LRANGE queue 0 -1").items().iter().map(|item| item.text().to_owned()));
    assert_eq!(all.len(), PUSHED);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), PUSHED);
    assert_eq!(pending(&mut c), 0);
}

/// After `+RESET` the client only gets what a new client would get.
#[test]
fn no_result_comes_behind_a_reset() {
    let server = workers();
    let mut c = server.connect();
    let mut call: Vec<String> = vec!["MSET".into()];
    call.extend((0..20_000).flat_map(|n| [format!("key:{n}"), "v".to_owned()]));
    c.request(&call);
    c.expect("+OK");
    for _ in 0..20 {
        // In one packet: RESET runs while the keys are searched, or before that.
        c.send(b"NBKEYS * 0\r\nNBKEYS nosuch 0\r\nRESET\r\nPING\r\n");
        c.expect("+RESET");
        c.expect("+PONG");
        c.check("NBLIST", "[]");
    }
    wait_for_pending(&mut c, 0);
    c.check("PING", "+PONG");
    for (round, (line, reply)) in [("RESET", "+RESET"), ("CLIENT ACCEPTNB OFF", "+OK")]
        .into_iter()
        .cycle()
        .take(60)
        .enumerate()
    {
        let (mut receiver, to) = receiver(&server);
        for _ in 0..10 {
            c.request(&["NBKEYS", "key:1999?", &to.to_string()]);
        }
        if round % 4 > 1 {
            // One has come, so others are in progress.
            assert_eq!(receiver.reply().items().len(), 10);
        }
        receiver.request(&words(line));
        while receiver.reply().to_string() != reply {}
        receiver.check("PING", "+PONG");
        // Later ones are refused.
        c.request(&["PING"]);
        while c.reply().to_string() != "+PONG" {}
        wait_for_pending(&mut c, 0);
        receiver.check("PING", "+PONG");
    }
}

/// Each of them has an entry in the queue of each of its keys.
#[test]
fn pending_commands_count_as_memory_of_their_client() {
    let server = server();
    let mut c = server.connect();
    let keys: String = (0..1000).map(|key| format!(" {key}")).collect();
    (0..100).for_each(|_| begin(&mut c, &format!("NBLPOP{keys} 0 0")));
    let listed = c.ask("CLIENT LIST").text().to_owned();
    let bytes = listed.split(" tot-mem=").nth(1).and_then(|rest| rest.split(' ').next());
    let bytes: usize = bytes.and_then(|bytes| bytes.parse().ok()).expect("a number");
    assert!((8_000_000..16_000_000).contains(&bytes), "{bytes}");
}
