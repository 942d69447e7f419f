//! CLIENT MAINT_NOTIFICATIONS: clients are told of a failover and of the server that takes over, instead of errors.

use rustix::process::Signal;
use tierce_harness::{Connection, Reply, Server, wait_until};

use crate::failover::{follow, info, wait_for_state};
use crate::launch;
use crate::replication::fake_replica::Replica;

const READ_ONLY: &str = "-READONLY You can't write against a read only replica.";
const SHARDS: &str = r#""[\"0\"]""#;

/// Returns a connection that is told of maintenance.
fn told(server: &Server, options: &str) -> Connection {
    let mut c = server.connect_resp3();
    c.check(&format!("CLIENT MAINT_NOTIFICATIONS ON {options}"), "+OK");
    c
}

/// Returns the id in the next message, which has this name and these further elements.
fn message(c: &mut Connection, name: &str, rest: &[&str]) -> i64 {
    let reply = c.reply();
    let Reply::Push(items) = &reply else { panic!("no push message: {reply}") };
    let id = items[1].int();
    let rest: String = rest.iter().map(|item| format!(", {item}")).collect();
    assert_eq!(reply.to_string(), format!(">[{name:?}, :{id}{rest}]"));
    id
}

/// Expects the messages about a failover. The ids grow.
fn expect_move(c: &mut Connection, address: &str) {
    let began = message(c, "FAILING_OVER", &[":10", SHARDS]);
    let ended = message(c, "FAILED_OVER", &[SHARDS]);
    let moves = message(c, "MOVING", &[":30", address]);
    assert!(
        began > 1_700_000_000_000 && began < ended && ended != moves,
        "{began} {ended} {moves}"
    );
}

/// Returns a primary and its replica.
fn pair() -> (Server, Server) {
    let start = || launch().with("repl-diskless-sync-delay", "0").start();
    let (primary, replica) = (start(), start());
    follow(&replica, &primary);
    (primary, replica)
}

fn fail_over(c: &mut Connection, to: &Server) {
    c.check(&format!("FAILOVER TO 127.0.0.1 {}", to.port()), "+OK");
    wait_for_state(c, "no-failover");
    assert_eq!(info(c, "role"), "slave");
}

fn address_of(server: &Server) -> String {
    format!("{:?}", format!("127.0.0.1:{}", server.port()))
}

#[test]
fn a_client_is_told_if_it_asks() {
    let server = launch().start();
    let mut c = server.connect();
    let old =
        "-ERR CLIENT MAINT_NOTIFICATIONS sends push messages, which need RESP3: send HELLO 3 first";
    c.check("CLIENT MAINT_NOTIFICATIONS ON", old);
    c.check("CLIENT MAINT_NOTIFICATIONS OFF", "+OK");
    c.ask("HELLO 3");
    let is_listed = |c: &mut Connection| {
        let info = c.ask("CLIENT INFO").text().to_owned();
        info.split(' ').any(|field| field.starts_with("flags=") && field.contains('m'))
    };
    assert!(!is_listed(&mut c));
    for kind in ["internal-ip", "internal-fqdn", "external-ip", "EXTERNAL-FQDN", "none"] {
        c.check(&format!("CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type {kind}"), "+OK");
        assert!(is_listed(&mut c));
        assert_eq!(c.ask("CLIENT LIST FLAGS m").text().lines().count(), 1);
    }
    for (options, error) in [
        ("maybe", "syntax error"),
        ("ON moving-endpoint-type", "syntax error"),
        ("ON endpoint none", "syntax error"),
        ("ON moving-endpoint-type none none", "syntax error"),
        (
            "ON moving-endpoint-type ip",
            "moving-endpoint-type is not one of internal-ip, internal-fqdn, external-ip, external-fqdn, none",
        ),
    ] {
        c.check(&format!("CLIENT MAINT_NOTIFICATIONS {options}"), &format!("-ERR {error}"));
    }
    assert!(is_listed(&mut c), "errors change nothing");
    c.check("CLIENT MAINT_NOTIFICATIONS OFF", "+OK");
    assert!(!is_listed(&mut c));
    c.check("CLIENT MAINT_NOTIFICATIONS on", "+OK");
    c.check("RESET", "+RESET");
    assert!(!is_listed(&mut c));
}

