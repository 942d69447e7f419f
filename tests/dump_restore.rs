//! DUMP and RESTORE: values in the format of Redis.

use tierce_harness::{Connection, Reply};

use crate::server;

/// Dumps a key and returns the payload.
fn dump(c: &mut Connection, key: &str) -> Vec<u8> {
    c.call(&["DUMP", key]).bytes().to_vec()
}

fn restore(c: &mut Connection, payload: &[u8], more: &[&str]) -> Reply {
    let mut args = vec![&b"RESTORE"[..], b"copy", more[0].as_bytes(), payload];
    args.extend(more[1..].iter().map(|option| option.as_bytes()));
    c.call(&args)
}

/// First byte of a compressed string.
const COMPRESSED: u8 = 0xc3;

/// DUMP payloads of these strings from redis-server 7.0.
const OF_REDIS: [(&str, &[u8]); 3] = [
    ("hello", b"\x00\x05hello\n\x00cr\xdfve4 \n"),
    (
        "0123456789012345678901234567890123456789",
        b"\x00\xc3\x12(\n01234567890\xe0\x12\t\x0189\n\x00]\x9b\x94\xa2{[?J",
    ),
    ("-5", b"\x00\xc0\xfb\n\x00I\xc4\xc6\xf4\xd7&?h"),
];

#[test]
fn a_value_survives_the_way_through_a_payload() {
    let server = server();
    let mut c = server.connect();
    c.check("DUMP missing", "nil");
    let long = "0123456789".repeat(5000);
    for value in ["", "hello", "12", "-129", "70000", "5000000000", "007", &long] {
        c.call(&["SET", "key", value]);
        let payload = dump(&mut c, "key");
        assert_eq!(restore(&mut c, &payload, &["0", "REPLACE"]).to_string(), "+OK");
        assert_eq!(c.ask("GET copy").bytes(), value.as_bytes());
    }
    assert!(dump(&mut c, "key").len() < 2000, "a text that repeats is compressed");
    c.check("CONFIG SET rdbcompression no", "+OK");
    assert!(dump(&mut c, "key").len() > 50_000);
}

#[test]
fn payloads_are_those_of_redis() {
    let server = server();
    let mut c = server.connect();
    for (value, payload) in OF_REDIS {
        c.call(&["SET", "key", value]);
        let ours = dump(&mut c, "key");
        // A text can be compressed in several ways, and Redis does not choose the shortest.
        let is_same = ours == payload;
        assert!(is_same || payload[1] == COMPRESSED && ours.len() < payload.len(), "{value}");
        assert_eq!(restore(&mut c, payload, &["0", "REPLACE"]).to_string(), "+OK");
        assert_eq!(c.ask("GET copy").text(), value);
    }
}

#[test]
fn times_and_options() {
    let server = server();
    let mut c = server.connect();
    c.check("SET key hello", "+OK");
    let payload = dump(&mut c, "key");
    let mut check = |options: &[&str], expected: &str| {
        assert_eq!(restore(&mut c, &payload, options).to_string(), expected, "{options:?}");
    };
    check(&["100000"], "+OK");
    check(&["0"], "-BUSYKEY Target key name already exists.");
    check(&["0", "REPLACE", "nosuch"], "-ERR syntax error");
    check(&["-1", "REPLACE"], "-ERR Invalid TTL value, must be >= 0");
    check(&["x", "REPLACE"], "-ERR value is not an integer or out of range");
    check(&["0", "REPLACE", "IDLETIME", "-1"], "-ERR Invalid IDLETIME value, must be >= 0");
    check(&["0", "REPLACE", "FREQ", "256"], "-ERR Invalid FREQ value, must be >= 0 and <= 255");
    check(&["0", "REPLACE", "FREQ", "1", "IDLETIME", "1"], "-ERR syntax error");
    check(&["32503680000000", "REPLACE", "ABSTTL"], "+OK");
    c.check("PEXPIRETIME copy", ":32503680000000");
    let mut check = |options: &[&str], expected: &str| {
        assert_eq!(restore(&mut c, &payload, options).to_string(), expected, "{options:?}");
    };
    // A deadline that has passed: the existing key is removed, and none is created.
    check(&["1", "REPLACE", "ABSTTL"], "+OK");
    c.check("EXISTS copy", ":0");
    assert_eq!(restore(&mut c, &payload, &["0", "IDLETIME", "1000"]).to_string(), "+OK");
    let idle = c.ask("OBJECT IDLETIME copy").to_string();
    assert!([":1000", ":1001", ":1002"].contains(&idle.as_str()), "{idle}");
    assert_eq!(restore(&mut c, &payload, &["0", "FREQ", "7", "REPLACE"]).to_string(), "+OK");
}

