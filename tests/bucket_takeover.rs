//! Servers with one bucket, here a directory, of which one owns the log: the others follow it, answer reads, and take over
//! when the owner is gone.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;

use rustix::process::Signal;
use tierce_harness::{Both, Connection, Launch, Server, TempDir, free_port, wait_until};

use crate::bucket::{
    contents, info, kill, pedrokv_ask, start, stop, wait_for_bucket, wait_for_snapshot,
    write_everything,
};
use crate::pedrokv::{GET, PUT, request};

/// A start with a short lease, which a busy machine holds all the same.
pub(crate) fn joining(dir: &Path, bucket: &TempDir) -> Launch {
    start(dir, bucket).with("bucket-takeover", "yes").with("bucket-lease", "3")
}

/// A start with a lease that is not over while a test runs.
pub(crate) fn for_long(dir: &Path, bucket: &TempDir) -> Launch {
    joining(dir, bucket).with("bucket-lease", "3600")
}

pub(crate) fn role(c: &mut Connection) -> String {
    c.ask("ROLE").items()[0].text().to_owned()
}

/// A field of INFO replication.
fn replication(c: &mut Connection, name: &str) -> String {
    let text = c.ask("INFO replication").text().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().to_owned()
}

/// Waits until a follower has everything that was done before.
pub(crate) fn wait_until_followed(owner: &mut Connection, follower: &mut Connection) {
    wait_for_bucket(owner);
    let number = info(owner, "bucket_last_object").parse::<u64>().unwrap();
    wait_until("it has followed", || {
        info(follower, "bucket_last_object").parse::<u64>().unwrap() >= number
    });
}

pub(crate) fn wait_for_owner(c: &mut Connection) {
    wait_until("it has taken over", || role(c) == "master");
}

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
    // While it follows: applied as it comes, and not only loaded.
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
    // What it has written is in the log, without a snapshot of its own.
    assert_eq!(info(&mut b, "bucket_state"), "following");
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
    // Requests are under way.
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
    // The directory that has left lacks nothing that it had to send: it goes on behind its end.
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
fn a_follower_goes_on_where_its_local_log_ends() {
    let (bucket, first, second) = (TempDir::new(), TempDir::new(), TempDir::new());
    let owner = for_long(first.path(), &bucket).start();
    let mut a = owner.connect();
    write_everything(&mut a, 1);
    let follower = for_long(second.path(), &bucket).start();
    let mut b = follower.connect();
    wait_until_followed(&mut a, &mut b);
    kill(follower);
    write_everything(&mut a, 2);
    let follower = for_long(second.path(), &bucket).start();
    let mut b = follower.connect();
    wait_until_followed(&mut a, &mut b);
    assert_eq!(contents(&mut b), contents(&mut a));
    assert!(!follower.output().contains("Restored"), "{}", follower.output());
}

#[test]
fn a_follower_that_starts_in_the_middle_of_a_batch_has_all_of_it() {
    let (bucket, first) = (TempDir::new(), TempDir::new());
    let owner = for_long(first.path(), &bucket).start();
    let mut a = owner.connect();
    a.check("SET k 1", "+OK");
    wait_for_bucket(&mut a);
    let last_object = |c: &mut Connection| info(c, "bucket_last_object").parse::<u64>().unwrap();
    let middle = last_object(&mut a) + 1;
    // More than an object has.
    let script =
        "for i = 1, 8 do redis.call('SET', 'k' .. i, string.rep(i, 10000000)) end return 'OK'";
    assert_eq!(a.call(&[b"EVAL", script.as_bytes(), b"0"]).text(), "OK");
    wait_for_bucket(&mut a);
    let rest: Vec<_> = (middle + 1..=last_object(&mut a)).map(|n| format!("log/{n:020}")).collect();
    assert!(!rest.is_empty(), "the batch is in one object");
    let away = TempDir::new();
    std::fs::create_dir(away.path().join("log")).unwrap();
    let moved = |from: &TempDir, to: &TempDir| {
        for name in &rest {
            std::fs::rename(from.path().join(name), to.path().join(name)).unwrap();
        }
    };
    // A start whose local log ends in the middle of a batch has to load all data anew.
    for restarts in [0, 2] {
        let dir = TempDir::new();
        moved(&bucket, &away);
        let mut follower = for_long(dir.path(), &bucket).start();
        for _ in 0..restarts {
            wait_until("it is there", || last_object(&mut follower.connect()) == middle);
            kill(follower);
            follower = for_long(dir.path(), &bucket).start();
        }
        let mut b = follower.connect();
        wait_until("it is there", || last_object(&mut b) == middle);
        assert_eq!(b.ask("DBSIZE").int(), 1, "nothing of the batch is to be seen");
        moved(&away, &bucket);
        wait_until_followed(&mut a, &mut b);
        assert_eq!(b.ask("DBSIZE").int(), 9, "{restarts} restarts");
        kill(follower);
    }
}

