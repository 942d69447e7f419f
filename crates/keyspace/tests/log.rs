//! A log has the state of its keyspace: changes, checkpoints and replay against each other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use proptest::prelude::*;
use tierce_harness::effort;
use tierce_keyspace::log::{Checkpoint, LogSink, Pass, RecordKind, Replay, ReplayError, Replayed};
use tierce_keyspace::{
    Db, DbIndex, Expiry, Freeing, Keyspace, Options, Removal, expire_due, flush_dbs,
    for_each_entry, swap_dbs,
};

const NOW_MS: i64 = 1_000_000;
const SHARDS: usize = 4;
const DATABASES: usize = 3;

/// A log in memory.
#[derive(Default)]
struct Records(Mutex<Vec<Vec<u8>>>);

impl LogSink for Records {
    fn append(&self, record: &[u8], _: RecordKind) {
        self.0.lock().push(record.to_vec());
    }
}

impl Records {
    fn len(&self) -> usize {
        self.0.lock().len()
    }
}

fn logged() -> (Arc<Keyspace>, Arc<Records>) {
    let records = Arc::new(Records::default());
    let log = Some(Arc::clone(&records) as Arc<dyn LogSink>);
    let options = Options { shards: SHARDS, databases: DATABASES, log, ..Options::default() };
    let keyspace = Arc::new(Keyspace::new(options).unwrap());
    keyspace.begin_logging();
    (keyspace, records)
}

fn replay(records: &[Vec<u8>], threads: usize) -> Arc<Keyspace> {
    // Another number of shards and another hash: the log does not depend on either.
    let options = Options { shards: 8, databases: DATABASES, seed: 99, ..Options::default() };
    let keyspace = Arc::new(Keyspace::new(options).unwrap());
    let mut replay = Replay::start(Arc::clone(&keyspace), threads, NOW_MS).unwrap();
    for record in records {
        replay.record(record).unwrap();
    }
    let Replayed { records: count, .. } = replay.finish().unwrap();
    assert_eq!(count, records.len() as u64);
    keyspace
}

