//! Hashes and sets under the keyspace: edits against a model, replay of their log, and fields that
//! expire.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;
use tierce_collections::{Hash, Set};
use tierce_harness::effort;
use tierce_keyspace::log::{Checkpoint, LogSink, Pass, RecordKind, Replay};
use tierce_keyspace::{
    Db, DbIndex, Editor, Error, Key, Keyspace, Limits, Missing, Options, expire_due,
};

const BEGIN_MS: i64 = 1_000_000;

#[derive(Default)]
struct Records(Mutex<Vec<Vec<u8>>>);

impl LogSink for Records {
    fn append(&self, record: &[u8], _: RecordKind) {
        self.0.lock().push(record.to_vec());
    }
}

/// Values with deadlines.
type Fields = BTreeMap<Vec<u8>, (Vec<u8>, Option<i64>)>;

#[derive(Debug, Default, PartialEq, Eq)]
struct State {
    hashes: BTreeMap<Vec<u8>, Fields>,
    sets: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
}

impl State {
    /// Returns the state visible at that time.
    fn of(keyspace: &Keyspace, now_ms: i64) -> Self {
        let mut state = Self::default();
        for index in 0..KEYS {
            let name = name(index);
            with(keyspace, index, now_ms, |db, key| {
                if let Ok(Some(hash)) = db.collection::<Hash>(key) {
                    let field = |field: tierce_collections::hash::FieldRef<'_>| {
                        (field.name.to_vec(), (field.value.to_vec(), field.deadline_ms))
                    };
                    state.hashes.insert(name.clone(), hash.live(now_ms).map(field).collect());
                } else if let Ok(Some(set)) = db.collection::<Set>(key) {
                    state.sets.insert(name, set.iter().map(|member| member.to_vec()).collect());
                }
            });
        }
        state.hashes.retain(|_, fields| !fields.is_empty());
        state
    }
}

const KEYS: u8 = 6;

fn name(index: u8) -> Vec<u8> {
    format!("key{index}").into_bytes()
}

fn with<R>(
    keyspace: &Keyspace,
    index: u8,
    now_ms: i64,
    run: impl FnOnce(&mut Db<'_>, Key<'_>) -> R,
) -> R {
    let name = name(index);
    let key = keyspace.key(&name);
    let mut locks = keyspace.locks();
    run(&mut locks.db(DbIndex::ZERO, key.hash(), now_ms), key)
}

#[derive(Debug, Clone)]
enum Action {
    /// Field, value, deadline.
    Put(u8, u8, Option<i64>),
    Deadline(u8, Option<i64>),
    RemoveField(u8),
    Add(u16),
    RemoveMember(u16),
    Delete,
    Later(i64),
    Checkpoint(u8),
}

fn action() -> impl Strategy<Value = Action> {
    let at = || proptest::option::of(BEGIN_MS..BEGIN_MS + 60);
    prop_oneof![
        12 => (0..40u8, any::<u8>(), at()).prop_map(|(name, value, at)| Action::Put(name, value, at)),
        4 => (0..40u8, at()).prop_map(|(name, at)| Action::Deadline(name, at)),
        4 => (0..40u8).prop_map(Action::RemoveField),
        12 => (0..60u16).prop_map(Action::Add),
        4 => (0..60u16).prop_map(Action::RemoveMember),
        1 => Just(Action::Delete),
        2 => (0..6i64).prop_map(Action::Later),
        2 => (1..4u8).prop_map(Action::Checkpoint),
    ]
}

/// Members are integers and others.
fn member(number: u16) -> Vec<u8> {
    if number < 50 { number.to_string().into_bytes() } else { format!("m{number}").into_bytes() }
}

/// Edits the hash of a key, if it is one or there is none.
fn edit_hash(keyspace: &Keyspace, index: u8, now_ms: i64, action: &Action) -> bool {
    let edited = with(keyspace, index, now_ms, |db, key| {
        db.edit::<Hash, _, Error>(key, Missing::Create, |hash| {
            match action {
                Action::Put(name, value, at) => _ = hash.put(&[*name], &[*value; 3], *at),
                Action::Deadline(name, at) => _ = hash.set_deadline(&[*name], *at),
                Action::RemoveField(name) => _ = hash.remove(&[*name]),
                other => unreachable!("{other:?}"),
            }
            Ok(())
        })
    });
    edited != Err(Error::WrongType)
}

fn edit_set(keyspace: &Keyspace, index: u8, now_ms: i64, action: &Action) -> Option<bool> {
    let edited = with(keyspace, index, now_ms, |db, key| {
        db.edit::<Set, _, Error>(key, Missing::Create, |set| {
            Ok(match action {
                Action::Add(number) => set.add(&member(*number)),
                Action::RemoveMember(number) => set.remove(&member(*number)),
                other => unreachable!("{other:?}"),
            })
        })
    });
    edited.ok().flatten()
}

