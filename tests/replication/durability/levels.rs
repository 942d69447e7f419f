//! A client's level also applies to commands that block, run on another thread, or read tracked keys.

use std::time::Duration;

use tierce_harness::{Connection, Launch, wait_until};

use super::primary;
use crate::replication::fake_replica::Replica;
use crate::replication::info;

fn wait_until_blocked(c: &mut Connection) {
    wait_until("it waits", || c.ask("INFO clients").text().contains("blocked_clients:1"));
}

#[test]
fn a_client_that_waits_for_keys_is_served_at_its_own_level() {
    let server = primary().with("durability-replicas", "1").start();
    let (mut waiting, mut other) = (server.connect(), server.connect());
    for c in [&mut waiting, &mut other] {
        c.check("CLIENT DURABILITY replicas:0", "+OK");
    }
    waiting.send("BLPOP list 0\r\n");
    wait_until_blocked(&mut other);
    other.check("RPUSH list a", ":1");
    waiting.expect("[\"list\", \"a\"]");
}

/// Otherwise its entry could be lost in a failover, and the producer would never send it again.
#[test]
fn a_repeated_message_waits_for_replicas_like_the_first() {
    const ADD: &str = "XADD s IDMP p m * a 1";
    for appendonly in ["no", "yes"] {
        let server = primary().with("appendonly", appendonly).start();
        let mut replica = Replica::new(&server);
        let (mut c, mut other) = (server.connect(), server.connect());
        let id = other.ask(ADD).to_string();
        c.check("CLIENT DURABILITY replicas:1", "+OK");
        c.send(format!("{ADD}\r\n"));
        replica.commands_until("REPLCONF GETACK *");
        assert!(c.is_silent_for(Duration::from_millis(20)));
        replica.acknowledge();
        c.expect(&id);
    }
}

/// Its level can no longer be reached, and the clients after it need none.
#[test]
fn a_client_whose_level_is_lost_keeps_nobody_waiting() {
    for appendonly in ["no", "yes"] {
        a_level_is_lost(primary().with("appendonly", appendonly));
    }
}

fn a_level_is_lost(launch: Launch) {
    let server = launch.with("repl-backlog-ttl", "1").start();
    let replica = Replica::new(&server);
    let (mut first, mut second, mut other) = (server.connect(), server.connect(), server.connect());
    first.check("CLIENT DURABILITY replicas:1", "+OK");
    first.send("BLPOP list 0\r\n");
    wait_until_blocked(&mut other);
    second.send("BLPOP list 0\r\n");
    wait_until("both wait", || other.ask("INFO clients").text().contains("blocked_clients:2"));
    drop(replica);
    wait_until("the stream has ended", || {
        other.ask("INFO replication").text().contains("repl_backlog_active:0")
    });
    other.check("RPUSH list a", ":1");
    first.expect("-NOREPLICAS Not enough good replicas to write.");
    second.expect("[\"list\", \"a\"]");
}

#[test]
fn a_read_that_has_waited_does_not_wait_for_replicas() {
    let server = primary().start();
    let _replica = Replica::new(&server);
    let (mut waiting, mut other) = (server.connect(), server.connect());
    waiting.check("CLIENT DURABILITY replicas:1", "+OK");
    waiting.send("XREAD BLOCK 0 STREAMS s $\r\n");
    wait_until_blocked(&mut other);
    other.check("XADD s 1-1 a b", "\"1-1\"");
    waiting.expect("[[\"s\", [[\"1-1\", [\"a\", \"b\"]]]]]");
}

/// The consumer that it creates before it blocks is acknowledged with its reply.
#[test]
fn a_new_consumer_waits_for_entries_and_then_for_replicas() {
    let server = primary().start();
    let mut replica = Replica::new(&server);
    let (mut waiting, mut other) = (server.connect(), server.connect());
    other.check("XGROUP CREATE s g $ MKSTREAM", "+OK");
    waiting.check("CLIENT DURABILITY replicas:1", "+OK");
    waiting.send("XREADGROUP GROUP g new BLOCK 0 STREAMS s >\r\n");
    wait_until_blocked(&mut other);
    other.check("XADD s 1-1 a b", "\"1-1\"");
    replica.commands_until("REPLCONF GETACK *");
    assert!(waiting.is_silent_for(Duration::from_millis(20)));
    replica.acknowledge();
    waiting.expect("[[\"s\", [[\"1-1\", [\"a\", \"b\"]]]]]");
}

#[test]
fn a_transaction_that_runs_elsewhere_waits_at_the_level_it_began_with() {
    let server = primary().start();
    let mut replica = Replica::new(&server);
    let mut c = server.connect();
    c.check("CLIENT DURABILITY replicas:1", "+OK");
    c.check("MULTI", "+OK");
    c.check("SET k v", "+QUEUED");
    assert_eq!(c.call(&["EVAL", "return 1", "0"]).text(), "QUEUED");
    c.check("CLIENT DURABILITY replicas:0", "+QUEUED");
    c.send("EXEC\r\n");
    replica.commands_until("REPLCONF GETACK *");
    assert!(c.is_silent_for(Duration::from_millis(20)));
    replica.acknowledge();
    c.expect("[+OK, :1, +OK]");
    c.check("SET k w", "+OK");
}

