//! Values on disk make no difference: a keyspace that spills and fetches values against a plain model, its log
//! replayed after a power cut, its snapshots.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;
use tierce_collections::SortedSet;
use tierce_harness::effort;
use tierce_keyspace::log::{Checkpoint, LogSink, Pass, RecordKind, Replay};
use tierce_keyspace::{
    Cleaning, Db, DbIndex, Editor, Error, Expiry, Freeing, Key, Keyspace, Missing, Options,
    Removal, Snapshot, SnapshotPiece, SpillBatch, Ttl, flush_dbs, for_each_entry, gather_cold,
    leave_to_disk, swap_dbs,
};
use tierce_storage::disk::{Disk, SimDisk};
use tierce_storage::{ColdOptions, ColdStore, Durable, Origin};

const NOW_MS: i64 = 1_000_000;
const DATABASES: usize = 2;
const KEYS: u8 = 20;

#[derive(Default)]
struct Records(Mutex<Vec<Vec<u8>>>);

impl LogSink for Records {
    fn append(&self, record: &[u8], _: RecordKind) {
        self.0.lock().push(record.to_vec());
    }
}

/// Values and deadlines by database and key.
type Model = BTreeMap<(usize, u8), (Vec<u8>, Option<i64>)>;

struct World {
    keyspace: Arc<Keyspace>,
    records: Arc<Records>,
    disk: SimDisk,
    model: Model,
    /// Values that were copied and not written yet.
    batch: SpillBatch,
}

fn options(log: Option<Arc<dyn LogSink>>) -> Options {
    Options { shards: 2, databases: DATABASES, log, ..Options::default() }
}

fn open_store(disk: &SimDisk) -> Arc<ColdStore> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let options = ColdOptions { segment_size_bytes: 6 * 4096, open_files_max: 2 };
    Arc::new(ColdStore::open(disk, Path::new("/cold"), options).unwrap())
}

impl World {
    fn new(seed: u64) -> Self {
        let records = Arc::new(Records::default());
        let log = Arc::clone(&records) as Arc<dyn LogSink>;
        let keyspace = Arc::new(Keyspace::new(options(Some(log))).unwrap());
        let disk = SimDisk::new(seed);
        keyspace.set_cold_store(open_store(&disk));
        keyspace.begin_logging();
        Self { keyspace, records, disk, model: Model::new(), batch: SpillBatch::default() }
    }

    fn store(&self) -> &ColdStore {
        self.keyspace.cold_store().unwrap()
    }

    fn with<R>(&self, db: usize, key: u8, act: impl FnOnce(&mut Db<'_>, Key<'_>) -> R) -> R {
        with(&self.keyspace, db, key, act)
    }

    fn gather(&mut self, rounds: u8) {
        let mut locks = self.keyspace.locks();
        for _ in 0..rounds {
            gather_cold(&mut locks, &mut self.batch, NOW_MS);
        }
    }

    fn write(&mut self) {
        let store = Arc::clone(self.keyspace.cold_store().unwrap());
        let places = store.write(self.batch.values(), Durable::Yes, Origin::Memory).unwrap();
        leave_to_disk(&mut self.keyspace.locks(), &self.batch, &places, NOW_MS);
        self.batch.clear(0);
    }

    fn clean(&mut self) {
        self.write();
        let mut cleaning = Cleaning::begin(self.store().sparse(0.7));
        while cleaning.step(&self.keyspace, &mut self.batch, 3000).unwrap() {
            self.write();
        }
        self.write();
    }

    /// Cleans up like the server; the log is always durable here.
    fn remove_dead(&self) {
        self.store().remove(&self.store().dead()).unwrap();
    }

    fn checkpoint(&self) {
        let begin = self.records.0.lock().len();
        let mut checkpoint = Checkpoint::begin(&self.keyspace);
        while checkpoint.step().1 != Pass::Complete {}
        self.records.0.lock().drain(..begin);
    }

