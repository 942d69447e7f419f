//! What survives, and what is acknowledged: restarts of a primary with replicas, and writes that wait for replicas.
//! A replica is another server, or a test that speaks the protocol.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use tierce_harness::{
    Both, Connection, Launch, Random, Reply, Server, TempDir, free_port, freeze, thaw, wait_until,
};

use super::stream::{Replica, assert_same, info};
use crate::launch;
use crate::pedrokv::{PUT, request};

const NO_ID: &str = "0000000000000000000000000000000000000000";

const WITH_LOG: &[(&str, &str)] = &[("appendonly", "yes")];
const WITH_SNAPSHOT: &[(&str, &str)] = &[("appendonly", "no"), ("save", "3600 1")];

/// A primary that can be started again at the same place.
struct Place {
    dir: TempDir,
    port: u16,
    directives: Vec<(&'static str, &'static str)>,
}

impl Place {
    fn new(directives: &[(&'static str, &'static str)]) -> Self {
        Self { dir: TempDir::new(), port: free_port(), directives: directives.to_vec() }
    }

    fn launch(&self) -> Launch {
        let launch = launch()
            .on_port(self.port)
            .with("dir", &self.dir.path().display().to_string())
            .with("repl-diskless-sync-delay", "0");
        self.directives.iter().fold(launch, |launch, (name, value)| launch.with(name, value))
    }

    fn start(&self) -> Server {
        self.launch().start()
    }
}

fn replica_of(primary: &Server) -> Launch {
    launch().with("replicaof", &format!("127.0.0.1 {}", primary.port()))
}

fn end(mut server: Server, signal: Signal) {
    server.signal(signal);
    server.wait_for_end();
}

fn wait_for_link(replica: &mut Connection) {
    wait_until("the link is up", || info(replica, "master_link_status") == "up");
}

/// Waits until all replicas, of which there is one, have everything.
fn wait_for_all(primary: &mut Connection) {
    wait_until("the replica has all", || primary.ask("WAIT 1 100").int() == 1);
}

fn fill(c: &mut Connection, name: &str) {
    for number in 0..50 {
        c.check(&format!("SET {name}:{number} {number}"), "+OK");
    }
    c.check(&format!("RPUSH {name}:list a b c"), ":3");
}

/// Copies of all files of a directory, as a power cut could leave them.
fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("space");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy_dir(&entry.path(), &target),
            false => _ = fs::copy(entry.path(), target).expect("space"),
        }
    }
}

/// Replaces the content of a directory.
fn restore(dir: &Path, image: &Path) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let removed =
            if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.expect("it goes");
    }
    copy_dir(image, dir);
}

/// What a primary says of the replicas that have asked: full copies, and how many went on.
fn syncs(c: &mut Connection) -> (String, String) {
    (info(c, "sync_full"), info(c, "sync_partial_ok"))
}

fn one_continued() -> (String, String) {
    ("0".to_owned(), "1".to_owned())
}

#[test]
fn a_replica_continues_after_an_orderly_restart_of_its_primary() {
    for directives in [WITH_LOG, WITH_SNAPSHOT] {
        let place = Place::new(directives);
        let mut primary = place.start();
        let mut c = primary.connect();
        let replica = replica_of(&primary).with("appendonly", "yes").start();
        let mut r = replica.connect();
        wait_for_link(&mut r);
        for round in 0..3 {
            fill(&mut c, &format!("round:{round}"));
            // It expires while the primary is down, or soon after.
            c.check(&format!("SET brief:{round} 1 PX 300"), "+OK");
            wait_for_all(&mut c);
            let id = info(&mut c, "master_replid");
            end(primary, Signal::TERM);
            primary = place.start();
            c = primary.connect();
            assert_eq!(info(&mut c, "master_replid2"), id);
            assert_ne!(info(&mut c, "master_replid"), id);
            fill(&mut c, &format!("later:{round}"));
            wait_until("it has come back", || c.ask("WAIT 1 100").int() == 1);
            wait_until("the key has expired there, too", || {
                r.ask("DBSIZE").int() == 102 * (round + 1)
            });
            assert_eq!(syncs(&mut c), one_continued(), "{directives:?}, round {round}");
        }
        assert_same(&mut c, &mut r);
    }
}

