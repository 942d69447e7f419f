//! Commands on strings that Redis has since 8.4: conditions on the value, digests, and several keys with a deadline.
//! Replies and errors are those of Redis 8.8; DELIFEQ is that of Valkey 9.0.

use tierce_harness::Connection;

use crate::both_protocols::raw::{check_nil, with_both};
use crate::server;

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_A_DIGEST: &str = "-ERR must be exactly 16 hexadecimal characters";
/// Digests of "hello" and "test".
const HELLO: &str = "9555e8555c62dcfd";
const TEST: &str = "9ec9f7918d7dfc40";

/// Checks that a key has a deadline in about this many seconds.
fn check_ttl(c: &mut Connection, key: &str, seconds: i64) {
    let ttl = c.ask(&format!("TTL {key}")).int();
    assert!((seconds - 60..=seconds).contains(&ttl), "{key}: {ttl}");
}

#[test]
fn set_compares_the_old_value() {
    with_both(|c| {
        for (condition, is_met) in [
            ("IFEQ hello", true),
            ("ifeq other", false),
            ("IfNe other", true),
            ("IFNE hello", false),
            (&format!("IFDEQ {HELLO}"), true),
            (&format!("IFDEQ {}", HELLO.to_uppercase()), true),
            (&format!("IFDEQ {TEST}"), false),
            ("IFDEQ zzzzzzzzzzzzzzzz", false),
            (&format!("IFDNE {TEST}"), true),
            (&format!("IFDNE {HELLO}"), false),
            ("IFEQ other IFEQ hello", true),
        ] {
            let value = if is_met { "\"new\"" } else { "\"hello\"" };
            c.check("SET k hello", "+OK");
            check_nil(c, &format!("SET k new {condition}"), if is_met { "+OK" } else { "nil" });
            c.check("GET k", value);
            c.check("SET k hello EX 1000", "+OK");
            c.check(&format!("SET k new EX 2000 {condition} GET"), "\"hello\"");
            c.check("GET k", value);
            check_ttl(c, "k", if is_met { 2000 } else { 1000 });
            c.check("SET k hello EX 1000", "+OK");
            c.check(&format!("SET k new {condition} KEEPTTL GET"), "\"hello\"");
            check_ttl(c, "k", 1000);
        }
    });
}

#[test]
fn an_absent_key_is_equal_to_nothing() {
    with_both(|c| {
        for condition in ["IFEQ x", "IFDEQ 0123456789abcdef", "IFDEQ x", "IFEQ ''"] {
            check_nil(c, &format!("SET k v {condition}"), "nil");
            check_nil(c, &format!("SET k v GET {condition}"), "nil");
            c.check("EXISTS k", ":0");
        }
        for condition in ["IFNE x", "IFDNE 0123456789abcdef", "IFDNE x"] {
            c.check(&format!("SET k v {condition}"), "+OK");
            c.check("DEL k", ":1");
            check_nil(c, &format!("SET k v {condition} GET"), "nil");
            c.check("DEL k", ":1");
        }
    });
}

#[test]
fn values_are_compared_as_text() {
    with_both(|c| {
        c.check("SET n 11", "+OK");
        check_nil(c, "SET n 12 IFEQ 011", "nil");
        c.check("SET n 12 IFEQ 11", "+OK");
        c.check("SET n '' IFEQ 12", "+OK");
        check_nil(c, "SET n x IFNE ''", "nil");
        c.check("DELEX n IFEQ ''", ":1");
        let long = "x".repeat(100_000);
        c.check(&format!("SET long {long}"), "+OK");
        check_nil(c, &format!("SET long y IFEQ {long}x"), "nil");
        c.check(&format!("SET long y IFEQ {long}"), "+OK");
    });
}

#[test]
fn conditions_exclude_each_other() {
    with_both(|c| {
        c.check("SET k hello", "+OK");
        for options in [
            "IFEQ hello NX",
            "NX IFEQ hello",
            "IFNE x XX",
            "XX IFDNE x",
            "IFEQ hello IFNE x",
            "IFEQ hello IFDEQ x",
            "IFEQ",
            "IFDNE",
        ] {
            c.check(&format!("SET k v {options}"), "-ERR syntax error");
        }
        for digest in ["''", "abc", "9555e8555c62dcf", "09555e8555c62dcfd"] {
            for condition in ["IFDEQ", "IFDNE"] {
                c.check(&format!("SET k v {condition} {digest}"), NOT_A_DIGEST);
                c.check(&format!("SET k v GET {condition} {digest}"), NOT_A_DIGEST);
                c.check(&format!("DELEX k {condition} {digest}"), NOT_A_DIGEST);
            }
        }
        c.check("SET k v IFEQ hello EX 0", "-ERR invalid expire time in 'set' command");
        c.check("RPUSH list hello", ":1");
        for options in ["IFEQ hello", "IFNE x", "IFDEQ x", "IFDNE x GET"] {
            c.check(&format!("SET list v {options}"), WRONG_TYPE);
        }
        c.check("GET k", "\"hello\"");
    });
}