    /// Loads the log and the surviving disk state.
    fn load(&self, seed: u64) -> Arc<Keyspace> {
        let image = self.disk.now().after_power_cut(seed);
        let keyspace = Arc::new(Keyspace::new(Options { seed: 5, ..options(None) }).unwrap());
        let store = open_store(&image);
        keyspace.set_cold_store(Arc::clone(&store));
        let mut replay = Replay::start(Arc::clone(&keyspace), 2, NOW_MS).unwrap();
        for record in self.records.0.lock().iter() {
            replay.record(record).unwrap();
        }
        replay.finish().unwrap();
        store.finish_recovery().unwrap();
        assert_eq!(keyspace.spill_stats().keys, self.spilled_by_log(&keyspace));
        assert_eq!(store.figures().live_bytes, self.store().figures().live_bytes);
        keyspace
    }

    /// Checks that the log and the surviving disk state give the same keys.
    fn replay(&self, seed: u64) {
        let keyspace = self.load(seed);
        check(&keyspace, &self.model);
    }

    /// Counts the values on disk by the log: those only there, and those in memory as well.
    fn spilled_by_log(&self, replayed: &Keyspace) -> u64 {
        let mut spilled = 0;
        for db in replayed.db_indices() {
            for_each_entry(&mut replayed.locks(), db, NOW_MS, |entry| {
                spilled += u64::from(entry.is_spilled());
            });
        }
        spilled
    }

    fn snapshot(&self) {
        let mut locks = self.keyspace.locks();
        let mut snapshot = Snapshot::begin(&self.keyspace, &mut locks, NOW_MS).unwrap();
        drop(locks);
        // Later changes of keys do not affect the snapshot.
        for (db, key) in self.model.keys().step_by(2) {
            self.with(*db, *key, |db, key| assert!(db.remove(key)));
        }
        let mut saved = Model::new();
        while let Some(SnapshotPiece::Batch(batch)) = snapshot.next().unwrap() {
            for entry in &batch {
                let value =
                    entry.value.string(&mut tierce_keyspace::IntText::new()).unwrap().to_vec();
                let key = (entry.db.get(), entry.key[1]);
                assert!(saved.insert(key, (value, entry.deadline_ms)).is_none());
            }
        }
        assert_eq!(saved, self.model);
        drop(snapshot);
        for ((db, key), (value, deadline_ms)) in self.model.iter().step_by(2) {
            self.with(*db, *key, |db, key| set(db, key, value, *deadline_ms));
        }
    }

    fn index(&self, db: usize) -> DbIndex {
        self.keyspace.db_index(db).unwrap()
    }
}

fn set(db: &mut Db<'_>, key: Key<'_>, value: &[u8], deadline_ms: Option<i64>) {
    db.set(key, value, deadline_ms.map_or(Expiry::Never, Expiry::At)).unwrap();
}

fn with<R>(
    keyspace: &Keyspace,
    db: usize,
    key: u8,
    act: impl FnOnce(&mut Db<'_>, Key<'_>) -> R,
) -> R {
    let (db, name) = (keyspace.db_index(db).unwrap(), [b'k', key]);
    let key = keyspace.key(&name);
    act(&mut keyspace.locks().db(db, key.hash(), NOW_MS), key)
}

/// All keys are those of the model. Brings values into memory.
fn check(keyspace: &Keyspace, model: &Model) {
    for db in 0..DATABASES {
        for key in 0..KEYS {
            let found = with(keyspace, db, key, |db, key| {
                let ttl = db.ttl(key);
                let value = db.string(key).unwrap().map(|value| value.to_vec());
                value.map(|value| {
                    let Ttl::Until(deadline_ms) = ttl else { return (value, None) };
                    (value, Some(deadline_ms))
                })
            });
            assert_eq!(found.as_ref(), model.get(&(db, key)), "database {db}, key {key}");
        }
    }
    assert_eq!(keyspace.spill_stats().keys, 0);
    assert_eq!(keyspace.spill_stats().bytes, 0);
}

