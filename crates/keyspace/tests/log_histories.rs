//! Histories over all types with short records: a log that ends after any of its records has the complete state after
//! some command, with running checkpoints, expiring keys, and databases that are emptied and exchanged.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;
use tierce_collections::stream::StreamId;
use tierce_collections::{Hash, List, ListLimits, PackedLimits, Set, SetLimits, SortedSet, Stream};
use tierce_harness::effort;
use tierce_keyspace::log::{Checkpoint, LiveReplay, LogSink, Pass, RecordKind, Replay, Sizes};
use tierce_keyspace::{
    CodeEditor, CodeKind, CollectionPart, Condition, Db, DbIndex, Error, Expiry, Freeing, Key,
    Keyspace, Limits, Marks, Missing, Options, Removal, STREAM_NAME_LEN, SavedValue,
    StreamPosition, expire_due, flush_dbs, for_each_entry, swap_dbs,
};

const NOW_MS: i64 = 1_000_000;
const DATABASES: usize = 2;
const KEYS: u8 = 5;

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

    fn bytes(&self) -> usize {
        self.0.lock().iter().map(Vec::len).sum()
    }
}

fn logged(sizes: Sizes) -> (Arc<Keyspace>, Arc<Records>) {
    let records = Arc::new(Records::default());
    let log = Some(Arc::clone(&records) as Arc<dyn LogSink>);
    let options =
        Options { shards: 2, databases: DATABASES, log, log_sizes: sizes, ..Options::default() };
    let keyspace = Arc::new(Keyspace::new(options).unwrap());
    let packed = PackedLimits { entries_max: 4, value_len_max: 64 };
    keyspace.set_limits(&Limits {
        list: ListLimits { entries_max: 4, bytes_max: 8192 },
        set: SetLimits { integers_max: 4, packed },
        sorted_set: packed,
        hash: packed,
        ..Limits::default()
    });
    keyspace.begin_logging();
    (keyspace, records)
}

fn replay(records: &[Vec<u8>]) -> Arc<Keyspace> {
    let options = Options { shards: 4, databases: DATABASES, seed: 99, ..Options::default() };
    let keyspace = Arc::new(Keyspace::new(options).unwrap());
    let mut replay = Replay::start(Arc::clone(&keyspace), 1, NOW_MS).unwrap();
    for record in records {
        replay.record(record).unwrap();
    }
    replay.finish().unwrap();
    keyspace
}

/// Deadline of a key, and the parts of its value with their deadlines.
type Found = (Option<i64>, Vec<(String, Option<i64>)>);
type State = BTreeMap<(usize, Vec<u8>), Found>;

/// Returns the whole state, including expired keys. Libraries and scripts count as keys of further databases.
fn state(keyspace: &Keyspace) -> State {
    let mut state = State::new();
    for db in keyspace.db_indices() {
        for_each_entry(&mut keyspace.locks(), db, i64::MIN, |entry| {
            let (mut copy, value) = (Vec::new(), entry.value());
            let mut parts: Vec<_> = match SavedValue::of(&value, &mut copy) {
                SavedValue::Collection(saved) => saved.parts().map(part).collect(),
                string => {
                    let (flags, marks) = (entry.flags(), entry.marks());
                    vec![(format!("{string:?} {flags} {} {}", marks.stale, marks.won), None)]
                }
            };
            let is_ordered = ["quicklist", "listpack"].contains(&entry.encoding());
            if !is_ordered || parts.iter().any(|(part, _)| !part.starts_with("Element")) {
                parts.sort();
            }
            state.insert((db.get(), entry.key().to_vec()), (entry.deadline_ms(), parts));
        });
    }
    for (kind, db) in CodeKind::ALL.into_iter().zip(DATABASES..) {
        for (name, source) in keyspace.code().all().of(kind) {
            let source = source.escape_ascii().to_string();
            state.insert((db, name.to_vec()), (None, vec![(source, None)]));
        }
    }
    state
}

fn part(part: CollectionPart<'_>) -> (String, Option<i64>) {
    match part {
        CollectionPart::Field { name, value, deadline_ms } => {
            (format!("{name:?} {value:?}"), deadline_ms)
        }
        other => (format!("{other:?}"), None),
    }
}

