//! Strings, used through the `redis` crate like an application does, in both protocols.

use redis::{Commands, Connection};

use crate::both_protocols::redis::{error, run, with_both};
use crate::server;

type Text = Option<String>;

#[test]
fn set_and_its_options() {
    with_both(|c| {
        let text = |c: &mut Connection, line: &str| run::<Text>(c, line).expect(line);
        assert_eq!(text(c, "SET k a"), Some("OK".into()));
        assert_eq!(text(c, "SET k b NX"), None);
        assert_eq!(text(c, "SET k b XX"), Some("OK".into()));
        assert_eq!(text(c, "SET absent b XX"), None);
        assert_eq!(text(c, "SET k c GET"), Some("b".into()));
        assert_eq!(text(c, "SET k d NX GET"), Some("c".into()));
        assert_eq!(text(c, "SET new e NX GET"), None);
        assert_eq!(text(c, "GET new"), Some("e".into()));
        assert_eq!(text(c, "SET k f EX 100"), Some("OK".into()));
        assert_eq!(text(c, "SET k g KEEPTTL"), Some("OK".into()));
        assert!(c.ttl::<_, i64>("k").expect("a time") > 90);
        assert_eq!(text(c, "SET k h PXAT 99999999999999 XX GET"), Some("g".into()));
        assert_eq!(text(c, "SET k i EXAT 99999999999"), Some("OK".into()));
        assert_eq!(run::<i64>(c, "EXPIRETIME k"), Ok(99_999_999_999));
        for line in [
            "SET k a NX XX",
            "SET k a EX",
            "SET k a EX 10 EXAT 10",
            "SET k a NOSUCH",
            "SET k a GET GET GET 1",
        ] {
            assert_eq!(error(c, line), "syntax error", "{line}");
        }
        assert_eq!(text(c, "GET k"), Some("i".into()));
    });
}

#[test]
fn the_older_ways_to_set() {
    with_both(|c| {
        assert_eq!(c.set_nx("k", "a"), Ok(true));
        assert_eq!(c.set_nx("k", "b"), Ok(false));
        assert_eq!(c.getset("k", "c"), Ok(Some("a".to_owned())));
        assert_eq!(c.getset("other", "x"), Ok(None::<String>));
        assert_eq!(c.set_ex("k", "d", 100), Ok(()));
        assert_eq!(c.pset_ex("k2", "e", 100_000), Ok(()));
        assert!(c.ttl::<_, i64>("k").expect("a time") > 90);
        assert!(c.pttl::<_, i64>("k2").expect("a time") > 90_000);
        assert_eq!(run(c, "GETEX k PERSIST"), Ok(Some("d".to_owned())));
        assert_eq!(c.ttl("k"), Ok(-1));
        assert_eq!(run(c, "GETEX k2 EXAT 99999999999"), Ok(Some("e".to_owned())));
        assert_eq!(run(c, "EXPIRETIME k2"), Ok(99_999_999_999_i64));
        assert_eq!(c.get_del("k"), Ok(Some("d".to_owned())));
        assert_eq!(c.get_del("k"), Ok(None::<String>));
        assert_eq!(error(c, "GETEX k2 EX"), "syntax error");
        assert_eq!(error(c, "SETEX k x v"), "value is not an integer or out of range");
    });
}

#[test]
fn several_at_once() {
    with_both(|c| {
        assert_eq!(c.mset(&[("a", "1"), ("b", "2"), ("a", "3")]), Ok(()));
        let values: Vec<Text> = c.mget(&["a", "b", "absent", "a"]).expect("values");
        assert_eq!(values, [Some("3".into()), Some("2".into()), None, Some("3".into())]);
        assert_eq!(c.mset_nx(&[("c", "1"), ("b", "9")]), Ok(false));
        assert_eq!(c.exists("c"), Ok(false));
        assert_eq!(c.mset_nx(&[("c", "1"), ("d", "2")]), Ok(true));
        let many: Vec<(String, usize)> = (0..1000).map(|n| (format!("key:{n}"), n)).collect();
        assert_eq!(c.mset(&many), Ok(()));
        let keys: Vec<_> = many.iter().map(|(key, _)| key).collect();
        let values: Vec<usize> = c.mget(&keys).expect("values");
        assert!(values.into_iter().eq(0..1000));
        assert_eq!(c.del(&keys), Ok(1000));
    });
}

#[test]
fn counters() {
    with_both(|c| {
        assert_eq!(c.incr("n", 1), Ok(1));
        assert_eq!(c.incr("n", 41), Ok(42));
        assert_eq!(c.decr("n", 50), Ok(-8));
        assert_eq!(run(c, "INCR n"), Ok(-7));
        assert_eq!(run(c, "DECR n"), Ok(-8));
        assert_eq!(run(c, "SET n 9223372036854775806"), Ok("OK".to_owned()));
        assert_eq!(run(c, "INCR n"), Ok(i64::MAX));
        let overflow = "increment or decrement would overflow";
        assert_eq!(error(c, "INCR n"), overflow);
        assert_eq!(run(c, "SET n -9223372036854775808"), Ok("OK".to_owned()));
        assert_eq!(error(c, "DECR n"), overflow);
        assert_eq!(error(c, "INCRBY n -1"), overflow);
        assert_eq!(error(c, "DECRBY n -9223372036854775808"), "decrement would overflow");
        let not_a_number = "value is not an integer or out of range";
        for value in ["12ab", "007", "+5", "''", "' 1'", "1.0", "9223372036854775808"] {
            run::<()>(c, &format!("SET n {value}")).expect("stored");
            assert_eq!(error(c, "INCR n"), not_a_number, "{value}");
            assert_eq!(error(c, &format!("INCRBY m {value}")), not_a_number, "{value}");
        }
        assert_eq!(c.exists("m"), Ok(false));
    });
}

