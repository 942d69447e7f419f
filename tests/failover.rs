//! FAILOVER: a primary hands over to a replica while clients write. Also SHUTDOWN, which waits for replicas.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use tierce_harness::{Connection, Launch, PATIENCE, Reply, Server, encode, free_port, wait_until};

use crate::launch;
use crate::pedrokv::{PUT, request};
use crate::replication::assert_same;
use crate::replication::fake_primary::Primary;
use crate::replication::fake_replica::{Replica, copy, line};
use crate::replication::replica::wait_for_log;

const READ_ONLY: &str = "-READONLY You can't write against a read only replica.";

/// A server, and the ports of its other protocols.
struct Node {
    server: Server,
    memcached: u16,
    pedrokv: u16,
}

impl Node {
    fn start(launch: Launch) -> Self {
        let (memcached, pedrokv) = (free_port(), free_port());
        let server = launch
            .with("repl-diskless-sync-delay", "0")
            .with("memcached-port", &memcached.to_string())
            .with("pedrokv-port", &pedrokv.to_string())
            .start();
        Self { server, memcached, pedrokv }
    }
}

/// Returns a line of INFO; empty if there is none.
pub(crate) fn info(c: &mut Connection, name: &str) -> String {
    let text = c.ask("INFO everything").text().to_owned();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_default().to_owned()
}

/// Makes a server the replica of another one, and waits until it has its copy.
pub(crate) fn follow(replica: &Server, primary: &Server) {
    let mut c = replica.connect();
    c.check(&format!("REPLICAOF 127.0.0.1 {}", primary.port()), "+OK");
    wait_until("the link is up", || info(&mut c, "master_link_status") == "up");
    let online = format!("port={},state=online", replica.port());
    let mut c = primary.connect();
    wait_until("it is online", || c.ask("INFO replication").text().contains(&online));
}

fn state(c: &mut Connection) -> String {
    info(c, "master_failover_state")
}

pub(crate) fn wait_for_state(c: &mut Connection, expected: &str) {
    wait_until(expected, || state(c) == expected);
}

/// Increments a counter in a key by one kind of write until that is refused. Returns the last value.
type Writer = fn(&Node, key: &str) -> u64;

/// Counts over RESP. `write` returns the reply that shows if a write is acknowledged.
fn count(node: &Node, mut write: impl FnMut(&mut Connection) -> Reply) -> u64 {
    let mut c = node.server.connect();
    for done in 0.. {
        let reply = write(&mut c).to_string();
        if reply.contains("READONLY") {
            return done;
        }
        assert!(!reply.starts_with('-'), "{reply}");
    }
    unreachable!()
}

fn by_commands(node: &Node, key: &str) -> u64 {
    count(node, |c| c.ask(&format!("INCR {key}")))
}

fn by_transactions(node: &Node, key: &str) -> u64 {
    count(node, |c| {
        // A transaction with a refused command is discarded.
        c.check("MULTI", "+OK");
        let queued = c.ask(&format!("INCR {key}"));
        if queued.to_string() != "+QUEUED" {
            c.check("DISCARD", "+OK");
            return queued;
        }
        c.ask("EXEC")
    })
}

fn by_scripts(node: &Node, key: &str) -> u64 {
    const SCRIPT: &str = "local n for i = 1, 50 do n = redis.call('INCR', KEYS[1]) end return n";
    50 * count(node, |c| c.call(&["EVAL", SCRIPT, "1", key]))
}

fn by_pipelines(node: &Node, key: &str) -> u64 {
    let mut c = node.server.connect();
    let mut done = 0;
    loop {
        c.send(encode(&["INCR", key]).repeat(50));
        let replies: Vec<_> = (0..50).map(|_| c.reply().to_string()).collect();
        done += replies.iter().filter(|reply| reply.starts_with(':')).count() as u64;
        if replies.iter().any(|reply| reply.contains("READONLY")) {
            return done;
        }
    }
}

