//! The handshake of a replica, and full copies, over raw sockets.

use std::io::Cursor;

use tierce_harness::{Connection, Server, TempDir, wait_until};

use super::fake_replica::{copy, line};
use super::{fill_disk, on_a_full_disk};
use crate::launch;

/// Starts a primary that begins copies at once, and does not wait for more replicas to share them.
pub(super) fn primary() -> Server {
    launch().with("repl-diskless-sync-delay", "0").start()
}

/// Sends the greeting of a replica that only wants a copy.
fn introduce(replica: &mut Connection) {
    replica.check("REPLCONF listening-port 6380 ip-address 10.0.0.1", "+OK");
    replica.check("REPLCONF capa eof capa psync2 capa of-tomorrow", "+OK");
    replica.check("REPLCONF rdb-only 1", "+OK");
}

/// Returns the number of keys in a copy.
fn keys(copy: &[u8]) -> usize {
    let mut reader = tierce_rdb::Reader::new(Cursor::new(copy)).expect("a head");
    let mut keys = 0;
    while let Some(event) = reader.next_event().expect("a whole copy") {
        if let tierce_rdb::Event::Entry(_) = event {
            reader.skip_value().expect("a value");
            keys += 1;
        }
    }
    keys
}

fn fill(c: &mut Connection, count: usize) {
    for number in 0..count {
        c.check(&format!("SET key:{number} {number}"), "+OK");
    }
    c.check("RPUSH a-list a b c", ":3");
    c.check("XADD a-stream 1-1 field value", "\"1-1\"");
}

#[test]
fn a_full_copy_is_a_file_that_loads() {
    let server = primary();
    let mut c = server.connect();
    fill(&mut c, 100);
    let mut replica = server.connect();
    introduce(&mut replica);
    replica.send("PSYNC ? -1\r\n");
    let told = line(&mut replica);
    let words: Vec<_> = told.split(' ').collect();
    assert_eq!((words.len(), words[0], words[1].len()), (3, "+FULLRESYNC", 40), "{told}");
    let copy = copy(&mut replica);
    assert_eq!(keys(&copy), 102);

    let dir = TempDir::new();
    std::fs::write(dir.path().join("dump.rdb"), &copy).expect("a file");
    let loaded =
        launch().with("appendonly", "no").with("dir", &dir.path().display().to_string()).start();
    let mut c = loaded.connect();
    c.check("DBSIZE", ":102");
    c.check("GET key:42", "\"42\"");
    c.check("LLEN a-list", ":3");
}

#[test]
fn the_old_command_brings_a_copy_too() {
    let server = primary();
    fill(&mut server.connect(), 5);
    let mut replica = server.connect();
    introduce(&mut replica);
    replica.send("SYNC\r\n");
    assert_eq!(keys(&copy(&mut replica)), 7);
    let mut c = server.connect();
    assert!(c.ask("CLIENT LIST TYPE replica").text().contains(" flags=S "));
    c.check("CLIENT KILL TYPE replica", ":1");
    replica.expect_closed();
    wait_until("it is forgotten", || c.ask("CLIENT LIST TYPE replica").text().is_empty());
}

/// As `redis-cli --rdb` asks for it. It needs no offset in the stream, which the server cannot give then.
#[test]
fn a_copy_alone_is_given_while_the_log_has_failed() {
    let dir = TempDir::new();
    let server = on_a_full_disk(&dir, 8192)
        .with("appendonly", "yes")
        .with("repl-diskless-sync-delay", "0")
        .start();
    let mut c = server.connect();
    fill(&mut c, 5);
    fill_disk(&server);
    for request in ["PSYNC ? -1\r\n", "SYNC\r\n"] {
        let mut replica = server.connect();
        introduce(&mut replica);
        replica.send(request);
        if request.starts_with('P') {
            let told = line(&mut replica);
            assert!(told.starts_with("+FULLRESYNC "), "{told}");
        }
        assert!(keys(&copy(&mut replica)) >= 7);
    }
}

#[test]
fn two_replicas_share_a_copy() {
    let server = launch().with("repl-diskless-sync-max-replicas", "2").start();
    let mut c = server.connect();
    fill(&mut c, 5);
    let mut replicas = [server.connect(), server.connect()];
    for replica in &mut replicas {
        introduce(replica);
        replica.send("PSYNC ? -1\r\n");
    }
    // Because of repl-diskless-sync-delay, the first one alone would have to wait for seconds.
    let copies = replicas.each_mut().map(|replica| {
        let told = line(replica);
        (told, line(replica))
    });
    assert_eq!(copies[0], copies[1], "one stream, and one mark");
}

#[test]
fn what_cannot_be_served_is_refused() {
    let server = primary();
    let mut c = server.connect();
    c.check("PSYNC ? x", "-ERR value is not an integer or out of range");
    let refused = c.ask("PSYNC ? -1");
    assert!(refused.to_string().starts_with("-ERR"), "{refused}");
    c.check("REPLCONF listening-port", "-ERR syntax error");
    c.check("REPLCONF listening-port 70000", "-ERR value is out of range");
    c.check("REPLCONF something else", "-ERR Unrecognized REPLCONF option: something");
    let refused = c.ask("REPLCONF rdb-filter-only keys").to_string();
    assert!(refused.starts_with("-ERR"), "{refused}");
    c.check("PING", "+PONG");
}

#[test]
fn one_that_never_reads_keeps_no_writer_waiting() {
    let server = primary();
    let mut c = server.connect();
    c.check("CONFIG SET repl-timeout 1", "+OK");
    let value = "v".repeat(100_000);
    for number in 0..200 {
        c.check(&format!("SET key:{number} {value}"), "+OK");
    }
    c.check("CONFIG SET rdbcompression no", "+OK");
    let mut replica = server.connect();
    introduce(&mut replica);
    replica.send("PSYNC ? -1\r\n");
    wait_until("it follows", || !c.ask("CLIENT LIST TYPE replica").text().is_empty());
    let mut writes = 0;
    wait_until("it is dropped", || {
        writes += 1;
        c.check(&format!("SET write:{writes} x"), "+OK");
        c.ask("CLIENT LIST TYPE replica").text().is_empty()
    });
    c.check(&format!("GET write:{writes}"), "\"x\"");
}

/// It hangs while it loads its copy, or its machine is gone.
#[test]
fn one_that_never_says_that_it_has_its_copy_is_disconnected() {
    let server = launch().with("repl-diskless-sync-delay", "0").with("repl-timeout", "1").start();
    let mut replica = server.connect();
    replica.check("REPLCONF capa eof capa psync2", "+OK");
    replica.send("PSYNC ? -1\r\n");
    assert!(line(&mut replica).starts_with("+FULLRESYNC "));
    copy(&mut replica);
    replica.expect_closed();
    assert!(server.output().contains("it was silent for repl-timeout"));
}

#[test]
fn a_connection_with_the_stream_executes_nothing_else() {
    let server = primary();
    let mut c = server.connect();
    c.check("SET k v", "+OK");
    for command in ["SET k w", "DEL k", "MULTI", "EVAL 1 0", "SUBSCRIBE news", "FLUSHALL"] {
        let mut replica = server.connect();
        replica.check("REPLCONF capa eof", "+OK");
        replica.send("PSYNC ? -1\r\n");
        line(&mut replica);
        copy(&mut replica);
        replica.send(format!("{command}\r\n"));
        replica.expect_closed();
    }
    c.check("GET k", r#""v""#);
}
