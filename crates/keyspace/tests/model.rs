//! Random operations on a keyspace have the results of the same operations on a plain map.
//!
//! Time is moved by hand. After every operation all figures are compared, too: counts, deadlines,
//! memory. At the end everything is removed, and nothing may be left.

use std::collections::HashMap;

use proptest::prelude::*;
use tierce_harness::effort;
use tierce_keyspace::{
    BLOB_LEN_MIN, DbIndex, DeadlineSet, Error, Expiry, Freeing, Keyspace, Options, Removal, Ttl,
    expire_due, flush_dbs, for_each_entry, parse_int, size_class, swap_dbs,
};

/// Small enough that a test reaches it, large enough for blobs.
const VALUE_LEN_MAX: usize = 3 * BLOB_LEN_MIN;

#[derive(Debug, Clone)]
enum Step {
    Get(u8),
    Exists(u8),
    Set(u8, Vec<u8>, Option<Option<i64>>),
    Append(u8, Vec<u8>),
    SetRange(u8, u64, Vec<u8>),
    Increment(u8, i64),
    Remove(u8),
    Rename(u8, u8),
    Copy(u8, u8),
    MoveToDb(u8),
    SetDeadline(u8, i64),
    ClearDeadline(u8),
    Wait(i64),
    ExpireDue,
    Swap,
    Flush,
}

fn values() -> impl Strategy<Value = Vec<u8>> {
    let blob_lens = BLOB_LEN_MIN - 20..BLOB_LEN_MIN + 20;
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..20),
        3 => (any::<i64>(), 0u32..64).prop_map(|(n, shift)| (n >> shift).to_string().into_bytes()),
        1 => prop::sample::select(vec!["12ab", "007", "+5", "-0", "", " 1", "9223372036854775808"])
            .prop_map(|text| text.as_bytes().to_vec()),
        1 => (any::<u8>(), 200usize..300).prop_map(|(fill, len)| vec![fill; len]),
        1 => (any::<u8>(), blob_lens).prop_map(|(fill, len)| vec![fill; len]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0u8..12;
    let expiry = prop_oneof![
        4 => Just(Some(None)),
        1 => Just(None),
        2 => (-5i64..200).prop_map(|after| Some(Some(after))),
    ];
    prop_oneof![
        8 => key().prop_map(Step::Get),
        1 => key().prop_map(Step::Exists),
        8 => (key(), values(), expiry).prop_map(|(key, value, expiry)| Step::Set(key, value, expiry)),
        4 => (key(), values()).prop_map(|(key, value)| Step::Append(key, value)),
        2 => (key(), 0u64..40, values()).prop_map(|(key, at, value)| Step::SetRange(key, at, value)),
        1 => (key(), any::<u64>(), values()).prop_map(|(key, at, value)| Step::SetRange(key, at, value)),
        4 => (key(), any::<i64>(), 0u32..64).prop_map(|(key, by, shift)| Step::Increment(key, by >> shift)),
        3 => key().prop_map(Step::Remove),
        2 => (key(), key()).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => (key(), key()).prop_map(|(from, to)| Step::Copy(from, to)),
        1 => key().prop_map(Step::MoveToDb),
        4 => (key(), -5i64..200).prop_map(|(key, after)| Step::SetDeadline(key, after)),
        1 => key().prop_map(Step::ClearDeadline),
        3 => (0i64..60).prop_map(Step::Wait),
        2 => Just(Step::ExpireDue),
        1 => Just(Step::Swap),
        1 => Just(Step::Flush),
    ]
}

#[derive(Debug, Clone, Default)]
struct Held {
    value: Vec<u8>,
    deadline_ms: Option<i64>,
}

/// Both sides of the comparison.
struct Pair {
    keyspace: Keyspace,
    dbs: [DbIndex; 2],
    now_ms: i64,
    model: [HashMap<Vec<u8>, Held>; 2],
}

fn name(key: u8) -> Vec<u8> {
    // Keys of all widths, among them long equal beginnings.
    match key % 4 {
        0 => vec![key],
        1 => format!("a key of ordinary length {key}").into_bytes(),
        2 => [vec![b'x'; 255], vec![key]].concat(),
        _ => [vec![b'x'; 300], vec![key]].concat(),
    }
}

impl Pair {
    fn new(shards: usize) -> Self {
        let options =
            Options { shards, databases: 2, value_len_max: VALUE_LEN_MAX, ..Options::default() };
        let keyspace = Keyspace::new(options).expect("good options");
        let dbs = [0, 1].map(|number| keyspace.db_index(number).expect("there are two"));
        Self { keyspace, dbs, now_ms: 1_000_000, model: Default::default() }
    }

