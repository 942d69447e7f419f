//! Creation of the log's objects, and deletion of old ones.

use tierce_harness::{Connection, TempDir, wait_until};

use super::{contents, info, kill, objects, start, stop, wait_for_bucket, wait_for_snapshot};

#[test]
fn a_long_interval_can_be_lowered_and_does_not_hide_the_lag() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).with("bucket-interval", "3600000").start();
    let mut c = server.connect();
    let objects =
        |c: &mut Connection| info(c, "bucket_last_object").parse::<u64>().expect("a number");
    c.check("SET a 1", "+OK");
    wait_until("the first object does not wait", || objects(&mut c) == 2);
    c.check("SET a 2", "+OK");
    wait_until("the change was taken", || info(&mut c, "bucket_lag_seconds") != "0.000");
    assert_ne!(info(&mut c, "bucket_lag_bytes"), "0");
    assert_eq!(objects(&mut c), 2);
    c.check("CONFIG SET bucket-interval 100", "+OK");
    wait_until("the new interval acts", || objects(&mut c) == 3);
    c.check("CONFIG SET bucket-interval 3600000", "+OK");
    // Data that fill an object do not wait for the interval, however long it is.
    let value = "x".repeat(8 << 20);
    for _ in 0..5 {
        c.call(&["SET", "long", &value]);
    }
    wait_until("a full object was put", || objects(&mut c) > 3);
    kill(server);
}

#[test]
fn an_old_log_is_deleted_and_what_is_left_is_enough() {
    let (bucket, dir, other) = (TempDir::new(), TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).with("bucket-retention", "0").start();
    let mut c = server.connect();
    for number in 0..20 {
        c.check(&format!("SET key:{number} value"), "+OK");
        wait_for_bucket(&mut c);
    }
    wait_for_snapshot(&mut c);
    c.check("SET behind 1", "+OK");
    // Not before the end of the lease, for which other servers may wait.
    wait_until("it is deleted", || objects(&bucket).len() < 10);
    let expected = contents(&mut c);
    stop(server);
    let server = start(other.path(), &bucket).start();
    assert_eq!(contents(&mut server.connect()), expected);
}

#[test]
fn an_old_log_is_deleted_although_there_are_snapshots_all_the_time() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket)
        .with("bucket-retention", "0")
        .with("bucket-snapshot-interval", "1")
        .start();
    let mut c = server.connect();
    for number in 0..20 {
        c.check(&format!("SET key:{number} value"), "+OK");
        wait_for_bucket(&mut c);
    }
    let before = objects(&bucket);
    wait_until("it is deleted", || {
        c.ask("INCR counter");
        // CLAIMs are kept.
        before.iter().filter(|path| path.exists()).count() < 3
    });
    stop(server);
}
