//! Exported lines are imported as the same data, and an invalid line is reported by number.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use tierce_collections::CollectionKind;
use tierce_harness::effort;
use tierce_keyspace::log::StreamEdit;
use tierce_keyspace::{
    CodeEditor, CodeKind, CollectionPart, IntText, ItemNote, Keyspace, Marks, Options,
    SavedCollection, SavedValue, Snapshot, SnapshotPiece,
};

use super::super::commands::Executor;
use super::*;

/// Time of the export, before all deadlines.
const NOW_MS: i64 = 1_000;

fn keyspace() -> Arc<Keyspace> {
    Arc::new(Keyspace::new(Options { databases: 4, ..Options::default() }).unwrap())
}

fn exported(keyspace: &Arc<Keyspace>) -> Vec<u8> {
    let mut snapshot = Snapshot::begin(keyspace, &mut keyspace.locks(), NOW_MS).unwrap();
    let (lines, _, bytes) =
        write(Vec::new(), Path::new("memory"), &mut snapshot, NOW_MS, |_| {}).unwrap();
    assert_eq!(lines.len() as u64, bytes);
    lines
}

fn imported(lines: &[u8]) -> Result<Arc<Keyspace>, String> {
    let keyspace = keyspace();
    let mut reader = Reader::new(lines, &keyspace);
    let mut locks = keyspace.locks();
    loop {
        match reader.next_line(&mut locks) {
            Ok(Some(())) => {}
            Ok(None) => break,
            Err(Failure::Line { number, reason }) => return Err(format!("{number}: {reason}")),
            Err(Failure::Io(error)) => panic!("{error}"),
        }
    }
    drop(locks);
    drop(reader);
    Ok(keyspace)
}

/// Deadline, memcached attributes, and the parts of a value as text, in a deterministic order.
type Content = (Option<i64>, ItemNote, Vec<String>);

fn parts(collection: &SavedCollection<'_>, into: &mut Vec<String>) {
    into.extend(collection.parts().map(|part| match part {
        CollectionPart::Stream(StreamEdit::Entry { id, fields }) => {
            format!("{id:?} {:?}", fields.collect::<Vec<_>>())
        }
        CollectionPart::Stream(StreamEdit::Pending { group, consumer, delivery, ids }) => {
            format!("{group:?} {consumer:?} {delivery:?} {:?}", ids.collect::<Vec<_>>())
        }
        // As in Redis, small sorted sets lose the sign of zero, so the sign is not compared.
        CollectionPart::Scored { member, score: 0.0 } => format!("{member:?} 0"),
        part => format!("{part:?}"),
    }));
}

/// All keys by database and name.
type Keys = BTreeMap<(usize, Vec<u8>), Content>;

/// Scripts and libraries by name.
type Code = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns all keys with their attributes, and all code.
fn contents(keyspace: &Arc<Keyspace>) -> (Keys, Code) {
    let mut snapshot = Snapshot::begin(keyspace, &mut keyspace.locks(), NOW_MS).unwrap();
    let mut keys = BTreeMap::new();
    while let Some(piece) = snapshot.next().unwrap() {
        match piece {
            SnapshotPiece::Batch(batch) => {
                for entry in &batch {
                    let mut texts = Vec::new();
                    match &entry.value {
                        SavedValue::Str(bytes) => texts.push(format!("{bytes:?}")),
                        SavedValue::Int(int) => {
                            texts.push(format!("{:?}", IntText::new().of(*int)));
                        }
                        SavedValue::Collection(collection) => parts(collection, &mut texts),
                    }
                    if !is_list(&entry.value) {
                        texts.sort_unstable();
                    }
                    keys.insert(
                        (entry.db.get(), entry.key.to_vec()),
                        (entry.deadline_ms, entry.item, texts),
                    );
                }
            }
            SnapshotPiece::Large(mut large) => {
                let (head, mut texts) = (large.head().clone(), Vec::new());
                while let Some(slice) = large.next_slice().unwrap() {
                    parts(&slice, &mut texts);
                }
                if head.kind != CollectionKind::List {
                    texts.sort_unstable();
                }
                keys.insert((head.db.get(), head.key), (head.deadline_ms, ItemNote::NONE, texts));
            }
        }
    }
    let code = snapshot.code();
    let of = |kind| code.of(kind).map(|(name, source)| (name.to_vec(), source.to_vec()));
    let mut all: Vec<_> = of(CodeKind::Script).chain(of(CodeKind::Library)).collect();
    all.sort_unstable();
    (keys, all)
}

