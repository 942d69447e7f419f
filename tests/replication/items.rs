//! Flags and invalidations of memcached's items are on replicas and their replicas as well, in their logs, and after
//! a failover.

use rustix::process::Signal;
use tierce_harness::{Both, Launch, TempDir, encode, wait_until};

use super::fake_primary::Primary;
use super::fake_replica::Replica;
use super::info;
use super::replica::wait_for_link;
use crate::{launch, memcached};

fn start(launch: Launch) -> Both {
    let quiet = launch.with("repl-diskless-sync-delay", "0");
    memcached::with(quiet.with("repl-ping-replica-period", "3600"))
}

fn replica_of(primary: &Both, launch: Launch) -> Both {
    let replica = start(launch.with("replicaof", &format!("127.0.0.1 {}", primary.server.port())));
    wait_for_link(&mut replica.server.connect(), "up");
    replica
}

/// Waits until all have applied the stream up to the same offset.
#[track_caller]
fn wait_for_same_stream(servers: &[&Both]) {
    let mut connections: Vec<_> = servers.iter().map(|both| both.server.connect()).collect();
    wait_until("all have the same", || {
        let ends: Vec<_> = connections.iter_mut().map(|c| info(c, "master_repl_offset")).collect();
        ends.windows(2).all(|pair| pair[0] == pair[1])
    });
}

/// Writes items with flags and without, changed in all ways.
fn fill(primary: &Both) {
    for (request, answer) in [
        ("set plain 0 0 1\r\na\r\nset k 1234 0 5\r\nhello\r\n", "STORED\r\nSTORED\r\n"),
        (
            "set large 4294967295 0 3\r\nold\r\nappend large 0 0 3\r\nnew\r\n",
            "STORED\r\nSTORED\r\n",
        ),
        ("set n 7 0 1\r\n1\r\nincr n 41\r\n", "STORED\r\n42\r\n"),
        ("set gone 5 0 1\r\na\r\nset gone 0 0 1\r\nb\r\n", "STORED\r\nSTORED\r\n"),
        ("set by-set 5 0 1\r\na\r\nset other 5 0 1\r\na\r\n", "STORED\r\nSTORED\r\n"),
        ("set renamed 6 0 1\r\na\r\nset again 6 0 1\r\na\r\n", "STORED\r\nSTORED\r\n"),
        ("set again 8 0 1\r\nc\r\n", "STORED\r\n"),
        ("ms stale 1 F3\r\na\r\nmd stale I T300\r\n", "HD\r\nHD\r\n"),
        ("ms won 1 F3\r\na\r\nmd won I T300\r\nmg won v\r\n", "HD\r\nHD\r\nVA 1 X W\r\na\r\n"),
        ("ms fresh 1 F3\r\na\r\nmd fresh I T300\r\nms fresh 1 F4\r\nb\r\n", "HD\r\nHD\r\nHD\r\n"),
    ] {
        primary.check(request.as_bytes(), answer.as_bytes());
    }
    let mut c = primary.server.connect();
    c.check("SET by-set b", "+OK");
    c.check("MULTI", "+OK");
    c.check("RENAME renamed renamed:to", "+QUEUED");
    c.check("APPEND other b", "+QUEUED");
    c.check("EXEC", "[+OK, :2]");
}

#[track_caller]
fn check(server: &Both) {
    for (key, expected) in [
        ("plain", "VA 1 f0\r\na\r\n"),
        ("k", "VA 5 f1234\r\nhello\r\n"),
        ("large", "VA 6 f4294967295\r\noldnew\r\n"),
        ("n", "VA 2 f7\r\n42\r\n"),
        ("gone", "VA 1 f0\r\nb\r\n"),
        ("by-set", "VA 1 f0\r\nb\r\n"),
        ("other", "VA 2 f5\r\nab\r\n"),
        ("renamed:to", "VA 1 f6\r\na\r\n"),
        ("again", "VA 1 f8\r\nc\r\n"),
        ("won", "VA 1 f3 Z X\r\na\r\n"),
        ("fresh", "VA 1 f4\r\nb\r\n"),
    ] {
        server.check(format!("mg {key} f v\r\n").as_bytes(), expected.as_bytes());
    }
    server.check(b"mg stale f v\r\n", b"VA 1 f3 X\r\na\r\n");
}

