//! Any input causes an error or a close, uses bounded memory, and affects no other client.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use tierce_harness::{Connection, Random, Server, encode};

use crate::server;

/// Memory that an attack may use beyond the server's normal use.
const ALLOWANCE: usize = 96 << 20;

/// A client that works while others attack.
struct Bystander<'a> {
    server: &'a Server,
    connection: Connection,
    resident: usize,
}

impl<'a> Bystander<'a> {
    fn new(server: &'a Server) -> Self {
        let mut connection = server.connect();
        connection.check("SET innocent untouched", "+OK");
        Self { server, connection, resident: server.resident_bytes() }
    }

    #[track_caller]
    fn is_undisturbed(&mut self) {
        self.connection.check("GET innocent", "\"untouched\"");
        let grown = self.server.resident_bytes().saturating_sub(self.resident);
        assert!(grown < ALLOWANCE, "{} MiB more", grown >> 20);
    }
}

/// Sends as much as the server accepts, and reads until it closes or sends nothing more.
fn attack(server: &Server, bytes: &[u8]) {
    let mut stream = TcpStream::connect(server.address()).expect("a connection");
    stream.set_write_timeout(Some(Duration::from_millis(500))).expect("a socket option");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket option");
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut replies = Vec::new();
    let end = stream.read_to_end(&mut replies);
    if let Err(error) = end {
        use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
        assert!(matches!(error.kind(), BrokenPipe | ConnectionReset), "{error} after {bytes:?}");
    }
}

#[test]
fn random_bytes() {
    let server = server();
    let mut bystander = Bystander::new(&server);
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let len = random.below(3_000);
        attack(&server, &random.bytes(len));
        bystander.is_undisturbed();
    }
}

/// Pieces of real requests, so that the attack reaches more code.
#[test]
fn random_pieces_of_requests() {
    const PIECES: [&[u8]; 24] = [
        b"*1\r\n",
        b"*2\r\n",
        b"*3\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*1000000\r\n",
        b"$3\r\n",
        b"$0\r\n",
        b"$-1\r\n",
        b"$100\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b"GET",
        b"SET",
        b"DEL\r\n",
        b"PING\r\n",
        b"$4\r\nPING\r\n",
        b"\"",
        b"'",
        b"\0",
        b" ",
        b"*",
        b"$",
    ];
    let server = server();
    let mut bystander = Bystander::new(&server);
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let count = 1 + random.below(40);
        let bytes: Vec<u8> = (0..count).flat_map(|_| random.pick(&PIECES).to_vec()).collect();
        // No combination of the pieces shuts the server down or changes the bystander's key.
        attack(&server, &bytes);
        bystander.is_undisturbed();
    }
}

#[test]
fn real_requests_with_one_wrong_byte() {
    let server = server();
    let mut bystander = Bystander::new(&server);
    let good = [encode(&["SET", "key", "value"]), encode(&["GET", "key"])].concat();
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let mut bytes = good.clone();
        let at = random.below(bytes.len());
        bytes[at] = random.next_u64() as u8;
        attack(&server, &bytes);
    }
    bystander.is_undisturbed();
}

#[test]
fn half_requests_that_never_end() {
    let server = server();
    let mut bystander = Bystander::new(&server);
    let request = encode(&["SET", "key", &"v".repeat(1000)]);
    let waiting: Vec<_> = (0..500)
        .map(|n| {
            let mut c = server.connect();
            c.send(&request[..1 + n % (request.len() - 1)]);
            c
        })
        .collect();
    bystander.is_undisturbed();
    drop(waiting);
    bystander.is_undisturbed();
    bystander.connection.check("EXISTS key", ":0");
}

