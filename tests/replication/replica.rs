//! A server that follows a simulated primary: the conversation in bytes, split anywhere, and garbage.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use tierce_harness::{
    Both, Connection, Launch, PATIENCE, Reply, Server, TempDir, certificate_file, encode,
    wait_until, words,
};

use crate::memcached;
use crate::pedrokv::{GET, PUT, request};
use crate::{launch, program};

pub(crate) const ID: &str = "0123456789abcdef0123456789abcdef01234567";
pub(crate) const OTHER_ID: &str = "fedcba98765432100123456789abcdef01234567";

type Encrypted = StreamOwned<ServerConnection, TcpStream>;

/// The test as a primary.
pub(crate) struct Primary(TcpListener);

/// A replica that has connected.
pub(crate) struct Follower<S = TcpStream> {
    stream: S,
    received: Vec<u8>,
}

impl Primary {
    pub(crate) fn new() -> Self {
        Self::at("127.0.0.1")
    }

    fn at(host: &str) -> Self {
        Self(TcpListener::bind((host, 0)).expect("a port"))
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.local_addr().expect("an address").port()
    }

    /// A replica of it, not started yet.
    pub(crate) fn replica(&self) -> Launch {
        let address = self.0.local_addr().expect("an address");
        launch().with("replicaof", &format!("{} {}", address.ip(), address.port()))
    }

    /// The next connection. A replica that was left comes again after a second.
    #[track_caller]
    pub(crate) fn accept(&self) -> Follower {
        self.0.set_nonblocking(true).expect("a socket option");
        let mut accepted = None;
        wait_until("the replica connects", || {
            accepted = self.0.accept().ok();
            accepted.is_some()
        });
        let (stream, _) = accepted.expect("a connection");
        stream.set_nonblocking(false).expect("a socket option");
        stream.set_nodelay(true).expect("a socket option");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        Follower { stream, received: Vec::new() }
    }

    /// The next connection, up to PSYNC: what that asks for.
    #[track_caller]
    pub(crate) fn accept_until_psync(&self) -> (Follower, String) {
        let mut follower = self.accept();
        let psync = follower.psync();
        (follower, psync)
    }

    /// The next connection, which gets all of these strings as a full copy at `offset`.
    #[track_caller]
    pub(crate) fn give_copy(&self, offset: u64, strings: &[(&str, &str)]) -> Follower {
        let (mut follower, _) = self.accept_until_psync();
        follower.send(format!("+FULLRESYNC {ID} {offset}\r\n"));
        follower.send_file(&file(strings));
        follower
    }
}

impl Follower {
    /// The same connection, over which everything is encrypted from now on.
    fn encrypted(self, config: &Arc<ServerConfig>) -> Follower<Encrypted> {
        let session = ServerConnection::new(Arc::clone(config)).expect("a session");
        Follower { stream: StreamOwned::new(session, self.stream), received: self.received }
    }
}

impl<S: Read + Write> Follower<S> {
    /// What it says up to PSYNC: what that asks for.
    #[track_caller]
    pub(crate) fn psync(&mut self) -> String {
        loop {
            let command = self.command();
            match command.split(' ').next().unwrap_or_default() {
                "PSYNC" => return command,
                "PING" => self.send("+PONG\r\n"),
                _ => self.send("+OK\r\n"),
            }
        }
    }

    #[track_caller]
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the replica takes the bytes");
    }

    fn send_file(&mut self, file: &[u8]) {
        self.send(format!("${}\r\n", file.len()));
        self.send(file);
    }

    /// The next command of the replica.
    #[track_caller]
    pub(crate) fn command(&mut self) -> String {
        loop {
            if let Some((reply, len)) = Reply::decode(&self.received) {
                self.received.drain(..len);
                let words: Vec<_> = reply.items().iter().map(Reply::text).collect();
                return words.join(" ");
            }
            let mut chunk = [0; 4096];
            let len = self.stream.read(&mut chunk).expect("a command of the replica");
            assert!(len > 0, "the replica has closed the connection");
            self.received.extend_from_slice(&chunk[..len]);
        }
    }

    /// Waits until the replica has applied so much of the stream.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, offset: u64) {
        let expected = format!("REPLCONF ACK {offset}");
        // With a log it also says what that has on the device.
        let is_it = |command: &str| command.split(" FACK ").next() == Some(&expected);
        while !is_it(&self.command()) {}
    }

    /// Waits until the replica ends the connection.
    #[track_caller]
    pub(crate) fn wait_for_end(&mut self) {
        let mut chunk = [0; 4096];
        while self.stream.read(&mut chunk).is_ok_and(|len| len > 0) {}
    }
}

/// An RDB file with strings in database 0, and no checksum.
fn file(strings: &[(&str, &str)]) -> Vec<u8> {
    let mut file = b"REDIS0010\xfe\x00".to_vec();
    for (key, value) in strings {
        file.push(0);
        for text in [key, value] {
            file.push(u8::try_from(text.len()).expect("a short string"));
            file.extend_from_slice(text.as_bytes());
        }
    }
    file.push(0xff);
    file.extend([0; 8]);
    file
}

