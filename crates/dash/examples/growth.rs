//! Grows a table to ten million entries, checks that none is lost, and prints what it cost.
//!
//! `cargo run --release -p tierce-dash --example growth`
//!
//! Entries are 8-byte numbers whose hash is computed from themselves. Each line grows a new table to
//! that size, so that "ns per insert" contains all growth on the way; "worst" is the slowest single
//! insert. Lookups and removals go in an order unrelated to that of insertion.

use std::hint::black_box;
use std::time::{Duration, Instant};
use tierce_dash::Table;

const SIZES: [u64; 12] =
    [1, 14, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 1_000_000, 3_000_000, 10_000_000];

/// Lookups at each size, at least.
const LOOKUPS_MIN: u64 = 2_000_000;

/// Lookups that are prefetched together.
const BATCH: u64 = 16;

fn main() {
    println!(
        "{:>10} {:>12} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
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
        measure(size);
    }
    memory_over_sizes();
}

fn hash(number: &u64) -> u64 {
    let product = u128::from(number ^ 0x2D35_8DCC_AA6C_78A5) * 0x8BB8_4B93_962E_ACC9;
    product as u64 ^ (product >> 64) as u64
}

/// The `n`-th number of a sequence that visits all numbers below `size` in a scattered order, again
/// and again: the step is a prime larger than any size.
fn scattered(n: u64, size: u64) -> u64 {
    n.wrapping_mul(1_000_000_007) % size
}

fn measure(size: u64) {
    let repeat = LOOKUPS_MIN.div_ceil(size);
    let (table, insert_ns) = grow(size, (repeat / 20).max(1));
    assert_eq!(table.len() as u64, size);
    for number in 0..size {
        assert!(table.find(hash(&number), |entry| *entry == number).is_some(), "{number} is lost");
    }
    let bytes = table.memory_bytes() as f64 / size as f64;
    let worst = worst_insert(size);

    let lookups = repeat * size;
    let hit = nanos(lookups, || {
        for n in 0..lookups {
            let number = scattered(n, size);
            black_box(table.find(hash(&number), |entry| *entry == number));
        }
    });
    let batch = nanos(lookups, || {
        for start in (0..lookups).step_by(BATCH as usize) {
            let numbers = (start..start + BATCH).map(|n| scattered(n, size));
            numbers.clone().for_each(|number| table.prefetch(hash(&number)));
            for number in numbers {
                black_box(table.find(hash(&number), |entry| *entry == number));
            }
        }
    });
    let miss = nanos(lookups, || {
        for n in 0..lookups {
            let number = size + scattered(n, size);
            black_box(table.find(hash(&number), |entry| *entry == number));
        }
    });
    let remove = removal(table, size);
    println!(
        "{size:>10} {bytes:>12.2} {insert_ns:>10.1} {:>10.1} {hit:>10.1} {batch:>10.1} {miss:>10.1} {remove:>10.1}",
        worst.as_nanos() as f64 / 1e3
    );
}

fn grow(size: u64, repeat: u64) -> (Table<u64>, f64) {
    let mut table = Table::new();
    let insert = nanos(size * repeat, || {
        for _ in 0..repeat {
            table = Table::new();
            for number in 0..size {
                table.insert_unique(hash(&number), number, &hash);
            }
        }
    });
    (table, insert)
}

fn worst_insert(size: u64) -> Duration {
    let mut table = Table::new();
    let mut worst = Duration::ZERO;
    for number in 0..size {
        let start = Instant::now();
        table.insert_unique(hash(&number), number, &hash);
        worst = worst.max(start.elapsed());
    }
    worst
}

fn removal(mut table: Table<u64>, size: u64) -> f64 {
    let nanos = nanos(size, || {
        for n in 0..size {
            let number = scattered(n, size);
            black_box(table.remove(hash(&number), |entry| *entry == number, &hash));
        }
    });
    assert_eq!((table.len(), table.memory_bytes()), (0, 0));
    nanos
}

fn nanos(operations: u64, run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_nanos() as f64 / operations as f64
}

/// The range of bytes per entry within each doubling of the size: no valleys anywhere.
fn memory_over_sizes() {
    println!("\n{:>22} {:>22}", "entries", "bytes/entry (min-max)");
    let mut table = Table::new();
    let (mut low, mut high) = (f64::MAX, 0f64);
    let mut from = 1;
    for number in 0..1u64 << 20 {
        table.insert_unique(hash(&number), number, &hash);
        let bytes = table.memory_bytes() as f64 / table.len() as f64;
        (low, high) = (low.min(bytes), high.max(bytes));
        if table.len().is_power_of_two() {
            println!(
                "{:>22} {:>22}",
                format!("{from}-{}", table.len()),
                format!("{low:.2}-{high:.2}")
            );
            (low, high) = (f64::MAX, 0.0);
            from = table.len() + 1;
        }
    }
}
