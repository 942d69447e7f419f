//! An owner as a primary: the records that its replicas get, and FAILOVER, which releases the log for the next owner.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::Signal;
use tierce_harness::{Server, TempDir, wait_until};

use super::lease::{MOMENT, info_of, start};
use super::{Away, start as with_bucket, stop, wait_for_bucket, wait_for_state};
use crate::replication::fake_replica::Replica;
use crate::replication::replica::wait_for_log;

#[test]
fn replicas_of_an_owner_get_what_is_committed() {
    let (bucket, dir, of_replica) = (TempDir::new(), TempDir::new(), TempDir::new());
    let server = start(&dir, &bucket).start();
    let mut c = server.connect();
    c.check("SET before 1", "+OK");
    let replica = crate::launch()
        .keeping()
        .with("dir", &of_replica.path().display().to_string())
        .with("replicaof", &format!("127.0.0.1 {}", server.port()))
        .start();
    let mut r = replica.connect();
    wait_until("the replica has it", || r.ask("EXISTS before").int() == 1);
    c.check("SET committed 1", "+OK");
    wait_until("the replica has it", || r.ask("EXISTS committed").int() == 1);
    c.check("WAIT 1 0", ":1");
    let away = Away::begin(&bucket);
    c.check("SET uncommitted 1", "+OK");
    c.check("WAIT 1 300", ":0");
    r.check("EXISTS uncommitted", ":0");
    away.end();
    wait_until("the replica has it", || r.ask("EXISTS uncommitted").int() == 1);
    c.check("SET last 1", "+OK");
    c.check("WAIT 1 0", ":1");
    drop(replica);
    stop(server);
}

/// Nor do they get more when it becomes a replica. Its link begins after its own changes, and waits for them.
#[test]
fn replicas_of_an_owner_that_becomes_a_replica_get_what_is_committed() {
    for is_succeeded in [true, false] {
        let (bucket, dir) = (TempDir::new(), TempDir::new());
        let launch = match is_succeeded {
            true => start(&dir, &bucket),
            false => with_bucket(dir.path(), &bucket).with("appendfsync", "bucket"),
        };
        let server = launch.with("repl-diskless-sync-delay", "0").start();
        let mut c = server.connect();
        wait_for_state(&mut c, "following");
        c.check("CLIENT DURABILITY everysec", "+OK");
        let mut replica = Replica::new(&server);
        let primary = crate::launch().start();
        primary.connect().check("SET other 1", "+OK");
        let away = Away::begin(&bucket);
        c.check("SET uncommitted 1", "+OK");
        // An unreachable primary, another one, and the first one again.
        for port in [1, primary.port(), 1] {
            c.check(&format!("REPLICAOF 127.0.0.1 {port}"), "+OK");
            assert!(replica.connection.is_silent_for(MOMENT), "it has what the bucket has not");
        }
        away.end();
        replica.commands_until("SET uncommitted 1");
        c.check(&format!("REPLICAOF 127.0.0.1 {}", primary.port()), "+OK");
        wait_until("it follows", || c.ask("EXISTS other").int() == 1);
        stop(server);
    }
}

/// The bucket may block the link of an owner that is a replica. Nothing more comes then, so the shutdown does not
/// wait for the replicas below.
#[test]
fn a_shutdown_while_the_bucket_holds_the_link_back_ends_when_those_below_have_everything() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let quiet = || crate::launch().with("repl-diskless-sync-delay", "0");
    let of = |above: &Server| format!("127.0.0.1 {}", above.port());
    let primary = quiet().start();
    let mut middle = with_bucket(dir.path(), &bucket)
        .with("bucket-log-max", "64kb")
        .with("repl-diskless-sync-delay", "0")
        .with("shutdown-timeout", "3600")
        .with("replicaof", &of(&primary))
        .start();
    let below = quiet().with("replicaof", &of(&middle)).start();
    let (mut p, mut b) = (primary.connect(), below.connect());
    p.check("SET before 1", "+OK");
    wait_until("all have it", || b.ask("EXISTS before").int() == 1);
    wait_for_state(&mut middle.connect(), "following");
    let away = Away::begin(&bucket);
    p.call(&["SET", "long", &"x".repeat(200 << 10)]);
    wait_until("nothing more is applied", || {
        p.ask("INCR n");
        p.ask("WAIT 1 300").int() == 0
    });
    middle.signal(Signal::TERM);
    wait_for_log(&middle, "1 of 1 replicas have everything when shutting down");
    away.end();
    assert!(middle.wait_for_end().success());
}

