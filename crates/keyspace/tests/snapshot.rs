//! A snapshot has the keyspace as of its beginning, each key once, whatever happens meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use tierce_harness::{Random, effort};
use tierce_keyspace::{
    BLOB_LEN_MIN, DbIndex, Expiry, Freeing, IntText, Keyspace, Options, Removal, Snapshot,
    SnapshotError, SnapshotPiece, expire_due, flush_dbs, for_each_entry, swap_dbs,
};

/// Database and key, value and deadline.
type State = BTreeMap<(usize, Vec<u8>), (Vec<u8>, Option<i64>)>;

#[derive(Debug, Clone)]
enum Step {
    Set { db: usize, from: u16, count: u16, value: Vec<u8>, after_ms: Option<i64> },
    Append { db: usize, key: u16, suffix: Vec<u8> },
    Increment { db: usize, key: u16 },
    Remove { db: usize, from: u16, count: u16 },
    SetDeadline { db: usize, key: u16, after_ms: i64 },
    Move { db: usize, key: u16 },
    Wait(i64),
    ExpireDue,
    Swap(usize, usize),
    Flush(usize, Freeing),
    FlushAll(Freeing),
    Begin,
    Walk(usize),
    GiveUp,
}

const DBS: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    let db = || 0..DBS;
    let key = || 0u16..400;
    let value = || {
        prop_oneof![
            4 => prop::collection::vec(any::<u8>(), 0..40),
            3 => any::<i32>().prop_map(|number| number.to_string().into_bytes()),
            1 => (any::<u8>(), 0usize..40).prop_map(|(fill, len)| vec![fill; BLOB_LEN_MIN - 20 + len]),
        ]
    };
    let after_ms = prop_oneof![3 => Just(None), 1 => (1i64..300).prop_map(Some)];
    prop_oneof![
        10 => (db(), key(), 1u16..60, value(), after_ms)
            .prop_map(|(db, from, count, value, after_ms)| Step::Set { db, from, count, value, after_ms }),
        4 => (db(), key(), value()).prop_map(|(db, key, suffix)| Step::Append { db, key, suffix }),
        4 => (db(), key()).prop_map(|(db, key)| Step::Increment { db, key }),
        5 => (db(), key(), 1u16..60).prop_map(|(db, from, count)| Step::Remove { db, from, count }),
        3 => (db(), key(), -5i64..300)
            .prop_map(|(db, key, after_ms)| Step::SetDeadline { db, key, after_ms }),
        2 => (db(), key()).prop_map(|(db, key)| Step::Move { db, key }),
        2 => (0i64..100).prop_map(Step::Wait),
        2 => Just(Step::ExpireDue),
        2 => (db(), db()).prop_map(|(a, b)| Step::Swap(a, b)),
        1 => (db(), prop_oneof![Just(Freeing::Now), Just(Freeing::Later)])
            .prop_map(|(db, freeing)| Step::Flush(db, freeing)),
        1 => prop_oneof![Just(Freeing::Now), Just(Freeing::Later)].prop_map(Step::FlushAll),
        3 => Just(Step::Begin),
        12 => (1usize..6).prop_map(Step::Walk),
        1 => Just(Step::GiveUp),
    ]
}

/// A running snapshot, the entries it has saved, and those it must save.
struct Running {
    snapshot: Snapshot,
    saved: State,
    expected: State,
}

impl Running {
    /// `false` when the snapshot is complete.
    fn walk(&mut self) -> bool {
        let batch = match self.snapshot.next().expect("nothing is too slow") {
            None => return false,
            Some(SnapshotPiece::Batch(batch)) => batch,
            Some(SnapshotPiece::Large(_)) => unreachable!("there are strings only"),
        };
        assert!(!batch.is_empty() && batch.iter().count() == batch.len());
        for entry in &batch {
            let value = entry.value.string(&mut IntText::new()).unwrap().to_vec();
            let name = (entry.db.get(), entry.key.to_vec());
            let before = self.saved.insert(name, (value, entry.deadline_ms));
            assert_eq!(before, None, "{entry:?} was saved twice");
        }
        true
    }

    fn finish(mut self) {
        while self.walk() {}
        assert_eq!(self.saved, self.expected);
        let counted: u64 = self.snapshot.dbs().iter().map(|db| db.keys).sum();
        assert!(counted >= self.saved.len() as u64);
    }
}

struct World {
    keyspace: Arc<Keyspace>,
    now_ms: i64,
    running: Option<Running>,
}

