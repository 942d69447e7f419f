//! What the fuzz targets do with their bytes. The targets in `fuzz/` hand in what a fuzzer finds, and the
//! test `fuzz_smoke` hands in changed records, so that everyone runs the same checks.
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

/// Before any deadline.
const NO_TIME_MS: i64 = i64::MIN;
/// Bytes that a string may be extended to. A write far beyond its end is no mistake in a log.
const VALUE_LEN_MAX: usize = 64 << 10;
/// Memory of a keyspace with next to nothing in it.
const MEMORY_BASE: u64 = 1 << 20;
/// Memory for a byte of a log, at most: that of the smallest operation, by which a key has a value as long
/// as values may be.
const MEMORY_FOR_A_BYTE: u64 = 2 * VALUE_LEN_MAX as u64;

/// What is between two records of a log.
pub const BETWEEN_RECORDS: [u8; 2] = [0xff; 2];

/// Records of a log are replayed or refused. What they leave can be read; a checkpoint of it, replayed,
/// leaves the same.
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

/// Iteration and lookups of a collection tell the same.
pub fn check(collection: &Collection) {
    each_collection!(collection, value => value.check());
    assert_eq!(collection.duplicate().kind(), collection.kind());
}

/// Takes the records of a checkpoint.
#[derive(Default)]
struct Records(Mutex<Vec<Vec<u8>>>);

impl LogSink for Records {
    fn append(&self, record: &[u8], _: RecordKind) {
        self.0.lock().push(record.to_vec());
    }
}

/// A keyspace that was loaded from records, with the log that a checkpoint would go to.
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

/// What records leave behind, and whether all of them could be read.
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

/// The records of a checkpoint of everything.
fn checkpoint(loaded: &Loaded) -> Vec<Vec<u8>> {
    loaded.keyspace.begin_logging();
    let mut checkpoint = Checkpoint::begin(&loaded.keyspace);
    while checkpoint.step().1 == Pass::Underway {}
    std::mem::take(&mut loaded.records.0.lock())
}

/// A key, its deadline, and the parts of its value.
type Content = (DbIndex, Vec<u8>, Option<i64>, Vec<String>);

/// All keys with their values, in an order that is that of contents alone.
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
                // What has no order comes in that of a hash.
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