#[derive(Debug, Clone)]
enum Step {
    Set(usize, u8, usize, u8, Option<i64>),
    Append(usize, u8, usize),
    SetRange(usize, u8, u64),
    Get(usize, u8),
    Remove(usize, u8),
    Deadline(usize, u8, i64),
    Persist(usize, u8),
    Rename(usize, u8, u8),
    Copy(usize, u8, u8),
    Flush(usize, bool),
    FlushAll(bool),
    Swap,
    Gather(u8),
    Write,
    Clean,
    RemoveDead,
    Checkpoint,
    Replay(u64),
    Snapshot,
}

fn step() -> impl Strategy<Value = Step> {
    let (db, key) = (0..DATABASES, 0..KEYS);
    let len = prop_oneof![8 => 0..1000usize, 1 => 15_000..20_000usize];
    let deadline = (NOW_MS + 1)..(NOW_MS + 1000);
    prop_oneof![
        12 => (db.clone(), key.clone(), len, any::<u8>(), proptest::option::of(deadline.clone()))
            .prop_map(|(d, k, len, fill, at)| Step::Set(d, k, len, fill, at)),
        4 => (db.clone(), key.clone(), 0..200usize).prop_map(|(d, k, len)| Step::Append(d, k, len)),
        3 => (db.clone(), key.clone(), 0..300u64).prop_map(|(d, k, at)| Step::SetRange(d, k, at)),
        6 => (db.clone(), key.clone()).prop_map(|(d, k)| Step::Get(d, k)),
        3 => (db.clone(), key.clone()).prop_map(|(d, k)| Step::Remove(d, k)),
        3 => (db.clone(), key.clone(), deadline).prop_map(|(d, k, at)| Step::Deadline(d, k, at)),
        2 => (db.clone(), key.clone()).prop_map(|(d, k)| Step::Persist(d, k)),
        4 => (db.clone(), key.clone(), key.clone()).prop_map(|(d, a, b)| Step::Rename(d, a, b)),
        3 => (db.clone(), key.clone(), key).prop_map(|(d, a, b)| Step::Copy(d, a, b)),
        1 => (db, any::<bool>()).prop_map(|(d, now)| Step::Flush(d, now)),
        1 => any::<bool>().prop_map(Step::FlushAll),
        1 => Just(Step::Swap),
        8 => (1..12u8).prop_map(Step::Gather),
        8 => Just(Step::Write),
        2 => Just(Step::Clean),
        2 => Just(Step::RemoveDead),
        1 => Just(Step::Checkpoint),
        2 => any::<u64>().prop_map(Step::Replay),
        1 => Just(Step::Snapshot),
    ]
}