#[test]
fn who_waits_for_replicas_does_not_wait_for_the_interval() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let launch = start(&dir, &bucket).with("bucket-interval", "3600000");
    let server = launch.with("repl-diskless-sync-delay", "0").start();
    let replica = crate::launch()
        .with("appendonly", "yes")
        .with("replicaof", &format!("127.0.0.1 {}", server.port()))
        .start();
    let (mut c, mut level) = (server.connect(), server.connect());
    wait_until("the replica is there", || c.ask("WAIT 1 100").int() == 1);
    level.check("CLIENT DURABILITY replicas:1", "+OK");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Other clients continue to write, and wait for nothing.
        let (mut other, is_over) = (server.connect(), &is_over);
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                other.check("SET n 1", "+OK");
            }
        });
        for number in 0..10 {
            c.check(&format!("SET a {number}"), "+OK");
            c.check("WAIT 1 0", ":1");
            c.check(&format!("SET b {number}"), "+OK");
            c.check("WAITAOF 0 1 0", "[:1, :1]");
            level.check(&format!("SET c {number}"), "+OK");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    replica.connect().check("MGET a b c", r#"["9", "9", "9"]"#);
    stop(server);
}

#[test]
fn failover_leaves_all_that_was_acknowledged_to_the_next_owner() {
    let (bucket, dir, other) = (TempDir::new(), TempDir::new(), TempDir::new());
    let mut server = start(&dir, &bucket).start();
    let mut c = server.connect();
    c.check("SET k v", "+OK");
    wait_for_bucket(&mut c);
    assert!(c.ask("FAILOVER TO 127.0.0.1 1").text().contains("requires connected replicas"));
    let is_over = AtomicBool::new(false);
    let acknowledged = thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (mut c, is_over) = (server.connect(), &is_over);
                scope.spawn(move || {
                    let mut acknowledged = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let key = format!("{writer}:{acknowledged}");
                        let request = format!("SET {key} x\r\n");
                        if c.try_send(request).is_err() || c.reply_or_rest() != b"+OK\r\n" {
                            break;
                        }
                        acknowledged += 1;
                    }
                    acknowledged
                })
            })
            .collect();
        // Each write is acknowledged when the next one is there.
        wait_until("all write", || c.ask("EXISTS 0:1 1:1 2:1 3:1").int() == 4);
        c.check("FAILOVER", "+OK");
        assert_eq!(server.wait_for_end().code(), Some(1));
        is_over.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().expect("counted")).collect::<Vec<_>>()
    });
    c.expect_closed();
    assert!(server.output().contains("is released"), "{}", server.output());
    // At once, without force.
    let next = start(&other, &bucket).start();
    let mut c = next.connect();
    c.check("GET k", "\"v\"");
    for (writer, count) in acknowledged.into_iter().enumerate() {
        assert!(count > 0);
        for number in 0..count {
            assert_eq!(c.ask(&format!("GET {writer}:{number}")).bytes(), b"x");
        }
    }
    stop(next);
}

#[test]
fn a_failover_that_takes_too_long_is_given_up() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let server = start(&dir, &bucket).with("bucket-interval", "3600000").start();
    let mut c = server.connect();
    wait_for_bucket(&mut c);
    let away = Away::begin(&bucket);
    // The interval is an hour, so the server does not know yet that the store is away.
    c.check("SET k v", "+OK");
    c.check("FAILOVER TIMEOUT 200", "+OK");
    wait_until("it is over", || {
        info_of(&mut c, "replication", "master_failover_state") == "no-failover"
    });
    c.check("SET k w", "+OK");
    wait_for_state(&mut c, "away");
    assert!(c.ask("FAILOVER").text().contains("while the bucket lacks data"));
    away.end();
    wait_for_state(&mut c, "following");
    stop(server);
}
