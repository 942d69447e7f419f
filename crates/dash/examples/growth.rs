//! Grows tables to ten million entries, checks that none is lost, and prints the cost.
//!
//! `cargo run --release -p tierce-dash --example growth`
//!
//! Entries are 8-byte numbers whose hash is computed from the number, unless noted otherwise.
//! Lookups and removals use an order unrelated to that of insertion. Each figure includes the
//! computation of the hash and of that order, about 3 ns.

use std::hint::black_box;
use std::time::{Duration, Instant};
use tierce_dash::{EntryHash, Snapshot, Table, prefetch_read};

const SIZES: [u64; 10] =
    [14, 100, 300, 1_000, 3_000, 10_000, 100_000, 1_000_000, 3_000_000, 10_000_000];

/// Minimum number of operations at each size.
const OPERATIONS_MIN: u64 = 2_000_000;

/// Lookups that are prefetched together.
const BATCH: u64 = 16;

/// Number of runs, of which the best counts: other programs only ever slow a run down.
const RUNS: u32 = 2;

fn main() {
    costs_by_size();
    memory_within_doublings();
    inserts_behind_pointers();
    snapshot_while_writing();
}

fn hash(number: &u64) -> u64 {
    let product = u128::from(number ^ 0x2D35_8DCC_AA6C_78A5) * 0x8BB8_4B93_962E_ACC9;
    product as u64 ^ (product >> 64) as u64
}

fn find(table: &Table<u64>, number: u64) -> Option<&u64> {
    table.find(hash(&number), |entry| *entry == number)
}

fn grow(size: u64) -> Table<u64> {
    let mut table = Table::new();
    for number in 0..size {
        table.insert_unique(hash(&number), number, &hash);
    }
    table
}

/// Returns the `n`-th of a sequence that visits all numbers below `size` in a scattered order,
/// again and again: the step is a prime larger than any size.
fn scattered(n: u64, size: u64) -> u64 {
    n.wrapping_mul(1_000_000_007) % size
}

/// Returns the nanoseconds per operation, in the best of several runs.
fn best_nanos(operations: u64, mut run: impl FnMut() -> Duration) -> f64 {
    let best = (0..RUNS).map(|_| run()).min().expect("there is a run");
    best.as_nanos() as f64 / operations as f64
}

