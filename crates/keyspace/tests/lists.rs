//! Lists under the keyspace: edits against a model, and the replay of their log, with checkpoints
//! that log large lists in parts while they change.

use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;
use tierce_collections::{List, ListLimits};
use tierce_harness::effort;
use tierce_keyspace::log::{Checkpoint, LogSink, Pass, RecordKind, Replay};
use tierce_keyspace::{
    CollectionPart, Db, DbIndex, Editor, Error, Freeing, Key, Keyspace, Limits, Missing, Options,
    Removal, SavedValue, flush_dbs,
};

const NOW_MS: i64 = 1_000_000;

const KEYS: usize = 3;

#[derive(Default)]
struct Records(Mutex<Vec<Vec<u8>>>);

impl LogSink for Records {
    fn append(&self, record: &[u8], _: RecordKind) {
        self.0.lock().push(record.to_vec());
    }
}

fn keyspace_with_log() -> (Keyspace, Arc<Records>) {
    let records = Arc::new(Records::default());
    let log = Some(Arc::clone(&records) as Arc<dyn LogSink>);
    let keyspace = Keyspace::new(Options { shards: 4, log, ..Options::default() }).unwrap();
    keyspace.begin_logging();
    let list = ListLimits { entries_max: usize::MAX, bytes_max: 4096 };
    keyspace.set_limits(&Limits { list, ..Limits::default() });
    (keyspace, records)
}

fn replayed(records: &[Vec<u8>]) -> Arc<Keyspace> {
    let keyspace = Arc::new(Keyspace::new(Options { shards: 2, ..Options::default() }).unwrap());
    let mut replay = Replay::start(Arc::clone(&keyspace), 2, NOW_MS).unwrap();
    records.iter().for_each(|record| replay.record(record).unwrap());
    replay.finish().unwrap();
    keyspace
}

fn with<R>(keyspace: &Keyspace, key: usize, run: impl FnOnce(&mut Db<'_>, Key<'_>) -> R) -> R {
    let name = [b'a' + key as u8];
    let key = keyspace.key(&name);
    let mut locks = keyspace.locks();
    run(&mut locks.db(DbIndex::ZERO, key.hash(), NOW_MS), key)
}

