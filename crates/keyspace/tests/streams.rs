//! The log has streams exactly as they were, whole and in the parts of a checkpoint.

use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;
use tierce_collections::Stream;
use tierce_collections::stream::{
    Keep, MessageCounts, MessageLimits, MessageName, Messages, State, StreamId, Trim, TrimPrecision,
};
use tierce_harness::effort;
use tierce_keyspace::log::{Checkpoint, LogSink, Pass, RecordKind, Replay};
use tierce_keyspace::{Delivery, Editor, Error, Keyspace, Missing, Options, SavedValue};

const NOW_MS: i64 = 1_000_000;

#[derive(Default)]
struct Records(Mutex<Vec<Vec<u8>>>);

impl LogSink for Records {
    fn append(&self, record: &[u8], _: RecordKind) {
        self.0.lock().push(record.to_vec());
    }
}

fn logged() -> (Arc<Keyspace>, Arc<Records>) {
    let records = Arc::new(Records::default());
    let log = Some(Arc::clone(&records) as Arc<dyn LogSink>);
    let keyspace = Keyspace::new(Options { shards: 2, log, ..Options::default() }).unwrap();
    keyspace.begin_logging();
    (Arc::new(keyspace), records)
}

fn replayed(records: &[Vec<u8>]) -> Arc<Keyspace> {
    let keyspace = Arc::new(Keyspace::new(Options { seed: 7, ..Options::default() }).unwrap());
    let mut replay = Replay::start(Arc::clone(&keyspace), 1, NOW_MS).unwrap();
    records.iter().for_each(|record| replay.record(record).unwrap());
    replay.finish().unwrap();
    keyspace
}

/// Returns the whole state of the stream, as in a snapshot.
fn parts(keyspace: &Keyspace) -> Vec<String> {
    let (key, db) = (keyspace.key(b"s"), keyspace.db_index(0).unwrap());
    let mut locks = keyspace.locks();
    let mut db = locks.db(db, key.hash(), NOW_MS);
    let Some(value) = db.get(key).unwrap() else { return Vec::new() };
    let mut copy = Vec::new();
    let SavedValue::Collection(saved) = SavedValue::of(&value, &mut copy) else {
        panic!("a stream");
    };
    assert_eq!(saved.len(), saved.parts().count() as u64);
    saved.parts().map(|part| format!("{part:?}")).collect()
}

#[derive(Debug, Clone)]
enum Step {
    Add(u64, u64, usize),
    Delete(StreamId),
    Trim(usize),
    State(State),
    Group(u8, StreamId, Option<u64>),
    RemoveGroup(u8),
    Consumer(u8, u8, u64),
    RemoveConsumer(u8, u8),
    Deliver(u8, u8, Vec<StreamId>, u64, u32),
    GiveBack(u8, Vec<StreamId>, u32),
    Acknowledge(u8, Vec<StreamId>),
    /// Adds an entry as a message of this producer and name, at this time.
    Message(u8, u8, u64),
    MessageLimits(u32, u32),
    Remove,
    Checkpoint,
}

fn any_id() -> impl Strategy<Value = StreamId> {
    (0..40_u64, 0..4_u64).prop_map(|(ms, seq)| StreamId::new(ms, seq))
}

fn any_step() -> impl Strategy<Value = Step> {
    let (group, consumer) = (|| 0..3_u8, || 0..3_u8);
    let ids = || prop::collection::vec(any_id(), 0..8);
    let state = (any_id(), any_id(), any::<u64>()).prop_map(|(last_id, max_deleted_id, added)| {
        State { last_id, max_deleted_id, entries_added: added }
    });
    prop_oneof![
        // Values of some thousand bytes soon make the stream so large that it is logged in parts.
        20 => (0..2_u64, 0..3_u64, 0..9000_usize).prop_map(|(ms, seq, len)| Step::Add(ms, seq, len)),
        4 => any_id().prop_map(Step::Delete),
        1 => (0..30_usize).prop_map(Step::Trim),
        1 => state.prop_map(Step::State),
        4 => (group(), any_id(), any::<Option<u64>>()).prop_map(|(g, id, read)| {
            Step::Group(g, id, read.map(|read| read / 2))
        }),
        1 => group().prop_map(Step::RemoveGroup),
        4 => (group(), consumer(), any::<u64>()).prop_map(|(g, c, ms)| Step::Consumer(g, c, ms)),
        1 => (group(), consumer()).prop_map(|(g, c)| Step::RemoveConsumer(g, c)),
        8 => (group(), consumer(), ids(), any::<u64>(), any::<u32>())
            .prop_map(|(g, c, ids, ms, count)| Step::Deliver(g, c, ids, ms, count)),
        2 => (group(), ids(), any::<u32>())
            .prop_map(|(g, ids, count)| Step::GiveBack(g, ids, count)),
        4 => (group(), ids()).prop_map(|(g, ids)| Step::Acknowledge(g, ids)),
        8 => (group(), 0..20_u8, 0..9_u64).prop_map(|(p, m, s)| Step::Message(p, m, s * 1000)),
        1 => (1..9_u32, 1..6_u32).prop_map(|(s, max)| Step::MessageLimits(s, max)),
        1 => Just(Step::Remove),
        10 => Just(Step::Checkpoint),
    ]
}

fn name(number: u8) -> Vec<u8> {
    vec![b'a' + number; 3]
}

