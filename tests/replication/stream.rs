//! The stream to a replica after its full copy, from the first byte or from its last offset. The replica is a test
//! that speaks the protocol, or another server.

use std::time::Duration;

use tierce_harness::{Both, Connection, Random, Reply, encode, wait_until};

use super::fake_replica::Replica;
use super::primary::primary;
use super::{WRITES, assert_same, info};
use crate::launch;
use crate::pedrokv::{PUT, request};

#[test]
fn changes_behind_the_copy_come_in_order() {
    let server = primary();
    let mut c = server.connect();
    c.check("SET before 1", "+OK");
    let mut replica = Replica::new(&server);
    c.check("SET a 1", "+OK");
    c.check("INCRBY a 4", ":5");
    c.check("SELECT 3", "+OK");
    c.check("SET b 2 PXAT 99999999999999", "+OK");
    c.check("DEL b", ":1");
    c.check("SELECT 0", "+OK");
    c.check("DEL a", ":1");
    let expected = [
        "SELECT 0",
        "SET a 1",
        "SET a 5",
        "SELECT 3",
        "SET b 2 PXAT 99999999999999",
        "DEL b",
        "SELECT 0",
        "DEL a",
    ];
    assert_eq!(replica.commands_until("DEL a"), expected);
}

#[test]
fn one_that_comes_back_goes_on_at_any_byte() {
    let server = primary();
    let mut c = server.connect();
    let mut replica = Replica::new(&server);
    let begin = replica.offset;
    c.check("SET a 1", "+OK");
    c.check("SET b 22", "+OK");
    c.check("SET last 1", "+OK");
    replica.commands_until("SET last 1");
    let length = replica.offset - begin;
    let mut whole = None;
    for cut in 0..=length {
        replica.offset = begin + cut;
        let told = replica.come_back(&server);
        assert_eq!(told, format!("+CONTINUE {}", replica.id));
        let rest = replica.connection.read_exactly((length - cut) as usize);
        let whole = whole.get_or_insert_with(|| rest.clone());
        assert_eq!(rest, whole[cut as usize..], "after {cut} bytes");
    }
    replica.offset = begin + length + 1;
    assert!(replica.come_back(&server).starts_with("+FULLRESYNC "), "it is ahead");
    replica.id = "x".repeat(40);
    replica.offset = begin;
    assert!(replica.come_back(&server).starts_with("+FULLRESYNC "), "it has another stream");
}

#[test]
fn what_the_backlog_has_lost_needs_a_copy() {
    let server =
        launch().with("repl-diskless-sync-delay", "0").with("repl-backlog-size", "16kb").start();
    let mut c = server.connect();
    let mut replica = Replica::new(&server);
    let before = replica.offset;
    let value = "v".repeat(10_000);
    for number in 0..20 {
        c.check(&format!("SET key:{number} {value}"), "+OK");
    }
    c.check("SET last 1", "+OK");
    replica.commands_until("SET last 1");
    let end = replica.offset;
    assert!(replica.come_back(&server).starts_with("+CONTINUE "));
    replica.offset = before;
    assert!(replica.come_back(&server).starts_with("+FULLRESYNC "));
    c.check("CONFIG SET repl-backlog-size 1mb", "+OK");
    replica.offset = end;
    assert!(replica.come_back(&server).starts_with("+CONTINUE "), "the past is not dropped");
}

#[test]
fn a_replica_that_reads_nothing_is_dropped_and_holds_no_writer_up() {
    let server = launch()
        .with("repl-diskless-sync-delay", "0")
        .with("client-output-buffer-limit", "replica 4mb 0 0")
        .start();
    let mut c = server.connect();
    let replica = Replica::new(&server);
    // Its socket buffers hold some megabytes.
    let value = "v".repeat(1_000_000);
    let mut writes = 0;
    wait_until("it is dropped", || {
        writes += 1;
        c.check(&format!("SET key:{} {value}", writes % 7), "+OK");
        info(&mut c, "connected_slaves") == "0"
    });
    drop(replica);
    assert!(Replica::new(&server).offset > 0, "the next one is served");
}