/// A declared length allocates nothing in advance.
#[test]
fn huge_announcements() {
    let server = server();
    let mut bystander = Bystander::new(&server);
    let announcements = [
        "*2147483647\r\n",
        "*2147483647\r\n$536870912\r\n",
        "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\n",
        "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nsome bytes",
        "*1000000\r\n$3\r\nDEL\r\n",
    ];
    let waiting: Vec<_> = (0..50)
        .flat_map(|_| announcements)
        .map(|announcement| {
            let mut c = server.connect();
            c.send(announcement);
            c
        })
        .collect();
    bystander.is_undisturbed();
    drop(waiting);
    bystander.is_undisturbed();
}

/// The parser must not start again at every packet, nor use much memory for each argument.
#[test]
fn a_million_tiny_arguments() {
    const COUNT: usize = 1_000_000;
    let server = server();
    let mut bystander = Bystander::new(&server);
    let request =
        [format!("*{COUNT}\r\n$3\r\nDEL\r\n").as_bytes(), &b"$1\r\nk\r\n".repeat(COUNT - 1)]
            .concat();
    let mut c = server.connect();
    for part in request.chunks(100_000) {
        c.send(part);
    }
    c.expect(":0");
    // Also a request that is refused for its number of arguments.
    let request =
        [format!("*{COUNT}\r\n$3\r\nGET\r\n").as_bytes(), &b"$1\r\nk\r\n".repeat(COUNT - 1)]
            .concat();
    c.send(&request);
    c.expect("-ERR wrong number of arguments for 'get' command");
    bystander.is_undisturbed();
}

#[test]
fn connections_that_come_and_go() {
    let server = server();
    let mut bystander = Bystander::new(&server);
    for n in 0..1_000 {
        let mut c = server.connect();
        match n % 4 {
            0 => drop(c),
            1 => c.send(b"*1\r\n$4"),
            2 => c.send(encode(&["GET", "innocent"]).repeat(100)),
            _ => c.check("PING", "+PONG"),
        }
    }
    bystander.is_undisturbed();
}

/// Patterns that make a naive matcher try every split of the text.
#[test]
fn patterns_that_explode() {
    let server = server();
    let mut bystander = Bystander::new(&server);
    let c = &mut bystander.connection;
    c.call(&["SET", &"a".repeat(1_000), "1"]);
    for pattern in
        ["a*".repeat(200) + "b", "*a".repeat(300) + "b", "*?".repeat(500) + "b", "[a".repeat(50)]
    {
        assert_eq!(c.call(&["KEYS", &pattern]).items(), []);
        c.call(&["SCAN", "0", "MATCH", &pattern, "COUNT", "1000"]);
    }
    bystander.is_undisturbed();
}

/// Offsets and lengths at the ends of their range.
#[test]
fn numbers_that_overflow() {
    let server = server();
    let mut bystander = Bystander::new(&server);
    let c = &mut bystander.connection;
    c.check("SET k hello", "+OK");
    let (max, min) = (i64::MAX, i64::MIN);
    for (command, reply) in [
        (format!("GETRANGE k {min} {max}"), "\"hello\""),
        (format!("GETRANGE k {max} {min}"), "\"\""),
        (format!("GETRANGE k {min} {min}"), "\"h\""),
        (format!("GETRANGE k {max} {max}"), "\"\""),
        (
            format!("SETRANGE k {max} x"),
            "-ERR string exceeds maximum allowed size (proto-max-bulk-len)",
        ),
        (format!("SETRANGE k {min} x"), "-ERR offset is out of range"),
        (
            "SETRANGE k 536870911 xx".to_owned(),
            "-ERR string exceeds maximum allowed size (proto-max-bulk-len)",
        ),
        ("SET n 9223372036854775807".to_owned(), "+OK"),
        ("INCR n".to_owned(), "-ERR increment or decrement would overflow"),
        (format!("DECRBY n {min}"), "-ERR decrement would overflow"),
        (
            format!("SELECT {max}"),
            "-ERR value is out of range, value must between -2147483648 and 2147483647",
        ),
    ] {
        c.check(&command, reply);
    }
    bystander.is_undisturbed();
}
