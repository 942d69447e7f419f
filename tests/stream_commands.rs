//! Streams, used like an application does.

use redis::{Connection, Value};
use tierce_harness::{Connection as Client, TempDir, wait_until};

use crate::both_protocols::redis::{connect, run, with_both};
use crate::{launch, server};

/// Returns a reply as text, in which maps are lists of names and values.
fn text(c: &mut Connection, line: &str) -> String {
    match run::<Value>(c, line) {
        Ok(value) => shown(&value),
        Err(error) => format!("{} {}", error.code().unwrap_or("ERR"), error.detail().unwrap_or("")),
    }
}

fn shown(value: &Value) -> String {
    let list = |values: &mut dyn Iterator<Item = String>| {
        format!("[{}]", values.collect::<Vec<_>>().join(" "))
    };
    match value {
        Value::Nil => "nil".into(),
        Value::Int(int) => int.to_string(),
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::Okay => "OK".into(),
        Value::Array(items) => list(&mut items.iter().map(shown)),
        Value::Map(pairs) => {
            list(&mut pairs.iter().flat_map(|(name, value)| [shown(name), shown(value)]))
        }
        other => format!("{other:?}"),
    }
}

fn check(c: &mut Connection, calls: &[(&str, &str)]) {
    for (line, expected) in calls {
        assert_eq!(text(c, line), *expected, "{line}");
    }
}

#[test]
fn entries_are_added_read_and_deleted() {
    with_both(|c| {
        let read = if is_resp3(c) { "[s [[2-0 [other -7]]]]" } else { "[[s [[2-0 [other -7]]]]]" };
        check(
            c,
            &[
                ("XADD s 1-1 a 1 b 2", "1-1"),
                ("XADD s 1-* a 3 b 4", "1-2"),
                ("XADD s 2 other -7", "2-0"),
                (
                    "XADD s 2-0 a 1",
                    "ERR The ID specified in XADD is equal or smaller than the target stream top item",
                ),
                ("XADD new 0-0 a 1", "ERR The ID specified in XADD must be greater than 0-0"),
                ("XADD new NOMKSTREAM 1-1 a 1", "nil"),
                ("EXISTS new", "0"),
                ("XLEN s", "3"),
                ("XRANGE s - +", "[[1-1 [a 1 b 2]] [1-2 [a 3 b 4]] [2-0 [other -7]]]"),
                ("XRANGE s (1-1 1", "[[1-2 [a 3 b 4]]]"),
                ("XREVRANGE s + - COUNT 1", "[[2-0 [other -7]]]"),
                ("XRANGE s - + COUNT 0", "nil"),
                ("XDEL s 1-2 7-7", "1"),
                ("XREAD STREAMS s none 1-1 0", read),
                ("XREAD STREAMS s 2-0", "nil"),
                ("XTRIM s MAXLEN 1", "1"),
                ("XRANGE s - +", "[[2-0 [other -7]]]"),
                ("TYPE s", "stream"),
                ("OBJECT ENCODING s", "stream"),
                ("XTRIM s MAXLEN 0", "1"),
                ("EXISTS s", "1"),
                ("SET t v", "OK"),
                (
                    "XADD t * a 1",
                    "WRONGTYPE Operation against a key holding the wrong kind of value",
                ),
            ],
        );
    });
}

fn is_resp3(c: &mut Connection) -> bool {
    matches!(run::<Value>(c, "HELLO"), Ok(Value::Map(_)))
}

#[test]
fn additions_trim() {
    with_both(|c| {
        for at in 1..=250 {
            check(c, &[(&format!("XADD s {at}-1 a {at}"), &format!("{at}-1"))]);
        }
        check(
            c,
            &[
                ("XTRIM s MAXLEN ~ 120", "100"),
                ("XTRIM s MINID ~ 201 LIMIT 50", "0"),
                ("XTRIM s MINID ~ 201", "100"),
                ("XADD s MAXLEN = 10 300-1 a b", "300-1"),
                ("XLEN s", "10"),
                (
                    "XTRIM s MINID 250 LIMIT 5",
                    "ERR syntax error, LIMIT cannot be used without the special ~ option",
                ),
                (
                    "XADD s MAXLEN 1 MINID 1 * a b",
                    "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
                ),
                (
                    "XTRIM s LIMIT 5",
                    "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
                ),
            ],
        );
    });
}

