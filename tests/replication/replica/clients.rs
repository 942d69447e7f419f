//! Clients of a replica: permitted commands, replies, and messages.

use tierce_harness::{Both, wait_until};

use super::{wait_for_link, wait_for_reply};
use crate::memcached;
use crate::pedrokv::{GET, PUT, request};
use crate::replication::fake_primary::{OTHER_ID, Primary, file, stream};

#[test]
fn clients_only_read() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let _follower = primary.give_copy(1, &[("k", "v")]);
    for mut c in [server.connect(), server.connect_resp3()] {
        wait_for_reply(&mut c, "GET k", r#""v""#);
        let read_only = "-READONLY You can't write against a read only replica.";
        for line in ["SET k w", "DEL none", "EXPIRE k 5", "FLUSHALL", "BLPOP l 0"] {
            c.check(line, read_only);
        }
        c.check("MULTI", "+OK");
        c.check("INCR n", read_only);
        assert!(c.ask("EXEC").to_string().starts_with("-EXECABORT"));
        c.check("EVAL 'return redis.call(\"GET\", KEYS[1])' 1 k", r#""v""#);
        let refused = c.ask("EVAL 'return redis.call(\"SET\", KEYS[1], 1)' 1 k").to_string();
        assert!(refused.starts_with("-READONLY"), "{refused}");
        c.check("GET k", r#""v""#);
    }
}

#[test]
fn clients_of_other_protocols_only_read() {
    let primary = Primary::new();
    let both = memcached::with(primary.replica());
    let mut follower = primary.give_copy(1, &[("k", "v")]);
    follower.wait_for(1);
    both.check(b"get k\r\n", b"VALUE k 0 1\r\nv\r\nEND\r\n");
    let refused = b"SERVER_ERROR this server is a read only replica\r\n";
    both.check(b"set k 0 0 1\r\nw\r\n", refused);
    both.check(b"delete k\r\n", refused);
    both.check(b"get k\r\n", b"VALUE k 0 1\r\nv\r\nEND\r\n");
    let primary = Primary::new();
    let both = Both::start(primary.replica(), "pedrokv-port");
    let mut follower = primary.give_copy(1, &[("k", "v")]);
    follower.wait_for(1);
    let answer = both.talk([&*request(PUT, 1, b"k", b"w")]);
    assert!(
        answer.ends_with(b"err: this server is a read only replica"),
        "{}",
        answer.escape_ascii()
    );
    assert!(both.talk([&*request(GET, 2, b"k", b"")]).ends_with(b"v"));
}

#[test]
fn old_data_are_shown_or_not() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut c = server.connect();
    let follower = primary.give_copy(1, &[("k", "v")]);
    wait_for_link(&mut c, "up");
    drop((follower, primary));
    wait_for_link(&mut c, "down");
    c.check("GET k", r#""v""#);
    let queued = ["GET k", "PING", "CONFIG SET maxmemory 0"].map(|queued| {
        let mut client = server.connect();
        client.check("MULTI", "+OK");
        client.check(queued, "+QUEUED");
        (client, queued)
    });
    c.check("CONFIG SET replica-serve-stale-data no", "+OK");
    let down = "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
    c.check("GET k", down);
    c.check("EVAL 'return 1' 0", down);
    c.check("EVAL '#!lua flags=no-writes\nreturn 1' 0", down);
    let stale = "Can not execute the command on a stale replica";
    let script = "#!lua flags=allow-stale,no-writes\nreturn redis.call(\"GET\", KEYS[1])";
    let refused = c.ask(&format!("EVAL '{script}' 1 k")).to_string();
    assert!(refused.contains(stale), "{refused}");
    let read_only = "-READONLY You can't write against a read only replica.";
    c.check("SET k w", read_only);
    c.check("FUNCTION FLUSH", read_only);
    // Requests that were queued before are refused as well.
    let aborted = down.replacen('-', "-EXECABORT Transaction discarded because of: ", 1);
    for (mut client, queued) in queued {
        let is_answered = queued.starts_with("CONFIG");
        client.check("EXEC", if is_answered { "[+OK]" } else { &aborted });
    }
    assert!(c.ask("INFO replication").text().contains("master_link_status:down"));
    c.check("CONFIG SET replica-serve-stale-data yes", "+OK");
    c.check("GET k", r#""v""#);
    c.check("CONFIG SET replica-serve-stale-data no", "+OK");
    c.check("REPLICAOF NO ONE", "+OK");
    c.check("GET k", r#""v""#);
}

/// The primary decides if there is room.
#[test]
fn a_replica_beyond_its_memory_limit_answers_its_clients() {
    for policy in ["noeviction", "allkeys-lru", "spill"] {
        let primary = Primary::new();
        let launch = primary.replica().with("maxmemory", "1").with("maxmemory-policy", policy);
        let server = launch.start();
        let mut c = server.connect();
        let mut follower = primary.give_copy(1, &[("k", "v")]);
        wait_for_link(&mut c, "up");
        follower.send(stream(&["MULTI", "SET l w", "EXEC"]));
        wait_until("it is applied", || c.ask("GET l").to_string() == r#""w""#);
        c.check("MULTI", "+OK");
        c.check("GET k", "+QUEUED");
        c.check("PING", "+QUEUED");
        c.check("EXEC", r#"["v", +PONG]"#);
        c.check("PFCOUNT p", ":0");
        c.check("SET k w", "-READONLY You can't write against a read only replica.");
    }
}

#[test]
fn clients_hear_what_the_primary_does() {
    let primary = Primary::new();
    let server = primary.replica().with("notify-keyspace-events", "KEA").start();
    let mut follower = primary.give_copy(1, &[("k", "v")]);
    let (mut c, mut caching) = (server.connect(), server.connect_resp3());
    wait_for_link(&mut c, "up");
    let mut subscriber = server.connect_resp3();
    subscriber.check("SUBSCRIBE news __keyspace@0__:k", r#">["subscribe", "news", :1]"#);
    subscriber.expect(r#">["subscribe", "__keyspace@0__:k", :2]"#);
    caching.check("CLIENT TRACKING ON", "+OK");
    caching.check("GET k", r#""v""#);
    c.check("WATCH k", "+OK");
    follower.send(stream(&["PUBLISH news hello", "SET k w", "EXPIRE k 1000", "DEL k"]));
    subscriber.expect(r#">["message", "news", "hello"]"#);
    for event in ["set", "expire", "del"] {
        subscriber.expect(&format!(r#">["message", "__keyspace@0__:k", "{event}"]"#));
    }
    caching.expect(r#">["invalidate", ["k"]]"#);
    c.check("MULTI", "+OK");
    c.check("GET k", "+QUEUED");
    c.check("EXEC", "nil-array");
    // A pause of writes only concerns clients.
    c.check("CLIENT PAUSE 100000 WRITE", "+OK");
    follower.send(stream(&["SET k x", "PUBLISH news paused"]));
    subscriber.expect(r#">["message", "__keyspace@0__:k", "set"]"#);
    subscriber.expect(r#">["message", "news", "paused"]"#);
    c.check("CLIENT UNPAUSE", "+OK");
    // A full copy invalidates keys that it has and keys that it lacks.
    caching.check("MGET k other", r#"["x", null]"#);
    c.check("WATCH k", "+OK");
    drop(follower);
    let (mut follower, _) = primary.accept_until_psync();
    follower.send(format!("+FULLRESYNC {OTHER_ID} 5\r\n"));
    follower.send_file(&file(&[("other", "1")]));
    follower.wait_for(5);
    caching.expect(r#">["invalidate", null]"#);
    caching.check("MGET k other", r#"[null, "1"]"#);
    c.check("MULTI", "+OK");
    c.check("GET k", "+QUEUED");
    c.check("EXEC", "nil-array");
}
