//! The level `bucket`: replies wait until the log in the bucket has all commands executed before them, so these
//! survive the loss of the machine. Also its combination with the level of replicas.

use std::time::Duration;

use tierce_harness::{Connection, Server, TempDir, encode, wait_until};

use super::{Away, kill, start, stop, wait_for_state};
use crate::replication::info as info_everywhere;

/// Long enough to notice, most of the time, an event that must not happen.
const MOMENT: Duration = Duration::from_millis(300);

/// Returns a server that has written to its bucket, and the bucket.
fn server() -> (Server, TempDir, TempDir) {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).start();
    (server, bucket, dir)
}

fn id(c: &mut Connection) -> i64 {
    c.ask("CLIENT ID").int()
}

/// Expects that nothing comes before the store is back, and then this.
fn expect_when_back(c: &mut Connection, away: Away, expected: &[&str]) {
    assert!(c.is_silent_for(MOMENT), "a reply that the bucket has not");
    away.end();
    expected.iter().for_each(|reply| assert_eq!(c.reply().to_string(), **reply));
}

#[test]
fn what_was_executed_at_the_level_keeps_it_when_the_same_packet_leaves_it() {
    for (line, reply) in [("SET k 1", "+OK"), ("GET other", "\"1\"")] {
        let (server, bucket, _dir) = server();
        let mut c = server.connect();
        let away = Away::begin(&bucket);
        // Another client has written the value that is read.
        server.connect().check("SET other 1", "+OK");
        let words: Vec<&str> = line.split(' ').collect();
        let packet = [
            encode(&["CLIENT", "DURABILITY", "bucket"]),
            encode(&words),
            encode(&["CLIENT", "DURABILITY", "everysec"]),
        ];
        c.send(packet.concat());
        expect_when_back(&mut c, away, &["+OK", reply, "+OK"]);
        c.check("PING", "+PONG");
    }
}

/// Monitoring is most important while the bucket is away.
#[test]
fn monitoring_does_not_wait() {
    let (server, bucket, _dir) = server();
    server.connect().check("CONFIG SET appendfsync bucket", "+OK");
    let away = Away::begin(&bucket);
    let mut writer = server.connect();
    writer.request(&["SET", "k", "1"]);
    let mut c = server.connect();
    wait_for_state(&mut c, "away");
    c.check("PING", "+PONG");
    assert_eq!(c.ask("HELLO 2").items().len(), 14);
    assert_eq!(c.ask("ROLE").items()[0].text(), "master");
    assert_eq!(c.ask("CONFIG GET appendfsync").items()[1].text(), "bucket");
    // If one of the commands reads data, the replies to all of them wait.
    c.send("PING\r\nGET k\r\nPING\r\n");
    assert!(c.is_silent_for(MOMENT) && writer.is_silent_for(MOMENT));
    away.end();
    writer.expect("+OK");
    ["+PONG", "\"1\"", "+PONG"].iter().for_each(|reply| c.expect(reply));
}

#[test]
fn a_result_that_goes_to_another_client_waits_as_its_command_does() {
    let (server, bucket, _dir) = server();
    let (mut c, mut receiver) = (server.connect(), server.connect());
    receiver.check("CLIENT ACCEPTNB ON", "+OK");
    let to = id(&mut receiver).to_string();
    c.check("CLIENT DURABILITY bucket", "+OK");
    c.request(&["NBLPOP", "list", "0", &to]);
    c.check("PING", "+PONG");
    let mut pusher = server.connect();
    let away = Away::begin(&bucket);
    pusher.check("RPUSH list a", ":1");
    wait_until("it is popped", || pusher.ask("EXISTS list").int() == 0);
    assert!(receiver.is_silent_for(MOMENT), "a result that the bucket has not");
    away.end();
    assert!(receiver.reply().to_string().contains("\"a\""));
}

#[test]
fn what_was_acknowledged_at_the_level_bucket_survives_the_machine() {
    let bucket = TempDir::new();
    let mut expected = 0;
    for round in 0..4 {
        let dir = TempDir::new();
        let claim = if round == 0 { "orderly" } else { "force" };
        let server = start(dir.path(), &bucket).with("bucket-claim", claim).start();
        let mut c = server.connect();
        assert_eq!(c.ask("INCRBY n 0").int(), expected);
        c.check("CLIENT DURABILITY bucket", "+OK");
        for _ in 0..10 {
            expected = c.ask("INCR n").int();
        }
        // Reads also wait for writes of other clients at another level.
        let mut other = server.connect();
        other.check(&format!("SET seen {round}"), "+OK");
        c.check("GET seen", &format!("\"{round}\""));
        kill(server);
        let dir = TempDir::new();
        let server = start(dir.path(), &bucket).with("bucket-claim", "force").start();
        server.connect().check("GET seen", &format!("\"{round}\""));
        kill(server);
    }
}

#[test]
fn writes_that_wait_for_replicas_need_a_stream_and_not_a_bucket() {
    let (dir, bucket) = (TempDir::new(), TempDir::new());
    let launch = start(dir.path(), &bucket).with("durability-replicas", "1");
    let server = launch.with("durability-replicas-timeout", "100000").start();
    server.connect().check("SET a 1", "-NOREPLICAS Not enough good replicas to write.");
    stop(server);
}

/// Returns the number of replicas that confirm within `timeout_ms` that the writes are on their device.
fn logged(primary: &mut Connection, timeout_ms: u64) -> i64 {
    primary.ask(&format!("WAITAOF 0 1 {timeout_ms}")).items()[1].int()
}

#[test]
fn an_owner_that_is_a_replica_applies_what_comes_and_confirms_what_the_bucket_has() {
    let primary = crate::launch().start();
    let mut p = primary.connect();
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let replica = start(dir.path(), &bucket)
        .with("appendfsync", "bucket")
        .with("replicaof", &format!("127.0.0.1 {}", primary.port()))
        .start();
    let mut c = replica.connect();
    c.check("CLIENT DURABILITY everysec", "+OK");
    p.check("SET before 1", "+OK");
    wait_until("the replica has it", || c.ask("EXISTS before").int() == 1);
    assert_eq!(logged(&mut p, 0), 1);
    wait_for_state(&mut c, "following");
    let away = Away::begin(&bucket);
    for number in 0..200 {
        p.request(&["SET", &format!("key:{number}"), "v"]);
    }
    (0..200).for_each(|_| p.expect("+OK"));
    p.check("MULTI", "+OK");
    p.check("SET last 1", "+QUEUED");
    p.check("EXEC", "[+OK]");
    wait_until("the replica has all", || c.ask("DBSIZE").int() == 202);
    p.check("WAIT 1 0", ":1");
    assert_eq!(logged(&mut p, 300), 0, "the bucket has none of it");
    away.end();
    assert_eq!(logged(&mut p, 0), 1);
    assert_eq!(info_everywhere(&mut p, "sync_full"), "1", "the link was never given up");
}
