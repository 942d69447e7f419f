//! Replies to writes that wait for replicas: acknowledged writes survive the loss of the primary.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::Signal;
use tierce_harness::{Both, Connection, Random, Reply, wait_until};

use super::{end, primary, replica_of, wait_for_link};
use crate::pedrokv::{PUT, request};
use crate::replication::fake_replica::Replica;

const NO_REPLICAS: &str = "-NOREPLICAS Not enough good replicas to write.";

/// Returns the number of requests for acknowledgement in these commands.
fn asked(commands: &[String]) -> usize {
    commands.iter().filter(|command| command.starts_with("REPLCONF GETACK")).count()
}

#[test]
fn replies_wait_until_replicas_have_the_writes() {
    for (appendonly, fsync) in [("no", "no"), ("yes", "everysec"), ("yes", "always")] {
        let server = primary().with("appendonly", appendonly).with("appendfsync", fsync).start();
        let mut c = server.connect();
        c.check("CLIENT DURABILITY replicas:1", "+OK");
        c.check("SET a 0", NO_REPLICAS);
        // Commands and calls of programs use one check.
        let (script, declared) = ("redis.call('SET', 'a', 0)", "#!lua\nredis.call('SET', 'a', 0)");
        // A program that declares its flags is not even queued.
        for (script, queued, executed) in
            [(script, "+QUEUED", "[-NOREPLICAS"), (declared, "-NOREPLICAS", "-EXECABORT")]
        {
            let reply = c.call(&["EVAL", script, "1", "a"]).to_string();
            assert!(reply.starts_with("-NOREPLICAS"), "{reply}");
            c.check("MULTI", "+OK");
            let reply = c.call(&["EVAL", script, "1", "a"]).to_string();
            assert!(reply.starts_with(queued), "{reply}");
            let reply = c.ask("EXEC").to_string();
            assert!(reply.starts_with(executed), "{reply}");
        }
        c.check("GET a", "nil");
        let mut replica = Replica::new(&server);
        c.send("SET a 1\r\nGET a\r\nSET b 2\r\nMULTI\r\nINCR a\r\nEXEC\r\nPING\r\nECHO x\r\n");
        replica.commands_until("REPLCONF GETACK *");
        assert!(c.is_silent_for(Duration::from_millis(20)), "{appendonly}");
        replica.acknowledge();
        for expected in ["+OK", "\"1\"", "+OK", "+OK", "+QUEUED", "[:2]", "+PONG", "\"x\""] {
            c.expect(expected);
        }
        // Writes at another level, and reads, do not wait.
        c.check("CLIENT DURABILITY no replicas:0", "+OK");
        c.check("SET a 3", "+OK");
        c.check("CLIENT DURABILITY default", "+OK");
        c.check("DEL b", ":1");
    }
}

#[test]
fn replies_behind_a_muted_write_wait_for_it() {
    let server = primary().start();
    let mut replica = Replica::new(&server);
    let mut c = server.connect();
    c.check("CLIENT DURABILITY replicas:1", "+OK");
    c.send("CLIENT REPLY SKIP\r\nSET a 1\r\nGET a\r\n");
    replica.commands_until("REPLCONF GETACK *");
    assert!(c.is_silent_for(Duration::from_millis(20)), "SKIP");
    replica.acknowledge();
    c.expect("\"1\"");
    c.send("CLIENT REPLY OFF\r\nSET a 2\r\nCLIENT REPLY ON\r\nGET a\r\n");
    replica.commands_until("REPLCONF GETACK *");
    assert!(c.is_silent_for(Duration::from_millis(20)), "OFF");
    replica.acknowledge();
    c.expect("+OK");
    c.expect("\"2\"");
    // A client without replies is not told that a write was not confirmed in time.
    c.check("CONFIG SET durability-replicas-timeout 50", "+OK");
    c.send("CLIENT REPLY SKIP\r\nSET a 3\r\nGET a\r\n");
    c.expect("\"3\"");
}