fn replayed(records: &[Vec<u8>]) -> Arc<Keyspace> {
    let keyspace = Arc::new(Keyspace::new(Options { shards: 2, ..Options::default() }).unwrap());
    let mut replay = Replay::start(Arc::clone(&keyspace), 1, BEGIN_MS).unwrap();
    records.iter().for_each(|record| replay.record(record).unwrap());
    replay.finish().unwrap();
    keyspace
}

fn keyspace_with_log() -> (Keyspace, Arc<Records>) {
    let records = Arc::new(Records::default());
    let log = Some(Arc::clone(&records) as Arc<dyn LogSink>);
    let keyspace = Keyspace::new(Options { shards: 4, log, ..Options::default() }).unwrap();
    keyspace.begin_logging();
    let mut limits = Limits::default();
    limits.set.integers_max = 12;
    limits.set.packed.entries_max = 8;
    limits.hash.entries_max = 10;
    keyspace.set_limits(&limits);
    (keyspace, records)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(200)))]

    #[test]
    fn edits_are_the_models_and_come_back_from_the_log(
        actions in proptest::collection::vec((0..KEYS, action()), 1..250),
    ) {
        let (keyspace, records) = keyspace_with_log();
        let (mut model, mut now_ms) = (State::default(), BEGIN_MS);
        let mut pass: Option<(usize, Checkpoint<'_>)> = None;
        let mut dropped = 0;
        for (index, action) in &actions {
            let key = name(*index);
            match action {
                Action::Put(field, value, at) => {
                    if edit_hash(&keyspace, *index, now_ms, action) {
                        let fields = model.hashes.entry(key).or_default();
                        fields.insert(vec![*field], (vec![*value; 3], *at));
                    }
                }
                Action::Deadline(field, at) => {
                    if edit_hash(&keyspace, *index, now_ms, action)
                        && let Some(found) =
                            model.hashes.get_mut(&key).and_then(|hash| hash.get_mut(&vec![*field]))
                    {
                        found.1 = *at;
                    }
                }
                Action::RemoveField(field) => {
                    if edit_hash(&keyspace, *index, now_ms, action)
                        && let Some(fields) = model.hashes.get_mut(&key)
                    {
                        fields.remove(&vec![*field]);
                    }
                }
                Action::Add(number) => {
                    if let Some(is_new) = edit_set(&keyspace, *index, now_ms, action) {
                        let members = model.sets.entry(key).or_default();
                        prop_assert_eq!(is_new, members.insert(member(*number)));
                    }
                }
                Action::RemoveMember(number) => {
                    if let Some(is_gone) = edit_set(&keyspace, *index, now_ms, action) {
                        let members = model.sets.entry(key).or_default();
                        prop_assert_eq!(is_gone, members.remove(&member(*number)));
                    }
                }
                Action::Delete => {
                    with(&keyspace, *index, now_ms, |db, key| db.remove(key));
                    model.hashes.remove(&key);
                    model.sets.remove(&key);
                }
                Action::Later(passed) => now_ms += passed,
                Action::Checkpoint(steps) => {
                    let (begin, mut checkpoint) = pass
                        .take()
                        .unwrap_or_else(|| (records.0.lock().len(), Checkpoint::begin(&keyspace)));
                    let complete = (0..*steps).any(|_| checkpoint.step().1 == Pass::Complete);
                    if complete { dropped = begin } else { pass = Some((begin, checkpoint)) }
                }
            }
            // The reaper uses its own clock: expired data are removed after this call.
            expire_due(&mut keyspace.locks(), now_ms);
            for fields in model.hashes.values_mut() {
                fields.retain(|_, (_, at)| at.is_none_or(|at| at > now_ms));
            }
            model.hashes.retain(|_, fields| !fields.is_empty());
            model.sets.retain(|_, members| !members.is_empty());
            let keys = model.hashes.len() + model.sets.len();
            prop_assert_eq!(keyspace.len(DbIndex::ZERO), keys as u64);
        }
        prop_assert_eq!(&State::of(&keyspace, now_ms), &model);
        let again = replayed(&records.0.lock()[dropped..]);
        prop_assert_eq!(&State::of(&again, now_ms), &model);
        expire_due(&mut again.locks(), now_ms);
        prop_assert_eq!(&State::of(&again, now_ms), &model);
        prop_assert_eq!(again.len(DbIndex::ZERO), (model.hashes.len() + model.sets.len()) as u64);
        expire_due(&mut keyspace.locks(), i64::MAX);
        prop_assert_eq!(keyspace.next_deadline_ms(), None);
    }
}

