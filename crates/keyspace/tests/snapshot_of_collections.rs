//! A snapshot has each collection as it was when the snapshot began, however it changes, moves or
//! vanishes while it is being saved in slices.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use tierce_collections::{Hash, List, ListLimits, PackedLimits, Set, SetLimits, SortedSet};
use tierce_harness::effort;
use tierce_keyspace::{
    CollectionPart, Db, DbIndex, Error, Eviction, Expiry, Freeing, Key, Keyspace, Limits, Missing,
    Options, Policy, Removal, SavedCollection, SavedValue, Snapshot, SnapshotError, SnapshotPiece,
    evict, expire_due, flush_dbs, for_each_entry, swap_dbs,
};

const DBS: usize = 3;
const KEYS: u8 = 5;

#[derive(Debug, Clone, Copy)]
enum Kind {
    List,
    Set,
    SortedSet,
    Hash,
}

#[derive(Debug, Clone)]
enum Edit {
    /// Adds this many, from this number on.
    Add { from: u16, count: u16, after_ms: Option<i64> },
    /// Removes this many.
    Remove { from: u16, count: u16 },
    /// Changes one to something else.
    Change { at: u16, to: u16 },
    /// Removes all but some.
    Cut { keep: u16 },
}

#[derive(Debug, Clone)]
enum Step {
    Edit {
        db: usize,
        key: u8,
        kind: Kind,
        edit: Edit,
    },
    SetString {
        db: usize,
        key: u8,
    },
    Remove {
        db: usize,
        key: u8,
    },
    /// RENAME or MOVE.
    Move {
        from: (usize, u8),
        to: (usize, u8),
    },
    Copy {
        from: (usize, u8),
        to: (usize, u8),
    },
    SetDeadline {
        db: usize,
        key: u8,
        after_ms: i64,
    },
    Wait(i64),
    ExpireDue,
    Evict,
    Swap(usize, usize),
    Flush(usize, Freeing),
    FlushAll(Freeing),
    SetLimits(usize),
    Begin {
        large_bytes_min: usize,
    },
    /// Takes pieces and slices.
    Walk(usize),
    GiveUp,
}