fn act(world: &mut World, step: &Step) {
    match *step {
        Step::Set(db, key, len, fill, deadline_ms) => {
            let value = vec![fill; len];
            world.with(db, key, |db, key| set(db, key, &value, deadline_ms));
            world.model.insert((db, key), (value, deadline_ms));
        }
        Step::Append(db, key, len) => {
            let suffix = vec![b'a'; len];
            let total = world.with(db, key, |db, key| db.append(key, &suffix).unwrap());
            let (value, _) = world.model.entry((db, key)).or_default();
            value.extend_from_slice(&suffix);
            assert_eq!(value.len(), total);
        }
        Step::SetRange(db, key, offset) => {
            world.with(db, key, |db, key| db.set_range(key, offset, b"range").unwrap());
            let (value, _) = world.model.entry((db, key)).or_default();
            let end = offset as usize + 5;
            value.resize(value.len().max(end), 0);
            value[end - 5..end].copy_from_slice(b"range");
        }
        Step::Get(db, key) => {
            let found = world.with(db, key, |db, key| db.string(key).unwrap().map(|v| v.to_vec()));
            assert_eq!(found.as_ref(), world.model.get(&(db, key)).map(|(value, _)| value));
        }
        Step::Remove(db, key) => {
            let removed = world.with(db, key, |db, key| db.remove(key));
            assert_eq!(removed, world.model.remove(&(db, key)).is_some());
        }
        Step::Deadline(db, key, at) => {
            world.with(db, key, |db, key| db.set_deadline(key, at));
            world.model.entry((db, key)).and_modify(|(_, deadline_ms)| *deadline_ms = Some(at));
        }
        Step::Persist(db, key) => {
            world.with(db, key, |db, key| db.clear_deadline(key));
            world.model.entry((db, key)).and_modify(|(_, deadline_ms)| *deadline_ms = None);
        }
        Step::Rename(db, a, b) => rename(world, db, a, b),
        Step::Copy(db, a, b) => copy(world, db, a, b),
        Step::Flush(db, now) => {
            let freeing = if now { Freeing::Now } else { Freeing::Later };
            flush_dbs(&mut world.keyspace.locks(), [world.index(db)], freeing);
            world.model.retain(|(in_db, _), _| *in_db != db);
        }
        Step::FlushAll(now) => {
            let freeing = if now { Freeing::Now } else { Freeing::Later };
            let dbs = world.keyspace.db_indices();
            let keys = flush_dbs(&mut world.keyspace.locks(), dbs, freeing);
            assert_eq!(keys, std::mem::take(&mut world.model).len() as u64);
        }
        Step::Swap => {
            swap_dbs(&mut world.keyspace.locks(), world.index(0), world.index(1), NOW_MS);
            let model = std::mem::take(&mut world.model);
            world.model =
                model.into_iter().map(|((db, key), value)| ((1 - db, key), value)).collect();
        }
        Step::Gather(rounds) => world.gather(rounds),
        Step::Write => world.write(),
        Step::Clean => world.clean(),
        Step::RemoveDead => world.remove_dead(),
        Step::Checkpoint => world.checkpoint(),
        Step::Replay(seed) => world.replay(seed),
        Step::Snapshot => world.snapshot(),
    }
}

fn rename(world: &mut World, db: usize, a: u8, b: u8) {
    let (from, to) = ([b'k', a], [b'k', b]);
    let (from, to) = (world.keyspace.key(&from), world.keyspace.key(&to));
    let index = world.index(db);
    let mut locks = world.keyspace.locks();
    let mut both = locks.lock_many(&[from.hash(), to.hash()]);
    if let Some(entry) = both.db(index, from.hash(), NOW_MS).take(from, Removal::Moved) {
        both.db(index, to.hash(), NOW_MS).put(to, entry).unwrap();
    }
    drop(both);
    drop(locks);
    if let Some(value) = world.model.remove(&(db, a)) {
        world.model.insert((db, b), value);
    }
}