fn other_port(port: u16) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a listener");
    stream.set_nodelay(true).expect("a socket option");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
    stream
}

fn by_memcached(node: &Node, key: &str) -> u64 {
    let mut stream = other_port(node.memcached);
    for done in 0.. {
        let number = (done + 1).to_string();
        let set = format!("set {key} 0 0 {}\r\n{number}\r\n", number.len());
        stream.write_all(set.as_bytes()).expect("it takes the bytes");
        let mut reply = Vec::new();
        while !reply.ends_with(b"\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a reply");
            reply.extend(byte);
        }
        if reply != b"STORED\r\n" {
            assert!(reply.starts_with(b"SERVER_ERROR"), "{}", reply.escape_ascii());
            return done;
        }
    }
    unreachable!()
}

fn by_pedrokv(node: &Node, key: &str) -> u64 {
    let mut stream = other_port(node.pedrokv);
    for done in 0.. {
        let number = (done + 1).to_string();
        let put = request(PUT, 1, key.as_bytes(), number.as_bytes());
        stream.write_all(&put).expect("it takes the bytes");
        let mut head = [0; 7];
        stream.read_exact(&mut head).expect("a reply");
        let len = usize::from(u16::from_be_bytes([head[0], head[1]]));
        stream.read_exact(&mut vec![0; len - 7]).expect("the rest");
        if head[2] != 0 {
            return done;
        }
    }
    unreachable!()
}

const WRITERS: &[(&str, Writer)] = &[
    ("commands", by_commands),
    ("transactions", by_transactions),
    ("scripts", by_scripts),
    ("pipelines", by_pipelines),
    ("memcached", by_memcached),
    ("pedrokv", by_pedrokv),
];

/// Writes by all kinds until a handover has made the server a replica. Returns the value of each kind.
fn write_through_failover(node: &Node, to: &Node, round: usize) -> Vec<(String, u64)> {
    let mut c = node.server.connect();
    thread::scope(|scope| {
        let writers: Vec<_> = WRITERS
            .iter()
            .map(|(name, writer)| {
                let key = format!("{name}:{round}");
                scope.spawn(move || (key.clone(), writer(node, &key)))
            })
            .collect();
        for (name, _) in WRITERS {
            let key = format!("EXISTS {name}:{round}");
            wait_until("all write", || c.ask(&key).int() == 1);
        }
        c.check(&format!("FAILOVER TO 127.0.0.1 {}", to.server.port()), "+OK");
        writers.into_iter().map(|writer| writer.join().expect("it counts")).collect()
    })
}

#[test]
fn a_failover_loses_no_acknowledged_write() {
    for appendonly in ["yes", "no"] {
        let start = || Node::start(launch().with("appendonly", appendonly).with("io-threads", "4"));
        let (mut from, mut to) = (start(), start());
        follow(&to.server, &from.server);
        let mut acknowledged = Vec::new();
        for round in 0..4 {
            acknowledged.extend(write_through_failover(&from, &to, round));
            std::mem::swap(&mut from, &mut to);
            let mut c = from.server.connect();
            assert_eq!(info(&mut c, "role"), "master");
            for (key, count) in &acknowledged {
                let value = c.ask(&format!("GET {key}")).to_string();
                assert_eq!(value, format!("{:?}", count.to_string()), "{key} in round {round}");
            }
            // The next change of the round reaches the server that has handed over.
            c.check(&format!("SET round {round}"), "+OK");
            wait_until("it has everything", || c.ask("WAIT 1 100").int() == 1);
            assert_same(&mut c, &mut to.server.connect());
        }
        for node in [&from, &to] {
            let log = node.server.output() + &node.server.errors();
            let copies = log.matches("Full copy from").count();
            assert!(copies <= 1, "only the first one: {log}");
            assert!(log.contains("The stream goes on"), "{log}");
        }
    }
}

