//! An owner of a log that another server may take over (`bucket-takeover yes`): its replies are never stale.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tierce_harness::{
    Connection, Launch, PATIENCE, Server, TempDir, encode, free_port, wait_until,
};

use super::{Away, info, start as start_with_bucket, stop, wait_for_bucket, wait_for_state};
use crate::pedrokv::{GET, request};

/// Shortest lease.
const LEASE: Duration = Duration::from_secs(1);

/// Long enough to notice, most of the time, an event that must not happen.
pub(super) const MOMENT: Duration = Duration::from_millis(300);

/// Starts a server with takeover, and a lease longer than any test.
pub(super) fn start(dir: &TempDir, bucket: &TempDir) -> Launch {
    start_with_bucket(dir.path(), bucket).with("bucket-takeover", "yes").with("bucket-lease", "600")
}

/// Starts a server with takeover and the shortest lease.
pub(super) fn start_briefly(dir: &TempDir, bucket: &TempDir) -> Launch {
    start(dir, bucket).with("bucket-lease", "1")
}

/// A server, and the ports of its other protocols.
pub(super) struct Everything {
    pub(super) server: Server,
    memcached: u16,
    pedrokv: u16,
    pub(super) http: u16,
}

impl Everything {
    pub(super) fn start(launch: Launch) -> Self {
        let [memcached, pedrokv, http] = [(); 3].map(|()| free_port());
        let server = launch
            .with("memcached-port", &memcached.to_string())
            .with("pedrokv-port", &pedrokv.to_string())
            .with("http-port", &http.to_string())
            .start();
        Self { server, memcached, pedrokv, http }
    }

    /// Opens a connection of each protocol, each with a request that reads `key`.
    fn readers(&self, key: &str) -> Vec<(&'static str, Connection, Vec<u8>)> {
        let http =
            format!("GET /get/{key} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let pedrokv = request(GET, 1, key.as_bytes(), b"");
        vec![
            ("resp", self.server.connect(), format!("GET {key}\r\n").into_bytes()),
            ("memcached", to(self.memcached), format!("get {key}\r\n").into_bytes()),
            ("pedrokv", to(self.pedrokv), pedrokv),
            ("http", to(self.http), http.into_bytes()),
        ]
    }

    /// Returns a value of `/metrics`, which needs no lease.
    fn metric(&self, name: &str) -> Option<f64> {
        let mut c = to(self.http);
        c.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let page = String::from_utf8(c.rest()).expect("text");
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map(|value| value.trim().parse().expect("a number"))
    }

    pub(super) fn wait_for_end_of_lease(&self) {
        wait_until("the lease is over", || {
            self.metric("tierce_bucket_lease_left_seconds") == Some(0.0)
        });
    }
}

pub(super) fn to(port: u16) -> Connection {
    Connection::tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

#[test]
fn an_owner_that_was_stopped_shows_nothing_that_is_old() {
    let (bucket, dir, other) = (TempDir::new(), TempDir::new(), TempDir::new());
    let mut old = Everything::start(start_briefly(&dir, &bucket));
    let mut c = old.server.connect();
    c.check("SET k old", "+OK");
    wait_for_bucket(&mut c);
    let mut readers = old.readers("k");
    let mut writer = old.server.connect();
    for (_, c, _) in &mut readers {
        // Gives the worker time to receive it.
        assert!(c.is_silent_for(Duration::from_millis(1)));
    }
    old.server.signal(Signal::STOP);
    // The signal is sent to the process. Its threads stop one by one.
    wait_until("all its threads have stopped", || has_stopped(&old.server));
    let stopped = Instant::now();
    for (_, c, request) in &mut readers {
        c.send(request);
    }
    writer.request(&["SET", "k", "older"]);
    let new = start_briefly(&other, &bucket).with("bucket-claim", "force").start();
    new.connect().check("GET k", "\"old\"");
    new.connect().check("SET k new", "+OK");
    wait_until("the lease is over", || stopped.elapsed() > LEASE);
    old.server.signal(Signal::CONT);
    for (protocol, c, _) in &mut readers {
        let answer = c.rest();
        let text = String::from_utf8_lossy(&answer);
        let is_refused = *protocol == "http" && text.starts_with("HTTP/1.1 503");
        assert!(answer.is_empty() || is_refused, "{protocol}: {text}");
    }
    writer.expect_closed();
    c.expect_closed();
    assert_eq!(old.server.wait_for_end().code(), Some(1));
    let said = old.server.output();
    assert!(said.contains("This server is deposed: another server has taken over"), "{said}");
    new.connect().check("GET k", "\"new\"");
    stop(new);
}

/// Returns true if all threads of a server are stopped by a signal.
fn has_stopped(server: &Server) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", server.pid())).expect("a running server");
    threads.map(|thread| thread.expect("a thread").path().join("stat")).all(|stat| {
        let stat = fs::read_to_string(stat).expect("its state");
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'))
    })
}

#[test]
fn a_script_that_holds_the_data_for_longer_than_a_lease_deposes_nobody() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let all = Everything::start(start_briefly(&dir, &bucket));
    let mut c = all.server.connect();
    c.check("SET k v", "+OK");
    wait_for_bucket(&mut c);
    // A snapshot is due at once, and the script runs before it.
    let script = "redis.call('GET', KEYS[1]) while true do end";
    let snapshot = encode(&["CONFIG", "SET", "bucket-snapshot-interval", "1"]);
    c.send([snapshot, encode(&["EVAL", script, "1", "k"])].concat());
    c.expect("+OK");
    let name = "tierce_bucket_renewals_total";
    let renewals = || all.metric(name).unwrap_or_default();
    let before = renewals();
    // One renewal each third of the lease: ten are more than three leases.
    wait_until("it is the owner for several leases", || renewals() >= before + 10.0);
    let mut other = all.server.connect();
    other.check("SCRIPT KILL", "+OK");
    assert!(c.reply().to_string().contains("SCRIPT KILL"));
    wait_until("the snapshot was put off", || info(&mut other, "bucket_snapshot_object") != "0");
}