/// Returns the part of it that is visible at that time.
fn seen(state: &State, now_ms: i64) -> State {
    let is_live = |deadline_ms: &Option<i64>| deadline_ms.is_none_or(|at| at > now_ms);
    let mut state = state.clone();
    state.retain(|_, (deadline_ms, parts)| {
        parts.retain(|(_, deadline_ms)| is_live(deadline_ms));
        is_live(deadline_ms) && !parts.is_empty()
    });
    state
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    List,
    Set,
    SortedSet,
    Hash,
    Stream,
}

/// Kind of element that is added to a key; other actions may put another type there.
const KINDS: [Kind; KEYS as usize] =
    [Kind::List, Kind::Set, Kind::SortedSet, Kind::Hash, Kind::Stream];

type DbKey = (usize, u8);

#[derive(Debug, Clone)]
enum Action {
    Set(DbKey, usize, Option<i64>),
    Append(DbKey, usize),
    SetRange(DbKey, u64, usize),
    /// Adds this many elements from a number on, with a deadline if they are fields.
    Add(Kind, DbKey, u16, u16, Option<i64>),
    Take(Kind, DbKey, u16, u16),
    /// Actions of memcached's protocols: a store with flags, an invalidation, a reader that wins.
    Store(DbKey, u32),
    Stale(DbKey),
    Win(DbKey),
    /// Action of a replica that is told of the two: flags, and the marks stale and won.
    Note(DbKey, Option<u32>, (bool, bool)),
    Remove(DbKey),
    Deadline(DbKey, i64),
    Persist(DbKey),
    Rename(DbKey, DbKey),
    Copy(DbKey, DbKey),
    All(usize, usize),
    Flush(usize),
    Swap,
    /// A library or script gets a source of this length or none.
    Code(CodeKind, u8, Option<usize>),
    /// Changes code and a key in the same record.
    CodeAndKey(CodeKind, u8, usize, DbKey),
    /// Time passes, and reads meet the keys that are due.
    Tick(i64),
    /// Time passes, and keys that are due are removed.
    Reap(i64),
    BeginCheckpoint,
    Checkpoint(u8),
}

fn action() -> impl Strategy<Value = Action> {
    let position = || (0..DATABASES, 0..KEYS);
    let len = || prop_oneof![8 => 0..60usize, 2 => 200..900usize, 1 => 16_000..17_000usize];
    let after_ms = || prop_oneof![2 => Just(None), 1 => (1i64..600).prop_map(Some)];
    prop_oneof![
        1 => (position(), len(), after_ms()).prop_map(|(p, l, d)| Action::Set(p, l, d)),
        2 => (position(), len()).prop_map(|(p, l)| Action::Append(p, l)),
        2 => (position(), prop_oneof![0..100u64, 16_000..40_000u64], 1..300usize).prop_map(|(p, o, l)| Action::SetRange(p, o, l)),
        24 => (position(), 0..60u16, 1..30u16, after_ms())
            .prop_map(|(p, from, count, d)| Action::Add(KINDS[usize::from(p.1)], p, from, count, d)),
        8 => (position(), 0..60u16, 1..30u16)
            .prop_map(|(p, from, count)| Action::Take(KINDS[usize::from(p.1)], p, from, count)),
        1 => (position(), any::<u32>()).prop_map(|(p, flags)| Action::Store(p, flags)),
        2 => position().prop_map(Action::Stale),
        2 => position().prop_map(Action::Win),
        2 => (position(), proptest::option::of(any::<u32>()), any::<(bool, bool)>())
            .prop_map(|(p, flags, marks)| Action::Note(p, flags, marks)),
        1 => position().prop_map(Action::Remove),
        8 => (position(), 1i64..150).prop_map(|(p, d)| Action::Deadline(p, d)),
        1 => position().prop_map(Action::Persist),
        3 => (position(), position()).prop_map(|(a, b)| Action::Rename(a, b)),
        3 => (position(), position()).prop_map(|(a, b)| Action::Copy(a, b)),
        1 => (0..DATABASES, len()).prop_map(|(d, l)| Action::All(d, l)),
        2 => (0..DATABASES).prop_map(Action::Flush),
        1 => Just(Action::Swap),
        3 => (code_kind(), 0..4u8, proptest::option::of(len())).prop_map(|(k, n, l)| Action::Code(k, n, l)),
        1 => (code_kind(), 0..4u8, len(), position())
            .prop_map(|(k, n, l, p)| Action::CodeAndKey(k, n, l, p)),
        3 => (0..80i64).prop_map(Action::Tick),
        3 => (0..80i64).prop_map(Action::Reap),
        3 => Just(Action::BeginCheckpoint),
        24 => (1..12u8).prop_map(Action::Checkpoint),
    ]
}

