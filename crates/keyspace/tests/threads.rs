//! Several threads on few keys: nothing is lost, nothing deadlocks, and changes of several keys are
//! atomic.

use std::sync::atomic::{AtomicU64, Ordering};

use tierce_harness::Random;
use tierce_keyspace::{
    DbIndex, Expiry, Freeing, Keyspace, Options, ShardLocks, flush_dbs, for_each_entry, random_key,
    scan,
};

const THREADS: u64 = 4;
const ACCOUNTS: u64 = 8;
const START: i64 = 1000;
const TURNS: u64 = if cfg!(miri) { 40 } else { 20_000 };

fn name(account: u64) -> [u8; 8] {
    account.to_be_bytes()
}

/// Moves an amount between two accounts, both locked.
fn transfer(locks: &mut ShardLocks<'_>, from: u64, to: u64, amount: i64) {
    let (from, to) = (name(from), name(to));
    let keyspace = locks.keyspace();
    let (from, to) = (keyspace.key(&from), keyspace.key(&to));
    let mut both = locks.lock_many(&[from.hash(), to.hash()]);
    both.db(DbIndex::ZERO, from.hash(), 0).increment(from, -amount).unwrap();
    both.db(DbIndex::ZERO, to.hash(), 0).increment(to, amount).unwrap();
}

/// The sum of all accounts, at one moment.
fn balance(locks: &mut ShardLocks<'_>) -> i64 {
    let keyspace = locks.keyspace();
    let mut all = locks.lock_all();
    let account = |account| {
        let name = name(account);
        let key = keyspace.key(&name);
        let mut db = all.db(DbIndex::ZERO, key.hash(), 0);
        db.string(key).unwrap().and_then(|value| value.as_int()).expect("an account")
    };
    (0..ACCOUNTS).map(account).sum()
}

fn turn(locks: &mut ShardLocks<'_>, random: &mut Random, private: DbIndex) {
    let keyspace = locks.keyspace();
    match random.u64_below(20) {
        0..8 => {
            let (from, to) = (random.u64_below(ACCOUNTS), random.u64_below(ACCOUNTS));
            transfer(locks, from, to, random.u64_below(100) as i64);
        }
        8 => assert_eq!(balance(locks), START * ACCOUNTS as i64),
        9 => locks.release(),
        10 => {
            for_each_entry(locks, DbIndex::ZERO, 0, |entry| assert_eq!(entry.key().len(), 8));
        }
        11 => {
            let seen = scan(locks, DbIndex::ZERO, 0, 3, 0, |_| ());
            assert!(seen < 1 << 63);
        }
        12 => {
            assert!(random_key(locks, DbIndex::ZERO, random.u64_below(u64::MAX), 0).is_some());
        }
        13 => {
            flush_dbs(locks, [private], Freeing::Later);
        }
        14 => {
            let keys = [1, 2, 3].map(|account| (DbIndex::ZERO, keyspace.hash(&name(account))));
            locks.prefetch(keys.into_iter());
        }
        // A database of this thread alone behaves as if there were no others.
        _ => {
            let name = [b'p', random.u64_below(50) as u8];
            let key = keyspace.key(&name);
            let mut db = locks.db(private, key.hash(), 0);
            db.set(key, &name[..], Expiry::Never).unwrap();
            assert_eq!(db.string(key).unwrap().map(|value| value.to_vec()), Some(name.to_vec()));
            if random.u64_below(2) == 0 {
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
        keyspace.locks().db(DbIndex::ZERO, key.hash(), 0).increment(key, START).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let keyspace = &keyspace;
            scope.spawn(move || {
                let private = keyspace.db_index(1 + thread as usize).unwrap();
                let mut random = Random::new(thread + 1);
                let mut locks = keyspace.locks();
                for _ in 0..TURNS {
                    turn(&mut locks, &mut random, private);
                }
            });
        }
    });
    assert_eq!(balance(&mut keyspace.locks()), START * ACCOUNTS as i64);
    flush_dbs(&mut keyspace.locks(), keyspace.db_indices(), Freeing::Now);
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
                    let mut locks = keyspace.locks();
                    for _ in 0..10 {
                        locks.db(DbIndex::ZERO, key.hash(), 0).increment(key, 1).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(started.into_inner(), THREADS);
    let total = keyspace.locks().db(DbIndex::ZERO, key.hash(), 0).increment(key, 0);
    assert_eq!(total, Ok((THREADS * (TURNS / 10 * 10)) as i64));
    assert_eq!(keyspace.stats().changes, THREADS * (TURNS / 10 * 10) + 1);
}

#[test]
fn a_transaction_runs_commands_that_lock_for_themselves() {
    let keyspace = Keyspace::new(Options { shards: 64, ..Options::default() }).unwrap();
    let hashes: Vec<_> = (0..4).map(|account| keyspace.hash(&name(account))).collect();
    let mut locks = keyspace.locks();
    let mut transaction = locks.lock_many(&hashes);
    for account in 0..4 {
        transfer(transaction.locks(), account, (account + 1) % 4, 7);
    }
    let outside = (4..).map(|account| keyspace.hash(&name(account)));
    let uncovered = outside.into_iter().find(|hash| !transaction.locks().covers(*hash));
    drop(transaction);
    assert!(locks.covers(uncovered.expect("four shards of 64 are locked")));
    for account in 0..4 {
        let name = name(account);
        let key = keyspace.key(&name);
        let value = locks.db(DbIndex::ZERO, key.hash(), 0).increment(key, 0);
        assert_eq!(value, Ok(0), "what came in went out");
    }
}

#[test]
#[should_panic(expected = "transaction has locked")]
fn a_key_outside_of_a_transaction_is_a_bug_that_shows() {
    let keyspace = Keyspace::new(Options { shards: 64, ..Options::default() }).unwrap();
    let inside = keyspace.hash(b"inside");
    let outside = (0..).map(|account| keyspace.hash(&name(account)));
    let mut locks = keyspace.locks();
    let mut transaction = locks.lock_many(&[inside]);
    let outside = outside.into_iter().find(|hash| !transaction.locks().covers(*hash)).unwrap();
    transaction.db(DbIndex::ZERO, outside, 0);
}
