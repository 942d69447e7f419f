//! The log in a bucket, here a directory: what was written is there again on another machine, and only one server writes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tierce_harness::{
    Both, Connection, Launch, Random, Reply, Server, TempDir, free_port, wait_until,
};

use crate::pedrokv::{DELETE, GET, PUT, request};
use crate::{launch, program};

/// A start with its data in `dir` and its log in the bucket `bucket`.
pub(crate) fn start(dir: &Path, bucket: &TempDir) -> Launch {
    launch()
        .keeping()
        .with("dir", &dir.display().to_string())
        .with("bucket", &format!("file://{}", bucket.path().display()))
        .with("bucket-interval", "20")
}

pub(crate) fn stop(mut server: Server) {
    server.signal(Signal::TERM);
    assert!(server.wait_for_end().success());
}

pub(crate) fn kill(mut server: Server) {
    server.signal(Signal::KILL);
    server.wait_for_end();
}

/// A field of INFO bucket.
pub(crate) fn info(c: &mut Connection, name: &str) -> String {
    let text = c.ask("INFO bucket").text().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().to_owned()
}

/// Waits until everything that was done is in the bucket.
pub(crate) fn wait_for_bucket(c: &mut Connection) {
    c.check("CLIENT DURABILITY bucket", "+OK");
    c.check("PING", "+PONG");
    c.check("CLIENT DURABILITY default", "+OK");
}

pub(crate) fn wait_for_snapshot(c: &mut Connection) {
    c.check("CONFIG SET bucket-snapshot-interval 1", "+OK");
    wait_until("there is a snapshot", || info(c, "bucket_snapshot_object") != "0");
    c.check("CONFIG SET bucket-snapshot-interval 86400", "+OK");
}

#[test]
fn writes_that_wait_for_replicas_need_a_stream_and_not_a_bucket() {
    let (dir, bucket) = (TempDir::new(), TempDir::new());
    let launch = start(dir.path(), &bucket).with("durability-replicas", "1");
    let server = launch.with("durability-replicas-timeout", "100000").start();
    server.connect().check("SET a 1", "-NOREPLICAS Not enough good replicas to write.");
    stop(server);
}

