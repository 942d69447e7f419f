//! The log has sorted sets exactly as they were, whole and in the parts of a checkpoint.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;
use tierce_collections::SortedSet;
use tierce_harness::effort;
use tierce_keyspace::log::{Checkpoint, LogSink, Pass, RecordKind, Replay};
use tierce_keyspace::{
    CollectionPart, Editor, Error, Keyspace, Limits, Missing, Options, SavedValue,
};

const NOW_MS: i64 = 1_000_000;

#[derive(Default)]
struct Records(Mutex<Vec<Vec<u8>>>);

impl LogSink for Records {
    fn append(&self, record: &[u8], _: RecordKind) {
        self.0.lock().push(record.to_vec());
    }
}

/// Members with their scores.
type Model = BTreeMap<Vec<u8>, f64>;

#[derive(Debug, Clone)]
enum Step {
    Set(Vec<u8>, f64),
    Remove(Vec<u8>),
    RemoveRange(usize, usize),
    Delete,
    Checkpoint,
}

fn any_step() -> impl Strategy<Value = Step> {
    // Some long members soon make the set so large that it is logged in parts.
    let member = || {
        (0..40_usize, prop::sample::select(&[0_usize, 5, 9000][..])).prop_map(|(number, len)| {
            let mut member = number.to_string().into_bytes();
            member.resize(member.len() + len, b'-');
            member
        })
    };
    let score = prop_oneof![
        (-3..3_i32).prop_map(|score| f64::from(score) / 2.0),
        prop::sample::select(&[f64::INFINITY, f64::NEG_INFINITY, -0.0, 1e300][..]),
    ];
    prop_oneof![
        20 => (member(), score).prop_map(|(member, score)| Step::Set(member, score)),
        5 => member().prop_map(Step::Remove),
        2 => (0..50_usize, 0..5_usize).prop_map(|(from, len)| Step::RemoveRange(from, len)),
        1 => Just(Step::Delete),
        8 => Just(Step::Checkpoint),
    ]
}

fn edit(set: &mut Editor<'_, SortedSet>, model: &mut Model, step: Step) {
    match step {
        Step::Set(member, score) => {
            set.update(&member, |old| {
                assert_eq!(old, model.get(&member).copied());
                Some(score)
            });
            if model.get(&member) != Some(&score) {
                model.insert(member, score);
            }
        }
        Step::Remove(member) => assert_eq!(set.remove(&member), model.remove(&member)),
        Step::RemoveRange(from, len) => set.remove_range(from..from + len, |member, score| {
            assert_eq!(model.remove(&member.to_vec()), Some(score));
        }),
        Step::Delete | Step::Checkpoint => unreachable!("no edits"),
    }
}

fn run(keyspace: &Keyspace, model: &mut Model, step: Step) {
    let (key, db) = (keyspace.key(b"z"), keyspace.db_index(0).unwrap());
    let mut locks = keyspace.locks();
    let mut db = locks.db(db, key.hash(), NOW_MS);
    if matches!(step, Step::Delete) {
        db.remove(key);
        model.clear();
        return;
    }
    let edited = db.edit::<SortedSet, _, Error>(key, Missing::Create, |set| {
        edit(set, model, step);
        Ok(())
    });
    edited.unwrap();
    assert_eq!(db.get(key).unwrap().is_some(), !model.is_empty());
}

/// The members with the bits of their scores, as a snapshot would have them.
fn saved(keyspace: &Keyspace) -> BTreeMap<Vec<u8>, u64> {
    let (key, db) = (keyspace.key(b"z"), keyspace.db_index(0).unwrap());
    let mut locks = keyspace.locks();
    let mut db = locks.db(db, key.hash(), NOW_MS);
    let Some(value) = db.get(key).unwrap() else { return BTreeMap::new() };
    let mut copy = Vec::new();
    let SavedValue::Collection(saved) = SavedValue::of(&value, &mut copy) else {
        panic!("a collection");
    };
    assert_eq!(saved.len(), saved.parts().count() as u64);
    let scored = saved.parts().map(|part| match part {
        // Small sets do not keep the sign of zero.
        CollectionPart::Scored { member, score } => (member.to_vec(), (score + 0.0).to_bits()),
        other => panic!("{other:?} in a sorted set"),
    });
    scored.collect()
}

fn replayed(records: &[Vec<u8>]) -> BTreeMap<Vec<u8>, u64> {
    let keyspace = Arc::new(Keyspace::new(Options { seed: 7, ..Options::default() }).unwrap());
    let mut replay = Replay::start(Arc::clone(&keyspace), 1, NOW_MS).unwrap();
    records.iter().for_each(|record| replay.record(record).unwrap());
    replay.finish().unwrap();
    saved(&keyspace)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: effort(48), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_log_and_its_checkpoints_hold_the_set(
        steps in prop::collection::vec(any_step(), 1..150),
        entries_max in prop::sample::select(&[0_usize, 10, 128][..]),
    ) {
        let records = Arc::new(Records::default());
        let log = Some(Arc::clone(&records) as Arc<dyn LogSink>);
        let keyspace = Keyspace::new(Options { shards: 2, log, ..Options::default() }).unwrap();
        let mut limits = Limits::default();
        limits.sorted_set.entries_max = entries_max;
        keyspace.set_limits(&limits);
        keyspace.begin_logging();
        let mut model = Model::new();
        let mut checkpoint: Option<(usize, Checkpoint<'_>)> = None;
        let mut complete_from = 0;
        for step in steps {
            let Step::Checkpoint = step else {
                run(&keyspace, &mut model, step);
                continue;
            };
            let (from, pass) = checkpoint.get_or_insert_with(|| {
                (records.0.lock().len(), Checkpoint::begin(&keyspace))
            });
            if pass.step().1 == Pass::Complete {
                complete_from = *from;
                checkpoint = None;
            }
        }
        let expected: BTreeMap<_, _> =
            model.into_iter().map(|(member, score)| (member, (score + 0.0).to_bits())).collect();
        prop_assert_eq!(&saved(&keyspace), &expected);
        let records = records.0.lock().clone();
        prop_assert_eq!(&replayed(&records), &expected);
        prop_assert_eq!(&replayed(&records[complete_from..]), &expected);
    }

    #[test]
    fn damaged_edits_are_errors(bytes in prop::collection::vec(any::<u8>(), 0..60), edit in 0..16_u8) {
        // Head and database of an edit, key, length, and then edits that make no sense.
        let mut record = vec![8, 0, 1, b'z', bytes.len() as u8 + 1, 3 << 4 | edit];
        record.extend_from_slice(&bytes);
        let keyspace = Arc::new(Keyspace::new(Options::default()).unwrap());
        let mut replay = Replay::start(Arc::clone(&keyspace), 1, NOW_MS).unwrap();
        // No input causes a panic.
        let _ = replay.record(&record);
        let _ = replay.finish();
    }
}