fn edit(stream: &mut Editor<'_, Stream>, step: Step) {
    match step {
        Step::Add(ms, seq, len) => {
            let last = stream.state().last_id;
            let seq = if ms == 0 { last.seq.saturating_add(seq) } else { seq };
            let id = StreamId::new(last.ms.saturating_add(ms), seq);
            let value = vec![b'v'; len];
            stream.add(id, [(&b"field"[..], value.as_slice()), (b"7", b"42")].into_iter());
        }
        Step::Delete(id) => _ = stream.delete(id),
        Step::Trim(len) => {
            let (keep, precision) = (Keep::Newest(len), TrimPrecision::Exact);
            stream.trim(Trim { keep, precision });
        }
        Step::State(state) => {
            // Commands ensure that the last identity is not below an entry.
            let last = stream.last().map_or(StreamId::MIN, |entry| entry.id);
            stream.set_state(State { last_id: state.last_id.max(last), ..state });
        }
        Step::Group(group, id, read) => stream.set_group(&name(group), id, read),
        Step::RemoveGroup(group) => _ = stream.remove_group(&name(group)),
        Step::Consumer(group, consumer, ms) => {
            stream.set_consumer(&name(group), &name(consumer), ms, Some(ms / 2));
        }
        Step::RemoveConsumer(group, consumer) => {
            stream.remove_consumer(&name(group), &name(consumer));
        }
        Step::Deliver(group, consumer, ids, at_ms, count) => {
            stream.deliver(&name(group), &name(consumer), &ids, Delivery { at_ms, count });
        }
        Step::GiveBack(group, ids, count) => {
            stream.deliver(&name(group), b"", &ids, Delivery::given_back(count));
        }
        Step::Acknowledge(group, ids) => {
            stream.acknowledge(&name(group), ids.into_iter());
        }
        Step::Message(producer, message, at_ms) => {
            let (producer, message) = (name(producer), [message]);
            let name = MessageName { producer: &producer, message: &message };
            if stream.messages().is_none() {
                let limits = MessageLimits { duration_s: 3, messages_max: 2 };
                stream.set_messages(limits, MessageCounts::default());
            }
            // A duplicate would be counted, which is not logged.
            if stream.messages().and_then(|messages| messages.find(name, at_ms)).is_none() {
                let last = stream.state().last_id;
                let id = StreamId::new(last.ms.saturating_add(1), 0);
                stream.add(id, [(&b"7"[..], &b"42"[..])].into_iter());
                let counts = stream.messages().map(Messages::counts).unwrap_or_default();
                let added = counts.added + 1;
                stream.remember(name, id, at_ms, MessageCounts { added, ..counts });
            }
        }
        Step::MessageLimits(duration_s, messages_max) => {
            let counts = stream.messages().map(Messages::counts).unwrap_or_default();
            stream.set_messages(MessageLimits { duration_s, messages_max }, counts);
        }
        Step::Remove | Step::Checkpoint => unreachable!("no edits"),
    }
}

fn run(keyspace: &Keyspace, step: Step) {
    let (key, db) = (keyspace.key(b"s"), keyspace.db_index(0).unwrap());
    let mut locks = keyspace.locks();
    let mut db = locks.db(db, key.hash(), NOW_MS);
    if matches!(step, Step::Remove) {
        db.remove(key);
        return;
    }
    let edited = db.edit::<Stream, _, Error>(key, Missing::Create, |stream| {
        edit(stream, step);
        Ok(())
    });
    edited.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: effort(48), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_log_and_its_checkpoints_hold_the_stream(steps in prop::collection::vec(any_step(), 1..120)) {
        let (keyspace, records) = logged();
        let mut checkpoint: Option<(usize, Checkpoint<'_>)> = None;
        let mut complete_from = 0;
        for step in steps {
            let Step::Checkpoint = step else {
                run(&keyspace, step);
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
        let expected = parts(&keyspace);
        let records = records.0.lock().clone();
        prop_assert_eq!(parts(&replayed(&records)), &expected[..]);
        prop_assert_eq!(parts(&replayed(&records[complete_from..])), expected);
    }

    #[test]
    fn damaged_edits_are_errors(bytes in prop::collection::vec(any::<u8>(), 0..60), edit in 0..16_u8) {
        // Head and database of an edit, key, length, and then edits of a stream that make no sense.
        let mut record = vec![8, 0, 1, b's', bytes.len() as u8 + 1, 5 << 4 | edit];
        record.extend_from_slice(&bytes);
        let keyspace = Arc::new(Keyspace::new(Options::default()).unwrap());
        let mut replay = Replay::start(Arc::clone(&keyspace), 1, NOW_MS).unwrap();
        // No input causes a panic.
        let _ = replay.record(&record);
        let _ = replay.finish();
    }
}

#[test]
fn what_only_the_time_tells_is_not_logged() {
    let (keyspace, records) = logged();
    run(&keyspace, Step::Group(0, StreamId::MIN, Some(0)));
    run(&keyspace, Step::Consumer(0, 0, 5));
    let logged = records.0.lock().len();
    let (key, db) = (keyspace.key(b"s"), keyspace.db_index(0).unwrap());
    let mut locks = keyspace.locks();
    let edited =
        locks.db(db, key.hash(), NOW_MS).edit::<Stream, _, Error>(key, Missing::Skip, |stream| {
            stream.saw_consumer(&name(0), &name(0), 9);
            Ok(())
        });
    assert_eq!(edited, Ok(Some(())));
    drop(locks);
    assert_eq!(records.0.lock().len(), logged);
}
