//! Servers with one bucket, here a directory. One owns the log; the others follow it, answer reads, and take over
//! when the owner is gone.

use rustix::process::Signal;
use tierce_harness::{Connection, Server, TempDir, wait_until};

use super::{
    contents, for_long, info, joining, kill, replication, role, stop, wait_for_bucket,
    wait_for_owner, wait_for_snapshot, wait_for_state, wait_until_followed, write_everything,
};

#[test]
fn a_follower_answers_reads_and_takes_over_from_an_owner_that_was_killed() {
    let (bucket, first, second) = (TempDir::new(), TempDir::new(), TempDir::new());
    let owner = joining(first.path(), &bucket).start();
    let mut a = owner.connect();
    write_everything(&mut a, 1);
    wait_for_snapshot(&mut a);
    write_everything(&mut a, 2);
    let follower = joining(second.path(), &bucket).start();
    let mut b = follower.connect();
    assert_eq!(role(&mut b), "slave");
    wait_until_followed(&mut a, &mut b);
    assert_eq!(contents(&mut b), contents(&mut a));
    // While it follows, so that it applies records and does not only load them.
    write_everything(&mut a, 3);
    a.check("SELECT 4", "+OK");
    a.check("SET moved x", "+OK");
    a.check("RENAME moved there", "+OK");
    a.check("SELECT 0", "+OK");
    wait_until_followed(&mut a, &mut b);
    let expected = contents(&mut a);
    assert_eq!(contents(&mut b), expected);
    for line in ["SET x 1", "LPOP list", "EVAL 'redis.call(\"SET\",\"x\",1)' 0", "FCALL f1 0"] {
        assert!(b.ask(line).text().contains("READONLY"), "{line}");
    }
    kill(owner);
    wait_for_owner(&mut b);
    assert_eq!(contents(&mut b), expected);
    b.check("SET x 1", "+OK");
    b.check("FCALL f3 0", ":4");
    wait_for_bucket(&mut b);
    // Its writes are in the log, without a snapshot of its own.
    wait_for_state(&mut b, "following");
    let expected = contents(&mut b);
    stop(follower);
    let third = TempDir::new();
    let server = joining(third.path(), &bucket).start();
    assert_eq!(contents(&mut server.connect()), expected);
}

#[test]
fn nothing_acknowledged_at_the_level_bucket_is_missing_after_a_takeover() {
    let (bucket, first, second) = (TempDir::new(), TempDir::new(), TempDir::new());
    let owner = joining(first.path(), &bucket).start();
    let follower = joining(second.path(), &bucket).start();
    let mut c = owner.connect();
    c.check("CLIENT DURABILITY bucket", "+OK");
    let mut acknowledged = 0;
    for round in 0..300 {
        acknowledged = c.ask("INCR n").int();
        c.call(&["RPUSH", "list", &round.to_string()]);
    }
    // Requests are in flight.
    (0..50).for_each(|_| c.request(&["INCR", "n"]));
    kill(owner);
    let mut b = follower.connect();
    wait_for_owner(&mut b);
    let n: i64 = b.ask("GET n").text().parse().unwrap();
    assert!((acknowledged..=acknowledged + 50).contains(&n), "{n}");
    assert_eq!(b.ask("LLEN list").int(), 300);
    b.check("INCR n", &format!(":{}", n + 1));
}

#[test]
fn an_owner_that_ends_in_order_is_succeeded_at_once() {
    let (bucket, first, second) = (TempDir::new(), TempDir::new(), TempDir::new());
    let long = |dir: &TempDir| for_long(dir.path(), &bucket);
    let owner = long(&first).start();
    let mut a = owner.connect();
    a.check("SET k v", "+OK");
    let follower = long(&second).start();
    let mut b = follower.connect();
    stop(owner);
    wait_for_owner(&mut b);
    b.check("GET k", "\"v\"");
    b.check("SET k w", "+OK");
    // The old directory lacks nothing that was sent: it continues after its end.
    let back = long(&first).start();
    let mut a = back.connect();
    assert_eq!(role(&mut a), "slave");
    wait_until_followed(&mut b, &mut a);
    a.check("GET k", "\"w\"");
    assert!(!back.errors().contains("is in"), "{}", back.errors());
    stop(follower);
    wait_for_owner(&mut a);
    a.check("SET k x", "+OK");
}

