//! Streams compared with a plain model.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tierce_harness::effort;

use super::*;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

const LIMITS: StreamLimits = StreamLimits { node_bytes_max: 120, node_entries_max: 7 };

fn pairs(fields: &Fields) -> impl NewFields<'_> {
    fields.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))
}

fn owned(entry: Entry<'_>) -> (StreamId, Fields) {
    let fields = entry.fields().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
    (entry.id, fields)
}

/// Few names and values, so that neighbours often share their names.
fn any_fields() -> impl Strategy<Value = Fields> {
    let name = prop_oneof![Just("temperature"), Just("7"), Just("")];
    let value = prop_oneof![
        any::<i16>().prop_map(|value| value.to_string().into_bytes()),
        prop::collection::vec(any::<u8>(), 0..80),
    ];
    prop::collection::vec((name.prop_map(|name| name.as_bytes().to_vec()), value), 1..4)
}

fn any_id() -> impl Strategy<Value = StreamId> {
    prop_oneof![
        8 => (1..12_u64, 0..6_u64).prop_map(|(ms, seq)| StreamId::new(ms, seq)),
        1 => (1..3_u64).prop_map(|back| StreamId::new(u64::MAX, u64::MAX - back)),
        1 => (0..3_u64).prop_map(|ms| StreamId::new(ms, u64::MAX)),
    ]
}

#[derive(Debug, Clone)]
enum Step {
    /// Adds after the last one, with milliseconds and sequence number increased by these.
    Add(u64, u64, Fields),
    Insert(StreamId, Fields),
    Delete(StreamId),
    Remove(StreamId),
    Withdraw(StreamId),
    AddAndWithdraw(Fields),
    RemoveThrough(StreamId),
    Trim(usize, TrimPrecision),
    TrimFrom(StreamId, TrimPrecision),
    Duplicate,
}

fn any_step() -> impl Strategy<Value = Step> {
    let precision = || {
        prop_oneof![
            Just(TrimPrecision::Exact),
            (0..20_usize).prop_map(|limit| TrimPrecision::Blocks { limit }),
        ]
    };
    prop_oneof![
        12 => (0..3_u64, 0..3_u64, any_fields()).prop_map(|(ms, seq, fields)| Step::Add(ms, seq, fields)),
        8 => (any_id(), any_fields()).prop_map(|(id, fields)| Step::Insert(id, fields)),
        4 => any_id().prop_map(Step::Delete),
        4 => any_id().prop_map(Step::Remove),
        2 => any_id().prop_map(Step::Withdraw),
        2 => any_fields().prop_map(Step::AddAndWithdraw),
        1 => any_id().prop_map(Step::RemoveThrough),
        1 => (0..30_usize, precision()).prop_map(|(len, precision)| Step::Trim(len, precision)),
        1 => (any_id(), precision()).prop_map(|(id, precision)| Step::TrimFrom(id, precision)),
        1 => Just(Step::Duplicate),
    ]
}

#[derive(Debug, Default)]
struct Model {
    entries: BTreeMap<StreamId, Fields>,
    state: State,
}

impl Model {
    /// Applies the step to both, and compares the results.
    fn step(&mut self, stream: &mut Stream, step: Step) {
        match step {
            Step::Add(ms, seq, fields) => {
                let last = self.state.last_id;
                let seq = if ms == 0 { last.seq.saturating_add(seq) } else { seq };
                let id = StreamId::new(last.ms.saturating_add(ms), seq);
                let fits = id > last;
                if fits {
                    self.state.last_id = id;
                    self.state.entries_added += 1;
                }
                let news = fits && !self.entries.contains_key(&id);
                assert_eq!(stream.add(id, pairs(&fields), LIMITS), news);
                if news {
                    self.entries.insert(id, fields);
                }
            }
            Step::Insert(id, fields) => {
                let news = !self.entries.contains_key(&id);
                assert_eq!(stream.insert(id, pairs(&fields), LIMITS), news);
                self.entries.entry(id).or_insert(fields);
            }
            Step::Delete(id) => {
                let deleted = self.entries.remove(&id).is_some();
                assert_eq!(stream.delete(id), deleted);
                if deleted {
                    self.state.max_deleted_id = self.state.max_deleted_id.max(id);
                }
            }
            Step::Remove(id) => {
                assert_eq!(stream.remove(id), self.entries.remove(&id).is_some());
            }
            Step::Withdraw(id) => {
                let is_last = self.entries.last_key_value().is_some_and(|(last, _)| *last == id);
                if stream.withdraw(id) {
                    assert!(is_last, "only the last entry is withdrawn");
                    self.entries.remove(&id);
                }
            }
            Step::AddAndWithdraw(fields) => {
                let (before, last) = (stream.state(), self.entries.keys().next_back().copied());
                let next = before.last_id.max(last.unwrap_or_default()).next();
                if let Some(id) = next {
                    assert!(stream.add(id, pairs(&fields), LIMITS));
                    // An entry that was added before a deleted one is not at the end of its block.
                    assert!(stream.withdraw(id) || stream.remove(id));
                    stream.set_state(before);
                }
            }
            Step::RemoveThrough(id) => {
                let before = self.entries.len();
                self.entries.retain(|other, _| *other > id);
                assert_eq!(stream.remove_through(id), before - self.entries.len());
            }
            Step::Trim(len, precision) => {
                let wanted = self.entries.len().saturating_sub(len);
                self.trim(stream, Keep::Newest(len), precision, wanted);
            }
            Step::TrimFrom(id, precision) => {
                let wanted = self.entries.range(..id).count();
                self.trim(stream, Keep::From(id), precision, wanted);
            }
            Step::Duplicate => *stream = stream.duplicate(),
        }
    }