/// The same of a file with these remarks in front.
fn file_that_says(remarks: &[(&str, &str)], strings: &[(&str, &str)]) -> Vec<u8> {
    let mut file = file(strings);
    let rest = file.split_off(9);
    for (name, value) in remarks {
        file.push(0xfa);
        for text in [name, value] {
            file.push(u8::try_from(text.len()).expect("a short string"));
            file.extend_from_slice(text.as_bytes());
        }
    }
    file.extend(rest);
    file
}

/// Commands as they are in a stream.
pub(crate) fn stream(lines: &[&str]) -> Vec<u8> {
    lines.iter().flat_map(|line| encode(&words(line))).collect()
}

#[track_caller]
fn wait_for_reply(client: &mut Connection, line: &str, expected: &str) {
    wait_until(&format!("{line} is {expected}"), || client.ask(line).to_string() == expected);
}

pub(crate) fn info(client: &mut Connection, field: &str) -> String {
    let page = client.ask("INFO replication");
    let page = page.text();
    let line = page.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field} in {page}")).to_owned()
}

pub(crate) fn wait_for_link(client: &mut Connection, status: &str) {
    wait_until("the link", || info(client, "master_link_status") == status);
}

/// The log of the server has this line.
#[track_caller]
pub(crate) fn wait_for_log(server: &Server, text: &str) {
    wait_until(&format!("the log says: {text}"), || {
        (server.output() + &server.errors()).contains(text)
    });
}

