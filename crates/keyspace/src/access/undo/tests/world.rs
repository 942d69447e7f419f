//! A keyspace whose whole state can be compared.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use tierce_collections::hash::FieldRef;
use tierce_collections::{Collection, IntText, ListLimits, PackedLimits, SetLimits, StreamLimits};
use tierce_storage::disk::{Disk, SimDisk};
use tierce_storage::{ColdBuffer, ColdOptions, ColdStore, Durable, Origin};

use super::act::{act, name};
use crate::access::keyspace::{Keyspace, Options};
use crate::access::shard_locks::ShardLocks;
use crate::change::event::EventClasses;
use crate::change::log::batch::Batch;
use crate::change::log::sink::{LogSink, RecordKind, Sizes};
use crate::codec::Writer;
use crate::data::code::CodeSet;
use crate::data::cold_value;
use crate::data::collections::Limits;
use crate::data::collections::convert::encode;
use crate::data::db_counters::{ColdCounts, DbCounters};
use crate::data::entry::{Attributes, Entry};
use crate::data::value::Value;
use crate::db_index::DbIndex;
use crate::random::mix;
use crate::registries::policy::Policy;
use crate::registries::pressure::Eviction;
use crate::registries::waiters::{WaitKey, Wakes};
use crate::services::spill::{SpillBatch, gather_cold, leave_to_disk};
use crate::services::waiters::wait_for_keys;
use crate::services::watch::{Watch, watch_key};

pub(super) const NOW_MS: i64 = 1_700_000_000_000;
pub(super) const DBS: usize = 3;

/// Records that a log has received.
#[derive(Default)]
pub(super) struct Records(pub(super) Mutex<Vec<Vec<u8>>>);

impl LogSink for Records {
    fn append(&self, record: &[u8], _: RecordKind) {
        self.0.lock().push(record.to_vec());
    }
}

pub(super) struct World {
    pub(super) keyspace: Arc<Keyspace>,
    pub(super) records: Arc<Records>,
    _watch: Watch,
}

/// State that a rollback restores.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct State {
    /// Kind, value, deadline, attributes and use of each key.
    entries: BTreeMap<(usize, Vec<u8>), [String; 5]>,
    /// Figures of each shard, and versions of its groups of keys.
    figures: Vec<Vec<u64>>,
    ready: Vec<WaitKey>,
    /// Clients that wait for each key, in their order.
    waiting: BTreeMap<WaitKey, Vec<u64>>,
    batch: Vec<u8>,
    events: String,
    touched: String,
    code: CodeSet,
}

impl World {
    /// Returns a world with some keys; some of them are awaited, some watched, and some have a version that a client
    /// knows.
    pub(super) fn new(seed: u64, steps: u64) -> Self {
        Self::with(seed, steps, Sizes::default(), false)
    }

