//! Replicas of replicas, and partial resynchronization after role changes: no full copy if the streams are equal.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use tierce_harness::{
    Connection, Launch, Random, Server, TempDir, effort, encode, takes_up_to_seconds, wait_until,
};

use super::fake_primary::{ID, OTHER_ID, Primary, file_that_says, stream};
use super::fake_replica::{Replica, line};
use super::replica::wait_for_log;
use super::{WRITES, assert_same, info};
use crate::launch;

/// Makes a launch that adds nothing to its stream on its own, and begins copies at once.
fn quiet() -> Launch {
    launch().with("repl-diskless-sync-delay", "0").with("repl-ping-replica-period", "3600")
}

fn quiet_replica(of: &Server) -> Launch {
    quiet().with("replicaof", &format!("127.0.0.1 {}", of.port()))
}

fn follow(replica: &Server, primary: &Server) {
    let mut c = replica.connect();
    let told = c.ask(&format!("REPLICAOF 127.0.0.1 {}", primary.port())).to_string();
    assert!(told.starts_with("+OK"), "{told}");
}

/// Waits until all these servers are at the same offset of one stream.
#[track_caller]
fn wait_for_same_stream(servers: &[&Server]) {
    let mut last = Vec::new();
    let mut connections: Vec<_> = servers.iter().map(|server| server.connect()).collect();
    let names = ["master_replid", "master_repl_offset"];
    let mut look = || {
        last = connections.iter_mut().map(|c| names.map(|name| info(c, name))).collect();
        last.windows(2).all(|pair| pair[0] == pair[1])
    };
    wait_until("all have the same stream", &mut look);
    for server in &servers[1..] {
        wait_until("the link is up", || info(&mut server.connect(), "master_link_status") == "up");
    }
}

#[track_caller]
fn assert_all_same(servers: &[&Server]) {
    let mut first = servers[0].connect();
    for other in &servers[1..] {
        assert_same(&mut first, &mut other.connect());
    }
}

fn full_copies_for(server: &Server) -> u64 {
    info(&mut server.connect(), "sync_full").parse().expect("a number")
}

fn write_some(c: &mut Connection, random: &mut Random, count: usize) {
    for _ in 0..count {
        let command = random.pick(WRITES).replace('K', &random.below(20).to_string());
        c.ask(&command.replace('N', &random.below(1000).to_string()));
    }
}

