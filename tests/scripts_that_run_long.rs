//! Long and endless scripts: other clients are served meanwhile, and the scripts can be ended.

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tierce_harness::{Both, Connection, Server, TempDir, encode, free_port, wait_until};

use crate::{launch, memcached, pedrokv, server};

const ENDLESS: &str =
    "redis.call('set', KEYS[1], 'half') while true do redis.call('incr', KEYS[1] .. ':n') end";
const ENDLESS_ALONE: &str = "redis.call('set', KEYS[1], 'half') while true do end";
const BUSY: &str =
    "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";

/// Starts a server with one worker, on which a client runs an endless script for this key.
fn endless(script: &str, key: &str) -> (Server, Connection, Connection) {
    let server = launch().with("threads", "1").with("busy-reply-threshold", "50").start();
    let (c, runner) = (server.connect(), server.connect());
    let runner = begin(runner, script, key);
    (server, c, runner)
}

fn begin(mut runner: Connection, script: &str, key: &str) -> Connection {
    runner.send(encode(&["EVAL", script, "1", key]));
    runner
}

/// Waits until a script has locked this key so long that others get BUSY.
fn wait_for_busy(c: &mut Connection, key: &str) {
    wait_until("it is busy", || c.call(&["GET", key]).to_string() == BUSY);
}

#[test]
fn others_are_served_and_those_that_need_its_keys_are_told() {
    let (server, mut c, mut runner) = endless(ENDLESS_ALONE, "held");
    wait_for_busy(&mut c, "held");
    // On the only worker.
    let free = free_key(&mut c);
    c.check(&format!("SET {free} 1"), "+OK");
    c.check("PING", "+PONG");
    c.check(&format!("EVAL 'return redis.call(\"incr\", KEYS[1])' 1 {free}"), ":2");
    c.check("FLUSHALL", BUSY);
    c.check("MULTI", "+OK");
    c.check("GET held", "+QUEUED");
    let reply = c.ask("EXEC").to_string();
    assert!(reply.starts_with("-EXECABORT Transaction discarded because of: BUSY"), "{reply}");
    c.check("SCRIPT KILL", "+OK");
    let killed = runner.reply().to_string();
    assert!(killed.contains("Script killed by user with SCRIPT KILL"), "{killed}");
    c.check("GET held", "nil");
    c.check("SCRIPT KILL", "-NOTBUSY No scripts in execution right now.");
    runner.check("GET held", "nil");
    assert!(server.output().contains("was killed; its writes were undone"));
}

#[test]
fn clients_of_other_protocols_are_told_in_their_words() {
    let pedrokv_port = free_port();
    let launch = launch().with("threads", "1").with("busy-reply-threshold", "50");
    let launch = launch.with("pedrokv-port", &pedrokv_port.to_string());
    let both = Both::start(launch, "memcached-port");
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, pedrokv_port)).expect("a listener");
    let mut c = both.server.connect();
    c.check("SET held before", "+OK");
    let runner = begin(both.server.connect(), ENDLESS_ALONE, "held");
    wait_for_busy(&mut c, "held");
    let free = free_key(&mut c);
    let busy = "SERVER_ERROR a script keeps the key busy\r\n";
    both.check(
        format!("get held\r\nset held 0 0 1\r\nx\r\nget {free} held\r\nflush_all\r\nmn\r\n")
            .as_bytes(),
        format!("{busy}{busy}{busy}{busy}MN\r\n").as_bytes(),
    );
    let frame = memcached::frame(0x00, b"", b"held", b"");
    let temporary = 0x86;
    let told = memcached::answer(0x00, temporary, b"", b"", &busy.as_bytes()[13..busy.len() - 2]);
    memcached::check_frames(&both, &frame, &told);
    let text = "err: a script keeps the key busy";
    for kind in [pedrokv::GET, pedrokv::PUT, pedrokv::DELETE] {
        stream.write_all(&pedrokv::request(kind, 7, b"held", b"")).expect("sent");
        pedrokv::expect(&mut stream, &pedrokv::error(7, text));
    }
    c.check("SCRIPT KILL", "+OK");
    drop(runner);
    wait_until("it has ended", || c.ask("GET held").to_string() == "\"before\"");
    both.check(b"get held\r\n", b"VALUE held 0 6\r\nbefore\r\nEND\r\n");
}

