//! Any value survives a file and a payload, in every version that can be written.

use std::sync::Arc;

use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use tierce_harness::effort;
use tierce_rdb::fuzzing::canonical;
use tierce_rdb::testing::{Field, Value};
use tierce_rdb::{
    Attributes, Consumer, Encoding, Error, Event, Group, Kind, Pending, Reader, Stream,
    StreamEntry, StreamId, StreamState, Writer, WriterOptions, dump,
};

/// Strings of all forms: numbers, short ones, ones too long to be packed, repetitive ones.
fn string() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..30),
        vec(any::<u8>(), 60..70),
        (any::<i64>(), 0..64_u32).prop_map(|(n, shift)| (n >> shift).to_string().into_bytes()),
        (vec(any::<u8>(), 1..5), 1..200_usize).prop_map(|(part, times)| part.repeat(times)),
    ]
}

fn score() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>().prop_filter("no number", |score| !score.is_nan()),
        (-1000..1000_i32).prop_map(f64::from),
        Just(f64::INFINITY),
    ]
}

fn id() -> impl Strategy<Value = StreamId> {
    (0..50_u64, 0..5_u64).prop_map(|(ms, seq)| StreamId { ms: ms * ms * ms, seq })
}

/// Times within the limit of the format.
fn time_ms() -> impl Strategy<Value = u64> {
    0..(1_u64 << 48)
}

fn group() -> impl Strategy<Value = Group> {
    let pending = || {
        btree_map(id(), (time_ms(), 0..1000_u64), 0..8).prop_map(|pending| {
            let entry = |(id, (delivered_ms, deliveries))| Pending { id, delivered_ms, deliveries };
            pending.into_iter().map(entry).collect::<Vec<_>>()
        })
    };
    let consumer = (string(), time_ms(), option::of(time_ms()));
    (string(), id(), option::of(0..1000_u64), vec(consumer, 0..3), pending()).prop_map(
        |(name, last_delivered, entries_read, mut consumers, mut pending)| {
            consumers.dedup_by(|a, b| a.0 == b.0);
            // An entry is pending with one consumer only.
            let mut share = |_| pending.split_off(pending.len() / 2);
            let consumers: Vec<_> = consumers
                .into_iter()
                .enumerate()
                .map(|(at, (name, seen_ms, active_ms))| Consumer {
                    name,
                    seen_ms,
                    active_ms,
                    pending: share(at),
                })
                .collect();
            Group { name, last_delivered, entries_read, lacks_entries_read: false, consumers }
        },
    )
}

fn stream() -> impl Strategy<Value = Stream> {
    let fields = vec((0..3_u8, string()), 0..4);
    let entries = btree_map(id(), fields, 0..130).prop_map(|entries| {
        let name = |n: u8| -> Arc<[u8]> { [b'a' + n][..].into() };
        let entry = |(id, fields): (StreamId, Vec<(u8, Vec<u8>)>)| StreamEntry {
            id,
            fields: fields.into_iter().map(|(n, value)| (name(n), value)).collect(),
        };
        entries.into_iter().map(entry).collect::<Vec<_>>()
    });
    let state = (id(), id(), any::<u64>()).prop_map(|(last_id, max_deleted_id, entries_added)| {
        StreamState { last_id, max_deleted_id, entries_added }
    });
    (entries, state, vec(group(), 0..3)).prop_map(|(entries, mut state, mut groups)| {
        state.last_id = state.last_id.max(entries.last().map_or(state.last_id, |last| last.id));
        groups.dedup_by(|a, b| a.name == b.name);
        Stream { entries, state, groups }
    })
}

fn hash(expiry: impl Strategy<Value = Option<u64>>) -> impl Strategy<Value = Value> {
    btree_map(string(), (string(), expiry), 0..140).prop_map(|fields| {
        let field = |(name, (value, expiry_ms))| Field { name, value, expiry_ms };
        Value::Hash(fields.into_iter().map(field).collect())
    })
}

/// Values that all versions support.
fn value() -> impl Strategy<Value = Value> {
    let integers = btree_set(any::<i64>(), 1..600).prop_map(|members| {
        Value::Set(members.into_iter().map(|member| member.to_string().into_bytes()).collect())
    });
    prop_oneof![
        string().prop_map(Value::String),
        vec(string(), 0..140).prop_map(Value::List),
        btree_set(string(), 1..140).prop_map(|members| Value::Set(members.into_iter().collect())),
        integers,
        btree_map(string(), score(), 0..140)
            .prop_map(|members| Value::SortedSet(members.into_iter().collect())),
        hash(Just(None)),
    ]
}

fn attributes() -> impl Strategy<Value = Attributes> {
    (option::of(time_ms()), option::of(any::<u64>()), option::of(any::<u8>())).prop_map(
        |(expiry_ms, idle_seconds, frequency)| Attributes { expiry_ms, idle_seconds, frequency },
    )
}

fn options() -> impl Strategy<Value = WriterOptions> {
    (9..=12_u16, any::<bool>(), any::<bool>()).prop_map(|(version, compression, checksum)| {
        WriterOptions { version, compression, checksum, ..WriterOptions::default() }
    })
}

