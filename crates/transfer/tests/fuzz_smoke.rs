//! Short runs of the fuzz targets on mutated payloads and lines, for machines without a fuzzer.

use proptest::prelude::*;
use tierce_harness::effort;
use tierce_rdb::testing::{Field, Value};
use tierce_rdb::{
    Consumer, Group, Pending, Stream, StreamEntry, StreamId, StreamState, WriterOptions, dump,
};
use tierce_transfer::fuzzing;

fn bytes(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

fn stream() -> Stream {
    let entry = |ms, name: &str| StreamEntry {
        id: StreamId { ms, seq: 1 },
        fields: vec![(name.as_bytes().into(), bytes("v")), (b"n"[..].into(), bytes("7"))],
    };
    let id = StreamId { ms: 5, seq: 1 };
    let pending = vec![Pending { id, delivered_ms: 7, deliveries: 2 }];
    let consumer = Consumer { name: bytes("ann"), seen_ms: 9, active_ms: Some(8), pending };
    Stream {
        entries: vec![entry(5, "a"), entry(6, "a"), entry(9, "b")],
        state: StreamState {
            last_id: StreamId { ms: 9, seq: 1 },
            entries_added: 4,
            ..StreamState::default()
        },
        groups: vec![Group { name: bytes("g"), consumers: vec![consumer], ..Group::default() }],
    }
}

/// Returns payloads of collections of each kind, packed and plain, without version and checksum.
fn seeds() -> Vec<Vec<u8>> {
    let field = |name: &str, expiry_ms| Field { name: bytes(name), value: bytes("v"), expiry_ms };
    let values = [
        Value::List(vec![bytes("a"), bytes("123456"), vec![b'l'; 9000]]),
        Value::Set(vec![bytes("1"), bytes("-70000")]),
        Value::Set(vec![bytes("a"), bytes("5")]),
        Value::Set(vec![vec![b'l'; 70]]),
        Value::SortedSet(vec![(bytes("a"), 1.5), (bytes("b"), f64::INFINITY)]),
        Value::SortedSet(vec![(vec![b'l'; 70], -2.0)]),
        Value::Hash(vec![field("f", None), field("12", None)]),
        Value::Hash(vec![field("f", Some(1000)), field("g", None), field("h", Some(999))]),
        Value::Stream(stream()),
    ];
    let payload = |value: &Value| {
        let options = WriterOptions { version: 12, ..WriterOptions::default() };
        let mut payload = dump::encode(options, |writer| value.write(writer)).unwrap();
        payload.truncate(payload.len() - 10);
        payload
    };
    values.iter().map(payload).collect()
}

#[test]
fn collections_come_back() {
    seeds().iter().for_each(|seed| fuzzing::restored(seed));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: effort(800), ..ProptestConfig::default() })]

    #[test]
    fn any_payload_is_restored_or_refused(
        seed in prop::sample::select(seeds()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 0..5),
    ) {
        let mut payload = seed;
        for (at, byte, how) in changes {
            let at = at.index(payload.len() + 1);
            match how {
                0 if at < payload.len() => _ = payload.remove(at),
                1 => payload.insert(at, byte),
                _ if at < payload.len() => payload[at] = byte,
                _ => payload.push(byte),
            }
        }
        fuzzing::restored(&payload);
    }
}

/// Lines of all types; the test mutates a byte or a piece.
const LINES: &str = r#"{"type":"string","db":1,"key":"s","expires_ms":1900000000000,"flags":7,"won":true,"value":"ab","more":true}
{"type":"string","db":1,"key":"s","value":{"base64":"/w=="}}
{"type":"list","key":"l","value":["a","b"]}
{"type":"set","key":"m","value":["a","b"]}
{"type":"zset","key":"z","value":[["a",1.5],["b","-inf"]]}
{"type":"hash","key":"h","value":[["f","v"],["g","w",1900000000000]]}
{"type":"stream","key":"x","value":[{"state":{"last_id":"1-1","max_deleted_id":"0-0","entries_added":1}},{"entry":{"id":"1-1","fields":["f","v"]}},{"group":{"name":"g","last_delivered":"1-1","entries_read":1}},{"consumer":{"name":"ann","seen_ms":1,"active_ms":2}},{"pending":{"consumer":"ann","delivered_ms":3,"deliveries":4,"ids":["1-1"]}}]}
{"type":"script","name":"n","source":"return 1"}"#;

#[test]
fn lines_of_json_are_read_as_they_are() {
    fuzzing::lines(LINES.as_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(256)))]

    #[test]
    fn changed_lines_are_read_or_refused(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        from in any::<prop::sample::Index>(),
        len in 0_usize..40,
    ) {
        let mut lines = LINES.as_bytes().to_vec();
        let place = at.index(lines.len());
        lines[place] = byte;
        fuzzing::lines(&lines);
        let from = from.index(LINES.len());
        let piece = &LINES.as_bytes()[from..(from + len).min(LINES.len())];
        lines.splice(place..place, piece.iter().copied());
        fuzzing::lines(&lines);
    }
}