    fn apply(&mut self, step: Step) {
        let now_ms = self.now_ms;
        for model in &mut self.model {
            model.retain(|_, held| held.deadline_ms.is_none_or(|at| at > now_ms));
        }
        match step {
            Step::Get(key) => self.get(&name(key)),
            Step::Exists(key) => {
                let expected = self.model[0].contains_key(&name(key));
                assert_eq!(self.on(&name(key), |db, key| db.exists(key)), expected);
            }
            Step::Set(key, value, expiry) => self.set(&name(key), value, expiry),
            Step::Append(key, suffix) => self.append(&name(key), &suffix),
            Step::SetRange(key, offset, bytes) => self.set_range(&name(key), offset, &bytes),
            Step::Increment(key, by) => self.increment(&name(key), by),
            Step::Remove(key) => {
                let expected = self.model[0].remove(&name(key)).is_some();
                assert_eq!(self.on(&name(key), |db, key| db.remove(key)), expected);
            }
            Step::Rename(from, to) => self.rename(&name(from), &name(to)),
            Step::Copy(from, to) => self.copy(&name(from), &name(to)),
            Step::MoveToDb(key) => self.move_to_db(&name(key)),
            Step::SetDeadline(key, after) => self.set_deadline(&name(key), now_ms + after),
            Step::ClearDeadline(key) => {
                let held = self.model[0].get_mut(&name(key));
                let expected = held.and_then(|held| held.deadline_ms.take()).is_some();
                assert_eq!(self.on(&name(key), |db, key| db.clear_deadline(key)), expected);
            }
            Step::Wait(ms) => self.now_ms += ms,
            Step::ExpireDue => self.expire_due(),
            Step::Swap => {
                self.model.swap(0, 1);
                swap_dbs(&mut self.keyspace.locks(), self.dbs[0], self.dbs[1], now_ms);
            }
            Step::Flush => {
                self.model[1].clear();
                flush_dbs(&mut self.keyspace.locks(), [self.dbs[1]], Freeing::Later);
            }
        }
    }

    /// Runs an operation on database 0.
    fn on<R>(
        &self,
        key: &[u8],
        operation: impl FnOnce(&mut tierce_keyspace::Db<'_>, tierce_keyspace::Key<'_>) -> R,
    ) -> R {
        let key = self.keyspace.key(key);
        let mut locks = self.keyspace.locks();
        let mut db = locks.db(self.dbs[0], key.hash(), self.now_ms);
        operation(&mut db, key)
    }

    fn get(&self, key: &[u8]) {
        let value = self.on(key, |db, key| db.string(key).map(|found| found.map(|s| s.to_vec())));
        let expected = self.model[0].get(key).map(|held| held.value.clone());
        assert_eq!(value, Ok(expected));
    }

    fn set(&mut self, key: &[u8], value: Vec<u8>, expiry: Option<Option<i64>>) {
        let expiry = match expiry {
            None => Expiry::Keep,
            Some(None) => Expiry::Never,
            Some(Some(after)) => Expiry::At(self.now_ms + after),
        };
        assert_eq!(self.on(key, |db, key| db.set(key, &value, expiry)), Ok(()));
        let deadline_ms = match expiry {
            Expiry::Keep => self.model[0].get(key).and_then(|held| held.deadline_ms),
            Expiry::Never => None,
            Expiry::At(at) => Some(at),
        };
        if deadline_ms.is_some_and(|at| at <= self.now_ms) {
            self.model[0].remove(key);
        } else {
            self.model[0].insert(key.to_vec(), Held { value, deadline_ms });
        }
    }

    fn append(&mut self, key: &[u8], suffix: &[u8]) {
        let result = self.on(key, |db, key| db.append(key, suffix));
        let len = self.model[0].get(key).map_or(0, |held| held.value.len()) + suffix.len();
        if len > VALUE_LEN_MAX {
            assert_eq!(result, Err(Error::ValueTooLong { len: len as u64, max: VALUE_LEN_MAX }));
            return;
        }
        assert_eq!(result, Ok(len));
        self.model[0].entry(key.to_vec()).or_default().value.extend_from_slice(suffix);
    }

    fn set_range(&mut self, key: &[u8], offset: u64, bytes: &[u8]) {
        let result = self.on(key, |db, key| db.set_range(key, offset, bytes));
        let old_len = self.model[0].get(key).map_or(0, |held| held.value.len());
        let end = offset.saturating_add(bytes.len() as u64);
        if bytes.is_empty() {
            assert_eq!(result, Ok(old_len));
        } else if end > VALUE_LEN_MAX as u64 {
            assert_eq!(result, Err(Error::ValueTooLong { len: end, max: VALUE_LEN_MAX }));
        } else {
            let value = &mut self.model[0].entry(key.to_vec()).or_default().value;
            value.resize(old_len.max(end as usize), 0);
            value[offset as usize..end as usize].copy_from_slice(bytes);
            assert_eq!(result, Ok(value.len()));
        }
    }

