//! `maxmemory-policy spill`: more data than memory, without a visible difference.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::Duration;

use tierce_harness::{
    Connection, Launch, Reply, Server, TempDir, encode, free_port, takes_up_to_seconds, wait_until,
};

use crate::launch;

const KEYS: usize = 1500;
const VALUE_LEN: usize = 6000;

/// Makes a launch of a server with memory for about an eighth of the keys and values below.
fn spilling(dir: &Path) -> Launch {
    launch()
        .with("appendonly", "yes")
        .with("dir", &dir.display().to_string())
        .with("maxmemory", "1200kb")
        .with("maxmemory-policy", "spill")
}

fn value(key: usize, round: u8) -> Vec<u8> {
    let period: Vec<u8> = (0..256).map(|at| (key * 31 + at * 7) as u8 ^ round).collect();
    let mut value = period.repeat(VALUE_LEN.div_ceil(period.len()));
    value.truncate(VALUE_LEN);
    value
}

fn name(key: usize) -> Vec<u8> {
    format!("key:{key}").into_bytes()
}

/// Sends requests together and checks each reply.
fn pipeline(c: &mut Connection, requests: &[Vec<Vec<u8>>], replies: &[Reply]) {
    for (requests, replies) in requests.chunks(100).zip(replies.chunks(100)) {
        let bytes: Vec<_> = requests.iter().map(|request| encode(request)).collect();
        c.send(bytes.concat());
        for (request, expected) in requests.iter().zip(replies) {
            let reply = c.reply();
            assert!(reply == *expected, "{:?}", String::from_utf8_lossy(&request[1]));
        }
    }
}

fn write_all(c: &mut Connection, round: u8) {
    let requests: Vec<_> =
        (0..KEYS).map(|key| vec![b"SET".to_vec(), name(key), value(key, round)]).collect();
    let ok = vec![Reply::Simple(b"OK".to_vec()); KEYS];
    pipeline(c, &requests, &ok);
}

fn read_all(c: &mut Connection, round: u8) {
    let requests: Vec<_> = (0..KEYS).map(|key| vec![b"GET".to_vec(), name(key)]).collect();
    let replies: Vec<_> = (0..KEYS).map(|key| Reply::Bulk(value(key, round))).collect();
    pipeline(c, &requests, &replies);
}

fn info(c: &mut Connection, field: &str) -> u64 {
    let Reply::Bulk(text) = c.ask("INFO memory") else { panic!("INFO is a text") };
    let text = String::from_utf8(text).expect("INFO is text");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
    line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {field} in {text}"))
}

#[test]
fn more_data_than_memory_is_written_read_and_there_after_a_kill() {
    let dir = TempDir::new();
    let launch = spilling(dir.path());
    let server = launch.start();
    let mut c = server.connect();
    write_all(&mut c, 0);
    wait_until("most values are on disk", || info(&mut c, "spilled_keys") > KEYS as u64 / 2);
    read_all(&mut c, 0);
    // Keys, deadlines and names are in memory, so these commands read no value.
    c.check("EXISTS key:1 key:2 key:3", ":3");
    c.check("EXPIRE key:1 10000", ":1");
    c.check("RENAME key:2 renamed", "+OK");
    c.check("DEL key:3 key:4", ":2");
    c.check("COPY key:5 copied", ":1");
    c.check("APPEND key:6 tail", &format!(":{}", VALUE_LEN + 4));
    c.check("TYPE key:7", "+string");
    c.check("OBJECT ENCODING key:8", "\"raw\"");
    c.check("DBSIZE", &format!(":{}", KEYS - 1));

    drop(server);
    let server: Server = launch.start();
    let mut c = server.connect();
    c.check("DBSIZE", &format!(":{}", KEYS - 1));
    assert!(info(&mut c, "spilled_keys") > KEYS as u64 / 2, "values stay where they were");
    let get = |c: &mut Connection, key: &str| c.call(&[&b"GET"[..], key.as_bytes()]);
    assert!(get(&mut c, "renamed") == Reply::Bulk(value(2, 0)));
    assert!(get(&mut c, "copied") == Reply::Bulk(value(5, 0)));
    assert!(get(&mut c, "key:6") == Reply::Bulk([value(6, 0), b"tail".to_vec()].concat()));
    let Reply::Int(ttl) = c.ask("TTL key:1") else { panic!("a TTL is a number") };
    assert!(ttl > 9000);
    for key in (9..KEYS).step_by(97) {
        assert!(get(&mut c, &format!("key:{key}")) == Reply::Bulk(value(key, 0)));
    }
}