type State = BTreeMap<(usize, Vec<u8>), (Vec<u8>, &'static str, Option<i64>)>;

fn state(keyspace: &Keyspace) -> State {
    let mut state = State::new();
    for db in keyspace.db_indices() {
        for_each_entry(&mut keyspace.locks(), db, NOW_MS, |entry| {
            let value = (entry.string().unwrap().to_vec(), entry.encoding(), entry.deadline_ms());
            assert!(state.insert((db.get(), entry.key().to_vec()), value).is_none());
        });
    }
    state
}

#[derive(Debug, Clone)]
enum Action {
    Set(usize, u8, Vec<u8>, Option<i64>),
    SetInt(usize, u8, i64),
    Append(usize, u8, Vec<u8>),
    SetRange(usize, u8, u16, Vec<u8>),
    Increment(usize, u8),
    Remove(usize, u8),
    Deadline(usize, u8, i64),
    Persist(usize, u8),
    Rename(usize, u8, u8),
    Copy(usize, u8, usize, u8),
    Two(usize, u8, u8),
    Flush(usize),
    Swap(usize, usize),
    Later(i64),
    /// With this many threads.
    BeginCheckpoint(usize),
    /// This many steps of one of them.
    Checkpoint(usize, u8),
}

fn action() -> impl Strategy<Value = Action> {
    let (db, key) = (0..DATABASES, 0..24u8);
    let bytes = prop_oneof![
        8 => proptest::collection::vec(any::<u8>(), 0..40),
        1 => proptest::collection::vec(any::<u8>(), 16_000..17_000),
    ];
    let short = proptest::collection::vec(any::<u8>(), 0..20);
    let at = (NOW_MS - 500)..(NOW_MS + 3000);
    let deadline = proptest::option::of(at.clone());
    prop_oneof![
        12 => (db.clone(), key.clone(), bytes, deadline).prop_map(|(d, k, v, e)| Action::Set(d, k, v, e)),
        4 => (db.clone(), key.clone(), any::<i64>()).prop_map(|(d, k, v)| Action::SetInt(d, k, v)),
        6 => (db.clone(), key.clone(), short.clone()).prop_map(|(d, k, v)| Action::Append(d, k, v)),
        6 => (db.clone(), key.clone(), 0..60u16, short).prop_map(|(d, k, o, v)| Action::SetRange(d, k, o, v)),
        6 => (db.clone(), key.clone()).prop_map(|(d, k)| Action::Increment(d, k)),
        5 => (db.clone(), key.clone()).prop_map(|(d, k)| Action::Remove(d, k)),
        5 => (db.clone(), key.clone(), at).prop_map(|(d, k, at)| Action::Deadline(d, k, at)),
        3 => (db.clone(), key.clone()).prop_map(|(d, k)| Action::Persist(d, k)),
        4 => (db.clone(), key.clone(), key.clone()).prop_map(|(d, a, b)| Action::Rename(d, a, b)),
        3 => (db.clone(), key.clone(), db.clone(), key.clone()).prop_map(|(d, a, e, b)| Action::Copy(d, a, e, b)),
        4 => (db.clone(), key.clone(), key).prop_map(|(d, a, b)| Action::Two(d, a, b)),
        1 => db.clone().prop_map(Action::Flush),
        1 => (db.clone(), db).prop_map(|(a, b)| Action::Swap(a, b)),
        2 => (0..400i64).prop_map(Action::Later),
        2 => (1..4usize).prop_map(Action::BeginCheckpoint),
        12 => (0..3usize, 0..4u8).prop_map(|(pass, steps)| Action::Checkpoint(pass, steps)),
    ]
}

fn name(key: u8) -> [u8; 2] {
    [b'k', key]
}

fn with<R>(
    keyspace: &Keyspace,
    db: usize,
    key: u8,
    now_ms: i64,
    act: impl FnOnce(&mut Db<'_>, tierce_keyspace::Key<'_>) -> R,
) -> R {
    let (db, key) = (keyspace.db_index(db).unwrap(), name(key));
    let key = keyspace.key(&key);
    act(&mut keyspace.locks().db(db, key.hash(), now_ms), key)
}

/// Does an action that needs no checkpoint.
fn act(keyspace: &Keyspace, action: &Action, now_ms: &mut i64) {
    let now = *now_ms;
    let index = |db: usize| keyspace.db_index(db).unwrap();
    match action {
        Action::Set(db, key, value, deadline_ms) => {
            let expiry = deadline_ms.map_or(Expiry::Never, Expiry::At);
            with(keyspace, *db, *key, now, |db, key| db.set(key, value, expiry).unwrap());
        }
        Action::SetInt(db, key, value) => {
            let text = value.to_string();
            with(keyspace, *db, *key, now, |db, key| db.set(key, &text, Expiry::Keep).unwrap());
        }
        Action::Append(db, key, suffix) => {
            with(keyspace, *db, *key, now, |db, key| db.append(key, suffix).unwrap());
        }
        Action::SetRange(db, key, offset, bytes) => {
            with(keyspace, *db, *key, now, |db, key| {
                db.set_range(key, u64::from(*offset), bytes).unwrap();
            });
        }
        Action::Increment(db, key) => {
            // A value that is no integer is left as it is.
            _ = with(keyspace, *db, *key, now, |db, key| db.increment(key, 7));
        }
        Action::Remove(db, key) => _ = with(keyspace, *db, *key, now, |db, key| db.remove(key)),
        Action::Deadline(db, key, at) => {
            with(keyspace, *db, *key, now, |db, key| db.set_deadline(key, *at));
        }
        Action::Persist(db, key) => {
            with(keyspace, *db, *key, now, |db, key| db.clear_deadline(key));
        }
        Action::Rename(db, from, to) => {
            let (from, to) = (name(*from), name(*to));
            let (from, to) = (keyspace.key(&from), keyspace.key(&to));
            let mut locks = keyspace.locks();
            let mut both = locks.lock_many(&[from.hash(), to.hash()]);
            let entry = both.db(index(*db), from.hash(), now).take(from, Removal::Moved);
            if let Some(entry) = entry {
                both.db(index(*db), to.hash(), now).put(to, entry).unwrap();
            }
        }
        Action::Copy(db, from, to_db, to) => {
            let (from, to) = (name(*from), name(*to));
            let (from, to) = (keyspace.key(&from), keyspace.key(&to));
            let mut locks = keyspace.locks();
            let mut both = locks.lock_many(&[from.hash(), to.hash()]);
            let copy = both.db(index(*db), from.hash(), now).duplicate(from).unwrap();
            if let Some(copy) = copy {
                both.db(index(*to_db), to.hash(), now).put(to, copy).unwrap();
            }
        }
        Action::Two(db, a, b) => {
            let (a, b) = (name(*a), name(*b));
            let (a, b) = (keyspace.key(&a), keyspace.key(&b));
            let mut locks = keyspace.locks();
            let mut both = locks.lock_many(&[a.hash(), b.hash()]);
            for key in [a, b] {
                both.db(index(*db), key.hash(), now).set(key, "both", Expiry::Never).unwrap();
            }
        }
        Action::Flush(db) => _ = flush_dbs(&mut keyspace.locks(), [index(*db)], Freeing::Now),
        Action::Swap(a, b) => swap_dbs(&mut keyspace.locks(), index(*a), index(*b), *now_ms),
        Action::Later(ms) => {
            *now_ms += ms;
            expire_due(&mut keyspace.locks(), *now_ms);
        }
        Action::BeginCheckpoint(_) | Action::Checkpoint(..) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(80)))]

    /// After any number of actions, with running and complete checkpoints, a replay of the remaining log gives the
    /// same keyspace.
    #[test]
    fn a_replay_is_the_keyspace(actions in proptest::collection::vec(action(), 1..200), cuts in proptest::collection::vec(0..200usize, 4)) {
        let (keyspace, records) = logged();
        let mut now_ms = NOW_MS;
        let mut passes: Vec<Checkpoint<'_>> = Vec::new();
        let (mut begin, mut dropped) = (0, 0);
        for (step, action) in actions.iter().enumerate() {
            match action {
                Action::BeginCheckpoint(parts) => {
                    (begin, passes) = (records.len(), Checkpoint::divided(&keyspace, *parts));
                }
                Action::Checkpoint(number, steps) => {
                    for _ in 0..*steps {
                        let Some(index) = number.checked_rem(passes.len()) else { break };
                        if passes[index].step().1 == Pass::Complete {
                            passes.swap_remove(index);
                            dropped = if passes.is_empty() { begin } else { dropped };
                        }
                    }
                }
                other => act(&keyspace, other, &mut now_ms),
            }
            if cuts.contains(&step) || step + 1 == actions.len() {
                let kept = records.0.lock()[dropped..].to_vec();
                let again = replay(&kept, 1 + step % 3);
                expire_due(&mut again.locks(), now_ms);
                expire_due(&mut keyspace.locks(), now_ms);
                prop_assert_eq!(state_at(&again, now_ms), state_at(&keyspace, now_ms));
            }
        }
    }
}

