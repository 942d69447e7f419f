//! Measures how compaction slows down writes and reads: `interference DIR [KEYS] [VALUE_LEN]
//! [THREADS] [SECONDS] [ROUNDS]`.
//!
//! A store is filled and then overwritten in random order, in turns with compaction off and on. The
//! garbage collected while it is off keeps it busy within its budget when it is on. Then the test
//! is repeated with reads in the foreground, while the garbage is compacted.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tierce_cask::{Db, IndexKind, Options, Stats};

#[derive(Clone, Copy)]
struct Load {
    keys: u64,
    value_len: usize,
    threads: u64,
    time: Duration,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let dir = arguments.first().ok_or("usage: interference DIR [KEYS] [VALUE_LEN] [THREADS] ..")?;
    let number =
        |at: usize, usual: u64| arguments.get(at).map_or(Ok(usual), |text| text.parse::<u64>());
    let load = Load {
        keys: number(1, 1_000_000)?.max(1),
        value_len: number(2, 100)? as usize,
        threads: number(3, 1)?,
        time: Duration::from_secs(number(4, 4)?),
    };
    let rounds = number(5, 3)?;
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        let dir = Path::new(dir).join(format!("{index:?}"));
        println!("{index:?}: {} keys, values of {} bytes", load.keys, load.value_len);
        let db = Db::open(&dir, options(index, false))?;
        for n in 0..load.keys {
            db.put(&key(n), &value(n, load.value_len))?;
        }
        db.close()?;
        for (what, operate) in [("overwrite", overwrite as Operation), ("get", get)] {
            let (mut off, mut on) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                off.push(measure(&dir, index, load, false, operate)?);
                if what == "get" {
                    // Garbage to compact during the next reads.
                    measure(&dir, index, load, false, overwrite)?;
                }
                on.push(measure(&dir, index, load, true, operate)?);
            }
            let (off, on) = (median(off), median(on));
            let drop = 100.0 * (1.0 - on / off);
            println!("  {what}: {off:.1} k/s, with compaction {on:.1} k/s, {drop:.1} % less");
        }
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(())
}

fn options(index: IndexKind, automatic: bool) -> Options {
    let mut options = Options { index, ..Options::default() };
    options.segment_size_bytes = 16 << 20;
    options.compaction.automatic = automatic;
    options.compaction.interval = Duration::from_millis(200);
    options
}

/// Returns the key with number `n`, 16 bytes in random order.
fn key(n: u64) -> [u8; 16] {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mixed.to_be_bytes());
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

fn value(n: u64, len: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(len + 8);
    let mut state = n;
    while value.len() < len / 2 {
        state = state.wrapping_mul(0xd6e8_feb8_6659_fd93).wrapping_add(1);
        value.extend_from_slice(&(state ^ (state >> 32)).to_le_bytes());
    }
    value.resize(len, b' ');
    value
}

type Operation = fn(&Db, u64, usize) -> tierce_cask::Result<()>;

fn overwrite(db: &Db, n: u64, value_len: usize) -> tierce_cask::Result<()> {
    db.put(&key(n), &value(n, value_len))
}

fn get(db: &Db, n: u64, value_len: usize) -> tierce_cask::Result<()> {
    assert_eq!(db.get(&key(n))?.map(|value| value.len()), Some(value_len));
    Ok(())
}

/// Returns thousands of operations per second.
fn measure(
    dir: &Path,
    index: IndexKind,
    load: Load,
    automatic: bool,
    operate: Operation,
) -> tierce_cask::Result<f64> {
    let db = Db::open(dir, options(index, automatic))?;
    let (start, done) = (Instant::now(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..load.threads {
            let (db, done) = (&db, &done);
            scope.spawn(move || {
                let (mut count, mut state) = (0, thread + 1);
                while count % 64 != 0 || start.elapsed() < load.time {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                    operate(db, (state >> 32) % load.keys, load.value_len).expect("it works");
                    count += 1;
                }
                done.fetch_add(count, Ordering::Relaxed);
            });
        }
    });
    let rate = done.into_inner() as f64 / start.elapsed().as_secs_f64() / 1e3;
    if automatic {
        tell(&db.stats(), start.elapsed());
    }
    db.close()?;
    Ok(rate)
}

fn tell(stats: &Stats, time: Duration) {
    println!(
        "    {} segments compacted, {:.1} MB/s moved; space amplification {:.2}",
        stats.compactions,
        stats.bytes_compacted as f64 / time.as_secs_f64() / 1e6,
        stats.space_amplification(),
    );
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