/// All that a server has, in an order that does not depend on it.
pub(crate) fn contents(c: &mut Connection) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for db in 0..16 {
        c.check(&format!("SELECT {db}"), "+OK");
        let keys: Vec<Vec<u8>> =
            c.ask("KEYS *").items().iter().map(|key| key.bytes().to_vec()).collect();
        for key in keys {
            let key = key.as_slice();
            let kind = c.call(&[b"TYPE", key]).text().to_owned();
            let mut parts = match kind.as_str() {
                "string" => vec![c.call(&[b"GET", key])],
                "list" => vec![c.call(&[b"LRANGE", key, b"0", b"-1"])],
                "set" => sorted(&c.call(&[b"SMEMBERS", key]), 1),
                "zset" => vec![c.call(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"])],
                "hash" => hash(c, key),
                "stream" => vec![
                    c.call(&[b"XRANGE", key, b"-", b"+"]),
                    c.call(&[&b"XINFO"[..], b"GROUPS", key]),
                    c.call(&[b"XPENDING", key, b"group:1"]),
                ],
                other => panic!("type {other}"),
            };
            parts.push(c.call(&[b"PEXPIRETIME", key]));
            let name = format!("{db} {kind} {}", key.escape_ascii());
            all.insert(name, format!("{parts:?}"));
        }
    }
    c.check("SELECT 0", "+OK");
    all.insert("functions".into(), format!("{:?}", c.ask("FUNCTION LIST WITHCODE")));
    all
}

fn sorted(reply: &Reply, of: usize) -> Vec<Reply> {
    let mut items: Vec<_> = reply.items().chunks(of).map(<[Reply]>::to_vec).collect();
    items.sort_by_key(|item| item[0].bytes().to_vec());
    items.into_iter().flatten().collect()
}

/// Fields in order, each with its value and its deadline.
fn hash(c: &mut Connection, key: &[u8]) -> Vec<Reply> {
    let mut parts = sorted(&c.call(&[b"HGETALL", key]), 2);
    let fields: Vec<_> = parts.iter().step_by(2).map(|field| field.bytes().to_vec()).collect();
    for field in fields {
        parts.push(c.call(&[b"HPEXPIRETIME", key, b"FIELDS", b"1", &field]));
    }
    parts
}

/// Something of each kind, by each kind of command that changes it.
pub(crate) fn write_everything(c: &mut Connection, round: usize) {
    let far = 32_503_680_000_000_i64;
    let big = "b".repeat(3 << 20);
    c.call(&["SET", &format!("text:{round}"), "hello"]);
    c.call(&["APPEND", &format!("text:{round}"), " world"]);
    c.call(&["SET", &format!("big:{round}"), &big]);
    c.call(&["SETRANGE", &format!("big:{round}"), "70000", "middle"]);
    c.call(&["SET", &format!("mortal:{round}"), "x", "PXAT", &far.to_string()]);
    c.call(&["SET", "gone", "x", "PX", "1"]);
    c.call(&["INCRBY", "counter", "17"]);
    for number in 0..700 {
        let number = number.to_string();
        c.request(&["RPUSH", "list", &number]);
        c.request(&["SADD", &format!("set:{round}"), &number]);
        c.request(&["ZADD", "scores", &number, &format!("{round}:{number}")]);
        c.request(&["HSET", "hash", &format!("{round}:{number}"), &number]);
        c.request(&["XADD", "stream", "*", "n", &number]);
    }
    (0..5 * 700).for_each(|_| drop(c.reply()));
    c.call(&["HPEXPIREAT", "hash", &far.to_string(), "FIELDS", "1", &format!("{round}:5")]);
    c.call(&["LPOP", "list", "33"]);
    c.call(&["XGROUP", "CREATE", "stream", &format!("group:{round}"), "0"]);
    let group = format!("group:{round}");
    c.call(&["XREADGROUP", "GROUP", &group, "me", "COUNT", "5", "STREAMS", "stream", ">"]);
    c.check("MULTI", "+OK");
    for key in ["one", "two", "three"] {
        c.check(&format!("SET exec:{key} {round}"), "+QUEUED");
    }
    c.ask("EXEC");
    let script = "for i = 1, 50 do redis.call('SET', 'script:' .. i, ARGV[1]) end";
    c.call(&["EVAL", script, "0", &round.to_string()]);
    let library = format!(
        "#!lua name=lib{round}\nredis.register_function('f{round}', \
        function() return redis.call('INCR', 'called') end)"
    );
    c.call(&["FUNCTION", "LOAD", &library]);
    c.call(&["FCALL", &format!("f{round}"), "0"]);
    for db in [3, 4] {
        c.check(&format!("SELECT {db}"), "+OK");
        c.call(&["SET", &format!("of:{db}:{round}"), "x"]);
    }
    c.check("SWAPDB 3 5", "+OK");
    c.check("SELECT 9", "+OK");
    c.call(&["SET", "flushed", "x"]);
    c.check("FLUSHDB", "+OK");
    c.call(&["SET", &format!("after:{round}"), "x"]);
    c.check("SELECT 0", "+OK");
    wait_until("what was to expire has", || c.ask("EXISTS gone").int() == 0);
}

/// Sends a request of PedroKV: the status of the response, and its data.
pub fn pedrokv_ask(port: u16, request: &[u8]) -> (u8, Vec<u8>) {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a listener");
    stream.write_all(request).expect("it takes the bytes");
    let mut head = [0; 7];
    stream.read_exact(&mut head).expect("a response");
    let mut data = vec![0; usize::from(u16::from_be_bytes([head[0], head[1]])) - head.len()];
    stream.read_exact(&mut data).expect("the rest");
    (head[2], data)
}

fn pedrokv_put(port: u16, key: &[u8], value: &[u8]) {
    assert_eq!(pedrokv_ask(port, &request(PUT, 1, key, value)).0, 0);
}

#[test]
fn an_empty_directory_gets_all_that_was_written_over_every_protocol() {
    let (bucket, first, second) = (TempDir::new(), TempDir::new(), TempDir::new());
    let pedrokv = free_port();
    let launch = start(first.path(), &bucket).with("pedrokv-port", &pedrokv.to_string());
    let both = Both::start(launch, "memcached-port");
    let mut c = both.server.connect();
    write_everything(&mut c, 1);
    pedrokv_put(pedrokv, b"of pedrokv", b"\0\r\n1");
    pedrokv_put(pedrokv, b"deleted", b"1");
    both.check(b"set item 77 0 5\r\nvalue\r\n", b"STORED\r\n");
    wait_for_snapshot(&mut c);
    // In the log behind the snapshot.
    write_everything(&mut c, 2);
    pedrokv_put(pedrokv, b"later of pedrokv", &[255; 1000]);
    pedrokv_ask(pedrokv, &request(DELETE, 1, b"deleted", b""));
    both.check(b"set other 4294967295 0 5\r\nvalue\r\n", b"STORED\r\n");
    let expected = contents(&mut c);
    stop(both.server);
    let launch = start(second.path(), &bucket).with("pedrokv-port", &pedrokv.to_string());
    let both = Both::start(launch, "memcached-port");
    let mut c = both.server.connect();
    assert_eq!(contents(&mut c), expected);
    let get = |key: &[u8]| pedrokv_ask(pedrokv, &request(GET, 1, key, b""));
    assert_eq!(get(b"of pedrokv"), (0, b"\0\r\n1".to_vec()));
    assert_eq!(get(b"later of pedrokv"), (0, vec![255; 1000]));
    assert_eq!(get(b"deleted").0, 1);
    both.check(b"get item\r\n", b"VALUE item 77 5\r\nvalue\r\nEND\r\n");
    both.check(b"get other\r\n", b"VALUE other 4294967295 5\r\nvalue\r\nEND\r\n");
    c.check("FCALL f1 0", ":3");
    // The local log of the restored directory has all of it, too.
    let expected = contents(&mut c);
    kill(both.server);
    let server = start(second.path(), &bucket).start();
    assert_eq!(contents(&mut server.connect()), expected);
}

#[test]
fn what_was_acknowledged_at_the_level_bucket_survives_the_machine() {
    let bucket = TempDir::new();
    let mut expected = 0;
    for round in 0..4 {
        let dir = TempDir::new();
        let claim = if round == 0 { "orderly" } else { "force" };
        let server = start(dir.path(), &bucket).with("bucket-claim", claim).start();
        let mut c = server.connect();
        assert_eq!(c.ask("INCRBY n 0").int(), expected);
        c.check("CLIENT DURABILITY bucket", "+OK");
        for _ in 0..10 {
            expected = c.ask("INCR n").int();
        }
        // Reads wait as well, for what others have written at another level.
        let mut other = server.connect();
        other.check(&format!("SET seen {round}"), "+OK");
        c.check("GET seen", &format!("\"{round}\""));
        kill(server);
        let dir = TempDir::new();
        let server = start(dir.path(), &bucket).with("bucket-claim", "force").start();
        server.connect().check("GET seen", &format!("\"{round}\""));
        kill(server);
    }
}

#[test]
fn a_directory_goes_on_after_an_end_of_any_kind() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    c.check("SET a 1", "+OK");
    stop(server);
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    // In order: there is nothing to be sent again.
    assert_eq!(
        (info(&mut c, "bucket_state"), info(&mut c, "bucket_snapshot_object")),
        ("following".into(), "0".into())
    );
    c.check("CONFIG SET bucket-interval 3600000", "+OK");
    c.check("RPUSH list 1 2 3", ":3");
    c.check("RPUSH list 4", ":4");
    // The bucket has not got the last of this, and the directory has.
    kill(server);
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    c.check("LLEN list", ":4");
    wait_until("its data are the base", || info(&mut c, "bucket_state") == "following");
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

/// What a start says that fails.
pub(crate) fn refused(launch: &Launch) -> String {
    let outcome = launch.run();
    assert_ne!(outcome.code, Some(0));
    outcome.errors
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
    // The operator says that it is dead, which it is not: it acknowledges nothing from then on.
    let second = start(other.path(), &bucket).with("bucket-claim", "force").start();
    let mut of_second = second.connect();
    of_second.check("SET a 3", "+OK");
    wait_until("the first one has found out", || {
        let reply = c.ask("SET a 4").to_string();
        reply.contains("another server has claimed the bucket")
    });
    assert_eq!(info(&mut c, "bucket_state"), "deposed");
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

/// The files of the log, by their numbers.
fn objects(bucket: &TempDir) -> Vec<PathBuf> {
    let entries = fs::read_dir(bucket.path().join("log")).expect("a log").flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[test]
fn objects_that_are_not_what_they_were_are_refused_by_name() {
    let (bucket, dir, of_other) = (TempDir::new(), TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    c.check("CLIENT DURABILITY bucket", "+OK");
    for number in 0..10 {
        c.check(&format!("SET key:{number} value"), "+OK");
    }
    stop(server);
    let other_dir = TempDir::new();
    let server = start(other_dir.path(), &of_other).start();
    let mut c = server.connect();
    c.check("CLIENT DURABILITY bucket", "+OK");
    (0..10).for_each(|number| c.check(&format!("SET key:{number} other"), "+OK"));
    stop(server);

    let paths = objects(&bucket);
    let (fifth, sixth) = (&paths[4], &paths[5]);
    let name = fifth.file_name().expect("a name").to_string_lossy().into_owned();
    let bytes = fs::read(fifth).expect("an object");
    let attempt = |what: &str| {
        let empty = TempDir::new();
        let error = refused(&start(empty.path(), &bucket).with("port", &free_port().to_string()));
        assert!(error.contains(&name), "{what}: {error}");
        let left: Vec<_> = fs::read_dir(empty.path())
            .expect("it is there")
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        assert!(left.iter().all(|name| name.to_string_lossy().starts_with("bucket.")), "{left:?}");
        let pins = fs::read_dir(bucket.path().join("pins")).map_or(0, Iterator::count);
        assert_eq!(pins, 0, "{what}: the restore needs nothing any more");
        // The failed start has released its claim, so the next one needs no force.
        fs::read(sixth).expect("untouched")
    };
    for at in [20, bytes.len() - 1] {
        let mut flipped = bytes.clone();
        flipped[at] ^= 4;
        fs::write(fifth, flipped).expect("written");
        attempt("a flipped bit");
    }
    fs::write(fifth, &bytes[..bytes.len() - 7]).expect("written");
    attempt("cut off");
    fs::write(fifth, fs::read(sixth).expect("an object")).expect("written");
    attempt("swapped");
    fs::copy(&objects(&of_other)[4], fifth).expect("copied");
    attempt("of another prefix");
    fs::write(fifth, &bytes).expect("written");
    let empty = TempDir::new();
    let server = start(empty.path(), &bucket).start();
    server.connect().check("DBSIZE", ":10");
}

#[test]
fn while_the_store_is_away_level_local_goes_on_up_to_a_limit() {
    let (bucket, dir, other) = (TempDir::new(), TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).with("bucket-log-max", "100kb").start();
    let mut c = server.connect();
    // Writes would wait for ever.
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
    wait_until("it is known", || info(&mut c, "bucket_state") == "away");
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
    // Reads go on, and what waits for the bucket waits.
    c.check("GET a", "\"3\"");
    assert!(strict.is_silent_for(Duration::from_millis(100)));
    fs::remove_file(&log).expect("removed");
    fs::rename(&aside, &log).expect("moved");
    strict.expect("\"3\"");
    writer.expect("+OK");
    wait_for_bucket(&mut c);
    assert_eq!(info(&mut c, "bucket_state"), "following");
    let expected = contents(&mut c);
    stop(server);
    let server = start(other.path(), &bucket).start();
    assert_eq!(contents(&mut server.connect()), expected);
}

#[test]
fn a_foreign_object_in_the_way_is_told_and_nothing_is_there_twice_when_it_is_gone() {
    for takeover in ["no", "yes"] {
        let (bucket, dir, other) = (TempDir::new(), TempDir::new(), TempDir::new());
        // A lease that is not renewed while this runs.
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
        wait_until("it is known", || info(&mut c, "bucket_state") == "away");
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
        assert_eq!(info(&mut c, "bucket_state"), "following");
        assert_eq!(server.output().matches("not of this server").count(), 1);
        stop(server);
        let server = start(other.path(), &bucket).start();
        server.connect().check("LRANGE list 0 -1", "[\"a\", \"b\", \"c\"]");
        stop(server);
    }
}

#[test]
fn a_start_that_waits_for_the_store_says_so() {
    let dir = TempDir::new();
    // It takes connections, and never answers.
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
    // What fills an object does not wait, however long the interval is.
    let value = "x".repeat(8 << 20);
    for _ in 0..5 {
        c.call(&["SET", "long", &value]);
    }
    wait_until("a full object was put", || objects(&mut c) > 3);
    kill(server);
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
    wait_until("it is known", || info(&mut c, "bucket_state") == "away");
    c.check("CONFIG SET bucket-snapshot-interval 86400", "+OK");
    fs::remove_file(&log).expect("removed");
    fs::rename(&aside, &log).expect("moved");
    wait_until("there is a snapshot", || info(&mut c, "bucket_snapshot_object") != "0");
    wait_until("it goes on", || info(&mut c, "bucket_state") == "following");
    stop(server);
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
    // Not before the lease that others may wait for.
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
        // CLAIMs stay.
        before.iter().filter(|path| path.exists()).count() < 3
    });
    stop(server);
}

#[test]
fn values_on_disk_are_in_the_bucket() {
    let (bucket, dir, other) = (TempDir::new(), TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket)
        .with("maxmemory", "20mb")
        .with("maxmemory-policy", "spill")
        .start();
    let mut c = server.connect();
    for number in 0..3000 {
        let value = format!("{number}:{}", "v".repeat(10_000));
        c.request(&["SET", &format!("key:{number}"), &value]);
    }
    (0..3000).for_each(|_| c.expect("+OK"));
    wait_for_snapshot(&mut c);
    c.check("APPEND key:7 end", ":10005");
    stop(server);
    let server = start(other.path(), &bucket).start();
    let mut c = server.connect();
    for number in 0..3000 {
        let end = if number == 7 { "end" } else { "" };
        let value = format!("{number}:{}{end}", "v".repeat(10_000));
        assert_eq!(c.call(&["GET", &format!("key:{number}")]).text(), value);
    }
}

#[test]
fn values_on_disk_that_get_another_key_are_in_the_bucket() {
    let (bucket, dir, other) = (TempDir::new(), TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket)
        .with("maxmemory", "10mb")
        .with("maxmemory-policy", "spill")
        .start();
    let mut c = server.connect();
    for number in 0..200 {
        c.request(&["SET", &format!("text:{number}"), &format!("{number}:{}", "v".repeat(10_000))]);
        c.request(&["RPUSH", &format!("list:{number}"), &"e".repeat(5_000), &number.to_string()]);
        c.request(&["HSET", &format!("hash:{number}"), "field", &"h".repeat(5_000)]);
    }
    (0..200).for_each(|_| ["+OK", ":2", ":1"].iter().for_each(|reply| c.expect(reply)));
    fill_memory(&mut c, "before");
    for number in 0..100 {
        c.request(&["RENAME", &format!("text:{number}"), &format!("renamed:{number}")]);
    }
    (0..100).for_each(|_| c.expect("+OK"));
    wait_for_snapshot(&mut c);
    // These are in the snapshot, and some were written to behind it.
    c.check("APPEND text:110 end", ":10007");
    c.check("RPUSH list:110 end", ":3");
    fill_memory(&mut c, "behind");
    for number in 0..200 {
        c.request(&["RENAME", &format!("list:{number}"), &format!("hash:{number}")]);
    }
    (0..200).for_each(|_| c.expect("+OK"));
    for number in 100..200 {
        c.request(&["MOVE", &format!("text:{number}"), "3"]);
    }
    (0..100).for_each(|_| c.expect(":1"));
    c.check("MULTI", "+OK");
    c.check("RENAME hash:7 once", "+QUEUED");
    c.check("RENAME once twice", "+QUEUED");
    c.check("PEXPIREAT twice 32503680000000", "+QUEUED");
    c.check("RPUSH twice more", "+QUEUED");
    c.ask("EXEC");
    let expected = contents(&mut c);
    wait_for_bucket(&mut c);
    stop(server);
    let server = start(other.path(), &bucket).start();
    assert_eq!(contents(&mut server.connect()), expected);
}

/// Writes so much that everything before goes to disk, and removes it.
fn fill_memory(c: &mut Connection, name: &str) {
    for number in 0..1500 {
        c.request(&["SET", &format!("{name}:{number}"), &"f".repeat(20_000)]);
    }
    (0..1500).for_each(|_| c.expect("+OK"));
    for number in 0..1500 {
        c.request(&["DEL", &format!("{name}:{number}")]);
    }
    (0..1500).for_each(|_| c.expect(":1"));
    let text = c.ask("INFO").text().to_owned();
    let spilled = text.lines().find_map(|line| line.strip_prefix("spilled_keys:"));
    let spilled: u32 = spilled.expect("spilled_keys").parse().expect("a number");
    assert!(spilled > 200, "{spilled} values are on disk");
}

/// Exit code of a tool, and what it said: on standard output, and on standard error.
fn tool(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(program());
    let output = command.arg("bucket").args(arguments).output().expect("the program");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("no signal"), text(output.stdout), text(output.stderr))
}

fn url(bucket: &TempDir) -> String {
    format!("file://{}", bucket.path().display())
}

/// What a tool says that succeeds.
fn tell(arguments: &[&str]) -> String {
    let (code, said, error) = tool(arguments);
    assert_eq!(code, 0, "{arguments:?}: {error}");
    said
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

/// The contents of a data directory that has no bucket.
fn contents_of(dir: &Path) -> BTreeMap<String, String> {
    let server = launch().keeping().with("dir", text(dir)).start();
    let all = contents(&mut server.connect());
    stop(server);
    all
}

/// The number of the last object, and the time that `tierce bucket list` says of it.
fn end(bucket: &TempDir) -> (String, String) {
    let listed = tell(&["list", "--bucket", &url(bucket)]);
    let line = listed.lines().next().unwrap_or_default();
    let line = line.strip_prefix("end: object ").unwrap_or_else(|| panic!("{listed}"));
    let (number, time) = line.split_once(" at ").expect("a time");
    (number.to_owned(), time.to_owned())
}

#[test]
fn every_moment_that_a_client_has_noted_can_be_restored() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    let mut moments = Vec::new();
    for round in 0..4 {
        write_everything(&mut c, round);
        if round == 1 {
            wait_for_snapshot(&mut c);
        }
        wait_for_bucket(&mut c);
        let (number, time) = end(&bucket);
        moments.push((number.clone(), contents(&mut c)));
        moments.push((time.clone(), contents(&mut c)));
        // What comes next has another time: the clock of the log counts milliseconds.
        wait_until("the clock has gone on", || {
            c.check(&format!("SET clock {round}"), "+OK");
            wait_for_bucket(&mut c);
            end(&bucket).1 != time
        });
    }
    for (at, expected) in &moments {
        let restored = TempDir::new();
        let to = restored.path().join("new");
        tell(&["restore", "--bucket", &url(&bucket), "--at", at, "--dir", text(&to)]);
        assert_eq!(&contents_of(&to), expected, "{at}");
    }
    // All of this beside the owner, which still is one, and has the pins of no restore.
    c.check("SET behind 1", "+OK");
    wait_for_bucket(&mut c);
    let listed = tell(&["list", "--bucket", &url(&bucket)]);
    assert!(listed.contains("released: no") && !listed.contains("pin:"), "{listed}");
    let restored = TempDir::new();
    let refused = |at: &str, part: &str| {
        let (code, _, error) = tool(&[
            "restore",
            "--bucket",
            &url(&bucket),
            "--at",
            at,
            "--dir",
            text(restored.path()),
        ]);
        assert!(code == 2 && error.contains(part), "{at}: {error}");
        assert_eq!(fs::read_dir(restored.path()).expect("it is there").count(), 0);
    };
    refused("1000000", "the log ends at");
    refused("1999-12-31T00:00:00Z", "begins after");
    refused("yesterday", "not a moment in UTC");
    fs::write(restored.path().join("file"), "").expect("written");
    let to = text(restored.path());
    let (code, _, error) = tool(&["restore", "--bucket", &url(&bucket), "--dir", to]);
    assert!(code == 2 && error.contains("is not empty"), "{error}");
}

/// The names and bytes of all files of a bucket.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => files.extend(self::files(&path)),
            false => drop(files.insert(path.clone(), fs::read(&path).expect("a file"))),
        }
    }
    files
}

