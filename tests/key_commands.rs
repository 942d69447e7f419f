//! Keys of any type, through the `redis` crate, in both protocols.

use std::collections::BTreeSet;

use redis::Commands;

use crate::both_protocols::redis::{run, with_both};

#[test]
fn deleting_and_counting() {
    with_both(|c| {
        c.mset::<_, _, ()>(&[("a", 1), ("b", 2), ("c", 3), ("d", 4)]).expect("stored");
        assert_eq!(run(c, "EXISTS a b a absent"), Ok(3));
        assert_eq!(run(c, "TOUCH a b a absent"), Ok(3));
        assert_eq!(run(c, "DEL a a absent"), Ok(1));
        assert_eq!(run(c, "UNLINK b c absent"), Ok(2));
        assert_eq!(run(c, "DBSIZE"), Ok(1));
        assert_eq!(run(c, "TYPE d"), Ok("string".to_owned()));
        assert_eq!(run(c, "TYPE a"), Ok("none".to_owned()));
    });
}

/// Large values are freed in the background, without a visible difference.
#[test]
fn large_values_can_be_deleted_in_every_way() {
    with_both(|c| {
        let large = vec![b'x'; 8 << 20];
        for line in [
            "DEL k",
            "UNLINK k",
            "GETDEL k",
            "SET k 1",
            "FLUSHDB ASYNC",
            "EXPIRE k 0",
            "MSET k 2",
            "RENAME other k",
            "COPY other k REPLACE",
        ] {
            let _: () = c.set("k", &large).expect("stored");
            let _: () = c.set("other", 1).expect("stored");
            run::<redis::Value>(c, line).expect(line);
            let left: Option<Vec<u8>> = c.get("k").expect("an answer");
            assert!(left.is_none_or(|value| value.len() == 1), "{line}");
        }
    });
}

#[test]
fn renaming() {
    with_both(|c| {
        c.mset::<_, _, ()>(&[("a", 1), ("b", 2)]).expect("stored");
        assert_eq!(run(c, "RENAMENX a b"), Ok(0));
        assert_eq!(run(c, "RENAMENX a c"), Ok(1));
        assert_eq!(run(c, "RENAME c b"), Ok("OK".to_owned()));
        assert_eq!(c.get("b"), Ok(1));
        assert_eq!(run(c, "RENAME b b"), Ok("OK".to_owned()));
        assert_eq!(run(c, "RENAMENX b b"), Ok(0));
        assert_eq!(run(c, "DBSIZE"), Ok(1));
        for line in ["RENAME absent x", "RENAMENX absent x", "RENAME absent absent"] {
            let error = run::<String>(c, line).expect_err(line);
            assert_eq!(error.detail(), Some("no such key"), "{line}");
        }
    });
}

#[test]
fn copying() {
    with_both(|c| {
        let _: () = c.set("a", "value").expect("stored");
        assert_eq!(run(c, "COPY a b"), Ok(1));
        assert_eq!(run(c, "COPY a b"), Ok(0));
        assert_eq!(run(c, "COPY absent b REPLACE"), Ok(0));
        assert_eq!(c.append("b", "!"), Ok(6));
        assert_eq!(c.get("a"), Ok("value".to_owned()));
        assert_eq!(run(c, "COPY a b REPLACE DB 0"), Ok(1));
        assert_eq!(c.get("b"), Ok("value".to_owned()));
        let error = run::<i64>(c, "COPY a b NOSUCH").expect_err("an unknown option");
        assert_eq!(error.detail(), Some("syntax error"));
    });
}

#[test]
fn patterns() {
    with_both(|c| {
        let keys = [
            "hello", "hallo", "hxllo", "hllo", "heeeello", "h*llo", "h[llo", "h-llo", "user:1", "",
        ];
        for key in keys {
            let _: () = c.set(key, 1).expect("stored");
        }
        for (pattern, expected) in [
            ("h?llo", "h*llo h-llo h[llo hallo hello hxllo"),
            ("h*o", "h*llo h-llo h[llo hallo heeeello hello hllo hxllo"),
            ("h[ae]llo", "hallo hello"),
            ("h[^e]llo", "h*llo h-llo h[llo hallo hxllo"),
            ("h[a-e]llo", "hallo hello"),
            ("h[e-a]llo", "hallo hello"),
            ("h\\*llo", "h*llo"),
            ("h[\\[]llo", "h[llo"),
            ("user:*", "user:1"),
            ("H*", ""),
            ("h[ae", ""),
            ("*user*", "user:1"),
        ] {
            let found: BTreeSet<String> = c.keys(pattern).expect("keys");
            let found: Vec<_> = found.into_iter().collect();
            assert_eq!(found.join(" "), expected, "{pattern}");
        }
        assert_eq!(c.keys::<_, Vec<String>>("*").expect("keys").len(), keys.len());
    });
}

#[test]
fn iterating() {
    with_both(|c| {
        let pairs: Vec<(String, usize)> = (0..500).map(|n| (format!("key:{n}"), n)).collect();
        let _: () = c.mset(&pairs).expect("stored");
        let found: BTreeSet<String> =
            c.scan().expect("an iterator").map(|key| key.expect("a key")).collect();
        assert_eq!(found.len(), 500);
        let some: BTreeSet<String> =
            c.scan_match("key:1??").expect("an iterator").map(|key| key.expect("a key")).collect();
        assert_eq!(some.len(), 100);
    });
}

#[test]
fn a_random_key_is_one_of_the_keys() {
    with_both(|c| {
        assert_eq!(run(c, "RANDOMKEY"), Ok(None::<String>));
        let pairs: Vec<(String, usize)> = (0..20).map(|n| (format!("key:{n}"), n)).collect();
        let _: () = c.mset(&pairs).expect("stored");
        let seen: BTreeSet<String> =
            (0..2_000).map(|_| run(c, "RANDOMKEY").expect("a key")).collect();
        assert_eq!(seen.len(), 20, "all of them, sooner or later: {seen:?}");
        assert!(seen.iter().all(|key| pairs.iter().any(|(known, _)| known == key)));
        let _: () = c.del(seen.iter().skip(1).collect::<Vec<_>>()).expect("deleted");
        assert_eq!(run(c, "RANDOMKEY").ok(), seen.into_iter().next());
    });
}

#[test]
fn objects() {
    with_both(|c| {
        c.mset::<_, _, ()>(&[("int", "123"), ("short", "abc")]).expect("stored");
        let _: () = c.set("long", "x".repeat(45)).expect("stored");
        for (key, encoding) in [("int", "int"), ("short", "embstr"), ("long", "raw")] {
            assert_eq!(run(c, &format!("OBJECT ENCODING {key}")), Ok(encoding.to_owned()));
        }
        assert_eq!(run(c, "OBJECT REFCOUNT short"), Ok(1));
        let idle_seconds: i64 = run(c, "OBJECT IDLETIME short").expect("a number");
        assert!((0..60).contains(&idle_seconds), "{idle_seconds}");
        assert_eq!(run(c, "OBJECT ENCODING absent"), Ok(None::<String>));
        let error = run::<i64>(c, "OBJECT FREQ short").expect_err("no frequencies");
        assert!(
            error
                .detail()
                .is_some_and(|text| text.starts_with("An LFU maxmemory policy is not selected"))
        );
        let help: Vec<String> = run(c, "OBJECT HELP").expect("help");
        assert!(help.iter().any(|line| line.starts_with("ENCODING")), "{help:?}");
    });
}