#[test]
fn wait_counts_the_replicas_that_confirm() {
    let server = primary();
    let mut c = server.connect();
    let (mut first, mut second) = (Replica::new(&server), Replica::new(&server));
    c.check("SET a 1", "+OK");
    c.check("WAIT 2 20", ":0");
    c.send("WAIT 1 0\r\n");
    for asked in 1.. {
        // The first WAIT has also requested an acknowledgement.
        first.commands_until("REPLCONF GETACK *");
        if asked == 2 {
            break;
        }
    }
    first.acknowledge();
    c.expect(":1");
    c.send("WAIT 2 0\r\n");
    second.commands_until("REPLCONF GETACK *");
    second.commands_until("REPLCONF GETACK *");
    second.acknowledge();
    c.expect(":2");
    c.check("WAIT 0 0", ":2");
    c.check("MULTI", "+OK");
    c.check("SET a 2", "+QUEUED");
    c.check("WAIT 2 0", "+QUEUED");
    assert_eq!(c.ask("EXEC").items().len(), 2, "it does not wait in a transaction");
    c.check("WAIT 1 -1", "-ERR timeout is negative");
    c.check("WAIT x 1", "-ERR value is not an integer or out of range");
}

#[test]
fn a_client_that_waits_for_replicas_can_be_unblocked_and_may_leave() {
    let server = primary();
    let mut c = server.connect();
    let mut waiting = server.connect();
    let id = waiting.ask("CLIENT ID").int();
    waiting.check("SET a 1", "+OK");
    for (how, expected) in
        [("TIMEOUT", ":0"), ("ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK")]
    {
        waiting.send("WAIT 1 0\r\n");
        wait_until("it is unblocked", || c.ask(&format!("CLIENT UNBLOCK {id} {how}")).int() == 1);
        waiting.expect(expected);
    }
    waiting.send("WAIT 1 0\r\n");
    wait_until("it waits", || c.ask("INFO clients").text().contains("blocked_clients:1"));
    drop(waiting);
    wait_until("it is forgotten", || c.ask("INFO clients").text().contains("blocked_clients:0"));
}

#[test]
fn waitaof_counts_what_replicas_have_on_disk() {
    let server = launch().with("repl-diskless-sync-delay", "0").with("appendonly", "yes").start();
    let mut c = server.connect();
    let mut replica = Replica::new(&server);
    c.check("SET a 1", "+OK");
    c.send("WAITAOF 1 1 0\r\n");
    replica.commands_until("REPLCONF GETACK LOGGED");
    replica.acknowledge();
    assert!(c.is_silent_for(Duration::from_millis(20)), "it is not on the replica's disk");
    replica.connection.send(format!("REPLCONF ACK {0} FACK {0}\r\n", replica.offset));
    let reply = c.reply();
    assert_eq!(reply.items().iter().map(Reply::int).collect::<Vec<_>>(), [1, 1]);
    c.check("SET a 2", "+OK");
    let reply = c.ask("WAITAOF 0 1 20");
    assert_eq!(reply.items()[1].int(), 0);
}