/// SET with IFEQ and the like need the old value, which SET and DEL leave on disk.
#[test]
fn values_on_disk_are_compared() {
    let dir = TempDir::new();
    let server = spilling(dir.path()).start();
    let mut c = server.connect();
    write_all(&mut c, 0);
    wait_until("most values are on disk", || info(&mut c, "spilled_keys") > KEYS as u64 / 2);
    let (mut requests, mut replies) = (Vec::new(), Vec::new());
    for key in 0..KEYS {
        let (words, operand, reply): (&[&str], _, _) = match key % 4 {
            0 => (&["SET", "new", "IFEQ"], value(key, 0), Reply::Simple(b"OK".to_vec())),
            1 => (&["SET", "new", "IFEQ"], value(key, 1), Reply::Nil),
            2 => (&["DELEX", "IFNE"], value(key, 0), Reply::Int(0)),
            _ => (&["DELIFEQ"], value(key, 0), Reply::Int(1)),
        };
        let mut request: Vec<_> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        request.insert(1, name(key));
        request.push(operand);
        requests.push(request);
        replies.push(reply);
    }
    pipeline(&mut c, &requests, &replies);
    c.check("DBSIZE", &format!(":{}", KEYS - KEYS / 4));
    c.check("GET key:0", "\"new\"");
}

/// Returns a text of `INFO memory`.
fn info_text(c: &mut Connection, field: &str) -> String {
    let Reply::Bulk(text) = c.ask("INFO memory") else { panic!("INFO is a text") };
    let text = String::from_utf8(text).expect("INFO is text");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
    line.unwrap_or_else(|| panic!("no {field} in {text}")).to_owned()
}

#[test]
fn the_kernel_or_threads_read_as_the_operator_says() {
    for reads in ["threads", "auto"] {
        let dir = TempDir::new();
        let server = spilling(dir.path()).with("spill-reads", reads).start();
        let mut c = server.connect();
        write_all(&mut c, 0);
        let driver = info_text(&mut c, "spilled_reads_driver");
        assert!(driver == "threads" || reads == "auto" && driver == "io_uring", "{driver}");
        // Clients may disconnect while the disk reads for them.
        for first in (0..KEYS).step_by(50) {
            let mut leaving = server.connect();
            let get = |key| encode(&[b"GET".to_vec(), name(key)]);
            leaving.send((first..first + 50).map(get).collect::<Vec<_>>().concat());
        }
        read_all(&mut c, 0);
        assert!(info(&mut c, "spilled_reads") > KEYS as u64 / 2);
        // The shutdown does not wait for blocked clients.
        let mut waiting = server.connect();
        let get = |key| encode(&[b"GET".to_vec(), name(key)]);
        waiting.send((0..100).map(get).collect::<Vec<_>>().concat());
        c.request(&["SHUTDOWN"]);
        c.expect_closed();
        drop(server);
        let server = spilling(dir.path()).with("spill-reads", reads).start();
        read_all(&mut server.connect(), 0);
    }
}

