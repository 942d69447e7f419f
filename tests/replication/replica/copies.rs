//! Full copies to a replica: nothing changes until they are complete and valid.

use std::io::Write;

use tierce_harness::{Connection, Launch, TempDir, encode, wait_until};

use super::{wait_for_log, wait_for_reply};
use crate::replication::fake_primary::{ID, OTHER_ID, Primary, file, file_that_says, stream};
use crate::replication::{info, on_a_full_disk};

#[test]
fn the_old_data_stay_until_the_new_are_complete() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut c = server.connect();
    drop(primary.give_copy(1, &[("old", "1")]));
    let good = file(&[("new", "2")]);
    let mut newer = good.clone();
    newer[5..9].copy_from_slice(b"0099");
    let mut torn = good.clone();
    torn.truncate(good.len() - 9);
    let mut garbage = good.clone();
    garbage[11] = 200;
    let bad = [
        (newer, "the full copy cannot be loaded"),
        (torn, "the full copy cannot be loaded"),
        (garbage, "the full copy cannot be loaded"),
        (b"no file at all".to_vec(), "the full copy cannot be loaded"),
    ];
    for (file, why) in bad {
        let (mut follower, _) = primary.accept_until_psync();
        follower.send(format!("+FULLRESYNC {OTHER_ID} 5\r\n"));
        follower.send_file(&file);
        follower.wait_for_end();
        wait_for_log(&server, why);
        c.check("MGET old new", r#"["1", nil]"#);
    }
    // A copy that ends at any byte.
    let mark = "m".repeat(40);
    let whole = [format!("$EOF:{mark}\r\n").as_bytes(), &good, mark.as_bytes()].concat();
    for cut in [0, 1, 20, 50, whole.len() - 41, whole.len() - 40, whole.len() - 1] {
        let (mut follower, _) = primary.accept_until_psync();
        follower.send(format!("+FULLRESYNC {OTHER_ID} 5\r\n"));
        follower.send(&whole[..cut]);
        drop(follower);
        c.check("MGET old new", r#"["1", nil]"#);
    }
    let (mut follower, _) = primary.accept_until_psync();
    follower.send(format!("+FULLRESYNC {OTHER_ID} 5\r\n"));
    follower.send(&whole);
    follower.wait_for(5);
    c.check("MGET old new", r#"[nil, "2"]"#);
}

#[test]
fn a_copy_with_a_stream_of_a_database_that_is_not_here_is_refused() {
    let primary = Primary::new();
    let server = primary.replica().with("databases", "4").start();
    for copy in [
        file_that_says(&[("repl-stream-db", "4")], &[("a", "1")]),
        file_that_says(&[("repl-stream-db", "3")], &[("a", "1")]),
    ] {
        let (mut follower, _) = primary.accept_until_psync();
        follower.send(format!("+FULLRESYNC {ID} 0\r\n"));
        follower.send_file(&copy);
        follower.send(stream(&["SET b 1"]));
        wait_for_log(&server, "a stream that has selected database 4");
    }
    let mut client = server.connect();
    client.check("SELECT 3", "+OK");
    wait_for_reply(&mut client, "GET b", "\"1\"");
}

fn limited(primary: &Primary, dir: &TempDir, kib: u32) -> Launch {
    on_a_full_disk(dir, kib).with("replicaof", &format!("127.0.0.1 {}", primary.port()))
}

#[test]
fn a_copy_for_which_there_is_no_room_changes_nothing() {
    let dir = TempDir::new();
    let primary = Primary::new();
    let server = limited(&primary, &dir, 32).start();
    let mut c = server.connect();
    drop(primary.give_copy(1, &[("old", "1")]));
    let keys: Vec<String> = (0..30_000).map(|n| format!("k{n}")).collect();
    let strings: Vec<_> = keys.iter().map(|key| (key.as_str(), "v")).collect();
    let large = file(&strings);
    for _ in 0..2 {
        let (mut follower, psync) = primary.accept_until_psync();
        // Its data still have an offset in that stream.
        assert_eq!(psync, format!("PSYNC {ID} 2"));
        follower.send(format!("+FULLRESYNC {OTHER_ID} 5\r\n${}\r\n", large.len()));
        // It may disconnect before it has received everything.
        let _ = follower.stream.write_all(&large);
        follower.wait_for_end();
        c.check("MGET old k1", r#"["1", nil]"#);
    }
    wait_for_log(&server, "the full copy cannot be written: File too large");
    let mut follower = primary.give_copy(5, &[("new", "2")]);
    follower.wait_for(5);
    c.check("MGET old new", r#"[nil, "2"]"#);
}

/// It keeps changes that it could not log, and needs no copy for them: a copy would need the log's disk space.
#[test]
fn a_transaction_for_which_the_log_has_no_room_keeps_its_place() {
    let dir = TempDir::new();
    let primary = Primary::new();
    let server = limited(&primary, &dir, 8192).with("appendonly", "yes").start();
    let mut c = server.connect();
    let mut follower = primary.give_copy(0, &[]);
    let set = format!("SET large {}", "x".repeat(12_000_000));
    let transaction = stream(&["MULTI", "INCR n", &set, "EXEC"]);
    follower.send([&transaction[..], &stream(&["INCR n"])].concat());
    wait_until("the log has failed", || info(&mut c, "aof_last_write_status") == "err");
    // The link may have ended on its own.
    _ = follower.stream.write_all(&stream(&["INCR n"]));
    follower.wait_for_end();
    c.check("STRLEN large", ":12000000");
    // It continues without the log.
    c.check("CONFIG SET appendonly no", "+OK");
    let (_follower, psync) = primary.accept_until_psync();
    // Later commands may have been applied before the failure of the log was noticed.
    let offset: usize = psync.trim_start_matches(&format!("PSYNC {ID} ")).parse().expect(&psync);
    assert!(offset > transaction.len(), "{psync}");
}

/// A start would need the memory for all of it twice.
#[test]
fn a_copy_is_not_left_in_the_log_as_one_batch() {
    let primary = Primary::new();
    let launch = primary.replica().with("appendonly", "yes");
    let server = launch.with("compaction-bytes-per-second", "100kb").start();
    let mut c = server.connect();
    let passes = |c: &mut Connection| info(c, "aof_rewrites");
    let strings: Vec<_> = (0..5000).map(|key| (format!("key:{key}"), "v".repeat(60))).collect();
    let strings: Vec<_> = strings.iter().map(|(key, value)| (&**key, &**value)).collect();
    let mut follower = primary.give_copy(5, &strings);
    follower.wait_for(5);
    wait_until("a pass has begun", || info(&mut c, "aof_rewrite_in_progress") == "1");
    drop(follower);
    // The running compaction does not see the next copy.
    let mut follower = primary.give_copy(7, &strings);
    follower.wait_for(7);
    assert_eq!(passes(&mut c), "0");
    c.check("CONFIG SET compaction-bytes-per-second 0", "+OK");
    wait_until("another pass has divided it", || passes(&mut c) == "2");
}

/// Each request would cost the primary a full copy that the replica does not load.
#[test]
fn a_replica_whose_log_has_failed_asks_for_nothing() {
    let (primary, dir) = (Primary::new(), TempDir::new());
    let port = primary.port();
    let server = on_a_full_disk(&dir, 8192)
        .with("appendonly", "yes")
        .with("replicaof", &format!("127.0.0.1 {port}"))
        .start();
    let mut follower = primary.give_copy(0, &[]);
    follower.wait_for(0);
    let mut c = server.connect();
    follower.send(encode(&["SET", "large", &"x".repeat(12_000_000)]));
    wait_until("the log has failed", || info(&mut c, "aof_last_write_status") == "err");
    // The link may have ended on its own.
    _ = follower.stream.write_all(&encode(&["SET", "k", "v"]));
    wait_for_log(&server, "the log takes no writes");
    let seconds = |c: &mut Connection| info(c, "master_link_down_since_seconds");
    wait_until("it could have tried again", || seconds(&mut c).parse::<u64>().unwrap() >= 3);
    assert!(primary.is_left_alone());
    c.check("CONFIG SET appendonly no", "+OK");
    let _is_back = primary.accept_until_psync();
}
