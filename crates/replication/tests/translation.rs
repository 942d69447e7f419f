//! Keyspace records as commands: their bounds, their transactions, and the commands that each server understands.

use std::mem;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use tierce_collections::stream::StreamId;
use tierce_collections::{Hash, List, Set, Stream};
use tierce_harness::{Reply, effort};
use tierce_keyspace::log::{LogSink, RecordKind, Sizes};
use tierce_keyspace::{
    CollectionType, DbIndex, Delivery, Editor, Error, Expiry, Keyspace, Missing, Options,
};
use tierce_replication::translate::{self, Dialect, Translator};

#[derive(Default)]
struct Records(Mutex<Vec<Vec<u8>>>);

impl LogSink for Records {
    fn append(&self, record: &[u8], _: RecordKind) {
        self.0.lock().unwrap().push(record.to_vec());
    }
}

struct Source {
    keyspace: Arc<Keyspace>,
    records: Arc<Records>,
}

impl Source {
    fn new() -> Self {
        let records = Arc::<Records>::default();
        let log = Some(Arc::clone(&records) as Arc<dyn LogSink>);
        // Makes large values of this test span some hundred records.
        let log_sizes = Sizes { piece_len: 4096, ..Sizes::default() };
        let options = Options { log, log_sizes, ..Options::default() };
        let keyspace = Arc::new(Keyspace::new(options).unwrap());
        keyspace.begin_following();
        Self { keyspace, records }
    }

    fn set(&self, key: &[u8], value: &[u8]) {
        let key = self.keyspace.key(key);
        let mut locks = self.keyspace.locks();
        locks.db(DbIndex::ZERO, key.hash(), 0).set(key, value, Expiry::Never).unwrap();
    }

    fn edit<T: CollectionType>(&self, key: &[u8], edit: impl FnOnce(&mut Editor<'_, T>)) {
        let key = self.keyspace.key(key);
        let mut locks = self.keyspace.locks();
        let mut db = locks.db(DbIndex::ZERO, key.hash(), 0);
        let edit = |value: &mut Editor<'_, T>| {
            edit(value);
            Ok::<_, Error>(())
        };
        db.edit(key, Missing::Create, edit).unwrap();
    }

    fn take(&self) -> Vec<Vec<u8>> {
        mem::take(&mut *self.records.0.lock().unwrap())
    }
}

fn translator(dialect: Dialect) -> Translator {
    let mut options = translate::Options::default();
    options.dialect = dialect;
    Translator::new(options)
}

fn commands(mut stream: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let mut commands = Vec::new();
    while !stream.is_empty() {
        let (command, len) = Reply::decode(stream).unwrap();
        commands.push(command.items().iter().map(|arg| arg.bytes().to_vec()).collect());
        stream = &stream[len..];
    }
    commands
}

fn lines(stream: &[u8]) -> Vec<String> {
    let line = |args: Vec<Vec<u8>>| {
        let words: Vec<_> = args.iter().map(|arg| arg.escape_ascii().to_string()).collect();
        words.join(" ")
    };
    commands(stream).into_iter().map(line).collect()
}

fn translated(dialect: Dialect, records: &[Vec<u8>]) -> Vec<String> {
    let (mut translator, mut stream) = (translator(dialect), Vec::new());
    records.iter().for_each(|record| translator.record(record, &mut stream).unwrap());
    lines(&stream)
}

#[test]
fn a_large_collection_is_built_in_one_transaction_by_short_commands() {
    let source = Source::new();
    let elements: Vec<_> = (0..1_000_000_u32).map(u32::to_le_bytes).collect();
    source.edit::<List>(b"\0list\r\n", |list| {
        list.push_back(elements.iter().map(<[u8; 4]>::as_slice));
    });
    let (mut translator, mut stream) = (translator(Dialect::Tierce), Vec::new());
    let records = source.take();
    assert!(records.len() > 100);
    for (number, record) in records.iter().enumerate() {
        translator.record(record, &mut stream).unwrap();
        assert_eq!(stream.is_empty(), number + 1 < records.len(), "it counts with its last piece");
    }
    let commands = commands(&stream);
    let (first, rest) = commands.split_at(3);
    assert_eq!(first[0], [b"SELECT", &b"0"[..]]);
    assert_eq!(first[1], [b"MULTI"]);
    assert_eq!(first[2], [b"DEL", &b"\0list\r\n"[..]]);
    let (last, pushes) = rest.split_last().unwrap();
    assert_eq!(*last, [b"EXEC"]);
    let is_short =
        |args: &Vec<Vec<u8>>| args.len() <= 258 && args[..2] == [&b"RPUSH"[..], b"\0list\r\n"];
    assert!(pushes.iter().all(is_short));
    assert!(pushes.iter().flat_map(|args| &args[2..]).eq(&elements));
}

