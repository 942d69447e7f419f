//! How the keyspace scales with threads, and what prefetching a batch gains.
//!
//! `cargo run --release -p tierce-keyspace --example threads [keys] [threads] [batch]`
//!
//! Each thread takes batches of uniformly distributed keys, nine reads to one overwrite, as a
//! server's worker would: hash, prefetch, execute, release. Reported are nanoseconds of one thread
//! per operation, and the throughput of all threads as a multiple of that of one.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use tierce_keyspace::{DbIndex, Expiry, Key, Keyspace, Options};

const RUN: Duration = Duration::from_secs(2);
const VALUE: [u8; 100] = [b'v'; 100];
const KEY_LEN: usize = 16;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let keys: u64 = arguments.next().unwrap_or(1_000_000);
    let threads = arguments.next().unwrap_or(2) as usize;
    let batch = arguments.next().unwrap_or(16) as usize;

    let keyspace = Keyspace::new(Options::default()).expect("default options are good");
    let began = Instant::now();
    for number in 0..keys {
        let name = name(number);
        let key = keyspace.key(&name);
        let mut locker = keyspace.locker();
        let mut db = locker.db(DbIndex::ZERO, key.hash(), 0);
        db.set(key, &VALUE, Expiry::Never).expect("a short key and value");
    }
    let fill = began.elapsed().as_nanos() as u64 / keys;
    let memory = keyspace.memory();
    let overhead = memory.total() as f64 / keys as f64 - (KEY_LEN + VALUE.len()) as f64;
    println!("{keys} keys: {fill} ns each to add, {overhead:.1} bytes each above key and value");

    for prefetch in [Prefetch::No, Prefetch::Yes] {
        let one = run(&keyspace, keys, 1, batch, prefetch);
        let all = run(&keyspace, keys, threads, batch, prefetch);
        println!(
            "prefetch {prefetch:?}: 1 thread {:.1} ns; {threads} threads {:.1} ns each, {:.2} times",
            1e9 / one,
            1e9 * threads as f64 / all,
            all / one
        );
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prefetch {
    Yes,
    No,
}

/// Operations a second of all threads together.
fn run(keyspace: &Keyspace, keys: u64, threads: usize, batch: usize, prefetch: Prefetch) -> f64 {
    let start = Barrier::new(threads);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads as u64)
            .map(|seed| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    work(keyspace, keys, seed, batch, prefetch)
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).sum()
    })
}

/// Operations a second of this thread.
fn work(keyspace: &Keyspace, keys: u64, seed: u64, batch: usize, prefetch: Prefetch) -> f64 {
    let mut random = Random(seed + 1);
    let mut names = vec![[0; KEY_LEN]; batch];
    let mut announced = Vec::with_capacity(batch);
    let (began, mut done) = (Instant::now(), 0u64);
    while began.elapsed() < RUN {
        names.iter_mut().for_each(|slot| *slot = name(random.below(keys)));
        let hashed: Vec<Key<'_>> = names.iter().map(|name| keyspace.key(name)).collect();
        let mut locker = keyspace.locker();
        if prefetch == Prefetch::Yes {
            announced.clear();
            announced.extend(hashed.iter().map(|key| (DbIndex::ZERO, key.hash())));
            locker.prefetch(&announced);
        }
        for &key in &hashed {
            let mut db = locker.db(DbIndex::ZERO, key.hash(), 0);
            if random.below(10) == 0 {
                db.set(key, &VALUE, Expiry::Never).expect("a short key and value");
            } else {
                let value = db.string(key).expect("all are strings").expect("all keys exist");
                black_box(value.bytes(&mut Default::default()).last());
            }
        }
        done += batch as u64;
    }
    done as f64 / began.elapsed().as_secs_f64()
}

fn name(number: u64) -> [u8; KEY_LEN] {
    let mut name = *b"key:000000000000";
    let mut rest = number;
    for digit in name[4..].iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    name
}

/// xorshift64*: quick, and random enough to choose keys.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let random = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D);
        ((u128::from(random) * u128::from(limit)) >> 64) as u64
    }
}