#[test]
fn those_who_asked_are_told_of_a_failover() {
    let (from, to) = pair();
    let address = address_of(&to);
    let mut c = from.connect();
    let mut listens = told(&from, "");
    let mut by_name = told(&from, "moving-endpoint-type external-fqdn");
    let mut stays = told(&from, "moving-endpoint-type none");
    let mut has_left = told(&from, "");
    has_left.check("CLIENT MAINT_NOTIFICATIONS OFF", "+OK");
    let mut has_reset = told(&from, "");
    has_reset.check("RESET", "+RESET");
    let mut speaks_2 = told(&from, "");
    speaks_2.ask("HELLO 2");
    let mut listens_there = told(&to, "");
    fail_over(&mut c, &to);
    expect_move(&mut listens, &address);
    expect_move(&mut by_name, &address);
    expect_move(&mut stays, "null");
    for silent in [&mut has_left, &mut has_reset, &mut speaks_2, &mut listens_there] {
        silent.check("PING", "+PONG");
    }
    speaks_2.check("SET k v", READ_ONLY);
    // It may still read, and has to go away to write.
    listens.check("GET k", "null");
    listens.send("SET k v\r\n");
    listens.expect_closed();
    to.connect().check("SET k v", "+OK");
}

#[test]
fn writes_that_wait_are_not_answered_and_done_once_there() {
    let (from, to) = pair();
    let address = address_of(&to);
    let mut c = from.connect();
    let mut pops = told(&from, "");
    pops.send("BLPOP l 0\r\n");
    wait_until("it waits", || info(&mut c, "blocked_clients") == "1");
    let mut stays = told(&from, "moving-endpoint-type none");
    stays.send("BLPOP l 0\r\n");
    // One of two requests runs during the failover.
    let mut pipes = told(&from, "");
    pipes.send("INCR p\r\nINCR p\r\n");
    pipes.expect(":1");
    pipes.expect(":2");
    let mut pops_behind = told(&from, "");
    pops_behind.send("INCR q\r\nBLPOP l 0\r\n");
    pops_behind.expect(":1");
    // Its first reply waits for the replica.
    let mut pops_confirmed = told(&from, "");
    pops_confirmed.check("CLIENT DURABILITY replicas:1", "+OK");
    pops_confirmed.send("INCR r\r\nBLPOP l 0\r\n");
    pops_confirmed.expect(":1");
    // The pipeline that sets the level is over.
    let mut pops_later = told(&from, "");
    pops_later.check("CLIENT DURABILITY replicas:1", "+OK");
    pops_later.check("INCR s", ":1");
    pops_later.send("BLPOP l 0\r\n");
    wait_until("all five wait", || info(&mut c, "blocked_clients") == "5");
    let lines = ["INCR n", "EVAL \"return redis.call('INCR', 'n')\" 0", "MULTI\r\nINCR n\r\nEXEC"];
    let mut writers: Vec<_> = lines.iter().map(|_| told(&from, "")).collect();
    // A write waits for the replica, which hangs until all have sent theirs.
    to.signal(Signal::STOP);
    c.check("SET a 1", "+OK");
    c.check(&format!("FAILOVER TO 127.0.0.1 {}", to.port()), "+OK");
    for (writer, line) in writers.iter_mut().zip(lines) {
        message(writer, "FAILING_OVER", &[":10", SHARDS]);
        writer.send(format!("{line}\r\n"));
    }
    message(&mut pipes, "FAILING_OVER", &[":10", SHARDS]);
    pipes.send("GET p\r\nINCR p\r\n");
    pipes.expect("\"2\"");
    wait_until("all wait", || info(&mut c, "blocked_clients") == "9");
    to.signal(Signal::CONT);
    wait_for_state(&mut c, "no-failover");
    expect_move(&mut pops, &address);
    pops.expect_closed();
    expect_move(&mut stays, "null");
    stays.expect_closed();
    // A library would repeat the requests before it as well.
    message(&mut pipes, "FAILED_OVER", &[SHARDS]);
    message(&mut pipes, "MOVING", &[":30", &address]);
    pipes.expect(READ_ONLY);
    pipes.check("PFCOUNT h", ":0");
    for mut behind in [pops_behind, pops_confirmed] {
        expect_move(&mut behind, &address);
        let reply = behind.reply().to_string();
        assert!(reply.starts_with("-UNBLOCKED "), "{reply}");
        behind.expect_closed();
    }
    expect_move(&mut pops_later, &address);
    pops_later.expect_closed();
    for (writer, line) in writers.iter_mut().zip(lines) {
        if line.starts_with("MULTI") {
            // The next command waits.
            writer.expect("+OK");
        }
        message(writer, "FAILED_OVER", &[SHARDS]);
        message(writer, "MOVING", &[":30", &address]);
        writer.expect_closed();
    }
    let mut there = to.connect();
    there.check("MGET n p q r s", "[nil, \"2\", \"1\", \"1\", \"1\"]");
    there.check("INCR n", ":1");
}