fn code_kind() -> impl Strategy<Value = CodeKind> {
    prop_oneof![Just(CodeKind::Library), Just(CodeKind::Script)]
}

fn with<R>(
    keyspace: &Keyspace,
    (db, key): DbKey,
    now_ms: i64,
    act: impl FnOnce(&mut Db<'_>, Key<'_>) -> R,
) -> R {
    let (db, name) = (keyspace.db_index(db).unwrap(), [b'k', key]);
    let key = keyspace.key(&name);
    act(&mut keyspace.locks().db(db, key.hash(), now_ms), key)
}

fn element(number: u16) -> Vec<u8> {
    match number % 7 {
        0 => vec![number as u8; 150],
        _ => format!("element {number}").into_bytes(),
    }
}

/// Does an action that needs no checkpoint.
fn act(keyspace: &Keyspace, action: &Action, now_ms: &mut i64) {
    let now = *now_ms;
    let index = |db: usize| keyspace.db_index(db).unwrap();
    match *action {
        Action::Set(position, len, after_ms) => {
            let expiry = after_ms.map_or(Expiry::Never, |after_ms| Expiry::At(now + after_ms));
            with(keyspace, position, now, |db, key| db.set(key, &vec![b's'; len], expiry)).unwrap();
        }
        // A value that is no string is unchanged.
        Action::Append(position, len) => {
            _ = with(keyspace, position, now, |db, key| db.append(key, &vec![b'a'; len]));
        }
        Action::SetRange(position, offset, len) => {
            _ = with(keyspace, position, now, |db, key| {
                db.set_range(key, offset, &vec![b'r'; len])
            });
        }
        Action::Add(kind, position, from, count, after_ms) => {
            let deadline_ms = after_ms.map(|after_ms| now + after_ms);
            _ = with(keyspace, position, now, |db, key| {
                add(db, key, kind, from..from + count, deadline_ms)
            });
        }
        Action::Take(kind, position, from, count) => {
            _ = with(keyspace, position, now, |db, key| take(db, key, kind, from..from + count));
        }
        Action::Store(position, flags) => {
            let store = |db: &mut Db<'_>, key: Key<'_>| {
                db.store(key, b"stored", flags, Expiry::Keep, Condition::Always)
            };
            with(keyspace, position, now, store).unwrap();
        }
        Action::Stale(position) => _ = with(keyspace, position, now, |db, key| db.make_stale(key)),
        Action::Win(position) => {
            with(keyspace, position, now, |db, key| db.mark(key, |marks| marks.won = true));
        }
        Action::Note(position, flags, (stale, won)) => {
            let marks = Marks { stale, won, fetched: false };
            with(keyspace, position, now, |db, key| db.set_note(key, flags, marks));
        }
        Action::Remove(position) => _ = with(keyspace, position, now, |db, key| db.remove(key)),
        Action::Deadline(position, after_ms) => {
            with(keyspace, position, now, |db, key| db.set_deadline(key, now + after_ms));
        }
        Action::Persist(position) => {
            _ = with(keyspace, position, now, |db, key| db.clear_deadline(key));
        }
        Action::Rename(from, to) | Action::Copy(from, to) => {
            let names = [[b'k', from.1], [b'k', to.1]];
            let [source, target] = [keyspace.key(&names[0]), keyspace.key(&names[1])];
            let mut locks = keyspace.locks();
            let mut both = locks.lock_many(&[source.hash(), target.hash()]);
            let mut db = both.db(index(from.0), source.hash(), now);
            let entry = match action {
                Action::Copy(..) => db.duplicate(source).unwrap(),
                _ => db.take(source, Removal::Moved),
            };
            if let Some(entry) = entry {
                both.db(index(to.0), target.hash(), now).put(target, entry).unwrap();
            }
        }
        Action::All(db, len) => {
            let mut locks = keyspace.locks();
            let mut all = locks.lock_all();
            for key in 0..KEYS {
                let name = [b'k', key];
                let key = keyspace.key(&name);
                let mut db = all.db(index(db), key.hash(), now);
                db.set(key, &vec![b'm'; len], Expiry::Never).unwrap();
            }
        }
        Action::Flush(db) => _ = flush_dbs(&mut keyspace.locks(), [index(db)], Freeing::Now),
        Action::Swap => swap_dbs(&mut keyspace.locks(), index(0), index(1), *now_ms),
        Action::Code(kind, name, None) => {
            CodeEditor::lock(&mut keyspace.locks()).remove(kind, &[b'c', name]);
        }
        Action::Code(kind, name, Some(len)) => {
            CodeEditor::lock(&mut keyspace.locks()).put(kind, &[b'c', name], vec![b'l'; len]);
        }
        Action::CodeAndKey(kind, name, len, (db, key)) => {
            let (mut locks, bytes) = (keyspace.locks(), [b'k', key]);
            let mut all = locks.lock_all();
            CodeEditor::lock(all.locks()).put(kind, &[b'c', name], vec![b'b'; len]);
            let key = keyspace.key(&bytes);
            all.db(index(db), key.hash(), now).set(key, &vec![b'b'; len], Expiry::Never).unwrap();
        }
        Action::Tick(ms) => *now_ms += ms,
        Action::Reap(ms) => {
            *now_ms += ms;
            expire_due(&mut keyspace.locks(), *now_ms);
        }
        Action::BeginCheckpoint | Action::Checkpoint(_) => {}
    }
}