#[test]
fn both_may_restart_in_order() {
    let place = Place::new(&[("appendonly", "yes")]);
    let of_replica = Place::new(&[("appendonly", "no"), ("save", "3600 1")]);
    let mut primary = place.start();
    let follow = |primary: &Server| {
        of_replica.launch().with("replicaof", &format!("127.0.0.1 {}", primary.port())).start()
    };
    let mut replica = follow(&primary);
    wait_for_link(&mut replica.connect());
    fill(&mut primary.connect(), "a");
    wait_for_all(&mut primary.connect());
    for round in 0..2 {
        end(replica, Signal::TERM);
        fill(&mut primary.connect(), &format!("meanwhile:{round}"));
        replica = follow(&primary);
        wait_for_all(&mut primary.connect());
        end(primary, Signal::TERM);
        primary = place.start();
        wait_for_all(&mut primary.connect());
        assert_eq!(syncs(&mut primary.connect()), one_continued());
    }
    assert_same(&mut primary.connect(), &mut replica.connect());
}

fn follow(replica: &Server, primary: &Server) {
    let mut c = replica.connect();
    c.check(&format!("REPLICAOF 127.0.0.1 {}", primary.port()), "+OK");
    wait_for_link(&mut c);
}

fn full_copies_for(server: &Server) -> usize {
    (server.output() + &server.errors()).matches("Full copy from").count()
}

/// It was a replica when it last started, and its stream began as that of another server.
#[test]
fn replicas_continue_after_an_orderly_restart_of_one_that_was_promoted() {
    for directives in
        [[("appendonly", "yes"), ("save", "")], [("appendonly", "no"), ("save", "3600 1")]]
    {
        let place = Place::new(&directives);
        let (first, promoted) = (primary().start(), place.start());
        let sibling = launch().start();
        follow(&promoted, &first);
        follow(&sibling, &first);
        let mut c = first.connect();
        fill(&mut c, "first");
        wait_until("both have all", || c.ask("WAIT 2 100").int() == 2);
        end(first, Signal::KILL);
        let mut c = promoted.connect();
        c.check("REPLICAOF NO ONE", "+OK");
        follow(&sibling, &promoted);
        fill(&mut c, "promoted");
        // It expires while no server is there that could remove it.
        c.check("SET brief 1 PX 100", "+OK");
        wait_for_all(&mut c);
        let id = info(&mut c, "master_replid");
        end(promoted, Signal::TERM);
        let restarted = place.start();
        let mut c = restarted.connect();
        assert_eq!(info(&mut c, "master_replid2"), id, "{directives:?}");
        fill(&mut c, "restarted");
        wait_for_all(&mut c);
        assert_eq!(syncs(&mut c), one_continued(), "{directives:?}");
        assert_eq!(full_copies_for(&sibling), 1, "the first one");
        let mut s = sibling.connect();
        wait_until("the key has expired there, too", || s.ask("DBSIZE").int() == 153);
        assert_same(&mut c, &mut s);
    }
}

/// Two servers take turns: each hands over, and is the next one that the other, after a restart, hands over to.
#[test]
fn primaries_that_were_restarted_in_order_hand_over() {
    let places = [Place::new(WITH_LOG), Place::new(WITH_SNAPSHOT)];
    let [mut from, mut to] = [0, 1].map(|at: usize| (at, places[at].start()));
    follow(&to.1, &from.1);
    for round in 0..4 {
        let mut c = from.1.connect();
        fill(&mut c, &format!("round:{round}"));
        wait_for_all(&mut c);
        end(from.1, Signal::TERM);
        from.1 = places[from.0].start();
        let mut c = from.1.connect();
        wait_for_all(&mut c);
        assert_eq!(syncs(&mut c), one_continued(), "round {round}");
        fill(&mut c, &format!("again:{round}"));
        c.check("FAILOVER", "+OK");
        wait_until("it has handed over", || info(&mut c, "role") == "slave");
        wait_for_link(&mut c);
        std::mem::swap(&mut from, &mut to);
        let mut c = from.1.connect();
        c.check("INCR rounds", &format!(":{}", round + 1));
        wait_for_all(&mut c);
        assert_eq!(full_copies_for(&to.1), 0, "round {round}");
        assert_same(&mut c, &mut to.1.connect());
    }
}

#[test]
fn a_primary_that_was_killed_has_another_stream() {
    let place = Place::new(&[("appendonly", "yes")]);
    let primary = place.start();
    let replica = replica_of(&primary).start();
    let (mut c, mut r) = (primary.connect(), replica.connect());
    wait_for_link(&mut r);
    fill(&mut c, "a");
    wait_for_all(&mut c);
    let id = info(&mut c, "master_replid");
    end(primary, Signal::KILL);
    let primary = place.start();
    let mut c = primary.connect();
    assert_ne!(info(&mut c, "master_replid"), id);
    assert_eq!(info(&mut c, "master_replid2"), NO_ID);
    wait_for_all(&mut c);
    assert_eq!(syncs(&mut c), ("1".to_owned(), "0".to_owned()));
    assert_same(&mut c, &mut r);
}

