//! The protocol of PedroKV, in bytes, on the keys of Redis' clients.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::unix::net::UnixStream;

use tierce_harness::{Both, Launch, Random, TempDir, free_port, wait_until};

use crate::launch;

pub(crate) const GET: u8 = 1;
pub(crate) const PUT: u8 = 2;
pub(crate) const DELETE: u8 = 3;

fn start() -> Both {
    with(launch())
}

fn with(launch: Launch) -> Both {
    Both::start(launch, "pedrokv-port")
}

fn hex(text: &str) -> Vec<u8> {
    let byte = |digits| u8::from_str_radix(digits, 16).expect("hexadecimal");
    text.split_whitespace().map(byte).collect()
}

pub(crate) fn request(kind: u8, id: u32, key: &[u8], value: &[u8]) -> Vec<u8> {
    let len = (8 + key.len() + value.len()) as u16;
    let mut frame = len.to_be_bytes().to_vec();
    frame.extend([key.len() as u8, kind]);
    frame.extend(id.to_be_bytes());
    frame.extend(key);
    frame.extend(value);
    frame
}

fn response(status: u8, id: u32, data: &[u8]) -> Vec<u8> {
    let mut frame = (7 + data.len() as u16).to_be_bytes().to_vec();
    frame.push(status);
    frame.extend(id.to_be_bytes());
    frame.extend(data);
    frame
}

fn ok(id: u32, data: &[u8]) -> Vec<u8> {
    response(0, id, data)
}

pub(crate) fn error(id: u32, text: &str) -> Vec<u8> {
    response(1, id, text.as_bytes())
}

const NOT_FOUND: &str = "err: not found";
const NOT_SUPPORTED: &str = "err: not support";
const IO: &str = "err: io error";

#[test]
fn vectors_in_one_write_and_byte_by_byte() {
    let conversation = hex("00 0d 05 01 00 00 00 00 68 65 6c 6c 6f \
         00 12 05 02 00 00 00 01 68 65 6c 6c 6f 77 6f 72 6c 64 \
         00 0d 05 01 00 00 00 02 68 65 6c 6c 6f \
         00 0d 05 03 00 00 00 03 68 65 6c 6c 6f \
         00 0d 05 03 00 00 00 04 68 65 6c 6c 6f \
         00 0d 05 01 00 00 00 05 68 65 6c 6c 6f");
    let expected = hex("00 15 01 00 00 00 00 65 72 72 3a 20 6e 6f 74 20 66 6f 75 6e 64 \
         00 07 00 00 00 00 01 \
         00 0c 00 00 00 00 02 77 6f 72 6c 64 \
         00 07 00 00 00 00 03 \
         00 15 01 00 00 00 04 65 72 72 3a 20 6e 6f 74 20 66 6f 75 6e 64 \
         00 15 01 00 00 00 05 65 72 72 3a 20 6e 6f 74 20 66 6f 75 6e 64");
    let both = start();
    both.check(&conversation, &expected);
    assert_eq!(both.talk(conversation.chunks(1)), expected);
    for cut in [2, 3, 7, 8, 13, 14, 30] {
        assert_eq!(both.talk(conversation.chunks(cut)), expected, "cut every {cut} bytes");
    }
}

#[test]
fn an_empty_value_is_a_value_and_an_unknown_kind_an_error() {
    let both = start();
    let requests = [
        hex("00 09 01 02 00 00 00 07 6b"),
        request(GET, 8, b"k", b""),
        request(0, 9, b"k", b"x"),
        request(4, 10, b"k", b"x"),
        request(255, u32::MAX, b"", b""),
        request(GET, 11, b"k", b"ignored"),
        request(DELETE, 12, b"k", b"ignored"),
        request(PUT, 13, b"", b"of the empty key"),
        request(GET, 14, b"", b""),
    ];
    let responses = [
        ok(7, b""),
        ok(8, b""),
        error(9, NOT_SUPPORTED),
        error(10, NOT_SUPPORTED),
        error(u32::MAX, NOT_SUPPORTED),
        ok(11, b""),
        ok(12, b""),
        ok(13, b""),
        ok(14, b"of the empty key"),
    ];
    both.check(&requests.concat(), &responses.concat());
}