fn add(
    db: &mut Db<'_>,
    key: Key<'_>,
    kind: Kind,
    numbers: std::ops::Range<u16>,
    deadline_ms: Option<i64>,
) -> Result<(), Error> {
    let elements: Vec<Vec<u8>> = numbers.clone().map(element).collect();
    let each = elements.iter().map(Vec::as_slice);
    let create = Missing::Create;
    let edited = match kind {
        Kind::List => db.edit::<List, _, Error>(key, create, |list| {
            let at = usize::from(numbers.start).min(list.len());
            list.insert(at, each);
            Ok(())
        }),
        Kind::Set => db.edit::<Set, _, Error>(key, create, |set| {
            each.for_each(|member| _ = set.add(member));
            Ok(())
        }),
        Kind::SortedSet => db.edit::<SortedSet, _, Error>(key, create, |set| {
            each.for_each(|member| set.update(member, |_| Some(member.len() as f64)));
            Ok(())
        }),
        Kind::Hash => db.edit::<Hash, _, Error>(key, create, |hash| {
            each.for_each(|name| _ = hash.put(name, b"value", deadline_ms));
            Ok(())
        }),
        Kind::Stream => db.edit::<Stream, _, Error>(key, create, |stream| {
            for (number, value) in numbers.zip(each) {
                let id = StreamId::new(stream.state().last_id.ms + 1, number.into());
                stream.add(id, [(&b"f"[..], value)].into_iter());
            }
            Ok(())
        }),
    };
    edited.map(|_| ())
}