/// A long history with operations on two keys, mostly of two shards, and sometimes on whole databases. Loaders get it
/// in many chunks, and the result is that of sequential loading, whatever their number.
#[test]
fn a_long_history_is_the_same_for_any_number_of_loaders() {
    let (keyspace, records) = logged();
    let mut random = 0x5eed_u64;
    let mut below = |end: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % end
    };
    let mut now_ms = NOW_MS;
    for _ in 0..40_000 {
        let (db, other) = (below(DATABASES), below(DATABASES));
        let (a, b) = (below(256) as u8, below(256) as u8);
        let bytes = vec![a ^ b; below(600)];
        let action = match below(4_000) {
            0 => Action::Swap(db, other),
            1 => Action::Flush(db),
            draw => match draw % 10 {
                0 => Action::Remove(db, a),
                1 => Action::Increment(db, a),
                2 => Action::Two(db, a, b),
                3 => Action::Rename(db, a, b),
                4 => Action::Copy(db, a, other, b),
                5 => Action::SetRange(db, a, below(600) as u16, bytes),
                6 => Action::Deadline(db, a, NOW_MS + 1_000 + below(1_000) as i64),
                7 => Action::SetInt(db, a, i64::from(b)),
                _ => Action::Set(db, a, bytes, None),
            },
        };
        act(&keyspace, &action, &mut now_ms);
    }
    let records = records.0.lock();
    let bytes: usize = records.iter().map(Vec::len).sum();
    assert!(bytes > 4 << 20, "{bytes} bytes are too few to be handed over in pieces");
    let expected = state(&keyspace);
    assert!(expected.len() > 100);
    for threads in [1, 2, 3, 7] {
        assert_eq!(state(&replay(&records, threads)), expected, "{threads} loaders");
    }
}

