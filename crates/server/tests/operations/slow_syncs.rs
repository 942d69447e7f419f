//! A device with slow syncs: which clients wait for it, how long, and the replies of the others.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use tierce_storage::disk::Fault;
use tierce_wire::pedrokv::{Kind, Request, Response, Status};

use crate::operations::gated_disk::{Gate, GatedDisk};
use crate::operations::support::{Client, TestServer, free_port};

struct Slow {
    server: TestServer,
    disk: Arc<GatedDisk>,
    gate: Arc<Gate>,
}

fn start(options: &str) -> Slow {
    let disk = Arc::new(GatedDisk::new(1));
    let gate = Arc::clone(&disk.gate);
    let on_disk: Arc<GatedDisk> = Arc::clone(&disk);
    let server = TestServer::on_disk(on_disk, &format!("--appendonly yes {options}"));
    Slow { server, disk, gate }
}

impl Drop for Slow {
    /// The server cannot end while a sync hangs.
    fn drop(&mut self) {
        self.gate.open();
    }
}

impl Slow {
    /// Sends two writes: the sync of the first one hangs, and the second one waits for another sync.
    fn two_writes(&self) -> Client {
        self.gate.close();
        let mut client = self.server.client();
        client.send("SET a 1");
        self.gate.await_sync();
        client.send("SET b 1");
        self.await_writes(2);
        client
    }

    /// Returns when the server has executed `count` writes.
    fn await_writes(&self, count: usize) {
        let mut client = self.server.client();
        client.ask_until("DBSIZE", |reply| reply == format!(":{count}"));
    }
}

/// Connection of another protocol.
struct Plain(TcpStream);

impl Plain {
    fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(stream)
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    #[track_caller]
    fn expect(&mut self, bytes: &[u8]) {
        let mut got = vec![0; bytes.len()];
        self.0.read_exact(&mut got).unwrap();
        assert_eq!(got, bytes);
    }
}

#[test]
fn a_client_that_keeps_writing_gets_the_replies_that_a_sync_has_covered() {
    let slow = start("--appendfsync always");
    let mut writer = slow.two_writes();
    slow.gate.let_one_pass();
    // The sync of `b` does not end.
    assert_eq!(writer.next(), "OK");
    slow.gate.await_sync();
    writer.send("SET c 1");
    writer.send("GET a");
    slow.await_writes(3);
    slow.gate.let_one_pass();
    assert_eq!(writer.next(), "OK");
    slow.gate.open();
    assert_eq!((writer.next(), writer.next()), ("OK".to_owned(), "1".to_owned()));
}

#[test]
fn what_a_sync_has_covered_is_sent_before_the_next_one_fails() {
    let slow = start("--appendfsync always");
    let mut writer = slow.two_writes();
    slow.gate.let_one_pass();
    assert_eq!(writer.next(), "OK");
    slow.gate.await_sync();
    slow.disk.disk.inject(Fault::Sync, 0);
    writer.send("GET a");
    slow.gate.open();
    assert_eq!(writer.next(), "(closed)");
}

/// Its first entry may be lost as long as no sync has ended, and the producer would never send it again.
#[test]
fn a_repeated_message_is_acknowledged_when_the_first_one_is_durable() {
    const ADD: &str = "XADD s IDMP p m * a 1";
    const SCRIPT: &str = r#"EVAL "return redis.call('XADD','s','IDMP','p','m','*','a','1')" 0"#;
    for again in [ADD, SCRIPT] {
        let slow = start("--appendfsync always");
        slow.gate.close();
        let (mut first, mut second) = (slow.server.client(), slow.server.client());
        first.send(ADD);
        slow.gate.await_sync();
        slow.await_writes(1);
        second.send(again);
        let mut other = slow.server.client();
        other.ask_until("XINFO STREAM s", |reply| reply.contains("iids-duplicates, :1"));
        slow.disk.disk.inject(Fault::Sync, 0);
        slow.gate.open();
        assert_eq!(second.next(), "(closed)", "{again}");
    }
}

#[test]
fn a_blocked_client_is_answered_when_the_log_has_what_it_took() {
    let slow = start("--appendfsync always");
    let mut waiting = slow.server.client();
    waiting.send("BLPOP list 0");
    let mut pushing = slow.server.client();
    pushing.check(&[("CLIENT DURABILITY no", "OK")]);
    slow.gate.close();
    pushing.ask_until("INFO clients", |reply| !reply.contains("blocked_clients:0"));
    pushing.check(&[("RPUSH list x", ":1"), ("EXISTS list", ":0")]);
    slow.gate.await_sync();
    waiting.send("SET a 1");
    slow.await_writes(1);
    slow.gate.let_one_pass();
    assert_eq!(waiting.next(), "[list, x]");
    slow.gate.open();
    assert_eq!(waiting.next(), "OK");
}