#[test]
fn a_group_shares_the_entries() {
    with_both(|c| {
        let one = |entries: &str| {
            if entries == "nil" { entries.to_owned() } else { format!("[[s {entries}]]") }
        };
        let resp3 = is_resp3(c);
        let read = |c: &mut Connection, line: &str, entries: &str| {
            let expected =
                if resp3 && entries != "nil" { format!("[s {entries}]") } else { one(entries) };
            assert_eq!(text(c, line), expected, "{line}");
        };
        check(
            c,
            &[
                (
                    "XGROUP CREATE s g $",
                    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.",
                ),
                ("XGROUP CREATE s g 0 MKSTREAM", "OK"),
                ("XGROUP CREATE s g 0", "BUSYGROUP Consumer Group name already exists"),
                ("XADD s 1-1 a 1", "1-1"),
                ("XADD s 2-1 a 2", "2-1"),
                ("XADD s 3-1 a 3", "3-1"),
            ],
        );
        read(c, "XREADGROUP GROUP g ann COUNT 2 STREAMS s >", "[[1-1 [a 1]] [2-1 [a 2]]]");
        read(c, "XREADGROUP GROUP g bob STREAMS s >", "[[3-1 [a 3]]]");
        read(c, "XREADGROUP GROUP g bob STREAMS s >", "nil");
        check(c, &[("XDEL s 1-1", "1")]);
        read(c, "XREADGROUP GROUP g ann STREAMS s 0", "[[1-1 nil] [2-1 [a 2]]]");
        check(
            c,
            &[
                (
                    "XREADGROUP GROUP no ann STREAMS s >",
                    "NOGROUP No such key 's' or consumer group 'no' in XREADGROUP with GROUP option",
                ),
                ("XPENDING s g", "[3 1-1 3-1 [[ann 2] [bob 1]]]"),
                ("XACK s g 3-1 3-1 9-9", "1"),
                ("XCLAIM s g bob 0 2-1 JUSTID", "[2-1]"),
                ("XCLAIM s g bob 3600000 2-1", "[]"),
                ("XCLAIM s g ann 0 1-1 2-1", "[[2-1 [a 2]]]"),
                ("XPENDING s g", "[1 2-1 2-1 [[ann 1]]]"),
                ("XDEL s 2-1", "1"),
                ("XAUTOCLAIM s g bob 0 - COUNT 5", "[0-0 [] [2-1]]"),
                ("XGROUP DELCONSUMER s g bob", "0"),
                ("XGROUP CREATECONSUMER s g ann", "0"),
                ("XGROUP SETID s g 0 ENTRIESREAD 0", "OK"),
                (
                    "XINFO GROUPS s",
                    "[[name g consumers 1 pending 0 last-delivered-id 0-0 entries-read 0 lag 1]]",
                ),
                ("XGROUP DESTROY s g", "1"),
                ("XGROUP DESTROY s g", "0"),
            ],
        );
    });
}

/// Adds entries 1-1, 2-1, … with a field `a`.
fn add(c: &mut Connection, numbers: std::ops::RangeInclusive<u64>) {
    for at in numbers {
        check(c, &[(&format!("XADD s {at}-1 a {at}"), &format!("{at}-1"))]);
    }
}

/// Returns a reply of XREAD about one stream as text.
fn read(c: &mut Connection, line: &str) -> String {
    let text = text(c, line);
    // In RESP2 it is a list of streams, in RESP3 a map.
    let inner = text.strip_prefix("[[s ").and_then(|rest| rest.strip_suffix("]]"));
    let inner = inner.or_else(|| text.strip_prefix("[s ").and_then(|rest| rest.strip_suffix(']')));
    inner.map_or(text.clone(), str::to_owned)
}

