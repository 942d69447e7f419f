//! The directory of a killed owner continues with its bucket: it sends the missing records from its local log.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::path::Path;
use std::process::Command;

use tierce_harness::{
    Connection, Random, Server, TempDir, free_port, takes_up_to_seconds, wait_until,
};

use super::{
    Contents, contents, info, kill, refused, start, stop, wait_for_bucket, wait_for_snapshot,
    wait_for_state, write_everything,
};
use crate::launch;

/// Starts a server that sends nothing on its own.
pub(super) fn start_idle(dir: &Path, bucket: &TempDir) -> Server {
    start(dir, bucket).with("bucket-interval", "3600000").start()
}

/// Returns the DUMP of each string and sorted set. For other types it also depends on a value's history.
fn dumps(c: &mut Connection) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all = BTreeMap::new();
    // Compressing large strings would take most of the time.
    c.check("CONFIG SET rdbcompression no", "+OK");
    for db in 0..16 {
        c.check(&format!("SELECT {db}"), "+OK");
        let keys = c.ask("KEYS *");
        for key in keys.items() {
            let kind = c.call(&[b"TYPE", key.bytes()]).text().to_owned();
            if !["string", "zset"].contains(&kind.as_str()) {
                continue;
            }
            let dumped = c.call(&[b"DUMP", key.bytes()]);
            let name = [format!("{db} ").as_bytes(), key.bytes()].concat();
            all.insert(name, dumped.bytes().to_vec());
        }
    }
    c.check("SELECT 0", "+OK");
    all
}

/// Returns true if there was a new base since the log began.
pub(super) fn has_snapshot(c: &mut Connection) -> bool {
    info(c, "bucket_snapshot_object") != "0"
}

/// Checks that there is no difference, or fails with the first one.
fn assert_same<K: Ord + Debug, V: PartialEq + Debug>(a: &BTreeMap<K, V>, b: &BTreeMap<K, V>) {
    let keys = a.keys().chain(b.keys());
    for key in keys {
        let (a, b) = (a.get(key), b.get(key));
        assert!(a == b, "{key:?}: {:.2000} and not {:.2000}", format!("{a:?}"), format!("{b:?}"));
    }
}

/// Kills this server and checks that the bucket has all of its data.
pub(super) fn compare(server: Server, bucket: &TempDir) {
    let mut c = server.connect();
    wait_for_bucket(&mut c);
    let expected = (contents(&mut c), dumps(&mut c));
    kill(server);
    let other = TempDir::new();
    let server = start(other.path(), bucket).with("bucket-claim", "force").start();
    let mut c = server.connect();
    assert_same(&contents(&mut c), &expected.0);
    assert_same(&dumps(&mut c), &expected.1);
    kill(server);
}

#[test]
fn a_killed_owner_sends_what_the_bucket_lacks_and_no_new_base() {
    takes_up_to_seconds(180);
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let server = start_idle(dir.path(), &bucket);
    let mut c = server.connect();
    write_everything(&mut c, 1);
    wait_for_bucket(&mut c);
    let mut expected = BTreeMap::new();
    kill_often(server, dir.path(), &bucket, &mut expected);
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    assert_same(&contents(&mut c), &expected);
    wait_for_state(&mut c, "following");
    assert!(!has_snapshot(&mut c));
    compare(server, &bucket);
}

/// Repeatedly writes records that do not reach the bucket, and kills the server.
fn kill_often(mut server: Server, dir: &Path, bucket: &TempDir, expected: &mut Contents) {
    for round in 2..6 {
        let mut c = server.connect();
        write_everything(&mut c, round);
        if round == 3 {
            // A part of it is in the bucket, and the rest is not.
            wait_for_bucket(&mut c);
            write_everything(&mut c, 100 + round);
        }
        *expected = contents(&mut c);
        kill(server);
        server = start_idle(dir, bucket);
        assert_same(&contents(&mut server.connect()), expected);
    }
    kill(server);
}