#[test]
fn floating_point_counters() {
    with_both(|c| {
        for (start, step, sum) in [
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("3", "-3", "0"),
            ("1", "1e-17", "1.00000000000000001"),
            ("0", "-0.0", "0"),
            ("1e20", "1", "100000000000000000000"),
            ("0.1", "0.2", "0.3"),
        ] {
            run::<()>(c, &format!("SET f {start}")).expect("stored");
            assert_eq!(
                run(c, &format!("INCRBYFLOAT f {step}")),
                Ok(sum.to_owned()),
                "{start} + {step}"
            );
            assert_eq!(run(c, "GET f"), Ok(sum.to_owned()));
        }
        for line in
            ["INCRBYFLOAT f x", "INCRBYFLOAT f ''", "INCRBYFLOAT f '1 '", "INCRBYFLOAT f nan"]
        {
            assert_eq!(error(c, line), "value is not a valid float", "{line}");
        }
        assert_eq!(error(c, "INCRBYFLOAT f inf"), "increment would produce NaN or Infinity");
        run::<()>(c, "SET f abc").expect("stored");
        assert_eq!(error(c, "INCRBYFLOAT f 1"), "value is not a valid float");
    });
}

#[test]
fn parts_of_a_string() {
    with_both(|c| {
        assert_eq!(c.append("s", "Hello"), Ok(5));
        assert_eq!(c.append("s", " World"), Ok(11));
        assert_eq!(c.append("s", ""), Ok(11));
        assert_eq!(c.strlen("s"), Ok(11));
        assert_eq!(c.strlen("absent"), Ok(0));
        for (start, end, part) in [
            (0, 4, "Hello"),
            (-5, -1, "World"),
            (0, -1, "Hello World"),
            (3, 1, ""),
            (6, 100, "World"),
            (-100, 1, "He"),
            (100, 200, ""),
            (-1, -5, ""),
            (10, 10, "d"),
            (-100, -50, "H"),
        ] {
            assert_eq!(c.getrange("s", start, end), Ok(part.to_owned()), "{start} {end}");
            assert_eq!(run(c, &format!("SUBSTR s {start} {end}")), Ok(part.to_owned()));
        }
        assert_eq!(c.getrange("absent", 0, -1), Ok(String::new()));
        assert_eq!(c.setrange("s", 6, "Redis"), Ok(11));
        assert_eq!(c.get("s"), Ok("Hello Redis".to_owned()));
        assert_eq!(c.setrange("gap", 3, "x"), Ok(4));
        assert_eq!(c.get("gap"), Ok(b"\0\0\0x".to_vec()));
        assert_eq!(c.setrange("none", 3, ""), Ok(0));
        assert_eq!(c.exists("none"), Ok(false));
        assert_eq!(error(c, "SETRANGE s -1 x"), "offset is out of range");
        run::<()>(c, "SET int 12345").expect("stored");
        assert_eq!(c.append("int", "6"), Ok(6));
        assert_eq!(c.incr("int", 1), Ok(123_457));
        assert_eq!(c.setrange("int", 0, "9"), Ok(6));
        assert_eq!(c.getrange("int", 0, 1), Ok("92".to_owned()));
    });
}

#[test]
fn longest_common_subsequence() {
    with_both(|c| {
        c.mset::<_, _, ()>(&[("a", "ohmytext"), ("b", "mynewtext")]).expect("stored");
        assert_eq!(run(c, "LCS a b"), Ok("mytext".to_owned()));
        assert_eq!(run(c, "LCS a b LEN"), Ok(6));
        assert_eq!(run(c, "LCS a absent"), Ok(String::new()));
        let long = "If you want both the length and indexes, please just use IDX.";
        assert_eq!(error(c, "LCS a b LEN IDX"), long);
        assert_eq!(error(c, "LCS a b NOSUCH"), "syntax error");
    });
    let server = server();
    let mut raw = server.connect_resp3();
    raw.check("MSET a ohmytext b mynewtext", "+OK");
    raw.check(
        "LCS a b IDX",
        "{\"matches\": [[[:4, :7], [:5, :8]], [[:2, :3], [:0, :1]]], \"len\": :6}",
    );
    raw.check(
        "LCS a b IDX MINMATCHLEN 4 WITHMATCHLEN",
        "{\"matches\": [[[:4, :7], [:5, :8], :4]], \"len\": :6}",
    );
}