#[test]
fn values_that_cannot_be_read_are_errors_and_nothing_else_is() {
    for reads in ["threads", "auto"] {
        let dir = TempDir::new();
        let server = spilling(dir.path()).with("spill-reads", reads).start();
        let mut c = server.connect();
        write_all(&mut c, 0);
        wait_until("most values are on disk", || info(&mut c, "spilled_keys") > KEYS as u64 / 2);
        for file in std::fs::read_dir(dir.path().join("cold")).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "cold") {
                let len = std::fs::metadata(&path).unwrap().len() as usize;
                let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
                let zeros = vec![0; len - 4096];
                std::os::unix::fs::FileExt::write_all_at(&file, &zeros, 4096).unwrap();
            }
        }
        let is_lost = |reply: &Reply| matches!(reply, Reply::Error(_));
        let get = |c: &mut Connection, key| c.call(&[b"GET".to_vec(), name(key)]);
        let lost: Vec<usize> = (0..KEYS).filter(|key| is_lost(&get(&mut c, *key))).collect();
        assert!(lost.len() > KEYS / 2, "{} values are lost", lost.len());
        let key = lost[0];
        assert!(is_lost(&c.call(&[b"APPEND".to_vec(), name(key), b"x".to_vec()])));
        // An absent value would be null here, or zero.
        let prefix = format!("key:{}*", &key.to_string()[..key.to_string().len() - 1]);
        let last = &key.to_string()[key.to_string().len() - 1..];
        c.call(&[&b"RPUSH"[..], b"digits", last.as_bytes()]);
        assert!(is_lost(&c.call(&[&b"SORT"[..], b"digits", b"GET", prefix.as_bytes()])));
        assert!(is_lost(&c.call(&[&b"SORT"[..], b"digits", b"BY", prefix.as_bytes(), b"ALPHA"])));
        // It can be overwritten and deleted.
        c.check(&format!("SET key:{key} new"), "+OK");
        c.check(&format!("GET key:{key}"), "\"new\"");
        c.check(&format!("DEL key:{}", lost[1]), ":1");
    }
}

#[test]
fn a_server_says_which_values_are_gone_and_starts_if_it_may() {
    let dir = TempDir::new();
    let launch = spilling(dir.path());
    let server = launch.start();
    let mut c = server.connect();
    write_all(&mut c, 0);
    wait_until("most values are on disk", || info(&mut c, "spilled_keys") > KEYS as u64 / 2);
    drop(server);
    let check = |name: &str| {
        crate::launch().argument("check").argument(dir.path().join(name)).argument("--quiet").run()
    };
    let outcome = check("wal");
    assert!(outcome.code == Some(0) && outcome.output.contains("in these files are sound"));
    let cold = dir.path().join("cold");
    let files = std::fs::read_dir(&cold).unwrap().map(|file| file.unwrap().path());
    let file = files.filter(|path| path.extension().is_some_and(|e| e == "cold")).min().unwrap();
    let bytes = std::fs::read(&file).unwrap();
    let mut damaged = bytes.clone();
    damaged[5000] ^= 1;
    std::fs::write(&file, damaged).unwrap();
    for name in ["wal", "cold"] {
        let outcome = check(name);
        assert!(outcome.code == Some(1) && outcome.output.contains("damage: "), "{outcome:?}");
    }
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let outcome = launch.run();
    assert!(outcome.code == Some(1) && outcome.errors.contains(" keys without a value: "));
    let server = launch.with("spill-lost-values", "accept").start();
    let mut c = server.connect();
    let get = |key| vec![b"GET".to_vec(), name(key)];
    let found: Vec<Reply> = (0..KEYS).map(|key| c.call(&get(key))).collect();
    let lost = found.iter().filter(|reply| matches!(reply, Reply::Error(_))).count();
    let good = (0..KEYS).filter(|key| found[*key] == Reply::Bulk(value(*key, 0))).count();
    assert!(
        lost > KEYS / 30 && good > KEYS / 30 && lost + good == KEYS,
        "{lost} lost, {good} good"
    );
    c.check("DBSIZE", &format!(":{KEYS}"));
}

#[test]
fn files_go_when_values_are_overwritten_and_a_snapshot_has_all_of_them() {
    let dir = TempDir::new();
    let server = spilling(dir.path()).start();
    let mut c = server.connect();
    for round in 1..4 {
        write_all(&mut c, round);
    }
    c.check("SAVE", "+OK");
    let restored = TempDir::new();
    std::fs::copy(dir.path().join("dump.rdb"), restored.path().join("dump.rdb")).unwrap();
    let memory_only = launch()
        .with("appendonly", "no")
        .with("dir", &restored.path().display().to_string())
        .start();
    read_all(&mut memory_only.connect(), 3);
    c.check("FLUSHALL", "+OK");
    wait_until("nothing is on disk", || info(&mut c, "spilled_disk_live_bytes") == 0);
    assert_eq!(info(&mut c, "spilled_keys"), 0);
    // At most the segment that is being written is left.
    wait_until("files are gone", || {
        let files = std::fs::read_dir(dir.path().join("cold")).unwrap();
        let is_segment = |name: OsString| name.to_string_lossy().ends_with(".cold");
        files.filter(|file| file.as_ref().is_ok_and(|f| is_segment(f.file_name()))).count() <= 1
    });
}

