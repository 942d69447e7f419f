//! Lists, used through the `redis` crate like an application does, in both protocols.

use redis::{Connection, Value};
use tierce_harness::Reply;

use crate::both_protocols::redis::{error, run, with_both};
use crate::launch;

fn number(c: &mut Connection, line: &str) -> i64 {
    run(c, line).expect(line)
}

/// Returns an array of strings, separated by spaces; `None` for none.
fn texts(c: &mut Connection, line: &str) -> Option<String> {
    run::<Option<Vec<String>>>(c, line).expect(line).map(|texts| texts.join(" "))
}

fn text(c: &mut Connection, line: &str) -> Option<String> {
    run(c, line).expect(line)
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn pushing_and_popping() {
    with_both(|c| {
        assert_eq!(number(c, "RPUSHX l a"), 0);
        assert_eq!(number(c, "RPUSH l a b c"), 3);
        assert_eq!(number(c, "LPUSH l 1 2"), 5);
        assert_eq!(number(c, "LPUSHX l -7"), 6);
        assert_eq!(texts(c, "LRANGE l 0 -1"), some("-7 2 1 a b c"));
        assert_eq!(number(c, "LLEN l"), 6);
        assert_eq!(text(c, "LPOP l"), some("-7"));
        assert_eq!(texts(c, "RPOP l 2"), some("c b"));
        assert_eq!(texts(c, "LPOP l 0"), some(""));
        assert_eq!(texts(c, "LPOP l 100"), some("2 1 a"));
        assert_eq!(number(c, "EXISTS l"), 0);
        assert_eq!(run::<Value>(c, "LPOP l"), Ok(Value::Nil));
        assert_eq!(run::<Value>(c, "LPOP l 5"), Ok(Value::Nil));
        assert_eq!(error(c, "LPOP l -1"), "value is out of range, must be positive");
        assert_eq!(error(c, "LPOP l 1 2"), "wrong number of arguments for 'lpop' command");
    });
}

#[test]
fn elements_by_index() {
    with_both(|c| {
        run::<()>(c, "RPUSH l a b c d").expect("a list");
        assert_eq!(text(c, "LINDEX l 0"), some("a"));
        assert_eq!(text(c, "LINDEX l -1"), some("d"));
        assert_eq!(text(c, "LINDEX l 4"), None);
        assert_eq!(texts(c, "LRANGE l 1 2"), some("b c"));
        assert_eq!(texts(c, "LRANGE l -100 100"), some("a b c d"));
        assert_eq!(texts(c, "LRANGE l 0 -5"), some(""));
        assert_eq!(text(c, "LSET l -2 x"), some("OK"));
        assert_eq!(error(c, "LSET l 4 x"), "index out of range");
        assert_eq!(error(c, "LSET absent 0 x"), "no such key");
        assert_eq!(number(c, "LINSERT l BEFORE x y"), 5);
        assert_eq!(number(c, "LINSERT l after d z"), 6);
        assert_eq!(number(c, "LINSERT l BEFORE nothing z"), -1);
        assert_eq!(number(c, "LINSERT absent BEFORE a z"), 0);
        assert_eq!(texts(c, "LRANGE l 0 -1"), some("a b y x d z"));
        assert_eq!(text(c, "LTRIM l 1 -2"), some("OK"));
        assert_eq!(texts(c, "LRANGE l 0 -1"), some("b y x d"));
        assert_eq!(text(c, "LTRIM l 5 10"), some("OK"));
        assert_eq!(number(c, "EXISTS l"), 0);
    });
}

#[test]
fn searching_and_removing() {
    with_both(|c| {
        run::<()>(c, "RPUSH l a b c 1 2 3 c c").expect("a list");
        assert_eq!(run(c, "LPOS l c"), Ok(Some(2)));
        assert_eq!(run(c, "LPOS l c RANK 2"), Ok(Some(6)));
        assert_eq!(run(c, "LPOS l c RANK -1"), Ok(Some(7)));
        assert_eq!(run(c, "LPOS l c COUNT 0"), Ok(vec![2, 6, 7]));
        assert_eq!(run(c, "LPOS l c RANK -1 COUNT 2"), Ok(vec![7, 6]));
        assert_eq!(run(c, "LPOS l c COUNT 0 MAXLEN 3"), Ok(vec![2]));
        assert_eq!(run(c, "LPOS l nothing"), Ok(None::<i64>));
        assert_eq!(run(c, "LPOS absent c COUNT 1"), Ok(Vec::<i64>::new()));
        let smallest = "-9223372036854775808";
        assert_eq!(run(c, &format!("LPOS l c RANK {smallest}")), Ok(None::<i64>));
        assert_eq!(number(c, &format!("LREM l {smallest} nothing")), 0);
        assert_eq!(number(c, "LREM l -1 c"), 1);
        assert_eq!(number(c, "LREM l 1 c"), 1);
        assert_eq!(texts(c, "LRANGE l 0 -1"), some("a b 1 2 3 c"));
        assert_eq!(number(c, "LREM l 0 nothing"), 0);
        for element in ["a", "b", "c", "1", "2", "3"] {
            assert_eq!(number(c, &format!("LREM l 0 {element}")), 1);
        }
        assert_eq!(number(c, "EXISTS l"), 0);
    });
}

#[test]
fn from_list_to_list() {
    with_both(|c| {
        run::<()>(c, "RPUSH from a b c").expect("a list");
        assert_eq!(text(c, "LMOVE from to LEFT RIGHT"), some("a"));
        assert_eq!(text(c, "RPOPLPUSH from to"), some("c"));
        assert_eq!(texts(c, "LRANGE to 0 -1"), some("c a"));
        assert_eq!(text(c, "LMOVE to to LEFT RIGHT"), some("c"));
        assert_eq!(texts(c, "LRANGE to 0 -1"), some("a c"));
        assert_eq!(text(c, "LMOVE from from LEFT LEFT"), some("b"));
        assert_eq!(text(c, "LMOVE from to RIGHT RIGHT"), some("b"));
        assert_eq!(number(c, "EXISTS from"), 0);
        assert_eq!(run::<Value>(c, "RPOPLPUSH from to"), Ok(Value::Nil));
        assert_eq!(error(c, "LMOVE to from UP LEFT"), "syntax error");
        let popped: (String, Vec<String>) =
            run(c, "LMPOP 2 from to RIGHT COUNT 2").expect("elements");
        assert_eq!(popped, ("to".to_owned(), vec!["b".to_owned(), "c".to_owned()]));
        assert_eq!(run::<Value>(c, "LMPOP 1 from LEFT"), Ok(Value::Nil));
        assert_eq!(error(c, "LMPOP 0 from LEFT"), "numkeys should be greater than 0");
        assert_eq!(error(c, "LMPOP 1 to LEFT COUNT 0"), "count should be greater than 0");
        assert_eq!(error(c, "LMPOP 2 to LEFT"), "syntax error");
    });
}

/// Returns the elements of a reply, with blanks between them.
fn words(reply: &Reply) -> String {
    reply.items().iter().map(Reply::text).collect::<Vec<_>>().join(" ")
}

#[test]
fn many_elements_from_list_to_list() {
    let server = crate::server();
    let mut c = server.connect();
    for entries in ["-2", "3"] {
        c.check(&format!("CONFIG SET list-max-listpack-size {entries}"), "+OK");
        // Ends, count and order; the moved elements; what is left.
        for (arguments, moved, rest) in [
            ("LEFT RIGHT", "a", "b c d e"),
            ("RIGHT LEFT", "e", "a b c d"),
            ("LEFT LEFT COUNT 3 OBO", "c b a", "d e"),
            ("LEFT LEFT COUNT 3 BULK", "a b c", "d e"),
            ("RIGHT RIGHT COUNT 3 OBO", "e d c", "a b"),
            ("RIGHT RIGHT COUNT 3 BULK", "c d e", "a b"),
            ("LEFT RIGHT COUNT 3 OBO", "a b c", "d e"),
            ("RIGHT LEFT exactly 3 obo", "c d e", "a b"),
            ("left right count 100 bulk", "a b c d e", ""),
            ("RIGHT RIGHT EXACTLY 5 OBO", "e d c b a", ""),
        ] {
            for (before, with_some) in [("", ""), ("x y ", " x y")] {
                c.ask("DEL from to");
                c.check("RPUSH from a b c d e", ":5");
                if !before.is_empty() {
                    c.check("RPUSH to x y", ":2");
                }
                assert_eq!(words(&c.ask(&format!("LMOVEM from to {arguments}"))), moved);
                let is_left = arguments.split(' ').nth(1).is_some_and(|to| to == "LEFT");
                let expected = if is_left {
                    format!("{moved}{with_some}")
                } else {
                    format!("{before}{moved}")
                };
                assert_eq!(words(&c.ask("LRANGE to 0 -1")), expected, "{arguments}");
                assert_eq!(words(&c.ask("LRANGE from 0 -1")), rest, "{arguments}");
            }
        }
    }
}

#[test]
fn elements_move_within_their_list() {
    let server = crate::server();
    let mut c = server.connect();
    for (arguments, moved, after) in [
        ("LEFT LEFT COUNT 3 OBO", "c b a", "c b a d e"),
        ("LEFT LEFT COUNT 3 BULK", "a b c", "a b c d e"),
        ("RIGHT RIGHT COUNT 2 OBO", "e d", "a b c e d"),
        ("LEFT RIGHT COUNT 2 BULK", "a b", "c d e a b"),
        ("LEFT RIGHT COUNT 2 OBO", "a b", "c d e a b"),
        ("RIGHT LEFT EXACTLY 4 OBO", "b c d e", "b c d e a"),
        ("LEFT LEFT COUNT 9 OBO", "e d c b a", "e d c b a"),
        ("RIGHT RIGHT EXACTLY 5 OBO", "e d c b a", "e d c b a"),
        ("LEFT RIGHT COUNT 9 BULK", "a b c d e", "a b c d e"),
        ("RIGHT RIGHT", "e", "a b c d e"),
    ] {
        c.ask("DEL l");
        c.check("RPUSH l a b c d e", ":5");
        c.check("EXPIRE l 1000", ":1");
        assert_eq!(words(&c.ask(&format!("LMOVEM l l {arguments}"))), moved);
        assert_eq!(words(&c.ask("LRANGE l 0 -1")), after, "{arguments}");
        assert!(c.ask("TTL l").int() > 900, "{arguments}");
    }
    c.check("LMOVEM l l LEFT LEFT EXACTLY 6 OBO", "nil-array");
}

#[test]
fn nothing_moves_without_a_source_or_with_mistakes() {
    let server = crate::server();
    let mut c = server.connect();
    for arguments in ["", " COUNT 5 BULK", " EXACTLY 1 OBO"] {
        c.check(&format!("LMOVEM nosuch to LEFT RIGHT{arguments}"), "nil-array");
        c.check(&format!("BLMOVEM nosuch to LEFT RIGHT 0.01{arguments}"), "nil-array");
    }
    c.check("RPUSH l a b c", ":3");
    c.check("SET text v", "+OK");
    c.check("LMOVEM l text LEFT RIGHT EXACTLY 4 BULK", "nil-array");
    for (arguments, error) in [
        ("l to LEFT RIGHT COUNT 0 BULK", "ERR count should be greater than 0"),
        ("l to LEFT RIGHT EXACTLY -1 BULK", "ERR count should be greater than 0"),
        ("l to LEFT RIGHT COUNT a OBO", "ERR count should be greater than 0"),
        ("l to LEFT RIGHT COUNT 2", "ERR syntax error"),
        ("l to LEFT RIGHT COUNT 2 OBO BULK", "ERR syntax error"),
        ("l to LEFT RIGHT COUNT 2 NOSUCH", "ERR syntax error"),
        ("l to LEFT RIGHT NOSUCH 2 OBO", "ERR syntax error"),
        ("l to LEFT UP COUNT 2 OBO", "ERR syntax error"),
        ("l to LEFT", "ERR wrong number of arguments for 'lmovem' command"),
        ("text l LEFT RIGHT", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        (
            "l text LEFT RIGHT COUNT 2 BULK",
            "WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
    ] {
        c.check(&format!("LMOVEM {arguments}"), &format!("-{error}"));
    }
    c.check(
        "BLMOVEM l to LEFT RIGHT x COUNT 2 BULK",
        "-ERR timeout is not a float or out of range",
    );
    c.check("LLEN l", ":3");
    c.check("EXISTS to", ":0");
}

#[test]
fn other_types_are_left_alone() {
    with_both(|c| {
        run::<()>(c, "SET s x").expect("a string");
        run::<()>(c, "RPUSH l x").expect("a list");
        for line in [
            "LPUSH s a",
            "RPUSHX s a",
            "LPOP s",
            "RPOP s 1",
            "LLEN s",
            "LRANGE s 0 -1",
            "LINDEX s 0",
            "LSET s 0 a",
            "LINSERT s BEFORE a b",
            "LREM s 0 a",
            "LTRIM s 0 -1",
            "LPOS s a",
            "LMOVE s l LEFT LEFT",
            "LMOVE l s LEFT LEFT",
            "LMPOP 2 s l LEFT",
            "GET l",
            "APPEND l x",
        ] {
            let error = run::<Value>(c, line).expect_err(line);
            assert_eq!(error.code(), Some("WRONGTYPE"), "{line}");
        }
        assert_eq!(texts(c, "LRANGE l 0 -1"), some("x"));
        assert_eq!(text(c, "TYPE l"), some("list"));
    });
}

#[test]
fn small_and_large_lists_are_encoded_and_dumped() {
    with_both(|c| {
        for _ in 0..45 {
            run::<()>(c, &format!("RPUSH l {} 1 -200 70000", "x".repeat(150))).expect("a list");
        }
        assert_eq!(text(c, "OBJECT ENCODING l"), some("listpack"));
        run::<()>(c, &format!("RPUSH l {}", "y".repeat(1000))).expect("a list");
        assert_eq!(text(c, "OBJECT ENCODING l"), some("quicklist"));
        let payload: Vec<u8> = run(c, "DUMP l").expect("a payload");
        let elements = texts(c, "LRANGE l 0 -1");
        let restored = redis::cmd("RESTORE").arg("copy").arg(0).arg(payload).query(c);
        assert_eq!(restored, Ok("OK".to_owned()));
        assert_eq!(texts(c, "LRANGE copy 0 -1"), elements);
        run::<()>(c, "LTRIM l 0 9").expect("a trimmed list");
        assert_eq!(text(c, "OBJECT ENCODING l"), some("listpack"));
    });
}

#[test]
fn a_full_list_that_is_rotated_stays_small() {
    let server = launch().with("list-max-listpack-size", "4").start();
    let mut c = server.connect();
    c.check("RPUSH l a b c d", ":4");
    for (ends, element) in [("LEFT RIGHT", "a"), ("RIGHT LEFT", "a"), ("LEFT LEFT", "a")] {
        c.check(&format!("LMOVE l l {ends}"), &format!("{element:?}"));
        c.check("OBJECT ENCODING l", "\"listpack\"");
    }
    c.check("RPOPLPUSH l l", "\"d\"");
    c.check("OBJECT ENCODING l", "\"listpack\"");
    // The source is the only element, and two of it do not fit.
    let element = "x".repeat(5000);
    c.check(&format!("RPUSH one {element}"), ":1");
    for rotate in ["RPOPLPUSH one one", "BLMOVE one one LEFT LEFT 0"] {
        c.check(rotate, &format!("{element:?}"));
        c.check("OBJECT ENCODING one", "\"listpack\"");
    }
}
