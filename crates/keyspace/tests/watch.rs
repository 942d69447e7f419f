//! A watch is dirty exactly when one of its keys has changed, whatever is done to keys and databases. Ended watches
//! leave no memory in use.

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;
use tierce_collections::{Hash, List};
use tierce_harness::effort;
use tierce_keyspace::{
    Db, DbIndex, Editor, Error, Eviction, Expiry, Freeing, Key, KeyHash, Keyspace, ManualClock,
    Missing, Options, Policy, Reaper, Removal, ShardLocks, Watch, end_dropped_watches, evict,
    expire_due, flush_dbs, swap_dbs, unwatch, watch_key,
};

const NOW_MS: i64 = 1_000_000;
const WATCHERS: usize = 3;

fn keyspace(shards: usize) -> Keyspace {
    Keyspace::new(Options { shards, databases: 3, ..Options::default() }).unwrap()
}

fn name(key: u8) -> Vec<u8> {
    format!("key {key}").into_bytes()
}

/// A key in its database.
type Spot = (usize, u8);

#[derive(Debug, Clone)]
enum Step {
    Set(Spot, Option<i64>),
    Append(Spot),
    Push(Spot),
    Remove(Spot),
    Move(Spot, Spot),
    SetDeadline(Spot, i64),
    Persist(Spot),
    Read(Spot),
    Flush(Vec<usize>),
    Swap(usize, usize),
    Wait(i64),
    ExpireDue,
    Watch(usize, Spot),
    Unwatch(usize),
    Drop(usize),
    Check(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let spot = || (0usize..3, 0u8..5);
    let who = || 0..WATCHERS;
    prop_oneof![
        6 => (spot(), prop::option::of(1i64..40)).prop_map(|(at, ttl)| Step::Set(at, ttl)),
        2 => spot().prop_map(Step::Append),
        2 => spot().prop_map(Step::Push),
        3 => spot().prop_map(Step::Remove),
        2 => (spot(), spot()).prop_map(|(from, to)| Step::Move(from, to)),
        2 => (spot(), -5i64..40).prop_map(|(at, ttl)| Step::SetDeadline(at, ttl)),
        1 => spot().prop_map(Step::Persist),
        3 => spot().prop_map(Step::Read),
        1 => prop::collection::vec(0usize..3, 1..3).prop_map(Step::Flush),
        2 => (0usize..3, 0usize..3).prop_map(|(a, b)| Step::Swap(a, b)),
        4 => (1i64..20).prop_map(Step::Wait),
        2 => Just(Step::ExpireDue),
        12 => (who(), spot()).prop_map(|(who, at)| Step::Watch(who, at)),
        2 => who().prop_map(Step::Unwatch),
        1 => who().prop_map(Step::Drop),
        8 => who().prop_map(Step::Check),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    String,
    List,
}

/// Model of a watch.
#[derive(Default)]
struct Watched {
    keys: Vec<Spot>,
    is_dirty: bool,
}

struct World<'k> {
    keyspace: &'k Keyspace,
    locks: ShardLocks<'k>,
    now_ms: i64,
    watches: [Option<Watch>; WATCHERS],
    keys: HashMap<Spot, (Kind, Option<i64>)>,
    watched: [Watched; WATCHERS],
}

impl<'k> World<'k> {
    fn new(keyspace: &'k Keyspace) -> Self {
        Self {
            keyspace,
            locks: keyspace.locks(),
            now_ms: NOW_MS,
            watches: Default::default(),
            keys: HashMap::new(),
            watched: Default::default(),
        }
    }

    fn index(&self, db: usize) -> DbIndex {
        self.keyspace.db_index(db).unwrap()
    }

    fn on<R>(&mut self, (db, key): Spot, act: impl FnOnce(&mut Db<'_>, Key<'_>) -> R) -> R {
        let (name, db) = (name(key), self.index(db));
        let key = self.keyspace.key(&name);
        act(&mut self.locks.db(db, key.hash(), self.now_ms), key)
    }

    fn touch(&mut self, spot: Spot) {
        let them = self.watched.iter_mut().filter(|watched| watched.keys.contains(&spot));
        them.for_each(|watched| watched.is_dirty = true);
    }

