//! A short run of the fuzz target for RESTORE on changed payloads, for machines without a fuzzer.

use proptest::prelude::*;
use tierce_rdb::{
    Consumer, Field, Group, Pending, Stream, StreamEntry, StreamId, StreamState, Value,
    WriterOptions, dump,
};
use tierce_server::fuzzing;

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

/// Payloads of collections of each kind, packed and plain, without version and checksum.
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
        let mut payload = dump::encode(options, |writer| writer.value(value)).unwrap();
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
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

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
