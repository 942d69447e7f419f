//! REPLICAOF: a server that changes its role while a stream arrives, alone and in transactions.

use std::time::Duration;

use tierce_harness::{Connection, Server, TempDir, encode, wait_until};

use super::fake_primary::{Follower, ID, Primary, stream};
use super::fake_replica::Replica;
use super::replica::{info, wait_for_link, wait_for_log};
use super::{fill_disk, on_a_full_disk};
use crate::launch;
use crate::replication::info as info_everywhere;

#[test]
fn as_a_primary_it_keeps_the_data() {
    let primary = Primary::new();
    let server = launch().start();
    let mut c = server.connect();
    c.check("SET own 1", "+OK");
    c.check(&format!("REPLICAOF 127.0.0.1 {}", primary.port()), "+OK");
    c.check(
        &format!("SLAVEOF 127.0.0.1 {}", primary.port()),
        "+OK Already connected to specified master",
    );
    let mut follower = primary.give_copy(3, &[("k", "v")]);
    follower.wait_for(3);
    c.check("MGET own k", r#"[nil, "v"]"#);
    c.check("REPLICAOF NO ONE", "+OK");
    follower.wait_for_end();
    c.check("SET k w", "+OK");
    c.check("GET k", r#""w""#);
    assert_eq!(info(&mut c, "role"), "master");
    c.check("REPLICAOF NO ONE", "+OK");
    c.check("REPLICAOF host 0", "-ERR Invalid master port");
    c.check("REPLICAOF host x", "-ERR Invalid master port");
    // If it has its own data, it has its own stream, which the next primary may know.
    let (id, offset) = (info(&mut c, "master_replid"), info(&mut c, "master_repl_offset"));
    c.check(&format!("REPLICAOF 127.0.0.1 {}", primary.port()), "+OK");
    let (_, psync) = primary.accept_until_psync();
    let offset: u64 = offset.parse().expect("a number");
    assert_ne!(id, ID);
    assert_eq!(psync, format!("PSYNC {id} {}", offset + 1));
}

/// Sends a counter's commands, as many as arrive at once. Returns the number that are applied when the counter is
/// first read.
fn count_begins(follower: &mut Follower, c: &mut Connection) -> usize {
    let command = encode(&["INCR", "n"]);
    follower.send(command.repeat(200_000 / command.len()));
    wait_until("a command of the stream is applied", || c.ask("EXISTS n").to_string() == ":1");
    command.len()
}

#[test]
fn nothing_of_the_stream_comes_behind_the_promotion() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut c = server.connect();
    let mut follower = primary.give_copy(0, &[]);
    count_begins(&mut follower, &mut c);
    c.check("REPLICAOF NO ONE", "+OK");
    c.check("SET n own", "+OK");
    // The replication thread checks the end of the data that it has read.
    follower.wait_for_end();
    c.check("GET n", r#""own""#);
}

#[test]
fn the_next_primary_is_asked_for_what_is_not_applied() {
    let (first, second) = (Primary::new(), Primary::new());
    let server = first.replica().start();
    let mut c = server.connect();
    let mut follower = first.give_copy(0, &[]);
    let len = count_begins(&mut follower, &mut c);
    c.check(&format!("REPLICAOF 127.0.0.1 {}", second.port()), "+OK");
    let (_, psync) = second.accept_until_psync();
    let count: usize = c.ask("GET n").text().parse().expect("a number");
    assert_eq!(psync, format!("PSYNC {ID} {}", count * len + 1));
}

#[test]
fn the_role_is_in_the_file_after_a_rewrite() {
    let (primary, dir) = (Primary::new(), TempDir::new());
    let path = dir.path().join("server.conf");
    std::fs::write(&path, "# mine\n").expect("a file");
    let server = launch().file(&path).start();
    let mut c = server.connect();
    let line = format!("replicaof 127.0.0.1 {}", primary.port());
    c.check("MULTI", "+OK");
    c.check(&format!("SLAVEOF 127.0.0.1 {}", primary.port()), "+QUEUED");
    c.check("CONFIG REWRITE", "+QUEUED");
    c.check("EXEC", "[+OK, +OK]");
    let text = std::fs::read_to_string(&path).expect("a file");
    assert!(text.contains(&line), "{text}");
    c.check("REPLICAOF NO ONE", "+OK");
    c.check("CONFIG REWRITE", "+OK");
    let text = std::fs::read_to_string(&path).expect("a file");
    assert!(!text.contains(&line), "{text}");
}

#[test]
fn nothing_of_the_stream_comes_behind_a_promotion_in_a_transaction() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut c = server.connect();
    let mut follower = primary.give_copy(0, &[]);
    count_begins(&mut follower, &mut c);
    // As Sentinel promotes, and with a key that the stream changes.
    for queued in ["GET n", "SLAVEOF NO ONE", "CLIENT KILL TYPE normal", "CLIENT KILL TYPE pubsub"]
    {
        if queued == "GET n" {
            c.check("MULTI", "+OK");
        }
        c.check(queued, "+QUEUED");
    }
    let mut other = server.connect();
    other.check("PING", "+PONG");
    let replies = c.ask("EXEC");
    let ended = replies.items()[2].int();
    assert!(ended >= 1, "{replies}");
    other.expect_closed();
    c.check("SET n own", "+OK");
    follower.wait_for_end();
    c.check("GET n", r#""own""#);
}

/// Runs an endless script that holds a key for which the stream waits, so that the role cannot change meanwhile.
/// Returns a key, with a value, that the script does not hold.
fn hold_role(server: &Server, follower: &mut Follower) -> String {
    const SCRIPT: &str = "while true do redis.call('GET', KEYS[1]) end";
    let mut c = server.connect();
    c.check("CONFIG SET busy-reply-threshold 1", "+OK");
    server.connect().request(&["EVAL_RO", SCRIPT, "1", "held"]);
    wait_until("it runs", || c.ask("GET held").to_string().starts_with("-BUSY"));
    let mut keys = (0..).map(|number| format!("free:{number}"));
    let free = keys.find(|key| c.ask(&format!("GET {key}")).to_string() == "nil");
    let free = free.expect("the script holds few");
    c.check("CONFIG SET busy-reply-threshold 0", "+OK");
    follower.send(stream(&[&format!("SET {free} x"), "SET held x"]));
    wait_until("the stream comes there", || c.ask(&format!("GET {free}")).to_string() == r#""x""#);
    free
}

#[test]
fn a_worker_that_waits_for_the_role_serves_others_and_holds_no_shard() {
    for lines in ["", "MULTI", "GET KEY\nMULTI"] {
        let primary = Primary::new();
        let server = primary.replica().with("io-threads", "1").start();
        let mut follower = primary.give_copy(0, &[]);
        let (mut c, mut promotes) = (server.connect(), server.connect());
        wait_for_link(&mut c, "up");
        let free = hold_role(&server, &mut follower);
        // A worker keeps the shard of the earlier request.
        let lines = lines.replace("KEY", &free);
        let is_transaction = lines.contains("MULTI");
        let last = if is_transaction { "REPLICAOF NO ONE\nEXEC" } else { "REPLICAOF NO ONE" };
        let lines: Vec<_> = lines.lines().chain(last.lines()).collect();
        promotes.send(lines.join("\r\n") + "\r\n");
        for _ in 1..lines.len() {
            promotes.reply();
        }
        assert!(promotes.is_silent_for(Duration::from_millis(100)), "{lines:?}");
        c.check("PING", "+PONG");
        // Another thread gets the shard.
        let copied = c.call(&["EVAL_RO", "return redis.call('GET', KEYS[1])", "1", &free]);
        assert_eq!(copied.to_string(), r#""x""#);
        assert_eq!(info(&mut c, "role"), "slave", "{lines:?}");
        c.check("SCRIPT KILL", "+OK");
        promotes.expect(if is_transaction { "[+OK]" } else { "+OK" });
        assert_eq!(info(&mut c, "role"), "master", "{lines:?}");
        c.check("SET held own", "+OK");
    }
}

#[test]
fn a_promotion_that_a_program_keeps_waiting_is_told() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut follower = primary.give_copy(0, &[]);
    let mut c = server.connect();
    wait_for_link(&mut c, "up");
    hold_role(&server, &mut follower);
    c.check("CONFIG SET busy-reply-threshold 1", "+OK");
    let text =
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
    c.check("REPLICAOF NO ONE", &format!("-{text}"));
    c.check("MULTI", "+OK");
    c.check("SLAVEOF NO ONE", "+QUEUED");
    c.check("EXEC", &format!("-EXECABORT Transaction discarded because of: {text}"));
    c.check("EXEC", "-ERR EXEC without MULTI");
    server.connect().check(&format!("PSYNC {ID} 1 FAILOVER"), &format!("-{text}"));
    c.check("SCRIPT KILL", "+OK");
    wait_until("the program has ended", || c.ask("REPLICAOF NO ONE").to_string() == "+OK");
    assert_eq!(info(&mut c, "role"), "master");
}

#[test]
fn a_transaction_of_the_stream_may_be_larger_than_those_of_clients() {
    let primary = Primary::new();
    let server = primary.replica().with("client-query-buffer-limit", "1mb").start();
    let mut follower = primary.give_copy(0, &[]);
    let value = "x".repeat(100_000);
    follower.send(encode(&["MULTI"]));
    for number in 0..30 {
        follower.send(encode(&["SET", &format!("k{number}"), &value]));
    }
    follower.send(encode(&["EXEC"]));
    let mut c = server.connect();
    wait_until("it is applied", || c.ask("DBSIZE").int() == 30);
    assert_eq!(info(&mut c, "master_link_status"), "up");
}

#[test]
fn what_fails_in_a_transaction_of_the_stream_is_logged_and_healed() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut c = server.connect();
    let mut follower = primary.give_copy(0, &[("k", "v")]);
    follower.send(stream(&["SELECT 3", "SET k v", "MULTI", "SET l 1", "LPUSH k a", "EXEC"]));
    wait_for_log(&server, "The primary's command LPUSH of key k in database 3 failed here");
    wait_for_log(&server, "WRONGTYPE");
    let mut follower = primary.give_copy(50, &[("k", "w")]);
    follower.wait_for(50);
    c.check("GET k", r#""w""#);
    assert_eq!(info_everywhere(&mut c, "unexpected_error_replies"), "1");
    // The next copy has to wait, so that a limit that is lower here does not cause copies one after the other.
    let again = stream(&["LPUSH k a", "SET k x"]);
    follower.send(&again);
    follower.wait_for(50 + again.len() as u64);
    c.check("GET k", r#""x""#);
    assert_eq!(info_everywhere(&mut c, "unexpected_error_replies"), "2");
}

#[test]
fn a_promotion_before_the_first_copy_is_named() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut c = server.connect();
    let _waits_for_its_copy = primary.accept_until_psync();
    c.check("REPLICAOF NO ONE", "+OK");
    wait_for_log(&server, "This server is a primary now, without a full copy of 127.0.0.1");
}

#[test]
fn a_server_that_becomes_a_replica_ends_what_clients_wait_for() {
    const ENDED: &str = "-UNBLOCKED force unblock from blocking operation, instance state changed \
                         (master -> replica?)";
    let server = launch().start();
    let mut c = server.connect();
    let commands = ["BLPOP l 0", "XREAD BLOCK 0 STREAMS s $", "WAIT 1 0", "BLMOVE l m LEFT LEFT 0"];
    let mut waiting: Vec<_> = commands
        .iter()
        .map(|command| {
            let mut client = server.connect();
            client.send(format!("{command}\r\n"));
            client
        })
        .collect();
    wait_until("they wait", || {
        let blocked = format!("blocked_clients:{}", commands.len());
        c.ask("INFO clients").text().contains(&blocked)
    });
    let mut goes_on = server.connect();
    goes_on.send("NBLPOP l 0 0\r\n");
    goes_on.check("PING", "+PONG");
    c.check("REPLICAOF 127.0.0.1 1", "+OK");
    for client in &mut waiting {
        client.expect(ENDED);
        client.expect_closed();
    }
    assert!(goes_on.reply().to_string().contains(&ENDED[1..]));
    let counted = c.ask("INFO commandstats errorstats").text().to_owned();
    for name in ["blpop", "xread", "wait", "blmove", "nblpop"] {
        let line = counted.lines().find(|line| line.starts_with(&format!("cmdstat_{name}:")));
        assert!(line.is_some_and(|line| line.ends_with(",failed_calls=1")), "{line:?}");
    }
    assert!(counted.contains("errorstat_UNBLOCKED:count=5\r"), "{counted}");
    c.check("REPLICAOF NO ONE", "+OK");
    c.check("RPUSH l x", ":1");
    c.check("LRANGE l 0 -1", r#"["x"]"#);
}

/// Regression: a client whose write waited for replicas got the error, and stayed half open: it was not listed, and
/// got no replies to long commands.
#[test]
fn a_server_that_becomes_a_replica_closes_connections_whose_writes_wait() {
    const UNCONFIRMED: &str = "-UNCONFIRMED The write is done on this server, but 1 replica has not \
                               confirmed it in time";
    let server = launch().with("repl-diskless-sync-delay", "0").start();
    let mut replica = Replica::new(&server);
    let (mut c, mut other) = (server.connect(), server.connect());
    other.check("CONFIG SET durability-replicas-timeout 100000", "+OK");
    c.check("CLIENT DURABILITY replicas:1", "+OK");
    c.send("SET a 1\r\nGET a\r\n");
    replica.commands_until("REPLCONF GETACK *");
    other.check("REPLICAOF 127.0.0.1 1", "+OK");
    c.expect(UNCONFIRMED);
    c.expect("\"1\"");
    c.expect_closed();
    other.check("GET a", "\"1\"");
}

/// Regression: the message came before the reply to its subscription, and before that to HELLO.
#[test]
fn a_message_comes_behind_replies_that_wait_for_replicas() {
    let server = launch().with("threads", "1").with("repl-diskless-sync-delay", "0").start();
    let mut replica = Replica::new(&server);
    let (mut c, mut other) = (server.connect(), server.connect());
    other.check("CONFIG SET durability-replicas-timeout 100000", "+OK");
    let id = c.ask("CLIENT ID").int();
    c.check("CLIENT DURABILITY replicas:1", "+OK");
    c.send("HELLO 3\r\nSUBSCRIBE news\r\nSET a 1\r\n");
    // The replica does not answer it.
    replica.commands_until("REPLCONF GETACK *");
    other.check("PUBLISH news x", ":1");
    other.check(&format!("CLIENT UNBLOCK {id} ERROR"), ":1");
    assert!(c.reply().to_string().contains("server"));
    c.expect(r#">["subscribe", "news", :1]"#);
    assert!(c.reply().to_string().starts_with("-UNCONFIRMED "));
    c.expect(r#">["message", "news", "x"]"#);
}

/// Replicas do not get the writes that the log refuses: none of them is in sync, and a copy would have no offset in
/// the stream.
#[test]
fn while_the_log_has_failed_nothing_is_handed_over_and_replicas_stay() {
    let dir = TempDir::new();
    let server = on_a_full_disk(&dir, 8192)
        .with("appendonly", "yes")
        .with("repl-diskless-sync-delay", "0")
        .start();
    let mut c = server.connect();
    let follow = || launch().with("replicaof", &format!("127.0.0.1 {}", server.port())).start();
    let replica = follow();
    wait_for_link(&mut replica.connect(), "up");
    c.check("SET a 0", "+OK");
    fill_disk(&server);
    let target = format!("FAILOVER TO 127.0.0.1 {}", replica.port());
    for command in [format!("{target} FORCE TIMEOUT 100"), target] {
        let refused = c.ask(&command).to_string();
        assert!(refused.contains("the log has failed"), "{refused}");
    }
    let waits = follow();
    wait_until("it waits for a copy", || super::info(&mut c, "connected_slaves") == "2");
    c.check("BGSAVE", "+Background saving started");
    wait_until("it is saved", || super::info(&mut c, "rdb_bgsave_in_progress") == "0");
    assert_eq!(info(&mut waits.connect(), "master_link_status"), "down");
    assert_eq!(info(&mut replica.connect(), "master_link_status"), "up");
    // Without the log, everything is in the stream, and copies are possible.
    c.check("CONFIG SET appendonly no", "+OK");
    wait_for_link(&mut waits.connect(), "up");
    waits.connect().check("STRLEN large", ":12000000");
}