/// The replies are those of the tests of Redis 8.
#[test]
fn entries_are_deleted_with_regard_to_groups() {
    with_both(|c| {
        add(c, 1..=4);
        check(c, &[("XGROUP CREATE s g 0", "OK"), ("XGROUP CREATE s h 0", "OK")]);
        read(c, "XREADGROUP GROUP g ann STREAMS s >");
        read(c, "XREADGROUP GROUP h bob COUNT 2 STREAMS s >");
        check(
            c,
            &[
                ("XDELEX s ACKED IDS 2 1-1 3-1", "[2 2]"),
                ("XACK s g 1-1 3-1", "2"),
                ("XDELEX s ACKED IDS 2 1-1 3-1", "[2 2]"),
                ("XACKDEL s h ACKED IDS 2 1-1 2-1", "[1 2]"),
                ("XRANGE s - +", "[[2-1 [a 2]] [3-1 [a 3]] [4-1 [a 4]]]"),
                ("XPENDING s g", "[2 2-1 4-1 [[ann 2]]]"),
                ("XDELEX s KEEPREF IDS 2 2-1 2-1", "[1 -1]"),
                ("XPENDING s g", "[2 2-1 4-1 [[ann 2]]]"),
                ("XACKDEL s g IDS 1 2-1", "[1]"),
                ("XACKDEL s g IDS 1 2-1", "[-1]"),
                ("XDELEX s IDS 2 4-1 9-9 DELREF", "[1 -1]"),
                ("XPENDING s g", "[0 nil nil nil]"),
                ("XACKDEL s none IDS 1 3-1", "[-1]"),
                ("XDELEX none IDS 2 1-1 2-1", "[-1 -1]"),
                ("XACKDEL none g IDS 2 1-1 2-1", "[-1 -1]"),
                ("XLEN s", "1"),
            ],
        );
        let wrong = [
            ("IDS abc 1-1", "Number of IDs must be a positive integer"),
            ("IDS 0 1-1", "Number of IDs must be a positive integer"),
            ("IDS 3 1-1 2-2", "The `numids` parameter must match the number of arguments"),
            ("IDS 1 1-1 2-2", "syntax error"),
            ("KEEPREF DELREF IDS 1 1-1", "syntax error"),
            ("ACKED 1-1 1-2", "syntax error"),
            ("IDS 1 x", "Invalid stream ID specified as stream command argument"),
        ];
        for (options, error) in wrong {
            let error = format!("ERR {error}");
            let (delete, acknowledge) =
                (format!("XDELEX s {options}"), format!("XACKDEL s h {options}"));
            check(c, &[(&delete, &error), (&acknowledge, &error)]);
        }
    });
}

#[test]
fn trimming_regards_groups() {
    with_both(|c| {
        add(c, 1..=6);
        check(c, &[("XGROUP CREATE s g 0", "OK"), ("XTRIM s MAXLEN 0 ACKED", "0")]);
        read(c, "XREADGROUP GROUP g ann COUNT 5 STREAMS s >");
        check(
            c,
            &[
                ("XACK s g 1-1 2-1 4-1", "3"),
                ("XTRIM s MAXLEN 5 ACKED", "1"),
                ("XTRIM s ACKED MINID ~ 4-1", "1"),
                ("XADD s MAXLEN 0 ACKED 7-1 a 7", "7-1"),
                ("XRANGE s - +", "[[3-1 [a 3]] [5-1 [a 5]] [6-1 [a 6]] [7-1 [a 7]]]"),
                // The gap does not make the lag unknown.
                ("XTRIM s MAXLEN 4 ACKED", "0"),
                (
                    "XINFO GROUPS s",
                    "[[name g consumers 1 pending 2 last-delivered-id 5-1 entries-read 5 lag 2]]",
                ),
                ("XTRIM s MINID 4-1 KEEPREF", "1"),
                ("XPENDING s g", "[2 3-1 5-1 [[ann 2]]]"),
                ("XADD s DELREF MAXLEN 2 8-1 a 8", "8-1"),
                ("XPENDING s g", "[1 3-1 3-1 [[ann 1]]]"),
                ("XTRIM s MAXLEN 0 DELREF DELREF", "ERR syntax error"),
            ],
        );
    });
}