/// Otherwise the client would keep a value that has changed since.
#[test]
fn invalidations_follow_replies_that_wait_for_replicas() {
    let server = primary().start();
    let mut replica = Replica::new(&server);
    let (mut c, mut other) = (server.connect_resp3(), server.connect());
    other.check("SET k old", "+OK");
    c.check("CLIENT TRACKING ON", "+OK");
    c.check("CLIENT DURABILITY replicas:1", "+OK");
    c.send("SET x 1\r\nGET k\r\n");
    replica.commands_until("REPLCONF GETACK *");
    other.check("SET k new", "+OK");
    assert!(c.is_silent_for(Duration::from_millis(20)));
    replica.commands_until("SET k new");
    replica.acknowledge();
    c.expect("+OK");
    c.expect("\"old\"");
    assert!(c.reply().to_string().contains("invalidate"));
}

/// Otherwise they would use unlimited memory, which no limit counts.
#[test]
fn many_invalidations_come_before_the_reply_and_all_is_invalid_behind_it() {
    let server = primary().start();
    let mut replica = Replica::new(&server);
    let (mut c, mut other) = (server.connect_resp3(), server.connect());
    c.check("CLIENT TRACKING ON BCAST", "+OK");
    c.check("CLIENT DURABILITY replicas:1", "+OK");
    c.send("SET x 1\r\n");
    replica.commands_until("REPLCONF GETACK *");
    let mut come = 0;
    for number in 0.. {
        other.call(&["SET", &format!("{number}{}", "k".repeat(60_000)), "v"]);
        if number > 40 && !c.is_silent_for(Duration::from_millis(1)) {
            break;
        }
    }
    replica.acknowledge();
    loop {
        match c.reply().to_string().as_str() {
            "+OK" => break,
            push => come += usize::from(push.contains("invalidate")),
        }
    }
    assert!(come > 15, "{come}");
    wait_until("all is invalid", || {
        let push = c.reply().to_string();
        push.contains("invalidate") && !push.contains("kkk")
    });
}

/// Returns the errors by kind, and the number of error replies.
fn errors(c: &mut Connection) -> (Vec<String>, String) {
    let kinds = c.ask("INFO errorstats").text().to_owned();
    let kinds = kinds.lines().filter_map(|line| line.strip_prefix("errorstat_"));
    (kinds.map(str::to_owned).collect(), info(c, "total_error_replies"))
}

/// A client that waits for replicas gets one error, for any end of its wait, and that is counted.
#[test]
fn errors_to_clients_that_wait_for_replicas_are_counted_once() {
    const LATE: &str = "-UNCONFIRMED The write is done on this server, but 1 replica has not \
                        confirmed it in time";
    const UNBLOCKED: &str = "-UNBLOCKED client unblocked via CLIENT UNBLOCK";
    const ROLE: &str = "-UNBLOCKED force unblock from blocking operation, instance state changed (master -> \
                        replica?)";
    for (call, end, error) in [
        ("WAIT 1 0", "CLIENT UNBLOCK ID ERROR", UNBLOCKED),
        ("SET a 1", "CLIENT UNBLOCK ID ERROR", LATE),
        ("SET a 1", "CLIENT UNBLOCK ID", LATE),
        ("SET a 1", "CONFIG SET durability-replicas-timeout 50", LATE),
        ("WAIT 1 0", "REPLICAOF 127.0.0.1 1", ROLE),
        ("SET a 1", "REPLICAOF 127.0.0.1 1", LATE),
    ] {
        let server = primary().with("durability-replicas-timeout", "100000").start();
        let mut replica = Replica::new(&server);
        let (mut waiting, mut other) = (server.connect(), server.connect());
        let id = waiting.ask("CLIENT ID").int();
        waiting.check("SET before 1", "+OK");
        waiting.check("CLIENT DURABILITY replicas:1", "+OK");
        if end.starts_with("CONFIG") {
            other.check(end, "+OK");
        }
        waiting.request(&tierce_harness::words(call));
        replica.commands_until("REPLCONF GETACK *");
        if !end.starts_with("CONFIG") {
            let end = end.replace("ID", &id.to_string());
            wait_until("it ends", || [":1", "+OK"].contains(&&*other.ask(&end).to_string()));
        }
        waiting.expect(error);
        let kind = error[1..].split(' ').next().expect("a word");
        let counted = (vec![format!("{kind}:count=1")], "1".to_owned());
        assert_eq!(errors(&mut other), counted, "{call}, {end}");
    }
}