fn is_list(value: &SavedValue<'_>) -> bool {
    matches!(value, SavedValue::Collection(collection) if collection.kind() == CollectionKind::List)
}

/// Text, bytes that are not text, and bytes that need escaping.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-c]{1,2}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..6),
        any::<char>().prop_map(|c| c.to_string().into_bytes()),
        Just(b"\"\\\n\0{}[]\xff".to_vec()),
        any::<i64>().prop_map(|int| int.to_string().into_bytes()),
        Just("ä€𐍈".repeat(20).into_bytes()),
    ]
}

fn number(of: impl Into<i128>) -> Vec<u8> {
    of.into().to_string().into_bytes()
}

/// Generates a write command.
fn command() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let key = || "[a-f]".prop_map(String::into_bytes);
    let word = |text: &str| text.as_bytes().to_vec();
    let deadline = || (1_i64 << 41..1 << 50).prop_map(number);
    let id = || (1_u64..6, 0_u64..3).prop_map(|(ms, seq)| format!("{ms}-{seq}").into_bytes());
    let score = || {
        prop_oneof![
            any::<f64>().prop_filter("a number", |score| !score.is_nan()),
            Just(f64::INFINITY),
            Just(f64::NEG_INFINITY),
            Just(-0.0),
        ]
        .prop_map(|score| format!("{score:?}").into_bytes())
    };
    let s = word;
    prop_oneof![
        (0..4_i64).prop_map(move |db| vec![s("SELECT"), number(db)]),
        (key(), bytes()).prop_map(move |(key, value)| vec![s("SET"), key, value]),
        (key(), deadline()).prop_map(move |(key, ms)| vec![s("PEXPIREAT"), key, ms]),
        (key(), bytes()).prop_map(move |(key, value)| vec![s("RPUSH"), key, value]),
        (key(), bytes()).prop_map(move |(key, value)| vec![s("SADD"), key, value]),
        (key(), score(), bytes()).prop_map(move |(key, score, value)| vec![
            s("ZADD"),
            key,
            score,
            value
        ]),
        (key(), bytes(), bytes()).prop_map(move |(key, field, value)| vec![
            s("HSET"),
            key,
            field,
            value
        ]),
        (key(), bytes(), deadline()).prop_map(move |(key, field, ms)| {
            vec![s("HPEXPIREAT"), key, ms, s("FIELDS"), s("1"), field]
        }),
        (key(), id(), bytes(), bytes()).prop_map(move |(key, id, field, value)| vec![
            s("XADD"),
            key,
            id,
            field,
            value
        ]),
        (key(), id()).prop_map(move |(key, id)| vec![s("XDEL"), key, id]),
        (key(), bytes(), id()).prop_map(move |(key, group, id)| {
            vec![s("XGROUP"), s("CREATE"), key, group, id, s("MKSTREAM")]
        }),
        (key(), bytes(), bytes()).prop_map(move |(key, group, consumer)| {
            vec![s("XGROUP"), s("CREATECONSUMER"), key, group, consumer]
        }),
        (key(), bytes(), bytes(), id(), 0..5_i64).prop_map(
            move |(key, group, consumer, id, count)| {
                let count = number(count);
                let force = [s("TIME"), s("5000"), s("RETRYCOUNT"), count, s("FORCE")];
                let claim = [s("XCLAIM"), key, group, consumer, s("0"), id];
                claim.into_iter().chain(force).collect()
            }
        ),
        (key(), bytes(), id()).prop_map(move |(key, group, id)| {
            vec![s("XNACK"), key, group, s("FATAL"), s("IDS"), s("1"), id, s("FORCE")]
        }),
        (key()).prop_map(move |key| vec![s("DEL"), key]),
    ]
}

