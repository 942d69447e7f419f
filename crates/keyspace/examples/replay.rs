//! Cost of loading a log.
//!
//! `cargo run --release -p tierce-keyspace --example replay -- DIR [threads]`, where `DIR` is the
//! directory `wal` of a server that has ended, or a copy of it.
//!
//! Prints the time, the processor time of the dispatching thread, and that of the loaders. All of
//! the log should be in the page cache: run it twice.

use std::fs::read_to_string;
use std::sync::Arc;
use std::time::Instant;

use tierce_keyspace::log::Replay;
use tierce_keyspace::{Keyspace, Options};
use tierce_storage::disk::OsDisk;
use tierce_storage::{Wal, WalOptions};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = args.next().expect("the directory of a log");
    let threads = args.next().map_or(2, |text| text.parse().expect("a number of threads"));
    let keyspace = Arc::new(Keyspace::new(Options::default()).expect("defaults are possible"));
    let begun = Instant::now();
    let mut replay = Replay::start(Arc::clone(&keyspace), threads, 0).expect("threads");
    let take = |record: &[u8]| replay.record(record).map_err(|error| error.to_string());
    let (_wal, found) =
        Wal::open_on(Arc::new(OsDisk), dir, WalOptions::default(), take).expect("a log");
    let reading = cpu_seconds("/proc/thread-self/schedstat");
    let done = replay.finish().expect("a log of a server");
    let seconds = begun.elapsed().as_secs_f64();
    let keys: u64 = keyspace.db_indices().map(|db| keyspace.len(db)).sum();
    let all = process_cpu_seconds();
    println!(
        "{keys} keys of {} operations, {} MB: {seconds:.2} s; CPU {all:.2} s, of which {reading:.2} s \
         reading and {:.2} s loading",
        done.operations,
        found.bytes / 1_000_000,
        all - reading
    );
    // The memory is not freed before the end.
    std::process::exit(0);
}

/// The first figure of such a file, in nanoseconds.
fn cpu_seconds(path: &str) -> f64 {
    let text = read_to_string(path).unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// Of all threads, ended ones included.
fn process_cpu_seconds() -> f64 {
    const TICKS: f64 = 100.0;
    let text = read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS
}