fn copy(world: &mut World, db: usize, a: u8, b: u8) {
    let (from, to) = ([b'k', a], [b'k', b]);
    let (from, to) = (world.keyspace.key(&from), world.keyspace.key(&to));
    let index = world.index(db);
    let mut locks = world.keyspace.locks();
    let mut both = locks.lock_many(&[from.hash(), to.hash()]);
    if let Some(entry) = both.db(index, from.hash(), NOW_MS).duplicate(from).unwrap() {
        both.db(index, to.hash(), NOW_MS).put(to, entry).unwrap();
    }
    drop(both);
    drop(locks);
    if let Some(value) = world.model.get(&(db, a)).cloned() {
        world.model.insert((db, b), value);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: effort(150), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn where_values_are_makes_no_difference(seed: u64, steps in proptest::collection::vec(step(), 1..80)) {
        let mut world = World::new(seed);
        for step in &steps {
            act(&mut world, step);
        }
        world.write();
        world.replay(seed);
        check(&world.keyspace, &world.model);
        // Only values of keys are counted: when the keys are gone, all of it is dead.
        for db in 0..DATABASES {
            for key in 0..KEYS {
                world.with(db, key, |db, key| db.remove(key));
            }
        }
        prop_assert_eq!(world.store().figures().live_bytes, 0);
    }
}

#[test]
fn values_leave_memory_and_look_the_same() {
    let mut world = World::new(1);
    world.with(0, 1, |db, key| set(db, key, &[b'x'; 5000], Some(NOW_MS + 500)));
    world.with(0, 2, |db, key| set(db, key, b"12345", None));
    let before = world.keyspace.memory().entries;
    world.gather(4);
    world.write();
    let stats = world.keyspace.spill_stats();
    assert_eq!((stats.keys, stats.bytes), (1, 5001));
    assert!(world.keyspace.memory().entries < before - 4900);
    world.with(0, 1, |db, key| {
        assert!(db.exists(key) && db.spilled_at(key).is_some());
        assert_eq!(db.encoding(key), Some("raw"));
        assert_eq!(db.value_type(key).map(|kind| kind.name()), Some("string"));
        assert_eq!(db.ttl(key), Ttl::Until(NOW_MS + 500));
    });
    // A second time it costs no write.
    assert_eq!(world.with(0, 1, |db, key| db.string(key).unwrap().unwrap().len()), 5000);
    let on_disk = world.store().figures();
    world.gather(4);
    assert!(world.batch.is_empty());
    assert_eq!(world.store().figures(), on_disk);
    assert_eq!(world.keyspace.spill_stats().keys, 1);
    assert_eq!(world.keyspace.spill_stats().fetched, 1);
}

#[test]
fn collections_go_to_disk_and_come_back() {
    let mut world = World::new(3);
    let add = |world: &World, key: u8, members: Range<u32>| {
        let add_all = |set: &mut Editor<'_, SortedSet>| {
            for number in members.clone() {
                set.update(format!("member:{number}").as_bytes(), |_| Some(number.into()));
            }
            Ok::<_, Error>(())
        };
        world.with(0, key, |db, key| db.edit(key, Missing::Create, add_all).unwrap());
    };
    let len = |keyspace: &Keyspace, key: u8| {
        with(keyspace, 0, key, |db, key| db.collection::<SortedSet>(key).unwrap().unwrap().len())
    };
    add(&world, 1, 0..20);
    add(&world, 2, 0..2000);
    world.gather(20);
    world.write();
    assert_eq!(world.keyspace.spill_stats().keys, 2);
    for (key, encoding) in [(1, "listpack"), (2, "skiplist")] {
        world.with(0, key, |db, key| {
            assert_eq!(db.encoding(key), Some(encoding));
            assert_eq!(db.value_type(key).map(|kind| kind.name()), Some("zset"));
            assert_eq!(db.string(key).unwrap_err(), Error::WrongType);
        });
    }
    world.gather(20);
    add(&world, 2, 1999..2001);
    assert_eq!((len(&world.keyspace, 1), len(&world.keyspace, 2)), (20, 2001));
    for spills in [false, true] {
        if spills {
            world.gather(20);
            world.write();
            assert_eq!(world.keyspace.spill_stats().keys, 2);
        }
        world.checkpoint();
        let keyspace = world.load(9);
        assert_eq!((len(&keyspace, 1), len(&keyspace, 2)), (20, 2001));
    }
}

#[test]
fn what_cannot_be_read_is_an_error_and_stays() {
    let mut world = World::new(2);
    world.with(0, 1, |db, key| set(db, key, &[b'x'; 500], None));
    world.gather(4);
    world.write();
    let path = world.disk.paths().into_iter().find(|path| path.extension().is_some()).unwrap();
    world.disk.flip_bit(&path, 8 * 4096 + 800);
    world.with(0, 1, |db, key| {
        assert_eq!(db.string(key).unwrap_err(), Error::Unreadable);
        assert_eq!(db.append(key, b"y").unwrap_err(), Error::Unreadable);
        assert!(db.duplicate(key).is_err());
        assert!(db.exists(key));
        set(db, key, b"new", None);
        assert_eq!(db.string(key).unwrap().unwrap().len(), 3);
    });
    assert_eq!(world.store().figures().live_bytes, 0);
}
