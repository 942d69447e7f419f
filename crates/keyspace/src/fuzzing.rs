//! Checks for the fuzz targets. The targets in `fuzz/` pass a fuzzer's inputs, and the test `fuzz_smoke` passes
//! modified records, so that everyone runs the same checks.
//!
//! Each function panics when a guarantee of this crate is violated. Not part of the crate's
//! interface.

use std::sync::Arc;

use parking_lot::Mutex;
use tierce_collections::Collection;

use crate::access::keyspace::{Keyspace, Options};
use crate::change::log::sink::{LogSink, RecordKind};
use crate::data::collections::each_collection;
use crate::data::collections::sealed::Sealed;
use crate::db_index::DbIndex;
use crate::registries::snapshot::batch::SavedValue;
use crate::services::checkpoint::{Checkpoint, Pass};
use crate::services::replay::Replay;
use crate::services::scan::for_each_entry;

/// Time before any deadline.
const NO_TIME_MS: i64 = i64::MIN;
/// Maximum length of an extended string. A write far beyond its end is no error in a log.
const VALUE_LEN_MAX: usize = 64 << 10;
/// Memory of an almost empty keyspace.
const MEMORY_BASE: u64 = 1 << 20;
/// Maximum memory for a byte of a log: the smallest operation can give a key a value of maximum length.
const MEMORY_FOR_A_BYTE: u64 = 2 * VALUE_LEN_MAX as u64;

/// Separator between two records of a log.
pub const BETWEEN_RECORDS: [u8; 2] = [0xff; 2];

/// Checks that records of a log are replayed or refused. The result must be readable, and a replayed checkpoint of it
/// must be equal.
pub fn log(data: &[u8]) {
    let (first, _) = replayed(&records_of(data));
    let memory = first.memory();
    let used = memory.entries + memory.index + memory.deadlines;
    assert!(used <= MEMORY_BASE + MEMORY_FOR_A_BYTE * data.len() as u64, "{used} bytes");
    let records = checkpoint(&first);
    let (second, is_whole) = replayed(&records);
    assert!(is_whole, "a checkpoint that cannot be read");
    assert_eq!(contents(&first), contents(&second));
}

fn records_of(mut data: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    let between = |data: &[u8]| data.windows(2).position(|pair| pair == BETWEEN_RECORDS);
    while let Some(at) = between(data) {
        records.push(data[..at].to_vec());
        data = &data[at + BETWEEN_RECORDS.len()..];
    }
    records.push(data.to_vec());
    records
}

/// Checks that iteration and lookups of a collection agree.
pub fn check(collection: &Collection) {
    each_collection!(collection, value => value.check());
    assert_eq!(collection.duplicate().kind(), collection.kind());
}

/// Receiver of a checkpoint's records.
#[derive(Default)]
struct Records(Mutex<Vec<Vec<u8>>>);

impl LogSink for Records {
    fn append(&self, record: &[u8], _: RecordKind) {
        self.0.lock().push(record.to_vec());
    }
}

/// A keyspace loaded from records, with the log for a checkpoint.
struct Loaded {
    keyspace: Arc<Keyspace>,
    records: Arc<Records>,
}

impl std::ops::Deref for Loaded {
    type Target = Keyspace;

    fn deref(&self) -> &Keyspace {
        &self.keyspace
    }
}

/// Returns the keyspace after a replay, and true if all records could be read.
fn replayed(log: &[Vec<u8>]) -> (Loaded, bool) {
    let records = Arc::new(Records::default());
    let options = Options {
        shards: 2,
        databases: 2,
        value_len_max: VALUE_LEN_MAX,
        log: Some(Arc::clone(&records) as Arc<dyn LogSink>),
        ..Options::default()
    };
    let keyspace = Arc::new(Keyspace::new(options).expect("sound options"));
    let replay = Replay::start(Arc::clone(&keyspace), 1, 0);
    let mut replay = replay.expect("a thread");
    let read = log.iter().try_for_each(|record| replay.record(record));
    let is_whole = replay.finish().is_ok() && read.is_ok();
    (Loaded { keyspace, records }, is_whole)
}

/// Returns the records of a checkpoint of everything.
fn checkpoint(loaded: &Loaded) -> Vec<Vec<u8>> {
    loaded.keyspace.begin_logging();
    let mut checkpoint = Checkpoint::begin(&loaded.keyspace);
    while checkpoint.step().1 != Pass::Complete {}
    std::mem::take(&mut loaded.records.0.lock())
}

/// A key, its deadline, and the parts of its value.
type Content = (DbIndex, Vec<u8>, Option<i64>, Vec<String>);

/// Returns all keys with their values, in an order that depends only on the contents.
fn contents(keyspace: &Keyspace) -> Vec<Content> {
    let mut contents = Vec::new();
    for db in keyspace.db_indices() {
        for_each_entry(&mut keyspace.locks(), db, NO_TIME_MS, |entry| {
            let value = entry.value();
            let mut copy = Vec::new();
            let mut parts: Vec<String> = match SavedValue::of(&value, &mut copy) {
                SavedValue::Collection(saved) => {
                    saved.parts().map(|part| format!("{part:?}")).collect()
                }
                string => vec![format!("{string:?} {} {:?}", entry.flags(), entry.marks())],
            };
            if let crate::Value::Collection(collection) = &value {
                check(collection);
                // Unordered collections iterate in the order of their hashes.
                if matches!(**collection, Collection::Set(_) | Collection::Hash(_)) {
                    parts.sort();
                }
            }
            contents.push((db, entry.key().to_vec(), entry.deadline_ms(), parts));
        });
    }
    contents.sort();
    contents
}