/// A large value is checkpointed in parts while it goes on changing.
#[test]
fn large_ones_are_checkpointed_in_parts() {
    let (keyspace, records) = keyspace_with_log();
    let put = |range: std::ops::Range<u32>, value: &[u8]| {
        with(&keyspace, 0, BEGIN_MS, |db, key| {
            db.edit::<Hash, _, Error>(key, Missing::Create, |hash| {
                for field in range.clone() {
                    let at = (field % 5 == 0).then_some(BEGIN_MS + i64::from(field) + 1);
                    hash.put(format!("field{field}").as_bytes(), value, at);
                }
                Ok(())
            })
            .unwrap();
        });
        with(&keyspace, 1, BEGIN_MS, |db, key| {
            db.edit::<Set, _, Error>(key, Missing::Create, |set| {
                range.for_each(|number| _ = set.add(format!("member number {number}").as_bytes()));
                Ok(())
            })
            .unwrap();
        });
    };
    put(0..4000, b"first");
    let begin = records.0.lock().len();
    let mut checkpoint = Checkpoint::begin(&keyspace);
    let (mut round, mut steps) = (0, 0);
    while checkpoint.step().1 == Pass::Underway {
        steps += 1;
        if steps % 3 == 0 && round < 40 {
            put(round * 70..round * 70 + 100, b"second");
            round += 1;
            with(&keyspace, 0, BEGIN_MS, |db, key| {
                db.edit::<Hash, _, Error>(key, Missing::Skip, |hash| {
                    hash.remove(format!("field{}", 3999 - round).as_bytes());
                    Ok(())
                })
                .unwrap();
            });
        }
    }
    assert!(steps > 10, "{steps} steps");
    let again = replayed(&records.0.lock()[begin..]);
    assert_eq!(State::of(&again, BEGIN_MS), State::of(&keyspace, BEGIN_MS));
}

/// A part that the checkpoint has not reached is removed, except for one member: the following
/// parts are empty, or contain that one.
#[test]
fn large_ones_shrink_while_they_are_checkpointed() {
    const MEMBERS: u32 = 3000;
    for kept in (0..MEMBERS).step_by(100) {
        let (keyspace, records) = keyspace_with_log();
        let edit = |run: &dyn Fn(&mut Editor<'_, Set>, &[u8])| {
            with(&keyspace, 1, BEGIN_MS, |db, key| {
                db.edit::<Set, _, Error>(key, Missing::Create, |set| {
                    let numbers = (0..MEMBERS).filter(|number| *number != kept);
                    numbers.for_each(|n| run(set, format!("{n:40}").as_bytes()));
                    Ok(())
                })
                .unwrap();
            });
        };
        with(&keyspace, 1, BEGIN_MS, |db, key| {
            db.edit::<Set, _, Error>(key, Missing::Create, |set| Ok(set.add(b"kept"))).unwrap();
        });
        edit(&|set, member| _ = set.add(member));
        let begin = records.0.lock().len();
        let mut checkpoint = Checkpoint::begin(&keyspace);
        let parts_begin = || records.0.lock()[begin..].iter().any(|record| record.len() > 10_000);
        while !parts_begin() {
            assert_eq!(checkpoint.step().1, Pass::Underway);
        }
        edit(&|set, member| _ = set.remove(member));
        while checkpoint.step().1 != Pass::Complete {}
        let again = replayed(&records.0.lock()[begin..]);
        assert_eq!(State::of(&again, BEGIN_MS), State::of(&keyspace, BEGIN_MS));
    }
}

/// The reaper removes fields by itself, a hash whose last field goes, and leaves other keys alone;
/// eviction by deadline is not confused by hashes whose keys have none.
#[test]
fn due_fields_are_removed_and_memory_is_given_back() {
    let (keyspace, _) = keyspace_with_log();
    let empty = keyspace.memory().total();
    for index in 0..KEYS {
        with(&keyspace, index, BEGIN_MS, |db, key| {
            db.edit::<Hash, _, Error>(key, Missing::Create, |hash| {
                for field in 0..1000i64 {
                    hash.put(field.to_string().as_bytes(), b"v", Some(BEGIN_MS + 1 + field / 10));
                }
                Ok(())
            })
            .unwrap();
        });
    }
    assert_eq!(keyspace.next_deadline_ms(), Some(BEGIN_MS + 1));
    let full = keyspace.memory().total();
    expire_due(&mut keyspace.locks(), BEGIN_MS + 50);
    with(&keyspace, 0, BEGIN_MS, |db, key| {
        let hash = db.collection::<Hash>(key).unwrap().unwrap();
        assert_eq!((hash.len(), hash.next_deadline_ms()), (500, Some(BEGIN_MS + 51)));
    });
    assert!(keyspace.memory().total() < full - full / 5);
    expire_due(&mut keyspace.locks(), BEGIN_MS + 100);
    assert_eq!((keyspace.len(DbIndex::ZERO), keyspace.next_deadline_ms()), (0, None));
    assert_eq!(keyspace.memory().total(), empty);
}