#[test]
fn all_of_a_chain_have_the_same_stream_and_contents() {
    for appendonly in ["no", "yes"] {
        let first = quiet().with("appendonly", appendonly).start();
        let mut c = first.connect();
        let mut random = Random::new(11);
        write_some(&mut c, &mut random, 100);
        let second = quiet_replica(&first).with("appendonly", appendonly).start();
        let third = quiet_replica(&second).with("appendonly", appendonly).start();
        let chain = [&first, &second, &third];
        // An earlier disconnect would cause another copy.
        wait_for_same_stream(&chain);
        for round in 0..6 {
            write_some(&mut c, &mut random, 100);
            if round == 2 {
                wait_for_same_stream(&chain);
            }
            let cut = [&first, &second][round % 2];
            cut.connect().ask("CLIENT KILL TYPE replica");
            write_some(&mut c, &mut random, 100);
        }
        c.check("SELECT 3", "+OK");
        c.check("MSET a 1 b 2", "+OK");
        wait_for_same_stream(&chain);
        assert_all_same(&chain);
        let mut third = third.connect();
        third.check("SELECT 3", "+OK");
        third.check("MGET a b", r#"["1", "2"]"#);
        third.check("SET a 2", "-READONLY You can't write against a read only replica.");
        assert_eq!((full_copies_for(&first), full_copies_for(&second)), (1, 1));
        let mut second = second.connect();
        assert_eq!(info(&mut second, "connected_slaves"), "1");
        assert!(info(&mut second, "slave0").contains("state=online"));
        let told = second.ask("WAIT 1 0").to_string();
        assert!(told.starts_with("-ERR WAIT cannot be used with replica instances"), "{told}");
    }
}

#[test]
fn what_a_replica_passes_on_is_what_it_got() {
    let primary = Primary::new();
    let server = primary.replica().with("repl-diskless-sync-delay", "0").start();
    let select = encode(&["SELECT", "3"]);
    let mut link = primary.give_copy(100, &[("k", "v")]);
    link.send(&select);
    let mut end = 100 + select.len() as u64;
    link.wait_for(end);
    let mut replica = Replica::new(&server);
    assert_eq!((replica.id.as_str(), replica.offset), (ID, end));
    // Inline commands and empty lines are a part of the stream, and so are read commands.
    let odd = b"SET  a   1\r\n\r\nPING\r\n*1\r\n$4\r\nping\r\n".to_vec();
    let ask = encode(&["REPLCONF", "GETACK", "*"]);
    let begins = [encode(&["MULTI"]), encode(&["INCR", "n"])].concat();
    let whole =
        [begins.clone(), b"\r\n".to_vec(), encode(&["INCR", "n"]), encode(&["EXEC"])].concat();
    link.send([odd.clone(), ask.clone(), begins].concat());
    let before: Vec<u8> = [odd, ask].concat();
    assert_eq!(replica.connection.read_exactly(before.len()), before);
    end += before.len() as u64;
    // Disconnected in the middle of the transaction, of which nothing has been passed on.
    drop(link);
    let (mut link, psync) = primary.accept_until_psync();
    assert_eq!(psync, format!("PSYNC {ID} {}", end + 1));
    link.send("+CONTINUE\r\n");
    link.send(&whole);
    link.send(encode(&["SET", "b", "2"]));
    end += (whole.len() + encode(&["SET", "b", "2"]).len()) as u64;
    assert_eq!(replica.connection.read_exactly(whole.len()), whole);
    link.wait_for(end);
    let mut c = server.connect();
    c.check("SELECT 3", "+OK");
    c.check("MGET a n b", r#"["1", "2", "2"]"#);
    assert_eq!(info(&mut c, "master_repl_offset"), end.to_string());

    // Another id of the same stream: replicas have to reconnect to learn it, also after a restart.
    drop(link);
    let (mut link, _) = primary.accept_until_psync();
    link.send(format!("+CONTINUE {OTHER_ID}\r\n"));
    link.wait_for(end);
    replica.connection.rest();
    replica.offset = end;
    assert_eq!(replica.come_back(&server), format!("+CONTINUE {OTHER_ID}"));
}

#[test]
fn a_new_id_is_in_the_log() {
    let (primary, dir) = (Primary::new(), TempDir::new());
    let launch =
        primary.replica().with("appendonly", "yes").with("dir", &dir.path().display().to_string());
    let mut server = launch.start();
    drop(primary.give_copy(7, &[("k", "v")]));
    let (mut link, _) = primary.accept_until_psync();
    link.send(format!("+CONTINUE {OTHER_ID}\r\n"));
    link.wait_for(7);
    server.signal(Signal::KILL);
    server.wait_for_end();
    let _server = launch.start();
    assert_eq!(primary.accept_until_psync().1, format!("PSYNC {OTHER_ID} 8"));
}

#[test]
fn a_copy_of_a_replica_goes_on_in_the_database_that_is_selected() {
    let primary = Primary::new();
    let middle = primary.replica().with("repl-diskless-sync-delay", "0").start();
    let mut link = primary.give_copy(1, &[("k", "v")]);
    let (select, change) = (encode(&["SELECT", "3"]), encode(&["INCR", "n"]));
    link.send(&select);
    let end = 1 + select.len() as u64;
    link.wait_for(end);
    let last = quiet_replica(&middle).start();
    let mut c = last.connect();
    wait_until("the link is up", || info(&mut c, "master_link_status") == "up");
    link.send(&change);
    wait_until("it has all", || {
        info(&mut c, "master_repl_offset") == (end + change.len() as u64).to_string()
    });
    c.check("EXISTS n", ":0");
    c.check("SELECT 3", "+OK");
    c.check("GET n", "\"1\"");
}

#[test]
fn after_a_promotion_the_others_go_on_without_a_copy() {
    for in_transaction in [false, true] {
        let old = quiet().start();
        let (promoted, sibling) = (quiet_replica(&old).start(), quiet_replica(&old).start());
        let below = quiet_replica(&promoted).start();
        let mut c = old.connect();
        let mut random = Random::new(5);
        write_some(&mut c, &mut random, 200);
        wait_for_same_stream(&[&old, &promoted, &sibling, &below]);
        let mut p = promoted.connect();
        let (id, offset) = (info(&mut p, "master_replid"), info(&mut p, "master_repl_offset"));
        drop(old);
        if in_transaction {
            // As Sentinel does it.
            p.check("MULTI", "+OK");
            p.check("SLAVEOF NO ONE", "+QUEUED");
            p.check("CLIENT KILL TYPE normal", "+QUEUED");
            assert_eq!(p.ask("EXEC").items().len(), 2);
            p = promoted.connect();
        } else {
            p.check("REPLICAOF NO ONE", "+OK");
        }
        let next: u64 = offset.parse::<u64>().expect("a number") + 1;
        assert_eq!(info(&mut p, "master_replid2"), id);
        assert_eq!(info(&mut p, "second_repl_offset"), next.to_string());
        assert_ne!(info(&mut p, "master_replid"), id);
        write_some(&mut p, &mut random, 100);
        follow(&sibling, &promoted);
        write_some(&mut p, &mut random, 100);
        let all = [&promoted, &sibling, &below];
        wait_for_same_stream(&all);
        assert_all_same(&all);
        assert_eq!(full_copies_for(&promoted), 1, "that of the one below");
        // They are equivalent to any other primary's data now.
        sibling.connect().check("REPLICAOF NO ONE", "+OK");
        follow(&promoted, &sibling);
        write_some(&mut sibling.connect(), &mut random, 100);
        wait_for_same_stream(&[&sibling, &promoted, &below]);
        assert_all_same(&[&sibling, &promoted, &below]);
        assert_eq!((full_copies_for(&promoted), full_copies_for(&sibling)), (1, 0));
    }
}

#[test]
fn an_old_primary_goes_on_if_it_knows_no_more() {
    for is_ahead in [false, true] {
        let old = quiet().start();
        let (promoted, below) = (quiet_replica(&old).start(), quiet_replica(&old).start());
        let mut c = old.connect();
        let mut random = Random::new(3);
        write_some(&mut c, &mut random, 200);
        wait_for_same_stream(&[&old, &promoted, &below]);
        let mut p = promoted.connect();
        p.check("REPLICAOF NO ONE", "+OK");
        if is_ahead {
            c.check("SET lost 1", "+OK");
        }
        write_some(&mut p, &mut random, 100);
        follow(&old, &promoted);
        write_some(&mut p, &mut random, 100);
        let all = [&promoted, &old, &below];
        wait_for_same_stream(&all);
        assert_all_same(&all);
        c.check("EXISTS lost", ":0");
        assert_eq!(full_copies_for(&promoted), u64::from(is_ahead));
    }
}

#[test]
fn a_copy_in_the_middle_goes_all_the_way_down() {
    let (first, other) = (quiet().start(), quiet().start());
    first.connect().check("MSET a 1 b 2", "+OK");
    other.connect().check("MSET b 3 c 4", "+OK");
    let middle = quiet_replica(&first).start();
    let last = quiet_replica(&middle).start();
    wait_for_same_stream(&[&first, &middle, &last]);
    follow(&middle, &other);
    wait_for_same_stream(&[&other, &middle, &last]);
    other.connect().check("SET d 5", "+OK");
    wait_for_same_stream(&[&other, &middle, &last]);
    assert_all_same(&[&other, &middle, &last]);
    last.connect().check("EXISTS a", ":0");
    assert_eq!(full_copies_for(&middle), 2);
}

/// The primary decides about expiry: a command that keeps the key may come after the copy.
#[test]
fn a_copy_of_a_replica_has_what_is_over_and_still_there() {
    let primary = Primary::new();
    let middle = quiet().with("replicaof", &format!("127.0.0.1 {}", primary.port())).start();
    let mut c = middle.connect();
    let mut follower = primary.give_copy(0, &[]);
    let over_ms = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_millis() + 50;
    let mut sent = stream(&[
        &format!("SET k v PXAT {over_ms}"),
        "RPUSH l a b",
        &format!("PEXPIREAT l {over_ms}"),
    ]);
    follower.send(&sent);
    wait_until("both are over", || c.ask("EXISTS k l").int() == 0 && c.ask("DBSIZE").int() == 2);
    let last = quiet_replica(&middle).start();
    wait_until("it has a copy", || info(&mut last.connect(), "master_link_status") == "up");
    let rest = stream(&["PERSIST k", "RPUSH l c", "PERSIST l"]);
    follower.send(&rest);
    sent.extend(rest);
    follower.wait_for(sent.len() as u64);
    wait_until("the last one has it", || last.connect().ask("LLEN l").int() == 3);
    assert_all_same(&[&middle, &last]);
    c.check("GET k", "\"v\"");
}

/// A damaged file may name any position in a stream.
#[test]
fn a_place_that_no_stream_has_is_none() {
    let dir = TempDir::new();
    let says = [("repl-id", ID), ("repl-offset", "18446744073709551615")];
    let snapshot = file_that_says(&says, &[("k", "v")]);
    std::fs::write(dir.path().join("dump.rdb"), snapshot).expect("written");
    let first = quiet().with("dir", &dir.path().display().to_string()).start();
    let second = quiet_replica(&first).start();
    first.connect().check("SET a 1", "+OK");
    wait_until("it is there", || second.connect().ask("EXISTS a k").int() == 2);
}

#[test]
fn the_middle_one_may_be_killed_and_started_again() {
    let dir = TempDir::new();
    let first = quiet().start();
    let launch = quiet_replica(&first)
        .with("appendonly", "yes")
        .with("appendfsync", "always")
        .with("dir", &dir.path().display().to_string());
    let mut middle = launch.start();
    let last = quiet_replica(&middle).start();
    let launch = launch.on_port(middle.port());
    let mut c = first.connect();
    let mut random = Random::new(9);
    write_some(&mut c, &mut random, 100);
    wait_for_same_stream(&[&first, &middle, &last]);
    for _ in 0..2 {
        middle.signal(Signal::KILL);
        middle.wait_for_end();
        write_some(&mut c, &mut random, 100);
        middle = launch.start();
        write_some(&mut c, &mut random, 100);
        let chain = [&first, &middle, &last];
        wait_for_same_stream(&chain);
        assert_all_same(&chain);
    }
    assert_eq!((full_copies_for(&first), full_copies_for(&middle)), (1, 0));
}

#[test]
fn the_middle_one_ends_when_those_below_have_what_it_has() {
    let primary = Primary::new();
    let mut middle = primary.replica().with("repl-diskless-sync-delay", "0").start();
    let mut above = primary.give_copy(100, &[]);
    above.wait_for(100);
    let mut below = Replica::new(&middle);
    let first = stream(&["SET a 1"]);
    above.send(&first);
    above.wait_for(100 + first.len() as u64);
    middle.signal(Signal::TERM);
    wait_for_log(&middle, "Waiting for replicas before shutting down");
    // It may have been about to receive.
    above.send(stream(&["SET b 1"]));
    loop {
        let command = below.connection.reply_or_rest();
        if command.is_empty() {
            break;
        }
        below.offset += command.len() as u64;
        below.acknowledge();
    }
    wait_for_log(&middle, "1 of 1 replicas have everything when shutting down");
    assert!(middle.wait_for_end().success());
}

#[test]
fn without_a_link_there_is_nothing_to_follow() {
    const REFUSED: &str = "-NOMASTERLINK Can't SYNC while not connected with my master";
    let nowhere = Primary::new();
    let server = nowhere.replica().start();
    let mut c = server.connect();
    c.check("REPLCONF capa eof capa psync2", "+OK");
    c.send("PSYNC ? -1\r\n");
    assert_eq!(line(&mut c), REFUSED);
    // It is asked repeatedly, until it has a link.
    let below = quiet_replica(&server).start();
    wait_until("it was refused", || below.output().contains("NOMASTERLINK"));
    let mut link = nowhere.give_copy(5, &[("k", "v")]);
    link.wait_for(5);
    wait_for_same_stream(&[&server, &below]);
    below.connect().check("GET k", "\"v\"");
}

#[test]
fn those_that_follow_each_other_wait_for_one_that_knows_better() {
    let (one, two) = (quiet().start(), quiet().start());
    one.connect().check("SET k 1", "+OK");
    // A replica of itself never has a link.
    follow(&one, &one);
    wait_until("it was refused", || one.output().contains("NOMASTERLINK"));
    // Replicas of each other, without a common stream and with one.
    follow(&two, &one);
    follow(&one, &two);
    wait_until("it was refused", || two.output().contains("NOMASTERLINK"));
    for server in [&one, &two] {
        assert_eq!(info(&mut server.connect(), "master_link_status"), "down");
    }
    one.connect().check("REPLICAOF NO ONE", "+OK");
    wait_for_same_stream(&[&one, &two]);
    follow(&one, &two);
    two.connect().check("SET k 2", "-READONLY You can't write against a read only replica.");
    wait_until("it has a link", || info(&mut one.connect(), "master_link_status") == "up");
    one.connect().check("GET k", "\"1\"");
    two.connect().check("REPLICAOF NO ONE", "+OK");
    two.connect().check("SET k 2", "+OK");
    wait_for_same_stream(&[&two, &one]);
    assert_all_same(&[&two, &one]);
}

/// Ends the threads of a test, also if the test fails.
struct EndsAtLast<'a>(&'a AtomicBool);

impl Drop for EndsAtLast<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Clients write to both servers all the time, and the replica refuses that. One primary ends under load, and the
/// other one begins under load. Neither misses a change of the other: there is one full copy, at the beginning.
#[test]
fn no_change_is_lost_or_done_twice_when_roles_change() {
    takes_up_to_seconds(180);
    let rounds = effort(3_usize);
    let nowhere = Primary::new();
    for appendonly in ["no", "yes"] {
        let first = quiet().with("appendonly", appendonly).start();
        let second = quiet_replica(&first).with("appendonly", appendonly).start();
        let ends = AtomicBool::new(false);
        let written = AtomicUsize::new(0);
        thread::scope(|scope| {
            for (number, server) in [&first, &second, &first, &second].into_iter().enumerate() {
                let (ends, written) = (&ends, &written);
                scope.spawn(move || {
                    let mut c = server.connect();
                    for round in 0.. {
                        if ends.load(Relaxed) {
                            break;
                        }
                        let key = format!("{number}:{round}");
                        if c.ask(&format!("SET {key} 1")).to_string() == "+OK" {
                            c.ask(&format!("RPUSH list:{} {key}", round % 7));
                            written.fetch_add(1, Relaxed);
                        }
                    }
                });
            }
            let _ends = EndsAtLast(&ends);
            let (mut primary, mut replica) = (&first, &second);
            for _ in 0..rounds {
                let mut c = replica.connect();
                wait_until("it follows", || info(&mut c, "master_link_status") == "up");
                let before = written.load(Relaxed);
                wait_until("clients write", || written.load(Relaxed) > before + 50);
                let told =
                    primary.connect().ask(&format!("REPLICAOF 127.0.0.1 {}", nowhere.port()));
                assert_eq!(told.to_string(), "+OK");
                // Both are replicas now, and nothing changes until one is promoted.
                wait_for_same_stream(&[primary, replica]);
                assert_all_same(&[primary, replica]);
                replica.connect().check("REPLICAOF NO ONE", "+OK");
                follow(primary, replica);
                (primary, replica) = (replica, primary);
            }
        });
        let (primary, replica) =
            if rounds.is_multiple_of(2) { (&first, &second) } else { (&second, &first) };
        wait_for_same_stream(&[primary, replica]);
        assert_all_same(&[primary, replica]);
        assert_eq!((full_copies_for(&first), full_copies_for(&second)), (1, 0));
    }
}

/// Clients write to all servers, of which the replicas refuse, while the roles rotate. Writes of one server that
/// another one's stream replaces are lost, but in the end all servers have equal data.
#[test]
fn roles_go_round_while_clients_write() {
    takes_up_to_seconds(180);
    let rounds = effort(7_usize);
    for appendonly in ["no", "yes"] {
        let first = quiet().with("appendonly", appendonly).start();
        let start = || quiet_replica(&first).with("appendonly", appendonly).start();
        let (second, third) = (start(), start());
        let servers = [&first, &second, &third];
        let ends = AtomicBool::new(false);
        thread::scope(|scope| {
            for (seed, server) in servers.iter().cycle().take(6).enumerate() {
                let ends = &ends;
                scope.spawn(move || {
                    let (mut c, mut random) = (server.connect(), Random::new(seed as u64 + 1));
                    while !ends.load(Relaxed) {
                        write_some(&mut c, &mut random, 20);
                    }
                });
            }
            let _ends = EndsAtLast(&ends);
            let mut random = Random::new(77);
            for round in 1..=rounds {
                let primary = servers[round % 3];
                let mut c = primary.connect();
                match random.one_in(2) {
                    true => c.check("REPLICAOF NO ONE", "+OK"),
                    false => {
                        c.check("MULTI", "+OK");
                        c.check("GET s:1", "+QUEUED");
                        c.check("REPLICAOF NO ONE", "+QUEUED");
                        assert_eq!(c.ask("EXEC").items().len(), 2);
                    }
                }
                let others = servers.iter().filter(|server| server.port() != primary.port());
                let mut above = primary;
                for other in others {
                    follow(other, above);
                    // In a chain, or both below the same primary.
                    above = if random.one_in(2) { other } else { primary };
                }
                if random.one_in(2) {
                    for server in servers.iter().filter(|server| server.port() != primary.port()) {
                        let mut c = server.connect();
                        wait_until("it follows", || info(&mut c, "master_link_status") == "up");
                    }
                }
            }
        });
        let last = servers[rounds % 3];
        let others = servers.iter().copied().filter(|server| server.port() != last.port());
        let all: Vec<_> = [last].into_iter().chain(others).collect();
        wait_for_same_stream(&all);
        assert_all_same(&all);
    }
}