#[test]
fn clients_of_memcached_get_the_replies_that_a_sync_has_covered() {
    let port = free_port();
    let slow = start(&format!("--appendfsync always --memcached-port {port}"));
    slow.gate.close();
    let mut writer = Plain::connect(port);
    writer.send(b"set a 0 0 1\r\n1\r\n");
    slow.gate.await_sync();
    writer.send(b"set b 0 0 1\r\n1\r\nget a\r\n");
    slow.await_writes(2);
    slow.gate.let_one_pass();
    writer.expect(b"STORED\r\n");
    slow.gate.open();
    writer.expect(b"STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
}

#[test]
fn clients_of_pedrokv_get_the_replies_that_a_sync_has_covered() {
    let port = free_port();
    let slow = start(&format!("--appendfsync always --pedrokv-port {port}"));
    slow.gate.close();
    let put = |id, key| {
        let mut frame = Vec::new();
        Request { kind: Kind::Put, id, key, value: b"1" }.write(&mut frame).unwrap();
        frame
    };
    let done = |id| {
        let mut frame = Vec::new();
        Response { status: Status::Ok, id, data: b"" }.write(&mut frame).unwrap();
        frame
    };
    let mut writer = Plain::connect(port);
    writer.send(&put(1, b"a"));
    slow.gate.await_sync();
    writer.send(&put(2, b"b"));
    slow.await_writes(2);
    slow.gate.let_one_pass();
    writer.expect(&done(1));
    slow.gate.open();
    writer.expect(&done(2));
}

#[test]
fn waitaof_waits_no_longer_than_it_is_told() {
    let slow = start("--appendfsync everysec");
    slow.gate.close();
    let mut client = slow.server.client();
    client.check(&[("SET a 1", "OK"), ("WAITAOF 1 0 50", "[:0, :0]"), ("GET a", "1")]);
    client.send("WAITAOF 1 0 1000000");
    client.send("GET a");
    slow.gate.await_sync();
    slow.gate.open();
    assert_eq!((client.next(), client.next()), ("[:1, :0]".to_owned(), "1".to_owned()));
    client.check(&[("WAITAOF 1 0 1000000", "[:1, :0]")]);
}

#[test]
fn writers_wait_while_a_sync_leaves_too_much_at_stake() {
    let slow = start("--appendfsync everysec");
    let mut writer = slow.server.client();
    slow.gate.close();
    writer.check(&[("SET a 1", "OK")]);
    slow.gate.await_sync();
    writer.check(&[("SET b 1", "OK")]);
    slow.server.clock.advance(2_500);
    writer.send("GET a");
    writer.send("SET c 1");
    writer.send("GET a");
    assert_eq!(writer.next(), "1");
    let mut other = slow.server.client();
    other.ask_until("INFO persistence", |reply| !reply.contains("aof_delayed_fsync:0"));
    other.check(&[
        ("DBSIZE", ":2"),
        ("CLIENT DURABILITY no", "OK"),
        ("SET d 1", "OK"),
        ("CONFIG SET latency-monitor-threshold 1", "OK"),
    ]);
    slow.server.clock.advance(500);
    slow.gate.open();
    assert_eq!((writer.next(), writer.next()), ("OK".to_owned(), "1".to_owned()));
    assert!(other.call("INFO persistence").contains("aof_delayed_fsync:1\r\n"));
    let events = other.call("LATENCY LATEST");
    assert!(events.contains("aof-write-pending-fsync"), "{events}");
}

#[test]
fn writers_go_on_when_they_need_not_be_safe_any_more() {
    let slow = start("--appendfsync everysec");
    let mut writer = slow.server.client();
    slow.gate.close();
    writer.check(&[("SET a 1", "OK")]);
    slow.gate.await_sync();
    slow.server.clock.advance(2_500);
    writer.send("SET b 1");
    let mut other = slow.server.client();
    other.check(&[("CONFIG SET appendfsync no", "OK")]);
    assert_eq!(writer.next(), "OK");
}

#[test]
fn clients_of_memcached_wait_while_too_much_is_at_stake() {
    let port = free_port();
    let slow = start(&format!("--appendfsync everysec --memcached-port {port}"));
    slow.gate.close();
    let mut writer = Plain::connect(port);
    writer.send(b"set a 0 0 1\r\n1\r\n");
    writer.expect(b"STORED\r\n");
    slow.gate.await_sync();
    slow.server.clock.advance(2_500);
    writer.send(b"set b 0 0 1\r\n1\r\n");
    let mut other = slow.server.client();
    other.ask_until("INFO persistence", |reply| !reply.contains("aof_delayed_fsync:0"));
    other.check(&[("DBSIZE", ":1")]);
    slow.gate.open();
    writer.expect(b"STORED\r\n");
}

#[test]
fn a_client_may_ask_for_everysec_where_others_do_without() {
    let slow = start("--appendfsync no");
    let mut client = slow.server.client();
    slow.gate.close();
    client.check(&[("CLIENT DURABILITY everysec", "OK"), ("SET a 1", "OK")]);
    slow.gate.await_sync();
}

/// This also holds for a write that another client's command causes.
#[test]
fn a_write_that_was_waited_for_is_as_durable_as_its_client_has_asked() {
    for (line, pending) in [
        ("BLMOVE a b LEFT LEFT 0", "blocked_clients:1\r\n"),
        ("NBLMOVE a b LEFT LEFT 0 0", "pending_results:1\r\n"),
    ] {
        let slow = start("--appendfsync no");
        let (mut client, mut other) = (slow.server.client(), slow.server.client());
        client.check(&[("CLIENT DURABILITY everysec", "OK")]);
        client.send(line);
        other.ask_until("INFO clients", |reply| reply.contains(pending));
        slow.gate.close();
        other.check(&[("RPUSH a x", ":1")]);
        assert_eq!(client.next(), "x");
        slow.gate.await_sync();
    }
}

#[test]
fn a_level_ends_with_reset_and_a_new_one_is_for_later_writes() {
    let slow = start("--appendfsync always");
    let mut client = slow.server.client();
    client.check(&[("CLIENT DURABILITY no", "OK"), ("SET a 1", "OK"), ("RESET", "RESET")]);
    slow.gate.close();
    client.send_raw(b"SET b 1\r\nCLIENT DURABILITY no\r\n");
    slow.gate.await_sync();
    slow.gate.open();
    assert_eq!((client.next(), client.next()), ("OK".to_owned(), "OK".to_owned()));
}

#[test]
fn long_replies_that_wait_for_the_device_close_nothing() {
    let slow = start("--appendfsync always --client-output-buffer-limit normal 512kb 0 0");
    let mut client = slow.server.client();
    let value = "v".repeat(10_000);
    client.check(&[(&format!("SET long {value}"), "OK")]);
    slow.gate.close();
    client.send("SET a 1");
    slow.gate.await_sync();
    for _ in 0..60 {
        client.send("GET long");
    }
    client.send("SET b 1");
    slow.await_writes(3);
    slow.gate.open();
    assert_eq!(client.next(), "OK");
    for _ in 0..60 {
        assert_eq!(client.next(), value);
    }
    assert_eq!(client.next(), "OK");
}

#[test]
fn replies_that_wait_are_sent_when_the_log_is_switched_off() {
    let slow = start("--appendfsync always");
    let mut client = slow.two_writes();
    let mut other = slow.server.client();
    other.send("CONFIG SET appendonly no");
    slow.gate.open();
    assert_eq!((client.next(), client.next()), ("OK".to_owned(), "OK".to_owned()));
    assert_eq!(other.next(), "OK");
}

/// If the log is switched off and closing it fails, replies that wait for the device are not sent.
#[test]
fn no_reply_is_sent_that_a_failed_close_has_lost() {
    let slow = start("--appendfsync always");
    slow.gate.close();
    let (mut first, mut second) = (slow.server.client(), slow.server.client());
    first.send("SET a 1");
    slow.gate.await_sync();
    second.send("SET b 1");
    slow.await_writes(2);
    let mut operator = slow.server.client();
    operator.send("CONFIG SET appendonly no");
    // The sync of `a` succeeds, the one of `b` does not, on any thread.
    slow.disk.disk.inject(Fault::Sync, 1);
    slow.gate.open();
    assert_eq!(first.next(), "OK");
    assert_eq!(second.next(), "(closed)");
    assert_eq!(operator.next(), "OK");
    assert_eq!(slow.server.client().call("MGET a b"), "[1, 1]", "in memory they are");
}

/// Each WAITAOF is told that the log has failed, not only the first one.
#[test]
fn nobody_waits_for_a_log_that_has_failed() {
    let slow = start("--appendfsync everysec");
    // The second one waits for an earlier position, so it asks nothing new of the log.
    let (mut second, mut first) = (slow.server.client(), slow.server.client());
    assert_eq!(second.call("SET b 1"), "OK");
    assert_eq!(first.call("SET a 1"), "OK");
    slow.disk.disk.inject(Fault::Sync, 0);
    first.send("WAITAOF 1 0 0");
    assert_eq!(first.next(), "(closed)");
    second.send("WAITAOF 1 0 0");
    assert_eq!(second.next(), "(closed)");
    let mut reader = slow.server.client();
    assert!(reader.call("SET c 1").starts_with("-MISCONF"));
    assert_eq!(reader.call("MGET a b"), "[1, 1]");
}
