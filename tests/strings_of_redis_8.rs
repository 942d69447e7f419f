//! Commands on strings that Redis has since 8.4: conditions on the value, digests, several keys with a deadline, and
//! counters with bounds. Replies and errors are those of Redis 8.8; DELIFEQ is that of Valkey 9.0.

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

/// Checks a reply of two floating point numbers, which are strings in RESP2.
fn check_floats(c: &mut Connection, line: &str, [number, applied]: [&str; 2]) {
    let reply = c.ask(line).to_string();
    let expected = [format!(r#"["{number}", "{applied}"]"#), format!("[,{number}, ,{applied}]")];
    assert!(expected.contains(&reply), "the reply to {line} is {reply}");
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

#[test]
fn counters_have_bounds() {
    with_both(|c| {
        for (value, options, reply) in [
            ("10", "", "[:11, :1]"),
            ("10", " BYINT -15", "[:-5, :-15]"),
            ("10", " BYINT 5 UBOUND 15", "[:15, :5]"),
            ("10", " BYINT 5 UBOUND 14", "[:10, :0]"),
            ("10", " BYINT 5 UBOUND 14 SATURATE", "[:14, :4]"),
            ("10", " byint -5 lbound 5", "[:5, :-5]"),
            ("10", " BYINT -5 LBOUND 6", "[:10, :0]"),
            ("10", " LBOUND 6 SATURATE BYINT -5", "[:6, :-4]"),
            ("10", " BYINT 5 LBOUND 20", "[:10, :0]"),
            ("10", " BYINT -5 LBOUND 20 SATURATE", "[:20, :10]"),
            ("50", " BYINT 5 UBOUND 30 SATURATE", "[:30, :-20]"),
            ("50", " BYINT -25 UBOUND 30", "[:25, :-25]"),
            ("10", " LBOUND 10 UBOUND 10", "[:10, :0]"),
            ("9223372036854775800", " BYINT 8", "[:9223372036854775800, :0]"),
            ("9223372036854775800", " BYINT 8 SATURATE", "[:9223372036854775807, :7]"),
            ("-9223372036854775807", " BYINT -8 SATURATE", "[:-9223372036854775808, :-1]"),
            ("10", " BYINT 9223372036854775807 UBOUND 100 SATURATE", "[:100, :90]"),
        ] {
            c.check(&format!("SET n {value}"), "+OK");
            c.check(&format!("INCREX n{options}"), reply);
            let number = &reply[2..reply.find(',').expect("two numbers")];
            c.check("GET n", &format!("\"{number}\""));
            c.check("OBJECT ENCODING n", "\"int\"");
        }
        c.check("SET n 9223372036854775807", "+OK");
        c.check(
            "INCREX n BYINT -5 UBOUND -9223372036854775808 SATURATE",
            "-ERR applied increment would overflow",
        );
    });
}

#[test]
fn a_counter_begins_with_zero() {
    with_both(|c| {
        c.check("INCREX n UBOUND 0", "[:0, :0]");
        c.check("INCREX n BYINT 5 LBOUND 10", "[:0, :0]");
        c.check("EXISTS n", ":0");
        c.check("INCREX n UBOUND 0 SATURATE", "[:0, :0]");
        c.check("GET n", "\"0\"");
        c.check("DEL n", ":1");
        c.check("INCREX n LBOUND 5 SATURATE", "[:5, :5]");
    });
}

#[test]
fn floats_have_bounds() {
    with_both(|c| {
        for (value, options, numbers) in [
            ("1.5", "0.25", ["1.75", "0.25"]),
            ("0.1", "0.2", ["0.3", "0.2"]),
            ("10", "5.5 UBOUND 12.5", ["10", "0"]),
            ("10", "5.5 UBOUND 12.5 SATURATE", ["12.5", "2.5"]),
            ("10", "-6 LBOUND 8 SATURATE", ["8", "-2"]),
            ("50.5", "5.5 UBOUND 30 SATURATE", ["30", "-20.5"]),
            ("10", "1 UBOUND inf LBOUND -inf", ["11", "1"]),
            ("10", "1 UBOUND inf LBOUND inf", ["10", "0"]),
            ("10", "1e4932 UBOUND 100 SATURATE", ["100", "90"]),
        ] {
            c.check(&format!("SET n {value}"), "+OK");
            let line = format!("INCREX n BYFLOAT {options}");
            check_floats(c, &line, numbers);
            c.check("GET n", &format!("\"{}\"", numbers[0]));
        }
        for (value, options, error) in [
            ("10", "inf", "BYFLOAT increment cannot be Infinity"),
            ("10", "-inf", "BYFLOAT increment cannot be Infinity"),
            ("inf", "1", "value cannot be Infinity"),
            ("10", "1 LBOUND inf UBOUND inf SATURATE", "applied increment would be Infinity"),
            ("x", "1", "value is not a valid float"),
            ("10", "1 UBOUND -inf", "LBOUND can't be greater than UBOUND"),
            ("10", "1 LBOUND inf", "LBOUND can't be greater than UBOUND"),
        ] {
            c.check(&format!("SET n {value}"), "+OK");
            c.check(&format!("INCREX n BYFLOAT {options}"), &format!("-ERR {error}"));
            c.check("GET n", &format!("\"{value}\""));
        }
    });
    let server = server();
    server.connect().check("INCREX f BYFLOAT 0.5", r#"["0.5", "0.5"]"#);
    server.connect_resp3().check("INCREX f BYFLOAT 0.5", "[,1, ,0.5]");
}

/// The sum has no finite size.
#[test]
fn floats_saturate_at_their_limit() {
    with_both(|c| {
        c.check("SET n 1e4932", "+OK");
        let reply = c.ask("INCREX n BYFLOAT 1e4932");
        assert_eq!(reply.items()[1].to_string().trim_matches([',', '"']), "0");
        c.check("GET n", "\"1e4932\"");
        c.check("SET n -1e4932", "+OK");
        let line = "INCREX n BYFLOAT -1e4932 LBOUND -1e4932 SATURATE";
        assert_eq!(c.ask(line).items()[1].to_string().trim_matches([',', '"']), "0");
        c.check("SET n -5", "+OK");
        check_floats(c, "INCREX n BYFLOAT -1e4932 LBOUND -7.5 SATURATE", ["-7.5", "-2.5"]);
    });
}

#[test]
fn increx_refuses_what_it_does_not_understand() {
    with_both(|c| {
        for (options, error) in [
            ("FOO", "syntax error"),
            ("BYINT", "syntax error"),
            ("BYINT 1 BYFLOAT 1", "syntax error"),
            ("BYINT 1 BYINT 1", "syntax error"),
            ("LBOUND 0 LBOUND 0", "syntax error"),
            ("UBOUND 9 UBOUND 9", "syntax error"),
            ("SATURATE SATURATE", "syntax error"),
            ("ENX ENX EX 10", "syntax error"),
            ("PERSIST PERSIST", "syntax error"),
            ("EX 10 EX 10", "syntax error"),
            ("EX 10 PX 10", "syntax error"),
            ("EX 10 PERSIST", "syntax error"),
            ("PERSIST ENX", "syntax error"),
            ("ENX PERSIST", "syntax error"),
            ("KEEPTTL", "syntax error"),
            ("ENX", "ENX flag requires an expiration"),
            ("BYINT 1.5", "Increment is not an integer or out of range"),
            ("BYFLOAT x", "Increment is not a valid float"),
            ("BYFLOAT nan", "Increment is not a valid float"),
            ("LBOUND 1.5", "LBOUND is not an integer or out of range"),
            ("UBOUND inf", "UBOUND is not an integer or out of range"),
            ("BYFLOAT 1 UBOUND x", "UBOUND is not a valid float"),
            ("LBOUND 10 UBOUND 5", "LBOUND can't be greater than UBOUND"),
            ("BYFLOAT 1 LBOUND 10.5 UBOUND 1.5", "LBOUND can't be greater than UBOUND"),
            ("EX 0", "invalid expire time in 'increx' command"),
            ("PX -1", "invalid expire time in 'increx' command"),
            ("EX x", "value is not an integer or out of range"),
        ] {
            c.check(&format!("INCREX n {options}"), &format!("-ERR {error}"));
        }
        c.check("INCREX", "-ERR wrong number of arguments for 'increx' command");
        c.check("EXISTS n", ":0");
        c.check("SET n 1.5", "+OK");
        c.check("INCREX n", "-ERR value is not an integer or out of range");
        c.check("RPUSH list a", ":1");
        c.check("INCREX list", WRONG_TYPE);
        c.check("INCREX list BYFLOAT 1", WRONG_TYPE);
    });
}

#[test]
fn counting_changes_the_deadline() {
    with_both(|c| {
        c.check("INCREX n EX 1000", "[:1, :1]");
        check_ttl(c, "n", 1000);
        c.check("INCREX n", "[:2, :1]");
        check_ttl(c, "n", 1000);
        c.check("INCREX n EX 3000 ENX", "[:3, :1]");
        check_ttl(c, "n", 1000);
        c.check("INCREX n EXAT 1 ENX", "[:4, :1]");
        check_ttl(c, "n", 1000);
        c.check("INCREX n PX 2000000", "[:5, :1]");
        check_ttl(c, "n", 2000);
        c.check("INCREX n UBOUND 5 PERSIST", "[:5, :0]");
        c.check("INCREX n UBOUND 5 EX 9000", "[:5, :0]");
        check_ttl(c, "n", 2000);
        c.check("INCREX n UBOUND 5 SATURATE PXAT 9999999999123", "[:5, :0]");
        c.check("PEXPIRETIME n", ":9999999999123");
        check_floats(c, "INCREX n PERSIST BYFLOAT 0.5", ["5.5", "0.5"]);
        c.check("TTL n", ":-1");
        c.check("SET n 5", "+OK");
        c.check("INCREX n EX 1000 ENX", "[:6, :1]");
        check_ttl(c, "n", 1000);
        c.check("INCREX n EXAT 1", "[:7, :1]");
        c.check("EXISTS n", ":0");
        c.check("INCREX n PXAT 1", "[:1, :1]");
        c.check("EXISTS n", ":0");
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
        ("INCREX k", false, false),
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
    for name in ["digest", "delex", "delifeq", "msetex", "increx"] {
        let categories = c.ask(&format!("COMMAND INFO {name}")).items()[0].items()[6].to_string();
        let expected = match name {
            "digest" => "[+@read, +@string, +@fast]",
            "msetex" => "[+@write, +@string, +@slow]",
            _ => "[+@write, +@string, +@fast]",
        };
        assert_eq!(categories, expected, "{name}");
    }
}