#[test]
fn writes_need_as_many_replicas_as_the_configuration_says() {
    const REFUSED: &str = "-NOREPLICAS Not enough good replicas to write.";
    let server =
        launch().with("repl-diskless-sync-delay", "0").with("min-replicas-to-write", "1").start();
    let mut c = server.connect();
    c.check("SET a 1", REFUSED);
    c.check("GET a", "nil");
    // The memory check comes first, as in Redis.
    c.check("CONFIG SET maxmemory 1", "+OK");
    for line in ["SET a 1", "EVAL '#!lua\nreturn 1' 0"] {
        let refused = c.ask(line).to_string();
        assert!(refused.starts_with("-OOM "), "{refused}");
    }
    c.check("DEL a", REFUSED);
    c.check("CONFIG SET maxmemory 0", "+OK");
    let script = "return redis.pcall('SET', KEYS[1], '1').err";
    let refused = c.call(&["EVAL", script, "1", "a"]);
    assert_eq!(format!("-{}", refused.text()), REFUSED);
    let mut replica = Replica::new(&server);
    wait_until("it counts", || c.ask("SET a 1").to_string() == "+OK");
    assert_eq!(info(&mut c, "min_slaves_good_slaves"), "1");
    replica.commands_until("SET a 1");
    c.check("CONFIG SET min-replicas-to-write 2", "+OK");
    c.check("SET a 2", REFUSED);
    c.check("CONFIG SET min-replicas-to-write 1", "+OK");
    c.check("SET a 2", "+OK");
    drop(replica);
    wait_until("it is missed", || c.ask("SET a 3").to_string() == REFUSED);
    c.check("CONFIG SET min-replicas-to-write 0", "+OK");
    c.check("SET a 4", "+OK");
}

#[test]
fn other_protocols_refuse_writes_as_well() {
    let few = || launch().with("min-replicas-to-write", "1");
    let memcached = Both::start(few(), "memcached-port");
    memcached.check(
        b"set a 0 0 1\r\n1\r\nget a\r\n",
        b"SERVER_ERROR not enough good replicas to write\r\nEND\r\n",
    );
    let pedrokv = Both::start(few(), "pedrokv-port");
    let reply = pedrokv.talk([&*request(PUT, 1, b"a", b"1")]);
    let text = String::from_utf8_lossy(&reply);
    assert!(text.contains("not enough good replicas"), "{text}");
}

#[test]
fn what_a_primary_says_of_its_replicas() {
    let server = primary();
    let mut c = server.connect();
    let mut replica = Replica::new(&server);
    c.check("SET a 1", "+OK");
    replica.commands_until("SET a 1");
    replica.acknowledge();
    let offset = replica.offset;
    wait_until("it has confirmed", || info(&mut c, "slave0").contains(&format!("offset={offset}")));
    let line = format!("ip=127.0.0.1,port=6380,state=online,offset={offset},lag=");
    assert!(info(&mut c, "slave0").starts_with(&line));
    assert_eq!(info(&mut c, "connected_slaves"), "1");
    assert_eq!(info(&mut c, "master_replid"), replica.id);
    assert_eq!(info(&mut c, "repl_backlog_active"), "1");
    let role = c.ask("ROLE");
    assert_eq!(role.items()[0].text(), "master");
    let of_replica: Vec<_> = role.items()[2].items()[0].items().iter().map(Reply::text).collect();
    assert_eq!(of_replica, ["127.0.0.1", "6380", &offset.to_string()]);
    drop(replica);
    wait_until("it is gone", || info(&mut c, "connected_slaves") == "0");
}

#[test]
fn replicas_hear_messages_and_signs_of_life() {
    let server = launch()
        .with("repl-diskless-sync-delay", "0")
        .with("repl-ping-replica-period", "1")
        .start();
    let mut c = server.connect();
    let mut replica = Replica::new(&server);
    c.check("PUBLISH news hello", ":0");
    c.check("SPUBLISH shard hello", ":0");
    let heard = replica.commands_until("SPUBLISH shard hello");
    assert!(heard.contains(&"PUBLISH news hello".to_owned()), "{heard:?}");
    replica.commands_until("PING");
}