#[test]
fn the_largest_frames_come_back() {
    let both = start();
    let (key, value) = (vec![b'k'; 255], vec![b'v'; 65_272]);
    let put = request(PUT, 9, &key, &value);
    assert_eq!((put.len(), &put[..8]), (65_535, &hex("ff ff ff 02 00 00 00 09")[..]));
    let requests = [put, request(GET, 10, &key, b""), request(GET, 11, b"absent", b"")].concat();
    let expected = [ok(9, b""), ok(10, &value), error(11, NOT_FOUND)].concat();
    assert!(both.talk([&requests[..]]) == expected);
    assert!(both.talk(requests.chunks(1000)) == expected);
    // Other protocols can store longer values. The longest that fits is one byte shorter.
    let mut redis = both.server.connect();
    for (len, fits) in [(65_528, true), (65_529, false), (200_000, false)] {
        redis.call(&["SET", "long", &"x".repeat(len)]);
        let expected = if fits { ok(1, &vec![b'x'; len]) } else { error(1, NOT_SUPPORTED) };
        let answer = both.talk([&request(GET, 1, b"long", b"")[..]]);
        assert!(answer == expected, "a value of {len} bytes");
    }
}

/// Puts that arrive together are not stored one after the other, which must not be visible: the last one of a key
/// counts, with any other Puts in between, and responses come in the order of the requests.
#[test]
fn puts_in_a_row_keep_the_order_of_each_key() {
    let both = start();
    let mut random = Random::new(7);
    let mut stored: HashMap<usize, Vec<u8>> = HashMap::new();
    let (mut requests, mut expected) = (Vec::new(), Vec::new());
    for id in 0..6000_u32 {
        let number = random.below(300);
        let key = format!("key:{number}").into_bytes();
        // Long runs of Puts, with an occasional other request in between.
        match random.below(if id < 3000 { 5000 } else { 100 }) {
            0 => {
                requests.push(request(DELETE, id, &key, b""));
                let was_there = stored.remove(&number).is_some();
                expected.push(if was_there { ok(id, b"") } else { error(id, NOT_FOUND) });
            }
            1 => {
                requests.push(request(GET, id, &key, b""));
                let value = stored.get(&number);
                expected.push(value.map_or_else(|| error(id, NOT_FOUND), |value| ok(id, value)));
            }
            _ => {
                let value = format!("value {id}").into_bytes();
                requests.push(request(PUT, id, &key, &value));
                expected.push(ok(id, b""));
                stored.insert(number, value);
            }
        }
    }
    let (requests, expected) = (requests.concat(), expected.concat());
    assert!(both.talk([&requests[..]]) == expected, "in one write");
    let gets: Vec<_> = (0..300)
        .map(|number| request(GET, number, format!("key:{number}").as_bytes(), b""))
        .collect();
    let values: Vec<_> = (0..300_u32)
        .map(|number| match stored.get(&(number as usize)) {
            None => error(number, NOT_FOUND),
            Some(value) => ok(number, value),
        })
        .collect();
    assert!(both.talk([&gets.concat()[..]]) == values.concat());
}

#[test]
fn the_same_keys_as_in_redis() {
    let both = start();
    let mut redis = both.server.connect();
    both.check(
        &[request(PUT, 1, b"k", b"12ab"), request(PUT, 2, b"n", b"41")].concat(),
        &[ok(1, b""), ok(2, b"")].concat(),
    );
    redis.check("GET k", "\"12ab\"");
    redis.check("INCR n", ":42");
    redis.check("SET t x EX 100", "+OK");
    redis.check("DEL k", ":1");
    both.check(
        &[request(GET, 3, b"n", b""), request(GET, 4, b"k", b""), request(PUT, 5, b"t", b"y")]
            .concat(),
        &[ok(3, b"42"), error(4, NOT_FOUND), ok(5, b"")].concat(),
    );
    // A Put is a plain SET: it removes the deadline.
    redis.check("TTL t", ":-1");
    for value in [&b"007"[..], b"+5", b"-0", b"9223372036854775807", b"9223372036854775808"] {
        both.check(
            &[request(PUT, 1, b"v", value), request(GET, 2, b"v", b"")].concat(),
            &[ok(1, b""), ok(2, value)].concat(),
        );
    }
    let all: Vec<u8> = (0..=255).collect();
    both.check(
        &[request(PUT, 1, b"v", &all), request(GET, 2, b"v", b"")].concat(),
        &[ok(1, b""), ok(2, &all)].concat(),
    );
}