#[test]
fn a_branch_is_a_server_of_its_own_that_leaves_its_parent_alone() {
    let (bucket, new) = (TempDir::new(), TempDir::new());
    let (dir, of_new, again) = (TempDir::new(), TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    write_everything(&mut c, 1);
    wait_for_snapshot(&mut c);
    write_everything(&mut c, 2);
    wait_for_bucket(&mut c);
    let (at, _) = end(&bucket);
    let expected = contents(&mut c);
    write_everything(&mut c, 3);
    let of_parent = contents(&mut c);
    stop(server);
    let before = files(bucket.path());
    tell(&["branch", &url(&new), "--bucket", &url(&bucket), "--at", &at]);
    let server = start(of_new.path(), &new).start();
    let mut c = server.connect();
    assert_eq!(contents(&mut c), expected);
    write_everything(&mut c, 4);
    let of_branch = contents(&mut c);
    stop(server);
    let server = start(again.path(), &new).start();
    assert_eq!(contents(&mut server.connect()), of_branch);
    stop(server);
    let mut after = files(bucket.path());
    let pins: Vec<_> = after.keys().filter(|path| !before.contains_key(*path)).cloned().collect();
    assert!(matches!(&pins[..], [pin] if pin.starts_with(bucket.path().join("pins"))), "{pins:?}");
    after.remove(&pins[0]);
    assert_eq!(after, before);
    let (code, _, error) = tool(&["branch", &url(&new), "--bucket", &url(&bucket)]);
    assert!(code == 2 && error.contains("there is a log in"), "{error}");
    let server = start(dir.path(), &bucket).start();
    assert_eq!(contents(&mut server.connect()), of_parent);
    stop(server);
    // What the branch needs is kept.
    let server = start(dir.path(), &bucket).start();
    wait_for_snapshot_of(&mut server.connect(), "SET more 1");
    stop(server);
    let said = tell(&["prune", "--bucket", &url(&bucket), "--retention", "0"]);
    assert!(said.contains("pinned, and kept"), "{said}");
    let last = TempDir::new();
    let server = start(last.path(), &new).start();
    assert_eq!(contents(&mut server.connect()), of_branch);
}

/// Has another snapshot taken, after this command.
fn wait_for_snapshot_of(c: &mut Connection, command: &str) {
    let before = info(c, "bucket_snapshot_object");
    c.ask(command);
    c.check("CONFIG SET bucket-snapshot-interval 1", "+OK");
    wait_until("there is another snapshot", || {
        !["0", &before].contains(&info(c, "bucket_snapshot_object").as_str())
    });
    c.check("CONFIG SET bucket-snapshot-interval 86400", "+OK");
}

#[test]
fn verify_finds_each_byte_that_was_flipped() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    write_everything(&mut c, 1);
    wait_for_snapshot(&mut c);
    write_everything(&mut c, 2);
    stop(server);
    let said = tell(&["verify", "--bucket", &url(&bucket)]);
    assert!(said.starts_with("sound: ") && said.contains("1 snapshot"), "{said}");
    let mut random = Random::new(23);
    let files = files(bucket.path());
    let counted = ["log", "blob", "snapshot"].map(|folder| bucket.path().join(folder));
    let counted = files.iter().filter(|(path, _)| counted.iter().any(|of| path.starts_with(of)));
    for (path, bytes) in counted {
        let mut flipped = bytes.clone();
        flipped[random.below(bytes.len())] ^= 1 << random.below(8);
        fs::write(path, &flipped).expect("written");
        let name = path.strip_prefix(bucket.path()).expect("below").display().to_string();
        let (code, said, error) = tool(&["verify", "--bucket", &url(&bucket), "--quiet"]);
        assert!(code != 0 && said.is_empty() && error.contains(&name), "{name}: {error}");
        fs::remove_file(path).expect("removed");
        let (code, said, error) = tool(&["verify", "--bucket", &url(&bucket), "--quiet"]);
        // Without its last object, a log is as long as it was before that.
        let is_last = name.starts_with("log/") && objects(&bucket).last() < Some(path);
        assert!(is_last || code == 1 && error.contains(&name), "{name}: {said} {error}");
        fs::write(path, bytes).expect("written");
    }
    tell(&["verify", "--bucket", &url(&bucket)]);
    let nothing = TempDir::new();
    let (code, _, error) = tool(&["verify", "--bucket", &url(&nothing)]);
    assert!(code == 2 && error.contains("there is no log in"), "{error}");
}