#[test]
fn the_last_entry_is_read() {
    with_both(|c| {
        check(c, &[("XREAD STREAMS s +", "nil"), ("XGROUP CREATE s g 0 MKSTREAM", "OK")]);
        check(c, &[("XREAD STREAMS s +", "nil")]);
        add(c, 1..=3);
        assert_eq!(read(c, "XREAD COUNT 5 STREAMS s +"), "[[3-1 [a 3]]]");
        check(c, &[("XDEL s 3-1", "1")]);
        assert_eq!(read(c, "XREAD BLOCK 0 STREAMS s +"), "[[2-1 [a 2]]]");
        assert!(text(c, "XREADGROUP GROUP g ann STREAMS s +").contains("The + ID is meaningless"));
    });
}

#[test]
fn limits_count_for_the_whole_reply() {
    with_both(|c| {
        for key in ["s", "t"] {
            check(c, &[(&format!("XGROUP CREATE {key} g 0 MKSTREAM"), "OK")]);
            for at in 1..=5 {
                check(c, &[(&format!("XADD {key} {at}-1 a v"), &format!("{at}-1"))]);
            }
        }
        let entries = |c: &mut Connection, line: &str| text(c, line).matches("-1 [a v]").count();
        for (line, expected) in [
            ("XREAD COUNT 3 STREAMS s t 0 0", 6),
            ("XREAD COUNT 3 MAXCOUNT 5 STREAMS s t 0 0", 5),
            ("XREAD MAXCOUNT 2 STREAMS s t 0 0", 2),
            // An entry has 31 bytes: `*2 $3 1-1 *2 $1 a $1 v`.
            ("XREAD MAXSIZE 1 STREAMS s t 0 0", 1),
            ("XREAD MAXSIZE 31 STREAMS s t 0 0", 1),
            ("XREAD MAXSIZE 32 STREAMS s t 0 0", 2),
            ("XREAD MAXSIZE 187 STREAMS s t 0 0", 7),
            ("XREAD MAXSIZE 1000 MAXCOUNT 6 STREAMS s t 0 0", 6),
            ("XREADGROUP GROUP g ann MAXCOUNT 3 STREAMS s t > >", 3),
            ("XREADGROUP GROUP g ann MAXSIZE 72 STREAMS s t > >", 3),
            ("XREADGROUP GROUP g ann MAXSIZE 72 STREAMS s t 0 0", 3),
            ("XREADGROUP GROUP g ann STREAMS s t 0 0", 6),
            ("XREADGROUP GROUP g bob CLAIM 0 MAXCOUNT 8 STREAMS s t > >", 8),
        ] {
            assert_eq!(entries(c, line), expected, "{line}");
        }
        // Only the first stream has been read.
        check(c, &[("XPENDING t g", "[3 1-1 3-1 [[bob 3]]]")]);
        for (options, error) in [
            ("COUNT 50 MAXCOUNT 10", "MAXCOUNT must be greater than or equal to COUNT"),
            ("MAXCOUNT 0", "MAXCOUNT must be a positive integer"),
            ("MAXSIZE -5", "MAXSIZE must be a positive integer"),
            ("MAXCOUNT foo", "value is not an integer or out of range"),
            (
                "CLAIM 5",
                "The CLAIM option is only supported by XREADGROUP. You called XREAD instead.",
            ),
        ] {
            check(c, &[(&format!("XREAD {options} STREAMS s 0"), &format!("ERR {error}"))]);
        }
    });
}