#[test]
fn what_is_no_payload_is_refused() {
    let server = server();
    let mut c = server.connect();
    c.check("SET key hello", "+OK");
    let payload = dump(&mut c, "key");
    for at in 0..payload.len() {
        let mut damaged = payload.clone();
        damaged[at] ^= 0x10;
        let reply = restore(&mut c, &damaged, &["0"]).to_string();
        assert_eq!(reply, "-ERR DUMP payload version or checksum are wrong", "byte {at}");
    }
    for payload in [&b""[..], b"x", b"0123456789"] {
        let reply = restore(&mut c, payload, &["0"]).to_string();
        assert_eq!(reply, "-ERR DUMP payload version or checksum are wrong");
    }
    c.check("EXISTS copy", ":0");
    c.check("RESTORE copy 0", "-ERR wrong number of arguments for 'restore' command");
}

/// Makes a payload of these bytes with a correct version and checksum.
fn payload(value: &[u8]) -> Vec<u8> {
    let summed = [value, b"\x0a\x00"].concat();
    [&summed[..], &tierce_rdb::crc64(0, &summed).to_le_bytes()].concat()
}

/// Any error is found before anything changes.
#[test]
fn a_damaged_value_with_a_right_checksum_changes_nothing() {
    let server = server();
    let mut c = server.connect();
    c.check("RPUSH copy former", ":1");
    let of_nan = [&b"\x05\x01\x01m"[..], &f64::NAN.to_le_bytes()].concat();
    let damaged: &[(&str, &[u8])] = &[
        ("a set of no members", b"\x02\x00"),
        ("a list of no elements", b"\x01\x00"),
        ("a list of no nodes", b"\x12\x00"),
        ("a list of empty nodes", b"\x12\x01\x02\x07\x07\0\0\0\0\0\xff"),
        ("a hash of no fields", b"\x04\x00"),
        ("a byte after a string", b"\x00\x01a!"),
        ("a byte after a set", b"\x02\x01\x01a!"),
        ("a member twice", b"\x02\x02\x01a\x01a"),
        ("a field twice", b"\x04\x02\x01f\x01v\x01f\x01w"),
        ("a score that is no number", &of_nan),
        ("an intset out of order", b"\x0b\x0c\x02\0\0\0\x02\0\0\0\x02\0\x01\0"),
        ("a field that expires in 1970", b"\x18\0\0\0\0\0\0\0\0\x01\x01\x01f\x01v"),
        ("entries of a stream that are not there", b"\x13\0\x05\x01\0\0\0\0\0\x05\0"),
        ("two groups of one name", b"\x13\0\0\x01\0\0\0\0\0\x05\x02\x01g\0\0\0\0\0\x01g\0\0\0\0\0"),
    ];
    for (what, value) in damaged {
        let reply = restore(&mut c, &payload(value), &["0", "REPLACE"]).to_string();
        assert_eq!(reply, "-ERR Bad data format", "{what}");
        c.check("LRANGE copy 0 -1", r#"["former"]"#);
    }
    let sound = payload(b"\x02\x02\x01a\x01b");
    assert_eq!(restore(&mut c, &sound, &["0", "REPLACE"]).to_string(), "+OK");
    c.check("SCARD copy", ":2");
}