fn edit<R>(keyspace: &Keyspace, key: usize, run: impl FnOnce(&mut Editor<'_, List>) -> R) -> R {
    let run = |list: &mut Editor<'_, List>| Ok::<_, Error>(run(list));
    with(keyspace, key, |db, key| db.edit(key, Missing::Create, run)).unwrap().unwrap()
}

type Lists = [Vec<Vec<u8>>; KEYS];

fn lists_of(keyspace: &Keyspace) -> Lists {
    std::array::from_fn(|key| {
        with(keyspace, key, |db, key| {
            let list = db.collection::<List>(key).unwrap();
            list.map(|list| list.iter().map(|element| element.to_vec()).collect())
        })
        .unwrap_or_default()
    })
}

#[derive(Debug, Clone)]
enum Action {
    PushFront(Vec<Vec<u8>>),
    PushBack(Vec<Vec<u8>>),
    Insert(usize, Vec<u8>),
    Set(usize, Vec<u8>),
    Remove(usize, usize),
    Delete,
    /// To another key.
    Rename(usize),
    Flush,
    Checkpoint(usize),
}

/// Some lists are large enough for several parts of 16 KiB.
fn element() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        (0usize..3000, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
        any::<i32>().prop_map(|number| number.to_string().into_bytes()),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    let elements = || proptest::collection::vec(element(), 1..24);
    let at = any::<usize>;
    prop_oneof![
        6 => elements().prop_map(Action::PushFront),
        6 => elements().prop_map(Action::PushBack),
        8 => (at(), element()).prop_map(|(at, element)| Action::Insert(at, element)),
        8 => (at(), element()).prop_map(|(at, element)| Action::Set(at, element)),
        8 => (at(), 1usize..12).prop_map(|(at, count)| Action::Remove(at, count)),
        1 => Just(Action::Delete),
        1 => (0..KEYS).prop_map(Action::Rename),
        1 => Just(Action::Flush),
        24 => (1usize..4).prop_map(Action::Checkpoint),
    ]
}

fn apply(keyspace: &Keyspace, lists: &mut Lists, key: usize, action: &Action) {
    let list = &mut lists[key];
    let len = list.len();
    match action {
        Action::PushFront(elements) => {
            edit(keyspace, key, |list| list.push_front(elements.iter().map(Vec::as_slice)));
            list.splice(0..0, elements.iter().rev().cloned());
        }
        Action::PushBack(elements) => {
            edit(keyspace, key, |list| list.push_back(elements.iter().map(Vec::as_slice)));
            list.extend_from_slice(elements);
        }
        Action::Insert(at, element) => {
            let at = at % (len + 1);
            edit(keyspace, key, |list| list.insert(at, std::iter::once(element.as_slice())));
            list.insert(at, element.clone());
        }
        Action::Set(at, element) if len > 0 => {
            assert!(edit(keyspace, key, |list| list.set(at % len, element)));
            list[at % len].clone_from(element);
        }
        Action::Set(..) => {}
        Action::Remove(at, count) => {
            let at = at % (len + 1);
            let removed = edit(keyspace, key, |list| list.remove(at, *count));
            assert_eq!(list.drain(at..len.min(at + count)).count(), removed);
        }
        Action::Delete => {
            with(keyspace, key, |db, key| db.remove(key));
            list.clear();
        }
        Action::Rename(to) => {
            let entry = with(keyspace, key, |db, key| db.take(key, Removal::Moved));
            if let Some(entry) = entry {
                with(keyspace, *to, |db, key| db.put(key, entry)).unwrap();
                lists[*to] = std::mem::take(&mut lists[key]);
            }
        }
        Action::Flush => {
            flush_dbs(&mut keyspace.locks(), [DbIndex::ZERO], Freeing::Later);
            *lists = Lists::default();
        }
        Action::Checkpoint(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(150)))]

    #[test]
    fn edits_are_the_models_and_come_back_from_the_log(
        actions in proptest::collection::vec((0..KEYS, action()), 1..120),
    ) {
        let (keyspace, records) = keyspace_with_log();
        let mut lists = Lists::default();
        let mut pass: Option<(usize, Checkpoint<'_>)> = None;
        let mut dropped = 0;
        for (key, action) in &actions {
            apply(&keyspace, &mut lists, *key, action);
            if let Action::Checkpoint(steps) = action {
                let (begin, mut checkpoint) = pass
                    .take()
                    .unwrap_or_else(|| (records.0.lock().len(), Checkpoint::begin(&keyspace)));
                let complete = (0..*steps).any(|_| checkpoint.step().1 == Pass::Complete);
                if complete { dropped = begin } else { pass = Some((begin, checkpoint)) }
            }
        }
        prop_assert!(lists_of(&keyspace) == lists);
        let records = records.0.lock();
        prop_assert!(lists_of(&replayed(&records[dropped..])) == lists);
        prop_assert!(lists_of(&replayed(&records)) == lists);
    }
}

/// A list of hundreds of parts is checkpointed while it goes on changing at both ends and between.
#[test]
fn a_large_list_is_checkpointed_in_parts() {
    let (keyspace, records) = keyspace_with_log();
    let text = |number: usize| format!("element number {number}").into_bytes();
    let texts: Vec<_> = (0..100_000).map(text).collect();
    edit(&keyspace, 0, |list| list.push_back(texts.iter().map(Vec::as_slice)));
    with(&keyspace, 0, |db, key| db.set_deadline(key, NOW_MS + 7));
    let begin = records.0.lock().len();
    let mut checkpoint = Checkpoint::begin(&keyspace);
    let mut steps = 0;
    while checkpoint.step().1 == Pass::Underway {
        steps += 1;
        edit(&keyspace, 0, |list| {
            let element = text(1_000_000 + steps);
            list.push_front([&b"first"[..], &element].into_iter());
            list.remove(steps * 37, 3);
            list.push_back([&element[..]].into_iter());
            list.insert(steps * 91, [&b"between"[..]].into_iter());
            list.set(list.len() / 2, b"the middle");
        });
    }
    assert!(steps > 100, "{steps} steps");
    let records = records.0.lock();
    let longest = records[begin..].iter().map(Vec::len).max();
    assert!(longest < Some(40_000), "a record of {longest:?} bytes");
    let again = replayed(&records[begin..]);
    assert!(lists_of(&again) == lists_of(&keyspace));
    let deadline = |db: &mut Db<'_>, key: Key<'_>| db.peek(key).unwrap().deadline_ms();
    assert_eq!(with(&again, 0, deadline), Some(NOW_MS + 7));
}

#[test]
fn a_snapshot_has_the_elements_in_their_order() {
    let (keyspace, _) = keyspace_with_log();
    edit(&keyspace, 0, |list| list.push_front([&b"c"[..], b"-7", b"a"].into_iter()));
    with(&keyspace, 0, |db, key| {
        let (value, mut copy) = (db.get(key).unwrap().unwrap(), Vec::new());
        let SavedValue::Collection(saved) = SavedValue::of(&value, &mut copy) else {
            panic!("a list");
        };
        let parts: Vec<_> = saved.parts().collect();
        let expected = [&b"a"[..], b"-7", b"c"].map(CollectionPart::Element);
        assert_eq!((saved.len(), parts), (3, expected.to_vec()));
    });
}