    /// Like [`World::new`], with records split as `log_sizes` says, and with values on disk.
    pub(super) fn with(seed: u64, steps: u64, log_sizes: Sizes, spills: bool) -> Self {
        let records = Arc::new(Records::default());
        let log = Some(Arc::clone(&records) as Arc<dyn LogSink>);
        let options = Options { shards: 4, databases: DBS, log, log_sizes, ..Options::default() };
        let keyspace = Arc::new(Keyspace::new(options).unwrap());
        keyspace.set_limits(&small_limits());
        if spills {
            let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(seed));
            let options = ColdOptions { segment_size_bytes: 64 * 4096, open_files_max: 2 };
            let store = ColdStore::open(disk, Path::new("/cold"), options).unwrap();
            keyspace.set_cold_store(Arc::new(store));
        }
        let policy = if seed.is_multiple_of(2) { Policy::AllkeysLru } else { Policy::Noeviction };
        keyspace.set_eviction(&Eviction { policy, ..Eviction::default() });
        keyspace.begin_logging();
        keyspace.set_event_classes(EventClasses::ALL);
        let mut locks = keyspace.locks();
        for number in 0..3 {
            let name = name(number);
            let key = keyspace.key(&name);
            locks.db(DbIndex::ZERO, key.hash(), NOW_MS).peek(key);
            let wakes = [Wakes::Removal, Wakes::Creation, Wakes::Edit][number];
            wait_for_keys(&mut locks, DbIndex::ZERO, &[key], wakes, number as u64);
        }
        let mut all = locks.lock_all();
        if !seed.is_multiple_of(3) {
            all.locks().start_versions();
        }
        for step in 0..steps {
            act(all.locks(), mix(seed << 32 | step));
        }
        drop(all);
        drop(locks.take_ready());
        if spills {
            spill(&keyspace);
        }
        let mut watch = Watch::new(&keyspace);
        for number in 2..5 {
            let name = name(number);
            watch_key(&mut locks, &mut watch, DbIndex::ZERO, keyspace.key(&name), NOW_MS);
        }
        drop(locks);
        Self { keyspace, records, _watch: watch }
    }

    /// Returns the present state. All shards are locked.
    pub(super) fn state(locks: &mut ShardLocks<'_>) -> State {
        let mut entries = BTreeMap::new();
        let (mut figures, keyspace) = (Vec::new(), locks.keyspace());
        let mut waiting = BTreeMap::new();
        for held in locks.all_held() {
            for (number, db) in held.shard.dbs().map(|(number, db)| (number.get(), db)) {
                for entry in db.table.iter() {
                    entries.insert((number, entry.key().to_vec()), shown(keyspace, entry));
                }
            }
            waiting.extend(held.shard.waiters.iter().flat_map(|waiters| waiters.all()));
            let stats = held.stats;
            let awaited = [&stats.awaited_keys, &stats.awaited_removals];
            let counters = [&stats.hits, &stats.misses, &stats.expired, &stats.evicted];
            let mut all: Vec<u64> = counters.map(|counter| counter.get()).to_vec();
            all.push(stats.changes.get());
            all.extend(awaited.map(|counter| counter.get()));
            // Without versions handed out, all keys are as new as the latest change.
            let latest = keyspace.version_after(stats.changes.get()).get();
            let versions = stats.versions.get().into_iter().flatten().map(|it| it.get());
            all.extend(versions.filter(|version| *version != latest));
            figures.push(all);
        }
        // Records say which values are on disk, and that depends on chance.
        let batch = locks.thread.effects.batch.as_ref().filter(|_| keyspace.cold_store().is_none());
        let batch = batch.map_or_else(Vec::new, Batch::ops);
        // A flush notes them in any order.
        let notices = locks.thread.effects.notices();
        let mut ready = notices.ready.all();
        ready.sort();
        let events = format!("{:?}", notices.events);
        let touched = format!("{:?}", notices.touched);
        let code = CodeSet::clone(&keyspace.code().all());
        State { entries, figures, ready, waiting, batch, events, touched, code }
    }

    /// Returns the state without the figures of versions handed out meanwhile, and without pending effects.
    pub(super) fn lasting_state(&self) -> State {
        let mut locks = self.keyspace.locks();
        Self::state(locks.lock_all().locks())
    }
}

impl ShardLocks<'_> {
    fn start_versions(&mut self) {
        let latest = self.keyspace().version_after(0);
        self.all_held().iter().for_each(|held| _ = held.stats.versions.start(latest));
    }
}

impl State {
    /// Like [`State::values`], but ignores the form of sets and hashes.
    pub(super) fn values_in_any_order(&self) -> BTreeMap<(usize, Vec<u8>), [Vec<String>; 2]> {
        let in_any_order = |[value, deadline]: [String; 2]| {
            let mut words: Vec<String> = value.split(' ').map(str::to_owned).collect();
            words.sort();
            [words, vec![deadline]]
        };
        let values = self.values().into_iter();
        values.map(|(key, value)| (key, in_any_order(value))).collect()
    }

