//! A base: a snapshot of data that the earlier objects of the log do not have. Followers load it. A directory only
//! makes one from data that follow the log.

use std::fs;
use std::path::Path;

use tierce_harness::{Connection, Server, TempDir, free_port, wait_until};

use super::restart::{compare, copy, copy_back, has_snapshot, start_idle};
use super::{
    Away, contents, for_long, info, joining, kill, refused, role, start, stop, wait_for_bucket,
    wait_for_owner, wait_until_followed, write_everything,
};
use crate::launch;
use crate::replication::fake_replica::{copy as copy_of, line};

/// Starts a server with its data in `dir`, without a bucket.
fn start_alone(dir: &Path) -> Server {
    launch().keeping().with("dir", &dir.display().to_string()).start()
}

/// Makes a bucket that takes no snapshots.
fn without_snapshots() -> TempDir {
    let bucket = TempDir::new();
    fs::write(bucket.path().join("snapshot"), "no directory").expect("written");
    bucket
}

fn allow_snapshots(bucket: &TempDir) {
    fs::remove_file(bucket.path().join("snapshot")).expect("removed");
}

fn wait_for_state(c: &mut Connection, state: &str) {
    wait_until("it has this state", || info(c, "bucket_state") == state);
}

/// Rewrites the local log, which drops the last position that both logs share.
fn rewrite(c: &mut Connection) {
    c.ask("BGREWRITEAOF");
    wait_until("it is through", || c.ask("INFO persistence").text().contains("\r\naof_rewrites:1"));
}

#[test]
fn a_follower_loads_the_base_of_a_directory_with_its_first_bucket() {
    let (bucket, first, second) = (without_snapshots(), TempDir::new(), TempDir::new());
    let server = start_alone(first.path());
    write_everything(&mut server.connect(), 1);
    stop(server);
    let owner = joining(first.path(), &bucket).start();
    let mut a = owner.connect();
    wait_for_state(&mut a, "base");
    let follower = joining(second.path(), &bucket).start();
    let mut b = follower.connect();
    assert_eq!(b.ask("DBSIZE").int(), 0);
    allow_snapshots(&bucket);
    wait_for_state(&mut a, "following");
    wait_until_followed(&mut a, &mut b);
    let expected = contents(&mut a);
    wait_until("it has the base", || contents(&mut b) == expected);
    kill(owner);
    wait_for_owner(&mut b);
    assert_eq!(contents(&mut b), expected);
}

#[test]
fn a_follower_loads_the_base_of_an_owner_that_was_killed() {
    let (bucket, first, second) = (TempDir::new(), TempDir::new(), TempDir::new());
    let idle = || for_long(first.path(), &bucket).with("bucket-interval", "3600000").start();
    let owner = idle();
    let mut a = owner.connect();
    write_everything(&mut a, 1);
    wait_for_bucket(&mut a);
    let mut follower = for_long(second.path(), &bucket).start();
    let mut b = follower.connect();
    wait_until_followed(&mut a, &mut b);
    write_everything(&mut a, 2);
    rewrite(&mut a);
    let expected = contents(&mut a);
    kill(owner);
    let owner = idle();
    let mut a = owner.connect();
    wait_for_state(&mut a, "following");
    assert!(has_snapshot(&mut a));
    wait_until("it has the base", || contents(&mut b) == expected);
    // A follower that was away meanwhile also has it.
    kill(follower);
    write_everything(&mut a, 3);
    rewrite(&mut a);
    let expected = contents(&mut a);
    kill(owner);
    let owner = idle();
    wait_for_state(&mut owner.connect(), "following");
    follower = for_long(second.path(), &bucket).start();
    let mut b = follower.connect();
    wait_until("it has the base", || contents(&mut b) == expected);
    kill(owner);
    kill(follower);
}