#[test]
fn a_full_copy_and_then_the_stream() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut follower = primary.give_copy(100, &[("k", "v"), ("n", "1")]);
    let mut c = server.connect();
    let commands = stream(&[
        "SET k w",
        "SELECT 2",
        "RPUSH l a b",
        "MULTI",
        "INCR n",
        "INCR n",
        "EXEC",
        "PING",
        "REPLCONF GETACK *",
    ]);
    follower.wait_for(100);
    follower.send(&commands);
    follower.wait_for(100 + commands.len() as u64);
    c.check("MGET k n", r#"["w", "1"]"#);
    c.check("SELECT 2", "+OK");
    c.check("GET n", r#""2""#);
    c.check("LRANGE l 0 -1", r#"["a", "b"]"#);
    assert_eq!(info(&mut c, "role"), "slave");
    assert_eq!(info(&mut c, "master_replid"), ID);
    assert_eq!(info(&mut c, "slave_repl_offset"), (100 + commands.len()).to_string());
    let (port, offset) = (primary.port(), 100 + commands.len());
    let role = format!(r#"["slave", "127.0.0.1", :{port}, "connected", :{offset}]"#);
    c.check("ROLE", &role);
}

#[test]
fn what_is_said_at_the_beginning() {
    let primary = Primary::new();
    let replica = primary.replica().with("masteruser", "ann").with("masterauth", "secret");
    let server =
        replica.with("replica-announce-ip", "10.0.0.9").with("replica-announce-port", "77").start();
    let mut follower = primary.accept();
    let expected = [
        "PING",
        "AUTH ann secret",
        "REPLCONF listening-port 77",
        "REPLCONF ip-address 10.0.0.9",
        "REPLCONF capa eof capa psync2",
        "PSYNC ? -1",
    ];
    for command in expected {
        assert_eq!(follower.command(), command);
        follower.send("+OK\r\n");
    }
    wait_for_log(&server, "instead of a reply to PSYNC came: +OK");
}

#[test]
fn a_cut_link_goes_on_where_it_was() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut c = server.connect();
    let commands = stream(&["SET a 1", "MULTI", "INCR n", "INCR n", "EXEC", "INCR n"]);
    let ends = [
        0,
        stream(&["SET a 1"]).len(),
        stream(&["SET a 1", "MULTI", "INCR n", "INCR n", "EXEC"]).len(),
    ];
    drop(primary.give_copy(0, &[]));
    // A transaction counts from its EXEC on, and no command counts twice.
    let mut sent = 0;
    let mut cuts = vec![3, ends[1] + 5, ends[2] - 2, ends[2] + 1, commands.len()];
    cuts.dedup();
    for cut in cuts {
        let (mut follower, psync) = primary.accept_until_psync();
        let from = *ends.iter().rfind(|end| **end <= sent).expect("the beginning");
        assert_eq!(psync, format!("PSYNC {ID} {}", from + 1));
        follower.send("+CONTINUE\r\n");
        follower.send(&commands[from..cut]);
        sent = cut;
        if cut == commands.len() {
            follower.wait_for(commands.len() as u64);
        } else {
            // What was sent is read before the end of the connection is.
            follower.stream.shutdown(std::net::Shutdown::Write).expect("an open connection");
            follower.wait_for_end();
        }
    }
    c.check("MGET a n", r#"["1", "3"]"#);
}

#[test]
fn the_selected_database_outlasts_a_link() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let (mut follower, _) = primary.accept_until_psync();
    // One that is a replica itself tells which one its primary has selected.
    let mut copy = file(&[]);
    copy.splice(9..9, *b"\xfa\x0erepl-stream-db\x012");
    follower.send(format!("+FULLRESYNC {ID} 0\r\n"));
    follower.send_file(&copy);
    let pieces = ["SET two 1", "SELECT 3", "MULTI", "SELECT 4", "SET four 1", "EXEC", "SET four 2"];
    let cuts = [1, 2, 6, 7].map(|count| stream(&pieces[..count]).len());
    let mut sent = 0;
    for cut in cuts {
        follower.send(&stream(&pieces)[sent..cut]);
        follower.stream.shutdown(std::net::Shutdown::Write).expect("an open connection");
        follower.wait_for_end();
        sent = cut;
        let (next, psync) = primary.accept_until_psync();
        assert_eq!(psync, format!("PSYNC {ID} {}", sent + 1));
        follower = next;
        follower.send("+CONTINUE\r\n");
    }
    let mut c = server.connect();
    for (db, key, value) in [(2, "two", "1"), (4, "four", "2")] {
        c.check(&format!("SELECT {db}"), "+OK");
        c.check(&format!("GET {key}"), &format!("{value:?}"));
    }
}

#[test]
fn a_stream_may_be_renamed() {
    let primary = Primary::new();
    let server = primary.replica().start();
    drop(primary.give_copy(7, &[("k", "v")]));
    let (mut follower, psync) = primary.accept_until_psync();
    assert_eq!(psync, format!("PSYNC {ID} 8"));
    follower.send(format!("+CONTINUE {OTHER_ID}\r\n"));
    follower.wait_for(7);
    drop(follower);
    let (_, psync) = primary.accept_until_psync();
    assert_eq!(psync, format!("PSYNC {OTHER_ID} 8"));
    server.connect().check("GET k", r#""v""#);
}

#[test]
fn the_old_data_stay_until_the_new_are_complete() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut c = server.connect();
    drop(primary.give_copy(1, &[("old", "1")]));
    let good = file(&[("new", "2")]);
    let mut newer = good.clone();
    newer[5..9].copy_from_slice(b"0099");
    let mut torn = good.clone();
    torn.truncate(good.len() - 9);
    let mut garbage = good.clone();
    garbage[11] = 200;
    let bad = [
        (newer, "the full copy cannot be loaded"),
        (torn, "the full copy cannot be loaded"),
        (garbage, "the full copy cannot be loaded"),
        (b"no file at all".to_vec(), "the full copy cannot be loaded"),
    ];
    for (file, why) in bad {
        let (mut follower, _) = primary.accept_until_psync();
        follower.send(format!("+FULLRESYNC {OTHER_ID} 5\r\n"));
        follower.send_file(&file);
        follower.wait_for_end();
        wait_for_log(&server, why);
        c.check("MGET old new", r#"["1", nil]"#);
    }
    // A copy that is cut at any byte.
    let mark = "m".repeat(40);
    let whole = [format!("$EOF:{mark}\r\n").as_bytes(), &good, mark.as_bytes()].concat();
    for cut in [0, 1, 20, 50, whole.len() - 41, whole.len() - 40, whole.len() - 1] {
        let (mut follower, _) = primary.accept_until_psync();
        follower.send(format!("+FULLRESYNC {OTHER_ID} 5\r\n"));
        follower.send(&whole[..cut]);
        drop(follower);
        c.check("MGET old new", r#"["1", nil]"#);
    }
    let (mut follower, _) = primary.accept_until_psync();
    follower.send(format!("+FULLRESYNC {OTHER_ID} 5\r\n"));
    follower.send(&whole);
    follower.wait_for(5);
    c.check("MGET old new", r#"[nil, "2"]"#);
}

/// What followed went to the database that was selected before.
#[test]
fn a_stream_of_a_database_that_is_not_here_ends() {
    for commands in [
        &["SELECT 4", "SET a 2", "SET b 1"][..],
        &["MULTI", "SELECT 4", "SET a 2", "EXEC"],
        &["SELECT x", "SET a 2"],
    ] {
        let primary = Primary::new();
        let server = primary.replica().with("databases", "4").start();
        let mut client = server.connect();
        let mut follower = primary.give_copy(0, &[("a", "1")]);
        follower.send(stream(&["SELECT 3", "SET c 1"]));
        follower.send(stream(commands));
        wait_for_log(
            &server,
            "which this server does not have (databases). Asking for a full copy",
        );
        let (_, psync) = primary.accept_until_psync();
        assert_eq!(psync, "PSYNC ? -1", "{commands:?}");
        for db in 0..4 {
            client.check(&format!("SELECT {db}"), "+OK");
            let expected = if db == 0 { "\"1\"" } else { "nil" };
            client.check("GET a", expected);
        }
    }
}

#[test]
fn a_copy_with_a_stream_of_a_database_that_is_not_here_is_refused() {
    let primary = Primary::new();
    let server = primary.replica().with("databases", "4").start();
    for copy in [
        file_that_says(&[("repl-stream-db", "4")], &[("a", "1")]),
        file_that_says(&[("repl-stream-db", "3")], &[("a", "1")]),
    ] {
        let (mut follower, _) = primary.accept_until_psync();
        follower.send(format!("+FULLRESYNC {ID} 0\r\n"));
        follower.send_file(&copy);
        follower.send(stream(&["SET b 1"]));
        wait_for_log(&server, "a stream that has selected database 4");
    }
    let mut client = server.connect();
    client.check("SELECT 3", "+OK");
    wait_for_reply(&mut client, "GET b", "\"1\"");
}

#[test]
fn nonsense_in_the_stream_ends_the_link_and_not_the_server() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut c = server.connect();
    let mut follower = primary.give_copy(1, &[("k", "v")]);
    let nonsense: [&[u8]; 4] = [
        b"*1\r\nx\r\n",
        b"*99999999999\r\n",
        b"*1\r\n$-5\r\n",
        b"*2\r\n$3\r\nGET\r\n$99999999999\r\n",
    ];
    for bytes in nonsense {
        follower.send(bytes);
        follower.wait_for_end();
        c.check("GET k", r#""v""#);
        let (next, psync) = primary.accept_until_psync();
        assert_eq!(psync, format!("PSYNC {ID} 2"));
        follower = next;
        follower.send("+CONTINUE\r\n");
    }
    wait_for_log(&server, "at offset 1 of the stream there is no command");
    // A command that this server does not know is logged, and what follows is applied.
    let commands = stream(&["NOSUCHCOMMAND 1", "SET k w"]);
    follower.send(&commands);
    follower.wait_for(1 + commands.len() as u64);
    c.check("GET k", r#""w""#);
    wait_for_log(&server, "The primary's command NOSUCHCOMMAND failed here");
}

#[test]
fn clients_only_read() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let _follower = primary.give_copy(1, &[("k", "v")]);
    for mut c in [server.connect(), server.connect_resp3()] {
        wait_for_reply(&mut c, "GET k", r#""v""#);
        let read_only = "-READONLY You can't write against a read only replica.";
        for line in ["SET k w", "DEL none", "EXPIRE k 5", "FLUSHALL", "BLPOP l 0"] {
            c.check(line, read_only);
        }
        c.check("MULTI", "+OK");
        c.check("INCR n", read_only);
        assert!(c.ask("EXEC").to_string().starts_with("-EXECABORT"));
        c.check("EVAL 'return redis.call(\"GET\", KEYS[1])' 1 k", r#""v""#);
        let refused = c.ask("EVAL 'return redis.call(\"SET\", KEYS[1], 1)' 1 k").to_string();
        assert!(refused.starts_with("-READONLY"), "{refused}");
        c.check("GET k", r#""v""#);
    }
}

#[test]
fn clients_of_other_protocols_only_read() {
    let primary = Primary::new();
    let both = memcached::with(primary.replica());
    let mut follower = primary.give_copy(1, &[("k", "v")]);
    follower.wait_for(1);
    both.check(b"get k\r\n", b"VALUE k 0 1\r\nv\r\nEND\r\n");
    let refused = b"SERVER_ERROR this server is a read only replica\r\n";
    both.check(b"set k 0 0 1\r\nw\r\n", refused);
    both.check(b"delete k\r\n", refused);
    both.check(b"get k\r\n", b"VALUE k 0 1\r\nv\r\nEND\r\n");
    let primary = Primary::new();
    let both = Both::start(primary.replica(), "pedrokv-port");
    let mut follower = primary.give_copy(1, &[("k", "v")]);
    follower.wait_for(1);
    let answer = both.talk([&*request(PUT, 1, b"k", b"w")]);
    assert!(
        answer.ends_with(b"err: this server is a read only replica"),
        "{}",
        answer.escape_ascii()
    );
    assert!(both.talk([&*request(GET, 2, b"k", b"")]).ends_with(b"v"));
}

#[test]
fn old_data_are_shown_or_not() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut c = server.connect();
    let follower = primary.give_copy(1, &[("k", "v")]);
    wait_for_link(&mut c, "up");
    drop((follower, primary));
    wait_for_link(&mut c, "down");
    c.check("GET k", r#""v""#);
    c.check("CONFIG SET replica-serve-stale-data no", "+OK");
    let down = "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
    c.check("GET k", down);
    let stale = "Can not execute the command on a stale replica";
    let refused = c.ask("EVAL 'return redis.call(\"GET\", KEYS[1])' 1 k").to_string();
    assert!(refused.contains(stale), "{refused}");
    c.check("EVAL '#!lua flags=no-writes\nreturn 1' 0", down);
    assert!(c.ask("INFO replication").text().contains("master_link_status:down"));
    c.check("CONFIG SET replica-serve-stale-data yes", "+OK");
    c.check("GET k", r#""v""#);
    c.check("CONFIG SET replica-serve-stale-data no", "+OK");
    c.check("REPLICAOF NO ONE", "+OK");
    c.check("GET k", r#""v""#);
}

#[test]
fn a_primary_decides_what_expires() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut c = server.connect();
    let mut follower = primary.give_copy(0, &[]);
    // The deadline of the key is in the past already.
    let first = stream(&["SET k v PXAT 1000", "SET other w"]);
    follower.send(&first);
    follower.wait_for(first.len() as u64);
    c.check("MGET k other", r#"[nil, "w"]"#);
    c.check("EXISTS k", ":0");
    c.check("KEYS *", r#"["other"]"#);
    c.check("DBSIZE", ":2");
    // For the primary it was there when it did this.
    let second = stream(&["PERSIST k", "APPEND k w"]);
    follower.send(&second);
    follower.wait_for((first.len() + second.len()) as u64);
    c.check("GET k", r#""vw""#);
    // A primary removes what has expired by itself.
    let third = stream(&["PEXPIREAT k 1000"]);
    follower.send(&third);
    follower.wait_for((first.len() + second.len() + third.len()) as u64);
    c.check("DBSIZE", ":2");
    c.check("REPLICAOF NO ONE", "+OK");
    wait_for_reply(&mut c, "DBSIZE", ":1");
}

#[test]
fn times_from_now_count_in_transactions_as_well() {
    let commands = [
        ["SET a v", "PEXPIRE a 100000"],
        ["SET b v", "EXPIRE b 100"],
        ["SET c v", "GETEX c EX 100"],
        ["SET d v PX 100000", "SETEX e 100 v"],
    ];
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut c = server.connect();
    let mut follower = primary.give_copy(0, &[]);
    let mut offset = 0;
    for [first, second] in commands {
        let transaction = stream(&["MULTI", first, second, "EXEC"]);
        offset += transaction.len() as u64;
        follower.send(&transaction);
    }
    follower.wait_for(offset);
    for key in ["a", "b", "c", "d", "e"] {
        c.check(&format!("GET {key}"), r#""v""#);
        let left_ms = c.call(&["PTTL", key]).int();
        assert!((1..=100_000).contains(&left_ms), "{key}: {left_ms}");
    }
}

#[test]
fn clients_hear_what_the_primary_does() {
    let primary = Primary::new();
    let server = primary.replica().with("notify-keyspace-events", "KEA").start();
    let mut follower = primary.give_copy(1, &[("k", "v")]);
    let (mut c, mut caching) = (server.connect(), server.connect_resp3());
    wait_for_link(&mut c, "up");
    let mut subscriber = server.connect_resp3();
    subscriber.check("SUBSCRIBE news __keyspace@0__:k", r#">["subscribe", "news", :1]"#);
    subscriber.expect(r#">["subscribe", "__keyspace@0__:k", :2]"#);
    caching.check("CLIENT TRACKING ON", "+OK");
    caching.check("GET k", r#""v""#);
    c.check("WATCH k", "+OK");
    follower.send(stream(&["PUBLISH news hello", "SET k w", "EXPIRE k 1000", "DEL k"]));
    subscriber.expect(r#">["message", "news", "hello"]"#);
    for event in ["set", "expire", "del"] {
        subscriber.expect(&format!(r#">["message", "__keyspace@0__:k", "{event}"]"#));
    }
    caching.expect(r#">["invalidate", ["k"]]"#);
    c.check("MULTI", "+OK");
    c.check("GET k", "+QUEUED");
    c.check("EXEC", "nil-array");
    // A pause of writes is one for clients.
    c.check("CLIENT PAUSE 100000 WRITE", "+OK");
    follower.send(stream(&["SET k x", "PUBLISH news paused"]));
    subscriber.expect(r#">["message", "__keyspace@0__:k", "set"]"#);
    subscriber.expect(r#">["message", "news", "paused"]"#);
    c.check("CLIENT UNPAUSE", "+OK");
    // A full copy changes what it brings and what it does not.
    caching.check("MGET k other", r#"["x", null]"#);
    c.check("WATCH k", "+OK");
    drop(follower);
    let (mut follower, _) = primary.accept_until_psync();
    follower.send(format!("+FULLRESYNC {OTHER_ID} 5\r\n"));
    follower.send_file(&file(&[("other", "1")]));
    follower.wait_for(5);
    caching.expect(r#">["invalidate", null]"#);
    caching.check("MGET k other", r#"[null, "1"]"#);
    c.check("MULTI", "+OK");
    c.check("GET k", "+QUEUED");
    c.check("EXEC", "nil-array");
}

/// The disk is full, or as here, the file of the copy must not grow.
#[test]
fn a_copy_for_which_there_is_no_room_changes_nothing() {
    let dir = TempDir::new();
    let limited = dir.path().join("limited");
    let script =
        format!("#!/bin/sh\ntrap '' XFSZ\nulimit -f 64\nexec '{}' \"$@\"\n", program().display());
    std::fs::write(&limited, script).expect("a file");
    std::fs::set_permissions(&limited, Permissions::from_mode(0o755)).expect("a mode");
    let primary = Primary::new();
    let replica = Launch::new(limited).with("replicaof", &format!("127.0.0.1 {}", primary.port()));
    let server = replica.start();
    let mut c = server.connect();
    drop(primary.give_copy(1, &[("old", "1")]));
    let keys: Vec<String> = (0..30_000).map(|n| format!("k{n}")).collect();
    let strings: Vec<_> = keys.iter().map(|key| (key.as_str(), "v")).collect();
    let large = file(&strings);
    for _ in 0..2 {
        let (mut follower, psync) = primary.accept_until_psync();
        // What it has is still a place in that stream.
        assert_eq!(psync, format!("PSYNC {ID} 2"));
        follower.send(format!("+FULLRESYNC {OTHER_ID} 5\r\n${}\r\n", large.len()));
        // It may leave before it has all.
        let _ = follower.stream.write_all(&large);
        follower.wait_for_end();
        c.check("MGET old k1", r#"["1", nil]"#);
    }
    wait_for_log(&server, "the full copy cannot be written: File too large");
    let mut follower = primary.give_copy(5, &[("new", "2")]);
    follower.wait_for(5);
    c.check("MGET old new", r#"[nil, "2"]"#);
}

#[test]
fn a_silent_primary_is_left() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut follower = primary.give_copy(1, &[("k", "v")]);
    follower.wait_for(1);
    // It counts for the link that there is.
    server.connect().check("CONFIG SET repl-timeout 1", "+OK");
    follower.wait_for_end();
    wait_for_log(&server, "nothing came for 1 s (repl-timeout)");
    let (_, psync) = primary.accept_until_psync();
    assert_eq!(psync, format!("PSYNC {ID} 2"));
}

/// How a primary encrypts that has this certificate and asks for those of the authority `ca`.
fn server_config(name: &str) -> Arc<ServerConfig> {
    let certificate =
        |name: &str| CertificateDer::from_pem_file(certificate_file(name)).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(certificate("ca.crt")).expect("an authority");
    let provider = Arc::new(ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let key = PrivateKeyDer::from_pem_file(certificate_file(&format!("{name}.key")));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier.build().expect("authorities"))
        .with_single_cert(vec![certificate(&format!("{name}.crt"))], key.expect("a key"));
    Arc::new(config.expect("they fit"))
}

/// A replica that shows this certificate.
fn encrypted(replica: Launch, name: &str) -> Launch {
    let file = |end: &str| certificate_file(&format!("{name}.{end}")).display().to_string();
    replica
        .with_certificates()
        .with("tls-client-cert-file", &file("crt"))
        .with("tls-client-key-file", &file("key"))
        .with("tls-replication", "yes")
}

#[test]
fn the_link_may_be_encrypted() {
    // The certificate is for another address, which does not matter.
    let primary = Primary::at("127.0.0.2");
    let server = encrypted(primary.replica(), "client").start();
    let config = server_config("server");
    let mut follower = primary.accept().encrypted(&config);
    assert_eq!(follower.psync(), "PSYNC ? -1");
    // More than a record holds.
    let keys: Vec<String> = (0..5000).map(|n| format!("k{n}")).collect();
    let strings: Vec<_> = keys.iter().map(|key| (key.as_str(), "v")).collect();
    follower.send(format!("+FULLRESYNC {ID} 10\r\n"));
    follower.send_file(&file(&strings));
    let commands = stream(&["SET k w", "INCR n"]).repeat(2000);
    follower.send(&commands);
    follower.wait_for(10 + commands.len() as u64);
    let mut c = server.connect();
    c.check("MGET k n k4999", r#"["w", "2000", "v"]"#);
    assert_eq!(info(&mut c, "master_link_status"), "up");
    // An end without a word, in the middle of a record or not, is an end.
    drop(follower.stream.sock);
    let mut follower = primary.accept().encrypted(&config);
    assert_eq!(follower.psync(), format!("PSYNC {ID} {}", 11 + commands.len()));
}

#[test]
fn a_link_that_cannot_be_encrypted_says_why() {
    let primary = Primary::new();
    let server = encrypted(primary.replica(), "client").start();
    let mut c = server.connect();
    let shake = |follower: &mut Follower<Encrypted>| {
        // Either side may find out first.
        let mut byte = [0];
        let _ = follower.stream.read(&mut byte);
    };
    // A primary of an authority that is not trusted.
    shake(&mut primary.accept().encrypted(&server_config("stranger")));
    wait_for_log(&server, "not made: invalid peer certificate: UnknownIssuer");
    // One that does not encrypt.
    let mut plain = primary.accept();
    plain.send("-ERR unknown command\r\n");
    wait_for_log(&server, "not made: what came is not TLS");
    drop(plain);
    // One that closes at once.
    let mut closed = primary.accept();
    closed.stream.shutdown(std::net::Shutdown::Write).expect("an open connection");
    closed.wait_for_end();
    wait_for_log(&server, "not made: the primary closed the connection");
    // One that does not trust this replica.
    let file = |end: &str| certificate_file(&format!("stranger.{end}")).display().to_string();
    let set = "CONFIG SET tls-client-cert-file {crt} tls-client-key-file {key}";
    c.check(&set.replace("{crt}", &file("crt")).replace("{key}", &file("key")), "+OK");
    shake(&mut primary.accept().encrypted(&server_config("server")));
    wait_for_log(&server, "the connection failed: received fatal alert");
    c.check("CONFIG SET tls-client-cert-file '' tls-client-key-file ''", "+OK");
    let mut follower = primary.accept().encrypted(&server_config("server"));
    assert_eq!(follower.psync(), "PSYNC ? -1");
}

#[test]
fn what_a_link_is_encrypted_with_is_checked_before() {
    let server = launch().start();
    let mut c = server.connect();
    let refused = "-ERR CONFIG SET failed (possibly related to argument 'tls-replication') - Unable to update TLS \
                   configuration. tls-ca-cert-file is needed for tls-replication, unless there is a tls-ca-cert-dir";
    c.check("CONFIG SET tls-replication yes", refused);
    let errors = encrypted(launch(), "client").with("tls-client-key-file", "").run().errors;
    let missing = "tls-client-key-file is needed for the certificate that the primary gets to see";
    assert!(errors.contains(missing), "{errors}");
    let errors = encrypted(launch(), "client").with("tls-client-cert-file", "/none").run().errors;
    assert!(errors.contains("tls-client-cert-file /none: "), "{errors}");
}

/// A replica on a data directory of its own, which the test keeps.
fn kept(primary: &Primary, dir: &TempDir) -> Launch {
    let dir = dir.path().display().to_string();
    primary.replica().with("dir", &dir).with("appendonly", "yes")
}

/// Ends a server in good order, or at once.
#[track_caller]
fn end(mut server: Server, at_once: bool) {
    if at_once {
        server.signal(rustix::process::Signal::KILL);
    } else {
        server.signal(rustix::process::Signal::TERM);
    }
    server.wait_for_end();
}

#[test]
fn a_replica_goes_on_where_its_log_ends() {
    for at_once in [false, true] {
        let (primary, dir) = (Primary::new(), TempDir::new());
        let server = kept(&primary, &dir).start();
        let mut follower = primary.give_copy(100, &[("n", "5"), ("k", "v")]);
        follower.wait_for(100);
        // A place that nothing changed.
        end(server, at_once);
        let server = kept(&primary, &dir).start();
        let (mut follower, psync) = primary.accept_until_psync();
        assert_eq!(psync, format!("PSYNC {ID} 101"));
        follower.send("+CONTINUE\r\n");
        let select = encode(&["SELECT", "3"]);
        let change = encode(&["INCR", "n"]);
        let transaction = [
            encode(&["MULTI"]),
            encode(&["SELECT", "4"]),
            encode(&["LPUSH", "l", "a"]),
            encode(&["INCR", "n"]),
            encode(&["EXEC"]),
        ]
        .concat();
        let stream = [select, change.clone(), transaction].concat();
        follower.send(&stream);
        let offset = 100 + stream.len() as u64;
        follower.wait_for(offset);
        let mut c = server.connect();
        // The log is compacted, and the place stays.
        c.check("BGREWRITEAOF", "+Background append only file rewriting started");
        end(server, at_once);
        let server = kept(&primary, &dir).start();
        let (mut follower, psync) = primary.accept_until_psync();
        assert_eq!(psync, format!("PSYNC {ID} {}", offset + 1), "at_once: {at_once}");
        follower.send("+CONTINUE\r\n");
        // In the database that was selected last.
        follower.send(&change);
        follower.wait_for(offset + change.len() as u64);
        let mut c = server.connect();
        for (db, n) in [(0, "5"), (3, "1"), (4, "2")] {
            c.check(&format!("SELECT {db}"), "+OK");
            c.check("GET n", &format!("{n:?}"));
        }
        c.check("LRANGE l 0 -1", r#"["a"]"#);
    }
}

#[test]
fn a_stream_goes_on_in_the_database_that_was_selected() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut follower = primary.give_copy(1, &[]);
    let select = encode(&["SELECT", "3"]);
    follower.send(&select);
    follower.wait_for(1 + select.len() as u64);
    drop(follower);
    let (mut follower, psync) = primary.accept_until_psync();
    assert_eq!(psync, format!("PSYNC {ID} {}", 2 + select.len()));
    follower.send("+CONTINUE\r\n");
    let change = encode(&["SET", "k", "v"]);
    follower.send(&change);
    follower.wait_for((1 + select.len() + change.len()) as u64);
    let mut c = server.connect();
    c.check("SELECT 3", "+OK");
    c.check("GET k", r#""v""#);
}

/// Its deadline came between the snapshot and the start. Only the stream says when it goes.
#[test]
fn a_key_of_a_place_in_a_stream_is_loaded_behind_its_deadline() {
    let (primary, dir) = (Primary::new(), TempDir::new());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
    let written = (now.as_secs() - 100).to_string();
    let remarks = [("ctime", &*written), ("repl-id", ID), ("repl-offset", "100")];
    let mut snapshot = file_that_says(&remarks, &[("k", "v")]);
    // The key with its type and value, and the end.
    let key = snapshot.split_off(snapshot.len() - 5 - 9);
    snapshot.push(0xfc);
    let deadline_ms = u64::try_from(now.as_millis()).expect("a time") - 10_000;
    snapshot.extend([&deadline_ms.to_le_bytes()[..], &key].concat());
    std::fs::write(dir.path().join("dump.rdb"), snapshot).expect("written");
    let server = primary.replica().with("dir", &dir.path().display().to_string()).start();
    let (_follower, psync) = primary.accept_until_psync();
    assert_eq!(psync, format!("PSYNC {ID} 101"));
    server.connect().check("DBSIZE", ":1");
}

/// What a start has left out would be missing for ever.
#[test]
fn a_snapshot_that_is_not_loaded_whole_has_no_place() {
    for (engine, expected) in [("lua", format!("PSYNC {ID} 101")), ("js", "PSYNC ? -1".into())] {
        let (primary, dir) = (Primary::new(), TempDir::new());
        let mut snapshot =
            file_that_says(&[("repl-id", ID), ("repl-offset", "100")], &[("k", "v")]);
        let library = format!("#!{engine} name=l\nredis.register_function('f', function() end)");
        let rest = snapshot.split_off(9);
        snapshot.extend([0xf5, u8::try_from(library.len()).expect("a short one")]);
        snapshot.extend([library.as_bytes(), &rest].concat());
        std::fs::write(dir.path().join("dump.rdb"), snapshot).expect("written");
        let launch = primary.replica().with("dir", &dir.path().display().to_string());
        let server = launch.with("skip-unsupported", "yes").start();
        let (_follower, psync) = primary.accept_until_psync();
        assert_eq!(psync, expected, "{engine}");
        server.connect().check("GET k", "\"v\"");
    }
}

#[test]
fn data_that_are_no_longer_those_of_the_stream_are_copied_again() {
    let (primary, dir) = (Primary::new(), TempDir::new());
    let server = kept(&primary, &dir).start();
    primary.give_copy(100, &[("k", "v")]).wait_for(100);
    let mut c = server.connect();
    c.check("REPLICAOF NO ONE", "+OK");
    c.check("SET k mine", "+OK");
    end(server, true);
    // It says that it is a replica, and its data are its own.
    let server = kept(&primary, &dir).start();
    let (mut follower, psync) = primary.accept_until_psync();
    assert_eq!(psync, "PSYNC ? -1");
    follower.send(format!("+FULLRESYNC {ID} 200\r\n"));
    follower.send_file(&file(&[("k", "w")]));
    follower.wait_for(200);
    end(server, true);
    // As a primary in between, without a change.
    let own = launch().with("dir", &dir.path().display().to_string()).with("appendonly", "yes");
    let server = own.start();
    server.connect().check("GET k", r#""w""#);
    end(server, true);
    let _server = kept(&primary, &dir).start();
    assert_eq!(primary.accept_until_psync().1, "PSYNC ? -1");
}

#[test]
fn a_log_that_was_off_meanwhile_has_the_place_again() {
    let (primary, dir) = (Primary::new(), TempDir::new());
    let server = kept(&primary, &dir).start();
    let mut follower = primary.give_copy(100, &[("n", "5")]);
    follower.wait_for(100);
    let mut c = server.connect();
    c.check("CONFIG SET appendonly no", "+OK");
    let change = encode(&["INCR", "n"]);
    follower.send(&change);
    follower.wait_for(100 + change.len() as u64);
    c.check("CONFIG SET appendonly yes", "+OK");
    wait_until("the new log counts", || {
        c.ask("INFO persistence").text().contains("aof_rewrite_in_progress:0")
    });
    end(server, true);
    let server = kept(&primary, &dir).start();
    let offset = 100 + change.len();
    assert_eq!(primary.accept_until_psync().1, format!("PSYNC {ID} {}", offset + 1));
    server.connect().check("GET n", r#""6""#);
}