#[test]
fn an_owner_that_publishes_and_writes_nothing_keeps_its_lease() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let all = Everything::start(start_briefly(&dir, &bucket));
    let primary = format!("127.0.0.1 {}", all.server.port());
    let _replica = crate::launch().with("replicaof", &primary).start();
    let mut c = all.server.connect();
    wait_until("the replica is there", || c.ask("WAIT 1 100").int() == 1);
    let renewals = || all.metric("tierce_bucket_renewals_total").unwrap_or_default();
    let (before, mut publishers) = (renewals(), Vec::new());
    // Messages go to replicas in the order of the changes, so the log writer thread has to handle them as well.
    wait_until("it is the owner for several leases", || {
        // Without a lease its reply would wait.
        let mut publisher = all.server.connect();
        publisher.request(&["PUBLISH", "c", "m"]);
        publishers.push(publisher);
        renewals() >= before + 10.0
    });
}

/// Puts a foreign object under the next number of the log. Returns the number.
fn block(bucket: &TempDir) -> u64 {
    let log = bucket.path().join("log");
    let names = fs::read_dir(&log).expect("a log").flatten().map(|entry| entry.file_name());
    let numbers = names.filter_map(|name| name.to_str()?.parse::<u64>().ok());
    let next = numbers.max().unwrap_or(0) + 1;
    // A renewal may be faster.
    (next..).find(|number| fs::File::create_new(object(bucket, *number)).is_ok()).expect("one")
}

fn object(bucket: &TempDir, number: u64) -> PathBuf {
    bucket.path().join(format!("log/{number:020}"))
}

#[test]
fn a_record_that_was_on_its_way_before_a_request_proves_nothing_for_its_reply() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let all = Everything::start(start_briefly(&dir, &bucket));
    let mut c = all.server.connect();
    c.check("SET k v", "+OK");
    let blocked = block(&bucket);
    fs::File::create_new(object(&bucket, blocked + 1)).expect("it is free");
    all.wait_for_end_of_lease();
    // A record is in flight, and is retried again and again.
    let mut readers = all.readers("k");
    readers.iter_mut().for_each(|(_, c, request)| c.send(&request[..]));
    for (protocol, c, _) in &mut readers {
        assert!(c.is_silent_for(LEASE / 2), "{protocol}");
    }
    fs::remove_file(object(&bucket, blocked)).expect("removed");
    wait_until("the record is there", || object(&bucket, blocked).exists());
    // Another server may have claimed the log after that record.
    for (protocol, c, _) in &mut readers {
        assert!(c.is_silent_for(MOMENT), "{protocol}");
    }
    fs::remove_file(object(&bucket, blocked + 1)).expect("removed");
    for (protocol, mut c, _) in readers {
        let mut answer = Vec::new();
        while !String::from_utf8_lossy(&answer).contains('v') {
            answer.extend(c.read_exactly(1));
        }
        assert!(!String::from_utf8_lossy(&answer).contains(" 503 "), "{protocol}");
    }
    stop(all.server);
}

