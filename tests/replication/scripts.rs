//! A primary that replicates calls of scripts and not their effects, as Redis 6.2 can: they have the same results
//! here as there.

use tierce_harness::{Connection, encode, wait_until};

use super::fake_primary::{Follower, Primary, stream};
use super::replica::{info, wait_for_link, wait_for_log};

/// Sends requests of a stream from an offset on, and waits until all are applied. Returns the next offset.
#[track_caller]
fn apply(follower: &mut Follower, offset: u64, requests: &[&[&str]]) -> u64 {
    let commands: Vec<u8> = requests.iter().flat_map(|request| encode(request)).collect();
    let end = offset + commands.len() as u64;
    follower.send(commands);
    follower.wait_for(end);
    end
}

/// Loads a script and returns its digest.
fn load(c: &mut Connection, script: &str) -> String {
    c.call(&["SCRIPT", "LOAD", script]).text().to_owned()
}

#[test]
fn nothing_keeps_a_script_of_the_primary_from_its_effects() {
    const SET: &str = "return redis.call('SET', KEYS[1], ARGV[1])";
    const LONG: &str = "for i = 1, 20000 do redis.call('INCR', KEYS[1]) end";
    const FAILS: &str = "redis.call('SET', KEYS[1], 'kept') return redis.error_reply('ERR no')";
    const LIBRARY: &str = "#!lua name=l\nredis.register_function('f', function(keys, args) \
                           return redis.call('SET', keys[1], args[1]) end)";
    const FLAGGED: &str = "#!lua\nreturn redis.call('SET', KEYS[1], ARGV[1])";
    let primary = Primary::new();
    // Limits that refuse or end the scripts of clients.
    let server = primary
        .replica()
        .with("script-time-limit", "1")
        .with("script-memory-limit", "1000")
        .with("script-atomic", "yes")
        .with("maxmemory", "1")
        .with("maxmemory-policy", "noeviction")
        .with("min-replicas-to-write", "3")
        .with("replica-serve-stale-data", "no")
        .start();
    let mut follower = primary.give_copy(0, &[]);
    let mut c = server.connect();
    wait_for_link(&mut c, "up");
    let digest = load(&mut c, SET);
    let requests: &[&[&str]] = &[
        &["EVAL", SET, "1", "eval", "1"],
        &["SCRIPT", "LOAD", SET],
        &["EVALSHA", &digest, "1", "evalsha", "2"],
        &["FUNCTION", "LOAD", LIBRARY],
        &["FCALL", "f", "1", "fcall", "3"],
        &["MULTI"],
        &["EVAL", SET, "1", "multi", "4"],
        &["FCALL", "f", "1", "multi:f", "5"],
        &["EXEC"],
        &["EVAL", FLAGGED, "1", "flagged", "6"],
        &["EVAL", LONG, "1", "long"],
        &["EVAL", FAILS, "1", "fails"],
    ];
    let end = apply(&mut follower, 0, requests);
    c.check(
        "MGET eval evalsha fcall multi multi:f flagged long fails",
        r#"["1", "2", "3", "4", "5", "6", "20000", "kept"]"#,
    );
    // Scripts of others are refused and ended as before.
    let refused = c.call(&["EVAL", SET, "1", "eval", "own"]).to_string();
    assert!(refused.contains("script-memory-limit"), "{refused}");
    let refused = c.call(&["EVAL", FLAGGED, "1", "eval", "own"]).to_string();
    assert!(refused.starts_with("-READONLY"), "{refused}");
    assert_eq!(info(&mut c, "slave_repl_offset"), end.to_string());
}

#[test]
fn a_script_of_the_primary_counts_from_now_where_it_says_so() {
    const EXPIRES: &str = "redis.call('SET', KEYS[1], 'v') redis.call('EXPIRE', KEYS[1], 1000) \
                           redis.call('SET', KEYS[2], redis.call('TTL', KEYS[1]))";
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut follower = primary.give_copy(0, &[]);
    apply(&mut follower, 0, &[&["EVAL", EXPIRES, "2", "{k}", "{k}:ttl"]]);
    let mut c = server.connect();
    let seen: i64 = c.ask("GET {k}:ttl").text().parse().expect("a number");
    for ttl in [seen, c.ask("TTL {k}").int()] {
        assert!((900..=1000).contains(&ttl), "{ttl}");
    }
}

#[test]
fn a_script_that_is_not_known_here_needs_a_full_copy() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut follower = primary.give_copy(0, &[]);
    follower.send(stream(&["EVALSHA 0123456789abcdef0123456789abcdef01234567 1 k"]));
    follower.wait_for_end();
    let (_, psync) = primary.accept_until_psync();
    assert_eq!(psync, "PSYNC ? -1");
    wait_for_log(&server, "script of the primary could not be applied");
}

#[test]
fn who_needs_what_a_script_of_the_primary_holds_is_told_and_nobody_else_waits() {
    const ENDLESS: &str = "while true do redis.call('GET', KEYS[1]) end";
    for is_within in [false, true] {
        let primary = Primary::new();
        let launch = primary.replica().with("io-threads", "1").with("busy-reply-threshold", "1");
        let server = launch.start();
        let mut follower = primary.give_copy(0, &[]);
        let mut c = server.connect();
        wait_for_link(&mut c, "up");
        let call = encode(&["EVAL", ENDLESS, "1", "held"]);
        match is_within {
            true => follower.send([stream(&["MULTI"]), call, stream(&["EXEC"])].concat()),
            false => follower.send(call),
        }
        // It shares its worker with the others.
        wait_until("it runs", || c.ask("GET held").to_string().starts_with("-BUSY"));
        server.connect().check("PING", "+PONG");
        c.check("SCRIPT KILL", "+OK");
        wait_until("it has ended", || c.ask("GET held").to_string() == "nil");
        wait_for_log(&server, "was killed");
    }
}