/// Generates the attributes that a memcached client may leave on a string.
fn note() -> impl Strategy<Value = ItemNote> {
    (any::<u32>(), any::<bool>(), any::<bool>()).prop_map(|(flags, stale, won)| ItemNote {
        flags,
        marks: Marks { stale, won, ..Marks::NONE },
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(160)))]

    #[test]
    fn nothing_is_lost_on_the_way(
        commands in prop::collection::vec(command(), 0..80),
        items in prop::collection::vec((bytes(), bytes(), note()), 0..4),
        scripts in prop::collection::vec((bytes().prop_filter("a name", |n| !n.is_empty()), bytes()), 0..3),
    ) {
        let original = keyspace();
        let mut executor = Executor::new(Arc::clone(&original)).unwrap();
        for command in &commands {
            // Some commands fail on a key of another type, and change nothing.
            let _ = executor.execute(command);
        }
        let mut locks = original.locks();
        for (name, value, note) in &items {
            let key = original.key(name);
            let mut db = locks.db(original.db_index(1).unwrap(), key.hash(), NOW_MS);
            db.restore_item(key, &value[..], tierce_keyspace::Expiry::Never, *note).unwrap();
        }
        for (name, source) in &scripts {
            CodeEditor::lock(&mut locks).put(CodeKind::Script, name, source.clone());
        }
        let library = "#!lua name=lib\nredis.register_function('f', function() return 'ä\"' end)";
        CodeEditor::lock(&mut locks).put(CodeKind::Library, b"lib", library.as_bytes());
        drop(locks);
        let lines = exported(&original);
        let is_json = |line: &[u8]| serde_json::from_slice::<serde_json::Value>(line).is_ok();
        let all_json = lines.trim_ascii_end().split(|byte| *byte == b'\n').all(is_json);
        prop_assert!(all_json);
        let copy = imported(&lines).map_err(TestCaseError::fail)?;
        prop_assert_eq!(contents(&copy), contents(&original));
    }

    /// Any file is read or refused.
    #[test]
    fn no_line_panics(
        at in 0..1000_usize,
        byte in any::<u8>(),
    ) {
        let mut lines = some_of_all_types();
        let at = at % lines.len();
        lines[at] = byte;
        let _ = imported(&lines);
    }
}

fn some_of_all_types() -> Vec<u8> {
    let keyspace = keyspace();
    let mut executor = Executor::new(Arc::clone(&keyspace)).unwrap();
    for line in [
        "SET s \u{1}text PXAT 4000000000000",
        "RPUSH l a b",
        "SADD m a b",
        "ZADD z 1.5 a inf b",
        "HSET h f v g w",
        "HPEXPIREAT h 4000000000000 FIELDS 1 f",
        "XADD x 1-1 f v",
        "XGROUP CREATE x g 0",
        "XCLAIM x g ann 0 1-1 TIME 5000 RETRYCOUNT 2 FORCE JUSTID",
        "XADD x 2-1 f v",
        "XNACK x g FAIL IDS 1 2-1 FORCE",
    ] {
        let args: Vec<_> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        executor.execute(&args).unwrap();
    }
    exported(&keyspace)
}