    fn increment(&mut self, key: &[u8], by: i64) {
        let result = self.on(key, |db, key| db.increment(key, by));
        let old = self.model[0].get(key).map_or(Some(0), |held| parse_int(&held.value));
        let expected = match old.map(|old| old.checked_add(by)) {
            None => Err(Error::NotAnInteger),
            Some(None) => Err(Error::IntegerOverflow),
            Some(Some(sum)) => Ok(sum),
        };
        assert_eq!(result, expected);
        if let Ok(sum) = expected {
            self.model[0].entry(key.to_vec()).or_default().value = sum.to_string().into_bytes();
        }
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) {
        let (from_key, to_key) = (self.keyspace.key(from), self.keyspace.key(to));
        let mut locks = self.keyspace.locks();
        let mut both = locks.lock_many(&[from_key.hash(), to_key.hash()]);
        let taken =
            both.db(self.dbs[0], from_key.hash(), self.now_ms).take(from_key, Removal::Moved);
        assert_eq!(taken.is_some(), self.model[0].contains_key(from));
        if let Some(entry) = taken {
            assert_eq!(both.db(self.dbs[0], to_key.hash(), self.now_ms).put(to_key, entry), Ok(()));
            let held = self.model[0].remove(from).expect("compared above");
            self.model[0].insert(to.to_vec(), held);
        }
    }

    fn copy(&mut self, from: &[u8], to: &[u8]) {
        let (from_key, to_key) = (self.keyspace.key(from), self.keyspace.key(to));
        let mut locks = self.keyspace.locks();
        let mut both = locks.lock_many(&[to_key.hash(), from_key.hash()]);
        let copy = both.db(self.dbs[0], from_key.hash(), self.now_ms).duplicate(from_key).unwrap();
        assert_eq!(copy.is_some(), self.model[0].contains_key(from));
        if let Some(entry) = copy {
            assert_eq!(both.db(self.dbs[1], to_key.hash(), self.now_ms).put(to_key, entry), Ok(()));
            let held = self.model[0][from].clone();
            self.model[1].insert(to.to_vec(), held);
        }
    }

    fn move_to_db(&mut self, key: &[u8]) {
        let other = self.dbs[1];
        let is_moved = self.on(key, |db, key| {
            db.switch(other);
            if db.peek(key).is_some() {
                return false;
            }
            db.switch(DbIndex::ZERO);
            let Some(entry) = db.take(key, Removal::Moved) else { return false };
            db.switch(other);
            db.put(key, entry).is_ok()
        });
        let expected = !self.model[1].contains_key(key) && self.model[0].contains_key(key);
        assert_eq!(is_moved, expected);
        if expected {
            let held = self.model[0].remove(key).expect("it is there");
            self.model[1].insert(key.to_vec(), held);
        }
    }

    fn set_deadline(&mut self, key: &[u8], deadline_ms: i64) {
        let expected = match self.model[0].get_mut(key) {
            None => DeadlineSet::Absent,
            Some(_) if deadline_ms <= self.now_ms => DeadlineSet::Deleted,
            Some(held) => {
                held.deadline_ms = Some(deadline_ms);
                DeadlineSet::Done
            }
        };
        if expected == DeadlineSet::Deleted {
            self.model[0].remove(key);
        }
        assert_eq!(self.on(key, |db, key| db.set_deadline(key, deadline_ms)), expected);
    }

    fn expire_due(&self) {
        expire_due(&mut self.keyspace.locks(), self.now_ms);
        for (db, model) in self.dbs.into_iter().zip(&self.model) {
            assert_eq!(self.keyspace.len(db), model.len() as u64, "what is due has to be gone");
        }
        assert!(self.keyspace.next_deadline_ms().is_none_or(|next_ms| next_ms > self.now_ms));
    }

    /// Compares everything that can be seen without changing anything.
    fn check(&self) {
        let mut entry_bytes = 0;
        for (db, model) in self.dbs.into_iter().zip(&self.model) {
            let alive = |held: &&Held| held.deadline_ms.is_none_or(|at| at > self.now_ms);
            let mut seen = 0;
            for_each_entry(&mut self.keyspace.locks(), db, self.now_ms, |entry| {
                let held = &model[entry.key()];
                assert_eq!(entry.deadline_ms(), held.deadline_ms);
                assert_eq!(entry.string().unwrap().len(), held.value.len());
                seen += 1;
            });
            assert_eq!(seen, model.values().filter(alive).count());
            for_each_entry(&mut self.keyspace.locks(), db, i64::MIN, |entry| {
                entry_bytes += entry.allocated_bytes();
            });
            let stats = self.keyspace.db_stats(db, self.now_ms);
            assert!(stats.keys >= seen as u64 && stats.expires <= stats.keys);
        }
        assert_eq!(self.keyspace.memory().entries, entry_bytes as u64);
        let earliest =
            self.model.iter().flat_map(HashMap::values).filter_map(|held| held.deadline_ms);
        if let Some(earliest_ms) = earliest.min() {
            assert!(self.keyspace.next_deadline_ms().is_some_and(|next_ms| next_ms <= earliest_ms));
        }
    }

