//! The protocols of memcached, in bytes, on the keys of Redis' clients.
//!
//! The expected answers of the text protocols are those of memcached 1.6.42, except for the differences in
//! `docs/differences.md`.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::unix::net::UnixStream;

use rustix::process::Signal;
use tierce_harness::{Both, Launch, TempDir, free_port, wait_until};

use crate::launch;

pub(crate) fn start() -> Both {
    with(launch())
}

pub(crate) fn with(launch: Launch) -> Both {
    Both::start(launch, "memcached-port")
}

pub(crate) fn talk(both: &Both, bytes: &[u8]) -> Vec<u8> {
    both.talk([bytes])
}

/// Sends bytes and expects this answer, ignoring the versions in headers of frames.
#[track_caller]
pub(crate) fn check_frames(both: &Both, bytes: &[u8], expected: &[u8]) {
    let mut answer = talk(both, bytes);
    let mut at = 0;
    while let Some(header) = answer.get_mut(at..at + 24) {
        header[16..].fill(0);
        at += 24 + u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
    }
    assert_eq!(answer.escape_ascii().to_string(), expected.escape_ascii().to_string());
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).expect("ASCII");
        u8::from_str_radix(text, 16).expect("hexadecimal")
    };
    digits.chunks(2).map(byte).collect()
}

/// Makes a frame with the opaque number of the test vectors.
pub(crate) fn frame(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let body = [extras, key, value].concat();
    let mut frame = vec![0x80, opcode, 0, key.len() as u8, extras.len() as u8, 0, 0, 0];
    frame.extend((body.len() as u32).to_be_bytes());
    frame.extend([0xde, 0xad, 0xbe, 0xef]);
    frame.extend([0; 8]);
    frame.extend(body);
    frame
}

pub(crate) fn answer(opcode: u8, status: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut answer = frame(opcode, extras, key, value);
    answer[0] = 0x81;
    answer[7] = status;
    answer
}

#[test]
fn vectors_of_the_binary_protocol() {
    let both = start();
    let get =
        "80 00 00 05 00 00 00 00 00 00 00 05 de ad be ef 00 00 00 00 00 00 00 00 68 65 6c 6c 6f";
    let set = |extras: &str| {
        format!(
            "80 01 00 05 08 00 00 00 00 00 00 12 de ad be ef 00 00 00 00 00 00 00 00 {extras} \
             68 65 6c 6c 6f 77 6f 72 6c 64"
        )
    };
    let delete =
        "80 04 00 05 00 00 00 00 00 00 00 05 de ad be ef 00 00 00 00 00 00 00 00 68 65 6c 6c 6f";
    let increment = "80 05 00 01 14 00 00 00 00 00 00 15 de ad be ef 00 00 00 00 00 00 00 00 \
                     00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 0a 00 00 00 00 6e";
    let noop = "80 0a 00 00 00 00 00 00 00 00 00 00 de ad be ef 00 00 00 00 00 00 00 00";
    let stored = "81 01 00 00 00 00 00 00 00 00 00 00 de ad be ef 00 00 00 00 00 00 00 00";
    let found = |flags: &str| {
        format!(
            "81 00 00 00 04 00 00 00 00 00 00 09 de ad be ef 00 00 00 00 00 00 00 00 {flags} \
             77 6f 72 6c 64"
        )
    };
    let number = "81 05 00 00 00 00 00 00 00 00 00 08 de ad be ef 00 00 00 00 00 00 00 00 \
                  00 00 00 00 00 00 00 0a";
    let missing = "81 00 00 00 00 00 00 01 00 00 00 09 de ad be ef 00 00 00 00 00 00 00 00 \
                   4e 6f 74 20 66 6f 75 6e 64";
    let deleted = "81 04 00 00 00 00 00 00 00 00 00 00 de ad be ef 00 00 00 00 00 00 00 00";
    let done = "81 0a 00 00 00 00 00 00 00 00 00 00 de ad be ef 00 00 00 00 00 00 00 00";
    let plain = set("00 00 00 00 00 00 00 00");
    let flagged = set("00 00 ca fe 00 00 00 3c");
    let (plain_found, flagged_found) = (found("00 00 00 00"), found("00 00 ca fe"));
    for (request, expected) in [
        (get, missing),
        (&plain, stored),
        (get, &plain_found),
        (&flagged, stored),
        (get, &flagged_found),
        (delete, deleted),
        (get, missing),
        (increment, number),
        (noop, done),
    ] {
        check_frames(&both, &hex(request), &hex(expected));
    }
}