    /// Returns only values and deadlines.
    pub(super) fn values(&self) -> BTreeMap<(usize, Vec<u8>), [String; 2]> {
        let values = self.entries.iter();
        values.map(|(key, [_, value, at, ..])| (key.clone(), [value.clone(), at.clone()])).collect()
    }

    pub(super) fn is_as(&self, other: &Self, what: &str) {
        for (key, entry) in &self.entries {
            assert_eq!(Some(entry), other.entries.get(key), "{what}: {key:?}");
        }
        for key in other.entries.keys() {
            assert!(self.entries.contains_key(key), "{what}: {key:?} is there");
        }
        assert_eq!(self.figures, other.figures, "{what}: figures");
        assert_eq!(self.ready, other.ready, "{what}: ready keys");
        assert_eq!(self.waiting, other.waiting, "{what}: waiters");
        assert_eq!(self.batch, other.batch, "{what}: record");
        assert_eq!(self.events, other.events, "{what}: events");
        assert_eq!(self.touched, other.touched, "{what}: watched keys");
        assert!(self.code == other.code, "{what}: code");
    }

    pub(super) fn kinds(&self) -> impl Iterator<Item = &str> {
        self.entries.values().map(|shown| &*shown[0])
    }
}

fn small_limits() -> Limits {
    let packed = PackedLimits { entries_max: 6, value_len_max: 24 };
    Limits {
        list: ListLimits { entries_max: 6, bytes_max: 120 },
        set: SetLimits { integers_max: 5, packed },
        sorted_set: packed,
        hash: packed,
        stream: StreamLimits { node_bytes_max: 200, node_entries_max: 4 },
    }
}

/// Moves the coldest values to disk.
pub(super) fn spill(keyspace: &Keyspace) {
    let (mut locks, mut batch) = (keyspace.locks(), SpillBatch::default());
    for _ in 0..6 {
        gather_cold(&mut locks, &mut batch, NOW_MS);
    }
    let store = keyspace.cold_store().unwrap();
    let locations = store.write(batch.values(), Durable::Yes, Origin::Memory).unwrap();
    leave_to_disk(&mut locks, &batch, &locations, NOW_MS);
}

/// Shows an entry, regardless of the location of its value.
fn shown(keyspace: &Keyspace, entry: &Entry) -> [String; 5] {
    let Some(spilled) = entry.spilled() else { return shown_in_memory(entry) };
    let (store, mut buffer) = (keyspace.cold_store().unwrap(), ColdBuffer::default());
    let bytes = store.read(spilled.location, &mut buffer).unwrap();
    let content = cold_value::decode(bytes, &keyspace.limits).unwrap();
    let location = Some(spilled.location);
    let attributes = Attributes { location, ..entry.attributes() };
    let (deadline_ms, access) = (entry.deadline_ms(), entry.access());
    let key = entry.key();
    shown_in_memory(&Entry::with_attributes(key, content, deadline_ms, attributes, access))
}

fn shown_in_memory(entry: &Entry) -> [String; 5] {
    [
        format!("{:?} {}", entry.kind(), entry.encoding()),
        shown_value(entry.value()),
        format!("{:?}", entry.deadline_ms()),
        // Chance decides which values are on disk.
        format!("{:?}", Attributes { location: None, ..entry.attributes() }),
        format!("{:?}", entry.access()),
    ]
}

/// Shows a value. The order of elements in tables does not matter.
fn shown_value(value: Value<'_>) -> String {
    let collection = match value {
        Value::Str(string) => return string.to_vec().escape_ascii().to_string(),
        Value::Collection(collection) => collection,
    };
    let mut texts: Vec<String> = match &*collection {
        Collection::Set(set) => set
            .iter()
            .map(|member| {
                let deadline_ms = set.deadline_ms(member);
                format!("{},{deadline_ms:?}", member.bytes(&mut IntText::new()).escape_ascii())
            })
            .collect(),
        Collection::Hash(hash) => hash
            .iter()
            .map(|FieldRef { name, value, deadline_ms }| {
                let [mut a, mut b] = [(); 2].map(|()| IntText::new());
                let (name, value) = (name.bytes(&mut a), value.bytes(&mut b));
                format!("{}={},{deadline_ms:?}", name.escape_ascii(), value.escape_ascii())
            })
            .collect(),
        other => {
            let mut edits = Vec::new();
            encode(other, &mut Writer::new(&mut edits));
            return edits.escape_ascii().to_string();
        }
    };
    if collection.encoding() == "hashtable" {
        texts.sort();
    }
    texts.join(" ")
}