/// A power cut takes the end of the log, and the replica knows more than its primary. The image of the disk is of a running
/// server, or of one that had ended in order, where the log begins with a place that is none any more.
#[test]
fn a_replica_that_is_ahead_of_a_power_cut_gets_a_full_copy() {
    for was_restarted in [false, true] {
        let place = Place::new(&[("appendonly", "yes")]);
        let mut primary = place.start();
        let replica = replica_of(&primary).with("appendonly", "yes").start();
        let (mut c, mut r) = (primary.connect(), replica.connect());
        wait_for_link(&mut r);
        fill(&mut c, "old");
        wait_for_all(&mut c);
        let image = TempDir::new();
        if was_restarted {
            end(primary, Signal::TERM);
            copy_dir(place.dir.path(), image.path());
            primary = place.start();
            c = primary.connect();
            wait_for_all(&mut c);
        } else {
            c.check("WAITAOF 1 0 0", "[:1, :0]");
            copy_dir(place.dir.path(), image.path());
        }
        fill(&mut c, "lost");
        wait_for_all(&mut c);
        end(primary, Signal::KILL);
        restore(place.dir.path(), image.path());
        let primary = place.start();
        let mut c = primary.connect();
        c.check("SET lost:1 other", "+OK");
        wait_for_all(&mut c);
        assert_eq!(info(&mut c, "sync_full"), "1", "restarted: {was_restarted}");
        r.check("EXISTS lost:2", ":0");
        assert_same(&mut c, &mut r);
    }
}

/// How often replicas were asked in these commands.
fn asked(commands: &[String]) -> usize {
    commands.iter().filter(|command| command.starts_with("REPLCONF GETACK")).count()
}

fn primary() -> Launch {
    launch().with("repl-diskless-sync-delay", "0")
}