/// Has the owner delete what is older than a new snapshot, this object among it.
fn prune(owner: &mut Connection, object: &Path) {
    assert!(object.exists(), "{}", object.display());
    let snapshot = info(owner, "bucket_snapshot_object");
    owner.check("CONFIG SET bucket-retention 0 bucket-snapshot-interval 1", "+OK");
    wait_until("there is a new snapshot", || {
        owner.check("SET last x", "+OK");
        info(owner, "bucket_snapshot_object") != snapshot
    });
    owner.check("CONFIG SET bucket-snapshot-interval 86400", "+OK");
    wait_until("it is deleted", || !object.exists());
}

#[test]
fn a_follower_that_pruning_has_overtaken_loads_all_data_anew() {
    let (bucket, first, second) = (TempDir::new(), TempDir::new(), TempDir::new());
    // Objects are deleted when a lease is over.
    let owner = joining(first.path(), &bucket).start();
    let mut a = owner.connect();
    write_everything(&mut a, 1);
    let mut follower = joining(second.path(), &bucket).start();
    for is_restart in [true, false] {
        let mut b = follower.connect();
        wait_until_followed(&mut a, &mut b);
        let next = info(&mut b, "bucket_last_object").parse::<u64>().unwrap() + 1;
        follower.signal(if is_restart { Signal::KILL } else { Signal::STOP });
        if is_restart {
            follower.wait_for_end();
        }
        // Nothing of this is in the log any more.
        a.check("DEL hash text:1", ":2");
        write_everything(&mut a, 2);
        a.check("FUNCTION DELETE lib2", "+OK");
        wait_for_bucket(&mut a);
        prune(&mut a, &bucket.path().join(format!("log/{next:020}")));
        if is_restart {
            follower = joining(second.path(), &bucket).start();
        } else {
            follower.signal(Signal::CONT);
        }
        let mut b = follower.connect();
        wait_until_followed(&mut a, &mut b);
        assert_eq!(contents(&mut b), contents(&mut a));
        assert!(follower.output().contains("All data are loaded"), "{}", follower.output());
        a.check("SET text:1 x", "+OK");
        write_everything(&mut a, 4);
        a.check("FUNCTION DELETE lib4", "+OK");
    }
    let mut b = follower.connect();
    wait_until_followed(&mut a, &mut b);
    assert_eq!(contents(&mut b), contents(&mut a));
}

#[test]
fn a_follower_that_has_loaded_all_data_anew_says_who_owns_the_log() {
    let (bucket, first, second) = (TempDir::new(), TempDir::new(), TempDir::new());
    let owner = joining(first.path(), &bucket).start();
    let mut a = owner.connect();
    a.check("SET k 1", "+OK");
    let follower = joining(second.path(), &bucket).start();
    let mut b = follower.connect();
    wait_until_followed(&mut a, &mut b);
    assert_eq!(replication(&mut b, "master_port"), owner.port().to_string());
    follower.signal(Signal::STOP);
    let next = info(&mut a, "bucket_last_object").parse::<u64>().unwrap() + 1;
    a.check("SET k 2", "+OK");
    wait_for_bucket(&mut a);
    stop(owner);
    // Its CLAIM is before the snapshot from which the follower loads.
    let owner = joining(first.path(), &bucket).start();
    let mut a = owner.connect();
    prune(&mut a, &bucket.path().join(format!("log/{next:020}")));
    follower.signal(Signal::CONT);
    wait_until_followed(&mut a, &mut b);
    assert!(follower.output().contains("All data are loaded"), "{}", follower.output());
    b.check("GET k", "\"2\"");
    assert_eq!(replication(&mut b, "master_port"), owner.port().to_string());
    assert_eq!(b.ask("ROLE").items()[2].int(), i64::from(owner.port()));
    b.check("CLIENT CAPA redirect", "+OK");
    let to = format!("REDIRECT 127.0.0.1:{}", owner.port());
    let redirected = b.ask("SET k 3").text().to_owned();
    assert!(redirected.ends_with(to.rsplit(':').next().unwrap()), "{redirected}");
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
    // Reads find nothing under the next number, and puts do not succeed: it is a link to nowhere.
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
    assert_eq!(info(&mut b, "bucket_state"), "following");
}