#[test]
fn pending_entries_are_claimed_while_reading() {
    with_both(|c| {
        add(c, 1..=3);
        check(c, &[("XGROUP CREATE s g 0", "OK")]);
        read(c, "XREADGROUP GROUP g ann COUNT 2 STREAMS s >");
        // The first one has been pending for longer than the second.
        check(c, &[("XCLAIM s g ann 0 1-1 IDLE 50000 JUSTID", "[1-1]")]);
        check(c, &[("XCLAIM s g ann 0 2-1 TIME 5 JUSTID", "[2-1]"), ("XDEL s 9-9", "0")]);
        let claimed = read(c, "XREADGROUP GROUP g bob CLAIM 40000 COUNT 1 STREAMS s >");
        assert!(claimed.starts_with("[[2-1 [a 2] 1") && claimed.ends_with(" 1]]"), "{claimed}");
        let claimed = read(c, "XREADGROUP GROUP g bob CLAIM 40000 STREAMS s >");
        assert!(claimed.starts_with("[[1-1 [a 1] 5"), "{claimed}");
        assert!(claimed.ends_with(" 1] [3-1 [a 3] 0 0]]"), "{claimed}");
        check(
            c,
            &[
                ("XREADGROUP GROUP g bob CLAIM 40000 STREAMS s >", "nil"),
                ("XPENDING s g", "[3 1-1 3-1 [[bob 3]]]"),
                (
                    "XREADGROUP GROUP g bob CLAIM x STREAMS s >",
                    "ERR min-idle-time is not an integer or out of range",
                ),
                (
                    "XREADGROUP GROUP g bob CLAIM -1 STREAMS s >",
                    "ERR min-idle-time must be a positive integer",
                ),
            ],
        );
        // An ID ignores the option, and deleted entries stay pending.
        assert_eq!(read(c, "XREADGROUP GROUP g bob CLAIM 0 STREAMS s 2-1"), "[[3-1 [a 3]]]");
        check(c, &[("XDEL s 1-1", "1")]);
        let claimed = read(c, "XREADGROUP GROUP g ann CLAIM 0 STREAMS s >");
        assert!(claimed.starts_with("[[2-1 [a 2] ") && !claimed.contains("1-1 nil"), "{claimed}");
        assert!(text(c, "XPENDING s g - + 1").starts_with("[[1-1 bob "));
    });
}

#[test]
fn entries_are_given_back() {
    with_both(|c| {
        add(c, 1..=3);
        check(c, &[("XGROUP CREATE s g 0", "OK")]);
        read(c, "XREADGROUP GROUP g ann COUNT 2 STREAMS s >");
        check(
            c,
            &[
                ("XNACK s g SILENT IDS 2 1-1 3-1", "1"),
                ("XNACK s g FAIL IDS 1 2-1", "1"),
                ("XPENDING s g - + 10", "[[1-1  -1 0] [2-1  -1 1]]"),
                ("XPENDING s g", "[2 1-1 2-1 []]"),
                ("XNACK s g FATAL IDS 1 2-1", "1"),
                ("XNACK s g FAIL FORCE IDS 2 3-1 9-9 RETRYCOUNT 7", "1"),
                ("XPENDING s g - + 10", "[[1-1  -1 0] [2-1  -1 9223372036854775807] [3-1  -1 7]]"),
                ("XPENDING s g - + 10 ann", "[]"),
                ("XCLAIM s g bob 3600000 3-1", "[[3-1 [a 3]]]"),
                ("XACK s g 2-1", "1"),
                ("XPENDING s g", "[2 1-1 3-1 [[bob 1]]]"),
            ],
        );
        let claimed = read(c, "XREADGROUP GROUP g bob CLAIM 3600000 COUNT 1 STREAMS s >");
        assert!(claimed.starts_with("[[1-1 [a 1] 1") && claimed.ends_with(" 0]]"), "{claimed}");
        for (call, error) in [
            ("no FAIL IDS 1 1-1", "NOGROUP No such key 's' or consumer group 'no'"),
            ("g HARD IDS 1 1-1", "ERR mode must be SILENT, FAIL, or FATAL"),
            ("g FAIL IDS 0 1-1", "ERR numids must be a positive integer"),
            ("g FAIL IDS 2 1-1", "ERR number of IDs doesn't match numids"),
            ("g FAIL FORCE FORCE FORCE", "ERR syntax error, expected IDS keyword"),
            ("g FAIL IDS 1 1-1 2-1", "ERR Unrecognized XNACK option '2-1'"),
            ("g FAIL IDS 1 1-1 RETRYCOUNT -1", "ERR Invalid RETRYCOUNT value, must be >= 0"),
        ] {
            check(c, &[(&format!("XNACK s {call}"), error)]);
        }
        check(
            c,
            &[
                ("XINFO CONSUMERS none g", "ERR no such key"),
                // A deleted entry is acknowledged.
                ("XDEL s 3-1", "1"),
                ("XNACK s g FAIL IDS 2 1-1 3-1", "2"),
                ("XNACK s g FAIL IDS 1 3-1 FORCE", "0"),
                ("XPENDING s g - + 10", "[[1-1  -1 1]]"),
            ],
        );
    });
}

