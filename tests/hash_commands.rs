//! Hashes, in both protocols, and the deadlines of their fields.

use tierce_harness::{Connection, Server, TempDir, wait_until};

use crate::both_protocols::raw::{check_nil, with_both};
use crate::{launch, server};

#[test]
fn fields_are_set_read_and_removed() {
    with_both(|c| {
        c.check("HSET h a 1 b two", ":2");
        c.check("HSET h a one c 3", ":1");
        c.check("HGET h a", "\"one\"");
        check_nil(c, "HMGET h a nosuch c", r#"["one", nil, "3"]"#);
        c.check("HMSET h d 4", "+OK");
        c.check("HLEN h", ":4");
        c.check("HKEYS h", r#"["a", "b", "c", "d"]"#);
        c.check("HVALS h", r#"["one", "two", "3", "4"]"#);
        c.check("HEXISTS h b", ":1");
        c.check("HSTRLEN h b", ":3");
        c.check("HSTRLEN h nosuch", ":0");
        c.check("HSETNX h b x", ":0");
        c.check("HSETNX h e 5", ":1");
        c.check("HDEL h a b nosuch", ":2");
        c.check("HDEL h c d e", ":3");
        c.check("EXISTS h", ":0");
        c.check("HDEL h a", ":0");
        check_nil(c, "HGET h a", "nil");
        check_nil(c, "HMGET h a b", "[nil, nil]");
        c.check("HLEN h", ":0");
        c.check("HSET h a", "-ERR wrong number of arguments for 'hset' command");
        c.check("HSET h a 1 b", "-ERR wrong number of arguments for 'hset' command");
        c.check("HMSET h a 1 b", "-ERR wrong number of arguments for 'hmset' command");
        c.check("SET s 1", "+OK");
        for line in
            ["HSET s a 1", "HGET s a", "HGETALL s", "HDEL s a", "HINCRBY s a 1", "HSCAN s 0"]
        {
            c.check(line, "-WRONGTYPE Operation against a key holding the wrong kind of value");
        }
    });
}

#[test]
fn all_of_a_hash_is_a_map() {
    let server = server();
    let (mut two, mut three) = (server.connect(), server.connect_resp3());
    two.check("HSET h a 1", ":1");
    two.check("HGETALL h", r#"["a", "1"]"#);
    three.check("HGETALL h", r#"{"a": "1"}"#);
    two.check("HGETALL nosuch", "[]");
    three.check("HGETALL nosuch", "{}");
    two.check("HRANDFIELD h 1 WITHVALUES", r#"["a", "1"]"#);
    three.check("HRANDFIELD h 1 WITHVALUES", r#"[["a", "1"]]"#);
}

#[test]
fn fields_are_counters() {
    with_both(|c| {
        c.check("HINCRBY h n 5", ":5");
        c.check("HINCRBY h n -7", ":-2");
        c.check("HINCRBYFLOAT h n 0.5", "\"-1.5\"");
        c.check("HINCRBY h n 1", "-ERR hash value is not an integer");
        c.check("HSET h text abc max 9223372036854775807", ":2");
        c.check("HINCRBY h max 1", "-ERR increment or decrement would overflow");
        c.check("HINCRBY h text 1", "-ERR hash value is not an integer");
        c.check("HINCRBYFLOAT h text 1", "-ERR hash value is not a float");
        c.check("HINCRBY h n x", "-ERR value is not an integer or out of range");
        c.check("HINCRBYFLOAT h n x", "-ERR value is not a valid float");
        c.check("HINCRBYFLOAT nosuch f 3.0e3", "\"3000\"");
        c.check("HINCRBY none n x", "-ERR value is not an integer or out of range");
        c.check("EXISTS none", ":0");
    });
}

#[test]
fn the_form_follows_size_and_configuration() {
    with_both(|c| {
        c.check("CONFIG SET hash-max-ziplist-entries 4", "+OK");
        let configured = c.ask("CONFIG GET hash-max-listpack-entries").to_string();
        assert!(configured.contains("\"4\""), "{configured}");
        c.check("HSET h a 1 b 2 c 3 d 4", ":4");
        c.check("OBJECT ENCODING h", "\"listpack\"");
        c.check("HSET h e 5", ":1");
        c.check("OBJECT ENCODING h", "\"hashtable\"");
        let long = "x".repeat(65);
        c.check(&format!("HSET long a {long}"), ":1");
        c.check("OBJECT ENCODING long", "\"hashtable\"");
        c.check("CONFIG SET hash-max-listpack-entries 512", "+OK");
    });
}

#[test]
fn random_fields_are_those_of_the_hash() {
    with_both(|c| {
        for number in 0..1000 {
            c.ask(&format!("HSET h field{number} {number}"));
        }
        for (count, expected) in
            [(0, 0), (10, 10), (900, 900), (5000, 1000), (-30, 30), (-3000, 3000)]
        {
            let reply = c.ask(&format!("HRANDFIELD h {count}"));
            assert_eq!(reply.items().len(), expected);
            let distinct: std::collections::HashSet<_> =
                reply.items().iter().map(|item| item.text().to_owned()).collect();
            assert!(count < 0 || distinct.len() == expected, "{count}");
            assert!(distinct.iter().all(|name| name.starts_with("field")));
        }
        assert!(c.ask("HRANDFIELD h").text().starts_with("field"));
        check_nil(c, "HRANDFIELD nosuch", "nil");
        c.check("HRANDFIELD nosuch 5", "[]");
        c.check("HRANDFIELD h 5 NOSUCH", "-ERR syntax error");
        // More elements than any client could read, for which no memory may be allocated.
        c.check("HRANDFIELD h -4000000000000000000", "-ERR value is out of range");
        c.check("HRANDFIELD h -2000000000 WITHVALUES", "-ERR value is out of range");
        c.check("HRANDFIELD h x", "-ERR value is not an integer or out of range");
    });
}

#[test]
fn a_scan_meets_every_field_that_stays() {
    with_both(|c| {
        for number in 0..1500 {
            c.ask(&format!("HSET h field{number} {number}"));
        }
        let (mut cursor, mut met) = ("0".to_owned(), std::collections::BTreeSet::new());
        loop {
            let reply = c.ask(&format!("HSCAN h {cursor} COUNT 20 NOVALUES"));
            cursor = reply.items()[0].text().to_owned();
            met.extend(reply.items()[1].items().iter().map(|name| name.text().to_owned()));
            if cursor == "0" {
                break;
            }
            c.ask(&format!("HDEL h field{}", 1000 + met.len() % 500));
        }
        assert!((0..1000).all(|number| met.contains(&format!("field{number}"))));
        c.check("HSET small a 1 bb 2", ":2");
        c.check("HSCAN small 0 MATCH b*", r#"["0", ["bb", "2"]]"#);
        c.check("HSCAN small 0 NOVALUES", r#"["0", ["a", "bb"]]"#);
        c.check("HSCAN small x", "-ERR invalid cursor");
        c.check("HSCAN nosuch 0 NOSUCH", r#"["0", []]"#);
        c.check("HSCAN small 0 NOSUCH", "-ERR syntax error");
        c.check("HSCAN small 0 COUNT 0", "-ERR syntax error");
    });
}

#[test]
fn fields_have_deadlines() {
    with_both(|c| {
        c.check("HSET h a 1 b 2 c 3", ":3");
        c.check("HTTL h FIELDS 2 a nosuch", "[:-1, :-2]");
        c.check("HEXPIRE h 1000 FIELDS 2 a nosuch", "[:1, :-2]");
        c.check("HEXPIRE h 1000 NX FIELDS 2 a b", "[:0, :1]");
        c.check("HEXPIRE h 2000 GT FIELDS 3 a b c", "[:1, :1, :0]");
        c.check("HEXPIRE h 1500 LT FIELDS 3 a b c", "[:1, :1, :1]");
        c.check("HEXPIRE h 1500 XX FIELDS 1 c", "[:1]");
        c.check("HPEXPIREAT h 9999999999123 FIELDS 1 a", "[:1]");
        c.check("HPEXPIRETIME h FIELDS 1 a", "[:9999999999123]");
        c.check("HEXPIRETIME h FIELDS 1 a", "[:10000000000]");
        c.check("HEXPIREAT h 9999999999 FIELDS 1 a", "[:1]");
        c.check("HPEXPIRETIME h FIELDS 1 a", "[:9999999999000]");
        let left = c.ask("HPTTL h FIELDS 1 b").items()[0].int();
        assert!((1_400_000..=1_500_000).contains(&left), "{left}");
        c.check("OBJECT ENCODING h", "\"listpackex\"");
        c.check("HINCRBY h a 5", ":6");
        c.check("HPEXPIRETIME h FIELDS 1 a", "[:9999999999000]");
        c.check("HSET h a 7", ":0");
        c.check("HTTL h FIELDS 1 a", "[:-1]");
        c.check("HPERSIST h FIELDS 3 a b nosuch", "[:-1, :1, :-2]");
        c.check("HPERSIST nosuch FIELDS 1 a", "[:-2]");
        c.check("HTTL nosuch FIELDS 1 a", "[:-2]");
        c.check("HEXPIRE h 0 FIELDS 1 a", "[:2]");
        c.check("HPEXPIREAT h 1 FIELDS 2 b c", "[:2, :2]");
        c.check("EXISTS h", ":0");
        c.check("HEXPIRE h 10 FIELDS 1 a", "[:-2]");
        c.check("HSET h a 1", ":1");
        for (line, error) in [
            ("HEXPIRE h -1 FIELDS 1 a", "ERR invalid expire time, must be >= 0"),
            ("HEXPIRE h x FIELDS 1 a", "ERR value is not an integer or out of range"),
            (
                "HEXPIRE h 9223372036854775807 FIELDS 1 a",
                "ERR invalid expire time in 'hexpire' command",
            ),
            (
                "HEXPIRE h 1 FIELDS 2 a",
                "ERR The `numfields` parameter must match the number of arguments",
            ),
            ("HEXPIRE h 1 FIELDS 0 a", "ERR Parameter `numFields` should be greater than 0"),
            ("HTTL h FIELDS 0 a", "ERR Number of fields must be a positive integer"),
            (
                "HEXPIRE h 1 NOSUCH 1 a",
                "ERR Mandatory argument FIELDS is missing or not at the right position",
            ),
            (
                "HTTL h NOSUCH 1 a",
                "ERR Mandatory argument FIELDS is missing or not at the right position",
            ),
        ] {
            c.check(line, &format!("-{error}"));
        }
    });
}

#[test]
fn fields_are_read_and_their_deadlines_set_at_the_same_time() {
    with_both(|c| {
        c.check("HSET h a 1 b 2 c 3", ":3");
        check_nil(c, "HGETEX h FIELDS 3 a nosuch b", r#"["1", nil, "2"]"#);
        c.check("HTTL h FIELDS 2 a b", "[:-1, :-1]");
        check_nil(c, "HGETEX h PXAT 9999999999123 FIELDS 2 a nosuch", r#"["1", nil]"#);
        c.check("HGETEX h FIELDS 1 b exat 9999999999", r#"["2"]"#);
        c.check("HPEXPIRETIME h FIELDS 3 a b c", "[:9999999999123, :9999999999000, :-1]");
        c.check("HGETEX h FIELDS 1 a", r#"["1"]"#);
        c.check("HGETEX h PERSIST FIELDS 3 a b c", r#"["1", "2", "3"]"#);
        c.check("HTTL h FIELDS 3 a b c", "[:-1, :-1, :-1]");
        // A deadline that has passed deletes the field at once, so its second occurrence finds nothing.
        check_nil(c, "HGETEX h EX 0 FIELDS 2 a a", r#"["1", nil]"#);
        check_nil(c, "HMGET h a b c", r#"[nil, "2", "3"]"#);
        c.check("HGETEX h PXAT 1 FIELDS 2 b c", r#"["2", "3"]"#);
        c.check("EXISTS h", ":0");
        check_nil(c, "HGETEX nosuch EX 10 FIELDS 2 a b", "[nil, nil]");
        c.check("SET text v", "+OK");
        c.check(
            "HGETEX text FIELDS 1 a",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        );
        const TWO_TIMES: &str =
            "Only one of EX, PX, EXAT, PXAT or PERSIST arguments can be specified";
        for (arguments, error) in [
            ("EX 1 PX 1 FIELDS 1 a", TWO_TIMES),
            ("PERSIST FIELDS 1 a PERSIST", TWO_TIMES),
            ("FIELDS 1 a KEEPTTL", "unknown argument: KEEPTTL"),
            ("FNX FIELDS 1 a", "unknown argument: FNX"),
            ("FIELDS 1 a b", "unknown argument: b"),
            ("FIELDS 2 a", "wrong number of arguments"),
            ("EX 10 FIELDS", "wrong number of arguments for 'hgetex' command"),
            ("FIELDS 0 a", "invalid number of fields"),
            ("FIELDS 2147483648 a", "invalid number of fields"),
            ("FIELDS 1 a FIELDS 1 b", "FIELDS keyword specified multiple times"),
            ("EX 10 PERSIST a", TWO_TIMES),
            ("FIELDS 1 a EX", "missing expire time"),
            ("EX FIELDS 1 a", "value is not an integer or out of range"),
            ("EX -1 FIELDS 1 a", "invalid expire time, must be >= 0"),
            ("PXAT 70368744177664 FIELDS 1 a", "invalid expire time in 'hgetex' command"),
        ] {
            c.check(&format!("HGETEX h {arguments}"), &format!("-ERR {error}"));
        }
    });
}

#[test]
fn fields_are_set_with_their_deadlines_and_conditions() {
    with_both(|c| {
        c.check("HSETEX h FIELDS 2 a 1 b 2", ":1");
        c.check("HSETEX h PXAT 9999999999123 FIELDS 2 a 3 c 4", ":1");
        c.check("HPEXPIRETIME h FIELDS 3 a b c", "[:9999999999123, :-1, :9999999999123]");
        c.check("HSETEX h KEEPTTL FIELDS 2 a 5 b 6", ":1");
        c.check("HPEXPIRETIME h FIELDS 2 a b", "[:9999999999123, :-1]");
        c.check("HSETEX h FIELDS 1 a 7", ":1");
        c.check("HTTL h FIELDS 1 a", "[:-1]");
        // All fields, or none.
        c.check("HSETEX h FNX FIELDS 2 d 1 a 2", ":0");
        c.check("HSETEX h FXX FIELDS 2 a 1 d 2", ":0");
        c.check("HMGET h a b c", r#"["7", "6", "4"]"#);
        c.check("HEXISTS h d", ":0");
        c.check("HSETEX h FIELDS 1 d 8 fnx", ":1");
        c.check("HSETEX h EXAT 9999999999 fxx FIELDS 1 d 9", ":1");
        c.check("HPEXPIRETIME h FIELDS 1 d", "[:9999999999000]");
        c.check("HSETEX nosuch FXX FIELDS 1 a 1", ":0");
        c.check("HSETEX new FNX FIELDS 1 a 1", ":1");
        c.check("HGET new a", "\"1\"");
        // A deadline that has passed.
        c.check("HSETEX h PX 0 FIELDS 2 a 1 e 2", ":1");
        check_nil(c, "HMGET h a b c d e", r#"[nil, "6", "4", "9", nil]"#);
        c.check("HSETEX new PXAT 1 FIELDS 2 a 1 b 2", ":1");
        c.check("HSETEX fresh PXAT 1 FIELDS 1 a 1", ":1");
        c.check("EXISTS new fresh nosuch", ":0");
        // Words of the syntax may be fields and values.
        c.check("HSETEX words FIELDS 2 EX 60 FIELDS FNX", ":1");
        c.check("HMGET words EX FIELDS", r#"["60", "FNX"]"#);
        c.check("SET text v", "+OK");
        c.check(
            "HSETEX text FIELDS 1 a 1",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        );
        const TWO_TIMES: &str =
            "Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified";
        for (arguments, error) in [
            ("KEEPTTL EX 1 FIELDS 1 a 1", TWO_TIMES),
            ("FXX FNX FIELDS 1 a 1", "Only one of FXX or FNX arguments can be specified"),
            ("FXX FIELDS 1 a 1 FXX", "Only one of FXX or FNX arguments can be specified"),
            ("PERSIST FIELDS 1 a 1", "unknown argument: PERSIST"),
            ("FIELDS 1 a 1 b", "unknown argument: b"),
            ("FIELDS 2 a 1 b", "wrong number of arguments"),
            ("EX 1 KEEPTTL a 1", TWO_TIMES),
            ("FNX FXX a 1", "Only one of FXX or FNX arguments can be specified"),
            ("EX 1 FNX KEEPTTL", TWO_TIMES),
            ("FNX EX 1 PX", TWO_TIMES),
            ("FIELDS x a 1", "invalid number of fields"),
            ("EX 1 FXX", "wrong number of arguments for 'hsetex' command"),
        ] {
            c.check(&format!("HSETEX h {arguments}"), &format!("-ERR {error}"));
        }
        c.check("HSETEX h FNX EX 1 FXX", "-ERR Only one of FXX or FNX arguments can be specified");
        c.check("HSETEX h FNX EX 1 EX2", "-ERR unknown argument: EX2");
    });
}

#[test]
fn fields_are_read_and_deleted() {
    with_both(|c| {
        c.check("HSET h a 1 b 2 c 3", ":3");
        check_nil(c, "HGETDEL h FIELDS 3 a nosuch a", r#"["1", nil, nil]"#);
        check_nil(c, "HMGET h a b c", r#"[nil, "2", "3"]"#);
        c.check("HGETDEL h FIELDS 2 b c", r#"["2", "3"]"#);
        c.check("EXISTS h", ":0");
        check_nil(c, "HGETDEL h FIELDS 1 a", "[nil]");
        c.check("SET text v", "+OK");
        c.check(
            "HGETDEL text FIELDS 1 a",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        );
        c.check(
            "HGETDEL h FIELDS 2 a",
            "-ERR The `numfields` parameter must match the number of arguments",
        );
        c.check("HGETDEL h FIELDS 0 a", "-ERR Number of fields must be a positive integer");
        c.check(
            "HGETDEL h NOSUCH 1 a",
            "-ERR Mandatory argument FIELDS is missing or not at the right position",
        );
    });
}

/// Lists of field names belong to a connection: to its transactions, and to nobody else.
#[test]
fn hashes_are_imported_with_prepared_fields() {
    with_both(|c| {
        c.check("HIMPORT PREPARE user name born", "+OK");
        c.check("HIMPORT PREPARE pair '' b", "+OK");
        c.check("HIMPORT SET u:1 user Ada 1815", "+OK");
        c.check("HIMPORT SET u:2 pair '' 2", "+OK");
        c.check("HMGET u:1 name born", r#"["Ada", "1815"]"#);
        c.check("HMGET u:2 '' b", r#"["", "2"]"#);
        // All fields are replaced, and deadlines are removed.
        c.check("HSET u:1 city London", ":1");
        c.check("HEXPIRE u:1 100 FIELDS 1 name", "[:1]");
        c.check("EXPIRE u:1 100", ":1");
        c.check("HIMPORT SET u:1 user Grace 1906", "+OK");
        c.check("HLEN u:1", ":2");
        c.check("HTTL u:1 FIELDS 2 name born", "[:-1, :-1]");
        c.check("TTL u:1", ":-1");
        c.check("HIMPORT PREPARE user a", "+OK");
        c.check("HIMPORT SET u:1 user v", "+OK");
        c.check("HLEN u:1", ":1");
        c.check("SET text v", "+OK");
        c.check(
            "HIMPORT SET text user v",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        );
        c.check("GET text", "\"v\"");
        for (arguments, error) in [
            ("PREPARE other a b a", "duplicate field name in fieldset"),
            ("SET h other 1 2 3", "no such fieldset"),
            ("SET h pair 1", "value count does not match fieldset field count"),
            ("SET h pair 1 2 3", "value count does not match fieldset field count"),
            ("PREPARE other", "wrong number of arguments for 'himport|prepare' command"),
            ("SET h pair", "wrong number of arguments for 'himport|set' command"),
            ("DISCARD", "wrong number of arguments for 'himport|discard' command"),
            ("DISCARDALL x", "wrong number of arguments for 'himport|discardall' command"),
        ] {
            c.check(&format!("HIMPORT {arguments}"), &format!("-ERR {error}"));
        }
        c.check("EXISTS h", ":0");
        c.check("HIMPORT DISCARD user", ":1");
        c.check("HIMPORT DISCARD user", ":0");
        c.check("HIMPORT SET h user v", "-ERR no such fieldset");
        c.check("MULTI", "+OK");
        c.check("HIMPORT PREPARE third x", "+QUEUED");
        c.check("HIMPORT SET h third 3", "+QUEUED");
        c.check("EXEC", "[+OK, +OK]");
        c.check("HIMPORT DISCARDALL", ":2");
        c.check("HIMPORT DISCARDALL", ":0");
        c.check("HMGET h x", r#"["3"]"#);
    });
}

#[test]
fn prepared_fields_are_limited() {
    let server = launch().with("client-query-buffer-limit", "1mb").start();
    let mut c = server.connect();
    let field = "f".repeat(400_000);
    c.check(&format!("HIMPORT PREPARE a {field}"), "+OK");
    c.check(&format!("HIMPORT PREPARE b {field}"), "+OK");
    let too_large = "-ERR fieldsets exceed client-query-buffer-limit";
    c.check(&format!("HIMPORT PREPARE c {field}"), too_large);
    c.check("HIMPORT SET h c v", "-ERR no such fieldset");
    c.check(&format!("HIMPORT PREPARE b {field}"), "+OK");
    c.check("HIMPORT DISCARD a", ":1");
    c.check(&format!("HIMPORT PREPARE c {field}"), "+OK");
    c.check("HIMPORT SET h c v", "+OK");
}

#[test]
fn prepared_fields_are_seen_by_their_connection_only() {
    let server = server();
    let (mut c, mut other) = (server.connect(), server.connect());
    let memory = |c: &mut Connection| {
        let info = c.ask("CLIENT INFO").text().to_owned();
        let (_, rest) = info.split_once(" tot-mem=").expect("it is there");
        rest.split(' ').next().expect("a number").parse::<usize>().expect("a number")
    };
    let name = "n".repeat(100_000);
    let before = memory(&mut c);
    c.check(&format!("HIMPORT PREPARE large {name}"), "+OK");
    assert!(memory(&mut c) >= before + 100_000);
    other.check("HIMPORT SET h large 1", "-ERR no such fieldset");
    // Programs neither see them nor leave any.
    const IMPORT: &str = "return redis.call('HIMPORT', 'SET', KEYS[1], ARGV[1], '1')";
    const PREPARE: &str = "redis.call('HIMPORT', 'PREPARE', 'inner', 'f')";
    let eval = |c: &mut Connection, script: &str, list: &str| {
        c.call(&["EVAL", script, "1", "h", list]).to_string()
    };
    for list in ["large", "inner"] {
        let reply = eval(&mut c, IMPORT, list);
        assert!(reply.starts_with("-ERR no such fieldset"), "{list}: {reply}");
        assert_eq!(eval(&mut c, PREPARE, list), "nil");
    }
    assert_eq!(eval(&mut c, &format!("{PREPARE} {IMPORT}"), "inner"), "+OK");
    c.check("HGETALL h", r#"["f", "1"]"#);
    c.check("HIMPORT SET h inner 1", "-ERR no such fieldset");
    assert!(memory(&mut c) >= before + 100_000);
    c.check("HIMPORT SET h large 1", "+OK");
    c.check("RESET", "+RESET");
    assert!(memory(&mut c) < before + 100_000);
    c.check("HIMPORT SET h large 1", "-ERR no such fieldset");
}

#[test]
fn fields_whose_time_has_come_are_gone() {
    with_both(|c| {
        c.check("CONFIG SET hash-max-listpack-entries 100", "+OK");
        for (key, fields) in [("small", 10), ("large", 200)] {
            for field in 0..fields {
                c.ask(&format!("HSET {key} f{field} v"));
            }
            c.ask(&format!("HPEXPIRE {key} 1 FIELDS 3 f0 f1 f2"));
            wait_until("fields expire", || c.ask(&format!("HLEN {key}")).int() == fields - 3);
            check_nil(c, &format!("HGET {key} f1"), "nil");
            check_nil(c, &format!("HMGET {key} f2 f3"), r#"[nil, "v"]"#);
            c.check(&format!("HSET {key} f1 new"), ":1");
            c.check(&format!("HTTL {key} FIELDS 1 f1"), "[:-1]");
        }
        // A hash is removed with its last field, without being read.
        c.check("HSET gone a 1 b 2", ":2");
        c.check("HPEXPIRE gone 1 FIELDS 2 a b", "[:1, :1]");
        wait_until("the hash is gone", || c.ask("DBSIZE").int() == 2);
        c.check("CONFIG SET hash-max-listpack-entries 512", "+OK");
    });
}

#[test]
fn a_hash_without_live_fields_is_gone_for_all_commands_before_they_are_removed() {
    let server = launch().with("enable-debug-command", "yes").start();
    let mut c = server.connect();
    c.check("DEBUG SET-ACTIVE-EXPIRE 0", "+OK");
    for entries in ["512", "0"] {
        c.check(&format!("CONFIG SET hash-max-listpack-entries {entries}"), "+OK");
        for (line, expected) in [
            ("EXISTS h", ":0"),
            ("TYPE h", "+none"),
            ("SCAN 0", r#"["0", []]"#),
            ("KEYS *", "[]"),
            ("RANDOMKEY", "nil"),
            ("DEL h", ":0"),
            ("PERSIST h", ":0"),
            ("RENAME h g", "-ERR no such key"),
            ("SETNX h v", ":1"),
            ("HSETNX h a 2", ":1"),
        ] {
            c.check("HSET h a 1 b 2", ":2");
            c.check("HPEXPIRE h 1 FIELDS 2 a b", "[:1, :1]");
            wait_until("the fields expire", || c.ask("HLEN h").int() == 0);
            c.check(line, expected);
            c.ask("DEL h");
        }
        // A command removes the last remaining field.
        c.check("HSET h a 1 b 2", ":2");
        c.check("HPEXPIRE h 1 FIELDS 1 a", "[:1]");
        wait_until("the field expires", || c.ask("HLEN h").int() == 1);
        c.check("MULTI", "+OK");
        c.check("HDEL h b", "+QUEUED");
        c.check("EXISTS h", "+QUEUED");
        c.check("DEL h", "+QUEUED");
        c.check("EXEC", "[:1, :0, :0]");
    }
}

/// Makes small and large hashes, with deadlines and without.
fn fill(c: &mut Connection) {
    c.check("HSET small name value number 42 empty ''", ":3");
    c.check("HSET timed a 1 b 2", ":2");
    c.check("HPEXPIREAT timed 9999999999123 FIELDS 1 a", "[:1]");
    for field in 0..700 {
        c.ask(&format!("HSET large field{field} {}", field * 3));
    }
    c.check("HPEXPIREAT large 9999999999456 FIELDS 2 field3 field600", "[:1, :1]");
}

fn check(c: &mut Connection) {
    c.check("HGETALL small", r#"["name", "value", "number", "42", "empty", ""]"#);
    c.check("OBJECT ENCODING small", "\"listpack\"");
    c.check("HPEXPIRETIME timed FIELDS 3 a b c", "[:9999999999123, :-1, :-2]");
    c.check("OBJECT ENCODING timed", "\"listpackex\"");
    c.check("HLEN large", ":700");
    c.check("HMGET large field0 field699", r#"["0", "2097"]"#);
    c.check("HPEXPIRETIME large FIELDS 2 field3 field4", "[:9999999999456, :-1]");
    c.check("OBJECT ENCODING large", "\"hashtable\"");
}

#[test]
fn hashes_survive_a_kill_and_a_save() {
    let dir = TempDir::new();
    for appendonly in ["yes", "no"] {
        let launch = launch()
            .with("appendonly", appendonly)
            .with("dir", &dir.path().join(appendonly).display().to_string());
        std::fs::create_dir_all(dir.path().join(appendonly)).expect("a directory");
        let server = launch.start();
        let mut c = server.connect();
        fill(&mut c);
        c.check("HSET small gone 1", ":1");
        c.check("HDEL small gone", ":1");
        if appendonly == "no" {
            c.check("SAVE", "+OK");
        }
        drop::<Server>(server);
        let server = launch.start();
        check(&mut server.connect());
    }
}

#[test]
fn hashes_go_through_dump_and_copy() {
    let server = server();
    let mut c = server.connect();
    fill(&mut c);
    for key in ["small", "timed", "large"] {
        let payload = c.call(&["DUMP", key]).bytes().to_vec();
        c.check(&format!("DEL {key}"), ":1");
        let restored = c.call(&[&b"RESTORE"[..], key.as_bytes(), b"0", &payload]);
        assert_eq!(restored.to_string(), "+OK");
    }
    check(&mut c);
    c.check("COPY large copy", ":1");
    c.check("DEL large", ":1");
    c.check("RENAME copy large", "+OK");
    check(&mut c);
}
