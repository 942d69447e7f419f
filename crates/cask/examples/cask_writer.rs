//! Writes until it is killed, and reports acknowledged writes on standard output.
//!
//! `cask_writer DIR ROUND INDEX`: four threads overwrite and delete keys of their own and print
//! `thread step key value` after each write that returned; a value of `-` is a deletion. The test
//! `survives_kill` kills it and compares.

use std::io::Write as _;
use std::time::Duration;
use tierce_cask::{CompactionOptions, Db, IndexKind, Options, SyncPolicy};

const THREADS: u64 = 4;
const KEYS: u64 = 50;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("usage: cask_writer DIR ROUND INDEX");
    let (dir, round, index) = (next()?, next()?.parse::<u64>()?, next()?);
    let options = Options {
        index: if index == "hash" { IndexKind::Hash } else { IndexKind::Ordered },
        shards: Some(3),
        segment_size_bytes: 32 << 10,
        // Blocks of an eighth of it: each kill meets the tail at a different offset.
        tail_bytes: 4 << 10 << (round % 5),
        sync: SyncPolicy::Every(Duration::from_millis(5)),
        compaction: CompactionOptions {
            garbage_ratio: 0.3,
            interval: Duration::from_millis(3),
            bytes_per_second: 0,
            ..CompactionOptions::default()
        },
        ..Options::default()
    };
    let db = Db::open(dir, options)?;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let db = &db;
            scope.spawn(move || write(db, round, thread));
        }
    });
    Ok(())
}

fn write(db: &Db, round: u64, thread: u64) {
    for step in 0u64.. {
        let n = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let key = format!("{thread}:{}", n % KEYS);
        let value = if n % 5 == 0 {
            db.delete(key.as_bytes()).expect("deleting works");
            "-".to_owned()
        } else {
            let value = format!("{round}.{step}.{}", "x".repeat((n % 300) as usize));
            db.put(key.as_bytes(), value.as_bytes()).expect("putting works");
            value
        };
        // One write call per line, so that the output is whole lines, except perhaps the last.
        let line = format!("{thread} {step} {key} {value}\n");
        std::io::stdout().lock().write_all(line.as_bytes()).expect("the test is listening");
    }
}