/// Increments a counter at a level of durability until a write is not acknowledged. Returns the last value.
fn count_at_level(server: &Server, level: &str, key: &str) -> i64 {
    let mut c = server.connect();
    c.check(&format!("CLIENT DURABILITY {level}"), "+OK");
    for done in 0.. {
        let reply = c.ask(&format!("INCR {key}")).to_string();
        if reply.contains("READONLY") || reply.contains("UNCONFIRMED") {
            return done;
        }
        assert_eq!(reply, format!(":{}", done + 1));
    }
    unreachable!()
}

#[test]
fn a_write_that_replicas_have_confirmed_outlasts_a_failover() {
    const LEVELS: &[&str] =
        &["replicas:1", "always replicas:1", "replicas-logged:1", "no replicas-logged:1"];
    let start = || Node::start(launch().with("appendonly", "yes").with("io-threads", "4")).server;
    let (mut from, mut to) = (start(), start());
    follow(&to, &from);
    for round in 0..4 {
        let key = |at: usize| format!("{round}:{at}");
        let mut c = from.connect();
        let acknowledged: Vec<_> = thread::scope(|scope| {
            let from = &from;
            let count = |at| move || count_at_level(from, LEVELS[at], &key(at));
            let writers: Vec<_> = (0..LEVELS.len()).map(|at| scope.spawn(count(at))).collect();
            for at in 0..LEVELS.len() {
                wait_until("all write", || c.ask(&format!("EXISTS {}", key(at))).int() == 1);
            }
            c.check("FAILOVER", "+OK");
            writers.into_iter().map(|writer| writer.join().expect("it counts")).collect()
        });
        std::mem::swap(&mut from, &mut to);
        let mut c = from.connect();
        wait_until("it is the primary", || info(&mut c, "role") == "master");
        for (at, acknowledged) in acknowledged.into_iter().enumerate() {
            let value: i64 = c.ask(&format!("GET {}", key(at))).text().parse().expect("a number");
            // The last write may be there although it was not acknowledged.
            assert!((acknowledged..=acknowledged + 1).contains(&value), "{value} {acknowledged}");
        }
        wait_until("the other one follows", || c.ask("WAIT 1 100").int() == 1);
        assert_same(&mut c, &mut to.connect());
    }
}