    fn put(&mut self, spot: Spot, kind: Kind, deadline_ms: Option<i64>) {
        self.keys.insert(spot, (kind, deadline_ms));
        self.touch(spot);
    }

    fn delete(&mut self, spot: Spot) -> bool {
        let was_there = self.keys.remove(&spot).is_some();
        if was_there {
            self.touch(spot);
        }
        was_there
    }

    fn pass_time(&mut self, ms: i64) {
        self.now_ms += ms;
        let is_due = |deadline_ms: Option<i64>| deadline_ms.is_some_and(|at| at <= self.now_ms);
        let due: Vec<Spot> =
            self.keys.iter().filter(|(_, (_, at))| is_due(*at)).map(|(spot, _)| *spot).collect();
        due.into_iter().for_each(|spot| _ = self.delete(spot));
    }

    fn swap(&mut self, a: usize, b: usize) {
        if a == b {
            return;
        }
        let concerned = |spot: &Spot| [a, b].contains(&spot.0);
        let keys: Vec<u8> = self.keys.keys().filter(|at| concerned(at)).map(|at| at.1).collect();
        for key in keys {
            self.touch((a, key));
            self.touch((b, key));
        }
        let exchange = |db: usize| {
            if db == a {
                b
            } else if db == b {
                a
            } else {
                db
            }
        };
        self.keys = self.keys.drain().map(|((db, key), it)| ((exchange(db), key), it)).collect();
    }

    fn act(&mut self, step: &Step) {
        let now_ms = self.now_ms;
        match step {
            Step::Set(spot, ttl) => {
                let deadline_ms = ttl.map(|ttl| now_ms + ttl);
                let expiry = deadline_ms.map_or(Expiry::Never, Expiry::At);
                self.on(*spot, |db, key| db.set(key, "value", expiry).unwrap());
                self.put(*spot, Kind::String, deadline_ms);
            }
            Step::Append(spot) => {
                let (kind, deadline_ms) = *self.keys.get(spot).unwrap_or(&(Kind::String, None));
                let appended = self.on(*spot, |db, key| db.append(key, b"more").is_ok());
                assert_eq!(appended, kind == Kind::String);
                if appended {
                    self.put(*spot, kind, deadline_ms);
                }
            }
            Step::Push(spot) => {
                let (kind, deadline_ms) = *self.keys.get(spot).unwrap_or(&(Kind::List, None));
                let pushed = self.on(*spot, push);
                assert_eq!(pushed, kind == Kind::List);
                if pushed {
                    self.put(*spot, kind, deadline_ms);
                }
            }
            Step::Remove(spot) => {
                let removed = self.on(*spot, |db, key| db.remove(key));
                assert_eq!(removed, self.delete(*spot));
            }
            Step::Move(from, to) => self.rename(*from, *to),
            Step::SetDeadline(spot, ttl) => {
                self.on(*spot, |db, key| _ = db.set_deadline(key, now_ms + ttl));
                match self.keys.get(spot).copied() {
                    Some(_) if *ttl <= 0 => _ = self.delete(*spot),
                    Some((kind, _)) => self.put(*spot, kind, Some(now_ms + ttl)),
                    None => {}
                }
            }
            Step::Persist(spot) => {
                self.on(*spot, |db, key| db.clear_deadline(key));
                if let Some((kind, Some(_))) = self.keys.get(spot).copied() {
                    self.put(*spot, kind, None);
                }
            }
            Step::Read(spot) => {
                let found = self.on(*spot, |db, key| db.exists(key));
                assert_eq!(found, self.keys.contains_key(spot));
            }
            Step::Flush(dbs) => {
                let indices: Vec<DbIndex> = dbs.iter().map(|db| self.index(*db)).collect();
                flush_dbs(&mut self.locks, indices, Freeing::Now);
                let gone: Vec<Spot> =
                    self.keys.keys().filter(|spot| dbs.contains(&spot.0)).copied().collect();
                gone.into_iter().for_each(|spot| _ = self.delete(spot));
            }
            Step::Swap(a, b) => {
                let (one, other) = (self.index(*a), self.index(*b));
                swap_dbs(&mut self.locks, one, other, now_ms);
                self.swap(*a, *b);
            }
            Step::Wait(ms) => self.pass_time(*ms),
            Step::ExpireDue => expire_due(&mut self.locks, now_ms),
            Step::Watch(who, spot) => self.watch(*who, *spot),
            Step::Unwatch(who) => {
                if let Some(watch) = self.watches[*who].take() {
                    unwatch(&mut self.locks, watch);
                }
                self.watched[*who] = Watched::default();
            }
            Step::Drop(who) => {
                self.watches[*who] = None;
                self.watched[*who] = Watched::default();
            }
            Step::Check(who) => self.check(*who),
        }
    }