/// A script used to be checked after ten thousand such comparisons, which take minutes.
#[test]
fn a_script_that_compares_long_strings_is_killed() {
    let long = "redis.call('set', KEYS[1], 'half') local s = string.rep('x', 5e7) \
                local a, b = s .. 'a', s .. 'b' while true do local x = a < b end";
    let (_server, mut c, mut runner) = endless(long, "held");
    wait_for_busy(&mut c, "held");
    c.check("SCRIPT KILL", "+OK");
    let killed = runner.reply().to_string();
    assert!(killed.contains("Script killed by user with SCRIPT KILL"), "{killed}");
    c.check("EXISTS held", ":0");
}

#[test]
fn a_script_is_killed_that_holds_all_shards_and_writes() {
    // With one more key, the shard would now and then be that of the declared one.
    let script =
        "for i = 1, 32 do redis.call('set', KEYS[1] .. ':' .. i, 'half') end while true do end";
    let (_server, mut c, mut runner) = endless(script, "held");
    wait_for_busy(&mut c, "any");
    c.check("SCRIPT KILL", "+OK");
    let killed = runner.reply().to_string();
    assert!(killed.contains("Script killed by user with SCRIPT KILL"), "{killed}");
    c.check("EXISTS held:1 held:2 held:32", ":0");
}

#[test]
fn clients_that_waited_before_are_told_as_well() {
    let server = launch().with("threads", "1").with("busy-reply-threshold", "300").start();
    let (mut c, mut waiting) = (server.connect(), server.connect());
    let _runner = begin(server.connect(), ENDLESS_ALONE, "held");
    // The first client that does not find the shard free waits until the time is up.
    wait_for_busy(&mut waiting, "held");
    c.check("SCRIPT KILL", "+OK");
    wait_until("it has ended", || c.ask("GET held").to_string() == "nil");
}

#[test]
fn endless_scripts_do_not_keep_long_commands_waiting() {
    let (server, mut c, _runner) = endless(ENDLESS_ALONE, "held");
    let _others: Vec<_> =
        (0..3).map(|n| begin(server.connect(), ENDLESS_ALONE, &format!("held{n}"))).collect();
    wait_for_busy(&mut c, "held");
    // Another shard may be locked, too.
    let free = (0..)
        .map(|n| format!("list{n}"))
        .find(|key| c.call(&["RPUSH", key, "x"]).to_string() == ":1")
        .unwrap();
    let mut call = vec!["RPUSH".to_owned(), free.clone()];
    call.extend((0..200_000).map(|n| n.to_string()));
    assert_eq!(c.call(&call).int(), 200_001);
    assert_eq!(c.call(&["SORT", &free, "ALPHA", "LIMIT", "0", "1"]).to_string(), "[\"0\"]");
    wait_until("all are killed", || c.ask("SCRIPT KILL").to_string().starts_with("-NOTBUSY"));
}

/// Queues a script, and sends EXEC.
fn ask_for_transaction(c: &mut Connection) {
    c.check("MULTI", "+OK");
    c.check("EVAL 'return 1' 0", "+QUEUED");
    c.request(&["EXEC"]);
}

fn ask_for_library(c: &mut Connection, name: &str) {
    let code =
        format!("#!lua name={name}\nredis.register_function('{name}', function() return 1 end)");
    c.request(&["FUNCTION", "LOAD", &code]);
}

/// A script that runs longer than a worker has time for.
const LONG: &str = "for i = 1, 3000000 do end return 1";

/// Returns a key in a shard that no script holds.
fn free_key(c: &mut Connection) -> String {
    let mut keys = (0..).map(|n| format!("free{n}"));
    keys.find(|key| c.call(&["SET", key, "1"]).to_string() == "+OK").unwrap()
}