#[test]
fn the_example_of_the_format_page() {
    let source = Source::new();
    source.edit::<List>(b"l", |list| list.push_back([&b"first"[..]].into_iter()));
    source.take();
    source.edit::<List>(b"l", |list| list.push_back([&b"a"[..]].into_iter()));
    let records = source.take();
    assert_eq!(records, [b"\x08\x00\x01l\x04\x15\x01\x01a"]);
    assert_eq!(translated(Dialect::Tierce, &records), ["SELECT 0", "RPUSH l a"]);
}

/// Between two commands a list of one element would be gone, and its deadline with it.
#[test]
fn a_rotation_is_one_command() {
    let source = Source::new();
    let rotated = |edit: fn(&mut Editor<'_, List>)| {
        source.take();
        source.edit::<List>(b"l", edit);
        translated(Dialect::Redis6_2, &source.take()).pop().unwrap()
    };
    source.edit::<List>(b"l", |list| list.push_back([&b"a"[..]].into_iter()));
    let alone = |list: &mut Editor<'_, List>| {
        list.remove(0, 1);
        list.push_back([&b"a"[..]].into_iter());
    };
    assert_eq!(rotated(alone), "LMOVE l l LEFT RIGHT");
    source.edit::<List>(b"l", |list| list.push_back([&b"b"[..]].into_iter()));
    let last = |list: &mut Editor<'_, List>| {
        list.remove(1, 1);
        list.push_front([&b"b"[..]].into_iter());
    };
    assert_eq!(rotated(last), "LMOVE l l RIGHT LEFT");
    let several = |list: &mut Editor<'_, List>| {
        list.remove(0, 1);
        list.push_back([&b"b"[..], b"c"].into_iter());
    };
    assert_eq!(rotated(several), "EXEC");
}