    fn rename(&mut self, from: Spot, to: Spot) {
        if from == to {
            return;
        }
        let (source, target) = (name(from.1), name(to.1));
        let (source, target) = (self.keyspace.key(&source), self.keyspace.key(&target));
        let (from_db, to_db) = (self.index(from.0), self.index(to.0));
        let mut both = self.locks.lock_many(&[source.hash(), target.hash()]);
        let taken = both.db(from_db, source.hash(), self.now_ms).take(source, Removal::Moved);
        assert_eq!(taken.is_some(), self.keys.contains_key(&from));
        if let Some(entry) = taken {
            both.db(to_db, target.hash(), self.now_ms).put(target, entry).unwrap();
            drop(both);
            let (kind, deadline_ms) = self.keys[&from];
            self.delete(from);
            self.put(to, kind, deadline_ms);
        }
    }

    fn watch(&mut self, who: usize, spot: Spot) {
        let name = name(spot.1);
        let key = self.keyspace.key(&name);
        let db = self.index(spot.0);
        let watch = self.watches[who].get_or_insert_with(|| Watch::new(self.keyspace));
        watch_key(&mut self.locks, watch, db, key, self.now_ms);
        if !self.watched[who].is_dirty && !self.watched[who].keys.contains(&spot) {
            self.watched[who].keys.push(spot);
        }
    }

    /// Like EXEC, with the shards of all keys locked.
    fn check(&mut self, who: usize) {
        let Some(watch) = &self.watches[who] else { return };
        let hashes: Vec<KeyHash> = watch.hashes().collect();
        let all = self.locks.lock_many(&hashes);
        assert_eq!(watch.is_dirty(self.now_ms), self.watched[who].is_dirty, "watch {who}");
        drop(all);
        if !self.watched[who].is_dirty {
            assert_eq!(watch.state().keys(), self.watched[who].keys.len());
        }
    }

    /// Ends all watches, if no time was skipped.
    fn end(mut self) {
        (0..WATCHERS).for_each(|who| self.check(who));
        let [first, rest @ ..] = self.watches;
        first.into_iter().for_each(|watch| unwatch(&mut self.locks, watch));
        drop(rest);
        expire_due(&mut self.locks, self.now_ms);
        end_dropped_watches(&mut self.locks);
        self.locks.release();
        assert_eq!(self.keyspace.watching(), (0, 0), "nothing is left");
    }
}

fn push(db: &mut Db<'_>, key: Key<'_>) -> bool {
    let edit = |list: &mut Editor<'_, List>| {
        list.push_back([b"element".as_slice()].into_iter());
        Ok::<_, Error>(())
    };
    db.edit(key, Missing::Create, edit).is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(256)))]

    /// Changes with one `ShardLocks` between two checks stay in locked shards, or affect many shards.
    #[test]
    fn a_watch_is_dirty_exactly_when_a_key_has_changed(
        steps in prop::collection::vec(step(), 1..80),
        shards in prop::sample::select(vec![1usize, 4]),
    ) {
        let keyspace = keyspace(shards);
        let mut world = World::new(&keyspace);
        steps.iter().for_each(|step| world.act(step));
        world.end();
    }
}

fn watch_of(keyspace: &Keyspace, keys: &[u8]) -> Watch {
    let mut watch = Watch::new(keyspace);
    for key in keys {
        let name = name(*key);
        watch_key(&mut keyspace.locks(), &mut watch, DbIndex::ZERO, keyspace.key(&name), NOW_MS);
    }
    watch
}