#[test]
fn what_waits_for_a_thread_that_endless_scripts_have_is_told() {
    let (server, mut c, mut runner) = endless(ENDLESS_ALONE, "held");
    wait_for_busy(&mut c, "held");
    let free = free_key(&mut c);
    assert_eq!(c.call(&["EVAL", LONG, "1", &free]).to_string(), BUSY);
    ask_for_transaction(&mut c);
    let aborted = format!("-EXECABORT Transaction discarded because of: {}", &BUSY[1..]);
    c.expect(&aborted);
    ask_for_library(&mut c, "l");
    c.expect(BUSY);
    // Requests from before the script exceeded the threshold get BUSY as well.
    c.check("CONFIG SET busy-reply-threshold 100000000", "+OK");
    let (mut second, mut third) = (server.connect(), server.connect());
    ask_for_transaction(&mut second);
    third.request(&["EVAL", LONG, "1", &free]);
    wait_until("they wait", || {
        let clients = c.ask("CLIENT LIST").text().to_owned();
        clients.contains("cmd=exec") && clients.matches("cmd=eval").count() == 2
    });
    c.check("CONFIG SET busy-reply-threshold 50", "+OK");
    second.expect(&aborted);
    third.expect(BUSY);
    c.check("SCRIPT KILL", "+OK");
    runner.reply();
    assert_eq!(third.call(&["EVAL", LONG, "1", &free]).to_string(), ":1");
    ask_for_transaction(&mut second);
    second.expect("[:1]");
}

#[test]
fn what_waits_for_shards_of_an_endless_script_keeps_no_thread_from_others() {
    let server = launch().with("threads", "2").with("busy-reply-threshold", "50").start();
    let mut c = server.connect();
    let mut runner = begin(server.connect(), ENDLESS_ALONE, "held");
    wait_for_busy(&mut c, "held");
    let free = free_key(&mut c);
    c.check("CONFIG SET busy-reply-threshold 100000000", "+OK");
    let mut transactions: Vec<_> = (0..4).map(|_| server.connect()).collect();
    transactions.iter_mut().for_each(ask_for_transaction);
    let mut loading: Vec<_> = (0..8).map(|_| server.connect()).collect();
    loading.iter_mut().zip(0..).for_each(|(c, n)| ask_for_library(c, &format!("l{n}")));
    wait_until("they wait", || {
        let clients = c.ask("CLIENT LIST").text().to_owned();
        ["cmd=exec", "cmd=function|load"].map(|of| clients.matches(of).count()) == [4, 8]
    });
    for _ in 0..3 {
        assert_eq!(c.call(&["EVAL", LONG, "1", &free]).to_string(), ":1");
        // A long command.
        let reply = c.call(&["SETRANGE", &free, "5000000", "x"]).to_string();
        assert_eq!(reply, ":5000001");
        assert_eq!(c.call(&["BITCOUNT", &free]).to_string(), ":7");
    }
    c.check("SCRIPT KILL", "+OK");
    runner.reply();
    transactions.iter_mut().for_each(|c| c.expect("[:1]"));
    loading.iter_mut().zip(0..).for_each(|(c, n)| c.expect(&format!("\"l{n}\"")));
}

