//! A follower of a log in a bucket that another server owns: it gets the whole log from any starting point, and only
//! answers reads.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;

use rustix::process::Signal;
use tierce_harness::{Both, Connection, TempDir, free_port, wait_until};

use super::{
    contents, for_long, info, joining, kill, pedrokv_ask, replication, stop, wait_for_bucket,
    wait_for_state, wait_until_followed, write_everything,
};
use crate::pedrokv::{GET, PUT, request};

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
    // More than one object holds.
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
    // If the local log ends in the middle of a batch, a start has to load all data again.
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

/// Makes the owner delete objects older than a new snapshot, including this one.
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
    // Objects are deleted after a lease has ended.
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
        // The log no longer contains any of this.
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
    wait_for_state(&mut b, "follower");
    assert!(info(&mut b, "bucket_owner").ends_with(&format!(":{}", owner.port())));
    for line in ["REPLICAOF NO ONE", "REPLICAOF 127.0.0.1 1"] {
        assert!(b.ask(line).text().contains("follows the log in a bucket"), "{line}");
    }
    assert!(b.ask("FAILOVER").text().contains("replica"));
    // Keys that expire on the owner are removed here, and not earlier.
    a.check("PEXPIRE k 1", ":1");
    wait_until("it has expired", || a.ask("EXISTS k").int() == 0);
    wait_until_followed(&mut a, &mut b);
    b.check("EXISTS k", ":0");
    b.check("DBSIZE", ":0");
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