/// The values are those of Redis 8.0.
#[test]
fn the_lag_of_a_group_is_right_after_deletions_and_trimming() {
    let server = server();
    let mut c = server.connect();
    for (story, read, lag) in [
        // The trimming has overtaken it. It reads the rest, and some more.
        ("ADD 1 5; GROUP 0; READ 2; ADD 6 20; XTRIM s MAXLEN 5", ":2", ":5"),
        ("ADD 1 5; GROUP 0; READ 2; ADD 6 20; XTRIM s MAXLEN 5; READ 5", ":20", ":0"),
        ("ADD 1 5; GROUP 0; READ 2; ADD 6 20; XTRIM s MAXLEN 5; READ 1; ADD 21 23", ":16", ":7"),
        // Entries are missing after the group's position, before it, and then no more.
        ("ADD 1 5; GROUP 0; READ 2; XDEL s 4-1", ":2", "nil"),
        ("ADD 1 5; GROUP 0; READ 2; XDEL s 4-1; READ 1", "nil", "nil"),
        ("ADD 1 5; GROUP 0; READ 2; XDEL s 4-1; READ 2", ":5", ":0"),
        ("ADD 1 5; GROUP 0; READ 3; XDEL s 2-1; READ 1", ":4", ":1"),
        ("ADD 1 4; GROUP 0; READ 2; XDEL s 1-1 2-1 3-1", ":2", ":1"),
        ("ADD 1 4; GROUP 0; READ 2; XDEL s 1-1 2-1 3-1; READ 1", ":4", ":0"),
        ("ADD 1 3; GROUP 0; READ 1; XDEL s 1-1 2-1 3-1", ":1", ":0"),
        // The group is behind the trimmed entries.
        ("ADD 1 5; GROUP 0; READ 1; XTRIM s MINID 4-1", ":1", ":2"),
        // More than there were.
        ("ADD 1 2; XGROUP CREATE s g $ ENTRIESREAD 100", ":2", ":0"),
        ("ADD 1 2; GROUP 0; XGROUP SETID s g $ ENTRIESREAD 100", ":2", ":0"),
        ("ADD 1 5; GROUP 0; READ 5; XTRIM s MAXLEN 1; XSETID s 5-1 ENTRIESADDED 2", ":2", ":0"),
    ] {
        c.check("FLUSHALL", "+OK");
        for step in story.split("; ") {
            let words: Vec<&str> = step.split(' ').collect();
            match words[..] {
                ["ADD", first, last] => {
                    for id in first.parse().expect("a number")..=last.parse::<u32>().expect("one") {
                        c.ask(&format!("XADD s {id}-1 f v"));
                    }
                }
                ["GROUP", from] => c.check(&format!("XGROUP CREATE s g {from}"), "+OK"),
                ["READ", count] => {
                    c.ask(&format!("XREADGROUP GROUP g ann COUNT {count} STREAMS s >"));
                }
                _ => _ = c.ask(step),
            }
        }
        let groups = c.ask("XINFO GROUPS s");
        let shown: Vec<String> =
            groups.items()[0].items().iter().map(ToString::to_string).collect();
        let value = |name: &str| {
            let at = shown.iter().position(|found| found.trim_matches('"') == name);
            shown[at.expect("a name") + 1].as_str()
        };
        assert_eq!((value("entries-read"), value("lag")), (read, lag), "{story}");
    }
}

fn wait_for_reader(c: &mut Connection) {
    wait_until("a client waits", || text(c, "INFO clients").contains("blocked_clients:1"));
}