#[test]
fn quiet_requests_tell_only_what_is_not_to_be_expected() {
    let both = start();
    let noop = frame(0x0a, b"", b"", b"");
    let requests = [
        frame(0x11, &[0; 8], b"a", b"1"),
        frame(0x09, b"", b"absent", b""),
        frame(0x0d, b"", b"a", b""),
        frame(0x12, &[0; 8], b"a", b"2"),
        frame(0x13, &[0; 8], b"absent", b"2"),
        frame(0x19, b"", b"a", b"x"),
        frame(0x1a, b"", b"a", b"y"),
        frame(0x14, b"", b"absent", b""),
        frame(0x0c, b"", b"absent", b""),
        frame(0x00, b"", b"a", b""),
        frame(0x14, b"", b"a", b""),
        frame(0x1e, &[0; 4], b"a", b""),
        frame(0x18, b"", b"", b""),
        noop.clone(),
        frame(0x17, b"", b"", b""),
        noop,
    ];
    let expected = [
        answer(0x0d, 0, &[0; 4], b"a", b"1"),
        answer(0x12, 2, b"", b"", b"Data exists for key."),
        answer(0x13, 1, b"", b"", b"Not found"),
        answer(0x14, 1, b"", b"", b"Not found"),
        answer(0x0c, 1, b"", b"absent", b""),
        answer(0x00, 0, &[0; 4], b"", b"y1x"),
        answer(0x0a, 0, b"", b"", b""),
    ];
    check_frames(&both, &requests.concat(), &expected.concat());
}

#[test]
fn a_store_by_version_in_frames() {
    let both = start();
    let version_of = |answer: &[u8]| answer[16..24].to_vec();
    let by = |version: &[u8], value: &[u8]| {
        let mut frame = frame(0x01, &[0; 8], b"k", value);
        frame[16..24].copy_from_slice(version);
        frame
    };
    let first = version_of(&talk(&both, &frame(0x01, &[0; 8], b"k", b"1")));
    assert_eq!(version_of(&talk(&both, &frame(0x00, b"", b"k", b""))), first);
    assert_ne!(first, [0; 8]);
    let second = talk(&both, &by(&first, b"2"));
    assert_eq!(second[6..8], [0, 0]);
    assert!(version_of(&second) > first);
    assert_eq!(talk(&both, &by(&first, b"3"))[6..8], [0, 2]);
    // A change through another protocol counts, too.
    both.server.connect().check("APPEND k x", ":2");
    assert_eq!(talk(&both, &by(&version_of(&second), b"3"))[6..8], [0, 2]);
    let mut absent = by(&first, b"1");
    absent[32] = b'z';
    assert_eq!(talk(&both, &absent)[6..8], [0, 1]);
}

#[test]
fn classic_commands() {
    let both = start();
    for (request, expected) in [
        ("set k 7 0 3\r\nabc\r\nget k\r\n", "STORED\r\nVALUE k 7 3\r\nabc\r\nEND\r\n"),
        ("get k absent k\r\n", "VALUE k 7 3\r\nabc\r\nVALUE k 7 3\r\nabc\r\nEND\r\n"),
        ("add k 0 0 1\r\nx\r\nreplace z 0 0 1\r\nx\r\n", "NOT_STORED\r\nNOT_STORED\r\n"),
        ("append z 0 0 1\r\nx\r\nprepend z 0 0 1\r\nx\r\n", "NOT_STORED\r\nNOT_STORED\r\n"),
        ("append k 0 0 1\r\nd\r\nprepend k 1 1 1\r\n_\r\n", "STORED\r\nSTORED\r\n"),
        ("get k\r\n", "VALUE k 7 5\r\n_abcd\r\nEND\r\n"),
        (
            "incr k 1\r\nincr z 1\r\n",
            "CLIENT_ERROR cannot increment or decrement non-numeric value\r\nNOT_FOUND\r\n",
        ),
        (
            "set n 0 0 2\r\n10\r\ndecr n 1\r\nget n\r\n",
            "STORED\r\n9\r\nVALUE n 0 1\r\n9\r\nEND\r\n",
        ),
        ("incr n 18446744073709551615\r\ndecr n 100\r\n", "8\r\n0\r\n"),
        ("touch n 0\r\ntouch z 0\r\n", "TOUCHED\r\nNOT_FOUND\r\n"),
        ("gat 100 n z\r\n", "VALUE n 0 1\r\n0\r\nEND\r\n"),
        ("delete n\r\ndelete n 0\r\n", "DELETED\r\nNOT_FOUND\r\n"),
        ("set e 0 0 0\r\n\r\nget e\r\n", "STORED\r\nVALUE e 0 0\r\n\r\nEND\r\n"),
        ("set k 0 -1 1\r\na\r\nget k\r\n", "STORED\r\nEND\r\n"),
        (
            "set k 0 0 1 noreply\r\na\r\nincr k 1 noreply\r\nget k\r\n",
            "VALUE k 0 1\r\na\r\nEND\r\n",
        ),
        ("verbosity 1\r\nversion\r\n", "OK\r\nVERSION 1.6.18\r\n"),
        (
            "set k 0 0 2\r\nabc\r\nget e\r\n",
            "CLIENT_ERROR bad data chunk\r\nERROR\r\nVALUE e 0 0\r\n\r\nEND\r\n",
        ),
        (
            "stats sizes\r\nstats nonsense\r\nstats reset\r\n",
            "STAT sizes_status disabled\r\nEND\r\nERROR\r\nRESET\r\n",
        ),
        ("flush_all\r\nget e\r\nflush_all noreply\r\n", "OK\r\nEND\r\n"),
        ("GET k\r\n\r\nnonsense\r\n", "ERROR\r\nERROR\r\nERROR\r\n"),
        ("quit\r\nversion\r\n", ""),
    ] {
        both.check(request.as_bytes(), expected.as_bytes());
    }
}