/// A collection and a string that take several lines, none of them much above the length limit.
#[test]
fn long_values_are_divided() {
    let original = keyspace();
    let mut executor = Executor::new(Arc::clone(&original)).unwrap();
    let mut run = |args: &[&[u8]]| {
        executor.execute(&args.iter().map(|arg| arg.to_vec()).collect::<Vec<_>>()).unwrap();
    };
    for at in 0..30_000_u32 {
        let element = format!("element {at}");
        run(&[b"RPUSH", b"list", element.as_bytes()]);
        run(&[b"HSET", b"hash", element.as_bytes(), &at.to_le_bytes()]);
        run(&[b"XADD", b"stream", format!("1-{}", at + 1).as_bytes(), b"f", element.as_bytes()]);
    }
    run(&[b"XGROUP", b"CREATE", b"stream", b"g", b"0"]);
    for at in 1..4_000_u32 {
        let id = format!("1-{at}");
        run(&[b"XCLAIM", b"stream", b"g", b"ann", b"0", id.as_bytes(), b"TIME", b"5", b"FORCE"]);
    }
    // Characters that cross each multiple of the length, and bytes that are not text.
    let text = format!("x{}", "ä€".repeat(300_000));
    run(&[b"SET", b"text", text.as_bytes()]);
    run(&[b"SET", b"bytes", &vec![0xfe; 1_000_000]]);
    let lines = exported(&original);
    let longest = lines.split(|byte| *byte == b'\n').map(<[u8]>::len).max();
    assert!(longest.unwrap() < 512 * 1024, "{longest:?}");
    assert!(lines.windows(11).filter(|part| part == b"\"more\":true").count() > 8);
    assert_eq!(contents(&imported(&lines).unwrap()), contents(&original));
}

/// Groups whose consumers have equal names, with entries pending in each. A snapshot has all groups before the
/// first entry, and pending entries after the entries.
#[test]
fn what_is_pending_stays_in_its_group() {
    let original = keyspace();
    let mut executor = Executor::new(Arc::clone(&original)).unwrap();
    let mut run = |line: &str| {
        let args: Vec<_> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        executor.execute(&args).unwrap();
    };
    for group in ["g", "h", "idle"] {
        run(&format!("XGROUP CREATE x {group} 0 MKSTREAM"));
    }
    for id in 1..=5_000 {
        run(&format!("XADD x 1-{id} field {}", "v".repeat(60)));
        let group = if id % 3 == 0 { "g" } else { "h" };
        run(&format!("XREADGROUP GROUP {group} ann STREAMS x >"));
    }
    run("XREADGROUP GROUP g bob COUNT 2 STREAMS x >");
    let lines = exported(&original);
    assert!(lines.windows(11).any(|part| part == b"\"more\":true"));
    assert_eq!(contents(&imported(&lines).unwrap()), contents(&original));
}

#[test]
fn a_wrong_line_is_named() {
    const HEADER: &str = "{\"type\":\"header\",\"format\":\"tierce-jsonl\",\"version\":1}\n";
    let refused = |rest: &str| imported(format!("{HEADER}{rest}").as_bytes()).unwrap_err();
    for (line, expected) in [
        ("", "2: the file is cut short: it has no line of the type end"),
        ("{\"type\":\"end\",\"keys\":1}", "2: the file has 0 keys, and says that it had 1"),
        ("{\"type\":\"end\"}\n{\"type\":\"end\"}", "3: there is a line after that of the type end"),
        (HEADER, "2: the first line, and no other, has the type header"),
        ("nonsense", "2: expected ident, at column 2"),
        ("{\"type\":\"tree\"}", "2: unknown variant `tree`"),
        ("{\"type\":\"string\",\"key\":\"k\"}", "2: missing field `value`"),
        ("{\"type\":\"string\",\"key\":1,\"value\":\"\"}", "2: invalid type: integer `1`"),
        ("{\"type\":\"string\",\"key\":\"k\",\"value\":\"\",\"ttl\":1}", "2: unknown field `ttl`"),
        ("{\"type\":\"string\",\"db\":4,\"key\":\"k\",\"value\":\"\"}", "2: keys of database 4"),
        ("{\"type\":\"string\",\"key\":{\"base64\":\"?\"},\"value\":\"\"}", "2: base64: "),
        ("{\"type\":\"list\",\"key\":\"k\",\"flags\":1,\"value\":[]}", "2: flags, stale and won"),
        ("{\"type\":\"set\",\"key\":\"k\",\"value\":[\"a\",\"a\"]}", "2: it has the same member"),
        ("{\"type\":\"zset\",\"key\":\"k\",\"value\":[[\"a\",\"nan\"]]}", "2: invalid value"),
        ("{\"type\":\"stream\",\"key\":\"k\",\"value\":[]}", "2: the stream has no state"),
        (
            "{\"type\":\"set\",\"key\":\"k\",\"value\":[\"a\"],\"more\":true}\n{\"type\":\"end\"}",
            "3: the line before says that more of the key k follows",
        ),
        (
            "{\"type\":\"stream\",\"key\":\"k\",\"value\":[{\"entry\":{\"id\":\"2-1\",\"fields\":[\"f\",\"v\"]}},\
             {\"entry\":{\"id\":\"1-1\",\"fields\":[\"f\",\"v\"]}}]}",
            "2: the entry 1-1 does not come after",
        ),
    ] {
        let reason = refused(line);
        assert!(reason.starts_with(expected), "{line}: {reason}");
    }
    let unknown = imported(b"{\"type\":\"header\",\"format\":\"tierce-jsonl\",\"version\":2}\n");
    assert!(unknown.unwrap_err().starts_with("1: the format tierce-jsonl 2 is unknown"));
    let without = imported(b"{\"type\":\"end\"}\n");
    assert!(without.unwrap_err().starts_with("1: the first line"));
}