fn state_at(keyspace: &Keyspace, now_ms: i64) -> State {
    let mut all = state(keyspace);
    all.retain(|_, (_, _, deadline_ms)| deadline_ms.is_none_or(|at| at > now_ms));
    all
}

/// The keys of one transaction are in one record.
#[test]
fn changes_under_one_lock_are_one_record() {
    let (keyspace, records) = logged();
    let keys: Vec<[u8; 2]> = (0..20).map(name).collect();
    let keys: Vec<_> = keys.iter().map(|key| keyspace.key(key)).collect();
    let hashes: Vec<_> = keys.iter().map(|key| key.hash()).collect();
    let mut locks = keyspace.locks();
    let mut many = locks.lock_many(&hashes);
    for key in &keys {
        many.db(DbIndex::ZERO, key.hash(), NOW_MS).set(*key, "v", Expiry::Never).unwrap();
    }
    assert_eq!(records.len(), 0, "nothing is in the log before the end of the transaction");
    drop(many);
    assert_eq!(records.len(), 1);
    drop(locks);
    assert_eq!(records.len(), 1);
    let again = replay(&records.0.lock(), 2);
    assert_eq!(again.len(DbIndex::ZERO), 20);
}

#[test]
fn what_is_not_changed_is_not_logged() {
    let (keyspace, records) = logged();
    with(&keyspace, 0, 1, NOW_MS, |db, key| db.set(key, "abc", Expiry::Never).unwrap());
    let len = records.len();
    with(&keyspace, 0, 1, NOW_MS, |db, key| {
        assert!(db.string(key).unwrap().is_some());
        assert!(!db.clear_deadline(key));
        assert!(db.increment(key, 1).is_err());
    });
    with(&keyspace, 0, 2, NOW_MS, |db, key| assert!(!db.remove(key)));
    assert_eq!(records.len(), len);
}

/// Loading locks all shards for each flush.
#[test]
fn a_flush_logs_the_databases_that_have_keys() {
    let (keyspace, records) = logged();
    let set =
        |db| with(&keyspace, db, 1, NOW_MS, |db, key| db.set(key, "abc", Expiry::Never).unwrap());
    let flush = || flush_dbs(&mut keyspace.locks(), keyspace.db_indices(), Freeing::Now);
    let bytes = || records.0.lock().iter().map(Vec::len).sum::<usize>();
    set(0);
    let before = bytes();
    flush();
    let of_one = bytes() - before;
    [0, 2].into_iter().for_each(set);
    let before = bytes();
    flush();
    assert_eq!(bytes() - before, 2 * of_one);
    let before = bytes();
    flush();
    // The first database is always there.
    assert!(bytes() - before <= of_one);
    set(1);
    let again = replay(&records.0.lock(), 2);
    let len = |db: usize| again.len(again.db_index(db).unwrap());
    assert_eq!([0, 1, 2].map(len), [0, 1, 0]);
}