#[test]
fn what_was_written_without_the_bucket_after_an_orderly_end_comes_with_a_base() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let server = start_idle(dir.path(), &bucket);
    write_everything(&mut server.connect(), 1);
    stop(server);
    let server = start_alone(dir.path());
    let mut c = server.connect();
    write_everything(&mut c, 2);
    let expected = contents(&mut c);
    stop(server);
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    assert_eq!(contents(&mut c), expected);
    wait_for_state(&mut c, "following");
    assert!(has_snapshot(&mut c));
    compare(server, &bucket);
}

/// A follower's writes without its bucket are not in the log, so they are put aside.
#[test]
fn what_was_written_in_a_followers_directory_without_the_bucket_is_put_aside() {
    let (bucket, first, second) = (TempDir::new(), TempDir::new(), TempDir::new());
    let owner = for_long(first.path(), &bucket).start();
    let mut a = owner.connect();
    a.check("SET k 1", "+OK");
    let follower = for_long(second.path(), &bucket).start();
    wait_until_followed(&mut a, &mut follower.connect());
    kill(follower);
    let alone = start_alone(second.path());
    alone.connect().check("SET only here", "+OK");
    stop(alone);
    a.check("SET k 2", "+OK");
    let error = refused(&start(second.path(), &bucket).with("port", &free_port().to_string()));
    assert!(error.contains("gone on without this directory"), "{error}");
    let follower = for_long(second.path(), &bucket).start();
    let mut b = follower.connect();
    wait_until_followed(&mut a, &mut b);
    assert_eq!((b.ask("GET k").text(), b.ask("EXISTS only").int()), ("2", 0));
    let aside = fs::read_dir(second.path()).unwrap().find_map(|found| {
        let path = found.unwrap().path();
        path.file_name()?.to_str()?.starts_with("diverged-").then_some(path)
    });
    let aside = aside.expect("a directory of what was there");
    start_alone(&aside).connect().check("GET only", "\"here\"");
}

/// The follower had claimed the log without knowing it yet. Its data are no base either.
#[test]
fn what_was_written_without_the_bucket_after_a_claim_of_a_follower_is_no_base() {
    let (bucket, first, second) = (TempDir::new(), TempDir::new(), TempDir::new());
    let owner = joining(first.path(), &bucket).start();
    let mut a = owner.connect();
    a.check("SET k 1", "+OK");
    let follower = joining(second.path(), &bucket).start();
    let mut b = follower.connect();
    wait_until_followed(&mut a, &mut b);
    let state = second.path().join("bucket.state");
    let follows = fs::read(&state).unwrap();
    kill(owner);
    wait_for_owner(&mut b);
    kill(follower);
    fs::write(&state, follows).unwrap();
    let alone = start_alone(second.path());
    alone.connect().check("SET only here", "+OK");
    stop(alone);
    for claim in ["orderly", "force"] {
        let launch = start(second.path(), &bucket).with("bucket-claim", claim);
        let error = refused(&launch.with("port", &free_port().to_string()));
        assert!(error.contains("gone on without this directory"), "{error}");
    }
}