#[test]
fn what_was_sent_is_not_sent_again_and_what_a_checkpoint_wrote_is_not_sent() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let server = start_idle(dir.path(), &bucket);
    let mut c = server.connect();
    write_everything(&mut c, 1);
    // The compaction never ends, so it is in progress when the server is killed.
    c.check("CONFIG SET compaction-bytes-per-second 100kb", "+OK");
    c.check("RPUSH twice a", ":1");
    c.check("RPUSH twice a", ":2");
    wait_for_bucket(&mut c);
    c.ask("BGREWRITEAOF");
    wait_until("it is underway", || {
        let text = c.ask("INFO persistence").text().to_owned();
        text.contains("aof_rewrite_in_progress:1")
    });
    for _ in 0..40 {
        for key in 0..20 {
            c.call(&["RPUSH", &format!("twice:{key}"), "a"]);
        }
    }
    wait_for_bucket(&mut c);
    c.check("RPUSH twice a", ":3");
    write_everything(&mut c, 2);
    let expected = contents(&mut c);
    let text = c.ask("INFO persistence").text().to_owned();
    assert!(text.contains("aof_rewrite_in_progress:1"), "it was to be underway: {text}");
    kill(server);
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    assert_same(&contents(&mut c), &expected);
    wait_for_state(&mut c, "following");
    assert!(!has_snapshot(&mut c));
    compare(server, &bucket);
}

/// Replaces the contents of a directory.
pub(super) fn copy_back(from: &Path, to: &Path) {
    for entry in fs::read_dir(to).expect("a directory").flatten() {
        let path = entry.path();
        let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        removed.expect("to be removed");
    }
    copy(from, to);
}

pub(super) fn copy(from: &Path, to: &Path) {
    let from = format!("{}/.", from.display());
    assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp").success());
}

#[test]
fn an_old_copy_in_the_place_of_a_directory_is_refused() {
    for is_pruned in [false, true] {
        let (bucket, dir, old) = (TempDir::new(), TempDir::new(), TempDir::new());
        let server = start(dir.path(), &bucket).with("bucket-retention", "0").start();
        let mut c = server.connect();
        c.check("SET early 1", "+OK");
        wait_for_bucket(&mut c);
        wait_until("there is a cut", || {
            let text = fs::read_to_string(dir.path().join("bucket.state")).unwrap_or_default();
            text.contains("\ncut ") && !text.contains("\ncut -")
        });
        copy(dir.path(), old.path());
        c.check("SET late 1", "+OK");
        wait_for_bucket(&mut c);
        if is_pruned {
            wait_for_snapshot(&mut c);
            wait_until("the floor is set", || {
                fs::read_dir(bucket.path().join("floor"))
                    .is_ok_and(|mut found| found.next().is_some())
            });
            c.check("SET late 2", "+OK");
            wait_for_bucket(&mut c);
        }
        kill(server);
        copy_back(old.path(), dir.path());
        for claim in ["orderly", "force"] {
            let launch = start(dir.path(), &bucket)
                .with("port", &free_port().to_string())
                .with("bucket-claim", claim);
            let error = refused(&launch);
            assert!(error.contains("an old copy of itself"), "{error}");
        }
        let other = TempDir::new();
        let server = start(other.path(), &bucket).with("bucket-claim", "force").start();
        let late = if is_pruned { "2" } else { "1" };
        assert_eq!(server.connect().ask("GET late").text(), late);
        kill(server);
    }
}

/// In a moved directory, a start was killed after it had put its CLAIM but before it had recorded that. The next
/// start continues only from the data of the CLAIM: not if a start of a copy has written since.
#[test]
fn a_start_that_was_killed_behind_its_claim_goes_on_from_what_it_had() {
    let (bucket, dir, old) = (TempDir::new(), TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).start();
    server.connect().check("SET k 1", "+OK");
    stop(server);
    let before = fs::read_to_string(dir.path().join("bucket.state")).unwrap();
    let line = |name| before.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let number = line("released ").parse::<u64>().unwrap() + 1;
    copy(dir.path(), old.path());
    kill(start(dir.path(), &bucket).start());
    let claim = fs::read(bucket.path().join(format!("log/{number:020}"))).unwrap();
    let nonce: String = claim[64..80].iter().map(|byte| format!("{byte:02x}")).collect();
    let home = line("home ");
    let moved = before.replace(home, &format!("{} 1", "ab".repeat(16)));
    let killed = format!("{moved}claiming {nonce} {home}\n");
    fs::write(old.path().join("bucket.state"), killed).unwrap();
    copy_back(old.path(), dir.path());
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    c.check("GET k", "\"1\"");
    wait_for_state(&mut c, "following");
    c.check("SET k 2", "+OK");
    wait_for_bucket(&mut c);
    kill(server);
    copy_back(old.path(), dir.path());
    for claim in ["orderly", "force"] {
        let launch = start(dir.path(), &bucket).with("bucket-claim", claim);
        let error = refused(&launch.with("port", &free_port().to_string()));
        assert!(error.contains("gone on without this directory"), "{error}");
    }
}

