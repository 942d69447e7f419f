//! Scaling of the keyspace with threads, and the gain of prefetching a batch.
//!
//! `cargo run --release -p tierce-keyspace --example threads [keys] [threads] [rounds]`
//!
//! Each thread processes batches of requests like a server's worker, nine reads to one overwrite:
//! hash, prefetch, execute, release. Two workloads: uniformly distributed keys in batches of 16,
//! and one hot key in batches of 200 with other work between the batches, like receiving and
//! sending. Single-threaded and multi-threaded rounds alternate, and the best round of each counts,
//! so that other load on the machine matters little. Prints nanoseconds of one thread for each
//! operation, by the clock and by processor time.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use tierce_keyspace::{DbIndex, Expiry, Key, Keyspace, Options};

const ROUND: Duration = Duration::from_millis(250);
const VALUE: [u8; 100] = [b'v'; 100];
const KEY_LEN: usize = 16;

#[derive(Debug, Clone, Copy)]
struct Workload {
    keys: u64,
    batch: usize,
    prefetch: bool,
    /// Nanoseconds of other work between two batches.
    between: u64,
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let keys: u64 = arguments.next().unwrap_or(1_000_000);
    let threads = arguments.next().unwrap_or(2) as usize;
    let rounds = arguments.next().unwrap_or(20);

    let keyspace = Keyspace::new(Options::default()).expect("default options are good");
    let fill = fill(&keyspace, keys);
    let memory = keyspace.memory();
    let overhead = memory.total() as f64 / keys as f64 - (KEY_LEN + VALUE.len()) as f64;
    println!("{keys} keys: {fill} ns each to add, {overhead:.1} bytes each above key and value");

    let uniform = Workload { keys, batch: 16, prefetch: false, between: 0 };
    let hot = Workload { keys: 1, batch: 200, prefetch: false, between: 0 };
    for (name, workload) in [
        ("uniform", uniform),
        ("uniform, prefetched", Workload { prefetch: true, ..uniform }),
        ("hot key", hot),
        ("hot key, 15 us between", Workload { between: 15_000, ..hot }),
    ] {
        let (mut one, mut all) = (Speed::default(), Speed::default());
        for _ in 0..rounds {
            one.keep_best(run(&keyspace, workload, 1));
            all.keep_best(run(&keyspace, workload, threads));
        }
        println!(
            "{name:24} 1 thread {:6.1} ns, processor {:6.1}; {threads} threads {:6.1} ns, processor {:6.1}; {:.2} times",
            1e9 / one.per_second,
            one.processor_ns,
            1e9 * threads as f64 / all.per_second,
            all.processor_ns,
            all.per_second / one.per_second,
        );
    }
}

/// Nanoseconds to add a key.
fn fill(keyspace: &Keyspace, keys: u64) -> u64 {
    let began = Instant::now();
    for number in 0..keys {
        let name = name(number);
        let key = keyspace.key(&name);
        let mut locks = keyspace.locks();
        let mut db = locks.db(DbIndex::ZERO, key.hash(), 0);
        db.set(key, &VALUE, Expiry::Never).expect("a short key and value");
    }
    began.elapsed().as_nanos() as u64 / keys
}

/// Result of a round of all threads.
#[derive(Debug, Clone, Copy)]
struct Speed {
    /// Operations a second of all threads together.
    per_second: f64,
    /// Processor time for one operation.
    processor_ns: f64,
}

impl Default for Speed {
    fn default() -> Self {
        Self { per_second: 0.0, processor_ns: f64::INFINITY }
    }
}

impl Speed {
    fn keep_best(&mut self, other: Self) {
        self.per_second = self.per_second.max(other.per_second);
        self.processor_ns = self.processor_ns.min(other.processor_ns);
    }
}

fn run(keyspace: &Keyspace, workload: Workload, threads: usize) -> Speed {
    let start = Barrier::new(threads);
    let work = |seed| {
        start.wait();
        work(keyspace, workload, seed)
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (1..=threads as u64).map(|seed| scope.spawn(move || work(seed))).collect();
        let speeds = workers.into_iter().map(|worker| worker.join().expect("no panic"));
        speeds.fold(Speed { per_second: 0.0, processor_ns: 0.0 }, |sum, speed| Speed {
            per_second: sum.per_second + speed.per_second,
            processor_ns: sum.processor_ns + speed.processor_ns / threads as f64,
        })
    })
}

fn work(keyspace: &Keyspace, workload: Workload, seed: u64) -> Speed {
    let mut random = Random(seed);
    let mut names = vec![[0; KEY_LEN]; workload.batch];
    let mut announced = Vec::with_capacity(workload.batch);
    let (began, processor_ns, mut done) = (Instant::now(), processor_ns(), 0u64);
    let mut between_ns = 0;
    while began.elapsed() < ROUND {
        names.iter_mut().for_each(|slot| *slot = name(random.below(workload.keys)));
        let mut locks = keyspace.locks();
        if workload.prefetch {
            announced.clear();
            announced.extend(names.iter().map(|name| (DbIndex::ZERO, keyspace.hash(name))));
            locks.prefetch(announced.iter().copied());
        }
        for name in &names {
            let key = keyspace.key(name);
            execute(&mut locks.db(DbIndex::ZERO, key.hash(), 0), key, random.below(10) == 0);
        }
        locks.release();
        done += workload.batch as u64;
        if workload.between > 0 {
            let pause = Instant::now();
            while pause.elapsed().as_nanos() < u128::from(workload.between) {
                std::hint::spin_loop();
            }
            between_ns += workload.between;
        }
    }
    let spent_ns = self::processor_ns() - processor_ns;
    Speed {
        per_second: done as f64 / began.elapsed().as_secs_f64(),
        processor_ns: spent_ns.saturating_sub(between_ns) as f64 / done as f64,
    }
}

fn execute(db: &mut tierce_keyspace::Db<'_>, key: Key<'_>, write: bool) {
    if write {
        db.set(key, &VALUE, Expiry::Never).expect("a short key and value");
    } else {
        let value = db.string(key).expect("all are strings").expect("all keys exist");
        black_box(value.bytes(&mut Default::default()).last());
    }
}

/// Processor time of this thread so far.
fn processor_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
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