#[test]
fn stores_by_version_in_text() {
    let both = start();
    let version = |key: &str| {
        let answer = talk(&both, format!("gets {key}\r\n").as_bytes());
        let answer = String::from_utf8(answer).expect("ASCII");
        let line = answer.lines().next().expect("a line").to_owned();
        line.split(' ').nth(4).expect("a version").parse::<u64>().expect("a number")
    };
    both.check(b"set k 0 0 1\r\n1\r\ncas z 0 0 1 1\r\nx\r\n", b"STORED\r\nNOT_FOUND\r\n");
    let first = version("k");
    assert_eq!(version("k"), first);
    both.check(format!("cas k 0 0 1 {first}\r\n2\r\n").as_bytes(), b"STORED\r\n");
    both.check(format!("cas k 0 0 1 {first}\r\n3\r\n").as_bytes(), b"EXISTS\r\n");
    let second = version("k");
    assert!(second > first);
    for (change, reply) in [("INCR k", ":3"), ("SET k 3", "+OK"), ("SETRANGE k 0 4", ":1")] {
        let before = version("k");
        both.server.connect().check(change, reply);
        both.check(format!("cas k 0 0 1 {before}\r\n9\r\n").as_bytes(), b"EXISTS\r\n");
    }
    let before = version("k");
    both.server.connect().check("EXPIRE k 100", ":1");
    both.check(format!("cas k 0 0 1 {before}\r\n9\r\n").as_bytes(), b"STORED\r\n");
}