#[test]
fn of_two_followers_one_takes_over_and_the_other_follows_it() {
    let bucket = TempDir::new();
    let dirs = [TempDir::new(), TempDir::new(), TempDir::new()];
    let owner = joining(dirs[0].path(), &bucket).start();
    let mut a = owner.connect();
    a.check("SET k v", "+OK");
    let followers = [1, 2].map(|at| joining(dirs[at].path(), &bucket).start());
    let mut clients = followers.each_ref().map(Server::connect);
    clients.iter_mut().for_each(|c| wait_until_followed(&mut a, c));
    kill(owner);
    let is_owner = |c: &mut Connection| role(c) == "master";
    wait_until("one has taken over", || clients.iter_mut().any(is_owner));
    let winner = clients.iter_mut().position(is_owner).unwrap();
    clients[winner].check("SET k w", "+OK");
    let port = followers[winner].port().to_string();
    let [one, two] = &mut clients;
    let (winner, other) = if winner == 0 { (one, two) } else { (two, one) };
    wait_until_followed(winner, other);
    other.check("GET k", "\"w\"");
    assert_eq!((role(winner), role(other)), ("master".into(), "slave".into()));
    assert_eq!(replication(other, "master_port"), port);
    assert_eq!(replication(other, "master_link_status"), "up");
}

#[test]
fn the_directory_of_a_deposed_owner_is_put_aside_and_follows() {
    while !a_deposed_owner_is_put_aside() {}
}

/// Returns `false` if the owner has renewed its lease right before it was killed, and sent its last write with that.
fn a_deposed_owner_is_put_aside() -> bool {
    let (bucket, first, second) = (TempDir::new(), TempDir::new(), TempDir::new());
    let owner = joining(first.path(), &bucket).with("bucket-interval", "3600000").start();
    let mut a = owner.connect();
    a.check("SET k 1", "+OK");
    wait_for_bucket(&mut a);
    a.check("SET only here", "+OK");
    kill(owner);
    let follower = joining(second.path(), &bucket).start();
    let mut b = follower.connect();
    wait_for_owner(&mut b);
    if b.ask("EXISTS only").int() == 1 {
        return false;
    }
    b.check("SET k 2", "+OK");
    let back = joining(first.path(), &bucket).start();
    let mut a = back.connect();
    assert_eq!(role(&mut a), "slave");
    wait_until_followed(&mut b, &mut a);
    assert_eq!((a.ask("GET k").text(), a.ask("EXISTS only").int()), ("2", 0));
    let aside = std::fs::read_dir(first.path()).unwrap().find_map(|found| {
        let path = found.unwrap().path();
        path.file_name()?.to_str()?.starts_with("diverged-").then_some(path)
    });
    let aside = aside.expect("a directory of what was there");
    let old = crate::launch().keeping().with("dir", &aside.display().to_string()).start();
    old.connect().check("GET only", "\"here\"");
    true
}

#[test]
fn an_owner_that_stands_still_is_succeeded_and_shows_nothing_old() {
    let (bucket, first, second) = (TempDir::new(), TempDir::new(), TempDir::new());
    let mut owner = joining(first.path(), &bucket).start();
    let mut a = owner.connect();
    a.check("SET k old", "+OK");
    let follower = joining(second.path(), &bucket).start();
    let mut b = follower.connect();
    wait_until_followed(&mut a, &mut b);
    owner.signal(Signal::STOP);
    wait_for_owner(&mut b);
    b.check("SET k new", "+OK");
    a.send(b"GET k\r\n");
    owner.signal(Signal::CONT);
    assert!(a.rest().is_empty(), "it answers nothing any more");
    // A supervisor starts it again, and it follows.
    assert!(!owner.wait_for_end().success());
    let back = joining(first.path(), &bucket).start();
    let mut a = back.connect();
    wait_until_followed(&mut b, &mut a);
    a.check("GET k", "\"new\"");
    assert_eq!(role(&mut a), "slave");
}

#[test]
fn a_takeover_whose_claim_cannot_be_put_is_told() {
    let (bucket, first, second) = (TempDir::new(), TempDir::new(), TempDir::new());
    let owner = joining(first.path(), &bucket).start();
    let mut a = owner.connect();
    a.check("SET k v", "+OK");
    let follower = joining(second.path(), &bucket).with("replica-serve-stale-data", "no").start();
    let mut b = follower.connect();
    wait_until_followed(&mut a, &mut b);
    b.check("GET k", "\"v\"");
    kill(owner);
    // A dangling link: reads find nothing under the next number, and puts fail.
    let names = std::fs::read_dir(bucket.path().join("log")).unwrap();
    let numbers = names.filter_map(|name| name.unwrap().file_name().to_str()?.parse::<u64>().ok());
    let next = bucket.path().join(format!("log/{:020}", numbers.max().unwrap() + 1));
    std::os::unix::fs::symlink("/nowhere/at/all", &next).unwrap();
    wait_until("it is known", || info(&mut b, "bucket_last_error").contains("log/"));
    assert_eq!(replication(&mut b, "master_link_status"), "down");
    assert!(b.ask("GET k").text().starts_with("MASTERDOWN"));
    let said = |text: &str| follower.output().matches(text).count();
    assert_eq!(said("is not followed: "), 1, "{}", follower.output());
    std::fs::remove_file(&next).unwrap();
    wait_for_owner(&mut b);
    b.check("GET k", "\"v\"");
    b.check("SET k w", "+OK");
    wait_for_bucket(&mut b);
    wait_for_state(&mut b, "following");
}