fn take(
    db: &mut Db<'_>,
    key: Key<'_>,
    kind: Kind,
    numbers: std::ops::Range<u16>,
) -> Result<(), Error> {
    let elements: Vec<Vec<u8>> = numbers.clone().map(element).collect();
    let skip = Missing::Skip;
    let edited = match kind {
        Kind::List => db.edit::<List, _, Error>(key, skip, |list| {
            list.remove(numbers.start.into(), numbers.len());
            if list.len() > 3 {
                list.set(3, b"another");
            }
            Ok(())
        }),
        Kind::Set => db.edit::<Set, _, Error>(key, skip, |set| {
            elements.iter().for_each(|member| _ = set.remove(member));
            Ok(())
        }),
        Kind::SortedSet => db.edit::<SortedSet, _, Error>(key, skip, |set| {
            elements.iter().for_each(|member| _ = set.remove(member));
            Ok(())
        }),
        Kind::Hash => db.edit::<Hash, _, Error>(key, skip, |hash| {
            elements.iter().for_each(|name| _ = hash.remove(name));
            Ok(())
        }),
        Kind::Stream => db.edit::<Stream, _, Error>(key, skip, |stream| {
            let ids: Vec<_> =
                stream.ascending(StreamId::MIN, StreamId::MAX).map(|entry| entry.id).collect();
            ids.iter().step_by(2).take(numbers.len()).for_each(|id| _ = stream.delete(*id));
            Ok(())
        }),
    };
    edited.map(|_| ())
}

/// A history, and the state in a log that ends after a given record.
struct History {
    records: Vec<Vec<u8>>,
    /// After each action: the number of records, the state, and the time.
    states: Vec<(usize, State, i64)>,
    /// For each complete checkpoint: the number of records then, and those before it.
    dropped: Vec<(usize, usize)>,
}

impl History {
    fn of(actions: &[Action], sizes: Sizes) -> Self {
        let (keyspace, records) = logged(sizes);
        let mut now_ms = NOW_MS;
        let mut pass: Option<(usize, Checkpoint<'_>)> = None;
        let mut states = vec![(0, State::new(), now_ms)];
        let mut dropped = vec![(0, 0)];
        for action in actions {
            match action {
                Action::BeginCheckpoint if pass.is_some() => {}
                Action::BeginCheckpoint => {
                    pass = Some((records.len(), Checkpoint::begin(&keyspace)));
                }
                Action::Checkpoint(steps) => {
                    for _ in 0..*steps {
                        let Some((begin, checkpoint)) = &mut pass else { break };
                        if checkpoint.step().1 == Pass::Complete {
                            dropped.push((records.len(), *begin));
                            pass = None;
                        }
                    }
                }
                other => act(&keyspace, other, &mut now_ms),
            }
            states.push((records.len(), state(&keyspace), now_ms));
        }
        let records = std::mem::take(&mut *records.0.lock());
        Self { records, states, dropped }
    }

    /// Compares the contents of a log that ends after `end` records.
    fn check(&self, end: usize) -> Result<(), TestCaseError> {
        let (_, begin) = self.dropped.iter().rfind(|(complete, _)| *complete <= end).unwrap();
        let done = self.states.partition_point(|(records, ..)| *records <= end) - 1;
        // Expired keys are removed a few at a time.
        let now_ms = self.states[(done + 1).min(self.states.len() - 1)].2;
        let found = state(&replay(&self.records[*begin..end]));
        prop_assert_eq!(
            seen(&found, now_ms),
            seen(&self.states[done].1, now_ms),
            "records {} to {}, after action {}",
            begin,
            end,
            done
        );
        Ok(())
    }
}

fn sizes() -> impl Strategy<Value = Sizes> {
    (prop_oneof![Just(7), Just(60), Just(300), Just(1 << 20)], 100..1000usize, 20..200usize)
        .prop_map(|(piece_len, large_bytes_min, part_bytes)| Sizes {
            piece_len,
            large_bytes_min,
            part_bytes,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(25)))]

    #[test]
    fn a_log_that_ends_anywhere_holds_what_some_command_left(
        actions in proptest::collection::vec(action(), 1..150),
        sizes in sizes(),
        ends in proptest::collection::vec(any::<prop::sample::Index>(), 5),
    ) {
        let history = History::of(&actions, sizes);
        let len = history.records.len();
        for end in ends {
            history.check(end.index(len + 1))?;
        }
        history.check(len)?;
    }
}