/// The claim that gives entries back creates no consumer in Tierce.
#[test]
fn a_consumer_without_a_name_is_created_after_entries_were_given_back() {
    let (source, id) = (Source::new(), StreamId::new(1, 1));
    source.edit::<Stream>(b"s", |stream| {
        stream.set_group(b"g", id, None);
        stream.set_consumer(b"g", b"c", 0, None);
    });
    source.take();
    source.edit::<Stream>(b"s", |stream| {
        stream.deliver(b"g", b"", &[id], Delivery::given_back(1));
        stream.set_consumer(b"g", b"", 5, None);
        stream.deliver(b"g", b"c", &[id], Delivery { at_ms: 5, count: 2 });
        stream.set_consumer(b"g", b"c", 5, Some(5));
    });
    let lines = translated(Dialect::Tierce, &source.take());
    let expected = [
        "SELECT",
        "MULTI",
        "XCLAIM s g  0",
        "XGROUP CREATECONSUMER s g ",
        "XCLAIM s g c 0",
        "EXEC",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    let is_as_expected = |(line, begin): (&String, &str)| line.starts_with(begin);
    assert!(lines.iter().zip(expected).all(is_as_expected), "{lines:#?}");
}

#[test]
fn a_long_string_is_one_command() {
    let source = Source::new();
    let value = vec![b'x'; 3 << 20];
    source.set(b"key", &value);
    let (mut translator, mut stream) = (translator(Dialect::Tierce), Vec::new());
    source.take().iter().for_each(|record| translator.record(record, &mut stream).unwrap());
    let commands = commands(&stream);
    assert_eq!(commands.len(), 2);
    assert_eq!(commands[1], [b"SET", &b"key"[..], &value]);
}

#[test]
fn a_database_is_selected_when_it_changes_and_when_a_reader_joins() {
    let source = Source::new();
    source.set(b"a", b"1");
    source.set(b"b", b"text");
    let (mut translator, mut stream) = (translator(Dialect::Tierce), Vec::new());
    source.take().iter().for_each(|record| translator.record(record, &mut stream).unwrap());
    translator.command(None, b"*1\r\n$4\r\nPING\r\n", &mut stream);
    translator.command(Some(3), b"*1\r\n$4\r\nPING\r\n", &mut stream);
    translator.forget_db();
    translator.command(Some(3), b"*1\r\n$4\r\nPING\r\n", &mut stream);
    let expected =
        ["SELECT 0", "SET a 1", "SET b text", "PING", "SELECT 3", "PING", "SELECT 3", "PING"];
    assert_eq!(lines(&stream), expected);
}

#[test]
fn a_value_on_disk_moves_with_its_name() {
    let location = [0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0];
    let record = |parts: &[&[u8]]| {
        parts.iter().flat_map(|part| [*part, &location[..]]).collect::<Vec<_>>().concat()
    };
    let renamed = record(&[b"\x0e\x00\x01a", b"\x09\x00\x01b"]);
    let moved = record(&[b"\x0e\x00\x01a", b"\x09\x04\x01a"]);
    let expected = ["SELECT 0", "RENAME a b", "MOVE a 4"];
    assert_eq!(translated(Dialect::Tierce, &[renamed, moved]), expected);
    let unknown = record(&[b"\x09\x00\x01b"]);
    translator(Dialect::Tierce).record(&unknown, &mut Vec::new()).unwrap_err();
}

#[test]
fn each_dialect_leaves_out_what_its_servers_cannot_know() {
    let source = Source::new();
    source.edit::<Hash>(b"h", |hash| _ = hash.put(b"field", b"value", Some(99)));
    let library = b"\x0c\x00\x01l\x06source".to_vec();
    let script = b"\x0d\x01\x01s".to_vec();
    let records = [source.take(), vec![library, script]].concat();
    let timed = "HPEXPIREAT h 99 FIELDS 1 field";
    let hash = ["SELECT 0", "MULTI", "DEL h", "HSET h field value"];
    let library = "FUNCTION LOAD REPLACE source";
    let script = "SCRIPT UNREGISTER s";
    for (dialect, rest) in [
        (Dialect::Redis6_2, &["EXEC"][..]),
        (Dialect::Redis7_0, &["EXEC", library]),
        (Dialect::Redis7_4, &[timed, "EXEC", library]),
        (Dialect::Tierce, &["EXEC", timed, library, script]),
    ] {
        assert_eq!(translated(dialect, &records), [&hash[..], rest].concat(), "{dialect:?}");
    }
}

#[test]
fn deadlines_of_members_are_for_servers_that_know_them() {
    let source = Source::new();
    source.edit::<Set>(b"s", |set| {
        set.add(b"a");
        set.set_deadline(b"a", Some(99));
    });
    source.edit::<Set>(b"s", |set| _ = set.set_deadline(b"a", None));
    let records = source.take();
    let older = ["SELECT 0", "MULTI", "DEL s", "SADD s a", "EXEC"];
    assert_eq!(translated(Dialect::Redis7_4, &records), older);
    let newer = ["SADDEX s PXAT 99 MEMBERS 1 a", "SADDEX s MEMBERS 1 a"];
    assert_eq!(translated(Dialect::Tierce, &records), [&older[..], &newer[..]].concat());
}

/// A reader that does not know a command refuses the whole transaction around it.
#[test]
fn what_a_reader_may_not_know_is_in_no_transaction() {
    let source = Source::new();
    source.edit::<Hash>(b"h", |hash| {
        _ = hash.put(b"kept", b"1", None);
    });
    source.take();
    source.edit::<Hash>(b"h", |hash| {
        for (field, deadline_ms) in [(b"a", Some(99)), (b"b", Some(99)), (b"c", None), (b"d", None)]
        {
            hash.put(field, b"1", deadline_ms);
        }
    });
    let library = b"\x0c\x00\x01l\x06source".to_vec();
    let script = b"\x0d\x01\x01s".to_vec();
    let together = [source.take(), vec![library, script]].concat().concat();
    let expected = [
        "SELECT 0",
        "HSET h a 1",
        "HPEXPIREAT h 99 FIELDS 1 a",
        "HSET h b 1",
        "HPEXPIREAT h 99 FIELDS 1 b",
        "MULTI",
        "HSET h c 1",
        "HSET h d 1",
        "EXEC",
        "FUNCTION LOAD REPLACE source",
        "SCRIPT UNREGISTER s",
    ];
    assert_eq!(translated(Dialect::Tierce, &[together]), expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(256)))]

    #[test]
    fn any_bytes_are_commands_or_an_error(
        records in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 1..5),
    ) {
        let (mut translator, mut stream) = (translator(Dialect::Tierce), Vec::new());
        for record in &records {
            let before = stream.len();
            if translator.record(record, &mut stream).is_err() {
                stream.truncate(before);
            }
        }
        commands(&stream);
    }
}
