//! Streams, used like an application does.

use redis::{Connection, Value};
use tierce_harness::{TempDir, wait_until};

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