#[test]
fn replies_behind_a_muted_long_write_wait_for_it() {
    let server = primary().start();
    let mut c = server.connect();
    let members: Vec<String> = (0..30_000).map(|number| number.to_string()).collect();
    let words: Vec<&str> = ["SADD", "s"].into_iter().chain(members.iter().map(|m| &**m)).collect();
    assert_eq!(c.call(&words).int(), 30_000);
    let mut replica = Replica::new(&server);
    c.check("CLIENT DURABILITY replicas:1", "+OK");
    c.send("CLIENT REPLY OFF\r\nSUNIONSTORE d s\r\nCLIENT REPLY ON\r\nSCARD d\r\n");
    replica.commands_until("REPLCONF GETACK *");
    assert!(c.is_silent_for(Duration::from_millis(50)));
    replica.acknowledge();
    c.expect("+OK");
    c.expect(":30000");
}

#[test]
fn a_pipeline_asks_replicas_once_a_batch() {
    let server = primary().with("durability-replicas", "1").start();
    let mut replica = Replica::new(&server);
    let mut c = server.connect();
    let count = 100;
    let lines: String = (0..count).map(|number| format!("SET key:{number} 1\r\n")).collect();
    c.send(lines);
    let mut commands = Vec::new();
    while asked(&commands) == 0 {
        commands.push(replica.command());
    }
    let sets = commands.iter().filter(|command| command.starts_with("SET")).count();
    // The pipeline may have come in two pieces.
    assert!(sets >= count / 2, "{sets}");
    replica.acknowledge();
    while sets < count && asked(&commands) == 1 {
        commands.push(replica.command());
    }
    replica.acknowledge();
    (0..count).for_each(|_| c.expect("+OK"));
}

#[test]
fn a_write_that_is_not_confirmed_in_time_says_so() {
    let server = primary().with("durability-replicas-timeout", "50").start();
    let mut replica = Replica::new(&server);
    let mut c = server.connect();
    c.check("CLIENT DURABILITY REPLICAS-LOGGED:2", "+OK");
    c.send("SET a 1\r\nGET a\r\nSET a 2 NX\r\nINCRBY a 4\r\n");
    const ERROR: &str = "-UNCONFIRMED The write is done on this server, but the logs of 2 replicas have not \
                         confirmed it in time";
    c.expect(ERROR);
    c.expect("\"1\"");
    c.expect("nil");
    c.expect(ERROR);
    c.check("GET a", "\"5\"");
    c.check("CLIENT DURABILITY replicas:1 replicas:2", "-ERR syntax error");
    c.check("CLIENT DURABILITY default always", "-ERR syntax error");
    c.check("CLIENT DURABILITY replicas:x", "-ERR syntax error");
    c.check("CLIENT DURABILITY replicas-logged:1", "+OK");
    c.check("CONFIG SET durability-replicas-timeout 100000", "+OK");
    c.send("SET a 3\r\n");
    while !replica.command().starts_with("SET a 3") {}
    replica.commands_until("REPLCONF GETACK LOGGED");
    replica.acknowledge();
    assert!(c.is_silent_for(Duration::from_millis(20)), "it is only received");
    replica.connection.send(format!("REPLCONF ACK {0} FACK {0}\r\n", replica.offset));
    c.expect("+OK");
    // An operator ends the wait.
    let id = c.ask("CLIENT ID").int();
    c.send("SET a 4\r\n");
    let mut other = server.connect();
    wait_until("it is unblocked", || other.ask(&format!("CLIENT UNBLOCK {id}")).int() == 1);
    assert!(c.reply().to_string().starts_with("-UNCONFIRMED"));
    assert!(other.ask("INFO errorstats").text().contains("errorstat_UNCONFIRMED:"));
}