#[test]
fn meta_commands() {
    let both = start();
    for (request, expected) in [
        ("mn\r\nmg absent\r\nmg absent k Oab\r\nmg absent q\r\n", "MN\r\nEN\r\nEN kabsent Oab\r\n"),
        (
            "ms k 3 F5 k Oqq\r\nabc\r\nmg k\r\nmg k s v t f k Ox\r\n",
            "HD kk Oqq\r\nHD\r\nVA 3 s3 t-1 f5 kk Ox\r\nabc\r\n",
        ),
        (
            "ms k 2 ME\r\nab\r\nms k 1 MA\r\nd\r\nms k 1 MP\r\n_\r\nmg k v\r\n",
            "NS\r\nHD\r\nHD\r\nVA 5\r\n_abcd\r\n",
        ),
        (
            "ms z 1 MR\r\nx\r\nms z 1 MA\r\nx\r\nms z 1 C1\r\nx\r\nms k 1 C1\r\nx\r\n",
            "NS\r\nNS\r\nNF\r\nEX\r\n",
        ),
        (
            "ms k 2 q\r\nab\r\nms k 2 MX\r\nab\r\nmn\r\n",
            "CLIENT_ERROR invalid mode for ms M token\r\nMN\r\n",
        ),
        ("mg k T100 t\r\nmg k t T0\r\nmg k t\r\n", "HD t100\r\nHD t100\r\nHD t-1\r\n"),
        ("mg k h\r\nmg k h\r\nms k 1\r\na\r\nmg k h\r\n", "HD h0\r\nHD h1\r\nHD\r\nHD h0\r\n"),
        (
            "md k C1 Oab k\r\nmd k k Oaa\r\nmd k\r\nmd k q\r\n",
            "EX Oab kk\r\nHD kk Oaa\r\nNF\r\nNF\r\n",
        ),
        (
            "ma n\r\nma n N0 J13 v t\r\nma n v t\r\nma n MD D5 v\r\nma n q\r\n",
            "NF\r\nVA 2 t-1\r\n13\r\nVA 2 t-1\r\n14\r\nVA 1\r\n9\r\n",
        ),
        (
            "ma n T30 t v\r\nms n 1\r\na\r\nma n\r\n",
            "VA 2 t30\r\n11\r\nHD\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        ),
        (
            "ms Zm9v 1 b k\r\nx\r\nmg Zm9v b k v\r\nget foo\r\nmg Zm9 b k\r\n",
            "HD kZm9v b\r\nVA 1 kZm9v b\r\nx\r\nVALUE foo 0 1\r\nx\r\nEND\r\nCLIENT_ERROR error decoding key\r\n",
        ),
        (
            "mg k v v\r\nmg k !\r\nma n Dx\r\nmg\r\nms k\r\n",
            "CLIENT_ERROR duplicate flag\r\nCLIENT_ERROR invalid flag\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\n",
        ),
        ("mg foo k s t f v q u O1 P1 L1\r\n", "VA 1 kfoo s1 t-1 f0 O1\r\nx\r\n"),
    ] {
        both.check(request.as_bytes(), expected.as_bytes());
    }
}

#[test]
fn one_reader_wins_and_the_others_wait() {
    let both = start();
    for (request, expected) in [
        (
            "ms s 1\r\na\r\nmd s I T30\r\nmg s v t\r\nmg s v\r\n",
            "HD\r\nHD\r\nVA 1 t30 X W\r\na\r\nVA 1 Z X\r\na\r\n",
        ),
        (
            "ms s 1 I C1\r\nb\r\nmg s v\r\nms s 1\r\nb\r\nmg s v\r\n",
            "HD\r\nVA 1 Z X\r\nb\r\nHD\r\nVA 1\r\nb\r\n",
        ),
        (
            "mg v N30 v t s f\r\nmg v v\r\nms v 1\r\nx\r\nmg v v\r\n",
            "VA 0 t30 s0 f0 W\r\n\r\nVA 0 Z\r\n\r\nHD\r\nVA 1\r\nx\r\n",
        ),
        (
            "ms r 1 T100\r\nx\r\nmg r R30 t v\r\nmg r R200 t v\r\nmg r R200 v\r\n",
            "HD\r\nVA 1 t100\r\nx\r\nVA 1 t100 W\r\nx\r\nVA 1 Z\r\nx\r\n",
        ),
    ] {
        both.check(request.as_bytes(), expected.as_bytes());
    }
}

#[test]
fn the_same_keys_as_in_redis() {
    let both = start();
    let mut redis = both.server.connect();
    both.check(b"set k 7 0 5\r\nhello\r\nset n 0 100 2\r\n41\r\n", b"STORED\r\nSTORED\r\n");
    redis.check("GET k", "\"hello\"");
    redis.check("INCR n", ":42");
    assert!((99..=100).contains(&redis.ask("TTL n").int()));
    both.check(b"get k n\r\n", b"VALUE k 7 5\r\nhello\r\nVALUE n 0 2\r\n42\r\nEND\r\n");
    // Flags stay when the value is changed, and are removed when it is replaced.
    redis.check("APPEND k !", ":6");
    redis.check("RENAME k l", "+OK");
    both.check(b"get l\r\n", b"VALUE l 7 6\r\nhello!\r\nEND\r\n");
    redis.check("SET l new", "+OK");
    both.check(b"get l\r\n", b"VALUE l 0 3\r\nnew\r\nEND\r\n");
    both.check(b"flush_all\r\n", b"OK\r\n");
    redis.check("DBSIZE", ":0");
}

#[test]
fn cut_at_any_byte() {
    let both = start();
    let text =
        b"set k 1 0 4\r\na\r\nb\r\ngets absent\r\nms k 3\r\nabc\r\nmg k v\r\nincr k 1\r\nmn\r\n";
    let expected = talk(&both, text);
    let mut stream = both.connect();
    for byte in text {
        stream.write_all(&[*byte]).expect("sent");
    }
    stream.shutdown(Shutdown::Write).expect("a socket");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("received");
    assert_eq!(answer, expected);
    let frames = [frame(0x11, &[0; 8], b"k", b"value"), frame(0x0c, b"", b"k", b"")].concat();
    let mut stream = both.connect();
    for byte in &frames {
        stream.write_all(&[*byte]).expect("sent");
    }
    stream.shutdown(Shutdown::Write).expect("a socket");
    let mut answered = Vec::new();
    stream.read_to_end(&mut answered).expect("received");
    answered[16..24].fill(0);
    assert_eq!(answered, answer_of_getk());
}

fn answer_of_getk() -> Vec<u8> {
    answer(0x0c, 0, &[0; 4], b"k", b"value")
}

#[test]
fn many_keys_and_large_values() {
    let both = start();
    let mut sets = Vec::new();
    let mut expected = Vec::new();
    for index in 0..100 {
        let value = vec![b'a' + (index % 26) as u8; if index % 10 == 0 { 100_000 } else { 300 }];
        sets.extend(format!("set key:{index} {index} 0 {}\r\n", value.len()).into_bytes());
        sets.extend([&value[..], b"\r\n"].concat());
        expected.extend(format!("VALUE key:{index} {index} {}\r\n", value.len()).into_bytes());
        expected.extend([&value[..], b"\r\n"].concat());
    }
    expected.extend(b"END\r\n");
    assert_eq!(talk(&both, &sets), b"STORED\r\n".repeat(100));
    let keys: Vec<String> = (0..100).map(|index| format!(" key:{index}")).collect();
    let get = format!("get{}\r\n", keys.concat());
    assert!(talk(&both, get.as_bytes()) == expected, "a multi-get of 100 keys");
    let quiet: Vec<u8> = (0..100)
        .flat_map(|index| frame(0x0d, b"", format!("key:{index}").as_bytes(), b""))
        .chain(frame(0x0a, b"", b"", b""))
        .collect();
    let answer = talk(&both, &quiet);
    assert!(answer.len() > 10 * 100_000 && answer[answer.len() - 23] == 0x0a);
}

#[test]
fn hostile_lengths() {
    let both = with(launch().with("item-size-max", "2kb"));
    // The value is refused after its length, and its bytes are not taken for commands.
    let large =
        [b"set k 0 0 3000\r\n".as_slice(), &b"get k\r\n".repeat(429)[..3000], b"\r\nmn\r\n"];
    both.check(b"set k 0 0 1\r\nx\r\n", b"STORED\r\n");
    both.check(&large.concat(), b"SERVER_ERROR object too large for cache\r\nMN\r\n");
    both.check(b"get k\r\n", b"END\r\n");
    both.check(b"set k 0 0 2147483646\r\n", b"CLIENT_ERROR bad command line format\r\n");
    both.check(b"set k 0 0 2147483645\r\n", b"SERVER_ERROR object too large for cache\r\n");
    let key = "k".repeat(251);
    let line = b"CLIENT_ERROR bad command line format\r\n";
    both.check(format!("get {key}\r\n").as_bytes(), line);
    both.check(
        format!("set {key} 0 0 9\r\nflush_all\r\nmn\r\n").as_bytes(),
        &[&line[..], b"MN\r\n"].concat(),
    );
    let mut huge = frame(0x01, &[0; 8], b"k", b"");
    huge[8..12].fill(0xff);
    check_frames(&both, &huge, &answer(0x01, 3, b"", b"", b"Too large."));
    let mut crossed = frame(0x00, b"", b"k", b"");
    crossed[11] = 0;
    check_frames(&both, &crossed, &answer(0x00, 0x81, b"", b"", b"Unknown command"));
    check_frames(
        &both,
        &frame(0x40, b"", b"", b""),
        &answer(0x40, 0x81, b"", b"", b"Unknown command"),
    );
    both.server.connect().check("PING", "+PONG");
}

#[test]
fn a_password_is_asked_for() {
    let both = with(launch().with("requirepass", "secret"));
    both.check(b"get k\r\nmn\r\n", &b"CLIENT_ERROR unauthenticated\r\n".repeat(2));
    both.check(b"set auth 0 0 13\r\ndefault wrong\r\n", b"CLIENT_ERROR authentication failure\r\n");
    both.check(b"set auth 0 0 14\r\ndefault secret\r\nget k\r\n", b"STORED\r\nEND\r\n");
    let get = frame(0x00, b"", b"k", b"");
    check_frames(&both, &get, &answer(0x00, 0x20, b"", b"", b"Auth failure."));
    check_frames(&both, &frame(0x20, b"", b"", b""), &answer(0x20, 0, b"", b"", b"PLAIN"));
    let login = frame(0x21, b"", b"PLAIN", b"\0default\0secret");
    let expected =
        [answer(0x21, 0, b"", b"", b"Authenticated"), answer(0x00, 1, b"", b"", b"Not found")];
    check_frames(&both, &[login, get].concat(), &expected.concat());
    let wrong = frame(0x21, b"", b"PLAIN", b"\0default\0Secret");
    check_frames(&both, &wrong, &answer(0x21, 0x20, b"", b"", b"Auth failure."));
}

#[test]
fn a_unix_socket_and_a_database_of_their_own() {
    let dir = TempDir::new();
    let path = dir.path().join("memcached.sock");
    let server = launch()
        .with("memcached-unixsocket", path.to_str().expect("UTF-8"))
        .with("memcached-database", "3")
        .start();
    let mut unix = UnixStream::connect(&path).expect("a listener");
    unix.write_all(b"set k 0 0 1\r\nx\r\n").expect("sent");
    let mut answer = [0; 8];
    unix.read_exact(&mut answer).expect("received");
    assert_eq!(&answer, b"STORED\r\n");
    let mut redis = server.connect();
    redis.check("GET k", "nil");
    redis.check("SELECT 3", "+OK");
    redis.check("GET k", "\"x\"");
}

#[test]
fn a_flush_can_wait() {
    let both = start();
    both.check(
        b"set k 0 0 1\r\nx\r\nflush_all 1\r\nget k\r\n",
        b"STORED\r\nOK\r\nVALUE k 0 1\r\nx\r\nEND\r\n",
    );
    let mut redis = both.server.connect();
    wait_until("everything is flushed", || redis.ask("DBSIZE").int() == 0);
}

/// The thread that executes the flush is also the one that stops the server.
#[test]
fn a_flush_that_waits_for_a_script_keeps_nothing_waiting() {
    let mut both = start();
    both.check(b"flush_all 1\r\n", b"OK\r\n");
    let (mut runner, mut c) = (both.server.connect(), both.server.connect());
    runner.request(&["EVAL", "redis.call('set', KEYS[1], 1) while true do end", "1", "held"]);
    let mut seconds = || c.ask("TIME").items()[0].text().parse::<u64>().expect("seconds");
    let begun = seconds();
    wait_until("the flush was tried", || seconds() > begun + 2);
    both.server.connect().check("CLIENT PAUSE 100000 WRITE", "+OK");
    both.server.signal(Signal::TERM);
    assert!(both.server.wait_for_end().success());
}

#[test]
fn statistics_are_kept() {
    let both = start();
    talk(&both, b"set k 0 0 1\r\nx\r\nget k z\r\ndelete z\r\ntouch k 0\r\nincr z 1\r\n");
    let stats = String::from_utf8(talk(&both, b"stats\r\n")).expect("ASCII");
    for line in [
        "cmd_get 2",
        "cmd_set 1",
        "get_hits 1",
        "get_misses 1",
        "delete_misses 1",
        "touch_hits 1",
        "incr_misses 1",
        "curr_items 1",
    ] {
        assert!(stats.contains(&format!("STAT {line}\r\n")), "{line} in {stats}");
    }
    talk(&both, b"stats reset\r\n");
    let stats = String::from_utf8(talk(&both, b"stats\r\n")).expect("ASCII");
    assert!(stats.contains("STAT cmd_get 0\r\n"), "{stats}");
    let frames = talk(&both, &frame(0x10, b"", b"", b""));
    assert!(frames.windows(7).any(|part| part == b"cmd_get"));
    assert!(frames.ends_with(&answer(0x10, 0, b"", b"", b"")));
}

#[test]
fn the_port_can_be_opened_and_closed() {
    let server = crate::server();
    let port = free_port();
    let mut redis = server.connect();
    redis.check(&format!("CONFIG SET memcached-port {port}"), "+OK");
    let both = Both { server, port };
    both.check(b"version\r\n", b"VERSION 1.6.18\r\n");
    let mut redis = both.server.connect();
    redis.check("CONFIG SET memcached-port 0", "+OK");
    wait_until("the port is closed", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
    redis.check("PING", "+PONG");
}

#[track_caller]
fn expect(stream: &mut TcpStream, expected: &[u8]) {
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
    let mut text = both.connect();
    // The bytes of a value that is too large are skipped; those of a waiting request are not.
    let large = [b"add large 0 0 1100000\r\n", &vec![b'v'; 1_100_000][..], b"\r\n"].concat();
    text.write_all(&large).expect("sent");
    text.write_all(b"get there\r\nset k 0 0 1\r\nx\r\nget k\r\n").expect("sent");
    expect(&mut text, b"SERVER_ERROR object too large for cache\r\n");
    expect(&mut text, b"VALUE there 0 1\r\ny\r\nEND\r\n");
    let mut binary = both.connect();
    let get = |key| frame(0x00, b"", key, b"");
    let set = frame(0x01, &[0; 8], b"b", b"z");
    binary.write_all(&[get(b"none"), set, get(b"b")].concat()).expect("sent");
    expect(&mut binary, &answer(0x00, 0x01, b"", b"", b"Not found"));
    let mut meta = both.connect();
    meta.write_all(b"mg there v\r\nmg new N30 v\r\n").expect("sent");
    expect(&mut meta, b"VA 1\r\ny\r\n");
    redis.check("EXISTS k b new", ":0");
    redis.check("CLIENT UNPAUSE", "+OK");
    expect(&mut text, b"STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
    expect(&mut meta, b"VA 0 W\r\n\r\n");
    let mut stored = [0; 24];
    binary.read_exact(&mut stored).expect("received");
    assert_eq!(stored[..8], [0x81, 0x01, 0, 0, 0, 0, 0, 0]);
}

/// A win is a write for replicas and the log, although a read caused it.
#[test]
fn nobody_wins_an_item_while_none_could_store_it() {
    let both = start();
    let mut redis = both.server.connect();
    for (close, open) in [
        ("CLIENT PAUSE 100000 WRITE", "CLIENT UNPAUSE"),
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
    ] {
        both.check(
            b"set k 0 0 1\r\na\r\nmd k I\r\nset r 0 100 1\r\nb\r\n",
            b"STORED\r\nHD\r\nSTORED\r\n",
        );
        redis.check(close, "+OK");
        both.check(b"mg k v\r\nmg r R200 v\r\n", b"VA 1 X\r\na\r\nVA 1\r\nb\r\n");
        redis.check(open, "+OK");
        both.check(b"mg k v\r\nmg r R200 v\r\n", b"VA 1 X W\r\na\r\nVA 1 W\r\nb\r\n");
        both.check(b"mg k v\r\nmg r R200 v\r\n", b"VA 1 Z X\r\na\r\nVA 1 Z\r\nb\r\n");
    }
}

#[test]
fn a_pause_of_all_holds_back_all_requests_on_data() {
    let both = start();
    let mut redis = both.server.connect();
    redis.check("CLIENT PAUSE 100000 ALL", "+OK");
    let mut stream = both.connect();
    stream.write_all(b"version\r\nget k\r\n").expect("sent");
    expect(&mut stream, b"VERSION 1.6.18\r\n");
    // If the read were not deferred, it would be answered by now.
    both.check(b"version\r\n", b"VERSION 1.6.18\r\n");
    stream.set_nonblocking(true).expect("a socket");
    let early = stream.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(early, Err(std::io::ErrorKind::WouldBlock));
    stream.set_nonblocking(false).expect("a socket");
    redis.check("CLIENT UNPAUSE", "+OK");
    expect(&mut stream, b"END\r\n");
}

/// As with `stop-writes-on-bgsave-error` for clients of Redis.
#[test]
fn writes_are_refused_while_snapshots_cannot_be_written() {
    const NOT_SAVED: &str = "snapshots cannot be written, and writes are refused until they can";
    let dir = TempDir::new();
    let path = dir.path().display().to_string();
    let launch = launch().with("appendonly", "no").with("dir", &path).with("save", "3600 1000");
    let both = with(launch);
    both.check(b"set k 0 0 1\r\nx\r\n", b"STORED\r\n");
    // A snapshot cannot replace a directory.
    std::fs::create_dir(dir.path().join("dump.rdb")).expect("a directory");
    let mut redis = both.server.connect();
    redis.check("BGSAVE", "+Background saving started");
    wait_until("writes are refused", || redis.ask("SET x 1").to_string().starts_with("-MISCONF"));
    let refused = format!("SERVER_ERROR {NOT_SAVED}\r\n");
    for write in [
        "set k 0 0 1\r\ny\r\n",
        "delete k\r\n",
        "ms k 1\r\ny\r\n",
        "mg k N1 v\r\n",
        "flush_all\r\n",
    ] {
        both.check(write.as_bytes(), refused.as_bytes());
    }
    both.check(&large_set(b"k"), refused.as_bytes());
    // A client would take a reply to `noreply` for the reply to its next request.
    let quiet = b"set k 0 0 1 noreply\r\ny\r\ndelete k noreply\r\nincr k 1 noreply\r\nflush_all noreply\r\nmn\r\n";
    both.check(quiet, b"MN\r\n");
    check_frames(
        &both,
        &frame(0x04, b"", b"k", b""),
        &answer(0x04, 0x86, b"", b"", NOT_SAVED.as_bytes()),
    );
    both.check(b"get k\r\nversion\r\n", b"VALUE k 0 1\r\nx\r\nEND\r\nVERSION 1.6.18\r\n");
    std::fs::remove_dir(dir.path().join("dump.rdb")).expect("a directory");
    redis.check("SAVE", "+OK");
    both.check(b"delete k\r\n", b"DELETED\r\n");
}

/// Makes a `set` of a value that is too large. It would remove the present one.
fn large_set(key: &[u8]) -> Vec<u8> {
    [b"set ", key, b" 0 0 1100000\r\n", &vec![b'v'; 1_100_000][..], b"\r\n"].concat()
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
        both.check(
            b"set k 70000 0 3\r\nabc\r\nappend k 0 0 1\r\nd\r\nset n 5 10000 2\r\n10\r\nincr n 1\r\n",
            b"STORED\r\nSTORED\r\nSTORED\r\n11\r\n",
        );
        check_frames(&both, &frame(0x01, &[0; 8], b"b", b"x"), &answer(0x01, 0, b"", b"", b""));
        let before = String::from_utf8(talk(&both, b"gets k\r\n")).expect("ASCII");
        drop(both);
        let both = with(launch);
        both.check(
            b"get k n b\r\n",
            b"VALUE k 70000 4\r\nabcd\r\nVALUE n 5 2\r\n11\r\nVALUE b 0 1\r\nx\r\nEND\r\n",
        );
        // A version of an earlier life never matches.
        let version = before.lines().next().and_then(|line| line.split(' ').nth(4));
        let cas = format!("cas k 0 0 1 {}\r\ny\r\n", version.expect("a version"));
        both.check(cas.as_bytes(), b"EXISTS\r\n");
    }
}

#[test]
fn what_was_said_to_be_out_of_date_is_so_after_a_kill() {
    let dir = TempDir::new();
    let launch = launch().with("appendonly", "yes").with("dir", &dir.path().display().to_string());
    let restart = |both: Both| {
        drop(both);
        with(launch.clone())
    };
    let both = with(launch.clone());
    both.check(
        b"set k 9 0 3\r\nold\r\nset o 0 0 3\r\nold\r\nmd k I\r\n",
        b"STORED\r\nSTORED\r\nHD\r\n",
    );
    // A value whose version is older than that of the present one.
    both.check(b"ms o 5 C1 I\r\nolder\r\n", b"HD\r\n");
    let both = restart(both);
    // One reader is told to store a new value. That survives the next start.
    both.check(b"mg k f v\r\nmg o v\r\n", b"VA 3 f9 X W\r\nold\r\nVA 5 X W\r\nolder\r\n");
    let both = restart(both);
    both.check(b"mg k f v\r\n", b"VA 3 f9 Z X\r\nold\r\n");
    let mut redis = both.server.connect();
    redis.check("BGREWRITEAOF", "+Background append only file rewriting started");
    wait_until("the log is compacted", || {
        redis.ask("INFO persistence").text().contains("aof_rewrites:1")
    });
    let both = restart(both);
    both.check(b"mg k v\r\nms k 3\r\nnew\r\n", b"VA 3 Z X\r\nold\r\nHD\r\n");
    let both = restart(both);
    both.check(b"mg k v\r\n", b"VA 3\r\nnew\r\n");
}

/// Flags and marks are preserved in snapshots of every kind. DUMP loses them, because Redis' format has no room for
/// them.
#[test]
fn flags_and_marks_are_in_snapshots() {
    let dir = TempDir::new();
    let path = dir.path().display().to_string();
    let launch = launch().with("appendonly", "no").with("dir", &path);
    let launch = launch.with("enable-debug-command", "yes");
    let both = with(launch.clone());
    both.check(
        b"set f 4294967295 0 1\r\nv\r\nset i 7 0 2\r\n12\r\nset k 9 0 3\r\nold\r\nmd k I\r\nset w 0 0 1\r\nv\r\n\
          md w I\r\nmg w v\r\nset plain 0 0 1\r\nv\r\n",
        b"STORED\r\nSTORED\r\nSTORED\r\nHD\r\nSTORED\r\nHD\r\nVA 1 X W\r\nv\r\nSTORED\r\n",
    );
    let as_before = |both: &Both| {
        both.check(
            b"mg f f v\r\nmg i f v\r\nmg k f N0\r\nmg w v\r\nmg plain f v\r\n",
            b"VA 1 f4294967295\r\nv\r\nVA 2 f7\r\n12\r\nHD f9 X W\r\nVA 1 Z X\r\nv\r\nVA 1 f0\r\nv\r\n",
        );
        // The reader that won gives up, as if it had never asked.
        both.check(b"md k I\r\n", b"HD\r\n");
    };
    let mut redis = both.server.connect();
    redis.check("DEBUG RELOAD", "+OK");
    as_before(&both);
    redis.check("SAVE", "+OK");
    drop(both);
    let both = with(launch);
    as_before(&both);
}

#[test]
fn at_the_limit_of_memory_stores_are_refused_or_keys_go() {
    let value = "v".repeat(1000);
    let sets: String = (0..2000).map(|n| format!("set k:{n} 0 0 1000\r\n{value}\r\n")).collect();
    let stored = |both: &Both| {
        let answer = String::from_utf8(talk(both, sets.as_bytes())).expect("ASCII");
        let is_known =
            |line| ["STORED", "SERVER_ERROR out of memory storing object"].contains(&line);
        assert!(answer.lines().all(is_known), "{answer}");
        answer.lines().filter(|line| *line == "STORED").count()
    };
    let both = with(launch().with("maxmemory", "1mb"));
    assert!((500..1100).contains(&stored(&both)));
    both.check(b"ms x 1\r\ny\r\n", b"SERVER_ERROR out of memory storing object\r\n");
    let refused = answer(0x01, 0x82, b"", b"", b"Out of memory");
    check_frames(&both, &frame(0x01, &[0; 8], b"x", b"y"), &refused);
    both.check(b"delete k:0\r\ntouch k:1 100\r\n", b"DELETED\r\nTOUCHED\r\n");
    let both = with(launch().with("maxmemory", "1mb").with("maxmemory-policy", "allkeys-lru"));
    assert_eq!(stored(&both), 2000);
    let stats = String::from_utf8(talk(&both, b"stats\r\n")).expect("ASCII");
    assert!(!stats.contains("STAT evictions 0\r\n"), "{stats}");
}
