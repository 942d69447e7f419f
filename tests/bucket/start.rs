//! Starts with a directory and a bucket: they continue, give the bucket a base, restore, or are refused.

use tierce_harness::{Launch, TempDir, free_port, wait_until};

use super::{
    contents, info, kill, refused, start, stop, wait_for_bucket, wait_for_snapshot, wait_for_state,
    write_everything,
};
use crate::launch;

#[test]
fn a_directory_goes_on_after_an_end_of_any_kind() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    c.check("SET a 1", "+OK");
    stop(server);
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    wait_for_state(&mut c, "following");
    // The shutdown was clean: nothing is sent again.
    assert_eq!(info(&mut c, "bucket_snapshot_object"), "0");
    c.check("CONFIG SET bucket-interval 3600000", "+OK");
    c.check("RPUSH list 1 2 3", ":3");
    c.check("RPUSH list 4", ":4");
    // The bucket does not have the last of this, but the directory does.
    kill(server);
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    c.check("LLEN list", ":4");
    wait_for_state(&mut c, "following");
    c.check("RPUSH list 5", ":5");
    wait_for_bucket(&mut c);
    stop(server);
    let other = TempDir::new();
    let server = start(other.path(), &bucket).start();
    server.connect().check("LRANGE list 0 -1", "[\"1\", \"2\", \"3\", \"4\", \"5\"]");
    stop(server);
}

#[test]
fn data_of_before_get_a_bucket() {
    let (bucket, dir, other) = (TempDir::new(), TempDir::new(), TempDir::new());
    let server = launch().keeping().with("dir", &dir.path().display().to_string()).start();
    server.connect().check("SET before 1", "+OK");
    stop(server);
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    c.check("SET after 1", "+OK");
    wait_for_bucket(&mut c);
    assert_ne!(info(&mut c, "bucket_snapshot_object"), "0");
    stop(server);
    let server = start(other.path(), &bucket).start();
    server.connect().check("MGET before after", "[\"1\", \"1\"]");
}

#[test]
fn a_server_that_has_no_right_to_the_log_does_not_start() {
    let (bucket, dir, other) = (TempDir::new(), TempDir::new(), TempDir::new());
    let free = |launch: Launch| launch.with("port", &free_port().to_string());
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    c.check("SET a 1", "+OK");
    wait_for_bucket(&mut c);
    let error = refused(&free(start(other.path(), &bucket)));
    assert!(error.contains("--bucket-claim force"), "{error}");
    let error = refused(&free(start(dir.path(), &bucket)));
    assert!(error.contains("another process uses it"), "{error}");
    c.check("SET a 2", "+OK");
    // The operator declares it dead, but it is running. It acknowledges nothing from then on.
    let second = start(other.path(), &bucket).with("bucket-claim", "force").start();
    let mut of_second = second.connect();
    of_second.check("SET a 3", "+OK");
    wait_until("the first one has found out", || {
        let reply = c.ask("SET a 4").to_string();
        reply.contains("another server has claimed the bucket")
    });
    wait_for_state(&mut c, "deposed");
    of_second.check("GET a", "\"3\"");
    stop(second);
    stop(server);
    let error = refused(&free(start(dir.path(), &bucket)));
    assert!(error.contains("gone on without this directory"), "{error}");
    let foreign = TempDir::new();
    let server = launch().keeping().with("dir", &foreign.path().display().to_string()).start();
    server.connect().check("SET b 1", "+OK");
    stop(server);
    let error = refused(&free(start(foreign.path(), &bucket)));
    assert!(error.contains("which do not come from it"), "{error}");
    for (more, part) in [("appendonly", "needs the local log"), ("appendfsync", "expected")] {
        let error = refused(
            &free(start(foreign.path(), &bucket)).with(more, "no").with("bucket", "nowhere"),
        );
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_restore_that_is_killed_begins_anew() {
    let (bucket, dir, other) = (TempDir::new(), TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    write_everything(&mut c, 1);
    wait_for_snapshot(&mut c);
    c.check("SET behind 1", "+OK");
    wait_for_bucket(&mut c);
    let expected = contents(&mut c);
    stop(server);
    let server = start(other.path(), &bucket).with("key-load-delay", "200000").start_loading();
    let mut c = server.connect();
    assert!(c.ask("GET behind").to_string().contains("LOADING"));
    wait_until("it restores", || {
        let text = c.ask("INFO persistence").text().to_owned();
        text.contains("loading:1") && !text.contains("loading_loaded_bytes:0\r\n")
    });
    kill(server);
    let server = start(other.path(), &bucket).start();
    assert_eq!(contents(&mut server.connect()), expected);
}
