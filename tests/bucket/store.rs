//! A store that is away or does not answer, and one with objects that are not from this log.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use tierce_harness::{Connection, TempDir, free_port, takes_up_to_seconds, wait_until};

use super::restart::copy;
use super::{
    contents, files, for_long, info, kill, objects, refused, start, stop, text, tool, url,
    wait_for_bucket, wait_for_state, wait_until_followed,
};
use crate::{launch, program};

#[test]
fn while_the_store_is_away_level_local_goes_on_up_to_a_limit() {
    let (bucket, dir, other) = (TempDir::new(), TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).with("bucket-log-max", "100kb").start();
    let mut c = server.connect();
    // Writes would wait forever.
    let refused = c.ask("CONFIG SET bucket-log-max 0").text().to_owned();
    assert!(refused.contains("between 65536 and"), "{refused}");
    c.check("SET a 1", "+OK");
    wait_for_bucket(&mut c);
    let mut strict = server.connect();
    strict.check("CLIENT DURABILITY bucket", "+OK");
    let (log, aside) = (bucket.path().join("log"), bucket.path().join("aside"));
    fs::rename(&log, &aside).expect("moved");
    fs::write(&log, "no directory").expect("written");
    c.check("SET a 2", "+OK");
    wait_for_state(&mut c, "away");
    assert!(
        info(&mut c, "bucket_last_error").contains("log/"),
        "{}",
        info(&mut c, "bucket_last_error")
    );
    c.check("SET a 3", "+OK");
    strict.request(&["GET", "a"]);
    c.call(&["SET", "long", &"x".repeat(200 << 10)]);
    let mut writer = server.connect();
    wait_until("writes wait", || {
        writer.request(&["SET", "b", "1"]);
        let waits = writer.is_silent_for(Duration::from_millis(300));
        if !waits {
            writer.expect("+OK");
        }
        waits
    });
    // Reads continue, and replies that need the bucket wait.
    c.check("GET a", "\"3\"");
    assert!(strict.is_silent_for(Duration::from_millis(100)));
    fs::remove_file(&log).expect("removed");
    fs::rename(&aside, &log).expect("moved");
    strict.expect("\"3\"");
    writer.expect("+OK");
    wait_for_bucket(&mut c);
    wait_for_state(&mut c, "following");
    let expected = contents(&mut c);
    stop(server);
    let server = start(other.path(), &bucket).start();
    assert_eq!(contents(&mut server.connect()), expected);
}

/// Returns everything below a directory with modification times; nothing if it does not exist.
fn changes_below(dir: &Path) -> BTreeSet<(PathBuf, Option<SystemTime>)> {
    let paths = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let with_those_below = |path: PathBuf| {
        let changed = fs::metadata(&path).and_then(|found| found.modified()).ok();
        let mut changes = changes_below(&path);
        changes.insert((path, changed));
        changes
    };
    paths.flat_map(with_those_below).collect()
}