#[test]
fn messages_of_scripts_and_transactions_come_behind_what_they_tell_of() {
    let server = primary();
    let mut c = server.connect();
    let mut replica = Replica::new(&server);
    let script = "redis.call('set', KEYS[1], 1) return redis.call(ARGV[1], 'news', KEYS[1])";
    let library =
        format!("#!lua name=l\nredis.register_function('tell', function(KEYS, ARGV) {script} end)");
    assert_eq!(c.call(&["FUNCTION", "LOAD", &library]).text(), "l");
    let mut check = |key: &str, name: &str, calls: &[&[&str]]| {
        for call in calls {
            let reply = c.call(call).to_string();
            assert!(!reply.contains("ERR"), "{reply}");
        }
        let heard = replica.commands_until(&format!("{name} news {key}"));
        assert!(heard.contains(&format!("SET {key} 1")), "{heard:?}");
    };
    check("a", "PUBLISH", &[&["EVAL", script, "1", "a", "publish"]]);
    check("b", "SPUBLISH", &[&["EVAL", script, "1", "b", "spublish"]]);
    check("c", "PUBLISH", &[&["FCALL", "tell", "1", "c", "publish"]]);
    let (begin, end): (&[&str], &[&str]) = (&["MULTI"], &["EXEC"]);
    check("d", "PUBLISH", &[begin, &["SET", "d", "1"], &["PUBLISH", "news", "d"], end]);
    check("e", "PUBLISH", &[begin, &["EVAL", script, "1", "e", "publish"], end]);
    // In one packet.
    for name in ["PUBLISH", "SPUBLISH"] {
        let packet = [encode(&["SET", name, "1"]), encode(&[name, "news", name])].concat();
        c.send(packet);
        c.expect("+OK");
        c.expect(":0");
        let heard = replica.commands_until(&format!("{name} news {name}"));
        assert!(heard.contains(&format!("SET {name} 1")), "{heard:?}");
    }
}

/// A transaction's message comes before the messages of all later changes of its keys.
#[test]
fn messages_of_scripts_follow_the_order_of_their_changes() {
    const WRITERS: usize = 4;
    const ROUNDS: usize = 200;
    let server = launch().with("repl-diskless-sync-delay", "0").with("threads", "4").start();
    let mut replica = Replica::new(&server);
    let script = "local n = redis.call('incr', KEYS[1]) redis.call('incr', KEYS[2]) \
                  redis.call('publish', 'c', n)";
    let eval = encode(&["EVAL", script, "2", "a", "b"]);
    let packet = [encode(&["MULTI"]), eval.clone(), encode(&["EXEC"]), eval].concat();
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                let mut c = server.connect();
                for _ in 0..ROUNDS {
                    c.send(&packet[..]);
                    ["+OK", "+QUEUED", "[nil]", "nil"].iter().for_each(|reply| c.expect(reply));
                }
            });
        }
    });
    server.connect().check("SET end 1", "+OK");
    let heard = replica.commands_until("SET end 1");
    let numbers = heard.iter().filter_map(|command| command.strip_prefix("PUBLISH c "));
    let numbers: Vec<usize> = numbers.map(|number| number.parse().expect("a number")).collect();
    assert!(numbers.iter().copied().eq(1..=2 * WRITERS * ROUNDS), "{numbers:?}");
}

/// It leaves the worker, and starts again on another thread.
#[test]
fn a_message_for_many_patterns_comes_once() {
    let server = primary();
    let mut c = server.connect();
    let mut replica = Replica::new(&server);
    let mut subscriber = server.connect();
    let channel = "a".repeat(200);
    let patterns: Vec<String> = (0..2_000).map(|n| format!("a*a*{n}")).collect();
    let command: Vec<&str> =
        std::iter::once("PSUBSCRIBE").chain(patterns.iter().map(String::as_str)).collect();
    subscriber.request(&command);
    patterns.iter().for_each(|_| drop(subscriber.reply()));
    c.check(&format!("PUBLISH {channel} m"), ":0");
    c.check("SET last 1", "+OK");
    let heard = replica.commands_until("SET last 1");
    assert_eq!(heard.iter().filter(|command| command.starts_with("PUBLISH")).count(), 1);
}

#[test]
fn without_replicas_the_stream_ends_after_its_time() {
    let server =
        launch().with("repl-diskless-sync-delay", "0").with("repl-backlog-ttl", "1").start();
    let mut c = server.connect();
    let mut replica = Replica::new(&server);
    let id = replica.id.clone();
    replica.connection = server.connect();
    wait_until("it ends", || info(&mut c, "repl_backlog_active") == "0");
    assert_ne!(info(&mut c, "master_replid"), id);
    assert!(replica.come_back(&server).starts_with("+FULLRESYNC "));
}