/// Each stream has a group `g` with a consumer `ann`, and an entry 5-5, before the invalid elements.
#[test]
fn a_wrong_element_of_a_stream_is_named() {
    const HEAD: &str = "{\"type\":\"header\",\"format\":\"tierce-jsonl\",\"version\":1}\n\
        {\"type\":\"stream\",\"key\":\"k\",\"value\":[\
        {\"group\":{\"name\":\"g\",\"last_delivered\":\"0-0\"}},\
        {\"consumer\":{\"group\":\"g\",\"name\":\"ann\",\"seen_ms\":1}},\
        {\"entry\":{\"id\":\"5-5\",\"fields\":[\"f\",\"v\"]}},";
    let state = |last: &str, added: u8| {
        format!(
            "{{\"state\":{{\"last_id\":\"{last}\",\"max_deleted_id\":\"0-0\",\"entries_added\":{added}}}}}"
        )
    };
    let entry =
        |id: &str, fields: &str| format!("{{\"entry\":{{\"id\":\"{id}\",\"fields\":[{fields}]}}}}");
    let group =
        |name: &str| format!("{{\"group\":{{\"name\":\"{name}\",\"last_delivered\":\"0-0\"}}}}");
    let consumer = |group: &str, name: &str| {
        format!("{{\"consumer\":{{\"group\":\"{group}\",\"name\":\"{name}\",\"seen_ms\":1}}}}")
    };
    let pending = |group: &str, name: &str, ids: &str| {
        format!(
            "{{\"pending\":{{\"group\":\"{group}\",\"consumer\":\"{name}\",\"delivered_ms\":1,\
             \"deliveries\":1,\"ids\":[{ids}]}}}}"
        )
    };
    let messages = |duration_s: u64, messages_max: u64| {
        format!(
            "{{\"messages\":{{\"duration_s\":{duration_s},\"messages_max\":{messages_max},\
             \"added\":0,\"duplicates\":0}}}}"
        )
    };
    let twice =
        [consumer("g", "bob"), pending("g", "ann", "\"5-5\""), pending("g", "bob", "\"5-5\"")];
    for (elements, expected) in [
        (entry("5-5", "\"f\",\"v\""), "the entry 5-5 does not come after the one before it"),
        (entry("0-0", "\"f\",\"v\""), "the entry 0-0 does not come after the one before it"),
        (entry("6-0", ""), "the entry 6-0 has no fields"),
        (entry("6-0", "\"f\""), "the entry 6-0 has a field without a value"),
        ([state("5-5", 1), state("5-5", 1)].join(","), "a stream has one state"),
        (state("0-0", 3), "`entries_added` is 3, and the last ID is 0-0"),
        (state("4-9", 1), "the stream's last_id is below that of an entry"),
        (group("h"), "the stream has no state"),
        (group("g"), "the group g is there twice"),
        (consumer("h", "ann"), "there is no group h"),
        (consumer("g", "ann"), "the consumer ann is there twice"),
        (pending("h", "ann", "\"5-5\""), "there is no group h"),
        (pending("g", "bob", "\"5-5\""), "there is no consumer bob"),
        (pending("g", "ann", "\"5-5\",\"5-5\""), "the entry 5-5 is pending twice"),
        (twice.join(","), "the entry 5-5 is pending twice"),
        (messages(0, 1), "a limit of messages is out of range"),
        (messages(86_401, 1), "a limit of messages is out of range"),
        (messages(1, 10_001), "a limit of messages is out of range"),
    ] {
        let reason = imported(format!("{HEAD}{elements}]}}").as_bytes()).unwrap_err();
        assert_eq!(reason, format!("2: {expected}"), "{elements}");
    }
    let first = format!(
        "{{\"type\":\"stream\",\"key\":\"k\",\"value\":[{}]}}",
        entry("0-0", "\"f\",\"v\"")
    );
    let (header, _) = HEAD.split_once('\n').unwrap();
    let reason = imported(format!("{header}\n{first}").as_bytes()).unwrap_err();
    assert_eq!(reason, "2: there is no entry 0-0");
}