#[test]
fn prune_keeps_what_the_retention_needs_beside_a_running_owner() {
    let (bucket, dir, other) = (TempDir::new(), TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    for number in 0..20 {
        c.check(&format!("SET key:{number} value"), "+OK");
        wait_for_bucket(&mut c);
    }
    wait_for_snapshot(&mut c);
    let said = tell(&["prune", "--bucket", &url(&bucket)]);
    assert!(said.contains("nothing to prune"), "{said}");
    let (at, _) = end(&bucket);
    let expected = contents(&mut c);
    c.check("SET behind 1", "+OK");
    wait_for_bucket(&mut c);
    let count = objects(&bucket).len();
    let said = tell(&["prune", "--bucket", &url(&bucket), "--retention", "0"]);
    assert!(said.starts_with("deleted: "), "{said}");
    assert!(objects(&bucket).len() < count - 15, "{said}");
    tell(&["verify", "--bucket", &url(&bucket)]);
    let restored = other.path().join("restored");
    tell(&["restore", "--bucket", &url(&bucket), "--at", &at, "--dir", text(&restored)]);
    assert_eq!(contents_of(&restored), expected);
    let gone = other.path().join("gone");
    let (code, _, error) =
        tool(&["restore", "--bucket", &url(&bucket), "--at", "5", "--dir", text(&gone)]);
    assert!(code == 2 && error.contains("5 cannot be restored"), "{error}");
    // The owner goes on, and takes snapshots.
    wait_for_snapshot_of(&mut c, "SET further 1");
    let expected = contents(&mut c);
    stop(server);
    let empty = TempDir::new();
    let server = start(empty.path(), &bucket).start();
    assert_eq!(contents(&mut server.connect()), expected);
}

#[test]
fn an_object_that_is_missing_is_refused_by_name() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    for number in 0..10 {
        c.check(&format!("SET key:{number} value"), "+OK");
        wait_for_bucket(&mut c);
    }
    stop(server);
    let paths = objects(&bucket);
    let name = paths[4].file_name().expect("a name").to_string_lossy().into_owned();
    let bytes = fs::read(&paths[4]).expect("an object");
    fs::remove_file(&paths[4]).expect("removed");
    let empty = TempDir::new();
    let restored = empty.path().join("restored");
    let (code, _, error) = tool(&["restore", "--bucket", &url(&bucket), "--dir", text(&restored)]);
    assert!(code == 2 && error.contains(&name), "{error}");
    let server = start(empty.path(), &bucket).with("port", &free_port().to_string());
    let error = refused(&server);
    assert!(error.contains(&name), "{error}");
    fs::write(&paths[4], bytes).expect("written");
    let empty = TempDir::new();
    let server = start(empty.path(), &bucket).start();
    server.connect().check("DBSIZE", ":10");
}