/// Checks all figures against a recount.
pub(super) fn recount(locks: &mut ShardLocks<'_>) {
    let (keyspace, mut on_disk) = (locks.keyspace(), 0);
    for held in locks.all_held() {
        let (mut entries, mut index, mut heaps) = (0, 0, 0);
        let (mut spilled, mut spilled_bytes) = (0, 0);
        for (index_of_db, db) in held.shard.dbs() {
            let number = index_of_db.get();
            let bytes: usize = db.table.iter().map(Entry::allocated_bytes).sum();
            assert_eq!(db.entry_bytes, bytes, "bytes of database {number}");
            let deadlines: Vec<i64> = db.table.iter().filter_map(Entry::deadline_ms).collect();
            let sum = deadlines.iter().map(|at| DbCounters::summand(*at)).sum();
            let figures = [db.table.len() as u64, deadlines.len() as u64, sum];
            assert_eq!(held.stats.dbs.figures(index_of_db), figures, "database {number}");
            let hashes = db.table.iter().filter(|entry| entry.next_field_deadline_ms().is_some());
            let volatile = db.volatile_hashes + db.volatile_sets;
            assert_eq!(volatile, hashes.count(), "hashes and sets with deadlines");
            for entry in db.table.iter() {
                let hash = keyspace.hash(entry.key());
                if let Some(at) = entry.deadline_ms() {
                    assert!(db.deadlines.has_item(hash, at), "an item for {entry:?}");
                    assert!(keyspace.next_deadlines_ms[held.index].load(Relaxed) <= at);
                }
                if let Some(at) = entry.next_field_deadline_ms() {
                    assert!(db.field_deadlines.has_item(hash, at), "an item for {entry:?}");
                }
            }
            let cold = count_cold(db.table.iter());
            assert_eq!(format!("{:?}", db.cold), format!("{cold:?}"), "values on disk");
            let [_, table, heap] = db.memory_bytes();
            (entries, index, heaps) = (entries + bytes, index + table, heaps + heap);
            spilled += cold.spilled_keys;
            spilled_bytes += cold.spilled_bytes;
        }
        on_disk += held
            .shard
            .dbs()
            .flat_map(|(_, db)| db.table.iter())
            .filter_map(|entry| Some(entry.location()?.stored_len()))
            .sum::<u64>();
        let stats = held.stats;
        let counted = [&stats.entry_bytes, &stats.index_bytes, &stats.deadline_bytes];
        assert_eq!(counted.map(|counter| counter.get() as usize), [entries, index, heaps]);
        assert_eq!([stats.spilled_keys.get(), stats.spilled_bytes.get()], [spilled, spilled_bytes]);
    }
    // Released locations count until the commit under an undo log.
    if let Some(store) = keyspace.cold_store()
        && !locks.has_undo()
    {
        assert_eq!(store.figures().live_bytes, on_disk, "bytes on disk");
    }
}

fn count_cold<'e>(entries: impl Iterator<Item = &'e Entry>) -> ColdCounts {
    let mut cold = ColdCounts::default();
    for location in entries.filter_map(|entry| Some((entry.location()?, entry.is_spilled()))) {
        cold.placed += 1;
        cold.spilled_keys += u64::from(location.1);
        cold.spilled_bytes += if location.1 { u64::from(location.0.len) } else { 0 };
    }
    cold
}