/// Writes a file with one key in database 3, reads it, and returns value and encoding.
fn through_file(
    options: WriterOptions,
    attributes: Attributes,
    write: impl FnOnce(tierce_rdb::ValueWriter<'_, Vec<u8>>) -> tierce_rdb::Result<()>,
) -> (Value, Encoding) {
    let mut writer = Writer::new(Vec::new(), options).unwrap();
    writer.select_db(3).unwrap();
    write(writer.entry(b"key", &attributes)).unwrap();
    let file = writer.finish().unwrap();

    let mut reader = Reader::new(&file[..]).unwrap();
    assert_eq!(reader.next_event().unwrap(), Some(Event::SelectDb(3)));
    let Some(Event::Entry(entry)) = reader.next_event().unwrap() else { panic!("no key") };
    assert_eq!((entry.db, &entry.key[..], entry.attributes), (3, &b"key"[..], attributes));
    let value = Value::read(entry.kind(), |add| reader.visit_value(add)).unwrap();
    assert!(matches!(reader.next_event().unwrap(), Some(Event::End { .. })));
    assert_eq!(reader.next_event().unwrap(), None);
    assert_eq!(reader.offset(), file.len() as u64);
    (value, entry.encoding)
}

fn through_payload(options: WriterOptions, value: &Value) -> Value {
    let payload = dump::encode(options, |writer| value.write(writer)).unwrap();
    let payload = dump::Payload::parse(&payload).unwrap();
    assert_eq!(payload.kind(), value.kind());
    Value::of_payload(&payload).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(128)))]

    #[test]
    fn whole_values(value in value(), options in options(), attributes in attributes()) {
        let (found, _) = through_file(options, attributes, |writer| value.write(writer));
        let value = canonical(value);
        prop_assert_eq!(&canonical(found), &value);
        prop_assert_eq!(canonical(through_payload(options, &value)), value);
    }

    #[test]
    fn values_element_by_element(value in value(), options in options()) {
        let (found, _) =
            through_file(options, Attributes::default(), |writer| value.write_plain(writer));
        prop_assert_eq!(found, value);
    }

    #[test]
    fn hashes_with_deadlines(hash in hash(option::of(time_ms()))) {
        let options = WriterOptions { version: 12, ..WriterOptions::default() };
        let (found, _) =
            through_file(options, Attributes::default(), |writer| hash.write(writer));
        prop_assert_eq!(canonical(found), canonical(hash));
    }

    #[test]
    fn streams(stream in stream(), options in options()) {
        let (found, encoding) =
            through_file(options, Attributes::default(), |writer| writer.stream(&stream));
        prop_assert_eq!(found, Value::Stream(as_encoded(stream.clone(), encoding)));
        let value = Value::Stream(stream.clone());
        let expected = Value::Stream(as_encoded(stream, encoding));
        prop_assert_eq!(through_payload(options, &value), expected);
    }
}

/// Returns a stream without the parts that an encoding does not store.
fn as_encoded(mut stream: Stream, encoding: Encoding) -> Stream {
    if encoding == Encoding::Stream {
        stream.state.max_deleted_id = StreamId::default();
        stream.state.entries_added = stream.entries.len() as u64;
        stream.groups.iter_mut().for_each(|group| {
            (group.entries_read, group.lacks_entries_read) = (None, true);
        });
    }
    if encoding != Encoding::Stream3 {
        let consumers = stream.groups.iter_mut().flat_map(|group| &mut group.consumers);
        consumers.for_each(|consumer| consumer.active_ms = Some(consumer.seen_ms));
    }
    stream
}

#[test]
fn strings_larger_than_all_buffers() {
    let random: Vec<u8> =
        (0..300_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for string in [random, vec![b'x'; 10_000_000], b"the same again and ".repeat(40_000)] {
        for compression in [true, false] {
            let options = WriterOptions { compression, ..WriterOptions::default() };
            let (found, _) = through_file(options, Attributes::default(), |w| w.string(&string));
            assert!(found == Value::String(string.clone()));
        }
    }
}

#[test]
fn versions_say_what_they_cannot_hold() {
    let field = Field { name: vec![1], value: vec![2], expiry_ms: Some(3) };
    let hash = Value::Hash(vec![field]);
    let error = dump::encode(WriterOptions::default(), |writer| hash.write(writer)).unwrap_err();
    assert!(matches!(error, Error::NotInVersion { needed: 12, version: 10, .. }), "{error}");
    for version in [0, 8, 13, u16::MAX] {
        let options = WriterOptions { version, ..WriterOptions::default() };
        assert!(matches!(Writer::new(Vec::new(), options), Err(Error::Version { .. })));
    }
}

#[test]
fn what_a_version_does_not_know_may_be_left_out() {
    let field = |name: &[u8], expiry_ms| Field { name: name.into(), value: vec![2], expiry_ms };
    for (version, deadlines_stay) in [(9, false), (10, false), (11, false), (12, true)] {
        let options =
            WriterOptions { version, leave_out_unknown: true, ..WriterOptions::default() };
        let stays = |deadline: Option<u64>| deadline.filter(|_| deadlines_stay);
        let hash = Value::Hash(vec![field(b"a", Some(3)), field(b"b", None)]);
        let expected = Value::Hash(vec![field(b"a", stays(Some(3))), field(b"b", None)]);
        let (found, _) = through_file(options, Attributes::default(), |w| hash.write(w));
        assert_eq!(found, expected, "version {version}");

        let mut file = Writer::new(Vec::new(), options).unwrap();
        file.function(b"#!lua name=lib").unwrap();
        let has_function = file.finish().unwrap().windows(3).any(|bytes| bytes == b"lua");
        assert_eq!(has_function, version >= 10);
    }
}

#[test]
fn a_wrong_number_of_elements_is_an_error() {
    for announced in [1, 3] {
        let written = dump::encode(WriterOptions::default(), |writer| {
            let mut list = writer.begin_collection(Kind::List, announced, None)?;
            [b"a", b"b"].iter().try_for_each(|element| list.element(*element))?;
            list.finish()
        });
        assert!(matches!(written, Err(Error::Count { announced: n }) if n == announced));
    }
}
