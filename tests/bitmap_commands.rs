//! Bits of strings.

use crate::both_protocols::raw::with_both;
use crate::server;

fn check_all(calls: &[(&str, &str)]) {
    with_both(|c| calls.iter().for_each(|(line, expected)| c.check(line, expected)));
}

#[test]
fn single_bits() {
    check_all(&[
        ("SETBIT b 7 1", ":0"),
        ("SETBIT b 7 1", ":1"),
        ("GET b", "\"\\x01\""),
        ("SETBIT b 100 0", ":0"),
        ("STRLEN b", ":13"),
        ("GETBIT b 7", ":1"),
        ("GETBIT b 1000", ":0"),
        ("GETBIT none 0", ":0"),
        ("SET n 5", "+OK"),
        // The text of 5 is 0x35.
        ("GETBIT n 7", ":1"),
        ("SETBIT n 6 1", ":0"),
        ("GET n", "\"7\""),
        ("SETBIT b -1 1", "-ERR bit offset is not an integer or out of range"),
        ("SETBIT b 4294967296 1", "-ERR bit offset is not an integer or out of range"),
        ("SETBIT b 1 2", "-ERR bit is not an integer or out of range"),
        ("GETBIT b x", "-ERR bit offset is not an integer or out of range"),
    ]);
}

#[test]
fn large_bitmaps_change_bit_by_bit() {
    check_all(&[
        ("SETBIT b 83886079 1", ":0"),
        ("STRLEN b", ":10485760"),
        ("SETBIT b 0 1", ":0"),
        ("BITCOUNT b", ":2"),
        ("BITPOS b 1 1", ":83886079"),
        ("DEL b", ":1"),
    ]);
}

#[test]
fn counting_and_finding() {
    check_all(&[
        ("SET k foobar", "+OK"),
        ("BITCOUNT k", ":26"),
        ("BITCOUNT k 0 0", ":4"),
        ("BITCOUNT k 5 30 BIT", ":17"),
        ("BITCOUNT k -2 -1", ":7"),
        ("BITCOUNT k 4 2", ":0"),
        ("BITCOUNT none", ":0"),
        ("BITCOUNT k 1", "-ERR syntax error"),
        ("BITPOS k 1", ":1"),
        ("BITPOS k 0", ":0"),
        ("BITPOS k 1 2 -1 BYTE", ":17"),
        ("BITPOS k 0 9 20 BIT", ":11"),
        ("BITPOS none 1", ":-1"),
        ("BITPOS none 0", ":0"),
        ("BITOP NOT n k", ":6"),
        ("BITOP OR full n k", ":6"),
        ("BITPOS full 0", ":48"),
        ("BITPOS full 0 0 -1", ":-1"),
        ("BITPOS full 1 10", ":-1"),
        ("BITPOS k 2", "-ERR The bit argument must be 1 or 0."),
    ]);
}

#[test]
fn combining() {
    check_all(&[
        ("SET a abc", "+OK"),
        ("SET b ab", "+OK"),
        ("BITOP AND d a b none", ":3"),
        ("GET d", "\"\\x00\\x00\\x00\""),
        ("BITOP XOR d a b", ":3"),
        ("GET d", "\"\\x00\\x00c\""),
        ("OBJECT ENCODING d", "\"raw\""),
        ("BITOP OR a a b", ":3"),
        ("GET a", "\"abc\""),
        ("BITOP NOT d none", ":0"),
        ("EXISTS d", ":0"),
        ("BITOP NOT d a b", "-ERR BITOP NOT must be called with a single source key."),
        ("BITOP NOR d a", "-ERR syntax error"),
    ]);
}

/// Operations of Redis 8.2.
#[test]
fn combining_with_the_first() {
    check_all(&[
        ("SET a vip", "+OK"),
        ("SET b dU", "+OK"),
        ("SET c z", "+OK"),
        ("BITOP DIFF d a b c", ":3"),
        ("GET d", "\"\\x00(p\""),
        ("BITOP diff1 d a b c", ":3"),
        ("GET d", "\"\\x08\\x14\\x00\""),
        ("BITOP ANDOR d a b c", ":3"),
        ("GET d", "\"vA\\x00\""),
        ("BITOP ONE d a b c", ":3"),
        ("GET d", "\"\\x08<p\""),
        ("BITOP ONE d c", ":1"),
        ("GET d", "\"z\""),
        ("BITOP DIFF d none a", ":3"),
        ("GET d", "\"\\x00\\x00\\x00\""),
        ("BITOP DIFF1 d none c", ":1"),
        ("GET d", "\"z\""),
        ("BITOP ONE d none none", ":0"),
        ("EXISTS d", ":0"),
        ("BITOP ANDOR a b a", ":3"),
        ("GET a", "\"dA\\x00\""),
        ("BITOP diff1 d a", "-ERR BITOP DIFF1 must be called with at least two source keys."),
        ("BITOP ANDOR d a", "-ERR BITOP ANDOR must be called with at least two source keys."),
        ("BITOP DIFF d a", "-ERR BITOP DIFF must be called with at least two source keys."),
        ("RPUSH list x", ":1"),
        (
            "BITOP ONE d a list",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
    ]);
}

#[test]
fn integers_of_any_width() {
    check_all(&[
        (
            "BITFIELD f SET i8 0 -1 GET u4 2 INCRBY u8 #1 200 INCRBY u8 #1 100",
            "[:0, :15, :200, :44]",
        ),
        ("BITFIELD f OVERFLOW SAT INCRBY u8 #1 300", "[:255]"),
        ("BITFIELD f OVERFLOW SAT SET i5 100 -99 GET i5 100", "[:0, :-16]"),
        ("STRLEN f", ":14"),
        (
            "BITFIELD f SET i64 3 -9223372036854775808 GET i64 3",
            "[:-2251799813685248, :-9223372036854775808]",
        ),
        (
            "BITFIELD f SET u63 1 9223372036854775807 GET u63 1",
            "[:8070450532247928832, :9223372036854775807]",
        ),
        ("BITFIELD_RO f GET u8 0", "[:255]"),
        ("BITFIELD_RO none GET u8 0", "[:0]"),
        ("BITFIELD none GET u8 0", "[:0]"),
        ("EXISTS none", ":0"),
        ("BITFIELD_RO f SET u8 0 1", "-ERR BITFIELD_RO only supports the GET subcommand"),
        ("BITFIELD f OVERFLOW NONE", "-ERR Invalid OVERFLOW type specified"),
        (
            "BITFIELD f GET u64 0",
            "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
        ),
    ]);
}

#[test]
fn what_does_not_fit_may_fail() {
    let server = server();
    let mut c = server.connect();
    c.check("BITFIELD f SET u8 0 255 OVERFLOW FAIL INCRBY u8 0 1 GET u8 0", "[:0, nil, :255]");
    c.check("BITFIELD f OVERFLOW FAIL SET i4 0 8 INCRBY i4 0 -8", "[nil, nil]");
}
