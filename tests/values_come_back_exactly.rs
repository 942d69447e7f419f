//! A value is a sequence of bytes. Whatever its contents, it comes back unchanged.

use tierce_harness::{Random, Server};

use crate::server;

fn check(server: &Server, value: &[u8]) {
    let mut c = server.connect();
    let shown = &value[..value.len().min(40)].escape_ascii();
    c.call(&[b"SET", &b"key"[..], value]);
    assert!(c.ask("GET key").bytes() == value, "{shown}");
    assert_eq!(c.ask("STRLEN key").int(), value.len() as i64, "{shown}");
    assert!(c.ask("MGET key").items()[0].bytes() == value, "{shown}");
    assert!(c.ask("GETRANGE key 0 -1").bytes() == value, "{shown}");
    c.ask("COPY key copy REPLACE");
    assert!(c.ask("GETDEL copy").bytes() == value, "{shown}");
    assert!(c.call(&[b"GETSET", &b"key"[..], b"other"]).bytes() == value, "{shown}");
    c.call(&[b"MSET", &b"key"[..], value]);
    assert!(c.ask("GETEX key PERSIST").bytes() == value, "{shown}");
    c.ask("DEL key");
    c.call(&[b"APPEND", &b"key"[..], value]);
    assert!(c.ask("GET key").bytes() == value, "{shown}");
}

/// Servers that store integers as integers must not convert these.
#[test]
fn texts_that_look_like_numbers() {
    let server = server();
    let texts = [
        "12ab",
        "007",
        "+5",
        "-0",
        "00",
        "0x10",
        "1e5",
        "1.0",
        "1.",
        ".5",
        " 1",
        "1 ",
        "-",
        "+",
        "--1",
        "1_000",
        "inf",
        "nan",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551616",
        "99999999999999999999999999999999",
        "０",
    ];
    texts.iter().for_each(|text| check(&server, text.as_bytes()));
}

#[test]
fn integers_up_to_the_limits() {
    let server = server();
    for number in
        [0, 1, -1, 9, 10, 127, 128, -128, 65_535, 65_536, 9999, 10_000, i64::MAX, i64::MIN]
    {
        check(&server, number.to_string().as_bytes());
        check(&server, number.wrapping_add(1).to_string().as_bytes());
    }
    for power in 0..63 {
        check(&server, (1_i64 << power).to_string().as_bytes());
    }
}

#[test]
fn empty_values_and_keys() {
    let server = server();
    check(&server, b"");
    let mut c = server.connect();
    c.check("SET '' ''", "+OK");
    c.check("GET ''", "\"\"");
    c.check("EXISTS ''", ":1");
    c.ask("DEL key");
    c.check("KEYS *", "[\"\"]");
}

#[test]
fn every_byte() {
    let server = server();
    let all: Vec<u8> = (0..=255).collect();
    check(&server, &all);
    for byte in 0..=255_u8 {
        check(&server, &[byte]);
    }
}

#[test]
fn every_length_around_the_borders() {
    let server = server();
    let bytes = Random::new(7).bytes(70_000);
    let borders = [16, 24, 32, 44, 64, 128, 256, 512, 1024, 4096, 16_384, 32_768, 65_536];
    for border in borders {
        for len in border - 2..=border + 2 {
            check(&server, &bytes[..len]);
        }
    }
}

#[test]
fn a_mebibyte() {
    check(&server(), &Random::new(8).bytes(1 << 20));
}

#[test]
fn keys_are_bytes_too() {
    let server = server();
    let mut c = server.connect();
    let mut random = Random::new(9);
    let mut keys: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    keys.extend([15, 16, 17, 100, 1000, 10_000].map(|len| random.bytes(len)));
    // Keys with a long common prefix, and keys that are a prefix of others.
    keys.extend((0..100).map(|n| [vec![b'p'; 500], n.to_string().into_bytes()].concat()));
    for (n, key) in keys.iter().enumerate() {
        c.call(&[b"SET", &key[..], n.to_string().as_bytes()]);
    }
    assert_eq!(c.ask("DBSIZE").int(), keys.len() as i64);
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(c.call(&[b"GET", &key[..]]).text(), n.to_string());
    }
}