    fn trim(&mut self, stream: &mut Stream, keep: Keep, precision: TrimPrecision, wanted: usize) {
        let trimmed = stream.trim(Trim { keep, precision });
        assert_eq!(trimmed.through.is_some(), trimmed.count > 0);
        match precision {
            TrimPrecision::Exact => assert_eq!(trimmed.count, wanted),
            TrimPrecision::Blocks { limit } => {
                assert!(trimmed.count <= wanted && (limit == 0 || trimmed.count <= limit));
            }
        }
        let through = trimmed.through.unwrap_or(StreamId::MIN);
        let before = self.entries.len();
        self.entries.retain(|id, _| *id > through);
        assert_eq!(before - self.entries.len(), trimmed.count);
    }

    fn check(&self, stream: &Stream) {
        assert_eq!(stream.len(), self.entries.len());
        assert_eq!(stream.state(), self.state);
        let expected: Vec<_> = self.entries.clone().into_iter().collect();
        let found: Vec<_> = stream.ascending(StreamId::MIN, StreamId::MAX).map(owned).collect();
        assert_eq!(found, expected);
        let mut found: Vec<_> =
            stream.descending(StreamId::MIN, StreamId::MAX).map(owned).collect();
        found.reverse();
        assert_eq!(found, expected);
        assert_eq!(stream.first().map(owned).as_ref(), expected.first());
        assert_eq!(stream.last().map(owned).as_ref(), expected.last());
        stream.body.blocks.check_account();
    }