/// It needs all of its keys at once.
#[test]
fn a_client_that_waits_for_keys_is_served_when_an_endless_script_has_left_one() {
    // Two threads for scripts.
    let server = launch().with("threads", "2").with("busy-reply-threshold", "50").start();
    let mut c = server.connect();
    let mut runner = begin(server.connect(), ENDLESS_ALONE, "held");
    wait_for_busy(&mut c, "held");
    let free = free_key(&mut c);
    c.check("SCRIPT KILL", "+OK");
    runner.reply();
    assert_eq!(c.call(&["DEL", &free]).to_string(), ":1");
    let mut waiter = server.connect();
    waiter.send(encode(&["BLPOP", &free, "held", "0"]));
    wait_until("it waits", || c.ask("INFO clients").text().contains("\r\nblocked_clients:1\r\n"));
    let mut runner = begin(runner, ENDLESS_ALONE, "held");
    wait_for_busy(&mut c, "held");
    // A thread for scripts changes the key.
    let push = "for i = 1, 3000000 do end return redis.call('rpush', KEYS[1], 'v')";
    assert_eq!(c.call(&["EVAL", push, "1", &free]).to_string(), ":1");
    c.check("SCRIPT KILL", "+OK");
    runner.reply();
    waiter.expect(&format!(r#"["{free}", "v"]"#));
}

#[test]
fn limits_end_scripts_and_undo_them() {
    let server = server();
    let mut c = server.connect();
    c.check("CONFIG SET script-time-limit 20", "+OK");
    let reply = c.call(&["EVAL", ENDLESS, "1", "k"]).to_string();
    assert!(reply.contains("script-time-limit"), "{reply}");
    c.check("EXISTS k k:n", ":0");
    c.check("CONFIG SET script-time-limit 0 script-memory-limit 2mb", "+OK");
    let grows = "redis.call('set', KEYS[1], 'x') local t = {} while true do t[#t + 1] = string.rep('x', 1000) .. #t end";
    let reply = c.call(&["EVAL", grows, "1", "k"]).to_string();
    assert!(reply.contains("script-memory-limit"), "{reply}");
    c.check("EXISTS k", ":0");
    // The data for the rollback count.
    let writes = "for i = 1, 100000 do redis.call('set', KEYS[1] .. i, ARGV[1]) redis.call('set', KEYS[1] .. i, i) end";
    let reply = c.call(&["EVAL", writes, "1", "k", &"x".repeat(1000)]).to_string();
    assert!(reply.contains("script-memory-limit"), "{reply}");
    c.check("DBSIZE", ":0");
    c.check("EVAL 'return 1' 0", ":1");
}

#[test]
fn transactions_with_endless_scripts_are_killed_as_well() {
    let (_server, mut c, mut runner) = endless(ENDLESS_ALONE, "first");
    wait_for_busy(&mut c, "first");
    c.check("SCRIPT KILL", "+OK");
    runner.reply();
    runner.check("MULTI", "+OK");
    runner.check("SET before 1", "+QUEUED");
    assert_eq!(runner.call(&["EVAL", ENDLESS_ALONE, "1", "k"]).to_string(), "+QUEUED");
    runner.check("SET after 1", "+QUEUED");
    runner.request(&["EXEC"]);
    wait_for_busy(&mut c, "k");
    c.check("SCRIPT KILL", "+OK");
    let replies = runner.reply();
    let replies: Vec<String> = replies.items().iter().map(ToString::to_string).collect();
    assert!(replies[1].contains("killed by user"), "{replies:?}");
    assert_eq!((&*replies[0], &*replies[2]), ("+OK", "+OK"));
    c.check("MGET before k after", "[\"1\", nil, \"1\"]");
}

#[test]
fn the_server_ends_though_a_script_does_not() {
    for end in ["SHUTDOWN NOSAVE", "SIGTERM"] {
        let (mut server, mut c, _runner) = endless(ENDLESS_ALONE, "held");
        wait_for_busy(&mut c, "held");
        if end == "SIGTERM" {
            server.signal(rustix::process::Signal::TERM);
        } else {
            c.check("SHUTDOWN SAVE", BUSY);
            c.request(&["SHUTDOWN", "NOSAVE"]);
        }
        assert!(server.wait_for_end().success(), "{end}");
    }
}

/// Ending only the script would leave the rest of its transaction.
#[test]
fn the_server_ends_after_a_transaction_with_a_long_script_has() {
    let dir = TempDir::new();
    let launch = launch().with("threads", "1").with("busy-reply-threshold", "20");
    let launch = launch.with("appendonly", "yes").with("dir", &dir.path().display().to_string());
    let log = dir.path().join("log.txt");
    let launch = launch.with("logfile", &log.display().to_string());
    let mut server = launch.start();
    let (mut c, mut runner) = (server.connect(), server.connect());
    let script = "repeat local info = redis.call('info', 'clients') \
                  until info:find('connected_clients:1\\r', 1, true) return redis.call('incr', KEYS[1])";
    runner.check("MULTI", "+OK");
    runner.check("INCR before", "+QUEUED");
    assert_eq!(runner.call(&["EVAL", script, "1", "k"]).to_string(), "+QUEUED");
    assert_eq!(runner.call(&["EVAL", script, "1", "k"]).to_string(), "+QUEUED");
    runner.check("INCR after", "+QUEUED");
    runner.request(&["EXEC"]);
    wait_for_busy(&mut c, "k");
    server.signal(rustix::process::Signal::TERM);
    wait_until("the server ends", || {
        std::fs::read_to_string(&log).expect("text").contains("A signal asks for shutdown")
    });
    drop(c);
    runner.expect("[:1, :1, :2, :1]");
    assert!(server.wait_for_end().success());
    let server = launch.start();
    server.connect().check("MGET before k after", r#"["1", "2", "1"]"#);
}

#[test]
fn a_client_that_goes_leaves_its_script_to_be_killed() {
    let (_server, mut c, runner) = endless(ENDLESS_ALONE, "held");
    wait_for_busy(&mut c, "held");
    drop(runner);
    c.check("SCRIPT KILL", "+OK");
    wait_until("it has ended", || c.ask("GET held").to_string() == "nil");
}

#[test]
fn a_long_script_ends_as_it_would_have_on_a_worker() {
    let server = launch().with("threads", "1").start();
    let mut c = server.connect();
    let script =
        "local n = 0 for i = 1, tonumber(ARGV[1]) do n = redis.call('incr', KEYS[1]) end return n";
    for round in 1..=3 {
        let reply = c.call(&["EVAL", script, "1", "n", "20000"]).int();
        assert_eq!(reply, round * 20_000);
    }
    assert_eq!(c.call(&["EVAL", script, "1", "n", "1"]).int(), 60_001);
    // A pipeline keeps its order.
    let calls = ["20000", "1", "20000", "1"].map(|n| encode(&["EVAL", script, "1", "m", n]));
    c.send(calls.concat());
    ["20000", "20001", "40001", "40002"].iter().for_each(|n| c.expect(&format!(":{n}")));
}

#[test]
fn what_a_script_has_done_before_a_pause_is_done_after_it() {
    let server = launch().with("threads", "1").with("busy-reply-threshold", "20").start();
    let (mut c, mut runner) = (server.connect(), server.connect());
    runner.send(encode(&["EVAL", &waits_for("clients", "maxclients:9000"), "1", "k"]));
    wait_for_busy(&mut c, "k");
    c.check("CLIENT PAUSE 1000000 WRITE", "+OK");
    c.check("CONFIG SET maxclients 9000", "+OK");
    wait_until("it has ended", || c.ask("GET k").to_string() != BUSY);
    c.check("GET k", "nil");
    c.check("CLIENT UNPAUSE", "+OK");
    runner.expect("+OK");
}

#[test]
fn what_a_script_has_done_is_undone_when_the_server_has_become_a_replica() {
    let server = launch().with("threads", "1").with("busy-reply-threshold", "20").start();
    let (mut c, mut runner) = (server.connect(), server.connect());
    let script =
        format!("redis.call('set', KEYS[1], 1) {}", waits_for("replication", "role:slave"));
    runner.send(encode(&["EVAL", &script, "1", "k"]));
    wait_for_busy(&mut c, "k");
    c.check("REPLICAOF 127.0.0.1 1", "+OK");
    let reply = runner.reply().to_string();
    assert!(reply.starts_with("-READONLY"), "{reply}");
    c.check("REPLICAOF NO ONE", "+OK");
    c.check("GET k", "nil");
}

/// Returns the numbers of calls, of refused and failed calls, and of calls in the histogram of a command; errors of a
/// kind.
#[track_caller]
fn counted(c: &mut Connection, command: &str) -> [i64; 4] {
    let stats = c.ask("INFO commandstats").text().to_owned();
    let prefix = format!("cmdstat_{command}:");
    let line = stats.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_default();
    let figure = |name: &str| {
        let of = |field: &str| field.split_once('=').filter(|(is, _)| *is == name)?.1.parse().ok();
        line.split(',').find_map(of).unwrap_or(0)
    };
    let [calls, refused, failed] = ["calls", "rejected_calls", "failed_calls"].map(figure);
    let histogram = c.call(&["LATENCY", "HISTOGRAM", command]).to_string();
    let in_histogram = histogram.split_once("\"calls\", :").map_or("0", |(_, rest)| rest);
    let in_histogram = in_histogram.split(|it: char| !it.is_ascii_digit()).next();
    [calls, refused, failed, in_histogram.and_then(|it| it.parse().ok()).unwrap_or(0)]
}

/// As in Redis, which never starts a script again.
#[test]
fn calls_of_a_script_that_begins_again_count_once() {
    // Errors that it catches, then a call that makes it start again, or be killed.
    let head = "for i = 1, 3 do
        redis.call('get', KEYS[1])
        redis.pcall('hget', KEYS[1], 'x')
        redis.pcall('set', KEYS[1], 'x')
        redis.pcall('get', 'other')
        redis.pcall('nosuch')
    end ";
    let server = server();
    let (mut admin, mut c) = (server.connect(), server.connect());
    admin.check("ACL SETUSER ann on >secret +@all -set ~k*", "+OK");
    admin.check("CONFIG SET busy-reply-threshold 500", "+OK");
    c.check("AUTH ann secret", "+OK");
    for (tail, incr) in [
        ("", 0),
        ("for i = 1, 20 do redis.call('incr', 'k' .. i) end", 20),
        ("for i = 1, 20000 do redis.call('incr', KEYS[2]) end", 20_000),
        ("for i = 1, 5 do redis.call('incr', 'k' .. i) end while true do end", 5),
        ("for i = 1, 5 do redis.call('incrby', 'k' .. i, 0) end error('it fails')", 0),
    ] {
        let is_endless = tail.contains("while");
        admin.check("SET kept text", "+OK");
        admin.check("CONFIG RESETSTAT", "+OK");
        admin.check("ACL LOG RESET", "+OK");
        let script = match is_endless {
            // Redis does not kill a script that has written.
            true => format!("{head}{}", tail.replace("incr", "exists")),
            false => format!("{head}{tail}"),
        };
        c.request(&["EVAL", &script, "2", "kept", "kn"]);
        if is_endless {
            wait_until("its calls are made", || admin.ask("TYPE kept").to_string() == BUSY);
            admin.check("SCRIPT KILL", "+OK");
        }
        let reply = c.reply();
        let is_error = is_endless || tail.contains("fails");
        assert_eq!(reply.to_string().starts_with('-'), is_error, "{reply}");
        assert_eq!(counted(&mut admin, "get"), [3, 3, 0, 3], "{tail}");
        assert_eq!(counted(&mut admin, "hget"), [3, 0, 3, 3], "{tail}");
        assert_eq!(counted(&mut admin, "set"), [0, 3, 0, 0], "{tail}");
        let of = if is_endless { "exists" } else { "incr" };
        assert_eq!(counted(&mut admin, of), [incr, 0, 0, incr], "{tail}");
        assert_eq!(counted(&mut admin, "eval")[0], 1, "{tail}");
        let errors = admin.ask("INFO errorstats").text().to_owned();
        let count = |kind: &str| {
            let prefix = format!("errorstat_{kind}:count=");
            let count = errors.lines().find_map(|line| line.strip_prefix(&prefix)?.parse().ok());
            count.unwrap_or(0)
        };
        // Redis 7.0 counts denials as the former.
        let others = count("ERR") + count("NOPERM");
        assert_eq!((count("WRONGTYPE"), others), (3, 9 + i32::from(is_error)), "{tail}: {errors}");
        let log = admin.ask("ACL LOG");
        let counts: Vec<_> = log.items().iter().map(|entry| entry.items()[1].int()).collect();
        assert_eq!(counts, [3, 3], "{tail}: {log}");
    }
}

/// It waits for shards outside of the worker. It used to read the clock before that wait.
#[test]
fn deadlines_count_from_when_a_script_that_waited_runs() {
    let (server, mut c, mut runner) = endless(ENDLESS_ALONE, "held");
    wait_for_busy(&mut c, "held");
    c.check("CONFIG SET busy-reply-threshold 60000", "+OK");
    let mut waiting = server.connect();
    let script = "redis.call('set', 'new', 'x', 'px', 100000) return 1";
    waiting.send(encode(&["EVAL", script, "0"]));
    wait_until("both were begun", || {
        c.ask("CLIENT LIST").text().matches(" cmd=eval ").count() == 2
    });
    let before_ms = SystemTime::now().duration_since(UNIX_EPOCH).expect("later").as_millis();
    c.check("SCRIPT KILL", "+OK");
    assert!(runner.reply().to_string().contains("Script killed by user"));
    assert_eq!(waiting.reply().to_string(), ":1");
    let deadline_ms = c.ask("PEXPIRETIME new").int();
    assert!(deadline_ms as u128 >= before_ms + 100_000, "{deadline_ms} for {before_ms}");
}

/// PUBLISH waits for the end of a pause, and so does a script that only publishes.
#[test]
fn a_script_that_only_publishes_waits_for_the_end_of_a_pause() {
    let server = launch().with("threads", "1").with("busy-reply-threshold", "20").start();
    let (mut c, mut runner) = (server.connect_resp3(), server.connect());
    c.ask("SUBSCRIBE news");
    // One runs when the pause begins, others start during it: as a command, in EXEC, with and without a key.
    let begun = waits_for("clients", "maxclients:9000")
        .replace("'set', KEYS[1], 2", "'publish', 'news', 'begun'");
    runner.send(encode(&["EVAL", &begun, "1", "k"]));
    wait_for_busy(&mut c, "k");
    let publish = "return redis.call('publish', 'news', 'later')";
    let mut paused: Vec<_> = (0..3).map(|_| server.connect()).collect();
    paused[2].check("MULTI", "+OK");
    assert_eq!(paused[2].call(&["EVAL", publish, "1", "other"]).text(), "QUEUED");
    c.check("CLIENT PAUSE 1000000 WRITE", "+OK");
    paused[0].request(&["PUBLISH", "news", "later"]);
    paused[1].request(&["EVAL", publish, "0"]);
    paused[2].request(&["EXEC"]);
    c.check("CONFIG SET maxclients 9000", "+OK");
    wait_until("all wait", || {
        c.ask("INFO clients").text().contains("\r\nblocked_clients:3\r\n")
            && c.ask("GET k").to_string() != BUSY
    });
    // On the only worker, so that a message would come before the reply.
    c.check("PING", "+PONG");
    // It starts again, and the others wait for its thread.
    c.check("CONFIG SET busy-reply-threshold 100000000", "+OK");
    c.check("CLIENT UNPAUSE", "+OK");
    runner.expect(":1");
    paused[0].expect(":1");
    paused[1].expect(":1");
    paused[2].expect("[:1]");
    let mut told: Vec<String> = (0..4).map(|_| c.reply().items()[2].text().to_owned()).collect();
    told.sort();
    assert_eq!(told, ["begun", "later", "later", "later"]);
}

/// The shard that it holds has a key that is due.
#[test]
fn keys_expire_while_an_endless_script_holds_others() {
    let server = launch().with("threads", "1").with("busy-reply-threshold", "50").start();
    let (mut c, mut listener) = (server.connect(), server.connect());
    c.check("CONFIG SET notify-keyspace-events Ex", "+OK");
    listener.ask("PSUBSCRIBE __keyevent*:expired");
    c.check("SET held x PX 300", "+OK");
    let script = "redis.call('get', KEYS[1]) while true do end";
    let mut runner = begin(server.connect(), script, "held");
    wait_for_busy(&mut c, "held");
    // Some of these are in another shard, and due after the first one.
    for n in 0..4 {
        c.send(encode(&["SET", &format!("other{n}"), "x", "PX", "400"]));
    }
    let told = || listener.reply().items()[3].text().to_owned();
    assert!(std::iter::repeat_with(told).take(2).any(|key| key.starts_with("other")));
    c.request(&["SCRIPT", "KILL"]);
    assert!(runner.reply().to_string().contains("Script killed by user"));
}

#[test]
fn a_save_that_is_due_keeps_nobody_waiting_while_a_script_runs_without_end() {
    let launch = launch().with("threads", "1").with("busy-reply-threshold", "50");
    let server = launch.with("save", "1 1").start();
    let (mut c, runner) = (server.connect(), server.connect());
    let _runner = begin(runner, "redis.call('get', KEYS[1]) while true do end", "held");
    wait_for_busy(&mut c, "held");
    let free = free_key(&mut c);
    c.check(&format!("SET {free} 1"), "+OK");
    let shown = |c: &mut Connection, field: &str| {
        let info = c.ask("INFO server persistence").text().to_owned();
        let line = info.lines().find_map(|line| line.strip_prefix(field)).map(str::to_owned);
        line.expect("a line of INFO").parse::<u64>().expect("a number")
    };
    let begun = shown(&mut c, "uptime_in_seconds:");
    wait_until("it is due", || shown(&mut c, "uptime_in_seconds:") > begun + 2);
    assert!(shown(&mut c, "rdb_changes_since_last_save:") > 0);
    // Others that need many shards, or all, get their turn as well.
    c.check("CONFIG SET appendonly no", "+OK");
    c.check(&format!("EVAL 'return redis.call(\"incr\", KEYS[1])' 1 {free}"), ":2");
    c.check("SCRIPT KILL", "+OK");
    wait_until("it is saved", || shown(&mut c, "rdb_changes_since_last_save:") == 0);
}

/// Returns a script that waits until INFO shows something, and then writes.
fn waits_for(section: &str, shown: &str) -> String {
    format!(
        "repeat local info = redis.call('info', '{section}') until info:find('{shown}') \
         return redis.call('set', KEYS[1], 2)"
    )
}

/// The whole transaction was checked at once, so the commands before the script stay.
#[test]
fn a_transaction_goes_on_as_it_was_judged_whatever_changes_while_its_script_runs() {
    for (section, shown, change, restore) in [
        ("replication", "role:slave", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
        ("replication", "min_slaves_good_slaves", "CONFIG SET min-replicas-to-write 1", "PING"),
        ("clients", "maxclients:9000", "ACL SETUSER writer -@write", "PING"),
    ] {
        let server = launch().with("threads", "2").with("busy-reply-threshold", "20").start();
        let (mut c, mut runner) = (server.connect(), server.connect());
        c.check("ACL SETUSER writer on nopass ~* &* +@all", "+OK");
        runner.check("AUTH writer x", "+OK");
        runner.check("MULTI", "+OK");
        runner.check("SET a 1", "+QUEUED");
        runner.call(&["EVAL", &waits_for(section, shown), "1", "b"]);
        runner.check("PUBLISH channel message", "+QUEUED");
        runner.check("SET c 1", "+QUEUED");
        runner.request(&["EXEC"]);
        wait_for_busy(&mut c, "b");
        c.send(encode(&change.split(' ').collect::<Vec<_>>()));
        let mut other = server.connect();
        other.check("CONFIG SET maxclients 9000", "+OK");
        runner.expect("[+OK, +OK, :0, +OK]");
        c.expect("+OK");
        let written = runner.ask("SET a 2").to_string();
        assert!(written.starts_with('-'), "{change}: {written}");
        c.ask(restore);
        c.check("MGET a b c", "[\"1\", \"2\", \"1\"]");
    }
}

/// A transaction cannot roll back its writes before a script, so its end is waited for. The time of a pause counts
/// from its reply, and writes are deferred before that.
#[test]
fn replies_to_a_pause_and_replicaof_wait_for_a_transaction_with_a_script_unless_these_are_ended() {
    let server = launch().with("threads", "2").with("busy-reply-threshold", "20").start();
    let (mut c, mut other) = (server.connect(), server.connect());
    let mut runner = server.connect();
    runner.check("MULTI", "+OK");
    runner.check("INCR a", "+QUEUED");
    runner.call(&["EVAL", &waits_for("clients", "maxclients:9000"), "1", "b"]);
    runner.request(&["EXEC"]);
    wait_for_busy(&mut other, "b");
    let mut wait_for = |section: &str, shown: &str, is_shown| {
        let info = format!("INFO {section}");
        wait_until(shown, || other.ask(&info).text().contains(shown) == is_shown);
    };
    let pause = ["CLIENT", "PAUSE", "50", "WRITE"];
    c.request(&pause);
    wait_for("clients", "paused_actions:write", true);
    assert!(c.is_silent_for(Duration::from_millis(100)), "its time is over");
    server.connect().check("CLIENT UNPAUSE", "+OK");
    assert!(c.reply().to_string().starts_with("-TRYAGAIN the pause was ended"));
    wait_for("clients", "paused_actions:write", false);
    c.request(&["REPLICAOF", "127.0.0.1", "1"]);
    wait_for("replication", "role:slave", true);
    assert!(c.is_silent_for(Duration::from_millis(20)));
    server.connect().check("REPLICAOF NO ONE", "+OK");
    c.expect("+OK");
    c.request(&["CLIENT", "PAUSE", "100000", "WRITE"]);
    wait_for("clients", "paused_actions:write", true);
    server.connect().check("CONFIG SET maxclients 9000", "+OK");
    c.expect("+OK");
    runner.expect("[:1, +OK]");
    wait_for("clients", "paused_actions:write", true);
    c.check("MGET a b", "[\"1\", \"2\"]");
}

/// As in Redis.
#[test]
fn a_transaction_may_change_what_its_scripts_are_judged_by() {
    let server = server();
    let mut c = server.connect();
    let set = "EVAL 'return redis.call(\"set\", KEYS[1], ARGV[1])' 1 k";
    let read_only = "-READONLY You can't write against a read only replica.";
    for (before, change, reply) in [
        ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0", "+OK"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "+OK"),
        ("PING", "REPLICAOF 127.0.0.1 1", read_only),
    ] {
        c.ask(before);
        for line in ["MULTI", change, set, "EXEC"].map(|line| line.replace("ARGV[1]", "1")) {
            let replies = c.ask(&line);
            if line == "EXEC" {
                let replies: Vec<String> =
                    replies.items().iter().map(ToString::to_string).collect();
                assert!(
                    replies[0] == "+OK" && replies[1].starts_with(reply),
                    "{change}: {replies:?}"
                );
            }
        }
    }
}
