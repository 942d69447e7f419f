//! Keys that clients have cached, and the reports of their changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use tierce_harness::effort;
use tierce_keyspace::{
    Clock, DbIndex, Expiry, Freeing, InvalidatedKey, InvalidationSink, Keyspace, ManualClock,
    Options, Origin, Reaper, ShardLocks, Source, expire_due, flush_dbs, invalidate_at_once,
    remember_reader,
};

const NOW_MS: i64 = 1_000_000;

/// Report to a sink: a key with the client that changed it, its readers and the broadcast flag, or a change of all
/// keys.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    Key(Vec<u8>, u64, Vec<u64>, bool),
    All,
}

#[derive(Default)]
struct Sink {
    told: Mutex<Vec<Told>>,
    is_congested: AtomicBool,
    /// True if the readers whose numbers are not multiples of [`LASTING`] are gone.
    others_have_gone: AtomicBool,
    /// Number of queries about readers.
    asked: AtomicUsize,
}

impl Sink {
    fn take(&self) -> Vec<Told> {
        std::mem::take(&mut *self.told.lock().unwrap())
    }
}

impl InvalidationSink for Sink {
    fn invalidate(&self, invalidated: &[InvalidatedKey]) {
        self.told.lock().unwrap().extend(invalidated.iter().map(|it| {
            Told::Key(it.key().to_vec(), it.changed_by(), it.readers().collect(), it.is_broadcast())
        }));
    }

    fn invalidate_all(&self) {
        self.told.lock().unwrap().push(Told::All);
    }

    fn still_reads(&self, reader: u64) -> bool {
        !self.others_have_gone.load(SeqCst) || reader.is_multiple_of(LASTING)
    }

    fn is_congested(&self) -> bool {
        self.asked.fetch_add(1, SeqCst);
        self.is_congested.load(SeqCst)
    }
}

#[test]
fn the_reaper_waits_for_a_sink_that_is_behind() {
    let (keyspace, sink) = keyspace(10);
    let keyspace = Arc::new(keyspace);
    set(&keyspace, b"k", 7, Expiry::At(NOW_MS + 1));
    read(&keyspace, b"k", 1);
    sink.is_congested.store(true, SeqCst);
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(NOW_MS + 10));
    let _reaper = Reaper::start(Arc::clone(&keyspace), clock).unwrap();
    while sink.asked.load(SeqCst) < 3 {
        std::thread::yield_now();
    }
    assert_eq!(sink.take(), []);
    sink.is_congested.store(false, SeqCst);
    loop {
        let told = sink.take();
        if !told.is_empty() {
            break assert_eq!(told, [self::told(b"k", 0, &[1], false)]);
        }
        std::thread::yield_now();
    }
}

/// Clients whose numbers are multiples of this stay.
const LASTING: u64 = 100;

/// For a key that many clients read and none changes.
#[test]
fn readers_that_have_gone_are_forgotten_in_time() {
    let (keyspace, sink) = keyspace(10);
    sink.others_have_gone.store(true, SeqCst);
    for reader in 1..=10_000 {
        read(&keyspace, b"config", reader);
        let lasting = reader / LASTING;
        let (keys, readers) = keyspace.cached_keys();
        assert_eq!(keys, 1);
        assert!(readers <= 4 * (lasting + 1), "{readers} of {lasting}");
    }
    set(&keyspace, b"config", 7, Expiry::Never);
    let told = sink.take();
    let [Told::Key(key, 7, readers, false)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(key, b"config");
    let lasting: Vec<u64> = (1..=10_000 / LASTING).map(|number| number * LASTING).collect();
    assert!(lasting.iter().all(|reader| readers.contains(reader)), "{readers:?}");
    assert_eq!(keyspace.cached_keys(), (0, 0));
}

fn keyspace(limit: u64) -> (Keyspace, Arc<Sink>) {
    let keyspace = Keyspace::new(Options { shards: 4, ..Options::default() }).unwrap();
    let sink = Arc::new(Sink::default());
    keyspace.set_invalidation_sink(Arc::clone(&sink) as Arc<dyn InvalidationSink>);
    keyspace.limit_cached_keys(limit);
    (keyspace, sink)
}

fn read(keyspace: &Keyspace, key: &[u8], reader: u64) {
    remember_reader(&mut keyspace.locks(), DbIndex::ZERO, keyspace.key(key), reader, NOW_MS);
}

fn set(keyspace: &Keyspace, key: &[u8], client: u64, expiry: Expiry) {
    let mut locks = keyspace.locks();
    locks.set_origin(Origin { source: Source::Resp, client });
    let key = keyspace.key(key);
    locks.db(DbIndex::ZERO, key.hash(), NOW_MS).set(key, "value", expiry).unwrap();
}

fn told(key: &[u8], by: u64, readers: &[u64], is_broadcast: bool) -> Told {
    Told::Key(key.to_vec(), by, readers.to_vec(), is_broadcast)
}

/// A full copy of another server's data.
#[test]
fn many_changes_can_be_told_as_one() {
    let (keyspace, sink) = keyspace(10);
    keyspace.set_broadcast(true);
    read(&keyspace, b"k", 1);
    let mut locks = keyspace.locks();
    let mut all = locks.lock_all();
    let set_two = |locks: &mut ShardLocks<'_>| {
        for key in [b"k", b"l"] {
            let key = keyspace.key(key);
            locks.db(DbIndex::ZERO, key.hash(), NOW_MS).set(key, "value", Expiry::Never).unwrap();
        }
    };
    invalidate_at_once(all.locks(), set_two);
    drop(all);
    drop(locks);
    assert_eq!(sink.take(), [Told::All]);
    assert_eq!(keyspace.cached_keys(), (0, 0));
    // Later changes are reported as usual.
    set(&keyspace, b"k", 7, Expiry::Never);
    assert_eq!(sink.take(), [told(b"k", 7, &[], true)]);
}

