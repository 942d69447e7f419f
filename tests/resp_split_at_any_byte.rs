//! Requests may arrive in pieces of any size; the replies are the same.

use tierce_harness::{Connection, Random, Server, encode};

use crate::server;

/// Every form of request, back to back.
fn stream() -> Vec<u8> {
    [
        encode(&[&b"SET"[..], b"split", b"a\r\n$1\r\nb\0"]),
        encode(&["GET", "split"]),
        b"PING\r\n".to_vec(),
        encode(&["ECHO", ""]),
        b"\r\n*0\r\n*-1\r\n".to_vec(),
        b"ECHO \"two words\\x00\"\n".to_vec(),
        encode(&["NOSUCH", "command"]),
        encode(&["STRLEN", "split"]),
    ]
    .concat()
}

const REPLIES: &[u8] = b"+OK\r\n$9\r\na\r\n$1\r\nb\0\r\n+PONG\r\n$0\r\n\r\n$10\r\ntwo words\0\r\n\
    -ERR unknown command 'NOSUCH', with args beginning with: 'command' \r\n:9\r\n";

/// Sends the parts so that the server probably receives them one by one: between two parts, another
/// connection gets an answer.
fn check(server: &Server, other: &mut Connection, parts: &[&[u8]]) {
    let mut connection = server.connect();
    for part in parts {
        connection.send(part);
        other.check("PING", "+PONG");
    }
    let replies = connection.read_exactly(REPLIES.len());
    let lens: Vec<_> = parts.iter().map(|part| part.len()).collect();
    assert_eq!(replies.escape_ascii().to_string(), REPLIES.escape_ascii().to_string(), "{lens:?}");
    connection.check("PING", "+PONG");
}

#[test]
fn in_two_parts() {
    let server = server();
    let mut other = server.connect();
    let stream = stream();
    for at in 0..=stream.len() {
        let (first, second) = stream.split_at(at);
        check(&server, &mut other, &[first, second]);
    }
}

#[test]
fn byte_by_byte() {
    let server = server();
    let stream = stream();
    let parts: Vec<_> = stream.chunks(1).collect();
    check(&server, &mut server.connect(), &parts);
}

#[test]
fn in_many_parts() {
    let server = server();
    let mut other = server.connect();
    let stream = stream();
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let (mut rest, mut parts) = (&stream[..], Vec::new());
        while !rest.is_empty() {
            let (part, after) = rest.split_at((1 + random.below(30)).min(rest.len()));
            parts.push(part);
            rest = after;
        }
        check(&server, &mut other, &parts);
    }
}

#[test]
fn a_large_value_in_parts() {
    let server = server();
    let mut other = server.connect();
    let mut connection = server.connect();
    let value = Random::new(1).bytes(300_000);
    let request = encode(&[&b"SET"[..], b"large", &value]);
    // Around the sizes at which servers change their buffering.
    for size in [1000, 16 << 10, (16 << 10) + 1, 32 << 10, 64 << 10, 100_000] {
        for part in request.chunks(size) {
            connection.send(part);
            other.check("PING", "+PONG");
        }
        connection.expect("+OK");
        assert!(connection.ask("GET large").bytes() == value, "parts of {size}");
    }
}