fn time(run: impl FnOnce()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

/// Prints a line for each size. A new table is grown to it, so "insert" includes all growth on the
/// way; "worst" is the slowest single insert.
fn costs_by_size() {
    println!(
        "{:>10} {:>12} {:>10} {:>10} {:>8} {:>8} {:>8} {:>10}",
        "entries",
        "bytes/entry",
        "insert ns",
        "worst us",
        "hit ns",
        "batch ns",
        "miss ns",
        "remove ns"
    );
    for size in SIZES {
        let tables = OPERATIONS_MIN.div_ceil(size);
        let insert = best_nanos(size * tables, || {
            time(|| (0..tables).for_each(|_| drop(black_box(grow(size)))))
        });
        let table = grow(size);
        assert!((0..size).all(|number| find(&table, number).is_some()), "an entry is lost");
        println!(
            "{size:>10} {:>12.2} {insert:>10.1} {:>10.1} {:>8.1} {:>8.1} {:>8.1} {:>10.1}",
            table.memory_bytes() as f64 / size as f64,
            worst_insert_us(size),
            lookup(size, |n| _ = black_box(find(&table, scattered(n, size)))),
            lookup(size.next_multiple_of(BATCH), |n| find_in_batches(&table, n, size)),
            lookup(size, |n| _ = black_box(find(&table, size + scattered(n, size)))),
            removal(size, tables),
        );
    }
}

/// Returns the time of the worst insert. The runs repeat the same inserts, and of each insert the
/// best run counts.
fn worst_insert_us(size: u64) -> f64 {
    let mut best = vec![Duration::MAX; size as usize];
    for _ in 0..RUNS {
        let mut table = Table::new();
        for (number, best) in (0..).zip(&mut best) {
            let took = time(|| _ = table.insert_unique(hash(&number), number, &hash));
            *best = took.min(*best);
        }
    }
    best.into_iter().max().unwrap_or_default().as_nanos() as f64 / 1000.0
}

fn lookup(size: u64, mut find: impl FnMut(u64)) -> f64 {
    let lookups = OPERATIONS_MIN.next_multiple_of(size);
    best_nanos(lookups, || time(|| (0..lookups).for_each(&mut find)))
}

/// Looks up a whole batch when `n` is its first number.
fn find_in_batches(table: &Table<u64>, n: u64, size: u64) {
    if n.is_multiple_of(BATCH) {
        let numbers = (n..n + BATCH).map(|n| scattered(n, size));
        numbers.clone().for_each(|number| table.prefetch(hash(&number)));
        numbers.for_each(|number| _ = black_box(find(table, number)));
    }
}

fn removal(size: u64, tables: u64) -> f64 {
    let remove_all = |mut table: Table<u64>| {
        for number in (0..size).map(|n| scattered(n, size)) {
            black_box(table.remove(hash(&number), |entry| *entry == number, &hash));
        }
        assert_eq!((table.len(), table.memory_bytes()), (0, 0));
    };
    let run = || {
        let filled: Vec<_> = (0..tables.min(1000)).map(|_| grow(size)).collect();
        time(|| filled.into_iter().for_each(remove_all))
    };
    best_nanos(size * tables.min(1000), run)
}

/// Prints the range of bytes per entry within each doubling of the size, to show that no size is
/// wasteful.
fn memory_within_doublings() {
    println!("\n{:>22} {:>22}", "entries", "bytes/entry (min-max)");
    let mut table = Table::new();
    let (mut low, mut high) = (f64::MAX, 0f64);
    let mut from = 1;
    for number in 0..1u64 << 20 {
        table.insert_unique(hash(&number), number, &hash);
        let bytes = table.memory_bytes() as f64 / table.len() as f64;
        (low, high) = (low.min(bytes), high.max(bytes));
        if table.len().is_power_of_two() {
            let entries = format!("{from}-{}", table.len());
            println!("{entries:>22} {:>22}", format!("{low:.2}-{high:.2}"));
            (low, high) = (f64::MAX, 0.0);
            from = table.len() + 1;
        }
    }
}

/// Records of a cache line; entries are their indices, and computing a hash costs a cache miss.
type Records = [[u64; 8]];

struct Unannounced<'a>(&'a Records);

impl EntryHash<u64> for Unannounced<'_> {
    fn hash(&self, entry: &u64) -> u64 {
        hash(&self.0[*entry as usize][0])
    }
}

struct Announced<'a>(&'a Records);

impl EntryHash<u64> for Announced<'_> {
    fn hash(&self, entry: &u64) -> u64 {
        hash(&self.0[*entry as usize][0])
    }

    fn prefetch(&self, entry: &u64) {
        prefetch_read(&self.0[*entry as usize]);
    }
}

fn inserts_behind_pointers() {
    let size = 1_000_000;
    let records: Vec<[u64; 8]> = (0..size).map(|number| [number; 8]).collect();
    println!("\nns per insert of {size} entries whose hash is read from a record of 64 bytes:");
    println!("{:>22} {:>10.1}", "no prefetch", insert_nanos(size, &Unannounced(&records)));
    println!("{:>22} {:>10.1}", "prefetch", insert_nanos(size, &Announced(&records)));
}

fn insert_nanos(size: u64, hasher: &impl EntryHash<u64>) -> f64 {
    best_nanos(size, || {
        let mut table = Table::new();
        time(|| {
            for number in (0..size).map(|n| scattered(n, size)) {
                table.insert_unique(hash(&number), number, hasher);
            }
        })
    })
}

/// Measures a snapshot that advances by a bucket at every sixth write to a random entry.
fn snapshot_while_writing() {
    let size = 1_000_000;
    let table = grow(size);
    let (mut writes, mut most, mut saved) = (0, 0, 0);
    let mut snapshot = Snapshot::begin();
    let took = time(|| {
        while !snapshot.is_complete() {
            let number = scattered(writes, size);
            snapshot.before_change(&table, hash(&number), &hash, |_| saved += 1);
            if writes.is_multiple_of(6) {
                snapshot.advance(&table, &hash, |_| saved += 1);
                most = most.max(snapshot.interval_count());
            }
            writes += 1;
        }
    });
    assert_eq!(saved, size);
    println!("\nsnapshot of {size} entries during {writes} writes:");
    println!("{:>22} {:>10.1}", "ns a write", took.as_nanos() as f64 / writes as f64);
    println!("{:>22} {most:>10}", "intervals at most");
}