fn set(keyspace: &Keyspace, key: u8, expiry: Expiry) {
    let name = name(key);
    let key = keyspace.key(&name);
    keyspace.locks().db(DbIndex::ZERO, key.hash(), NOW_MS).set(key, "value", expiry).unwrap();
}

#[test]
fn a_key_that_is_evicted_has_changed() {
    let keyspace = keyspace(4);
    set(&keyspace, 1, Expiry::Never);
    let (watch, other) = (watch_of(&keyspace, &[1]), watch_of(&keyspace, &[2]));
    let policy = Policy::AllkeysRandom;
    keyspace.set_eviction(&Eviction { policy, limit_bytes: 1, ..Eviction::default() });
    evict(&mut keyspace.locks(), NOW_MS, usize::MAX);
    assert!(watch.is_dirty(NOW_MS));
    assert!(!other.is_dirty(NOW_MS), "it was not there");
}

#[test]
fn a_hash_whose_field_expires_has_changed() {
    let keyspace = keyspace(4);
    let name = name(1);
    let key = keyspace.key(&name);
    let mut locks = keyspace.locks();
    let edit = |hash: &mut Editor<'_, Hash>| {
        hash.put(b"field", b"value", Some(NOW_MS + 10));
        Ok::<_, Error>(())
    };
    locks.db(DbIndex::ZERO, key.hash(), NOW_MS).edit(key, Missing::Create, edit).unwrap();
    drop(locks);
    let watch = watch_of(&keyspace, &[1]);
    assert!(!watch.is_dirty(NOW_MS + 9));
    assert!(watch.is_dirty(NOW_MS + 10), "before it is removed, too");
    expire_due(&mut keyspace.locks(), NOW_MS + 10);
    assert!(watch.state().is_dirty());
}

/// Puts fields with deadlines, in milliseconds from now, or changes theirs.
fn put_fields(keyspace: &Keyspace, key: u8, fields: &[(String, i64)]) {
    let name = name(key);
    let key = keyspace.key(&name);
    let edit = |hash: &mut Editor<'_, Hash>| {
        for (field, ttl) in fields {
            hash.put(field.as_bytes(), b"value", Some(NOW_MS + ttl));
        }
        Ok::<_, Error>(())
    };
    let mut locks = keyspace.locks();
    locks.db(DbIndex::ZERO, key.hash(), NOW_MS).edit(key, Missing::Create, edit).unwrap();
}

/// Fields of a small hash, and of a large one.
fn small_and_large() -> [(Keyspace, Vec<(String, i64)>); 2] {
    [3, 1000].map(|last| {
        (keyspace(1), (1..=last).map(|index| (format!("field {index}"), 10 * index)).collect())
    })
}

/// Watched while the first field is due and still there.
#[test]
fn a_field_that_expires_after_one_that_was_due_is_a_change() {
    for (keyspace, fields) in small_and_large() {
        put_fields(&keyspace, 1, &fields);
        let name = name(1);
        let mut watch = Watch::new(&keyspace);
        watch_key(
            &mut keyspace.locks(),
            &mut watch,
            DbIndex::ZERO,
            keyspace.key(&name),
            NOW_MS + 10,
        );
        expire_due(&mut keyspace.locks(), NOW_MS + 10);
        assert!(!watch.is_dirty(NOW_MS + 19), "the first one was due");
        expire_due(&mut keyspace.locks(), NOW_MS + 20);
        assert!(watch.is_dirty(NOW_MS + 20), "the second one was there");
    }
}

#[test]
fn a_deadline_that_a_field_had_before_is_no_change() {
    for (keyspace, fields) in small_and_large() {
        put_fields(&keyspace, 1, &fields);
        // Like an application that extends a session.
        put_fields(&keyspace, 1, &[(fields[0].0.clone(), 25)]);
        let watch = watch_of(&keyspace, &[1]);
        expire_due(&mut keyspace.locks(), NOW_MS + 19);
        assert!(!watch.is_dirty(NOW_MS + 19));
        assert!(watch.is_dirty(NOW_MS + 20));
    }
}