#[test]
fn a_reader_waits_for_an_entry() {
    let server = server();
    let (mut reader, mut writer) = (server.connect(), connect(&server, "resp2"));
    reader.send(
        b"*6\r\n$5\r\nXREAD\r\n$5\r\nBLOCK\r\n$1\r\n0\r\n$7\r\nSTREAMS\r\n$1\r\ns\r\n$1\r\n$\r\n",
    );
    wait_for_reader(&mut writer);
    check(&mut writer, &[("XADD s 5-1 a b", "5-1")]);
    assert_eq!(
        reader.reply_bytes(),
        b"*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n5-1\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n"
    );
    check(&mut writer, &[("XGROUP CREATE s g $", "OK")]);
    let ask = b"XREADGROUP GROUP g c BLOCK 0 STREAMS s >\r\n";
    reader.send(ask);
    wait_for_reader(&mut writer);
    check(&mut writer, &[("XADD s 6-1 a b", "6-1")]);
    assert!(reader.reply_bytes().ends_with(b"$1\r\nb\r\n"));
    check(&mut writer, &[("XPENDING s g", "[1 6-1 6-1 [[c 1]]]")]);
    // Without its group, no writer would ever serve it.
    reader.send(ask);
    wait_for_reader(&mut writer);
    check(&mut writer, &[("XGROUP DESTROY s g", "1")]);
    assert!(reader.reply_bytes().starts_with(b"-NOGROUP"));
}

/// Sends a call that waits, and waits until it does.
fn send_blocking(reader: &mut Client, writer: &mut Connection, line: &str) {
    reader.send(format!("{line}\r\n").as_bytes());
    wait_for_reader(writer);
}

#[test]
fn a_reader_waits_for_an_entry_to_claim() {
    let server = server();
    let (mut reader, mut c) = (server.connect(), connect(&server, "resp2"));
    add(&mut c, 1..=1);
    check(&mut c, &[("XGROUP CREATE s g 0", "OK")]);
    text(&mut c, "XREADGROUP GROUP g ann STREAMS s >");
    // Without a change of the key, it gets the entry when that has been pending for long enough.
    send_blocking(&mut reader, &mut c, "XREADGROUP GROUP g bob BLOCK 0 CLAIM 200 STREAMS s >");
    let reply = String::from_utf8(reader.reply_bytes()).expect("text");
    assert!(reply.contains("$3\r\n1-1\r\n") && reply.ends_with(":1\r\n"), "{reply}");
    check(&mut c, &[("XPENDING s g", "[1 1-1 1-1 [[bob 1]]]")]);
    // Or when its consumer gives it back. Others wait before it that only want new entries.
    let mut other = server.connect();
    send_blocking(&mut other, &mut c, "XREADGROUP GROUP g eve BLOCK 0 STREAMS s >");
    reader.send(b"XREADGROUP GROUP g ann BLOCK 0 CLAIM 3600000 STREAMS s >\r\n");
    wait_until("two wait", || text(&mut c, "INFO clients").contains("blocked_clients:2"));
    check(&mut c, &[("XNACK s g SILENT IDS 1 1-1", "1")]);
    let reply = String::from_utf8(reader.reply_bytes()).expect("text");
    assert!(reply.contains("$3\r\n1-1\r\n") && reply.ends_with(":1\r\n"), "{reply}");
    // XCLAIM can say that it has been pending for longer.
    check(&mut c, &[("XPENDING s g", "[1 1-1 1-1 [[ann 1]]]")]);
    reader.send(b"XREADGROUP GROUP g bob BLOCK 0 CLAIM 3600000 STREAMS s >\r\n");
    wait_until("two wait", || text(&mut c, "INFO clients").contains("blocked_clients:2"));
    check(&mut c, &[("XCLAIM s g joe 0 1-1 IDLE 3600000 JUSTID", "[1-1]")]);
    let reply = String::from_utf8(reader.reply_bytes()).expect("text");
    assert!(reply.contains("$3\r\n1-1\r\n") && reply.ends_with(":2\r\n"), "{reply}");
    check(&mut c, &[("XPENDING s g", "[1 1-1 1-1 [[bob 1]]]"), ("XADD s 2-1 a 2", "2-1")]);
    assert!(other.reply_bytes().ends_with(b"$1\r\n2\r\n"));
}