/// As with an unmounted file system: a write to the mount point would leave a hole in the log.
#[test]
fn a_directory_that_goes_away_is_not_made_anew() {
    takes_up_to_seconds(120);
    let (bucket, dir, other) = (TempDir::new(), TempDir::new(), TempDir::new());
    let root = bucket.path().join("root");
    let url = format!("file://{}", root.display());
    let server = start(dir.path(), &bucket).with("bucket", &url).start();
    let mut c = server.connect();
    c.check("SET a 1", "+OK");
    wait_for_bucket(&mut c);
    let aside = bucket.path().join("aside");
    let failures = |c: &mut Connection| info(c, "bucket_failed_requests").parse::<u64>().unwrap();
    for round in 0..3 {
        fs::rename(&root, &aside).expect("moved");
        if round > 0 {
            fs::create_dir_all(&root).expect("a mount point");
        }
        c.check("SET a 2", "+OK");
        wait_for_state(&mut c, "away");
        c.check("CONFIG SET bucket-snapshot-interval 1", "+OK");
        let error = info(&mut c, "bucket_last_error");
        assert!(error.contains("is its file system mounted?"), "{error}");
        let mut strict = server.connect();
        strict.check("CLIENT DURABILITY bucket", "+OK");
        strict.request(&["SET", "a", &round.to_string()]);
        assert!(strict.is_silent_for(Duration::from_millis(100)));
        // A request that was in flight at the move may have left an object. It is not acknowledged, and no other
        // request leaves one.
        wait_until("nothing is written there", || {
            let (before, failed) = (changes_below(&root), failures(&mut c));
            wait_until("requests fail", || failures(&mut c) > failed + 2);
            changes_below(&root) == before
        });
        _ = fs::remove_dir_all(&root);
        match round {
            // Mounted again, it may be another device.
            2 => copy(&aside, &root),
            _ => fs::rename(&aside, &root).expect("moved"),
        }
        strict.expect("+OK");
        wait_for_state(&mut c, "following");
        c.check("CONFIG SET bucket-snapshot-interval 86400", "+OK");
    }
    let expected = contents(&mut c);
    stop(server);
    let (code, _, said) = tool(&["verify", "--bucket", &url]);
    assert_eq!(code, 0, "{said}");
    let server = start(other.path(), &bucket).with("bucket", &url).start();
    assert_eq!(contents(&mut server.connect()), expected);
}