#[test]
fn replies_wait_until_replicas_have_the_writes() {
    for (appendonly, fsync) in [("no", "no"), ("yes", "everysec"), ("yes", "always")] {
        let server = primary().with("appendonly", appendonly).with("appendfsync", fsync).start();
        let mut c = server.connect();
        c.check("CLIENT DURABILITY replicas:1", "+OK");
        c.check("SET a 0", "-NOREPLICAS Not enough good replicas to write.");
        c.check("GET a", "nil");
        let mut replica = Replica::new(&server);
        c.send("SET a 1\r\nGET a\r\nSET b 2\r\nMULTI\r\nINCR a\r\nEXEC\r\nPING\r\nECHO x\r\n");
        replica.commands_until("REPLCONF GETACK *");
        assert!(c.is_silent_for(Duration::from_millis(20)), "{appendonly}");
        replica.acknowledge();
        for expected in ["+OK", "\"1\"", "+OK", "+OK", "+QUEUED", "[:2]", "+PONG", "\"x\""] {
            c.expect(expected);
        }
        // Another level, and reads, do not wait.
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
    // What is not confirmed in time is not told to a client that does not listen.
    c.check("CONFIG SET durability-replicas-timeout 50", "+OK");
    c.send("CLIENT REPLY SKIP\r\nSET a 3\r\nGET a\r\n");
    c.expect("\"3\"");
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
    replica.commands_until("REPLCONF GETACK LOGGED");
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
        // It leaves while it waits.
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
    let logged = replica_of(&server).with("appendonly", "yes").start();
    wait_for_link(&mut logged.connect());
    for number in 0..5 {
        c.check(&format!("SET a {number}"), "+OK");
        c.check("WAITAOF 0 1 0", "[:0, :1]");
        c.check("WAITAOF 1 1 0", "[:1, :1]");
    }
    c.check("CLIENT DURABILITY no replicas-logged:1", "+OK");
    c.check("SET a 7", "+OK");
    let unlogged = replica_of(&server).with("appendonly", "no").start();
    wait_for_link(&mut unlogged.connect());
    wait_until("both follow", || c.ask("WAIT 2 100").int() == 2);
    c.check("SET a 8", "+OK");
    c.check("WAITAOF 0 1 0", "[:0, :1]");
    assert_eq!(c.ask("WAITAOF 0 2 50").items().last().map(Reply::int), Some(1));
}

/// Writes keys in pipelines until the server ends: how many were acknowledged.
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

/// Clients write at a level until the primary is killed; what was acknowledged is on the replica.
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
    // What has arrived there is applied before the link is seen to be over.
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

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/0.1");

/// A port where nothing listens, for replicas that do not find their primary.
const NOWHERE: &str = "127.0.0.1 1";

fn open(dir: &Path, is_replica: bool) -> Server {
    let launch = launch().with("dir", &dir.display().to_string()).with("appendonly", "yes");
    if is_replica { launch.with("replicaof", NOWHERE) } else { launch }.start()
}

/// The name of the stream that the data of a server belong to, and how much of it they have.
fn place(c: &mut Connection, is_replica: bool) -> String {
    let (id, offset) = match is_replica {
        true => ("master_replid", "slave_repl_offset"),
        false => ("master_replid2", "second_repl_offset"),
    };
    format!("{} {}", info(c, id), info(c, offset))
}

/// The directory of a replica that was killed, and that of its primary, which had ended in order.
#[test]
fn directories_of_replicated_servers_open_with_their_data_and_place() {
    for (name, is_replica) in [("replica-after-a-kill", true), ("primary-after-its-end", false)] {
        let fixture = Path::new(FIXTURES).join(name);
        let dir = TempDir::new();
        thaw(&fixture.join("dir"), dir.path());
        let expected = fs::read_to_string(fixture.join("contents.txt")).expect("the contents");
        let server = open(dir.path(), is_replica);
        let mut c = server.connect();
        // A replica shows it when the thread of its stream has begun.
        wait_until(name, || place(&mut c, is_replica) == expected.trim());
        assert_eq!(c.ask("DBSIZE").int(), 51, "{name}");
        for number in 0..50 {
            c.check(&format!("GET frozen:{number}"), &format!("\"{number}\""));
        }
        c.check("LRANGE frozen:list 0 -1", "[\"a\", \"b\", \"c\"]");
    }
}

#[test]
#[ignore = "writes fixtures: FREEZE_TO says where to, from the root of the workspace"]
fn freeze_replicated_servers() {
    let to = std::env::var_os("FREEZE_TO").expect("FREEZE_TO says where to");
    let to = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(to);
    let (of_primary, of_replica) = (TempDir::new(), TempDir::new());
    let primary = primary()
        .with("dir", &of_primary.path().display().to_string())
        .with("appendonly", "yes")
        .start();
    let replica = replica_of(&primary)
        .with("dir", &of_replica.path().display().to_string())
        .with("appendonly", "yes")
        .start();
    wait_for_link(&mut replica.connect());
    let mut c = primary.connect();
    fill(&mut c, "frozen");
    wait_for_all(&mut c);
    end(replica, Signal::KILL);
    end(primary, Signal::TERM);
    for (name, dir, is_replica) in
        [("replica-after-a-kill", of_replica, true), ("primary-after-its-end", of_primary, false)]
    {
        freeze(dir.path(), &to.join(name).join("dir"));
        let text = place(&mut open(dir.path(), is_replica).connect(), is_replica);
        fs::write(to.join(name).join("contents.txt"), text).expect("space");
    }
}

#[test]
fn functions_can_be_fetched_alone() {
    let server = primary().start();
    let mut c = server.connect();
    let library = "#!lua name=mylib\nserver.register_function('f', function() return 7 end)";
    c.check("SET key 1", "+OK");
    c.call(&["FUNCTION", "LOAD", library]);
    let mut replica = server.connect();
    replica.check("REPLCONF rdb-filter-only keys", "-ERR Unsupported rdb-filter-only option: keys");
    replica.check("REPLCONF rdb-filter-only functions", "+OK");
    assert!(replica.ask("SYNC").to_string().starts_with("-ERR"), "no stream without keys");
    replica.check("REPLCONF rdb-only 1", "+OK");
    for (filter, has_library) in [("functions", true), ("", false)] {
        let told = replica.call(&["REPLCONF", "rdb-filter-only", filter]);
        assert_eq!(told.to_string(), "+OK");
        let copy = replica.ask("SYNC");
        let holds = |what: &[u8]| copy.bytes().windows(what.len()).any(|found| found == what);
        assert!(copy.bytes().starts_with(b"REDIS"));
        assert_eq!((holds(b"mylib"), holds(b"key")), (has_library, false), "{filter:?}");
    }
}
