//! RocksDB, by way of its own load generator `db_bench`, whose output is read.
//!
//! With one thread it can fill in random order with every key once, like the others. With several
//! it draws keys at random, so some come twice and about 37 % of those read later do not exist,
//! which costs it less than finding them.

use crate::phase::{Outcome, Phase, Who, cpu_seconds, disk_bytes, rss_max_bytes};
use crate::shape::Shape;
use crate::store::{CACHE_BYTES, Result};
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

pub const NAME: &str = "rocksdb";
pub const SETTINGS: &str = "db_bench, snappy where compressed, 10 bits of filter a key, each write \
    handed to the operating system; Debian builds it with assertions, which slow it down";

/// How often the generator's memory is looked at.
const LOOK: Duration = Duration::from_millis(20);

pub fn is_installed() -> bool {
    let mut version = Command::new("db_bench");
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

fn benchmark(shape: &Shape, phase: Phase) -> &'static str {
    match phase {
        Phase::Fill if shape.threads == 1 => "filluniquerandom",
        Phase::Fill => "fillrandom",
        Phase::Get => "readrandom",
        Phase::Scan => "readseq",
    }
}

pub fn run(dir: &Path, shape: &Shape, phase: Phase) -> Result<Outcome> {
    let benchmark = benchmark(shape, phase);
    let compression = if shape.is_compressed { "snappy" } else { "none" };
    // Keys are drawn below `num`; `writes` and `reads` are those of each thread. A scan ends where
    // the store does.
    let each = shape.records.div_ceil(shape.threads);
    let reads = if phase == Phase::Scan { shape.records } else { each };
    let mut child = Command::new("db_bench")
        .arg(format!("--benchmarks={benchmark}"))
        .arg(format!("--use_existing_db={}", phase != Phase::Fill))
        .arg(format!("--db={}", dir.display()))
        .arg(format!("--num={}", shape.records))
        .arg(format!("--writes={each}"))
        .arg(format!("--reads={reads}"))
        .arg(format!("--threads={}", shape.threads))
        .arg(format!("--key_size={}", shape.key_len))
        .arg(format!("--value_size={}", shape.value_len))
        .arg(format!("--compression_type={compression}"))
        .arg(format!("--cache_size={CACHE_BYTES}"))
        .args(["--bloom_bits=10", "--compression_ratio=0.5", "--stats_interval=1000000000"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut rss_max: f64 = 0.0;
    let mut pipe = child.stdout.take().ok_or("no output")?;
    // Reading on another thread, so that a full pipe stops no writer.
    let reader = std::thread::spawn(move || {
        let mut output = String::new();
        pipe.read_to_string(&mut output).map(|_| output)
    });
    let status = loop {
        // The process may end between the two calls; what was seen before then stands.
        rss_max = rss_max.max(rss_max_bytes(child.id()).unwrap_or(0.0));
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(LOOK);
    };
    let output = reader.join().map_err(|_| "the reader of db_bench died")??;
    if !status.success() {
        return Err(format!("db_bench failed: {status}\n{output}").into());
    }
    let (ops, seconds) = read_result(&output, benchmark).ok_or("db_bench printed no result")?;
    Ok(Outcome {
        ops,
        seconds,
        cpu_seconds: cpu_seconds(Who::Children)?,
        open_seconds: 0.0,
        close_seconds: 0.0,
        rss_max_bytes: rss_max,
        disk_bytes: disk_bytes(dir)?,
    })
}

/// Operations and seconds from a line like
/// `fillrandom   :       4.692 micros/op 213102 ops/sec 0.469 seconds 100000 operations; ...`.
fn read_result(output: &str, benchmark: &str) -> Option<(f64, f64)> {
    let line =
        output.lines().find(|line| line.starts_with(benchmark) && line.contains(" ops/sec"))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let before = |unit: &str| {
        let at = words.iter().position(|word| word.trim_end_matches(';') == unit)?;
        words.get(at.checked_sub(1)?)?.parse::<f64>().ok()
    };
    Some((before("operations")?, before("operations")? / before("ops/sec")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_line_is_read() {
        let output = "RocksDB:    version 7.8.3\nfillrandom   :       4.692 micros/op 213102 ops/sec \
            0.469 seconds 100000 operations;   23.6 MB/s\n";
        let (ops, seconds) = read_result(output, "fillrandom").unwrap();
        assert_eq!(ops, 100_000.0);
        assert!((seconds - 0.46926).abs() < 1e-4);
        assert_eq!(read_result(output, "readseq"), None);
    }
}
