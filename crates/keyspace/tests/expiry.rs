//! Keys expire when their deadline comes, in the order of their deadlines, and whatever is done to
//! deadlines leaves only a bounded number of stale ones behind.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use tierce_harness::effort;
use tierce_keyspace::{
    DbIndex, Event, EventBatch, EventClasses, EventSink, Expiry, Keyspace, Options, Origin,
    expire_due, size_class, swap_dbs,
};

/// Remembers what expired, in order.
#[derive(Default)]
struct Expired(Mutex<Vec<(usize, Vec<u8>)>>);

impl EventSink for Expired {
    fn deliver(&self, events: &EventBatch<'_>) {
        for event in events.iter() {
            assert_eq!((event.event, event.origin), (Event::Expired, Origin::SERVER));
            self.0.lock().unwrap().push((event.db.get(), event.key.to_vec()));
        }
    }
}

fn keyspace(shards: usize) -> (Keyspace, Arc<Expired>) {
    let expired = Arc::<Expired>::default();
    let options = Options { shards, databases: 3, ..Options::default() };
    let keyspace = Keyspace::new(options).expect("good options");
    keyspace.set_event_sink(Arc::clone(&expired));
    keyspace.set_event_classes(EventClasses::EXPIRED);
    (keyspace, expired)
}

#[derive(Debug, Clone)]
enum Step {
    SetWithDeadline(u8, u8, i64),
    SetDeadline(u8, u8, i64),
    ClearDeadline(u8, u8),
    Remove(u8, u8),
    Wait(i64),
    Swap(u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let (db, key) = (|| 0u8..3, || 0u8..20);
    prop_oneof![
        4 => (db(), key(), 1i64..500).prop_map(|(db, key, after)| Step::SetWithDeadline(db, key, after)),
        6 => (db(), key(), 1i64..500).prop_map(|(db, key, after)| Step::SetDeadline(db, key, after)),
        1 => (db(), key()).prop_map(|(db, key)| Step::ClearDeadline(db, key)),
        1 => (db(), key()).prop_map(|(db, key)| Step::Remove(db, key)),
        3 => (0i64..100).prop_map(Step::Wait),
        1 => (db(), db()).prop_map(|(a, b)| Step::Swap(a, b)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: effort(256), failure_persistence: None, ..Default::default() })]

    #[test]
    fn keys_expire_in_order_and_exactly_when_due(steps in prop::collection::vec(step(), 1..300)) {
        // One shard, so that there is one order.
        let (keyspace, expired) = keyspace(1);
        let mut model = BTreeMap::<(u8, u8), Option<i64>>::new();
        let mut now_ms = 1_000;
        for step in steps {
            let mut locks = keyspace.locks();
            let index = |db: u8| keyspace.db_index(usize::from(db)).unwrap();
            let name = |key: u8| [key; 3];
            match step {
                Step::SetWithDeadline(db, key, after) => {
                    let name = name(key);
                    let key_ = keyspace.key(&name);
                    let mut handle = locks.db(index(db), key_.hash(), now_ms);
                    handle.set(key_, "v", Expiry::At(now_ms + after)).unwrap();
                    model.insert((db, key), Some(now_ms + after));
                }
                Step::SetDeadline(db, key, after) => {
                    let name = name(key);
                    let key_ = keyspace.key(&name);
                    locks.db(index(db), key_.hash(), now_ms).set_deadline(key_, now_ms + after);
                    if let Some(deadline) = model.get_mut(&(db, key)) {
                        *deadline = Some(now_ms + after);
                    }
                }
                Step::ClearDeadline(db, key) => {
                    let name = name(key);
                    let key_ = keyspace.key(&name);
                    locks.db(index(db), key_.hash(), now_ms).clear_deadline(key_);
                    if let Some(deadline) = model.get_mut(&(db, key)) {
                        *deadline = None;
                    }
                }
                Step::Remove(db, key) => {
                    let name = name(key);
                    let key_ = keyspace.key(&name);
                    let removed = locks.db(index(db), key_.hash(), now_ms).remove(key_);
                    prop_assert_eq!(removed, model.remove(&(db, key)).is_some());
                }
                Step::Swap(a, b) => {
                    swap_dbs(&mut locks, index(a), index(b), now_ms);
                    model = model
                        .into_iter()
                        .map(|((db, key), deadline)| {
                            let db = if db == a { b } else if db == b { a } else { db };
                            ((db, key), deadline)
                        })
                        .collect();
                }
                Step::Wait(ms) => {
                    now_ms += ms;
                    expire_due(&mut locks, now_ms);
                    let mut due = BTreeMap::new();
                    model.retain(|(db, key), deadline_ms| {
                        let is_due = deadline_ms.is_some_and(|at| at <= now_ms);
                        if is_due {
                            due.insert((usize::from(*db), name(*key).to_vec()), deadline_ms.unwrap());
                        }
                        !is_due
                    });
                    let seen = std::mem::take(&mut *expired.0.lock().unwrap());
                    prop_assert!(seen.is_sorted_by_key(|key| due.get(key)), "out of order: {:?}", seen);
                    prop_assert_eq!(seen.len(), due.len(), "each once");
                    prop_assert!(seen.iter().all(|key| due.contains_key(key)), "{:?}", seen);
                }
            }
            let live = model.values().flatten().count() as u64;
            let expires = |db| keyspace.db_stats(db, now_ms).expires;
            prop_assert_eq!(keyspace.db_indices().map(expires).sum::<u64>(), live);
        }
    }
}