    /// Removes every key one by one; then nothing may be left.
    fn remove_everything(&mut self) {
        for (db, model) in self.dbs.into_iter().zip(std::mem::take(&mut self.model)) {
            for key in model.into_keys() {
                let key = self.keyspace.key(&key);
                self.keyspace.locks().db(db, key.hash(), self.now_ms).remove(key);
            }
        }
        expire_due(&mut self.keyspace.locks(), i64::MAX);
        assert_eq!(self.keyspace.memory().total(), 0);
        assert!(self.dbs.iter().all(|db| self.keyspace.is_empty(*db)));
        assert_eq!(self.keyspace.next_deadline_ms(), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { effort(200) },
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn a_keyspace_is_a_map_with_deadlines(
        shard_bits in 0u32..4,
        steps in prop::collection::vec(step(), 1..if cfg!(miri) { 30 } else { 150 }),
    ) {
        let mut pair = Pair::new(1 << shard_bits);
        for step in steps {
            pair.apply(step);
            pair.check();
        }
        pair.remove_everything();
    }
}

#[test]
fn values_come_back_exactly() {
    let pair = Pair::new(4);
    let all_bytes: Vec<u8> = (0..=255).collect();
    let limits = [i64::MIN, i64::MAX].map(|value| value.to_string().into_bytes());
    let texts = ["12ab", "007", "+5", "-0", "", "0", "-1", " 7", "7 ", "1e3", "\0"];
    let texts = texts.map(|text| text.as_bytes().to_vec());
    for value in texts.into_iter().chain(limits).chain([all_bytes]) {
        assert_eq!(pair.on(b"key", |db, key| db.set(key, &value, Expiry::Never)), Ok(()));
        let found =
            pair.on(b"key", |db, key| db.string(key).map(|found| found.map(|s| s.to_vec())));
        assert_eq!(found, Ok(Some(value)));
    }
}

#[test]
fn encodings_are_those_that_clients_expect() {
    let pair = Pair::new(1);
    let encoding = || pair.on(b"k", |db, key| db.encoding(key).expect("the key exists"));
    let set = |value: &[u8]| pair.on(b"k", |db, key| db.set(key, value, Expiry::Never)).unwrap();
    for (value, expected) in [("12", "int"), ("012", "embstr"), ("", "embstr")] {
        set(value.as_bytes());
        assert_eq!(encoding(), expected, "of {value:?}");
    }
    set(&[b'x'; 44]);
    assert_eq!(encoding(), "embstr");
    set(&[b'x'; 45]);
    assert_eq!(encoding(), "raw");
    set(b"1");
    pair.on(b"k", |db, key| db.append(key, b"2")).unwrap();
    assert_eq!(encoding(), "raw");
    pair.on(b"k", |db, key| db.increment(key, 1)).unwrap();
    assert_eq!(encoding(), "int");
}

#[test]
fn overwriting_updates_the_deadline_and_expired_data_gives_its_memory_back() {
    let mut pair = Pair::new(4);
    for number in 0..1000u32 {
        let deadline = Expiry::At(pair.now_ms + 100);
        pair.on(&number.to_be_bytes(), |db, key| db.set(key, &[7; 100], deadline)).unwrap();
    }
    let full = pair.keyspace.memory();
    assert!(full.entries >= 1000 * size_class(11 + 4 + 100) as u64);
    for number in 0..10u32 {
        let key = number.to_be_bytes();
        let expiry = if number < 5 { Expiry::Never } else { Expiry::At(pair.now_ms + 200) };
        pair.on(&key, |db, key| db.set(key, b"new", expiry)).unwrap();
    }
    pair.now_ms += 100;
    expire_due(&mut pair.keyspace.locks(), pair.now_ms);
    assert_eq!(pair.keyspace.len(DbIndex::ZERO), 10);
    assert!(pair.keyspace.memory().total() < full.total() / 50);
    pair.now_ms += 100;
    expire_due(&mut pair.keyspace.locks(), pair.now_ms);
    assert_eq!(pair.keyspace.len(DbIndex::ZERO), 5);
    for number in 0..5u32 {
        let ttl = pair.on(&number.to_be_bytes(), |db, key| db.ttl(key));
        assert_eq!(ttl, Ttl::Persistent, "SET without a deadline takes the old one away");
    }
}