#[test]
fn digests_are_read() {
    with_both(|c| {
        for (value, digest) in [
            ("hello", HELLO),
            ("''", "2d06800538d394c2"),
            ("123", "404a763b3f4c8c9a"),
            ("v8", "0cc76dbb41381419"),
        ] {
            c.check(&format!("SET k {value}"), "+OK");
            c.check("DIGEST k", &format!("\"{digest}\""));
            c.check(&format!("DELEX k IFDNE {digest}"), ":0");
            c.check(&format!("DELEX k IFDEQ {digest}"), ":1");
        }
        check_nil(c, "DIGEST k", "nil");
        c.check("RPUSH list a", ":1");
        c.check("DIGEST list", WRONG_TYPE);
        c.check("DIGEST", "-ERR wrong number of arguments for 'digest' command");
        c.check("DIGEST a b", "-ERR wrong number of arguments for 'digest' command");
    });
}

/// The digest of so long a value is made on another thread.
#[test]
fn long_values_have_digests() {
    with_both(|c| {
        c.check("SETRANGE long 5000000 x", ":5000001");
        let digest = c.ask("DIGEST long").text().to_owned();
        assert_eq!(digest.len(), 16);
        check_nil(c, &format!("SET long v IFDNE {digest}"), "nil");
        c.check("SETRANGE long 0 y", ":5000001");
        check_nil(c, &format!("SET long v IFDEQ {digest}"), "nil");
        let changed = c.ask("DIGEST long").text().to_owned();
        c.check("SET short v", "+OK");
        let short = c.ask("DIGEST short");
        c.check("MULTI", "+OK");
        c.check("DELEX long IFDEQ 0123456789abcdef", "+QUEUED");
        c.check(&format!("SET long v IFDEQ {changed}"), "+QUEUED");
        c.check("DIGEST long", "+QUEUED");
        c.check("EXEC", &format!("[:0, +OK, {short}]"));
    });
}

#[test]
fn keys_are_deleted_under_conditions() {
    with_both(|c| {
        c.check("SET k hello", "+OK");
        c.check("DELEX k IFEQ other", ":0");
        c.check("DELEX k ifne hello", ":0");
        c.check("DELEX k INVALID hello", "-ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE");
        c.check("DELEX k IFEQ hello", ":1");
        c.check("EXISTS k", ":0");
        for condition in ["IFEQ x", "IFNE x", "IFDEQ x", "IFDNE x", "INVALID x"] {
            c.check(&format!("DELEX k {condition}"), ":0");
        }
        c.check("DELEX k", ":0");
        c.check("RPUSH k a", ":1");
        for condition in ["IFEQ a", "IFDNE x", "INVALID x"] {
            let error = "-ERR Key should be of string type if conditions are specified";
            c.check(&format!("DELEX k {condition}"), error);
        }
        for arguments in ["", " k IFEQ", " k IFEQ a b", " none IFEQ"] {
            let error = "-ERR wrong number of arguments for 'delex' command";
            c.check(&format!("DELEX{arguments}"), error);
        }
        c.check("DELIFEQ k a", WRONG_TYPE);
        c.check("DELEX k", ":1");
        c.check("DELIFEQ k a", ":0");
        c.check("SET k 5", "+OK");
        c.check("DELIFEQ k 6", ":0");
        c.check("DELIFEQ k 5", ":1");
        c.check("EXISTS k", ":0");
        c.check("DELIFEQ k", "-ERR wrong number of arguments for 'delifeq' command");
    });
}