/// The most that the heap of one shard may take for `live` keys with deadlines: see the invariants
/// in `deadline.rs`.
fn heap_bytes_max(live: usize) -> u64 {
    let items = live + live / 4 + 64;
    size_class((items + items / 4 + 4) * 16) as u64
}

#[test]
fn deadlines_moving_back_and_forth_leave_a_bounded_heap() {
    let (keyspace, expired) = keyspace(1);
    let names: Vec<[u8; 4]> = (0..100u32).map(u32::to_be_bytes).collect();
    let mut locks = keyspace.locks();
    let hash = keyspace.hash(b"any");
    let mut db = locks.db(DbIndex::ZERO, hash, 0);
    for name in &names {
        db.set(keyspace.key(name), "v", Expiry::At(1_000_000)).unwrap();
    }
    for round in 0..1000 {
        let deadline_ms = if round % 2 == 0 { 500_000 - round } else { 1_000_000 };
        for name in &names {
            db.set_deadline(keyspace.key(name), deadline_ms);
            assert!(keyspace.memory().deadlines <= heap_bytes_max(names.len()));
        }
    }
    drop(locks);
    expire_due(&mut keyspace.locks(), 999_999);
    assert!(expired.0.lock().unwrap().is_empty(), "the last deadline is the one that counts");
    expire_due(&mut keyspace.locks(), 1_000_000);
    assert_eq!(expired.0.lock().unwrap().len(), names.len());
    assert_eq!(keyspace.memory().total(), 0);
}

#[test]
fn setting_and_deleting_with_deadlines_leaves_a_bounded_heap() {
    let (keyspace, _) = keyspace(1);
    let mut locks = keyspace.locks();
    let mut db = locks.db(DbIndex::ZERO, keyspace.hash(b"any"), 0);
    for round in 0..50_000u32 {
        let name = (round % 500).to_be_bytes();
        let key = keyspace.key(&name);
        db.set(key, "v", Expiry::At(1_000_000 - i64::from(round))).unwrap();
        if round % 3 == 0 {
            db.set(key, "v", Expiry::Never).unwrap();
        } else {
            db.remove(key);
        }
        assert!(keyspace.memory().deadlines <= heap_bytes_max(1), "in round {round}");
    }
}

#[test]
fn a_key_is_gone_at_its_deadline_without_anyone_removing_it() {
    let (keyspace, expired) = keyspace(16);
    let key = keyspace.key(b"key");
    let mut locks = keyspace.locks();
    locks.db(DbIndex::ZERO, key.hash(), 0).set(key, "value", Expiry::At(100)).unwrap();
    assert!(locks.db(DbIndex::ZERO, key.hash(), 99).exists(key));
    assert_eq!(keyspace.len(DbIndex::ZERO), 1);
    assert!(!locks.db(DbIndex::ZERO, key.hash(), 100).exists(key));
    assert_eq!(keyspace.len(DbIndex::ZERO), 0);
    assert!(expired.0.lock().unwrap().is_empty(), "it is told when the shard is unlocked");
    drop(locks);
    assert_eq!(expired.0.lock().unwrap().len(), 1);
    let stats = keyspace.stats();
    assert_eq!((stats.hits, stats.misses, stats.expired), (1, 1, 1));
}

#[test]
fn the_mean_time_to_live_is_right_within_a_second() {
    let (keyspace, _) = keyspace(16);
    let now_ms = 1_700_000_000_000;
    for number in 0..100u32 {
        let name = number.to_be_bytes();
        let key = keyspace.key(&name);
        let expiry = Expiry::At(now_ms + 10_000 + i64::from(number) * 1000);
        keyspace.locks().db(DbIndex::ZERO, key.hash(), now_ms).set(key, "v", expiry).unwrap();
    }
    let stats = keyspace.db_stats(DbIndex::ZERO, now_ms);
    assert_eq!((stats.keys, stats.expires), (100, 100));
    assert!(stats.ttl_mean_ms.abs_diff(59_500) <= 1024, "{} ms", stats.ttl_mean_ms);
}

/// A request may begin before its server becomes a replica, and store after it.
#[test]
fn a_key_past_its_deadline_has_one_entry_while_another_server_decides() {
    let (keyspace, _) = keyspace(1);
    let key = keyspace.key(b"k");
    let mut locks = keyspace.locks();
    locks.db(DbIndex::ZERO, key.hash(), 0).set(key, b"old", Expiry::At(1000)).unwrap();
    keyspace.set_following(true);
    let mut db = locks.db(DbIndex::ZERO, key.hash(), 2000);
    assert!(db.peek(key).is_none());
    db.set(key, b"new", Expiry::Never).unwrap();
    assert_eq!(db.string(key).unwrap().unwrap().to_vec(), b"new");
    assert!(db.remove(key));
    assert!(db.peek(key).is_none());
    locks.release();
    assert_eq!(keyspace.len(DbIndex::ZERO), 0);
}
