//! Sorted sets, in both protocols.

use std::collections::BTreeMap;

use tierce_harness::{Connection, Server, TempDir};

use crate::{launch, server};

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

/// Runs `test` with a RESP2 connection to its own empty server.
fn with_server(test: impl Fn(&mut Connection)) {
    let server = server();
    test(&mut server.connect());
}

/// Runs `test` for a small set and a large one: with these limits, keys that begin with `large` are
/// large.
fn in_both_forms(test: impl Fn(&mut Connection)) {
    with_server(|c| {
        for entries_max in [0, 128] {
            c.check("FLUSHALL", "+OK");
            c.check(&format!("CONFIG SET zset-max-listpack-entries {entries_max}"), "+OK");
            test(c);
        }
    });
}

#[test]
fn an_infinity_with_the_weight_0_is_0_in_any_order() {
    in_both_forms(|c| {
        c.check("ZADD a inf m", ":1");
        c.check("ZADD b 5 m", ":1");
        for command in ["ZINTER", "ZUNION"] {
            for (aggregate, score) in [("SUM", "5"), ("MIN", "0"), ("MAX", "5")] {
                for keys in ["a b WEIGHTS 0 1", "b a WEIGHTS 1 0"] {
                    let line = format!("{command} 2 {keys} AGGREGATE {aggregate} WITHSCORES");
                    c.check(&line, &format!(r#"["m", "{score}"]"#));
                }
            }
        }
    });
}

#[test]
fn members_get_scores() {
    in_both_forms(|c| {
        c.check("ZADD z 1 a 2 b 1.5 c", ":3");
        c.check("ZADD z 1 a 3 b 4 d", ":1");
        c.check("ZADD z CH 1 a 2 b 5 e", ":2");
        c.check("ZADD z NX 9 a 6 f", ":1");
        c.check("ZADD z XX 9 g", ":0");
        c.check("ZADD z GT CH 0 a 7 b", ":1");
        c.check("ZADD z LT CH 0 a 8 b", ":1");
        c.check("ZADD z INCR 2.5 a", "\"2.5\"");
        c.check("ZADD z NX INCR 1 a", "nil");
        c.check("ZINCRBY z -1 new", "\"-1\"");
        c.check("ZRANGE z 0 -1", "[\"new\", \"c\", \"a\", \"d\", \"e\", \"f\", \"b\"]");
        c.check("ZMSCORE z a b nosuch", "[\"2.5\", \"7\", nil]");
        c.check("ZCARD z", ":7");
        c.check("ZREM z new nosuch a", ":2");
        c.check("ZSCORE z a", "nil");
        c.check("ZREM z b c d e f", ":5");
        c.check("EXISTS z", ":0");
        c.check("ZADD z XX 1 a", ":0");
        c.check("EXISTS z", ":0");
    });
}

#[test]
fn mistakes() {
    with_server(|c| {
        for (line, error) in [
            ("ZADD z 1", "wrong number of arguments for 'zadd' command"),
            ("ZADD z 1 a 2", "syntax error"),
            ("ZADD z NX 1", "syntax error"),
            ("ZADD z x a", "value is not a valid float"),
            ("ZADD z 1 a nan b", "value is not a valid float"),
            ("ZADD z NX XX 1 a", "XX and NX options at the same time are not compatible"),
            ("ZADD z GT LT 1 a", "GT, LT, and/or NX options at the same time are not compatible"),
            ("ZADD z INCR 1 a 1 b", "INCR option supports a single increment-element pair"),
            ("ZCOUNT z x 1", "min or max is not a float"),
            ("ZLEXCOUNT z a [b", "min or max not valid string range item"),
            ("ZRANGE z 0 1 WITHSCORES NOSUCH", "syntax error"),
            (
                "ZRANGE z 0 1 LIMIT 0 1",
                "syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ),
            (
                "ZRANGEBYLEX z - + WITHSCORES",
                "syntax error, WITHSCORES not supported in combination with BYLEX",
            ),
            ("ZPOPMIN z -1", "value is out of range, must be positive"),
            ("ZMPOP 0 z MIN", "numkeys should be greater than 0"),
            ("ZMPOP 1 z MIN COUNT 0", "count should be greater than 0"),
            ("ZMPOP 1 z MIN COUNT 0 COUNT 1", "count should be greater than 0"),
            ("ZMPOP 1 z MIN COUNT 1 COUNT 1", "syntax error"),
            ("ZUNION 0 z", "at least 1 input key is needed for 'zunion' command"),
            ("ZUNION 2 z", "syntax error"),
            ("ZUNION 1 z WEIGHTS x", "weight value is not a float"),
            ("ZINTERCARD 1 z LIMIT -1", "LIMIT can't be negative"),
            ("ZRANK z a NOSUCH", "syntax error"),
            ("ZSCAN z x", "invalid cursor"),
        ] {
            c.check(line, &format!("-ERR {error}"));
        }
        c.check("ZADD z inf a", ":1");
        c.check("ZADD z INCR -inf a", "-ERR resulting score is not a number (NaN)");
        c.check("SET text 1", "+OK");
        for line in [
            "ZADD text 1 a",
            "ZINCRBY text 1 a",
            "ZRANGE text 0 -1",
            "ZPOPMIN text 0",
            "ZMPOP 2 nosuch text MIN",
            "ZUNION 1 text NOSUCH",
            "ZRANGESTORE d text 0 -1",
            "ZSCAN text 0",
        ] {
            c.check(line, WRONG_TYPE);
        }
    });
}

#[test]
fn ranges() {
    in_both_forms(|c| {
        c.check("ZADD z 1 a 2 b 2 c 3 d 4 e", ":5");
        for (line, expected) in [
            ("ZRANGE z 1 2", "b c"),
            ("ZRANGE z -2 9", "d e"),
            ("ZRANGE z 3 1", ""),
            ("ZRANGE z 0 1 REV", "e d"),
            ("ZREVRANGE z 0 1", "e d"),
            ("ZRANGE z (1 3 BYSCORE", "b c d"),
            ("ZRANGE z 3 (1 BYSCORE REV LIMIT 1 2", "c b"),
            ("ZRANGEBYSCORE z -inf +inf LIMIT 1 2", "b c"),
            ("ZRANGEBYSCORE z -inf +inf LIMIT -1 2", ""),
            ("ZRANGEBYSCORE z 2 2 LIMIT 1 -1", "c"),
            ("ZREVRANGEBYSCORE z 3 (1", "d c b"),
        ] {
            let reply = c.ask(line);
            let members: Vec<_> = reply.items().iter().map(|member| member.text()).collect();
            assert_eq!(members.join(" "), expected, "{line}");
        }
        c.check("ZRANGE z 0 0 WITHSCORES", "[\"a\", \"1\"]");
        c.check("ZRANK z c", ":2");
        c.check("ZREVRANK z c", ":2");
        c.check("ZRANK z c WITHSCORE", "[:2, \"2\"]");
        c.check("ZRANK z nosuch", "nil");
        c.check("ZRANK z nosuch WITHSCORE", "nil-array");
        c.check("ZCOUNT z 2 (4", ":3");
        c.check("ZRANGESTORE d z 1 3 BYSCORE REV LIMIT 0 1", ":0");
        c.check("ZRANGESTORE d z 3 1 BYSCORE REV LIMIT 0 2", ":2");
        c.check("ZRANGE d 0 -1 WITHSCORES", "[\"c\", \"2\", \"d\", \"3\"]");
        c.check("ZRANGESTORE d nosuch 0 -1", ":0");
        c.check("EXISTS d", ":0");
        c.check("ZREMRANGEBYSCORE z (1 2", ":2");
        c.check("ZREMRANGEBYRANK z 0 0", ":1");
        c.check("ZRANGE z 0 -1", "[\"d\", \"e\"]");
        c.check("ZADD l 0 a 0 b 0 c 0 d", ":4");
        c.check("ZRANGEBYLEX l (a [c", "[\"b\", \"c\"]");
        c.check("ZREVRANGEBYLEX l + [c", "[\"d\", \"c\"]");
        c.check("ZRANGE l + - BYLEX REV LIMIT 1 2", "[\"c\", \"b\"]");
        c.check("ZLEXCOUNT l - (c", ":2");
        c.check("ZREMRANGEBYLEX l [b [c", ":2");
        c.check("ZCARD l", ":2");
    });
}

#[test]
fn members_are_popped_from_either_end() {
    in_both_forms(|c| {
        c.check("ZADD z 1 a 2 b 3 c 4 d 5 e", ":5");
        c.check("ZPOPMIN z", "[\"a\", \"1\"]");
        c.check("ZPOPMAX z 2", "[\"e\", \"5\", \"d\", \"4\"]");
        c.check("ZPOPMAX z 0", "[]");
        c.check("ZMPOP 2 nosuch z MIN", "[\"z\", [[\"b\", \"2\"]]]");
        c.check("ZMPOP 2 nosuch z MAX COUNT 9", "[\"z\", [[\"c\", \"3\"]]]");
        c.check("EXISTS z", ":0");
        c.check("ZMPOP 2 nosuch z MAX", "nil-array");
        c.check("ZPOPMIN z", "[]");
    });
}

#[test]
fn sets_are_combined() {
    in_both_forms(|c| {
        c.check("ZADD a 1 x 2 y 3 z", ":3");
        c.check("ZADD b 10 y 20 z 30 w", ":3");
        c.check("ZUNION 2 a b", "[\"x\", \"y\", \"z\", \"w\"]");
        c.check("ZINTER 2 a b WITHSCORES", "[\"y\", \"12\", \"z\", \"23\"]");
        c.check("ZINTER 2 a b AGGREGATE MAX WITHSCORES", "[\"y\", \"10\", \"z\", \"20\"]");
        c.check("ZDIFF 2 a b WITHSCORES", "[\"x\", \"1\"]");
        c.check("ZINTERCARD 2 a b", ":2");
        c.check("ZINTERCARD 2 a b LIMIT 1", ":1");
        c.check("ZUNIONSTORE d 2 a b WEIGHTS 2 -1 AGGREGATE MIN", ":4");
        c.check("ZRANGE d 0 0 WITHSCORES", "[\"w\", \"-30\"]");
        c.check("ZINTERSTORE a 2 a b", ":2");
        c.check("ZSCORE a z", "\"23\"");
        c.check("ZDIFFSTORE d 2 a b", ":0");
        c.check("EXISTS d", ":0");
        c.check("ZADD i inf x", ":1");
        c.check("ZADD j -inf x", ":1");
        c.check("ZUNION 2 i j WITHSCORES", "[\"x\", \"0\"]");
    });
}

#[test]
fn sets_are_counted_by_their_weights() {
    in_both_forms(|c| {
        c.check("ZADD a 7 x inf y", ":2");
        c.check("ZADD b -3 y 20 z", ":2");
        c.check("SADD s y", ":1");
        for (arguments, expected) in [
            ("ZUNION 3 a b s AGGREGATE count WITHSCORES", r#"["x", "1", "z", "1", "y", "3"]"#),
            ("ZINTER 3 a b s AGGREGATE COUNT WITHSCORES", r#"["y", "3"]"#),
            (
                "ZINTER 2 a a WEIGHTS 2 0.5 AGGREGATE COUNT WITHSCORES",
                r#"["x", "2.5", "y", "2.5"]"#,
            ),
            (
                "ZUNION 2 a b WEIGHTS 0 -4 AGGREGATE COUNT WITHSCORES",
                r#"["y", "-4", "z", "-4", "x", "0"]"#,
            ),
            ("ZINTER 2 a b WEIGHTS inf -inf AGGREGATE COUNT WITHSCORES", r#"["y", "0"]"#),
            ("ZUNIONSTORE d 3 a b s AGGREGATE COUNT", ":3"),
            ("ZRANGE d 0 -1 WITHSCORES", r#"["x", "1", "z", "1", "y", "3"]"#),
            ("ZINTERSTORE d 2 b s WEIGHTS 3 4 AGGREGATE COUNT", ":1"),
            ("ZRANGE d 0 -1 WITHSCORES", r#"["y", "7"]"#),
            ("ZDIFF 1 a AGGREGATE COUNT", "-ERR syntax error"),
            ("ZUNION 1 a AGGREGATE AVERAGE", "-ERR syntax error"),
        ] {
            c.check(arguments, expected);
        }
    });
}

#[test]
fn resp3_has_doubles_and_pairs() {
    let server = server();
    let mut c = server.connect_resp3();
    c.check("ZADD z 1 a 2.5 b inf c", ":3");
    c.check("ZSCORE z b", ",2.5");
    c.check("ZINCRBY z 1 a", ",2");
    c.check("ZMSCORE z c nosuch", "[,inf, null]");
    c.check("ZRANGE z 0 1 WITHSCORES", "[[\"a\", ,2], [\"b\", ,2.5]]");
    c.check("ZREVRANGEBYSCORE z +inf 2.5 WITHSCORES LIMIT 0 1", "[[\"c\", ,inf]]");
    c.check("ZUNION 1 z WITHSCORES", "[[\"a\", ,2], [\"b\", ,2.5], [\"c\", ,inf]]");
    c.check("ZRANK z b WITHSCORE", "[:1, ,2.5]");
    c.check("ZRANDMEMBER nosuch", "null");
    c.check("ZPOPMIN z", "[\"a\", ,2]");
    c.check("ZPOPMIN z 1", "[[\"b\", ,2.5]]");
    c.check("ZSCAN z 0", "[\"0\", [\"c\", \"inf\"]]");
    c.check("ZMPOP 1 z MIN", "[\"z\", [[\"c\", ,inf]]]");
    c.check("ZMPOP 1 z MIN", "null");
}

#[test]
fn members_by_chance_and_bit_by_bit() {
    with_server(|c| {
        let mut model = BTreeMap::new();
        for number in 0..1000 {
            let member = format!("member:{}", number * 7);
            c.ask(&format!("ZADD z {number} {member}"));
            model.insert(member, number.to_string());
        }
        for wanted in [0, 5, 500, 5000] {
            let reply = c.ask(&format!("ZRANDMEMBER z {wanted} WITHSCORES"));
            let drawn: BTreeMap<_, _> = pairs(reply.items()).into_iter().collect();
            assert_eq!(drawn.len(), wanted.min(model.len()));
            assert!(drawn.iter().all(|(member, score)| model.get(member) == Some(score)));
        }
        assert_eq!(c.ask("ZRANDMEMBER z -3000").items().len(), 3000);
        c.check("ZRANDMEMBER z -4000000000000000000", "-ERR value is out of range");
        let (mut cursor, mut found) = ("0".to_owned(), BTreeMap::new());
        loop {
            let reply = c.ask(&format!("ZSCAN z {cursor} COUNT 30"));
            found.extend(pairs(reply.items()[1].items()));
            reply.items()[0].text().clone_into(&mut cursor);
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(found, model);
        let matching = c.ask("ZSCAN z 0 MATCH member:70 COUNT 100000");
        assert_eq!(pairs(matching.items()[1].items()), [("member:70".into(), "10".into())]);
    });
}

fn pairs(items: &[tierce_harness::Reply]) -> Vec<(String, String)> {
    let text = |item: &tierce_harness::Reply| item.text().to_owned();
    items.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

#[test]
fn the_encoding_follows_the_configuration() {
    with_server(|c| {
        c.check("CONFIG SET zset-max-ziplist-entries 3", "+OK");
        c.check("CONFIG GET zset-max-listpack-entries", "[\"zset-max-listpack-entries\", \"3\"]");
        c.check("ZADD z 1 a 2 b 3 c", ":3");
        c.check("OBJECT ENCODING z", "\"listpack\"");
        c.check("ZADD z 4 d", ":1");
        c.check("OBJECT ENCODING z", "\"skiplist\"");
        c.check("ZRANGE z 0 -1", "[\"a\", \"b\", \"c\", \"d\"]");
        c.ask(&format!("ZADD y 1 {}", "x".repeat(65)));
        c.check("OBJECT ENCODING y", "\"skiplist\"");
        c.check("TYPE y", "+zset");
    });
}

#[test]
fn sets_survive_a_kill_a_save_and_a_dump() {
    let dir = TempDir::new();
    for appendonly in ["yes", "no"] {
        let own = dir.path().join(appendonly);
        std::fs::create_dir_all(&own).expect("a directory");
        let launch =
            launch().with("appendonly", appendonly).with("dir", &own.display().to_string());
        let server = launch.start();
        let mut c = server.connect();
        c.check("ZADD small 1 a 0.1 b -inf 12 -0 '' 1e300 d", ":5");
        for number in 0..500 {
            c.ask(&format!("ZADD large {} member:{number}", number % 10));
        }
        c.check("ZPOPMAX large", "[\"member:99\", \"9\"]");
        c.check("ZREMRANGEBYSCORE large 0 0", ":50");
        c.check("ZUNIONSTORE union 2 small large WEIGHTS 1 -1", ":454");
        let all = |c: &mut Connection| {
            ["small", "large", "union"]
                .map(|key| c.ask(&format!("ZRANGE {key} 0 -1 WITHSCORES")).to_string())
        };
        let expected = all(&mut c);
        for key in ["small", "large"] {
            let payload = c.call(&["DUMP", key]).bytes().to_vec();
            c.check(&format!("DEL {key}"), ":1");
            let restored = c.call(&[&b"RESTORE"[..], key.as_bytes(), b"0", &payload]);
            assert_eq!(restored.to_string(), "+OK");
        }
        assert_eq!(all(&mut c), expected);
        if appendonly == "no" {
            c.check("SAVE", "+OK");
        }
        drop::<Server>(server);
        let server = launch.start();
        let mut c = server.connect();
        assert_eq!(all(&mut c), expected);
        c.check("OBJECT ENCODING small", "\"listpack\"");
        c.check("OBJECT ENCODING large", "\"skiplist\"");
    }
}

#[test]
fn a_key_may_be_named_again_and_counts_each_time() {
    let server = crate::server();
    let mut c = server.connect();
    c.check("ZADD z 1 a 2 b", ":2");
    c.check("SADD s a", ":1");
    c.check("ZINTER 3 z z z WEIGHTS 1 2 3 WITHSCORES", "[\"a\", \"6\", \"b\", \"12\"]");
    c.check("ZINTER 4 z s z s WEIGHTS 1 10 2 20 WITHSCORES", "[\"a\", \"33\"]");
    c.check(
        "ZINTER 3 z z z WEIGHTS 1 2 3 AGGREGATE MAX WITHSCORES",
        "[\"a\", \"3\", \"b\", \"6\"]",
    );
    c.check("ZUNION 3 z s z WITHSCORES", "[\"a\", \"3\", \"b\", \"4\"]");
    c.check("ZINTERCARD 3 z s z", ":1");
    c.check("ZDIFF 3 z s s", "[\"b\"]");
    c.check("ZDIFF 3 z s z", "[]");
    c.check("ZDIFFSTORE z 2 z z", ":0");
}