#[test]
fn while_data_are_loaded_a_lease_that_cannot_be_renewed_is_said_once() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let server = start_briefly(&dir, &bucket).start();
    let mut c = server.connect();
    for number in 0..10 {
        c.check(&format!("SET key:{number} v"), "+OK");
    }
    stop(server);
    let objects = || fs::read_dir(bucket.path().join("log")).expect("a log").count();
    let before = objects();
    let server = start_briefly(&dir, &bucket).with("key-load-delay", "2000000000").start_loading();
    let mut c = server.connect();
    wait_until("it has claimed the log, and renews", || objects() > before + 1);
    let away = Away::begin(&bucket);
    let said = |what| wait_until(what, || server.output().contains(what));
    said("does not take the log");
    wait_until("INFO has it", || info(&mut c, "bucket_last_error").contains("log/"));
    away.end();
    said("The bucket takes the log again");
    let warnings = server.output().matches("does not take the log").count();
    assert_eq!(warnings, 1, "{}", server.output());
    c.check("CONFIG SET key-load-delay 0", "+OK");
    wait_until("the data are loaded", || c.ask("GET key:7").to_string() == "\"v\"");
    stop(server);
}

#[test]
fn replies_wait_for_the_store_when_the_lease_is_over() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let all = Everything::start(start_briefly(&dir, &bucket));
    let mut c = all.server.connect();
    c.check("SET k v", "+OK");
    let mut monitor = all.server.connect();
    monitor.check("MONITOR", "+OK");
    let mut blocked = all.server.connect();
    blocked.request(&["BLPOP", "list", "0"]);
    wait_until("it waits", || info_of(&mut c, "clients", "blocked_clients") == "1");
    let mut transaction = all.server.connect();
    transaction.check("MULTI", "+OK");
    transaction.check("GET k", "+QUEUED");
    let mut strict = all.server.connect();
    strict.check("CLIENT DURABILITY bucket", "+OK");
    wait_until("the monitor has seen all", || {
        let has_seen = monitor.is_silent_for(MOMENT);
        if !has_seen {
            monitor.reply();
        }
        has_seen
    });
    let mut readers = all.readers("k");
    let away = Away::begin(&bucket);
    all.wait_for_end_of_lease();
    for (_, c, request) in &mut readers {
        c.send(request);
    }
    c.request(&["LPUSH", "list", "a"]);
    c.request(&["NOSUCH"]);
    transaction.request(&["EXEC"]);
    strict.request(&["SET", "strict", "1"]);
    let mut script = all.server.connect();
    script.request(&["EVAL", "return redis.call('GET', 'k')", "0"]);
    let mut late = all.server.connect();
    late.request(&["PING"]);
    for (protocol, c, _) in &mut readers {
        assert!(c.is_silent_for(MOMENT), "{protocol}");
    }
    for c in [&mut c, &mut blocked, &mut transaction, &mut strict, &mut script, &mut monitor] {
        assert!(c.is_silent_for(MOMENT));
    }
    assert!(late.is_silent_for(MOMENT));
    away.end();
    late.expect("+PONG");
    c.expect(":1");
    assert!(c.reply().text().starts_with("ERR unknown command"));
    blocked.expect("[\"list\", \"a\"]");
    transaction.expect("[\"v\"]");
    strict.expect("+OK");
    script.expect("\"v\"");
    assert!(!monitor.reply().text().is_empty());
    for (protocol, mut c, _) in readers {
        let mut answer = Vec::new();
        while !String::from_utf8_lossy(&answer).contains('v') {
            answer.extend(c.read_exactly(1));
        }
        assert!(!String::from_utf8_lossy(&answer).contains(" 503 "), "{protocol}");
    }
    wait_for_state(&mut c, "following");
    stop(all.server);
}