/// A server that only reads the log recognizes it by its objects, too.
#[test]
fn a_follower_goes_on_in_a_copy_of_the_directory() {
    let (bucket, first, second) = (TempDir::new(), TempDir::new(), TempDir::new());
    let root = bucket.path().join("root");
    let url = format!("file://{}", root.display());
    let owner = for_long(first.path(), &bucket).with("bucket", &url).start();
    let mut a = owner.connect();
    a.check("SET a 1", "+OK");
    wait_for_bucket(&mut a);
    let follower = for_long(second.path(), &bucket).with("bucket", &url).start();
    let mut b = follower.connect();
    wait_until_followed(&mut a, &mut b);
    let aside = bucket.path().join("aside");
    fs::rename(&root, &aside).expect("moved");
    wait_until("it notices", || info(&mut b, "bucket_last_error").contains("is its file system"));
    copy(&aside, &root);
    a.check("SET a 2", "+OK");
    wait_until_followed(&mut a, &mut b);
    b.check("GET a", r#""2""#);
}

/// Objects that the bucket has lost are still in the data directory.
#[test]
fn a_directory_with_everything_starts_without_a_log_that_has_a_hole() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    for number in 0..4 {
        c.check(&format!("SET k{number} v"), "+OK");
        wait_for_bucket(&mut c);
    }
    kill(server);
    let objects = objects(&bucket);
    fs::remove_file(&objects[objects.len() - 2]).expect("removed");
    let error = refused(&start(dir.path(), &bucket).with("port", &free_port().to_string()));
    assert!(error.contains("starts without --bucket"), "{error}");
    assert!(!error.contains("lifecycle"), "{error}");
    let launch = launch().keeping().with("dir", &dir.path().display().to_string());
    let server = launch.start();
    server.connect().check("MGET k0 k1 k2 k3", r#"["v", "v", "v", "v"]"#);
    kill(server);
    // And then with an empty bucket.
    let another = TempDir::new();
    let server = start(dir.path(), &another).with("bucket-claim", "force").start();
    let mut c = server.connect();
    wait_for_state(&mut c, "following");
    c.check("MGET k0 k1 k2 k3", r#"["v", "v", "v", "v"]"#);
    stop(server);
}

#[test]
fn a_store_that_goes_away_before_a_snapshot_counts_is_told() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    c.check("SET a 1", "+OK");
    wait_for_bucket(&mut c);
    let (log, aside) = (bucket.path().join("log"), bucket.path().join("aside"));
    fs::rename(&log, &aside).expect("moved");
    fs::write(&log, "no directory").expect("written");
    c.check("CONFIG SET bucket-snapshot-interval 1", "+OK");
    wait_for_state(&mut c, "away");
    c.check("CONFIG SET bucket-snapshot-interval 86400", "+OK");
    fs::remove_file(&log).expect("removed");
    fs::rename(&aside, &log).expect("moved");
    wait_until("there is a snapshot", || info(&mut c, "bucket_snapshot_object") != "0");
    wait_for_state(&mut c, "following");
    stop(server);
}

#[test]
fn a_start_that_waits_for_the_store_says_so() {
    let dir = TempDir::new();
    // It accepts connections and never answers.
    let store = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let endpoint = format!("http://{}", store.local_addr().expect("its address"));
    let mut child = Command::new(program())
        .args(["--port", &free_port().to_string(), "--dir", text(dir.path())])
        .args(["--bucket", "s3://name/prefix"])
        .envs([("AWS_ENDPOINT_URL", &*endpoint), ("AWS_REGION", "us-east-1")])
        .envs([("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "not-a-secret")])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let said = lines.find_map(|line| line.ok().filter(|line| line.contains("is awaited")));
    child.kill().expect("it is there");
    child.wait().expect("its end");
    assert!(said.is_some_and(|line| line.contains("there is no answer yet")));
}

#[test]
fn a_foreign_object_in_the_way_is_told_and_nothing_is_there_twice_when_it_is_gone() {
    for takeover in ["no", "yes"] {
        let (bucket, dir, other) = (TempDir::new(), TempDir::new(), TempDir::new());
        // A lease that is not renewed during this test.
        let server = start(dir.path(), &bucket)
            .with("bucket-takeover", takeover)
            .with("bucket-lease", "600")
            .start();
        let mut c = server.connect();
        c.check("RPUSH list a", ":1");
        wait_for_bucket(&mut c);
        let next = info(&mut c, "bucket_last_object").parse::<u64>().expect("a number") + 1;
        let name = format!("log/{next:020}");
        fs::write(bucket.path().join(&name), "of another program").expect("written");
        c.check("RPUSH list b", ":2");
        wait_for_state(&mut c, "away");
        let error = info(&mut c, "bucket_last_error");
        assert!(error.contains(&name), "{error}");
        let said = server.output();
        let line = said.lines().find(|line| line.contains("not of this server"));
        assert!(
            line.is_some_and(|line| line.contains(&name) && line.contains("removed")),
            "{said}"
        );
        c.check("RPUSH list c", ":3");
        fs::remove_file(bucket.path().join(&name)).expect("removed");
        wait_for_bucket(&mut c);
        wait_for_state(&mut c, "following");
        assert_eq!(server.output().matches("not of this server").count(), 1);
        stop(server);
        let server = start(other.path(), &bucket).start();
        server.connect().check("LRANGE list 0 -1", "[\"a\", \"b\", \"c\"]");
        stop(server);
    }
}

#[test]
fn a_folder_of_a_log_is_no_place_for_another_one() {
    let (bucket, dir, of_inner, other) =
        (TempDir::new(), TempDir::new(), TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).start();
    server.connect().check("SET k v", "+OK");
    stop(server);
    let before = files(bucket.path());
    for folder in ["log", "log/x", "floor", "pins", "snapshot", "blob", "probe"] {
        let inner = format!("{}/{folder}", url(&bucket));
        let (code, _, error) = tool(&["branch", &inner, "--bucket", &url(&bucket)]);
        assert!(code != 0 && error.contains("of another log"), "{code} {error}");
        let refused =
            start(of_inner.path(), &bucket).with("bucket", &inner).on_port(free_port()).run();
        let said = refused.output + &refused.errors;
        assert!(refused.code == Some(1) && said.contains("of another log"), "{said}");
    }
    assert_eq!(files(bucket.path()), before);
    let server = start(other.path(), &bucket).start();
    server.connect().check("GET k", "\"v\"");
    stop(server);
}