fn name(key: u16) -> Vec<u8> {
    format!("key:{key}").into_bytes()
}

impl World {
    fn new(shards: usize) -> Self {
        let options = Options { shards, databases: DBS, ..Options::default() };
        let keyspace = Arc::new(Keyspace::new(options).expect("good options"));
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
                let value = entry.string().unwrap().to_vec();
                state.insert((db.get(), entry.key().to_vec()), (value, entry.deadline_ms()));
            });
        }
        state
    }

    fn on<R>(
        &self,
        db: usize,
        key: u16,
        act: impl FnOnce(&mut tierce_keyspace::Db<'_>, tierce_keyspace::Key<'_>) -> R,
    ) -> R {
        let name = name(key);
        let key = self.keyspace.key(&name);
        let mut locks = self.keyspace.locks();
        act(&mut locks.db(self.db(db), key.hash(), self.now_ms), key)
    }

    fn apply(&mut self, step: Step) {
        let now_ms = self.now_ms;
        match step {
            Step::Set { db, from, count, value, after_ms } => {
                let expiry = after_ms.map_or(Expiry::Never, |after| Expiry::At(now_ms + after));
                for key in from..from + count {
                    self.on(db, key, |db, key| db.set(key, &value, expiry)).expect("short enough");
                }
            }
            Step::Append { db, key, suffix } => {
                self.on(db, key, |db, key| db.append(key, &suffix)).expect("short enough");
            }
            Step::Increment { db, key } => _ = self.on(db, key, |db, key| db.increment(key, 1)),
            Step::Remove { db, from, count } => {
                for key in from..from + count {
                    self.on(db, key, |db, key| db.remove(key));
                }
            }
            Step::SetDeadline { db, key, after_ms } => {
                self.on(db, key, |db, key| db.set_deadline(key, now_ms + after_ms));
            }
            Step::Move { db, key } => {
                let taken = self.on(db, key, |db, key| db.take(key, Removal::Moved));
                if let Some(entry) = taken {
                    let put = |db: &mut tierce_keyspace::Db<'_>, key: tierce_keyspace::Key<'_>| {
                        db.put(key, entry)
                    };
                    self.on((db + 1) % DBS, key, put).expect("a short key");
                }
            }
            Step::Wait(ms) => self.now_ms += ms,
            Step::ExpireDue => expire_due(&mut self.keyspace.locks(), now_ms),
            Step::Swap(a, b) => {
                swap_dbs(&mut self.keyspace.locks(), self.db(a), self.db(b), self.now_ms);
            }
            Step::Flush(db, freeing) => {
                flush_dbs(&mut self.keyspace.locks(), [self.db(db)], freeing);
            }
            Step::FlushAll(freeing) => {
                flush_dbs(&mut self.keyspace.locks(), self.keyspace.db_indices(), freeing);
            }
            Step::Begin => self.begin(),
            Step::Walk(batches) => {
                if let Some(running) = &mut self.running {
                    (0..batches).for_each(|_| _ = running.walk());
                }
            }
            Step::GiveUp => self.running = None,
        }
    }

    fn begin(&mut self) {
        let begin = || {
            let mut locks = self.keyspace.locks();
            Snapshot::begin(&self.keyspace, &mut locks, self.now_ms)
        };
        if let Some(running) = self.running.take() {
            assert_eq!(begin().map(|_| ()), Err(SnapshotError::InProgress));
            running.finish();
        }
        assert_eq!(self.keyspace.snapshot_memory(), None);
        let expected = self.state();
        let snapshot = begin().expect("there is no other");
        self.running = Some(Running { snapshot, saved: State::new(), expected });
    }

    fn finish(mut self) {
        if let Some(running) = self.running.take() {
            running.finish();
        }
        assert_eq!(self.keyspace.snapshot_memory(), None);
        let all: Vec<_> = self.keyspace.db_indices().collect();
        flush_dbs(&mut self.keyspace.locks(), all, Freeing::Now);
        assert_eq!(self.keyspace.memory().total(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { effort(200) },
        ..ProptestConfig::default()
    })]

    #[test]
    fn saves_the_moment_of_its_beginning(
        shard_bits in 0u32..4,
        steps in prop::collection::vec(step(), 1..if cfg!(miri) { 15 } else { 120 }),
    ) {
        let mut world = World::new(1 << shard_bits);
        steps.into_iter().for_each(|step| world.apply(step));
        world.finish();
    }
}