#[test]
fn replies_of_commands_that_waited_or_ran_elsewhere_wait_for_replicas_too() {
    for appendonly in ["yes", "no"] {
        let server = primary().with("appendonly", appendonly).start();
        let mut replica = Replica::new(&server);
        let (mut c, mut other) = (server.connect(), server.connect());
        c.check("CLIENT DURABILITY replicas:1", "+OK");
        c.send("SET before 1\r\nBLPOP list 0\r\nSET after 1\r\n");
        replica.commands_until("REPLCONF GETACK *");
        replica.acknowledge();
        c.expect("+OK");
        wait_until("it waits", || other.ask("INFO clients").text().contains("blocked_clients:1"));
        other.check("RPUSH list a", ":1");
        replica.commands_until("REPLCONF GETACK *");
        assert!(c.is_silent_for(Duration::from_millis(20)));
        replica.acknowledge();
        c.expect("[\"list\", \"a\"]");
        replica.commands_until("REPLCONF GETACK *");
        replica.acknowledge();
        c.expect("+OK");
        // A script and its log.
        c.request(&["EVAL", "redis.call('SET', KEYS[1], '1') return {1, 2}", "1", "k"]);
        replica.commands_until("REPLCONF GETACK *");
        replica.acknowledge();
        c.expect("[:1, :2]");
        // It disconnects while it waits.
        c.send("SET last 1\r\n");
        replica.commands_until("REPLCONF GETACK *");
        drop(c);
        other.check("GET last", "\"1\"");
    }
}

#[test]
fn writes_of_other_protocols_wait_for_replicas() {
    let launch = primary().with("durability-replicas", "1").with("appendonly", "yes");
    let both = Both::start(launch, "memcached-port");
    let mut replica = Replica::new(&both.server);
    let mut admin = both.server.connect();
    let mut c = Connection::tcp(both.connect().peer_addr().expect("an address"));
    c.send("set a 0 0 1\r\n1\r\nget a\r\nset b 0 0 1\r\n2\r\n");
    replica.commands_until("REPLCONF GETACK *");
    assert!(c.is_silent_for(Duration::from_millis(20)));
    replica.acknowledge();
    let expected = b"STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\nSTORED\r\n";
    assert_eq!(c.read_exactly(expected.len()), expected);
    admin.check("CONFIG SET durability-replicas-timeout 50", "+OK");
    c.send("set a 0 0 1\r\n3\r\n");
    assert_eq!(c.rest(), b"", "it ends without a reply");
    admin.check("CONFIG SET durability-replicas-timeout 100000", "+OK");

    let launch = primary().with("durability-replicas", "1");
    let both = Both::start(launch, "pedrokv-port");
    let mut replica = Replica::new(&both.server);
    let mut c = Connection::tcp(both.connect().peer_addr().expect("an address"));
    c.send(request(PUT, 1, b"key", b"value"));
    replica.commands_until("REPLCONF GETACK *");
    assert!(c.is_silent_for(Duration::from_millis(20)));
    replica.acknowledge();
    // A reply of the kind Ok to request 1.
    assert_eq!(c.read_exactly(7)[3..], [0, 0, 0, 1]);
}

#[test]
fn a_connection_that_ends_has_its_replies_first() {
    for fsync in ["no", "always"] {
        let launch = primary().with("durability-replicas", "1").with("appendfsync", fsync);
        let launch = launch.with("durability-replicas-timeout", "100000");
        let both = Both::start(launch.with("appendonly", "yes"), "memcached-port");
        let mut replica = Replica::new(&both.server);
        let mut c = both.server.connect();
        c.send("SET a 1\r\nQUIT\r\n");
        replica.commands_until("REPLCONF GETACK *");
        replica.acknowledge();
        c.expect("+OK");
        c.expect("+OK");
        c.expect_closed();
        let mut c = Connection::tcp(both.connect().peer_addr().expect("an address"));
        c.send("set a 0 0 1\r\n1\r\nquit\r\n");
        replica.commands_until("REPLCONF GETACK *");
        replica.acknowledge();
        assert_eq!(c.rest(), b"STORED\r\n", "{fsync}");
    }
}