/// Returns the memory that counts for `maxmemory`.
fn in_memory(c: &mut Connection) -> u64 {
    info(c, "used_memory") - info(c, "mem_not_counted_for_evict")
}

/// About 15 % more data than fits, then three times as much, then random updates: the limit is used, and not
/// exceeded.
#[test]
fn memory_is_used_to_the_limit() {
    takes_up_to_seconds(180);
    const LIMIT: u64 = 40 << 20;
    const LEN: usize = 10_000;
    let dir = TempDir::new();
    let server = spilling(dir.path()).with("maxmemory", &LIMIT.to_string()).start();
    let mut c = server.connect();
    let check = |c: &mut Connection, when: &str| {
        let percent = in_memory(c) as f64 * 100.0 / LIMIT as f64;
        // Shards report their memory in steps of a 256th of the total, and a batch of writes may be in progress.
        assert!((95.0..=101.0).contains(&percent), "{percent} % {when}");
    };
    let write = |c: &mut Connection, keys: Vec<usize>| {
        let requests: Vec<_> = keys
            .into_iter()
            .map(|key| vec![b"SET".to_vec(), name(key), vec![key as u8; LEN]])
            .collect();
        let ok = vec![Reply::Simple(b"OK".to_vec()); requests.len()];
        pipeline(c, &requests, &ok);
    };
    let slightly_more = (LIMIT as f64 * 1.15) as usize / LEN;
    write(&mut c, (0..slightly_more).collect());
    check(&mut c, "after loading a little more than there is room for");
    let all = 3 * slightly_more;
    write(&mut c, (slightly_more..all).collect());
    check(&mut c, "after loading three times as much");
    // Each of them once more, in an order unrelated to the first one.
    let mut number = 1;
    for round in 0..all / 100 {
        let keys = (0..100).map(|_| {
            number = (number * 7919 + 12_347) % all;
            number
        });
        write(&mut c, keys.collect());
        check(&mut c, &format!("in round {round} of updates"));
    }
}

#[test]
fn without_a_log_values_go_to_disk_as_well() {
    let dir = TempDir::new();
    let server = spilling(dir.path()).with("appendonly", "no").start();
    let mut c = server.connect();
    write_all(&mut c, 0);
    read_all(&mut c, 0);
    assert!(info(&mut c, "spilled_keys") > 0 && !dir.path().join("cold").exists());
}

#[test]
fn the_policy_can_be_changed_while_the_server_runs() {
    let dir = TempDir::new();
    let launch = launch().with("appendonly", "yes").with("dir", &dir.path().display().to_string());
    let server = launch.start();
    let mut c = server.connect();
    write_all(&mut c, 0);
    assert!(!dir.path().join("cold").exists());
    c.check("CONFIG SET maxmemory-policy spill maxmemory 1200kb", "+OK");
    wait_until("values go to disk", || info(&mut c, "spilled_keys") > KEYS as u64 / 2);
    read_all(&mut c, 0);
    c.check("CONFIG SET maxmemory-policy noeviction maxmemory 0", "+OK");
    read_all(&mut c, 0);
    write_all(&mut c, 1);
    drop(server);
    let server = launch.start();
    read_all(&mut server.connect(), 1);
}

#[test]
fn keys_alone_that_are_too_many_are_refused() {
    let dir = TempDir::new();
    let server = spilling(dir.path()).with("maxmemory", "300kb").start();
    let mut c = server.connect();
    let ok = Reply::Simple(b"OK".to_vec());
    assert!((0..20_000).any(|key| c.ask(&format!("SET short:{key} 1")) != ok));
    c.check("GET short:1", "\"1\"");
}