#[test]
fn what_was_given_back_survives_a_kill_a_snapshot_and_a_copy() {
    let dir = TempDir::new();
    let path = dir.path().display().to_string();
    let launch = launch().with("appendonly", "yes").with("dir", &path);
    let launch = launch.with("enable-debug-command", "yes");
    let server = launch.start();
    let mut c = connect(&server, "resp2");
    add(&mut c, 1..=3);
    check(&mut c, &[("XGROUP CREATE s g 0", "OK")]);
    text(&mut c, "XREADGROUP GROUP g ann STREAMS s >");
    check(&mut c, &[("XNACK s g FAIL IDS 1 1-1", "1"), ("XNACK s g FATAL IDS 1 2-1", "1")]);
    check(&mut c, &[("COPY s copy", "1"), ("XACKDEL s g IDS 1 3-1", "[1]")]);
    drop(server);
    let server = launch.start();
    let mut c = connect(&server, "resp2");
    let pending = |key: &str, last: &str| {
        let line = format!("XPENDING {key} g - 2 10");
        let groups = format!("XINFO CONSUMERS {key} g");
        (line, "[[1-1  -1 1] [2-1  -1 9223372036854775807]]".to_owned(), groups, last.to_owned())
    };
    for (line, expected, consumers, pending) in [pending("s", "0"), pending("copy", "1")] {
        assert_eq!(text(&mut c, &line), expected);
        let shown = text(&mut c, &consumers);
        assert!(shown.starts_with(&format!("[[name ann pending {pending} ")), "{shown}");
    }
    check(&mut c, &[("DEBUG RELOAD", "OK")]);
    for (line, expected, ..) in [pending("s", "0"), pending("copy", "1")] {
        assert_eq!(text(&mut c, &line), expected);
    }
    assert_eq!(text(&mut c, "XINFO CONSUMERS s g").matches("name").count(), 1);
}

/// Returns all facts about the stream, without times.
fn everything(c: &mut Connection) -> Vec<String> {
    ["XRANGE s - +", "XINFO GROUPS s", "XPENDING s g"].map(|line| text(c, line)).to_vec()
}

fn fill(c: &mut Connection) {
    check(c, &[("XGROUP CREATE s g 0 MKSTREAM", "OK")]);
    for at in 1..=150 {
        check(c, &[(&format!("XADD s {at}-1 a {at} b x"), &format!("{at}-1"))]);
    }
    text(c, "XREADGROUP GROUP g c COUNT 20 STREAMS s >");
    check(c, &[("XACK s g 1-1 2-1", "2"), ("XDEL s 3-1 100-1", "2"), ("XTRIM s MAXLEN 140", "8")]);
}

#[test]
fn a_stream_survives_a_kill() {
    let dir = TempDir::new();
    let path = dir.path().display().to_string();
    let launch = launch().with("appendonly", "yes").with("dir", &path);
    let server = launch.start();
    let mut c = connect(&server, "resp2");
    fill(&mut c);
    let expected = everything(&mut c);
    drop(server);
    let server = launch.start();
    let mut c = connect(&server, "resp2");
    assert_eq!(everything(&mut c), expected);
    check(
        &mut c,
        &[(
            "XADD s 150-1 a b",
            "ERR The ID specified in XADD is equal or smaller than the target stream top item",
        )],
    );
}

#[test]
fn dump_and_restore_carry_everything() {
    with_both(|c| {
        fill(c);
        let before = everything(c);
        let payload: Vec<u8> = redis::cmd("DUMP").arg("s").query(c).expect("a payload");
        check(c, &[("DEL s", "1")]);
        let restored: String =
            redis::cmd("RESTORE").arg("s").arg(0).arg(&payload[..]).query(c).expect("restored");
        assert_eq!(restored, "OK");
        assert_eq!(everything(c), before);
    });
}