    fn check_range(&self, stream: &Stream, from: StreamId, to: StreamId) {
        let expected: Vec<StreamId> = match from <= to {
            true => self.entries.range(from..=to).map(|(id, _)| *id).collect(),
            false => Vec::new(),
        };
        let found: Vec<StreamId> = stream.ascending(from, to).map(|entry| entry.id).collect();
        assert_eq!(found, expected, "{from}..{to}");
        let mut found: Vec<StreamId> = stream.descending(from, to).map(|entry| entry.id).collect();
        found.reverse();
        assert_eq!(found, expected, "{from}..{to} backwards");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { effort(400) },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn entries_are_those_of_the_model(
        steps in prop::collection::vec(any_step(), 1..80),
        ranges in prop::collection::vec((any_id(), any_id()), 8),
    ) {
        let (mut stream, mut model) = (Stream::new(), Model::default());
        for step in steps {
            model.step(&mut stream, step);
            model.check(&stream);
        }
        for (from, to) in ranges {
            model.check_range(&stream, from, to);
        }
    }

    /// Facts of a checkpoint, which come in chunks between changes.
    #[test]
    fn facts_lead_to_the_same_in_any_order(
        ids in prop::collection::btree_set(any_id(), 1..60),
        gone in prop::collection::vec(any_id(), 0..20),
        order in any::<prop::sample::Index>(),
        fields in any_fields(),
    ) {
        let mut ids: Vec<StreamId> = ids.into_iter().collect();
        let expected: Vec<StreamId> =
            ids.iter().copied().filter(|id| !gone.contains(id)).collect();
        let cut = order.index(ids.len());
        ids.rotate_left(cut);
        let mut stream = Stream::new();
        for id in ids.iter().chain(&ids) {
            stream.insert(*id, pairs(&fields), LIMITS);
        }
        for id in gone.iter().chain(&gone) {
            stream.remove(*id);
        }
        let found: Vec<StreamId> =
            stream.ascending(StreamId::MIN, StreamId::MAX).map(|entry| entry.id).collect();
        prop_assert_eq!(found, expected);
    }
}

#[derive(Debug, Clone)]
enum GroupStep {
    Consumer(u8),
    Times(u8, u64),
    RemoveConsumer(u8),
    Pending(StreamId, u8, u64, u32),
    GiveBack(StreamId, u32),
    Acknowledge(StreamId),
    OrderByTime,
    Duplicate,
}

fn any_group_step() -> impl Strategy<Value = GroupStep> {
    let name = || 0..4_u8;
    prop_oneof![
        3 => name().prop_map(GroupStep::Consumer),
        1 => (name(), any::<u64>()).prop_map(|(name, ms)| GroupStep::Times(name, ms)),
        1 => name().prop_map(GroupStep::RemoveConsumer),
        12 => (any_id(), name(), any::<u64>(), any::<u32>())
            .prop_map(|(id, name, ms, count)| GroupStep::Pending(id, name, ms, count)),
        2 => (any_id(), any::<u32>()).prop_map(|(id, count)| GroupStep::GiveBack(id, count)),
        4 => any_id().prop_map(GroupStep::Acknowledge),
        1 => Just(GroupStep::OrderByTime),
        1 => Just(GroupStep::Duplicate),
    ]
}

#[derive(Debug, Default)]
struct GroupModel {
    consumers: BTreeMap<Vec<u8>, (u64, Option<u64>)>,
    pending: BTreeMap<StreamId, (Vec<u8>, u64, u32)>,
}

impl GroupModel {
    fn step(&mut self, stream: &mut Stream, step: GroupStep) {
        let name = |number: u8| format!("consumer{number}").into_bytes();
        let mut group = stream.group_mut(b"g").expect("a group");
        match step {
            GroupStep::Consumer(number) => {
                group.consumer_or_new(&name(number));
                self.consumers.entry(name(number)).or_default();
            }
            GroupStep::Times(number, ms) => {
                if let Some(found) = group.consumer_number(&name(number)) {
                    group.set_times(found, ms, Some(ms / 2));
                    self.consumers.insert(name(number), (ms, Some(ms / 2)));
                }
            }
            GroupStep::RemoveConsumer(number) => {
                let before = self.pending.len();
                self.pending.retain(|_, (consumer, ..)| *consumer != name(number));
                let removed = self.consumers.remove(&name(number)).is_some();
                let expected = removed.then_some(before - self.pending.len());
                assert_eq!(group.remove_consumer(&name(number)), expected);
            }
            GroupStep::Pending(id, number, delivered_ms, deliveries) => {
                if let Some(consumer) = group.consumer_number(&name(number)) {
                    group.set_pending(id, Pending { consumer, deliveries, delivered_ms });
                    self.pending.insert(id, (name(number), delivered_ms, deliveries));
                }
            }
            GroupStep::GiveBack(id, deliveries) => {
                let consumer = ConsumerNumber::NONE;
                group.set_pending(id, Pending { consumer, deliveries, delivered_ms: 0 });
                self.pending.insert(id, (Vec::new(), 0, deliveries));
            }
            GroupStep::OrderByTime => group.order_by_time(),
            GroupStep::Acknowledge(id) => {
                assert_eq!(group.acknowledge(id), self.pending.remove(&id).is_some());
            }
            GroupStep::Duplicate => {
                drop(group);
                *stream = stream.duplicate();
            }
        }
    }