#[test]
fn a_client_that_comes_later_is_told_with_its_first_write() {
    let (from, to) = pair();
    let mut c = from.connect();
    // Before a failover, a replica has handed nothing over.
    let mut at_replica = told(&to, "");
    at_replica.check("SET k v", READ_ONLY);
    fail_over(&mut c, &to);
    at_replica.check("SET k v", "+OK");
    let mut later = told(&from, "");
    later.check("GET n", "null");
    later.send("GET n\r\nINCR n\r\nGET n\r\n");
    ["null", READ_ONLY, "null"].iter().for_each(|reply| later.expect(reply));
    later.check("GET n", "null");
    later.send("INCR n\r\nGET n\r\n");
    message(&mut later, "MOVING", &[":30", &address_of(&to)]);
    later.expect_closed();
    // This library connects again by itself with such an error, but not if the connection closes.
    let mut of_go = told(&from, "");
    of_go.check("CLIENT SETINFO LIB-NAME go-redis(,go1.26.0)", "+OK");
    of_go.send("INCR n\r\n");
    message(&mut of_go, "MOVING", &[":30", &address_of(&to)]);
    let handed_over = "-LOADING This server has handed over to another one, and has done nothing";
    of_go.expect(handed_over);
    of_go.check("EVAL \"return redis.call('INCR', 'n')\" 0", handed_over);
    of_go.check("MULTI", "+OK");
    of_go.send("INCR n\r\n");
    of_go.expect_closed();
    // This one would come back to the same address.
    let mut stays = told(&from, "moving-endpoint-type none");
    stays.check("INCR n", READ_ONLY);
    // The way back.
    let mut back = to.connect();
    let mut listens = told(&to, "");
    fail_over(&mut back, &from);
    expect_move(&mut listens, &address_of(&from));
    told(&from, "").check("INCR n", ":1");
    // No longer by a failover.
    let mut c = from.connect();
    c.check(&format!("REPLICAOF 127.0.0.1 {}", to.port()), "+OK");
    told(&from, "").check("INCR n", READ_ONLY);
}

#[test]
fn a_failover_that_is_given_up_is_over() {
    let server = launch().start();
    let mut c = server.connect();
    // It never acknowledges this offset.
    let _replica = Replica::new(&server);
    c.check("SET a 0", "+OK");
    let mut listens = told(&server, "");
    let mut pops = told(&server, "");
    pops.send("BLPOP l 0\r\n");
    wait_until("it waits", || info(&mut c, "blocked_clients") == "1");
    for (options, seconds) in [("", 10..=10), ("TIMEOUT 3600000", 3000..=3600)] {
        c.check(&format!("FAILOVER {options}"), "+OK");
        c.check("FAILOVER ABORT", "+OK");
        for client in [&mut listens, &mut pops] {
            assert!(seconds.contains(&client.reply().items()[2].int()));
            message(client, "FAILED_OVER", &[SHARDS]);
        }
        listens.check("SET n v", "+OK");
    }
    c.check("RPUSH l v", ":1");
    pops.expect(r#"["l", "v"]"#);
}