/// Appending a byte to a large string logs that byte and not the string.
#[test]
fn a_part_that_is_written_is_logged_alone() {
    let (keyspace, records) = logged();
    with(&keyspace, 0, 1, NOW_MS, |db, key| {
        db.set(key, &vec![7; 1 << 19], Expiry::Never).unwrap();
    });
    with(&keyspace, 0, 1, NOW_MS, |db, key| db.append(key, b"x").unwrap());
    let records = records.0.lock();
    assert!(records[0].len() > 1 << 19);
    assert!(records[1].len() < 32, "{} bytes", records[1].len());
}

/// A command that only finds an expired key need not wait until the expiry is durable.
#[test]
fn an_expired_key_is_logged_for_nobody() {
    let (keyspace, records) = logged();
    let names = [name(1), name(2)];
    let [expired, other] = [keyspace.key(&names[0]), keyspace.key(&names[1])];
    let set = || {
        with(&keyspace, 0, 1, NOW_MS, |db, key| db.set(key, "v", Expiry::At(NOW_MS + 10)).unwrap());
    };
    set();
    let mut locks = keyspace.locks();
    let before = records.len();
    assert!(!locks.db(DbIndex::ZERO, expired.hash(), NOW_MS + 10).exists(expired));
    locks.release();
    assert!(!locks.take_logged());
    assert_eq!(records.len(), before + 1, "the removal is logged all the same");
    // A command that also changes something must wait.
    set();
    let before = records.len();
    let deadline_ms = NOW_MS + 10;
    let mut both = locks.lock_many(&[expired.hash(), other.hash()]);
    assert!(!both.db(DbIndex::ZERO, expired.hash(), deadline_ms).exists(expired));
    both.db(DbIndex::ZERO, other.hash(), deadline_ms).set(other, "v", Expiry::Never).unwrap();
    drop(both);
    assert!(locks.take_logged());
    assert_eq!(records.len(), before + 1);
}

/// Zero bytes that extend a value are not logged.
#[test]
fn a_string_that_begins_far_behind_its_end_is_logged_as_what_was_written() {
    let (keyspace, records) = logged();
    with(&keyspace, 0, 1, NOW_MS, |db, key| {
        db.set_range(key, 10 << 20, b"x").unwrap();
    });
    let bytes: usize = records.0.lock().iter().map(Vec::len).sum();
    assert!(bytes < 32, "{bytes} bytes");
    assert_eq!(state(&replay(&records.0.lock(), 1)), state(&keyspace));
}

/// However long a value is, no record is longer than a piece, and others come between.
#[test]
fn a_large_value_is_a_batch_of_pieces() {
    let (keyspace, records) = logged();
    let value = vec![b'v'; (5 << 20) + 7];
    with(&keyspace, 0, 1, NOW_MS, |db, key| db.set(key, &value, Expiry::Never).unwrap());
    let records = records.0.lock();
    assert_eq!(records.len(), 7, "five that are full, the rest, and the head of the value before");
    assert!(records.iter().all(|record| record.len() <= (1 << 20) + 16));
    for end in 0..records.len() {
        assert!(state(&replay(&records[..end], 1)).is_empty(), "after {end} records");
    }
    assert_eq!(state(&replay(&records, 1)), state(&keyspace));
}

/// A value that was allowed when it was written stays under a lower limit.
#[test]
fn a_lower_limit_on_values_loses_nothing_of_what_was_written() {
    let (keyspace, records) = logged();
    with(&keyspace, 0, 1, NOW_MS, |db, key| {
        db.append(key, &[b'a'; 3000]).unwrap();
        db.append(key, b"more").unwrap();
    });
    let load = |value_len_max| {
        let options = Options { value_len_max, databases: DATABASES, ..Options::default() };
        let keyspace = Arc::new(Keyspace::new(options).unwrap());
        let mut replay = Replay::start(Arc::clone(&keyspace), 1, NOW_MS).unwrap();
        records.0.lock().iter().for_each(|record| replay.record(record).unwrap());
        replay.finish().map(|_| keyspace)
    };
    assert_eq!(state(&load(100).unwrap()), state(&keyspace));
    // Zero bytes beyond the limit are refused, not skipped.
    with(&keyspace, 0, 1, NOW_MS, |db, key| db.set_range(key, 5000, b"x").unwrap());
    let refused = load(100).map(|_| ()).unwrap_err();
    assert_eq!(refused, ReplayError::ValueTooLong(5000, 100));
    assert!(refused.to_string().contains("proto-max-bulk-len"));
    assert_eq!(state(&load(5000).unwrap()), state(&keyspace));
}

