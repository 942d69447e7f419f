//! Bodies of the fuzz targets for RESTORE and for lines of JSON; see `tierce_keyspace::fuzzing`.
//!
//! They panic when a guarantee is violated. Not part of the crate's interface.

use std::sync::Arc;

use tierce_keyspace::{DbIndex, Keyspace, Options, SavedValue, Snapshot, Value};
use tierce_rdb::{Kind, WriterOptions, crc64, dump, fuzzing, testing};

use crate::commands::Executor;
use crate::jsonl;
use crate::persistence::values::{self, Assembly};

/// Upper bound of memory for a byte of a payload. Compression alone accounts for a factor of about ninety.
const MEMORY_FOR_A_BYTE: usize = 64 << 10;

/// Checks that lines behind a header are read or refused, and that accepted data survive a round trip.
pub fn lines(data: &[u8]) {
    const HEADER: &[u8] = b"{\"type\":\"header\",\"format\":\"tierce-jsonl\",\"version\":1}\n";
    let Some(written) = written_again(&[HEADER, data, b"\n{\"type\":\"end\"}"].concat()) else {
        return;
    };
    let again = written_again(&written).expect("its own lines");
    // Sets and hashes have no order. Nothing else may differ.
    assert_eq!(sorted(&written), sorted(&again));
}

fn sorted(lines: &[u8]) -> Vec<u8> {
    let mut bytes = lines.to_vec();
    bytes.sort_unstable();
    bytes
}

/// Loads these lines into an empty keyspace and exports it; `None` if they are refused.
fn written_again(lines: &[u8]) -> Option<Vec<u8>> {
    let options = Options { shards: 1, databases: 2, ..Options::default() };
    let keyspace = Arc::new(Keyspace::new(options).expect("sound options"));
    let mut locks = keyspace.locks();
    let mut reader = jsonl::Reader::new(lines, &keyspace);
    while reader.next_line(&mut locks).ok()?.is_some() {}
    let mut snapshot = Snapshot::begin(&keyspace, &mut locks, 0).expect("no other one");
    drop(locks);
    let path = std::path::Path::new("memory");
    let written = jsonl::write(Vec::new(), path, &mut snapshot, 0, |_| {});
    Some(written.expect("memory takes all of it").0)
}

/// Checks that a payload becomes a collection or is refused. All of the collection must be readable, and it must
/// stay the same when it is dumped and restored.
pub fn restored(data: &[u8]) {
    let summed = [data, &12_u16.to_le_bytes()].concat();
    let payload = [&summed[..], &crc64(0, &summed).to_le_bytes()].concat();
    replaces_or_changes_nothing(&payload);
    let Some(dumped) = dump_of_restored(&payload) else { return };
    let again = dump_of_restored(&dumped).expect("its own payload");
    assert_eq!(decoded(&dumped), decoded(&again));
}

/// Checks that RESTORE with REPLACE either answers OK, and DUMP and RESTORE then reproduce the key, or answers an
/// error and leaves the key as it was.
fn replaces_or_changes_nothing(payload: &[u8]) {
    let options = Options { shards: 1, databases: 1, ..Options::default() };
    let keyspace = Arc::new(Keyspace::new(options).expect("sound options"));
    let mut executor = Executor::new(Arc::clone(&keyspace)).expect("a server without clients");
    let words = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect::<Vec<_>>();
    executor.execute(&words(&[b"RPUSH", b"key", b"former", b"12"])).expect("a list");
    let dump_of_key = || {
        let key = keyspace.key(b"key");
        let mut locks = keyspace.locks();
        let mut db = locks.db(DbIndex::ZERO, key.hash(), 0);
        db.get(key).expect("a value in memory").map(|value| dump_of(&value))
    };
    let mut restore =
        |payload: &[u8]| executor.execute(&words(&[b"RESTORE", b"key", b"0", payload, b"REPLACE"]));
    let former = dump_of_key();
    let done = restore(payload);
    let now = dump_of_key();
    match done {
        Err(_) => assert_eq!(now, former, "refused"),
        Ok(()) => {
            let now = now.expect("what was restored is there");
            restore(&now).expect("its own payload");
            let again = dump_of_key().expect("what was restored is there");
            assert_eq!(decoded(&now), decoded(&again));
        }
    }
}

/// Restores a payload, checks the collection, and dumps it. Returns `None` if the payload is refused, or has no
/// collection or an empty one.
fn dump_of_restored(payload: &[u8]) -> Option<Vec<u8>> {
    let options = Options { shards: 1, databases: 1, ..Options::default() };
    let keyspace = Keyspace::new(options).expect("sound options");
    let parsed = dump::Payload::parse(payload).ok()?;
    if parsed.kind() == Kind::String {
        return None;
    }
    let mut loading = Assembly::begin(parsed.kind(), keyspace.limits())?;
    parsed.visit(|part| loading.add(part)).ok()?;
    let collection = loading.finish().ok()?;
    let used = collection.allocated_bytes();
    assert!(used <= MEMORY_FOR_A_BYTE * payload.len(), "{used} bytes");

    let key = keyspace.key(b"key");
    let mut locks = keyspace.locks();
    let mut db = locks.db(DbIndex::ZERO, key.hash(), 0);
    db.put_collection(key, collection, None).expect("a short key");
    let value = db.get(key).expect("a value in memory")?;
    if let Value::Collection(collection) = &value {
        tierce_keyspace::fuzzing::check(collection);
    }
    Some(dump_of(&value))
}

fn dump_of(value: &Value<'_>) -> Vec<u8> {
    let mut copy = Vec::new();
    let value = SavedValue::of(value, &mut copy);
    let options = WriterOptions { version: values::version_of(&value), ..WriterOptions::default() };
    dump::encode(options, |writer| values::write(writer, &value, |_, _| {}))
        .expect("a vector takes everything")
}

fn decoded(payload: &[u8]) -> testing::Value {
    let payload = dump::Payload::parse(payload).expect("its own payload");
    testing::Value::of_payload(&payload).map(fuzzing::canonical).expect("its own payload")
}