#[test]
fn several_keys_are_set_with_a_deadline() {
    with_both(|c| {
        c.check("MSETEX 2 a 1 b 2", ":1");
        c.check("MGET a b", r#"["1", "2"]"#);
        c.check("TTL a", ":-1");
        c.check("MSETEX 2 a 3 c 4 NX EX 100", ":0");
        c.check("MSETEX 2 a 3 c 4 xx", ":0");
        check_nil(c, "MGET a c", r#"["1", nil]"#);
        c.check("MSETEX 2 c 3 d 4 EX 1000 nx", ":1");
        check_ttl(c, "c", 1000);
        check_ttl(c, "d", 1000);
        c.check("MSETEX 3 a 5 c 6 a 7 XX KEEPTTL", ":1");
        c.check("MGET a c", r#"["7", "6"]"#);
        c.check("TTL a", ":-1");
        check_ttl(c, "c", 1000);
        c.check("MSETEX 1 c 8", ":1");
        c.check("TTL c", ":-1");
        c.check("MSETEX 1 a 9 PX 2000000", ":1");
        check_ttl(c, "a", 2000);
        c.check("MSETEX 2 a 9 b 9 EXAT 9999999999", ":1");
        c.check("EXPIRETIME b", ":9999999999");
        c.check("MSETEX 2 a 9 b 9 PXAT 9999999999123", ":1");
        c.check("PEXPIRETIME b", ":9999999999123");
        c.check("RPUSH list a", ":1");
        c.check("MSETEX 1 list 1", ":1");
        c.check("MSETEX 2 a 9 b 9 EXAT 1", ":1");
        c.check("EXISTS a b", ":0");
    });
}

#[test]
fn msetex_sets_all_keys_or_none() {
    with_both(|c| {
        for (arguments, error) in [
            ("", "wrong number of arguments for 'msetex' command"),
            (" 1 a", "wrong number of arguments for 'msetex' command"),
            (" a 1 EX 10", "invalid numkeys value"),
            (" 0 a 1", "invalid numkeys value"),
            (" -1 a 1", "invalid numkeys value"),
            (" 2147483648 a 1", "invalid numkeys value"),
            (" 2147483647 a 1", "wrong number of key-value pairs"),
            (" 2 a 1 b", "wrong number of key-value pairs"),
            (" 1 a 1 b", "syntax error"),
            (" 1 a 1 NX XX", "syntax error"),
            (" 1 a 1 EX 10 PX 10", "syntax error"),
            (" 1 a 1 KEEPTTL EX 10", "syntax error"),
            (" 1 a 1 EX", "syntax error"),
            (" 1 a 1 GET", "syntax error"),
            (" 1 a 1 IFEQ 1", "syntax error"),
            (" 1 a 1 EX 0", "invalid expire time in 'msetex' command"),
            (" 1 a 1 EX x", "value is not an integer or out of range"),
        ] {
            c.check(&format!("MSETEX{arguments}"), &format!("-ERR {error}"));
        }
        c.check("DBSIZE", ":0");
        c.check("COMMAND GETKEYS MSETEX 2 a 1 b 2 EX 10", r#"["a", "b"]"#);
    });
}

/// A condition tells what the value is, so it needs the right to read.
#[test]
fn a_condition_reads_the_value() {
    let server = server();
    let mut c = server.connect();
    c.check("ACL SETUSER writer on nopass +@all %W~*", "+OK");
    c.check("ACL SETUSER reader on nopass +@all %R~*", "+OK");
    for (call, of_writer, of_reader) in [
        ("SET k v EX 10", true, false),
        ("SET k v IFEQ x", false, false),
        ("SET k v ifdne x", false, false),
        ("DELEX k", true, false),
        ("DELEX k IFEQ x", false, false),
        ("DELIFEQ k x", false, false),
        ("MSETEX 2 a 1 b 2 XX", true, false),
        ("DIGEST k", false, true),
    ] {
        for (user, is_allowed) in [("writer", of_writer), ("reader", of_reader)] {
            let reply = c.ask(&format!("ACL DRYRUN {user} {call}")).to_string();
            assert_eq!(reply == "+OK", is_allowed, "{user}: {call}: {reply}");
        }
    }
    c.check("COMMAND GETKEYSANDFLAGS SET k v", r#"[["k", [+OW, +update]]]"#);
    c.check("COMMAND GETKEYSANDFLAGS SET k v IFNE x", r#"[["k", [+RW, +access, +update]]]"#);
    c.check("COMMAND GETKEYSANDFLAGS DELEX k", r#"[["k", [+RM, +delete]]]"#);
    c.check("COMMAND GETKEYSANDFLAGS DELEX k IFNE x", r#"[["k", [+RW, +access, +delete]]]"#);
    for name in ["digest", "delex", "delifeq", "msetex"] {
        let categories = c.ask(&format!("COMMAND INFO {name}")).items()[0].items()[6].to_string();
        let expected = match name {
            "digest" => "[+@read, +@string, +@fast]",
            "msetex" => "[+@write, +@string, +@slow]",
            _ => "[+@write, +@string, +@fast]",
        };
        assert_eq!(categories, expected, "{name}");
    }
}