/// Threads write while checkpoints run one after the other; the end is the same from the log.
#[test]
fn writers_and_checkpoints_side_by_side() {
    const WRITERS: usize = 3;
    let (keyspace, records) = logged();
    let running = AtomicUsize::new(WRITERS);
    let dropped = std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (keyspace, running) = (&keyspace, &running);
            scope.spawn(move || {
                let mut random = writer as u64 + 1;
                for round in 0..20_000u64 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round | 1);
                    let key = (random >> 40) as u8;
                    let db = (random >> 50) as usize % DATABASES;
                    match (random >> 33) % 8 {
                        0 => _ = with(keyspace, db, key, NOW_MS, |db, key| db.remove(key)),
                        1 => _ = with(keyspace, db, key, NOW_MS, |db, key| db.increment(key, 1)),
                        2 => {
                            with(keyspace, db, key, NOW_MS, |db, key| {
                                db.append(key, b"+").unwrap()
                            });
                        }
                        _ => {
                            let value = random.to_string();
                            with(keyspace, db, key, NOW_MS, |db, key| {
                                db.set(key, &value, Expiry::Never).unwrap();
                            });
                        }
                    }
                    if random >> 52 == 1 {
                        let (a, b) = (keyspace.db_index(0).unwrap(), keyspace.db_index(2).unwrap());
                        swap_dbs(&mut keyspace.locks(), a, b, NOW_MS);
                    }
                }
                running.fetch_sub(1, Ordering::Release);
            });
        }
        let mut dropped = 0;
        let mut passes = 0;
        while running.load(Ordering::Acquire) > 0 || passes == 0 {
            let begin = records.len();
            let mut checkpoint = Checkpoint::begin(&keyspace);
            while checkpoint.step().1 != Pass::Complete {}
            dropped = begin;
            passes += 1;
        }
        dropped
    });
    let again = replay(&records.0.lock()[dropped..], 2);
    assert_eq!(state(&again), state(&keyspace));
}

/// Writers keep their locks, and shards locked, while logging begins. A later pass and the changes logged from then
/// on are complete.
#[test]
fn a_log_that_begins_under_writers_misses_nothing() {
    const WRITERS: usize = 3;
    for round in 0..20 {
        let records = Arc::new(Records::default());
        let log = Some(Arc::clone(&records) as Arc<dyn LogSink>);
        let options = Options { shards: SHARDS, databases: DATABASES, log, ..Options::default() };
        let keyspace = Arc::new(Keyspace::new(options).unwrap());
        let (ready, passed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (keyspace, ready, passed) = (&keyspace, &ready, &passed);
                scope.spawn(move || {
                    let db = DbIndex::ZERO;
                    let mut count = 0u32;
                    // Shard locks for many requests, as for a pipeline.
                    while passed.load(Ordering::Acquire) == 0 || count < 2000 {
                        let mut locks = keyspace.locks();
                        for _ in 0..50 {
                            let name = [writer as u8, (count % 40) as u8];
                            let key = keyspace.key(&name);
                            let value = count.to_string();
                            let mut db = locks.db(db, key.hash(), NOW_MS);
                            db.set(key, &value, Expiry::Never).unwrap();
                            count += 1;
                        }
                        ready.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            while ready.load(Ordering::Relaxed) < WRITERS * round {
                std::hint::spin_loop();
            }
            keyspace.begin_logging();
            let mut checkpoint = Checkpoint::begin(&keyspace);
            while checkpoint.step().1 != Pass::Complete {}
            passed.store(1, Ordering::Release);
        });
        let again = replay(&records.0.lock(), 2);
        assert_eq!(state(&again), state(&keyspace));
    }
}