#[test]
fn expiry_is_nobodys_change() {
    let (keyspace, sink) = keyspace(10);
    set(&keyspace, b"k", 7, Expiry::At(NOW_MS + 1));
    read(&keyspace, b"k", 7);
    assert_eq!(sink.take(), []);
    expire_due(&mut keyspace.locks(), NOW_MS + 1);
    assert_eq!(sink.take(), [told(b"k", 0, &[7], false)]);
}

#[test]
fn a_flush_takes_everything_and_a_broadcast_needs_no_reader() {
    let (keyspace, sink) = keyspace(10);
    [1, 2].iter().for_each(|reader| read(&keyspace, b"k", *reader));
    read(&keyspace, b"other", 1);
    assert_eq!(keyspace.cached_keys(), (2, 3));
    flush_dbs(&mut keyspace.locks(), [DbIndex::ZERO], Freeing::Now);
    assert_eq!((sink.take(), keyspace.cached_keys()), (vec![Told::All], (0, 0)));
    keyspace.set_broadcast(true);
    read(&keyspace, b"k", 3);
    set(&keyspace, b"k", 9, Expiry::Never);
    set(&keyspace, b"unread", 9, Expiry::Never);
    assert_eq!(sink.take(), [told(b"k", 9, &[3], true), told(b"unread", 9, &[], true)]);
    keyspace.set_broadcast(false);
    set(&keyspace, b"k", 9, Expiry::Never);
    assert_eq!(sink.take(), []);
}

/// Rolled back changes are reported: clients read once too often, but miss nothing.
#[test]
fn a_change_that_is_rolled_back_may_be_told_but_is_never_missed_afterwards() {
    let (keyspace, sink) = keyspace(10);
    read(&keyspace, b"k", 1);
    let mut locks = keyspace.locks();
    let mut all = locks.lock_all();
    all.locks().begin_undo();
    let key = keyspace.key(b"k");
    all.locks().db(DbIndex::ZERO, key.hash(), NOW_MS).set(key, "v", Expiry::Never).unwrap();
    all.locks().rollback();
    assert_eq!(sink.take(), [], "the shards are still locked");
    drop(all);
    drop(locks);
    assert_eq!(sink.take(), [told(b"k", 0, &[1], false)]);
    read(&keyspace, b"k", 1);
    set(&keyspace, b"k", 2, Expiry::Never);
    assert_eq!(sink.take(), [told(b"k", 2, &[1], false)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(256)))]

    /// Each reader is told of the first change after its read, or earlier if the table is full.
    #[test]
    fn readers_are_told_of_the_first_change(
        steps in prop::collection::vec((0..20_u8, 1..5_u64, any::<bool>()), 1..200),
        limit in 1..25_u64,
    ) {
        let (keyspace, sink) = keyspace(limit);
        let mut model: BTreeMap<Vec<u8>, BTreeSet<u64>> = BTreeMap::new();
        for (number, client, is_read) in steps {
            let key = format!("key{number}").into_bytes();
            if is_read {
                read(&keyspace, &key, client);
                model.entry(key).or_default().insert(client);
                for forgotten in sink.take() {
                    let Told::Key(key, 0, readers, false) = forgotten else { panic!("{forgotten:?}") };
                    prop_assert_eq!(model.remove(&key), Some(readers.into_iter().collect()));
                }
                prop_assert!(model.len() as u64 <= limit);
            } else {
                set(&keyspace, &key, client, Expiry::Never);
                let readers = model.remove(&key);
                let expected = readers.map(|readers| {
                    told(&key, client, &readers.into_iter().collect::<Vec<_>>(), false)
                });
                prop_assert_eq!(sink.take(), expected.into_iter().collect::<Vec<_>>());
            }
            let items = model.values().map(BTreeSet::len).sum::<usize>();
            prop_assert_eq!(keyspace.cached_keys(), (model.len() as u64, items as u64));
        }
    }
}