/// Returns the offset of an object of another server's log.
fn position(object: usize) -> StreamPosition {
    StreamPosition { stream: [b'o'; STREAM_NAME_LEN], offset: object as u64, db: DbIndex::ZERO }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(36)))]

    /// One server's log is applied by another one, object by object, and logged again. At any position this second
    /// log states the object that its data match, or none.
    #[test]
    fn a_follower_has_what_the_other_has_and_its_log_says_up_to_where(
        actions in proptest::collection::vec(action(), 1..100),
        (sizes, own_sizes) in (sizes(), sizes()),
        lens in proptest::collection::vec(1..20usize, 1..20),
        (begins, steps) in (0..20usize, 1..20usize),
    ) {
        let actions: Vec<_> = actions
            .into_iter()
            .filter(|action| !matches!(action, Action::BeginCheckpoint | Action::Checkpoint(_)))
            .collect();
        let history = History::of(&actions, sizes);
        let (follower, own) = logged(own_sizes);
        follower.set_following(true);
        let (mut live, mut rest) = (LiveReplay::default(), &history.records[..]);
        // State after each object, and length of the own log there.
        let mut objects = vec![State::new()];
        let mut pass: Option<(usize, Checkpoint<'_>)> = None;
        let mut begun = 0;
        for len in lens.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (object, others) = rest.split_at(rest.len().min(*len));
            rest = others;
            let number = objects.len();
            live.apply(&mut follower.locks(), object, position(number), NOW_MS).unwrap();
            objects.push(state(&follower));
            if number == begins {
                pass = Some((own.len(), Checkpoint::begin(&follower)));
            }
            let is_complete = pass.as_mut().is_some_and(|(_, pass)| {
                (0..steps).any(|_| pass.step().1 == Pass::Complete)
            });
            if is_complete {
                begun = pass.take().map_or(0, |(begin, _)| begin);
            }
        }
        prop_assert_eq!(state(&follower), history.states.last().unwrap().1.clone());
        let own = own.0.lock();
        prop_assert_eq!(state(&replay(&own[begun..])), state(&follower));
        if pass.is_none() && begun == 0 {
            for end in (0..=own.len()).step_by(1 + own.len() / 16) {
                let found = replay(&own[..end]);
                if let Some(position) = found.stream_position() {
                    prop_assert_eq!(state(&found), objects[position.offset as usize].clone());
                }
            }
        }
    }
}

/// One part for each step.
const PARTS: Sizes = Sizes { piece_len: 1 << 20, large_bytes_min: 100, part_bytes: 20 };

/// Adds a list, and runs a checkpoint until it has logged some parts of the list.
fn begin_list(keyspace: &Keyspace, position: DbKey) -> Checkpoint<'_> {
    with(keyspace, position, NOW_MS, |db, key| add(db, key, Kind::List, 0..60, None)).unwrap();
    let mut pass = Checkpoint::begin(keyspace);
    while pass.step().0 == 0 {}
    for _ in 0..3 {
        assert_eq!(pass.step().1, Pass::Underway);
    }
    pass
}

/// Values of more than 100 bytes are not logged again when they get another key, unless a pass is underway. It may have
/// visited only the new key.
#[test]
fn a_rename_at_any_step_of_a_pass_loses_no_value() {
    for at in 0..60 {
        let (keyspace, records) = logged(PARTS);
        let [list, set] = [(0, 1), (1, 2)];
        with(&keyspace, list, NOW_MS, |db, key| add(db, key, Kind::List, 0..60, None)).unwrap();
        with(&keyspace, set, NOW_MS, |db, key| add(db, key, Kind::Set, 7..40, None)).unwrap();
        let rename = |from, to| act(&keyspace, &Action::Rename(from, to), &mut NOW_MS.clone());
        let bytes = records.bytes();
        rename(list, (1, 4));
        rename((1, 4), list);
        assert!(records.bytes() - bytes < 100, "the values are not logged again");
        let begin = records.len();
        let mut pass = Checkpoint::begin(&keyspace);
        for step in 0.. {
            if step == at {
                rename(list, (1, 3));
                rename(set, list);
                rename((1, 3), (1, 0));
            }
            if pass.step().1 == Pass::Complete {
                break;
            }
        }
        drop(pass);
        rename(list, set);
        act(&keyspace, &Action::Deadline(set, 5000), &mut NOW_MS.clone());
        assert_eq!(state(&replay(&records.0.lock()[begin..])), state(&keyspace), "step {at}");
        assert_eq!(state(&replay(&records.0.lock())), state(&keyspace), "step {at}");
    }
}