/// A hand-written file may omit members that have a default.
#[test]
fn what_has_a_default_may_be_left_out() {
    let lines = "{\"type\":\"header\",\"format\":\"tierce-jsonl\",\"version\":1}\n\
                 \n\
                 {\"key\":\"k\",\"value\":\"v\",\"type\":\"string\"}\n\
                 {\"type\":\"zset\",\"key\":\"z\",\"value\":[[\"a\",1],[\"b\",-2.5],[\"c\",\"inf\"]]}\n\
                 {\"type\":\"end\"}";
    let keyspace = imported(lines.as_bytes()).unwrap();
    assert_eq!(contents(&keyspace).0.len(), 2);
}

#[test]
fn the_last_value_of_a_key_wins() {
    let lines = "{\"type\":\"header\",\"format\":\"tierce-jsonl\",\"version\":1,\"written_ms\":2000}\n\
                 {\"type\":\"string\",\"key\":\"k\",\"value\":\"1\",\"expires_ms\":9000000000000,\"flags\":7}\n\
                 {\"type\":\"string\",\"key\":\"k\",\"value\":\"2\"}\n\
                 {\"type\":\"list\",\"key\":\"l\",\"value\":[\"a\"],\"more\":true}\n\
                 {\"type\":\"list\",\"key\":\"l\",\"value\":[\"b\"]}\n\
                 {\"type\":\"list\",\"key\":\"l\",\"value\":[\"c\"]}\n\
                 {\"type\":\"list\",\"key\":\"of another type\",\"value\":[\"a\"]}\n\
                 {\"type\":\"string\",\"key\":\"of another type\",\"value\":\"a\"}\n\
                 {\"type\":\"list\",\"key\":\"empty\",\"value\":[\"a\"]}\n\
                 {\"type\":\"list\",\"key\":\"empty\",\"value\":[]}\n\
                 {\"type\":\"list\",\"key\":\"expired\",\"value\":[\"a\"]}\n\
                 {\"type\":\"list\",\"key\":\"expired\",\"value\":[\"a\"],\"expires_ms\":1000}\n\
                 {\"type\":\"script\",\"name\":\"s\",\"source\":\"return 1\"}\n\
                 {\"type\":\"script\",\"name\":\"s\",\"source\":\"return 2\"}\n\
                 {\"type\":\"end\",\"keys\":10}";
    let keyspace = imported(lines.as_bytes()).unwrap();
    let shown = String::from_utf8(exported(&keyspace)).expect("text");
    let mut shown: Vec<_> = shown.lines().skip(1).collect();
    shown.sort_unstable();
    let expected = [
        "{\"type\":\"end\",\"keys\":3}",
        "{\"type\":\"list\",\"db\":0,\"key\":\"l\",\"value\":[\"c\"]}",
        "{\"type\":\"script\",\"name\":\"s\",\"source\":\"return 2\"}",
        "{\"type\":\"string\",\"db\":0,\"key\":\"k\",\"value\":\"2\"}",
        "{\"type\":\"string\",\"db\":0,\"key\":\"of another type\",\"value\":\"a\"}",
    ];
    assert_eq!(shown, expected);
}