#[test]
fn expired_keys_and_blocked_clients_outlast_a_failover() {
    let (from, to) = (Node::start(launch()).server, Node::start(launch()).server);
    follow(&to, &from);
    let mut c = from.connect();
    for number in 0..500 {
        c.check(&format!("SET short:{number} v PX {}", 1 + number % 40), "+OK");
    }
    let mut waiting = from.connect();
    waiting.send("BLPOP l 0\r\n");
    wait_until("it waits", || info(&mut c, "blocked_clients") == "1");
    c.check("FAILOVER", "+OK");
    waiting.expect(
        "-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
    );
    waiting.expect_closed();
    wait_for_state(&mut c, "no-failover");
    assert_eq!(info(&mut c, "role"), "slave");
    assert_eq!(info(&mut c, "master_port"), to.port().to_string());
    let mut other = to.connect();
    wait_until("they expire", || other.ask("DBSIZE").int() == 0);
    other.check("RPUSH l a", ":1");
    wait_until("it follows", || c.ask("LRANGE l 0 -1").to_string() == r#"["a"]"#);
    wait_until("they are removed", || c.ask("DBSIZE").int() == 1);
}

#[test]
fn a_long_script_is_done_or_comes_to_nothing() {
    const SCRIPT: &str = "for i = 1, 30000 do redis.call('INCR', KEYS[1]) end \
                          return redis.call('GET', KEYS[1])";
    const DONE: &str = r#""30000""#;
    let from = Node::start(launch().with("busy-reply-threshold", "1")).server;
    let to = Node::start(launch()).server;
    follow(&to, &from);
    let (mut c, mut runs) = (from.connect(), from.connect());
    runs.request(&["EVAL", SCRIPT, "1", "n"]);
    wait_until("it runs", || {
        let reply = c.ask("GET n").to_string();
        if reply == DONE {
            // The script had ended before it was seen running.
            runs.expect(DONE);
            c.check("DEL n", ":1");
            runs.request(&["EVAL", SCRIPT, "1", "n"]);
        }
        reply.starts_with("-BUSY")
    });
    c.check("FAILOVER", "+OK");
    let reply = runs.reply().to_string();
    let value = match &*reply {
        DONE => DONE,
        refused => {
            assert!(refused.contains("READONLY"), "{refused}");
            "nil"
        }
    };
    wait_for_state(&mut c, "no-failover");
    assert_eq!(info(&mut c, "role"), "slave");
    to.connect().check("GET n", value);
    wait_until("both are the same", || c.ask("GET n").to_string() == value);
}

#[test]
fn a_failover_that_waits_can_be_aborted_and_may_time_out() {
    let server = Node::start(launch()).server;
    let mut c = server.connect();
    // It never acknowledges this offset.
    let replica = Replica::new(&server);
    c.check("SET a 0", "+OK");
    let mut writes = server.connect();
    for ends in ["FAILOVER ABORT", "TIMEOUT"] {
        match ends {
            "TIMEOUT" => c.check("FAILOVER TO 127.0.0.1 6380 TIMEOUT 100", "+OK"),
            _ => c.check("FAILOVER", "+OK"),
        }
        writes.send("SET a 1\r\n");
        if ends != "TIMEOUT" {
            assert_eq!(state(&mut c), "waiting-for-sync");
            assert!(writes.is_silent_for(Duration::from_millis(20)));
            c.check("FAILOVER", "-ERR FAILOVER already in progress.");
            c.check("REPLICAOF 127.0.0.1 1", "-ERR REPLICAOF not allowed while failing over.");
            c.check("REPLICAOF NO ONE", "-ERR REPLICAOF not allowed while failing over.");
            let mut other = server.connect();
            other.check("REPLCONF capa eof", "+OK");
            other.check("PSYNC ? -1", "-NOMASTERLINK Can't SYNC while failing over");
            let mut publishes = server.connect();
            publishes.send("PUBLISH news x\r\n");
            assert!(publishes.is_silent_for(Duration::from_millis(20)));
            c.check(ends, "+OK");
            publishes.expect(":0");
        }
        writes.expect("+OK");
        assert_eq!(state(&mut c), "no-failover");
        assert_eq!(info(&mut c, "role"), "master");
    }
    c.check("SET short v PX 1", "+OK");
    wait_until("keys expire again", || c.ask("DBSIZE").int() == 1);
    c.check("FAILOVER ABORT", "-ERR No failover in progress.");
    drop(replica);
}

#[test]
fn a_reader_that_does_not_listen_is_not_handed_over_to() {
    let server = Node::start(launch()).server;
    let mut c = server.connect();
    let mut reader = Replica::listening(&server, 0);
    c.check("FAILOVER", "-ERR FAILOVER requires connected replicas.");
    // Unlike the reader, it never acknowledges all of the stream.
    let _replica = Replica::new(&server);
    c.check("SET a 1", "+OK");
    c.check("FAILOVER TO 127.0.0.1 0", "-ERR FAILOVER target HOST and PORT is not a replica.");
    c.check("FAILOVER TIMEOUT 300", "+OK");
    reader.commands_until("REPLCONF GETACK *");
    reader.acknowledge();
    wait_for_log(&server, "no replica had everything in time");
    assert_eq!((state(&mut c), info(&mut c, "role")), ("no-failover".into(), "master".into()));
}

#[test]
fn the_target_may_be_named_in_another_case() {
    let from = Node::start(launch()).server;
    let to = Node::start(launch().with("replica-announce-ip", "LocalHost")).server;
    follow(&to, &from);
    let mut c = from.connect();
    c.check(&format!("FAILOVER TO LOCALhost {}", to.port()), "+OK");
    wait_for_state(&mut c, "no-failover");
    assert_eq!(info(&mut c, "role"), "slave");
    to.connect().check("SET a 1", "+OK");
}

#[test]
fn replicas_hear_of_a_primary_that_waits_for_one_of_them() {
    let launch = launch().with("repl-ping-replica-period", "1").with("repl-timeout", "4");
    let server = Node::start(launch).server;
    let mut c = server.connect();
    let mut replica = Replica::new(&server);
    c.check("SET a 1", "+OK");
    c.check("FAILOVER", "+OK");
    replica.commands_until("REPLCONF GETACK *");
    replica.commands_until("PING");
    c.check("FAILOVER ABORT", "+OK");
}

#[test]
fn misused_failover_is_an_error() {
    let server = Node::start(launch()).server;
    let mut c = server.connect();
    c.check("FAILOVER", "-ERR FAILOVER requires connected replicas.");
    let mut waits = server.connect();
    // It has no copy, and never acknowledges one.
    waits.check("REPLCONF listening-port 6390 capa eof", "+OK");
    waits.send("PSYNC ? -1\r\n");
    line(&mut waits);
    copy(&mut waits);
    let replica = Replica::new(&server);
    // As redis-server 7.0.15 replies.
    for (options, error) in [
        ("TO a", "syntax error"),
        ("TO a b", "value is not an integer or out of range"),
        ("TIMEOUT 0", "FAILOVER timeout must be greater than 0"),
        ("TIMEOUT -1", "FAILOVER timeout must be greater than 0"),
        ("TIMEOUT x", "value is not an integer or out of range"),
        ("TIMEOUT 5 TIMEOUT 5", "syntax error"),
        ("ABORT ABORT", "syntax error"),
        ("ABORT TIMEOUT 5", "syntax error"),
        ("FORCE FORCE", "syntax error"),
        ("FORCE", "FAILOVER with force option requires both a timeout and target HOST and IP."),
        (
            "TO a 1 FORCE",
            "FAILOVER with force option requires both a timeout and target HOST and IP.",
        ),
        ("TO a 1", "FAILOVER target HOST and PORT is not a replica."),
        ("TO localhost 6380", "FAILOVER target HOST and PORT is not a replica."),
        ("TO 127.0.0.1 99999999999", "FAILOVER target HOST and PORT is not a replica."),
        ("TO 127.0.0.1 6390", "FAILOVER target replica is not online."),
        ("ABORT", "No failover in progress."),
    ] {
        c.check(&format!("FAILOVER {options}"), &format!("-ERR {error}"));
    }
    c.check("PSYNC a", "-ERR wrong number of arguments for 'psync' command");
    c.check("PSYNC a 1 FAILOVER", "-ERR PSYNC FAILOVER can't be sent to a master.");
    drop(replica);
    let other = Node::start(launch()).server;
    follow(&other, &server);
    let mut r = other.connect();
    r.check("FAILOVER", "-ERR FAILOVER is not valid when server is a replica.");
    r.check("PSYNC a 1 FAILOVER", "-ERR PSYNC FAILOVER replid must match my replid.");
}

/// A simulated replica has everything, listens on its port, and is asked to take over.
fn hand_over(server: &Server, target: &Primary) {
    let mut replica = Replica::listening(server, target.port());
    let mut c = server.connect();
    c.check("SET a 1", "+OK");
    replica.commands_until("SET a 1");
    c.check("FAILOVER", "+OK");
    replica.commands_until("REPLCONF GETACK *");
    replica.acknowledge();
    wait_for_state(&mut c, "failover-in-progress");
    assert_eq!(info(&mut c, "role"), "slave");
}

#[test]
fn a_target_that_refuses_leaves_everything_as_it_was() {
    let (server, target) = (Node::start(launch()).server, Primary::new());
    let (mut c, mut writes) = (server.connect(), server.connect());
    hand_over(&server, &target);
    let (mut link, psync) = target.accept_until_psync();
    assert!(psync.ends_with(" FAILOVER"), "{psync}");
    writes.send("INCR a\r\n");
    assert!(writes.is_silent_for(Duration::from_millis(150)), "it waits for the target");
    c.check("GET a", r#""1""#);
    link.send("-ERR PSYNC FAILOVER replid must match my replid.\r\n");
    writes.expect(":2");
    assert_eq!((state(&mut c), info(&mut c, "role")), ("no-failover".into(), "master".into()));
    wait_for_log(&server, "the replica refuses");
}

#[test]
fn no_client_waits_for_replicas_while_the_target_is_to_take_over() {
    let (server, target) = (Node::start(launch()).server, Primary::new());
    let mut c = server.connect();
    hand_over(&server, &target);
    let wait = c.ask("WAIT 2 0").to_string();
    assert!(wait.starts_with("-ERR WAIT cannot be used with replica instances"), "{wait}");
    c.check("WAITAOF 0 2 0", "-ERR WAITAOF cannot be used with replica instances");
    assert_eq!(state(&mut c), "failover-in-progress");
}

#[test]
fn a_target_whose_answer_is_lost_is_the_primary() {
    let (server, target) = (Node::start(launch()).server, Primary::new());
    let (mut c, mut writes) = (server.connect(), server.connect());
    hand_over(&server, &target);
    let (link, psync) = target.accept_until_psync();
    writes.send("INCR a\r\n");
    drop(link);
    let (mut link, again) = target.accept_until_psync();
    assert_eq!(again, psync);
    link.send("-ERR PSYNC FAILOVER can't be sent to a master.\r\n");
    writes.expect(READ_ONLY);
    let (mut link, plain) = target.accept_until_psync();
    assert_eq!(format!("{plain} FAILOVER"), psync);
    link.send("+CONTINUE fedcba98765432100123456789abcdef01234567\r\n");
    wait_until("it follows", || info(&mut c, "master_link_status") == "up");
    assert_eq!(state(&mut c), "no-failover");
}

/// The target may have taken over when its answer was lost. So only its role may end the failover.
#[test]
fn a_target_whose_answer_is_lost_decides_by_being_a_primary_alone() {
    let (server, target) = (Node::start(launch()).server, Primary::new());
    let (mut c, mut writes) = (server.connect(), server.connect());
    hand_over(&server, &target);
    let (link, psync) = target.accept_until_psync();
    writes.send("INCR a\r\n");
    drop(link);
    for answer in ["-BUSY a script runs", "-LOADING", "-ERR PSYNC FAILOVER replid must match"] {
        let (mut link, again) = target.accept_until_psync();
        assert_eq!(again, psync, "before {answer}");
        link.send(format!("{answer}\r\n"));
    }
    let (mut link, again) = target.accept_until_psync();
    assert_eq!(again, psync);
    assert_eq!(state(&mut c), "failover-in-progress");
    assert!(writes.is_silent_for(Duration::from_millis(20)), "they are still held back");
    link.send("-ERR PSYNC FAILOVER can't be sent to a master.\r\n");
    writes.expect(READ_ONLY);
    assert_eq!((state(&mut c), info(&mut c, "role")), ("no-failover".into(), "slave".into()));
}

/// A replica with this port asks for the stream, and is refused.
fn ask_for_stream(server: &Server, port: u16) {
    let mut c = server.connect();
    c.check(&format!("REPLCONF listening-port {port} capa eof"), "+OK");
    c.check("PSYNC ? -1", "-NOMASTERLINK Can't SYNC while failing over");
}

/// The target may have taken over, and then been restarted as a replica of the server that asks it.
#[test]
fn a_failover_to_a_target_that_waits_for_this_server_is_undone() {
    const OTHER: &str = "-ERR PSYNC FAILOVER replid must match my replid.\r\n";
    let (server, target) = (Node::start(launch()).server, Primary::new());
    let (mut c, mut writes) = (server.connect(), server.connect());
    hand_over(&server, &target);
    ask_for_stream(&server, target.port());
    let (link, psync) = target.accept_until_psync();
    writes.send("INCR a\r\n");
    drop(link);
    // Its requests before it has another stream do not count, nor those of other replicas.
    for asks_before in [None, None, Some(target.port() ^ 1)] {
        let (mut link, again) = target.accept_until_psync();
        assert_eq!(again, psync);
        assert_eq!(state(&mut c), "failover-in-progress");
        if let Some(port) = asks_before {
            ask_for_stream(&server, port);
        }
        link.send(OTHER);
    }
    let (mut link, _) = target.accept_until_psync();
    assert_eq!(state(&mut c), "failover-in-progress");
    assert!(writes.is_silent_for(Duration::from_millis(20)), "they are still held back");
    ask_for_stream(&server, target.port());
    link.send(OTHER);
    writes.expect(":2");
    assert_eq!((state(&mut c), info(&mut c, "role")), ("no-failover".into(), "master".into()));
    wait_for_log(&server, "waits for this server");
}

#[test]
fn a_forced_failover_to_a_target_that_hangs_or_dies_can_be_aborted() {
    for dies in [false, true] {
        let (from, mut to) = (Node::start(launch()).server, Node::start(launch()).server);
        follow(&to, &from);
        let (mut c, mut writes) = (from.connect(), from.connect());
        to.signal(Signal::STOP);
        c.check("SET a 1", "+OK");
        let target = format!("127.0.0.1 {}", to.port());
        c.check(&format!("FAILOVER TO {target} FORCE TIMEOUT 50"), "+OK");
        wait_for_state(&mut c, "failover-in-progress");
        writes.send("INCR a\r\n");
        assert!(writes.is_silent_for(Duration::from_millis(150)));
        if dies {
            to.signal(Signal::KILL);
            to.wait_for_end();
            wait_for_log(&from, "cannot connect");
            assert_eq!(state(&mut c), "failover-in-progress", "it may come back");
        }
        c.check("FAILOVER ABORT", "+OK");
        writes.expect(":2");
        assert_eq!((state(&mut c), info(&mut c, "role")), ("no-failover".into(), "master".into()));
        if !dies {
            to.signal(Signal::CONT);
            let mut r = to.connect();
            wait_until("it follows again", || r.ask("GET a").to_string() == r#""2""#);
            assert_eq!(info(&mut r, "role"), "slave");
        }
    }
}

#[test]
fn other_replicas_follow_the_new_primary_without_full_copies() {
    let nodes: Vec<_> = (0..3).map(|_| Node::start(launch()).server).collect();
    let [from, to, third] = &*nodes else { panic!("three") };
    follow(to, from);
    follow(third, from);
    let mut c = from.connect();
    c.check("SET a 1", "+OK");
    c.check(&format!("FAILOVER TO 127.0.0.1 {}", to.port()), "+OK");
    wait_until("it is done", || info(&mut c, "master_link_status") == "up");
    // The third server follows one that is a replica now.
    to.connect().check("SET a 2", "+OK");
    let mut r = third.connect();
    wait_until("it gets that", || r.ask("GET a").to_string() == r#""2""#);
    r.check(&format!("REPLICAOF 127.0.0.1 {}", to.port()), "+OK");
    to.connect().check("SET a 3", "+OK");
    wait_until("it gets that as well", || r.ask("GET a").to_string() == r#""3""#);
    let log = third.output() + &third.errors();
    assert_eq!(log.matches("Full copy from").count(), 1, "{log}");
}

#[test]
fn a_shutdown_during_a_failover_leaves_a_primary() {
    let (mut from, to) = (Node::start(launch()).server, Node::start(launch()).server);
    follow(&to, &from);
    let mut c = from.connect();
    c.check("SET a 1", "+OK");
    to.signal(Signal::STOP);
    c.check("SET a 2", "+OK");
    c.check(&format!("FAILOVER TO 127.0.0.1 {}", to.port()), "+OK");
    from.signal(Signal::TERM);
    wait_for_log(&from, "Waiting for replicas before shutting down");
    to.signal(Signal::CONT);
    assert_eq!(from.wait_for_end().code(), Some(0));
    let mut r = to.connect();
    assert_eq!(info(&mut r, "role"), "master");
    r.check("GET a", r#""2""#);
}

/// Returns true if the slow replica gets everything before the server ends.
fn ends_behind_slow_replica(end: impl FnOnce(&mut Server)) {
    let mut server = Node::start(launch()).server;
    let mut c = server.connect();
    let mut replica = Replica::new(&server);
    c.check("SET a 1", "+OK");
    end(&mut server);
    wait_for_log(&server, "Waiting for replicas before shutting down");
    // Writes wait, and are never executed.
    c.send("SET a 2\r\n");
    assert!(c.is_silent_for(Duration::from_millis(50)));
    assert!(server.is_running());
    replica.commands_until("REPLCONF GETACK *");
    replica.acknowledge();
    assert_eq!(server.wait_for_end().code(), Some(0));
    let log = server.output() + &server.errors();
    assert!(log.contains("1 of 1 replicas have everything"), "{log}");
}

#[test]
fn a_shutdown_waits_for_a_slow_replica() {
    ends_behind_slow_replica(|server| server.signal(Signal::TERM));
    ends_behind_slow_replica(|server| server.connect().send("SHUTDOWN NOSAVE\r\n"));
}

/// No copy begins any more, so waiting for a replica without one would always use the whole timeout.
#[test]
fn a_shutdown_does_not_wait_for_replicas_that_get_no_copy() {
    for has_another in [false, true] {
        let mut server = Node::start(launch().with("shutdown-timeout", "3600")).server;
        let mut c = server.connect();
        let mut slow = has_another.then(|| Replica::new(&server));
        c.check("CONFIG SET repl-diskless-sync-delay 3600", "+OK");
        let mut waits = server.connect();
        waits.check("REPLCONF capa eof capa psync2", "+OK");
        waits.send("PSYNC ? -1\r\n");
        let count = if has_another { "2" } else { "1" };
        wait_until("it waits for a copy", || info(&mut c, "connected_slaves") == count);
        c.check("SET a 1", "+OK");
        server.signal(Signal::TERM);
        if let Some(slow) = &mut slow {
            wait_for_log(&server, "Waiting for replicas before shutting down");
            slow.commands_until("REPLCONF GETACK *");
            slow.acknowledge();
        }
        assert_eq!(server.wait_for_end().code(), Some(0));
    }
}

#[test]
fn a_shutdown_that_waits_is_aborted_hurried_or_late() {
    let mut server = Node::start(launch()).server;
    let mut c = server.connect();
    let _replica = Replica::new(&server);
    c.check("SET a 1", "+OK");
    for _ in 0..2 {
        let (mut ends, mut writes) = (server.connect(), server.connect());
        ends.send("SHUTDOWN\r\n");
        wait_until("it waits", || c.ask("INFO server").text().contains("shutdown_in_milliseconds"));
        writes.send("INCR a\r\n");
        assert!(writes.is_silent_for(Duration::from_millis(20)));
        c.check("SHUTDOWN ABORT", "+OK");
        ends.expect("-ERR Errors trying to SHUTDOWN. Check logs.");
        assert!(writes.reply().int() > 1);
        c.check("SHUTDOWN ABORT", "-ERR No shutdown in progress.");
    }
    c.send("SHUTDOWN\r\n");
    let mut hurries = server.connect();
    wait_until("it waits", || {
        hurries.ask("INFO server").text().contains("shutdown_in_milliseconds")
    });
    hurries.send("SHUTDOWN NOW\r\n");
    hurries.expect_closed();
    assert_eq!(server.wait_for_end().code(), Some(0));

    let mut server = Node::start(launch().with("shutdown-timeout", "1")).server;
    let _replica = Replica::new(&server);
    server.connect().check("SET a 1", "+OK");
    server.signal(Signal::TERM);
    assert_eq!(server.wait_for_end().code(), Some(0));
    let log = server.output() + &server.errors();
    assert!(log.contains("lacks") && log.contains("0 of 1 replicas"), "{log}");
}