/// A list whose pass was not completed leaves nothing behind that a value given to its key later could meet.
#[test]
fn a_value_given_to_the_key_of_a_partly_logged_list_replaces_it() {
    let (keyspace, records) = logged(PARTS);
    drop(begin_list(&keyspace, (0, 1)));
    with(&keyspace, (1, 2), NOW_MS, |db, key| add(db, key, Kind::Set, 7..40, None)).unwrap();
    act(&keyspace, &Action::Rename((1, 2), (0, 1)), &mut NOW_MS.clone());
    with(&keyspace, (0, 1), NOW_MS, |db, key| add(db, key, Kind::Set, 60..61, None)).unwrap();
    assert_eq!(state(&replay(&records.0.lock())), state(&keyspace));
}

/// Emptying a database does not affect partly logged lists of other databases.
#[test]
fn a_flush_ends_only_the_lists_of_its_database() {
    for flushed in 0..DATABASES {
        let (keyspace, records) = logged(PARTS);
        let begin = records.len() + 1;
        let mut pass = begin_list(&keyspace, (0, 1));
        let db = keyspace.db_index(flushed).unwrap();
        flush_dbs(&mut keyspace.locks(), [db], Freeing::Now);
        // A previous list of that key, if there is one.
        with(&keyspace, (0, 1), NOW_MS, |db, key| add(db, key, Kind::List, 0..2, None)).unwrap();
        while pass.step().1 != Pass::Complete {}
        let found = state(&replay(&records.0.lock()[begin..]));
        assert_eq!(found, state(&keyspace), "database {flushed} was emptied");
        assert_eq!(found.values().next().unwrap().1.len(), if flushed == 0 { 2 } else { 62 });
    }
}

/// Databases are exchanged at each moment of a pass, even twice between two steps.
#[test]
fn a_swap_at_any_step_of_a_pass_loses_no_list() {
    for swaps in 1..=2 {
        for at in 0..60 {
            let (keyspace, records) = logged(PARTS);
            with(&keyspace, (0, 1), NOW_MS, |db, key| add(db, key, Kind::List, 0..60, None))
                .unwrap();
            with(&keyspace, (1, 1), NOW_MS, |db, key| add(db, key, Kind::List, 7..40, None))
                .unwrap();
            let begin = records.len();
            let mut pass = Checkpoint::begin(&keyspace);
            let mut step = 0;
            loop {
                if step == at {
                    for _ in 0..swaps {
                        act(&keyspace, &Action::Swap, &mut NOW_MS.clone());
                    }
                }
                if pass.step().1 == Pass::Complete {
                    break;
                }
                step += 1;
            }
            let found = state(&replay(&records.0.lock()[begin..]));
            assert_eq!(found, state(&keyspace), "{swaps} swaps before step {at}");
        }
    }
}

/// A key that is edited and expires before a pass reaches it is gone.
#[test]
fn a_key_that_expires_before_a_pass_reaches_it_does_not_come_back() {
    for reaped in [false, true] {
        for kind in [Kind::List, Kind::Set, Kind::SortedSet, Kind::Hash, Kind::Stream] {
            let (keyspace, records) = logged(Sizes::default());
            with(&keyspace, (0, 1), NOW_MS, |db, key| {
                add(db, key, kind, 0..1, None).unwrap();
                db.set_deadline(key, NOW_MS + 10);
            });
            let begin = records.len();
            let mut pass = Checkpoint::begin(&keyspace);
            with(&keyspace, (0, 1), NOW_MS, |db, key| add(db, key, kind, 1..2, None)).unwrap();
            if reaped {
                expire_due(&mut keyspace.locks(), NOW_MS + 10);
            } else {
                assert!(!with(&keyspace, (0, 1), NOW_MS + 10, |db, key| db.exists(key)));
            }
            while pass.step().1 != Pass::Complete {}
            assert_eq!(state(&replay(&records.0.lock()[begin..])), State::new(), "{kind:?}");
        }
    }
}