#[test]
fn flags_and_invalidations_are_on_replicas_of_replicas_and_in_their_logs() {
    let dir = TempDir::new();
    let logged = || {
        let dir = dir.path().to_str().expect("UTF-8");
        launch().with("dir", dir).with("appendonly", "yes")
    };
    let first = start(launch());
    let second = replica_of(&first, launch());
    let mut third = replica_of(&second, logged());
    fill(&first);
    wait_for_same_stream(&[&first, &second, &third]);
    [&second, &third].into_iter().for_each(check);
    // It continues at the end of its log.
    third.server.signal(Signal::KILL);
    third.server.wait_for_end();
    let third = replica_of(&second, logged());
    check(&third);
    assert_eq!(info(&mut second.server.connect(), "sync_full"), "1");
    // Changes after the promotion are its own, and are replicated back.
    let mut c = first.server.connect();
    c.check("FAILOVER", "+OK");
    wait_until("it is handed over", || info(&mut c, "master_failover_state") == "no-failover");
    wait_for_link(&mut c, "up");
    // From now on its readers can win.
    second.check(b"mg stale f v\r\n", b"VA 1 f3 X W\r\na\r\n");
    second.check(b"set k 5678 0 1\r\nx\r\n", b"STORED\r\n");
    wait_for_same_stream(&[&first, &second, &third]);
    for both in [&first, &third] {
        both.check(b"mg k f\r\nmg stale v\r\n", b"HD f5678\r\nVA 1 Z X\r\na\r\n");
    }
}

/// A server without memcached executes the commands without an effect.
#[test]
fn the_stream_names_the_key_and_costs_nothing_without_flags() {
    let primary = start(launch());
    let mut replica = Replica::new(&primary.server);
    primary.check(b"set k 5 0 1\r\na\r\n", b"STORED\r\n");
    primary.check(b"md k I\r\n", b"HD\r\n");
    primary.check(b"set k 0 0 1\r\nb\r\n", b"STORED\r\n");
    let flags = (0x5449_u64 << 48 | 1 << 34 | 5).to_string();
    let stale = (0x5449_u64 << 48 | 1 << 32).to_string();
    let expected = [
        "SELECT 0",
        "MULTI",
        "SET k a",
        &format!("SETRANGE k {flags} "),
        "EXEC",
        &format!("SETRANGE k {stale} "),
        "SET k b",
    ];
    assert_eq!(replica.commands_until("SET k b"), expected);
    // Servers that cannot know the command do not get it.
    let primary = start(launch().with("replica-dialect", "redis-7.4"));
    let mut replica = Replica::new(&primary.server);
    for key in ["k", "l"] {
        primary.check(format!("set {key} 5 0 1\r\na\r\n").as_bytes(), b"STORED\r\n");
    }
    assert_eq!(replica.commands_until("SET l a"), ["SELECT 0", "SET k a", "SET l a"]);
}

#[test]
fn nobody_but_the_primary_notes_anything() {
    let number = (0x5449_u64 << 48 | 1 << 34 | 5).to_string();
    let both = start(launch());
    let mut c = both.server.connect();
    c.check("SET k v", "+OK");
    c.check(&format!("SETRANGE k {number} ''"), ":1");
    c.check(&format!("SETRANGE none {number} ''"), ":0");
    both.check(b"mg k f\r\n", b"HD f0\r\n");
    // Flags on other keys have no effect.
    let primary = Primary::new();
    let both = memcached::with(primary.replica());
    let mut follower = primary.give_copy(0, &[("k", "v")]);
    let requests: [&[&str]; 4] = [
        &["RPUSH", "l", "a"],
        &["SETRANGE", "none", &number, ""],
        &["SETRANGE", "k", &number, ""],
        &["SETRANGE", "l", &number, ""],
    ];
    let commands: Vec<u8> = requests.iter().flat_map(|request| encode(request)).collect();
    follower.send(&commands);
    follower.wait_for(commands.len() as u64);
    both.check(b"mg k f v\r\nmg none f\r\n", b"VA 1 f5\r\nv\r\nEN\r\n");
}
