//! Hit ratios of the eviction policies, compared with well-known algorithms.
//!
//! `cargo run --release -p tierce-keyspace --example hit_ratio [entries]`
//!
//! A cache of this many entries is asked for keys, and given those that it did not have. The last
//! two thirds of the requests count. The workloads have ten times as many keys as entries fit:
//!
//! - `zipf`: popularity by Zipf's law with exponent 0.99
//! - `flat`: the same with 0.7
//! - `mixed`: two thirds `zipf`, one third keys that are requested only once
//! - `bursts`: `zipf`, and sometimes a run of one-time keys, twice as many as entries fit
//! - `moving`: `zipf`, and other keys become popular after every eighth of the time
//!
//! The simulated rate is 50,000 requests a second. Rows in capitals are the engine; the others are
//! textbook algorithms with exact lists, for comparison. `cargo xtask hit-ratio` measures
//! redis-server with such requests.

mod textbook;
mod workload;

use tierce_keyspace::{DbIndex, Eviction, Expiry, Keyspace, Options, Policy, evict};

use textbook::{Lru, S3Fifo, Sieve};
use workload::{WORKLOADS, Workload};

const REQUESTS_PER_SECOND: usize = 50_000;
const START_MS: i64 = 1_700_000_000_000;

/// Something that holds keys up to a limit.
trait Cache {
    /// Asks for a key, and adds it if absent. Returns true if it was present.
    fn ask(&mut self, key: u64, now_ms: i64) -> bool;
}

fn main() {
    let entries = std::env::args().nth(1).map_or(20_000, |text| text.parse().expect("a number"));
    print!("{:16}", "");
    WORKLOADS.iter().for_each(|workload| print!("{:>8}", workload.name));
    println!();
    let policies = [Policy::AllkeysLru, Policy::AllkeysLfu, Policy::AllkeysRandom];
    for policy in policies {
        let engine = || Box::new(Engine::new(entries, policy)) as Box<dyn Cache>;
        report(&policy.name().to_uppercase(), entries, &engine);
    }
    report("lru, exact", entries, &|| Box::new(Lru::new(entries)));
    report("sieve", entries, &|| Box::new(Sieve::new(entries)));
    report("s3-fifo", entries, &|| Box::new(S3Fifo::new(entries)));
}

fn report(name: &str, entries: usize, cache: &dyn Fn() -> Box<dyn Cache>) {
    print!("{name:16}");
    for workload in &WORKLOADS {
        print!("{:>7.1}%", hit_percent(&mut *cache(), workload, entries));
    }
    println!();
}

fn hit_percent(cache: &mut dyn Cache, workload: &Workload, entries: usize) -> f64 {
    let requests = workload.requests(entries);
    let warm = requests.len() / 3;
    let mut hits = 0;
    for (number, key) in requests.iter().enumerate() {
        let now_ms = START_MS + (number * 1000 / REQUESTS_PER_SECOND) as i64;
        let is_hit = cache.ask(*key, now_ms);
        hits += usize::from(is_hit && number >= warm);
    }
    hits as f64 * 100.0 / (requests.len() - warm) as f64
}

/// The keyspace with a limit that holds that many entries.
struct Engine {
    keyspace: Keyspace,
}

impl Engine {
    fn new(entries: usize, policy: Policy) -> Self {
        let keyspace = Keyspace::new(Options::default()).expect("default options are good");
        let engine = Self { keyspace };
        for key in 0..entries as u64 {
            engine.ask_at(key, START_MS);
        }
        let limit_bytes = engine.keyspace.memory().total();
        engine.keyspace.set_eviction(&Eviction { limit_bytes, policy, ..Eviction::default() });
        engine
    }

    fn ask_at(&self, key: u64, now_ms: i64) -> bool {
        let name = key.to_be_bytes();
        let key = self.keyspace.key(&name);
        let mut locks = self.keyspace.locks();
        if locks.db(DbIndex::ZERO, key.hash(), now_ms).get(key).unwrap().is_some() {
            return true;
        }
        while self.keyspace.is_short_of_memory() {
            evict(&mut locks, now_ms, 1);
        }
        let mut db = locks.db(DbIndex::ZERO, key.hash(), now_ms);
        db.set(key, &[b'v'; 16], Expiry::Never).expect("a short key and value");
        false
    }
}

impl Cache for Engine {
    fn ask(&mut self, key: u64, now_ms: i64) -> bool {
        self.ask_at(key, now_ms)
    }
}