/// Also for a field, and for the hash whose last field it is.
#[test]
fn a_field_that_expires_before_a_pass_reaches_it_does_not_come_back() {
    for others in [0, 1] {
        let (keyspace, records) = logged(Sizes::default());
        with(&keyspace, (0, 1), NOW_MS, |db, key| {
            add(db, key, Kind::Hash, 1..2, Some(NOW_MS + 10)).unwrap();
            add(db, key, Kind::Hash, 2..2 + others, None).unwrap();
        });
        let begin = records.len();
        let mut pass = Checkpoint::begin(&keyspace);
        with(&keyspace, (0, 1), NOW_MS, |db, key| {
            let set = |hash: &mut tierce_keyspace::Editor<'_, Hash>| {
                hash.put(&element(1), b"again", Some(NOW_MS + 10));
                hash.set_deadline(&element(1), None);
                hash.set_deadline(&element(1), Some(NOW_MS + 20));
                Ok::<_, Error>(())
            };
            db.edit(key, Missing::Skip, set).unwrap();
        });
        expire_due(&mut keyspace.locks(), NOW_MS + 20);
        while pass.step().1 != Pass::Complete {}
        let found = state(&replay(&records.0.lock()[begin..]));
        assert_eq!(found, state(&keyspace));
        assert_eq!(found.len(), usize::from(others));
    }
}

/// A key in parts has its deadline in each of them. If it expires between two parts it is gone.
#[test]
fn a_key_in_parts_is_never_in_the_log_without_its_deadline() {
    for kind in [Kind::List, Kind::Set, Kind::SortedSet, Kind::Hash, Kind::Stream] {
        let (keyspace, records) = logged(PARTS);
        with(&keyspace, (0, 1), NOW_MS, |db, key| {
            add(db, key, kind, 0..60, None).unwrap();
            db.set_deadline(key, NOW_MS + 10);
        });
        let begin = records.len();
        let mut pass = Checkpoint::begin(&keyspace);
        for _ in 0..6 {
            assert_eq!(pass.step().1, Pass::Underway);
            for (deadline_ms, _) in state(&replay(&records.0.lock()[begin..])).values() {
                assert_eq!(*deadline_ms, Some(NOW_MS + 10), "{kind:?}");
            }
        }
        // A later deadline is set after some parts.
        with(&keyspace, (0, 1), NOW_MS, |db, key| db.set_deadline(key, NOW_MS + 20));
        let mut halfway = Vec::clone(&records.0.lock());
        while pass.step().1 != Pass::Complete {}
        assert_eq!(state(&replay(&records.0.lock()[begin..])), state(&keyspace), "{kind:?}");
        records.0.lock().truncate(halfway.len());
        expire_due(&mut keyspace.locks(), NOW_MS + 20);
        halfway.extend_from_slice(&records.0.lock()[halfway.len()..]);
        assert_eq!(state(&replay(&halfway[begin..])), State::new(), "{kind:?}");
    }
}

/// RENAME of a value longer than many pieces leaves it under one of the names, wherever the log ends.
#[test]
fn a_large_value_has_one_of_its_names() {
    let sizes = Sizes { piece_len: 50, ..Sizes::default() };
    for kind in [Kind::List, Kind::Set, Kind::SortedSet, Kind::Hash, Kind::Stream] {
        let add = Action::Add(kind, (0, 1), 0, 80, None);
        let history = History::of(&[add, Action::Rename((0, 1), (1, 2))], sizes);
        let (before, after) = (history.states[1].0, history.states[2].0);
        assert!(after - before > 10, "{} records", after - before);
        for end in before..=after {
            history.check(end).unwrap();
        }
    }
}

/// Log of the previous version: parts without a deadline, which comes after the last one.
#[test]
fn a_list_in_parts_of_the_version_before_has_its_deadline() {
    let at = 5_000_i64.to_le_bytes();
    let record = [b"\x08\x00\x01l\x06\x13\x00\x01\x01a\x14\x14\x00\x01l".as_slice(), &at].concat();
    let found = state(&replay(&[record]));
    assert_eq!(
        found.values().map(|(deadline_ms, _)| *deadline_ms).collect::<Vec<_>>(),
        [Some(5_000)]
    );
}