/// Nor does it prevent the cleaning of segments.
#[test]
fn an_endless_script_keeps_nobody_from_memory() {
    const ROUNDS: u8 = 3;
    let dir = TempDir::new();
    let launch = spilling(dir.path()).with("threads", "1").with("busy-reply-threshold", "50");
    let server = launch.start();
    let (mut c, mut runner) = (server.connect(), server.connect());
    let script = "redis.call('get', KEYS[1]) while true do end";
    runner.send(encode(&["EVAL", script, "1", "held"]));
    let is_busy = |reply: &Reply| reply.to_string().starts_with("-BUSY");
    wait_until("it is busy", || is_busy(&c.call(&["GET", "held"])));
    // The replies to requests that are sent together; those for the shard of the script are `None`.
    let mut ask = |requests: Vec<Vec<u8>>| -> Vec<Option<Reply>> {
        c.send(requests.concat());
        let replies = requests.iter().map(|_| c.reply());
        replies.map(|reply| (!is_busy(&reply)).then_some(reply)).collect()
    };
    let keys: Vec<usize> = (0..KEYS).collect();
    let mut written = 0;
    for round in 0..ROUNDS {
        for keys in keys.chunks(100) {
            let set = |&key: &usize| encode(&[&b"SET"[..], &name(key), &value(key, round)]);
            let replies = ask(keys.iter().map(set).collect());
            let replies: Vec<Reply> = replies.into_iter().flatten().collect();
            written += replies.len();
            assert!(replies.iter().all(|reply| *reply == Reply::Simple(b"OK".to_vec())));
        }
    }
    assert!(written > KEYS * usize::from(ROUNDS) / 2, "one shard of 256 is locked");
    for keys in keys.chunks(100) {
        let get = |&key: &usize| encode(&[&b"GET"[..], &name(key)]);
        for (&key, reply) in keys.iter().zip(ask(keys.iter().map(get).collect())) {
            let expected = Reply::Bulk(value(key, ROUNDS - 1));
            assert!(reply.is_none_or(|reply| reply == expected), "{key}");
        }
    }
    c.check("SCRIPT KILL", "+OK");
    assert!(runner.reply().to_string().contains("Script killed by user"));
    write_all(&mut c, ROUNDS);
    read_all(&mut c, ROUNDS);
}

/// Little memory is free, and nothing in memory can be spilled.
#[test]
fn a_server_full_of_keys_sleeps() {
    let dir = TempDir::new();
    let server = spilling(dir.path()).with("appendonly", "no").start();
    let mut c = server.connect();
    let set = |n: usize| encode(&["SET", &format!("key:{n:0100}"), "1"]);
    let ended = (0..).find(|n| {
        c.send(set(*n));
        c.reply().to_string().starts_with("-OOM")
    });
    let ended = ended.expect("memory ends");
    for n in ended - ended / 200..ended {
        c.call(&["DEL", &format!("key:{n:0100}")]);
    }
    c.check("SET short 1", "+OK");
    wait_until("it does not look in vain again", || {
        let before = server.cpu_ticks();
        assert!(c.is_silent_for(Duration::from_secs(1)));
        server.cpu_ticks() - before <= 5
    });
}

#[test]
fn clients_of_memcached_get_their_values_too() {
    let dir = TempDir::new();
    let port = free_port();
    let server = spilling(dir.path()).with("memcached-port", &port.to_string()).start();
    let mut c = server.connect();
    write_all(&mut c, 0);
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    let (mut request, mut expected) = (Vec::new(), Vec::new());
    for key in (0..KEYS).step_by(11) {
        request.extend_from_slice(&[b"get ", &name(key)[..], b"\r\n"].concat());
        let head = format!("VALUE key:{key} 0 {VALUE_LEN}\r\n").into_bytes();
        expected.extend_from_slice(&[&head[..], &value(key, 0), b"\r\nEND\r\n"].concat());
    }
    request.extend_from_slice(b"append key:12 0 0 1\r\n!\r\nget key:12\r\nquit\r\n");
    let last = [value(12, 0), b"!".to_vec()].concat();
    let head = format!("STORED\r\nVALUE key:12 0 {}\r\n", VALUE_LEN + 1).into_bytes();
    expected.extend_from_slice(&[&head[..], &last, b"\r\nEND\r\n"].concat());
    client.write_all(&request).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    let same = answer.iter().zip(&expected).take_while(|(a, b)| a == b).count();
    let found = answer[same..].iter().take(100).copied().collect::<Vec<_>>();
    assert!(answer == expected, "from byte {same} on: {}", found.escape_ascii());
}