#[test]
fn the_directory_of_a_deposed_owner_is_put_aside_and_follows() {
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
fn a_follower_refuses_writes_in_every_protocol_and_says_who_owns_the_log() {
    let (bucket, first, second) = (TempDir::new(), TempDir::new(), TempDir::new());
    let owner = for_long(first.path(), &bucket).start();
    let mut a = owner.connect();
    a.check("SET k v PX 3600000", "+OK");
    let (pedrokv, http) = (free_port(), free_port());
    let launch = for_long(second.path(), &bucket)
        .with("pedrokv-port", &pedrokv.to_string())
        .with("http-port", &http.to_string());
    let both = Both::start(launch, "memcached-port");
    let mut b = both.server.connect();
    wait_until_followed(&mut a, &mut b);
    b.check("GET k", "\"v\"");
    for line in ["SET k w", "FLUSHALL", "FUNCTION FLUSH", "BLPOP l 1", "XADD s * a b"] {
        assert!(b.ask(line).text().starts_with("READONLY"), "{line}");
    }
    b.check("MULTI", "+OK");
    assert!(b.ask("SET k w").text().starts_with("READONLY"));
    b.ask("DISCARD");
    both.check(b"set k 0 0 1\r\nw\r\n", b"SERVER_ERROR this server is a read only replica\r\n");
    both.check(b"get k\r\n", b"VALUE k 0 1\r\nv\r\nEND\r\n");
    assert_ne!(pedrokv_ask(pedrokv, &request(PUT, 1, b"k", b"w")).0, 0);
    assert_eq!(pedrokv_ask(pedrokv, &request(GET, 1, b"k", b"")), (0, b"v".to_vec()));
    let mut web = TcpStream::connect((Ipv4Addr::LOCALHOST, http)).unwrap();
    let put = "POST / HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n[\"SET\",\"k\",\"w\"]";
    web.write_all(put.as_bytes()).unwrap();
    let mut reply = String::new();
    web.read_to_string(&mut reply).unwrap();
    assert!(reply.contains("READONLY"), "{reply}");
    let reply = b.ask("ROLE");
    let [kind, _, port, link, _] = reply.items() else { panic!("of a replica") };
    assert_eq!((kind.text(), link.text()), ("slave", "connected"));
    assert_eq!(port.int(), i64::from(owner.port()));
    assert_eq!(replication(&mut b, "role"), "slave");
    assert_eq!(replication(&mut b, "master_link_status"), "up");
    assert_eq!(info(&mut b, "bucket_state"), "follower");
    assert!(info(&mut b, "bucket_owner").ends_with(&format!(":{}", owner.port())));
    for line in ["REPLICAOF NO ONE", "REPLICAOF 127.0.0.1 1"] {
        assert!(b.ask(line).text().contains("follows the log in a bucket"), "{line}");
    }
    assert!(b.ask("FAILOVER").text().contains("replica"));
    // What has expired there is gone here, and not before.
    a.check("PEXPIRE k 1", ":1");
    wait_until("it has expired", || a.ask("EXISTS k").int() == 0);
    wait_until_followed(&mut a, &mut b);
    b.check("EXISTS k", ":0");
    b.check("DBSIZE", ":0");
}