fn renewals(c: &mut Connection) -> u64 {
    info(c, "bucket_renewals").parse().expect("a number")
}

pub(super) fn info_of(c: &mut Connection, section: &str, name: &str) -> String {
    let text = c.ask(&format!("INFO {section}")).text().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().to_owned()
}

#[test]
fn without_takeover_nothing_depends_on_a_lease() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let all = Everything::start(start_with_bucket(dir.path(), &bucket).with("bucket-lease", "1"));
    let mut c = all.server.connect();
    c.check("SET k v", "+OK");
    wait_for_bucket(&mut c);
    let objects = info(&mut c, "bucket_last_object");
    let away = Away::begin(&bucket);
    c.check("SET k w", "+OK");
    let written = Instant::now();
    wait_until("a lease would be over", || written.elapsed() > LEASE);
    wait_for_state(&mut c, "away");
    for (protocol, mut c, request) in all.readers("k") {
        c.send(&request);
        assert!(!c.is_silent_for(PATIENCE), "{protocol}");
    }
    assert_eq!(info(&mut c, "bucket_takeover"), "0");
    assert_eq!(info(&mut c, "bucket_lease_left_seconds"), "");
    assert_eq!(info(&mut c, "bucket_renewals"), "0");
    assert_eq!(info(&mut c, "bucket_last_object"), objects);
    away.end();
    wait_for_bucket(&mut c);
    stop(all.server);
}

#[test]
fn the_lease_is_kept_without_writes_and_while_data_are_loaded() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let server = start_briefly(&dir, &bucket).start();
    let mut c = server.connect();
    wait_until("it was renewed", || renewals(&mut c) >= 4);
    assert_eq!(info(&mut c, "bucket_takeover"), "1");
    assert_eq!(info(&mut c, "bucket_lease_seconds"), "1.000");
    assert!(info(&mut c, "bucket_lease_left_seconds").parse::<f64>().expect("a number") > 0.0);
    assert!(info(&mut c, "bucket_owner").ends_with(&format!(":{}", server.port())));
    for line in ["CONFIG SET bucket-takeover no", "CONFIG SET bucket-lease 5"] {
        assert!(c.ask(line).text().contains("can't set immutable config"), "{line}");
    }
    c.check("CONFIG GET bucket-lease", "[\"bucket-lease\", \"1\"]");
    // A long interval between objects does not matter: a renewal includes pending records.
    c.check("CONFIG SET bucket-interval 3600000", "+OK");
    let before = renewals(&mut c);
    for _ in 0..3 {
        let object = info(&mut c, "bucket_last_object");
        c.ask("INCR n");
        wait_until("an object has it", || info(&mut c, "bucket_last_object") != object);
    }
    assert!(renewals(&mut c) >= before);
    stop(server);
}

#[test]
fn a_directory_whose_server_was_killed_goes_on_and_keeps_its_lease_while_it_has_no_base() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let mut server = start_briefly(&dir, &bucket).start();
    server.connect().check("SET k v", "+OK");
    server.signal(Signal::KILL);
    server.wait_for_end();
    // Simulates a local log without a position that the bucket has, too. It needs a base.
    let state = dir.path().join("bucket.state");
    let known = fs::read_to_string(&state).expect("the state");
    let without = |line: &str| if line.starts_with("cut ") { "cut -\n" } else { line }.to_owned();
    fs::write(&state, known.split_inclusive('\n').map(without).collect::<String>())
        .expect("written");
    // Snapshots cannot be put, but records of the log can.
    let snapshots = bucket.path().join("snapshot");
    let _ = fs::remove_dir_all(&snapshots);
    fs::write(&snapshots, "no directory").expect("written");
    let server = start_briefly(&dir, &bucket).start();
    let mut c = server.connect();
    wait_until("it was renewed", || renewals(&mut c) >= 3);
    wait_for_state(&mut c, "base");
    c.check("GET k", "\"v\"");
    fs::remove_file(&snapshots).expect("removed");
    wait_for_state(&mut c, "following");
    c.check("GET k", "\"v\"");
    stop(server);
}