#[test]
fn a_log_that_has_lost_the_place_brings_a_base() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let server = start_idle(dir.path(), &bucket);
    let mut c = server.connect();
    write_everything(&mut c, 1);
    wait_for_bucket(&mut c);
    write_everything(&mut c, 2);
    c.ask("BGREWRITEAOF");
    wait_until("it is through", || {
        let text = c.ask("INFO persistence").text().to_owned();
        text.contains("\r\naof_rewrites:1")
    });
    kill(server);
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    wait_for_state(&mut c, "following");
    assert!(has_snapshot(&mut c));
    compare(server, &bucket);
}

#[test]
fn what_was_written_without_the_bucket_comes_with_a_base() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let server = start_idle(dir.path(), &bucket);
    write_everything(&mut server.connect(), 1);
    kill(server);
    let server = launch().keeping().with("dir", &dir.path().display().to_string()).start();
    let mut c = server.connect();
    write_everything(&mut c, 2);
    let expected = contents(&mut c);
    stop(server);
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    assert_same(&contents(&mut c), &expected);
    wait_for_state(&mut c, "following");
    assert!(has_snapshot(&mut c));
    compare(server, &bucket);
}

#[test]
fn clients_write_side_by_side_and_the_owner_is_killed_in_the_middle() {
    takes_up_to_seconds(180);
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let mut random = Random::new(23);
    for _ in 0..5 {
        let server = start(dir.path(), &bucket).start();
        let mut all: Vec<_> = (0..8).map(|_| server.connect()).collect();
        let big = "b".repeat(2 << 20);
        for _ in 0..1 + random.below(8) {
            for c in &mut all {
                write_some(c, &mut random, &big);
            }
        }
        // Everything that has been executed by now, and no more.
        kill(server);
    }
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    wait_for_state(&mut c, "following");
    assert!(!has_snapshot(&mut c));
    compare(server, &bucket);
}

/// Sends requests without waiting for their replies.
fn write_some(c: &mut Connection, random: &mut Random, big: &str) {
    for _ in 0..50 {
        let (a, b) = (random.below(30).to_string(), random.below(30).to_string());
        let (list, other) = (format!("l{a}"), format!("l{b}"));
        match random.below(9) {
            0 => c.request(&["RPUSH", &list, "x", "y"]),
            1 => c.request(&["LMOVE", &list, &other, "LEFT", "RIGHT"]),
            2 => {
                c.request(&["MULTI"]);
                c.request(&["RPUSH", &list, "m"]);
                c.request(&["INCR", &format!("n{b}")]);
                c.request(&["EXEC"]);
            }
            3 => {
                let script = "redis.call('RPUSH', KEYS[1], 's') redis.call('APPEND', KEYS[2], 's')";
                c.request(&["EVAL", script, "2", &list, &format!("s{b}")]);
            }
            4 => c.request(&["SWAPDB", "0", "1"]),
            5 if a == "7" => c.request(&["FLUSHDB"]),
            5 => c.request(&["SET", &format!("e{a}"), "x", "PX", "3"]),
            6 if a == "7" => c.request(&["SET", &format!("big{b}"), big]),
            6 => c.request(&["XADD", &format!("x{a}"), "*", "f", "v"]),
            7 => c.request(&["RENAME", &list, &other]),
            _ => c.request(&["ZINCRBY", &format!("z{a}"), "1", "m"]),
        }
    }
}

#[test]
fn a_copy_of_a_directory_needs_force() {
    let (bucket, dir, copies) = (TempDir::new(), TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    c.check("SET a 1", "+OK");
    wait_for_bucket(&mut c);
    let copy = copies.path().join("copy");
    let copied = Command::new("cp").arg("-r").arg(dir.path()).arg(&copy).status().expect("cp");
    assert!(copied.success());
    // The first one is running, which the copy cannot see. A refused start does not make the copy the original.
    for _ in 0..2 {
        let error = refused(&start(&copy, &bucket).with("port", &free_port().to_string()));
        assert!(error.contains("--bucket-claim force"), "{error}");
    }
    c.check("SET a 2", "+OK");
    wait_for_bucket(&mut c);
    kill(server);
    let server = start(dir.path(), &bucket).start();
    server.connect().check("GET a", "\"2\"");
}