    fn check(&self, stream: &Stream) {
        let group = stream.group(b"g").expect("a group");
        let consumers: Vec<_> =
            group.consumers().map(|c| (c.name().to_vec(), (c.seen_ms, c.active_ms))).collect();
        assert_eq!(consumers, self.consumers.clone().into_iter().collect::<Vec<_>>());
        let all = (StreamId::MIN, StreamId::MAX);
        let pending: Vec<_> = group
            .pending(all.0, all.1)
            .map(|(id, p)| {
                let consumer = group.consumer_name(p.consumer);
                (*id, (consumer.to_vec(), p.delivered_ms, p.deliveries))
            })
            .collect();
        assert_eq!(pending, self.pending.clone().into_iter().collect::<Vec<_>>());
        for consumer in group.consumers() {
            let ids: Vec<_> = consumer.pending(all.0, all.1).copied().collect();
            let expected: Vec<_> = self
                .pending
                .iter()
                .filter(|(_, (name, ..))| name == consumer.name())
                .map(|(id, _)| *id)
                .collect();
            assert_eq!(ids, expected);
            assert_eq!(consumer.pending_len(), ids.len());
        }
        let groups = stream.body.groups.iter();
        let bytes: usize =
            groups.map(|(name, group)| size_class(name.len()) + group.allocated_bytes()).sum();
        assert_eq!(stream.body.group_bytes, bytes);
        group.check_account();
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { effort(200) },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn groups_are_those_of_the_model(steps in prop::collection::vec(any_group_step(), 1..100)) {
        let (mut stream, mut model) = (Stream::new(), GroupModel::default());
        stream.group_or_new(b"g").set_position(StreamId::new(1, 2), Some(3));
        stream.group_or_new(b"another");
        for step in steps {
            model.step(&mut stream, step);
            model.check(&stream);
        }
        let names: Vec<&[u8]> = stream.groups().map(|(name, _)| name).collect();
        prop_assert_eq!(names, [&b"another"[..], b"g"]);
        prop_assert!(stream.remove_group(b"g") && stream.remove_group(b"another"));
        prop_assert!(!stream.remove_group(b"g"));
        prop_assert_eq!(stream.body.group_bytes, 0);
    }
}

fn filled(count: u64, limits: StreamLimits) -> Stream {
    let mut stream = Stream::new();
    for at in 0..count {
        let (value, name) = (at.to_string(), format!("sensor{at}"));
        let fields = [
            (&b"temperature"[..], &b"25"[..]),
            (b"humidity", value.as_bytes()),
            (b"name", name.as_bytes()),
        ];
        assert!(stream.add(
            StreamId::new(1_700_000_000_000 + 7 * at, 0),
            fields.into_iter(),
            limits
        ));
    }
    stream
}

const REDIS_LIMITS: StreamLimits = StreamLimits { node_bytes_max: 4096, node_entries_max: 100 };

#[test]
fn an_entry_takes_two_thirds_of_what_it_takes_in_redis() {
    // Redis 7.0.15 takes 35.8 bytes for each of these, by MEMORY USAGE.
    let count = if cfg!(miri) { 300 } else { 20_000 };
    let stream = filled(count, REDIS_LIMITS);
    let each = stream.allocated_bytes() / count as usize;
    assert!(each <= 26, "{each} bytes");
}

#[test]
fn a_pending_entry_takes_less_than_in_redis() {
    // Redis takes 146 bytes, by its allocator's count.
    let count = if cfg!(miri) { 300 } else { 20_000 };
    let mut stream = Stream::new();
    let mut group = stream.group_or_new(b"g");
    let consumer = group.consumer_or_new(b"c");
    for at in 0..count {
        let pending = Pending { consumer, deliveries: 1, delivered_ms: 1 };
        group.set_pending(StreamId::new(at, 0), pending);
    }
    drop(group);
    let each = stream.allocated_bytes() / count as usize;
    assert!(each <= 100, "{each} bytes");
}

#[test]
fn blocks_end_where_those_of_redis_do() {
    let stream = filled(250, REDIS_LIMITS);
    assert_eq!(stream.block_count(), 3);
    let unlimited = StreamLimits { node_bytes_max: 0, node_entries_max: 0 };
    assert_eq!(filled(250, unlimited).block_count(), 1);
}

#[test]
fn a_pointer_comes_back_as_the_stream() {
    let stream = filled(3, REDIS_LIMITS);
    let (form, pointer) = stream.into_raw();
    assert_eq!(form, Form::Stream);
    // SAFETY: from `into_raw`, used once.
    let stream = unsafe { Stream::from_raw(form, pointer) };
    assert_eq!(stream.len(), 3);
}

#[test]
fn what_a_group_has_read_is_known_at_both_ends() {
    let mut stream = filled(5, REDIS_LIMITS);
    let ids: Vec<StreamId> =
        stream.ascending(StreamId::MIN, StreamId::MAX).map(|entry| entry.id).collect();
    assert_eq!(stream.entries_added_at(StreamId::MIN), Some(0));
    assert_eq!(stream.entries_added_at(ids[0]), Some(1));
    assert_eq!(stream.entries_added_at(ids[1]), None);
    assert_eq!(stream.entries_added_at(ids[4]), Some(5));
    assert_eq!(stream.entries_added_at(StreamId::MAX), None);
    stream.group_or_new(b"g").set_position(ids[1], Some(2));
    assert_eq!(stream.lag(stream.group(b"g").unwrap()), Some(3));
    assert!(stream.delete(ids[2]));
    assert_eq!(stream.lag(stream.group(b"g").unwrap()), None);
    stream.group_or_new(b"g").set_position(ids[3], Some(4));
    assert_eq!(stream.lag(stream.group(b"g").unwrap()), Some(1));
    // All deleted entries are after the first entry, and so is the group's position.
    stream.remove_through(ids[2]);
    stream.group_or_new(b"g").set_position(ids[0], Some(1));
    assert_eq!(stream.lag(stream.group(b"g").unwrap()), Some(2));
    assert_eq!(stream.entries_read_at(ids[3], ids[0], Some(1)), Some(4));
    stream.remove_through(StreamId::MAX);
    assert_eq!(stream.lag(stream.group(b"g").unwrap()), Some(0));
}

#[test]
fn a_stream_without_entries_knows_its_past() {
    let mut stream = filled(3, REDIS_LIMITS);
    let state = stream.state();
    assert_eq!(stream.remove_through(StreamId::MAX), 3);
    assert_eq!((stream.len(), stream.state(), stream.block_count()), (0, state, 0));
    assert!(!stream.add(state.last_id, [(&b"a"[..], &b"b"[..])].into_iter(), REDIS_LIMITS));
    assert_eq!(stream.entries_added_at(StreamId::MIN), Some(3));
}

/// A remembered message of the model: entry, producer, name, time.
type Known = (StreamId, u8, u8, u64);

/// Remembers a message in a plain list, and returns those that are forgotten for it.
fn remember(all: &mut Vec<Known>, new: Known, limits: MessageLimits) {
    let (id, producer, message, at_ms) = new;
    let is_expired = |known: &Known| known.3 + u64::from(limits.duration_s) * 1000 <= at_ms;
    all.sort_unstable();
    let expired = all.iter().take(16).take_while(|known| is_expired(known)).count();
    all.drain(..expired);
    let is_same = |known: &Known| (known.1, known.2) == (producer, message);
    if all.iter().any(|known| is_same(known) && known.0 > id && !is_expired(known)) {
        return;
    }
    all.retain(|known| known.0 != id && (known.1, known.2) != (producer, message));
    all.push(new);
    all.sort_unstable();
    let count = all.iter().filter(|known| known.1 == producer).count();
    let mut too_many = count.saturating_sub(limits.messages_max as usize);
    all.retain(|known| {
        let goes = known.1 == producer && too_many > 0;
        too_many -= usize::from(goes);
        !goes
    });
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { effort(200) },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn messages_are_those_of_the_model(
        limits in (1..6_u32, 1..5_u32),
        steps in prop::collection::vec((any_id(), 0..3_u8, 0..8_u8, 0..9_u64), 1..60),
        duplicated_at in any::<prop::sample::Index>(),
    ) {
        let limits = MessageLimits { duration_s: limits.0, messages_max: limits.1 };
        let mut stream = Stream::new();
        let (empty, mut all) = (stream.allocated_bytes(), Vec::new());
        stream.set_messages(Some(limits), MessageCounts::default());
        let duplicated_at = duplicated_at.index(steps.len());
        for (number, (id, producer, message, seconds)) in steps.into_iter().enumerate() {
            let (producers, names, at_ms) = ([producer; 20], [message], seconds * 1000);
            let name = MessageName { producer: &producers, message: &names };
            let before = all.clone();
            let mut forgotten = Vec::new();
            stream.remember(name, id, at_ms, |id, _| forgotten.push(id));
            remember(&mut all, (id, producer, message, at_ms), limits);
            for (id, ..) in &before {
                let is_known = all.iter().any(|known| known.0 == *id) && !forgotten.contains(id);
                let has_gone = forgotten.contains(id);
                prop_assert!(is_known != has_gone, "{id}");
            }
            if number == duplicated_at {
                stream = stream.duplicate();
            }
            let messages = stream.messages().unwrap();
            messages.check_account();
            let found: Vec<Known> = messages.range(StreamId::MIN, StreamId::MAX).map(|(id, it)| {
                (id, it.name().producer[0], it.name().message[0], it.at_ms)
            }).collect();
            prop_assert_eq!(&found, &all);
            let is_known = |known: &&Known| known.3 + u64::from(limits.duration_s) * 1000 > at_ms;
            let tracked = all.iter().filter(is_known).count();
            prop_assert_eq!(messages.tracked(at_ms).1, tracked);
            for known in &all {
                let (producers, names) = ([known.1; 20], [known.2]);
                let name = MessageName { producer: &producers, message: &names };
                let expected = is_known(&known).then_some(known.0);
                prop_assert_eq!(messages.find(name, at_ms), expected);
            }
        }
        let ids: Vec<StreamId> = all.iter().map(|known| known.0).collect();
        ids.into_iter().for_each(|id| stream.forget(id));
        stream.messages().unwrap().check_account();
        prop_assert_eq!(stream.messages().unwrap().len(), 0);
        stream.set_messages(None, MessageCounts::default());
        prop_assert_eq!(stream.allocated_bytes(), empty);
    }
}