#[test]
fn bad_lengths_end_one_connection() {
    let both = start();
    let mut bystander = both.connect();
    bystander.write_all(&request(PUT, 1, b"k", b"v")).expect("sent");
    let before = request(GET, 1, b"k", b"");
    let mut bad: Vec<Vec<u8>> = (0..8).map(|len| vec![0, len, 0, 1, 0, 0, 0, 0, 9]).collect();
    bad.push(hex("00 09 ff 01 00 00 00 00 6b"));
    bad.push(hex("00 0c 05 02 00 00 00 00 68 65 6c 6c 6f"));
    let mut answer = [0; 7];
    bystander.read_exact(&mut answer).expect("received");
    for frame in bad {
        // Earlier requests are answered; later ones are ignored.
        let mut stream = both.connect();
        let behind = request(DELETE, 2, b"k", b"");
        stream.write_all(&[&before[..], &frame, &behind].concat()).expect("sent");
        let mut answer = Vec::new();
        // The server may reset the connection, because it does not read everything.
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(answer, ok(1, b"v"), "{frame:?}");
    }
    // The connection ends in the middle of a frame.
    both.check(&[&before[..], b"\xff\xff\xff\x02half"].concat(), &ok(1, b"v"));
    bystander.write_all(&request(GET, 3, b"k", b"")).expect("sent");
    let mut answer = [0; 8];
    bystander.read_exact(&mut answer).expect("received");
    assert_eq!(answer[..], ok(3, b"v"));
}

/// A page can make a browser send any body. With padding, complete frames would follow one of an unknown kind.
#[test]
fn a_request_of_http_ends_the_connection() {
    let both = start();
    let mut post = b"POST /".to_vec();
    post.resize(0x504f, b'x');
    post.extend(request(PUT, 1, b"pwned", b"1"));
    both.check(&post, b"");
    both.check(b"GET / HTTP/1.1\r\n", b"");
    both.check(&[request(GET, 1, b"k", b""), post].concat(), &error(1, NOT_FOUND));
    both.server.connect().check("EXISTS pwned", ":0");
    wait_until("the log tells", || {
        both.server.output().matches("a request of HTTP on the port for").count() == 3
    });
}

/// Compares deep pipelines of random requests with a map.
#[test]
fn pipelines_are_answered_in_order() {
    let both = start();
    let mut random = Random::new(7);
    let mut model: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    for round in 0..20 {
        let (mut requests, mut expected) = (Vec::new(), Vec::new());
        for id in 0..2000 {
            let key = format!("key:{}", random.below(300)).into_bytes();
            match random.below(10) {
                0..=4 => {
                    requests.extend(request(GET, id, &key, b""));
                    expected.extend(match model.get(&key) {
                        Some(value) => ok(id, value),
                        None => error(id, NOT_FOUND),
                    });
                }
                5..=8 => {
                    let len = if random.one_in(100) { 40_000 } else { random.below(200) };
                    let value = random.bytes(len);
                    requests.extend(request(PUT, id, &key, &value));
                    model.insert(key, value);
                    expected.extend(ok(id, b""));
                }
                _ => {
                    requests.extend(request(DELETE, id, &key, b""));
                    expected.extend(match model.remove(&key) {
                        Some(_) => ok(id, b""),
                        None => error(id, NOT_FOUND),
                    });
                }
            }
        }
        let mut stream = both.connect();
        let mut sender = stream.try_clone().expect("a socket");
        // In parallel with the reader, because neither side may have room for everything.
        let sending = std::thread::spawn(move || {
            sender.write_all(&requests).expect("sent");
            sender.shutdown(Shutdown::Write).expect("a socket");
        });
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("received");
        sending.join().expect("sent");
        assert!(answer == expected, "round {round}");
    }
    both.server.connect().check("DBSIZE", &format!(":{}", model.len()));
}

#[test]
fn a_key_that_holds_no_string_is_an_error() {
    let both = start();
    both.server.connect().check("LPUSH list x", ":1");
    both.check(&request(GET, 1, b"list", b""), &error(1, NOT_SUPPORTED));
    both.check(&request(PUT, 2, b"list", b"v"), &ok(2, b""));
    both.check(&request(GET, 3, b"list", b""), &ok(3, b"v"));
}

#[test]
fn a_password_shuts_out() {
    let both = with(launch().with("requirepass", "secret"));
    let text = "err: there is a password, which this protocol cannot say";
    both.check(
        &[request(PUT, 1, b"k", b"v"), request(GET, 2, b"k", b"")].concat(),
        &[error(1, text), error(2, text)].concat(),
    );
    let mut redis = both.server.connect();
    redis.check("AUTH secret", "+OK");
    redis.check("EXISTS k", ":0");
    assert_eq!(redis.call(&["CONFIG", "SET", "requirepass", ""]).text(), "OK");
    both.check(&request(PUT, 1, b"k", b"v"), &ok(1, b""));
}