fn edit() -> impl Strategy<Value = Edit> {
    let after_ms = prop_oneof![3 => Just(None), 1 => (1i64..300).prop_map(Some)];
    prop_oneof![
        5 => (0u16..400, 1u16..120, after_ms)
            .prop_map(|(from, count, after_ms)| Edit::Add { from, count, after_ms }),
        4 => (0u16..400, 1u16..60).prop_map(|(from, count)| Edit::Remove { from, count }),
        4 => (0u16..400, 0u16..1000).prop_map(|(at, to)| Edit::Change { at, to }),
        1 => (0u16..40).prop_map(|keep| Edit::Cut { keep }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let db = || 0..DBS;
    let place = || (0..DBS, 0..KEYS);
    let kind =
        prop_oneof![Just(Kind::List), Just(Kind::Set), Just(Kind::SortedSet), Just(Kind::Hash)];
    prop_oneof![
        20 => (place(), kind, edit())
            .prop_map(|((db, key), kind, edit)| Step::Edit { db, key, kind, edit }),
        2 => place().prop_map(|(db, key)| Step::SetString { db, key }),
        2 => place().prop_map(|(db, key)| Step::Remove { db, key }),
        4 => (place(), place()).prop_map(|(from, to)| Step::Move { from, to }),
        2 => (place(), place()).prop_map(|(from, to)| Step::Copy { from, to }),
        2 => (place(), -5i64..300)
            .prop_map(|((db, key), after_ms)| Step::SetDeadline { db, key, after_ms }),
        2 => (0i64..100).prop_map(Step::Wait),
        2 => Just(Step::ExpireDue),
        1 => Just(Step::Evict),
        2 => (db(), db()).prop_map(|(a, b)| Step::Swap(a, b)),
        1 => (db(), prop_oneof![Just(Freeing::Now), Just(Freeing::Later)])
            .prop_map(|(db, freeing)| Step::Flush(db, freeing)),
        1 => prop_oneof![Just(Freeing::Now), Just(Freeing::Later)].prop_map(Step::FlushAll),
        1 => (1usize..30).prop_map(Step::SetLimits),
        4 => prop_oneof![3 => Just(0), 1 => Just(4000)]
            .prop_map(|large_bytes_min| Step::Begin { large_bytes_min }),
        12 => (1usize..12).prop_map(Step::Walk),
        1 => Just(Step::GiveUp),
    ]
}

/// A value as a sequence of its parts: those of a list in their order, others in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Text(Vec<u8>),
    List(Vec<String>),
    Others(Vec<String>),
}

/// Database and key, value and deadline.
type State = BTreeMap<(usize, Vec<u8>), (Value, Option<i64>)>;

fn parts_of(collection: &SavedCollection<'_>, parts: &mut Vec<String>) {
    parts.extend(collection.parts().map(|part| match part {
        CollectionPart::Element(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        other => format!("{other:?}"),
    }));
}

/// Returns the number of elements among these parts. Deadlines of members are parts of their own.
fn elements_of(parts: &[String]) -> u64 {
    parts.iter().filter(|part| !part.starts_with("MemberDeadline")).count() as u64
}

fn value_of(is_list: bool, mut parts: Vec<String>) -> Value {
    if is_list {
        return Value::List(parts);
    }
    parts.sort();
    Value::Others(parts)
}

fn saved_value(value: &SavedValue<'_>) -> Value {
    match value {
        SavedValue::Str(bytes) => Value::Text(bytes.to_vec()),
        SavedValue::Int(value) => Value::Text(value.to_string().into_bytes()),
        SavedValue::Collection(collection) => {
            let mut parts = Vec::new();
            parts_of(collection, &mut parts);
            assert_eq!(elements_of(&parts), collection.len());
            value_of(collection.kind() == tierce_collections::CollectionKind::List, parts)
        }
    }
}

/// A running snapshot, the entries it has saved, and those it must save.
struct Running {
    snapshot: Snapshot,
    saved: State,
    expected: State,
    large: usize,
}

/// Actions between two slices of a large collection.
type Between<'a> = &'a mut dyn FnMut();

impl Running {
    /// `false` when the snapshot is complete.
    fn walk(&mut self, between: Between<'_>) -> bool {
        let mut found = Vec::new();
        match self.snapshot.next().expect("nothing is too slow") {
            None => return false,
            Some(SnapshotPiece::Batch(batch)) => {
                assert!(!batch.is_empty());
                for entry in &batch {
                    let name = (entry.db.get(), entry.key.to_vec());
                    found.push((name, saved_value(&entry.value), entry.deadline_ms));
                }
            }
            Some(SnapshotPiece::Large(mut large)) => {
                self.large += 1;
                let head = large.head().clone();
                let mut parts = Vec::new();
                while let Some(slice) = large.next_slice().expect("it is not lost") {
                    assert_eq!(slice.kind(), head.kind);
                    parts_of(&slice, &mut parts);
                    between();
                }
                assert_eq!(elements_of(&parts), head.len);
                let is_list = head.kind == tierce_collections::CollectionKind::List;
                let name = (head.db.get(), head.key);
                found.push((name, value_of(is_list, parts), head.deadline_ms));
            }
        }
        for (name, value, deadline_ms) in found {
            let before = self.saved.insert(name.clone(), (value, deadline_ms));
            assert_eq!(before, None, "{name:?} was saved twice");
        }
        true
    }
}

struct World {
    keyspace: Arc<Keyspace>,
    now_ms: i64,
    running: Option<Running>,
}

fn name(key: u8) -> Vec<u8> {
    format!("key:{key}").into_bytes()
}

fn member(number: u16) -> Vec<u8> {
    // Some are short, some are numbers, and some have an allocation of their own.
    match number % 3 {
        0 => format!("{number}").into_bytes(),
        1 => format!("m{number}").into_bytes(),
        _ => format!("a longer member with the number {number}").into_bytes(),
    }
}

fn limits(entries_max: usize) -> Limits {
    let packed = PackedLimits { entries_max, value_len_max: 64 };
    Limits {
        list: ListLimits { entries_max, bytes_max: 64 * entries_max },
        set: SetLimits { integers_max: entries_max, packed },
        sorted_set: packed,
        hash: packed,
        ..Limits::default()
    }
}

impl World {
    fn new(shards: usize) -> Self {
        let options = Options { shards, databases: DBS, ..Options::default() };
        let keyspace = Arc::new(Keyspace::new(options).expect("good options"));
        keyspace.set_limits(&limits(8));
        Self { keyspace, now_ms: 1_000_000, running: None }
    }

    fn db(&self, number: usize) -> DbIndex {
        self.keyspace.db_index(number).expect("there are three")
    }

    /// Returns the visible state.
    fn state(&self) -> State {
        let (mut state, mut locks) = (State::new(), self.keyspace.locks());
        for db in self.keyspace.db_indices() {
            for_each_entry(&mut locks, db, self.now_ms, |entry| {
                let mut copy = Vec::new();
                let value = saved_value(&SavedValue::of(&entry.value(), &mut copy));
                state.insert((db.get(), entry.key().to_vec()), (value, entry.deadline_ms()));
            });
        }
        state
    }

    fn on<R>(&self, (db, key): (usize, u8), act: impl FnOnce(&mut Db<'_>, Key<'_>) -> R) -> R {
        let name = name(key);
        let key = self.keyspace.key(&name);
        let mut locks = self.keyspace.locks();
        act(&mut locks.db(self.db(db), key.hash(), self.now_ms), key)
    }

    /// Takes an entry, or copies it, and puts it elsewhere, with both shards locked.
    fn transfer(&self, from: (usize, u8), to: (usize, u8), is_copy: bool) {
        let names = [from, to].map(|(_, key)| name(key));
        let [source, target] = [0, 1].map(|at: usize| self.keyspace.key(&names[at]));
        let mut locks = self.keyspace.locks();
        let mut both = locks.lock_many(&[source.hash(), target.hash()]);
        let mut db = both.db(self.db(from.0), source.hash(), self.now_ms);
        let entry = match is_copy {
            true => db.duplicate(source).expect("it is in memory"),
            false => db.take(source, Removal::Moved),
        };
        if let Some(entry) = entry {
            let mut db = both.db(self.db(to.0), target.hash(), self.now_ms);
            db.put(target, entry).expect("a short key");
        }
    }

    fn apply(&mut self, step: Step) {
        let now_ms = self.now_ms;
        match step {
            Step::Edit { db, key, kind, edit } => self.edit((db, key), kind, edit),
            Step::SetString { db, key } => {
                self.on((db, key), |db, key| db.set(key, "text", Expiry::Never)).unwrap();
            }
            Step::Remove { db, key } => _ = self.on((db, key), |db, key| db.remove(key)),
            Step::Move { from, to } => self.transfer(from, to, false),
            Step::Copy { from, to } => self.transfer(from, to, true),
            Step::SetDeadline { db, key, after_ms } => {
                self.on((db, key), |db, key| db.set_deadline(key, now_ms + after_ms));
            }
            Step::Wait(ms) => self.now_ms += ms,
            Step::ExpireDue => expire_due(&mut self.keyspace.locks(), now_ms),
            Step::Evict => {
                let limit_bytes = 1;
                let policy = Policy::AllkeysRandom;
                let eviction = Eviction { limit_bytes, policy, ..Eviction::default() };
                self.keyspace.set_eviction(&eviction);
                evict(&mut self.keyspace.locks(), now_ms, 1);
                self.keyspace.set_eviction(&Eviction::default());
            }
            Step::Swap(a, b) => {
                swap_dbs(&mut self.keyspace.locks(), self.db(a), self.db(b), self.now_ms);
            }
            Step::Flush(db, freeing) => {
                flush_dbs(&mut self.keyspace.locks(), [self.db(db)], freeing);
            }
            Step::FlushAll(freeing) => {
                flush_dbs(&mut self.keyspace.locks(), self.keyspace.db_indices(), freeing);
            }
            Step::SetLimits(entries_max) => self.keyspace.set_limits(&limits(entries_max)),
            Step::Begin { large_bytes_min } => self.begin(large_bytes_min),
            Step::Walk(pieces) => {
                if let Some(running) = &mut self.running {
                    (0..pieces).for_each(|_| _ = running.walk(&mut || {}));
                }
            }
            Step::GiveUp => self.running = None,
        }
    }

    fn edit(&self, place: (usize, u8), kind: Kind, edit: Edit) {
        let now_ms = self.now_ms;
        let done: Result<_, Error> = self.on(place, |db, key| match kind {
            Kind::List => db.edit::<List, _, _>(key, Missing::Create, |list| {
                edit_list(list, &edit);
                Ok(())
            }),
            Kind::Set => db.edit::<Set, _, _>(key, Missing::Create, |set| {
                edit_set(set, &edit);
                Ok(())
            }),
            Kind::SortedSet => db.edit::<SortedSet, _, _>(key, Missing::Create, |set| {
                edit_sorted_set(set, &edit);
                Ok(())
            }),
            Kind::Hash => db.edit::<Hash, _, _>(key, Missing::Create, |hash| {
                edit_hash(hash, &edit, now_ms);
                Ok(())
            }),
        });
        assert!(matches!(done, Ok(_) | Err(Error::WrongType)));
    }

    fn begin(&mut self, large_bytes_min: usize) {
        let begin = || {
            let mut locks = self.keyspace.locks();
            Snapshot::begin_with(&self.keyspace, &mut locks, self.now_ms, large_bytes_min)
        };
        if self.running.is_some() {
            assert_eq!(begin().map(|_| ()), Err(SnapshotError::InProgress));
            return;
        }
        assert_eq!(self.keyspace.snapshot_memory(), None);
        let expected = self.state();
        let snapshot = begin().expect("there is no other");
        self.running = Some(Running { snapshot, saved: State::new(), expected, large: 0 });
    }

    /// Ends the snapshot. Between the slices of large collections `between` goes on.
    fn finish(&mut self, between: Between<'_>) {
        let Some(mut running) = self.running.take() else { return };
        while running.walk(between) {}
        assert_eq!(running.saved, running.expected);
        assert_eq!(self.keyspace.snapshot_memory().expect("it is there").now, 0);
    }

    fn end(mut self) {
        self.finish(&mut || {});
        assert_eq!(self.keyspace.snapshot_memory(), None);
        let all: Vec<_> = self.keyspace.db_indices().collect();
        flush_dbs(&mut self.keyspace.locks(), all, Freeing::Now);
        assert_eq!(self.keyspace.memory().total(), 0);
    }
}

type Editing<'a, T> = tierce_keyspace::Editor<'a, T>;

fn edit_list(list: &mut Editing<'_, List>, edit: &Edit) {
    let len = list.len();
    let at = |number: u16| if len == 0 { 0 } else { usize::from(number) % len };
    match *edit {
        Edit::Add { from, count, .. } => {
            let members: Vec<_> = (from..from + count).map(member).collect();
            let members = members.iter().map(Vec::as_slice);
            match from % 3 {
                0 => list.push_front(members),
                1 => list.push_back(members),
                _ => list.insert(at(from), members),
            }
        }
        Edit::Remove { from, count } => {
            let count = usize::from(count);
            let at = match from % 3 {
                0 => 0,
                1 => len.saturating_sub(count),
                _ => at(from),
            };
            list.remove(at, count);
        }
        Edit::Change { at: index, to } => _ = list.set(at(index), &member(to)),
        Edit::Cut { keep } => _ = list.remove(usize::from(keep), len),
    }
}

fn edit_set(set: &mut Editing<'_, Set>, edit: &Edit) {
    match *edit {
        Edit::Add { from, count, .. } => {
            (from..from + count).for_each(|number| _ = set.add(&member(number)));
        }
        Edit::Remove { from, count } => {
            (from..from + count).for_each(|number| _ = set.remove(&member(number)));
        }
        Edit::Change { at, to } => {
            set.remove(&member(at));
            set.add(&member(to));
        }
        Edit::Cut { keep } => (keep..1000).for_each(|number| _ = set.remove(&member(number))),
    }
}

fn edit_sorted_set(set: &mut Editing<'_, SortedSet>, edit: &Edit) {
    match *edit {
        Edit::Add { from, count, .. } => {
            (from..from + count)
                .for_each(|number| set.update(&member(number), |_| Some(f64::from(number % 50))));
        }
        Edit::Remove { from, count } => {
            let from = usize::from(from) % (set.len() + 1);
            set.remove_range(from..from + usize::from(count), |_, _| {});
        }
        Edit::Change { at, to } => {
            set.update(&member(at), |_| Some(f64::from(to)));
            set.remove(&member(to));
        }
        Edit::Cut { keep } => set.remove_range(usize::from(keep)..usize::MAX, |_, _| {}),
    }
}

fn edit_hash(hash: &mut Editing<'_, Hash>, edit: &Edit, now_ms: i64) {
    match *edit {
        Edit::Add { from, count, after_ms } => {
            for number in from..from + count {
                let deadline_ms = after_ms.map(|after| now_ms + after);
                hash.put(&member(number), &member(number + 1), deadline_ms);
            }
        }
        Edit::Remove { from, count } => {
            (from..from + count).for_each(|number| _ = hash.remove(&member(number)));
        }
        Edit::Change { at, to } => {
            hash.put(&member(at), &member(to), None);
            hash.set_deadline(&member(to), Some(now_ms + 50));
        }
        Edit::Cut { keep } => (keep..1000).for_each(|number| _ = hash.remove(&member(number))),
    }
}

/// Such a hash is gone, though it has not been removed yet. But a primary decides that for its replicas.
#[test]
fn a_hash_whose_fields_are_all_due_is_saved_by_a_follower_only() {
    for (is_following, large_bytes_min) in [(false, 0), (false, 4000), (true, 0), (true, 4000)] {
        let mut world = World::new(1);
        let edit = Edit::Add { from: 0, count: 20, after_ms: Some(10) };
        world.edit((0, 0), Kind::Hash, edit);
        world.now_ms += 10;
        world.keyspace.set_following(is_following);
        world.begin(large_bytes_min);
        let expected = world.running.as_ref().map(|running| running.expected.len());
        assert_eq!(expected, Some(usize::from(is_following)));
        world.end();
    }
}

/// Deadlines that are gone when the snapshot ends leave a plain set, and nothing in the figures.
#[test]
fn deadlines_of_members_that_come_and_go_during_a_snapshot_leave_no_memory_behind() {
    const PLACE: (usize, u8) = (0, 0);
    let set_deadlines = |world: &World, deadline_ms: Option<i64>| {
        world.on(PLACE, |db, key| {
            db.edit::<Set, _, Error>(key, Missing::Skip, |set| {
                (0..300).for_each(|number| _ = set.set_deadline(&member(number), deadline_ms));
                Ok(())
            })
            .expect("it is a set");
        });
    };
    for (are_before, is_complete) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut world = World::new(1);
        let deadline_ms = Some(world.now_ms + 1000);
        world.edit(PLACE, Kind::Set, Edit::Add { from: 0, count: 400, after_ms: None });
        let plain = world.keyspace.memory().entries;
        if are_before {
            set_deadlines(&world, deadline_ms);
        }
        world.begin(0);
        set_deadlines(&world, deadline_ms.map(|at| at + 1));
        set_deadlines(&world, None);
        let kept = world.keyspace.snapshot_memory().expect("it runs").now;
        assert!(kept > 300 * 16, "{kept} bytes are kept for the snapshot");
        if is_complete {
            world.finish(&mut || {});
        } else {
            world.running = None;
        }
        assert_eq!(world.keyspace.memory().entries, plain);
        // Later deadlines are counted from there.
        set_deadlines(&world, deadline_ms);
        assert!(world.keyspace.memory().entries > plain);
        set_deadlines(&world, None);
        assert_eq!(world.keyspace.memory().entries, plain);
        assert!(world.on(PLACE, |db, key| db.remove(key)));
        assert_eq!(world.keyspace.memory().entries, 0);
        world.end();
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { effort(60) },
        ..ProptestConfig::default()
    })]

    #[test]
    fn each_collection_is_saved_as_it_was(
        shard_bits in 0u32..3,
        steps in prop::collection::vec(step(), 1..if cfg!(miri) { 15 } else { 150 }),
    ) {
        let mut world = World::new(1 << shard_bits);
        steps.into_iter().for_each(|step| world.apply(step));
        world.end();
    }

    /// With changes between the slices of one collection.
    #[test]
    fn changes_between_slices_are_not_saved(
        kinds in prop::collection::vec(
            prop_oneof![
                Just(Kind::List), Just(Kind::Set), Just(Kind::SortedSet), Just(Kind::Hash)
            ],
            1..4,
        ),
        meanwhile in prop::collection::vec(step(), 1..if cfg!(miri) { 10 } else { 100 }),
    ) {
        let mut world = World::new(2);
        for (key, kind) in kinds.into_iter().enumerate() {
            let edit = Edit::Add { from: 0, count: if cfg!(miri) { 50 } else { 2000 }, after_ms: None };
            world.edit((0, key as u8), kind, edit);
        }
        world.begin(0);
        let others = World {
            keyspace: Arc::clone(&world.keyspace),
            now_ms: world.now_ms,
            running: None,
        };
        let others = std::cell::RefCell::new(others);
        let mut meanwhile = meanwhile.into_iter().filter(|step| {
            !matches!(step, Step::Begin { .. } | Step::GiveUp | Step::Walk(_))
        });
        world.finish(&mut || {
            meanwhile.by_ref().take(2).for_each(|step| others.borrow_mut().apply(step));
        });
        world.end();
    }
}