/// A restore was interrupted, and then the directory was written to without its bucket. It makes no base.
#[test]
fn what_was_written_without_the_bucket_instead_of_a_restore_is_no_base() {
    let (bucket, first, second) = (TempDir::new(), TempDir::new(), TempDir::new());
    let server = start(first.path(), &bucket).start();
    server.connect().check("SET k 1", "+OK");
    stop(server);
    let server = start(second.path(), &bucket).start();
    server.connect().check("GET k", "\"1\"");
    kill(server);
    // This is the state before the restore is complete.
    for found in fs::read_dir(second.path()).unwrap().flatten() {
        let (path, name) = (found.path(), found.file_name().into_string().unwrap());
        if name.starts_with("wal") {
            let is_dir = path.is_dir();
            if is_dir { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        }
    }
    let alone = start_alone(second.path());
    alone.connect().check("SET only here", "+OK");
    stop(alone);
    for claim in ["orderly", "force"] {
        let launch = start(second.path(), &bucket).with("bucket-claim", claim);
        let error = refused(&launch.with("port", &free_port().to_string()));
        assert!(error.contains("gone on without this directory"), "{error}");
    }
}

/// The power fails right after a follower has put its CLAIM: neither the end of its local log nor its new state is on
/// the device.
#[test]
fn a_follower_without_the_end_of_its_local_log_brings_no_base_after_its_claim() {
    let (bucket, first, second, old) =
        (TempDir::new(), TempDir::new(), TempDir::new(), TempDir::new());
    let owner = joining(first.path(), &bucket).start();
    let mut a = owner.connect();
    write_everything(&mut a, 1);
    let follower = joining(second.path(), &bucket).start();
    wait_until_followed(&mut a, &mut follower.connect());
    kill(follower);
    copy(second.path(), old.path());
    write_everything(&mut a, 2);
    wait_for_bucket(&mut a);
    let expected = contents(&mut a);
    let follower = joining(second.path(), &bucket).start();
    let mut b = follower.connect();
    wait_until_followed(&mut a, &mut b);
    kill(owner);
    wait_for_owner(&mut b);
    kill(follower);
    copy_back(old.path(), second.path());
    for takeover in ["yes", "no"] {
        let back = joining(second.path(), &bucket).with("bucket-takeover", takeover).start();
        let mut b = back.connect();
        wait_for_owner(&mut b);
        wait_for_state(&mut b, "following");
        assert_eq!(contents(&mut b), expected, "takeover {takeover}");
        assert!(!has_snapshot(&mut b));
        kill(back);
        copy_back(old.path(), second.path());
    }
}

/// A follower was killed before it knew that it owns the log. Its own CLAIM prevents takeovers.
#[test]
fn a_follower_takes_over_from_its_own_claim_that_lets_no_other_do_so() {
    let (bucket, first, second) = (TempDir::new(), TempDir::new(), TempDir::new());
    let owner = joining(first.path(), &bucket).start();
    let mut a = owner.connect();
    a.check("SET k 1", "+OK");
    let follower = joining(second.path(), &bucket).start();
    let mut b = follower.connect();
    wait_until_followed(&mut a, &mut b);
    let state = second.path().join("bucket.state");
    let follows = fs::read(&state).unwrap();
    kill(owner);
    wait_for_owner(&mut b);
    kill(follower);
    for _ in 0..2 {
        fs::write(&state, &follows).unwrap();
        let back = start(second.path(), &bucket).start();
        let mut b = back.connect();
        wait_for_owner(&mut b);
        b.check("GET k", "\"1\"");
        assert_eq!(info(&mut b, "bucket_takeover"), "0");
        kill(back);
    }
}

/// The saver waits for a mark in the stream, which waits for the bucket, which waits for its base, which waits for
/// the saver.
#[test]
fn a_base_and_a_full_copy_do_not_wait_for_each_other() {
    let (bucket, dir) = (without_snapshots(), TempDir::new());
    let server = start_alone(dir.path());
    server.connect().check("SET k v", "+OK");
    stop(server);
    // With a lease, replicas only get records that the bucket has.
    let server = for_long(dir.path(), &bucket).with("repl-diskless-sync-delay", "0").start();
    let mut c = server.connect();
    wait_for_state(&mut c, "base");
    let ask = || {
        let mut replica = server.connect();
        replica.check("REPLCONF capa eof capa psync2", "+OK");
        replica.send("PSYNC ? -1\r\n");
        replica
    };
    // Long before its requests time out.
    wait_until("the failure is told", || server.output().contains("No snapshot in the bucket yet"));
    let mut replica = ask();
    wait_until("a replica waits", || c.ask("INFO replication").text().contains("wait_bgsave"));
    // Nothing else delays the saver for long.
    let saves = |c: &mut Connection| {
        wait_until("a save begins", || c.ask("BGSAVE").to_string().starts_with("+Background"));
    };
    saves(&mut c);
    allow_snapshots(&bucket);
    wait_for_state(&mut c, "following");
    assert!(line(&mut replica).starts_with("+FULLRESYNC"));
    assert!(!copy_of(&mut replica).is_empty());
    // Nor does an outage.
    let away = Away::begin(&bucket);
    c.check("SET k w", "+OK");
    let mut another = ask();
    wait_for_state(&mut c, "away");
    saves(&mut c);
    away.end();
    assert!(line(&mut another).starts_with("+FULLRESYNC"));
    assert!(!copy_of(&mut another).is_empty());
    stop(server);
}

#[test]
fn a_base_that_counts_while_the_store_was_away_is_no_state_for_ever() {
    let (bucket, dir) = (without_snapshots(), TempDir::new());
    let server = start_alone(dir.path());
    server.connect().check("SET k v", "+OK");
    stop(server);
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    wait_for_state(&mut c, "base");
    let away = Away::begin(&bucket);
    allow_snapshots(&bucket);
    // Its parts are there, but the record is not.
    wait_for_state(&mut c, "away");
    away.end();
    wait_until("it has a snapshot", || has_snapshot(&mut c));
    wait_for_state(&mut c, "following");
}

/// A crash leaves the beginning of a batch in the bucket. Nothing waits for the rest of it.
#[test]
fn a_batch_that_a_crash_has_cut_short_costs_no_follower_its_place() {
    let (bucket, first) = (TempDir::new(), TempDir::new());
    let owner = joining(first.path(), &bucket).start();
    let mut a = owner.connect();
    a.check("SET k 1", "+OK");
    wait_for_bucket(&mut a);
    let last_object = |c: &mut Connection| info(c, "bucket_last_object").parse::<u64>().unwrap();
    let before = last_object(&mut a);
    // More than one object holds.
    let script =
        "for i = 1, 8 do redis.call('SET', 'k' .. i, string.rep(i, 10000000)) end return 'OK'";
    assert_eq!(a.call(&[b"EVAL", script.as_bytes(), b"0"]).text(), "OK");
    wait_for_bucket(&mut a);
    kill(owner);
    let objects = || {
        let names = fs::read_dir(bucket.path().join("log")).expect("the log");
        let mut paths: Vec<_> = names.map(|found| found.expect("an object").path()).collect();
        paths.sort();
        paths
    };
    // The type of a record, in its header.
    let is_batch = |path: &Path| fs::read(path).expect("an object")[10] == 5;
    let all = objects();
    let behind = &all[before as usize..];
    let begun = behind.iter().position(|path| is_batch(path)).expect("the batch");
    assert!(behind[begun + 1..].iter().any(|path| is_batch(path)), "the batch is in one object");
    behind[begun + 1..].iter().for_each(|path| fs::remove_file(path).expect("removed"));
    let dirs = [TempDir::new(), TempDir::new()];
    let [one, two] = dirs.each_ref().map(|dir| joining(dir.path(), &bucket).start());
    let mut clients = [&one, &two].map(Server::connect);
    let is_owner = |c: &mut Connection| role(c) == "master";
    wait_until("one has taken over", || clients.iter_mut().any(is_owner));
    let winner = clients.iter_mut().position(is_owner).unwrap();
    let [c, d] = &mut clients;
    let (winner, other) = if winner == 0 { (c, d) } else { (d, c) };
    winner.check("SET k 2", "+OK");
    wait_until_followed(winner, other);
    other.check("GET k", "\"2\"");
    let at = usize::from(role(&mut one.connect()) == "master");
    let (mut servers, dir) = ([Some(one), Some(two)], dirs[at].path());
    kill(servers[at].take().unwrap());
    let back = joining(dir, &bucket).start();
    let mut other = back.connect();
    wait_until_followed(winner, &mut other);
    other.check("GET k", "\"2\"");
    assert!(!back.output().contains("Loading all data anew"), "{}", back.output());
}