#[test]
fn a_hash_whose_fields_were_all_due_was_not_there() {
    for (keyspace, fields) in small_and_large() {
        put_fields(&keyspace, 1, &fields);
        let name = name(1);
        let (end_ms, mut watch) = (NOW_MS + 10_000, Watch::new(&keyspace));
        watch_key(&mut keyspace.locks(), &mut watch, DbIndex::ZERO, keyspace.key(&name), end_ms);
        expire_due(&mut keyspace.locks(), end_ms);
        assert!(!watch.is_dirty(end_ms));
        assert_eq!((keyspace.len(DbIndex::ZERO), keyspace.next_deadline_ms()), (0, None));
    }
}

#[test]
fn what_has_changed_is_watched_no_more() {
    let keyspace = keyspace(4);
    let watch = watch_of(&keyspace, &[1, 2, 3]);
    let others = [0; 5].map(|_| watch_of(&keyspace, &[2]));
    assert_eq!(keyspace.watching(), (6, 3));
    set(&keyspace, 2, Expiry::Never);
    assert!(others.iter().all(|other| other.is_dirty(NOW_MS)));
    assert_eq!(keyspace.watching(), (0, 2), "the other keys of a dirty watch stay until it ends");
    assert_eq!((watch.state().keys(), others[0].state().keys()), (0, 0));
    unwatch(&mut keyspace.locks(), watch);
    assert_eq!(keyspace.watching(), (0, 0));
}

#[test]
fn the_reaper_ends_what_was_dropped() {
    let keyspace = Arc::new(keyspace(4));
    let watch = watch_of(&keyspace, &[1, 2, 3]);
    let reaper = Reaper::start(Arc::clone(&keyspace), Arc::new(ManualClock::new(NOW_MS))).unwrap();
    assert_eq!(keyspace.watching(), (1, 3));
    drop(watch);
    while keyspace.watching() != (0, 0) {
        std::thread::yield_now();
    }
    drop(reaper);
}

/// Increments by watching, reading and writing under the locks, as clients do with WATCH and EXEC: none is lost.
#[test]
fn no_change_by_another_thread_is_missed() {
    let (threads, increments) = if cfg!(miri) { (2, 5) } else { (4, 500) };
    let keyspace = keyspace(2);
    let names = [name(1), name(2)];
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope
                .spawn(|| (0..increments).for_each(|_| while !try_increment(&keyspace, &names) {}));
        }
    });
    let [counted, copied] = names.map(|name| read(&keyspace, &name));
    assert_eq!((counted, copied), (threads * increments, threads * increments));
    assert_eq!(keyspace.watching(), (0, 0));
}

fn read(keyspace: &Keyspace, name: &[u8]) -> i64 {
    let key = keyspace.key(name);
    let mut locks = keyspace.locks();
    let mut db = locks.db(DbIndex::ZERO, key.hash(), NOW_MS);
    db.string(key).unwrap().map_or(0, |text| tierce_keyspace::parse_int(&text.to_vec()).unwrap())
}

/// Adds one to the first key, and puts the same into the second one.
fn try_increment(keyspace: &Keyspace, names: &[Vec<u8>; 2]) -> bool {
    let mut locks = keyspace.locks();
    let keys = [keyspace.key(&names[0]), keyspace.key(&names[1])];
    let mut watch = Watch::new(keyspace);
    keys.iter().for_each(|key| watch_key(&mut locks, &mut watch, DbIndex::ZERO, *key, NOW_MS));
    locks.release();
    let next = (read(keyspace, &names[0]) + 1).to_string();
    let mut all = locks.lock_many(&watch.hashes().collect::<Vec<_>>());
    let is_clean = !watch.is_dirty(NOW_MS);
    if is_clean {
        for key in keys {
            let mut db = all.db(DbIndex::ZERO, key.hash(), NOW_MS);
            db.set(key, &next, Expiry::Never).unwrap();
        }
    }
    drop(all);
    unwatch(&mut locks, watch);
    is_clean
}