#[test]
fn waitaof_counts_replicas_that_are_servers() {
    let server = primary().with("appendonly", "yes").start();
    let mut c = server.connect();
    // Its own log is on disk within a second, and may be already.
    let replicas = |c: &mut Connection, line: &str| c.ask(line).items().last().map(Reply::int);
    let logged = replica_of(&server).with("appendonly", "yes").start();
    wait_for_link(&mut logged.connect());
    for number in 0..5 {
        c.check(&format!("SET a {number}"), "+OK");
        assert_eq!(replicas(&mut c, "WAITAOF 0 1 0"), Some(1));
        c.check("WAITAOF 1 1 0", "[:1, :1]");
    }
    c.check("CLIENT DURABILITY no replicas-logged:1", "+OK");
    c.check("SET a 7", "+OK");
    let unlogged = replica_of(&server).with("appendonly", "no").start();
    wait_for_link(&mut unlogged.connect());
    wait_until("both follow", || c.ask("WAIT 2 100").int() == 2);
    c.check("SET a 8", "+OK");
    assert_eq!(replicas(&mut c, "WAITAOF 0 1 0"), Some(1));
    assert_eq!(replicas(&mut c, "WAITAOF 0 2 50"), Some(1));
}

/// Writes keys in pipelines until the server ends. Returns the number of acknowledged writes.
fn write_until_the_end(mut socket: TcpStream, level: &str, writer: usize, depth: usize) -> usize {
    let mut replies = BufReader::new(socket.try_clone().expect("a descriptor"));
    let mut is_ok = move || {
        let mut line = String::new();
        replies.read_line(&mut line).is_ok() && line == "+OK\r\n"
    };
    write!(socket, "CLIENT DURABILITY {level}\r\n").expect("sent");
    assert!(is_ok());
    let mut acknowledged = 0;
    loop {
        let keys = acknowledged..acknowledged + depth;
        let lines: String = keys.map(|at| format!("SET w{writer}:{at} 1\r\n")).collect();
        if socket.write_all(lines.as_bytes()).is_err() {
            return acknowledged;
        }
        for _ in 0..depth {
            if !is_ok() {
                return acknowledged;
            }
            acknowledged += 1;
        }
    }
}

/// Clients write at a level until the primary is killed. The replica has all acknowledged writes.
fn acknowledged_writes_survive(seed: u64, level: &str) {
    let mut random = Random::new(seed);
    let appendonly = ["yes", "no"][random.below(2)];
    let server = primary().with("appendonly", appendonly).start();
    let replica = replica_of(&server).with("appendonly", "yes").start();
    let mut r = replica.connect();
    wait_for_link(&mut r);
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let (socket, depth) = (server.connect().sender(), 1 + random.below(8));
            let level = level.to_owned();
            std::thread::spawn(move || (writer, write_until_the_end(socket, &level, writer, depth)))
        })
        .collect();
    let keys = 100 + random.below(400) as i64;
    wait_until("there is something to lose", || r.ask("DBSIZE").int() > keys);
    end(server, Signal::KILL);
    // The replica applies received commands before it notices the end of the link.
    let written: Vec<_> =
        writers.into_iter().map(|writer| writer.join().expect("it ends")).collect();
    r.check("REPLICAOF NO ONE", "+OK");
    for (writer, acknowledged) in written {
        assert!(acknowledged > 0);
        for at in 0..acknowledged {
            r.check(&format!("EXISTS w{writer}:{at}"), ":1");
        }
    }
}

#[test]
fn what_a_replica_has_confirmed_survives_the_loss_of_the_primary() {
    for seed in 0..4 {
        acknowledged_writes_survive(seed, "replicas:1");
        acknowledged_writes_survive(seed, "no replicas-logged:1");
    }
}