const THREADS: usize = 3;
const ACCOUNTS: u16 = 2000;
const START: i64 = 1000;

/// Moves an amount between two accounts, and now and then all of them into the other database.
fn disturb(keyspace: &Keyspace, random: &mut Random, accounts: DbIndex, others: [DbIndex; 2]) {
    let mut locks = keyspace.locks();
    if random.u64_below(500) == 0 {
        swap_dbs(&mut locks, others[0], others[1], 0);
        return;
    }
    if random.u64_below(500) == 0 {
        flush_dbs(&mut locks, [others[0]], Freeing::Now);
        return;
    }
    let [from, to] = [(); 2].map(|()| name(random.u64_below(ACCOUNTS.into()) as u16));
    let (from, to) = (keyspace.key(&from), keyspace.key(&to));
    let amount = random.u64_below(50) as i64;
    let mut both = locks.lock_many(&[from.hash(), to.hash()]);
    both.db(accounts, from.hash(), 0).increment(from, -amount).expect("a number");
    both.db(accounts, to.hash(), 0).increment(to, amount).expect("a number");
    both.db(others[0], to.hash(), 0).set(to, "x", Expiry::Never).expect("short");
}

/// However transfers go on, each snapshot has all accounts and the same sum.
#[test]
fn several_keys_are_saved_as_one_under_concurrent_writers() {
    let rounds = if cfg!(miri) { 2 } else { 60 };
    let keyspace = Arc::new(Keyspace::new(Options { shards: 16, ..Options::default() }).unwrap());
    let [accounts, a, b] = [0, 1, 2].map(|number| keyspace.db_index(number).unwrap());
    for account in 0..ACCOUNTS {
        let name = name(account);
        let key = keyspace.key(&name);
        let mut locks = keyspace.locks();
        locks.db(accounts, key.hash(), 0).increment(key, START).unwrap();
    }
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 1..=THREADS as u64 {
            let (keyspace, ends) = (&keyspace, &ends);
            scope.spawn(move || {
                let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
                while !ends.load(Ordering::Relaxed) {
                    disturb(keyspace, &mut random, accounts, [a, b]);
                }
            });
        }
        for _ in 0..rounds {
            let mut snapshot = Snapshot::begin(&keyspace, &mut keyspace.locks(), 0).unwrap();
            let (mut sum, mut count) = (0, 0);
            while let Some(SnapshotPiece::Batch(batch)) = snapshot.next().unwrap() {
                for entry in batch.iter().filter(|entry| entry.db == accounts) {
                    count += 1;
                    let text = entry.value.string(&mut IntText::new()).unwrap().to_vec();
                    sum += String::from_utf8(text).unwrap().parse::<i64>().unwrap();
                }
            }
            assert_eq!((count, sum), (ACCOUNTS, START * i64::from(ACCOUNTS)));
        }
        ends.store(true, Ordering::Relaxed);
    });
}

/// A large value is kept by reference, and a change of it does not change the copy.
#[test]
fn a_large_value_is_shared_and_keeps_its_bytes() {
    let mut world = World::new(1);
    let old = vec![b'o'; 10 * BLOB_LEN_MIN];
    world.on(0, 1, |db, key| db.set(key, &old, Expiry::Never)).unwrap();
    world.begin();
    world.on(0, 1, |db, key| db.append(key, b"new")).unwrap();
    world.finish();
}

/// Copies that are not fetched end the snapshot before they take all memory, and writers go on.
#[test]
#[cfg_attr(miri, ignore = "too much memory")]
fn a_snapshot_that_is_not_fetched_is_given_up() {
    let world = World::new(1);
    let old = vec![b'o'; 1 << 20];
    for key in 0..200 {
        world.on(0, key, |db, key| db.set(key, &old, Expiry::Never)).unwrap();
    }
    let mut locks = world.keyspace.locks();
    let mut snapshot = Snapshot::begin(&world.keyspace, &mut locks, 0).unwrap();
    drop(locks);
    for key in 0..200 {
        world.on(0, key, |db, key| db.set(key, "new", Expiry::Never)).unwrap();
    }
    let peak = world.keyspace.snapshot_memory().unwrap().peak;
    assert!((64 << 20..72 << 20).contains(&peak), "{peak}");
    assert!(matches!(snapshot.next(), Err(SnapshotError::TooSlow { .. })));
    drop(snapshot);
    assert_eq!(world.keyspace.snapshot_memory(), None);
}
