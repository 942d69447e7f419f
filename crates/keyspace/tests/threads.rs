//! Several threads on few keys: nothing is lost, nothing deadlocks, several keys change as one.

use std::sync::atomic::{AtomicU64, Ordering};

use tierce_keyspace::{DbIndex, Expiry, Freeing, Keyspace, Locker, Options};

const THREADS: u64 = 4;
const ACCOUNTS: u64 = 8;
const START: i64 = 1000;
const TURNS: u64 = if cfg!(miri) { 40 } else { 20_000 };

/// xorshift64*
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }
}

fn name(account: u64) -> [u8; 8] {
    account.to_be_bytes()
}

/// Moves an amount between two accounts, both locked.
fn transfer(locker: &mut Locker<'_>, from: u64, to: u64, amount: i64) {
    let (from, to) = (name(from), name(to));
    let keyspace = locker.keyspace();
    let (from, to) = (keyspace.key(&from), keyspace.key(&to));
    let mut both = locker.lock_many(&[from.hash(), to.hash()]);
    both.db(DbIndex::ZERO, from.hash(), 0).increment(from, -amount).unwrap();
    both.db(DbIndex::ZERO, to.hash(), 0).increment(to, amount).unwrap();
}

/// The sum of all accounts, at one moment.
fn balance(locker: &mut Locker<'_>) -> i64 {
    let keyspace = locker.keyspace();
    let mut all = locker.lock_all();
    let account = |account| {
        let name = name(account);
        let key = keyspace.key(&name);
        let mut db = all.db(DbIndex::ZERO, key.hash(), 0);
        db.string(key).unwrap().and_then(|value| value.as_int()).expect("an account")
    };
    (0..ACCOUNTS).map(account).sum()
}

fn turn(locker: &mut Locker<'_>, random: &mut Random, private: DbIndex) {
    let keyspace = locker.keyspace();
    match random.below(20) {
        0..8 => {
            let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
            transfer(locker, from, to, random.below(100) as i64);
        }
        8 => assert_eq!(balance(locker), START * ACCOUNTS as i64),
        9 => locker.release(),
        10 => {
            locker.for_each(DbIndex::ZERO, 0, |entry| assert_eq!(entry.key().len(), 8));
        }
        11 => {
            let seen = locker.scan(DbIndex::ZERO, 0, 3, 0, |_| ());
            assert!(seen < 1 << 63);
        }
        12 => {
            assert!(locker.random_key(DbIndex::ZERO, random.below(u64::MAX), 0).is_some());
        }
        13 => {
            locker.flush([private], Freeing::Later);
        }
        14 => {
            let keys = [1, 2, 3].map(|account| (DbIndex::ZERO, keyspace.hash(&name(account))));
            locker.prefetch(keys.into_iter());
        }
        // A database of this thread alone behaves as if there were no others.
        _ => {
            let name = [b'p', random.below(50) as u8];
            let key = keyspace.key(&name);
            let mut db = locker.db(private, key.hash(), 0);
            db.set(key, &name[..], Expiry::Never).unwrap();
            assert_eq!(db.string(key).unwrap().map(|value| value.to_vec()), Some(name.to_vec()));
            if random.below(2) == 0 {
                assert!(db.remove(key));
            }
        }
    }
}

#[test]
fn transfers_between_keys_keep_the_sum() {
    let keyspace = Keyspace::new(Options { shards: 4, ..Options::default() }).unwrap();
    for account in 0..ACCOUNTS {
        let name = name(account);
        let key = keyspace.key(&name);
        keyspace.locker().db(DbIndex::ZERO, key.hash(), 0).increment(key, START).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let keyspace = &keyspace;
            scope.spawn(move || {
                let private = keyspace.db_index(1 + thread as usize).unwrap();
                let mut random = Random(thread + 1);
                let mut locker = keyspace.locker();
                for _ in 0..TURNS {
                    turn(&mut locker, &mut random, private);
                }
            });
        }
    });
    assert_eq!(balance(&mut keyspace.locker()), START * ACCOUNTS as i64);
    keyspace.locker().flush(keyspace.db_indices(), Freeing::Now);
    assert_eq!(keyspace.memory().total(), 0);
}

#[test]
fn increments_of_one_hot_key_all_count() {
    let keyspace = Keyspace::new(Options::default()).unwrap();
    let key = keyspace.key(b"hot");
    let started = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                started.fetch_add(1, Ordering::Relaxed);
                for _ in 0..TURNS / 10 {
                    let mut locker = keyspace.locker();
                    for _ in 0..10 {
                        locker.db(DbIndex::ZERO, key.hash(), 0).increment(key, 1).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(started.into_inner(), THREADS);
    let total = keyspace.locker().db(DbIndex::ZERO, key.hash(), 0).increment(key, 0);
    assert_eq!(total, Ok((THREADS * (TURNS / 10 * 10)) as i64));
    assert_eq!(keyspace.stats().changes, THREADS * (TURNS / 10 * 10) + 1);
}

#[test]
fn a_transaction_runs_commands_that_lock_for_themselves() {
    let keyspace = Keyspace::new(Options { shards: 64, ..Options::default() }).unwrap();
    let hashes: Vec<_> = (0..4).map(|account| keyspace.hash(&name(account))).collect();
    let mut locker = keyspace.locker();
    let mut transaction = locker.lock_many(&hashes);
    for account in 0..4 {
        transfer(transaction.locker(), account, (account + 1) % 4, 7);
    }
    let outside = (4..).map(|account| keyspace.hash(&name(account)));
    let uncovered = outside.into_iter().find(|hash| !transaction.locker().covers(*hash));
    drop(transaction);
    assert!(locker.covers(uncovered.expect("four shards of 64 are locked")));
    for account in 0..4 {
        let name = name(account);
        let key = keyspace.key(&name);
        let value = locker.db(DbIndex::ZERO, key.hash(), 0).increment(key, 0);
        assert_eq!(value, Ok(0), "what came in went out");
    }
}

#[test]
#[should_panic(expected = "transaction has locked")]
fn a_key_outside_of_a_transaction_is_a_bug_that_shows() {
    let keyspace = Keyspace::new(Options { shards: 64, ..Options::default() }).unwrap();
    let inside = keyspace.hash(b"inside");
    let outside = (0..).map(|account| keyspace.hash(&name(account)));
    let mut locker = keyspace.locker();
    let mut transaction = locker.lock_many(&[inside]);
    let outside = outside.into_iter().find(|hash| !transaction.locker().covers(*hash)).unwrap();
    transaction.db(DbIndex::ZERO, outside, 0);
}