#[test]
fn a_server_that_comes_back_knows_which_database_was_selected() {
    let server = primary();
    let mut c = server.connect();
    let replica = launch().with("replicaof", &format!("127.0.0.1 {}", server.port())).start();
    let mut r = replica.connect();
    c.check("SELECT 3", "+OK");
    r.check("SELECT 3", "+OK");
    c.check("SET a 1", "+OK");
    wait_until("it follows", || c.ask("WAIT 1 100").int() == 1);
    c.check("CLIENT KILL TYPE replica", ":1");
    c.check("SET b 1", "+OK");
    wait_until("it has come back", || c.ask("WAIT 1 100").int() == 1);
    assert_same(&mut c, &mut r);
    r.check("DBSIZE", ":2");
    let log = replica.output() + &replica.errors();
    assert!(log.contains("The stream goes on"), "{log}");
}

#[test]
fn two_servers_have_the_same_contents_after_random_writes() {
    for appendonly in ["yes", "no"] {
        let server =
            launch().with("repl-diskless-sync-delay", "0").with("appendonly", appendonly).start();
        let mut random = Random::new(7);
        let mut c = server.connect();
        let mut write = |c: &mut Connection, count: usize| {
            for _ in 0..count {
                let key = random.below(20);
                let number = random.below(1000);
                let command = random.pick(WRITES);
                let command =
                    command.replace('K', &key.to_string()).replace('N', &number.to_string());
                c.ask(&command);
            }
        };
        write(&mut c, 100);
        let replica = launch().with("replicaof", &format!("127.0.0.1 {}", server.port())).start();
        let mut r = replica.connect();
        write(&mut c, 300);
        wait_until("the link is up", || info(&mut r, "master_link_status") == "up");
        for _ in 0..3 {
            write(&mut c, 100);
            c.ask("CLIENT KILL TYPE replica");
            write(&mut c, 100);
            wait_until("it has all", || c.ask("WAIT 1 100").int() == 1);
            assert_same(&mut c, &mut r);
        }
        let bytes = |c: &mut Connection, name: &str| info(c, name).parse::<u64>().expect("bytes");
        let sent = bytes(&mut c, "total_net_repl_output_bytes");
        let received = bytes(&mut r, "total_net_repl_input_bytes");
        assert!(sent > 10_000 && received > 10_000, "{sent} {received}");
    }
}

#[test]
fn the_rest_of_the_stream_needs_no_word_on_full_copies() {
    let server = primary();
    let mut c = server.connect();
    let mut replica = Replica::new(&server);
    c.check("SET k v", "+OK");
    replica.commands_until("SET k v");
    c.check("SET k w", "+OK");
    assert_eq!(replica.come_back_plainly(&server), "+CONTINUE");
    replica.commands_until("SET k w");
    replica.offset += 1_000_000;
    let refused = replica.come_back_plainly(&server);
    assert!(refused.contains("REPLCONF capa eof"), "{refused}");
}

/// As in Redis, whatever the stream does next.
#[test]
fn a_client_that_waits_on_a_replica_gets_what_comes_and_goes() {
    let server = primary();
    let mut c = server.connect();
    let replica = launch().with("replicaof", &format!("127.0.0.1 {}", server.port())).start();
    let (mut waiting, mut other) = (replica.connect(), replica.connect());
    wait_until("the link is up", || info(&mut other, "master_link_status") == "up");
    for round in 1..20 {
        waiting.send("XREAD BLOCK 0 STREAMS s $\r\n");
        wait_until("it waits", || other.ask("INFO clients").text().contains("blocked_clients:1"));
        c.send(format!("XADD s {round}-1 a b\r\nDEL s\r\n"));
        c.expect(&format!("\"{round}-1\""));
        c.expect(":1");
        waiting.expect(&format!("[[\"s\", [[\"{round}-1\", [\"a\", \"b\"]]]]]"));
    }
}
