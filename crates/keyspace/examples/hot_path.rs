//! Cost of the common operations when everything is in the cache.
//!
//! `cargo run --release -p tierce-keyspace --example hot_path`
//!
//! One thread, 1,000 keys of 16 bytes. Prints the best of many short rounds, in nanoseconds for
//! each operation, once with a lock for each request and once with the lock kept over a batch to
//! one key. Hashing is listed separately and included in all others.

use std::hint::black_box;
use std::time::Instant;

use tierce_keyspace::{DbIndex, Expiry, Keyspace, Options, ShardLocks};

const KEYS: usize = 1000;
const ROUNDS: usize = 300;
const NOW_MS: i64 = 1_700_000_000_000;

fn main() {
    let keyspace = Keyspace::new(Options::default()).expect("default options are good");
    let names: Vec<String> = (0..KEYS).map(|number| format!("key:{number:012}")).collect();
    let value = |len| vec![b'v'; len];
    let (short, middle) = (value(10), value(100));

    println!("{:28} {:>8} {:>8}", "ns", "any key", "one key");
    let report = |what: &str, operation: &mut dyn FnMut(&mut ShardLocks<'_>, &[u8])| {
        let any = best(&names, &keyspace, Choice::Any, operation);
        let one = best(&names, &keyspace, Choice::One, operation);
        println!("{what:28} {any:8.1} {one:8.1}");
    };
    report("hash", &mut |locks, name| {
        black_box(locks.keyspace().key(name));
    });
    report("hash and lock", &mut |locks, name| {
        let key = locks.keyspace().key(name);
        black_box(locks.db(DbIndex::ZERO, key.hash(), NOW_MS).now_ms());
    });
    for (what, value, expiry) in [
        ("10 bytes", &short, Expiry::Never),
        ("100 bytes", &middle, Expiry::Never),
        ("10 bytes with deadline", &short, Expiry::At(NOW_MS + 1000)),
    ] {
        report(&format!("set {what}"), &mut |locks, name| {
            let key = locks.keyspace().key(name);
            let mut db = locks.db(DbIndex::ZERO, key.hash(), NOW_MS);
            db.set(key, value, expiry).expect("short enough");
        });
        report(&format!("get {what}"), &mut |locks, name| {
            let key = locks.keyspace().key(name);
            let mut db = locks.db(DbIndex::ZERO, key.hash(), NOW_MS);
            let value = db.string(key).expect("a string").expect("it was set");
            black_box(value.bytes(&mut Default::default()));
        });
    }
    report("delete and set", &mut |locks, name| {
        let key = locks.keyspace().key(name);
        let mut db = locks.db(DbIndex::ZERO, key.hash(), NOW_MS);
        db.remove(key);
        db.set(key, &short, Expiry::Never).expect("short enough");
    });
    report("get of no key", &mut |locks, name| {
        let key = locks.keyspace().key(&name[1..]);
        let mut db = locks.db(DbIndex::ZERO, key.hash(), NOW_MS);
        assert!(db.string(key).expect("a string").is_none());
    });
    names.iter().for_each(|name| {
        let key = keyspace.key(name.as_bytes());
        let mut locks = keyspace.locks();
        let mut db = locks.db(DbIndex::ZERO, key.hash(), NOW_MS);
        db.set(key, "1000000", Expiry::Never).expect("short enough");
    });
    report("increment", &mut |locks, name| {
        let key = locks.keyspace().key(name);
        let mut db = locks.db(DbIndex::ZERO, key.hash(), NOW_MS);
        db.increment(key, 1).expect("an integer");
    });
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    Any,
    One,
}

/// The best round, in nanoseconds for each operation.
fn best(
    names: &[String],
    keyspace: &Keyspace,
    choice: Choice,
    operation: &mut dyn FnMut(&mut ShardLocks<'_>, &[u8]),
) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let mut locks = keyspace.locks();
        for name in names {
            let name = if choice == Choice::Any { name } else { &names[0] };
            operation(&mut locks, name.as_bytes());
        }
        drop(locks);
        best = best.min(began.elapsed().as_nanos() as f64 / names.len() as f64);
    }
    best
}