#[test]
fn a_unix_socket_and_a_database_of_their_own() {
    let dir = TempDir::new();
    let path = dir.path().join("pedrokv.sock");
    let server = launch()
        .with("pedrokv-unixsocket", path.to_str().expect("UTF-8"))
        .with("pedrokv-database", "3")
        .start();
    let mut unix = UnixStream::connect(&path).expect("a listener");
    unix.write_all(&request(PUT, 1, b"k", b"x")).expect("sent");
    let mut answer = [0; 7];
    unix.read_exact(&mut answer).expect("received");
    assert_eq!(answer[..], ok(1, b""));
    let mut redis = server.connect();
    redis.check("GET k", "nil");
    redis.check("SELECT 3", "+OK");
    redis.check("GET k", "\"x\"");
    let clients = redis.ask("CLIENT LIST").text().to_owned();
    let path = path.to_str().expect("UTF-8");
    assert!(clients.lines().any(|line| line.contains(path) && line.contains("db=3")), "{clients}");
    let outcome = launch().with("pedrokv-database", "16").run();
    assert!(outcome.errors.contains("pedrokv-database 16"), "{}", outcome.errors);
}

#[test]
fn the_port_can_be_opened_and_closed() {
    let server = crate::server();
    let port = free_port();
    let mut redis = server.connect();
    redis.check(&format!("CONFIG SET pedrokv-port {port}"), "+OK");
    let both = Both { server, port };
    both.check(&request(GET, 1, b"k", b""), &error(1, NOT_FOUND));
    let mut redis = both.server.connect();
    redis.check("CONFIG SET pedrokv-port 0", "+OK");
    wait_until("the port is closed", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
    redis.check("PING", "+PONG");
}

#[track_caller]
pub(crate) fn expect(stream: &mut TcpStream, expected: &[u8]) {
    let mut answer = vec![0; expected.len()];
    stream.read_exact(&mut answer).expect("received");
    assert_eq!(answer.escape_ascii().to_string(), expected.escape_ascii().to_string());
}

/// Reads continue until the first request of their connection that has to wait.
#[test]
fn a_pause_of_writes_holds_back_writes() {
    let both = start();
    let mut redis = both.server.connect();
    redis.check("SET there y", "+OK");
    redis.check("CLIENT PAUSE 100000 WRITE", "+OK");
    let mut stream = both.connect();
    let requests =
        [request(GET, 1, b"there", b""), request(PUT, 2, b"k", b"x"), request(GET, 3, b"k", b"")];
    stream.write_all(&requests.concat()).expect("sent");
    expect(&mut stream, &ok(1, b"y"));
    // So many that they would be grouped by shard.
    let mut filling = both.connect();
    let puts = (0..200).map(|id| request(PUT, id, format!("many:{id}").as_bytes(), b"x"));
    filling.write_all(&puts.collect::<Vec<_>>().concat()).expect("sent");
    redis.check("DBSIZE", ":1");
    redis.check("CLIENT UNPAUSE", "+OK");
    expect(&mut stream, &[ok(2, b""), ok(3, b"x")].concat());
    expect(&mut filling, &(0..200).flat_map(|id| ok(id, b"")).collect::<Vec<_>>());
    redis.check("DBSIZE", ":202");
}

/// As with `stop-writes-on-bgsave-error` for clients of Redis.
#[test]
fn writes_are_refused_while_snapshots_cannot_be_written() {
    let dir = TempDir::new();
    let path = dir.path().display().to_string();
    let launch = launch().with("appendonly", "no").with("dir", &path).with("save", "3600 1000");
    let both = with(launch);
    both.check(&request(PUT, 1, b"k", b"x"), &ok(1, b""));
    // A snapshot cannot replace a directory.
    std::fs::create_dir(dir.path().join("dump.rdb")).expect("a directory");
    let mut redis = both.server.connect();
    redis.check("BGSAVE", "+Background saving started");
    wait_until("writes are refused", || redis.ask("SET x 1").to_string().starts_with("-MISCONF"));
    both.check(
        &[request(PUT, 1, b"k", b"y"), request(DELETE, 2, b"k", b""), request(GET, 3, b"k", b"")]
            .concat(),
        &[error(1, IO), error(2, IO), ok(3, b"x")].concat(),
    );
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    for policy in ["everysec", "always"] {
        let dir = TempDir::new();
        let launch = launch()
            .with("appendonly", "yes")
            .with("appendfsync", policy)
            .with("dir", &dir.path().display().to_string());
        let both = with(launch.clone());
        let requests = [
            request(PUT, 1, b"a", b"1"),
            request(PUT, 2, b"b", b""),
            request(PUT, 3, b"c", &[b'c'; 60_000]),
            request(PUT, 4, b"d", b"gone"),
            request(DELETE, 5, b"d", b""),
        ];
        let done: Vec<u8> = (1..=5).flat_map(|id| ok(id, b"")).collect();
        both.check(&requests.concat(), &done);
        drop(both);
        let both = with(launch);
        let requests = [&b"a"[..], b"b", b"c", b"d"].map(|key| request(GET, 1, key, b"")).concat();
        let expected =
            [ok(1, b"1"), ok(1, b""), ok(1, &[b'c'; 60_000]), error(1, NOT_FOUND)].concat();
        assert!(both.talk([&requests[..]]) == expected);
    }
}

#[test]
fn at_the_limit_of_memory_stores_are_refused_or_keys_go() {
    let puts: Vec<u8> = (0..2000)
        .map(|n| request(PUT, n, format!("k:{n}").as_bytes(), &[b'v'; 1000]))
        .collect::<Vec<_>>()
        .concat();
    let stored = |both: &Both| {
        let answer = both.talk([&puts[..]]);
        let refused = "err: out of memory";
        let (mut at, mut stored) = (0, 0);
        for id in 0..2000 {
            if answer[at..].starts_with(&ok(id, b"")) {
                (at, stored) = (at + 7, stored + 1);
            } else {
                assert!(answer[at..].starts_with(&error(id, refused)));
                at += 7 + refused.len();
            }
        }
        assert_eq!(at, answer.len());
        stored
    };
    let both = with(launch().with("maxmemory", "1mb"));
    assert!((500..1100).contains(&stored(&both)));
    both.check(&request(DELETE, 1, b"k:0", b""), &ok(1, b""));
    let both = with(launch().with("maxmemory", "1mb").with("maxmemory-policy", "allkeys-lru"));
    assert_eq!(stored(&both), 2000);
}

#[test]
fn clients_have_the_rights_of_the_default_user() {
    let both = start();
    let mut admin = both.server.connect();
    admin.check("ACL SETUSER default resetkeys %R~r* %W~w*", "+OK");
    let denied = b"err: the default user has no permission for that";
    let requests = [
        request(PUT, 1, b"w1", b"x"),
        request(GET, 2, b"w1", b""),
        request(GET, 3, b"r1", b""),
        request(PUT, 4, b"r1", b"x"),
        request(DELETE, 5, b"w1", b""),
        request(DELETE, 6, b"other", b""),
    ];
    let responses = [
        ok(1, b""),
        response(1, 2, denied),
        response(1, 3, b"err: not found"),
        response(1, 4, denied),
        ok(5, b""),
        response(1, 6, denied),
    ];
    both.check(&requests.concat(), &responses.concat());
    // Many Puts take another code path.
    let puts: Vec<u8> = (0..200).flat_map(|id| request(PUT, id, b"r1", b"x")).collect();
    let refused: Vec<u8> = (0..200).flat_map(|id| response(1, id, denied)).collect();
    both.check(&puts, &refused);
    assert!(admin.ask("ACL LOG").to_string().contains("pedrokv|"), "the log names the requests");
}

#[test]
fn the_port_is_open_on_loopback_only() {
    let port = free_port().to_string();
    // A documentation address, which this machine does not have: it is never reachable.
    let start_on = |remote: &str| {
        let launch =
            launch().with("bind", "192.0.2.1").with("port", "0").with("pedrokv-port", &port);
        launch.with("pedrokv-remote", remote).run().errors
    };
    let refused = "pedrokv-port would be open on 192.0.2.1, and its protocol knows no passwords";
    let errors = start_on("no");
    assert!(errors.contains(refused), "{errors}");
    let errors = start_on("yes");
    assert!(errors.contains("192.0.2.1") && !errors.contains(refused), "{errors}");
    let server = start().server;
    let reply = server.connect().ask("CONFIG SET bind 192.0.2.1").to_string();
    assert!(reply.contains(refused), "{reply}");
    server.connect().check("PING", "+PONG");
}
