//! Prints figures: `measure DIR [KEYS] [WHAT]`, where WHAT is open-hash, open-ordered, compaction,
//! large, small, durable, or write followed by the bytes of a tail. It measures the file system of
//! the directory, with a warm page cache; for cold reads see the race.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tierce_cask::{Compression, Db, IndexKind, Options, SyncPolicy};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("usage: measure DIR [KEYS]")?;
    let keys: u64 = arguments.next().map_or(Ok(1_000_000), |keys| keys.parse())?;
    let dir = Path::new(&dir);
    match arguments.next().as_deref() {
        Some("small") => {
            for index in [IndexKind::Hash, IndexKind::Ordered] {
                let dir = dir.join(format!("small-{index:?}"));
                small_values(&dir, index, Compression::default(), keys)?;
            }
            return Ok(());
        }
        Some("open-hash") => return Ok(opening(dir, IndexKind::Hash, keys)?),
        Some("open-ordered") => return Ok(opening(dir, IndexKind::Ordered, keys)?),
        Some("compaction") => return Ok(compaction(dir, keys)?),
        Some("large") => return Ok(large_values(dir, keys)?),
        Some("write") => {
            let tail = arguments.next().map(|bytes| bytes.parse()).transpose()?;
            return writing(dir, keys, tail);
        }
        Some("durable") => {
            for writers in [1, 64] {
                durable_writes(&dir.join(format!("durable-{writers}")), writers)?;
            }
            return Ok(());
        }
        _ => {}
    }
    for compression in [Compression::None, Compression::Snappy, Compression::Lz4] {
        small_values(
            &dir.join(format!("small-{compression:?}")),
            IndexKind::Hash,
            compression,
            keys,
        )?;
    }
    small_values(&dir.join("small-ordered"), IndexKind::Ordered, Compression::Lz4, keys)?;
    large_values(&dir.join("large"), keys / 8)?;
    for writers in [1, 64] {
        durable_writes(&dir.join(format!("durable-{writers}")), writers)?;
    }
    Ok(())
}

/// Returns the key with number `n`: random order, 16 bytes.
fn key(n: u64) -> [u8; 16] {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mixed.to_be_bytes());
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

/// 100 bytes, about half of them compressible.
fn value(n: u64) -> [u8; 100] {
    let mut value = [b' '; 100];
    for (i, chunk) in value[..48].chunks_mut(8).enumerate() {
        chunk.copy_from_slice(&n.wrapping_mul(0xd6e8_feb8_6659_fd93 + i as u64).to_le_bytes());
    }
    value
}

fn report(what: &str, count: u64, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    println!("  {what}: {:.2} k/s, {seconds:.2} s", count as f64 / seconds / 1e3);
}

fn small_values(
    dir: &Path,
    index: IndexKind,
    compression: Compression,
    keys: u64,
) -> tierce_cask::Result<()> {
    println!("{keys} keys of 16 bytes, values of 100, {index:?}, {compression:?}, 1 thread");
    let options = Options { index, compression, sync: SyncPolicy::None, ..Options::default() };
    let db = Db::open(dir, options.clone())?;
    let start = Instant::now();
    for n in 0..keys {
        db.put(&key(n), &value(n))?;
    }
    report("random fill", keys, start);
    let start = Instant::now();
    for n in 0..keys {
        let n = n.wrapping_mul(7_368_787) % keys;
        let found = db.get(&key(n))?.map(|found| *found == value(n));
        assert_eq!(found, Some(true), "key {n}");
    }
    report("random get", keys, start);
    let start = Instant::now();
    let mut count = 0;
    for item in db.iter() {
        count += u64::from(item?.1.value.len() == 100);
    }
    assert_eq!(count, keys);
    report("scan", keys, start);
    let start = Instant::now();
    for n in 0..keys / 4 {
        db.put(&key(n * 4), &value(n * 4))?;
    }
    report("overwrite", keys / 4, start);
    let start = Instant::now();
    db.close()?;
    println!("  close: {:.2} s", start.elapsed().as_secs_f64());
    let start = Instant::now();
    let db = Db::open(dir, options)?;
    println!("  open with hint files: {:.2} s", start.elapsed().as_secs_f64());
    let stats = db.stats();
    println!(
        "  index: {:.2} bytes a key; disk: {:.1} bytes a key; space amplification {:.2}",
        stats.index_bytes as f64 / keys as f64,
        stats.disk_bytes as f64 / keys as f64,
        stats.space_amplification(),
    );
    Ok(())
}

fn large_values(dir: &Path, count: u64) -> tierce_cask::Result<()> {
    println!("{count} keys of 8 bytes, values of 4 KiB, Ordered, uncompressed, 64 threads");
    let options = Options {
        index: IndexKind::Ordered,
        compression: Compression::None,
        sync: SyncPolicy::None,
        ..Options::default()
    };
    let db = Db::open(dir, options)?;
    let threads = 64;
    let run = |work: &(dyn Fn(u64) -> tierce_cask::Result<()> + Sync)| {
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let n = next.fetch_add(1, Ordering::Relaxed);
                        if n >= count {
                            return;
                        }
                        work(n).expect("the store works");
                    }
                });
            }
        });
    };
    let start = Instant::now();
    run(&|n| db.put(&key(n)[..8], &value(n).repeat(41)[..4096]));
    report("random write", count, start);
    let start = Instant::now();
    run(&|n| {
        let found = db.get(&key(n)[..8])?.map(|found| found[..48] == value(n)[..48]);
        assert_eq!(found, Some(true));
        Ok(())
    });
    report("random read", count, start);
    println!("  index: {:.2} bytes a key", db.stats().index_bytes as f64 / count as f64);
    db.close()
}

/// Measures writes of 4 KiB values from 64 threads, compared with the disk's own speed: direct
/// writes of 1 MiB, one after the other, before and after.
fn writing(dir: &Path, count: u64, tail: Option<u64>) -> Result<(), Box<dyn std::error::Error>> {
    let total = count * 4096;
    std::fs::create_dir_all(dir)?;
    for direct_writes in [false, true] {
        let before = sequential_writes(&dir.join("sequential"), total)?;
        let options = Options {
            index: IndexKind::Ordered,
            compression: Compression::None,
            sync: SyncPolicy::None,
            direct_writes,
            tail_bytes: tail.unwrap_or(Options::default().tail_bytes),
            ..Options::default()
        };
        let db = Db::open(dir.join("store"), options)?;
        let next = AtomicU64::new(0);
        let bytes = vec![0x5a; 4096];
        let (start, cpu) = (Instant::now(), cpu_seconds());
        std::thread::scope(|scope| {
            for _ in 0..64 {
                scope.spawn(|| {
                    let mut value = bytes.clone();
                    loop {
                        let n = next.fetch_add(1, Ordering::Relaxed);
                        if n >= count {
                            return;
                        }
                        value[..8].copy_from_slice(&n.to_le_bytes());
                        db.put(&key(n)[..8], &value).expect("the store works");
                    }
                });
            }
        });
        let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        println!("{count} values of 4 KiB, 64 threads, direct writes: {direct_writes}");
        report("random write", count, start);
        println!("  {:.2} us CPU a write; {}", cpu * 1e6 / count as f64, resident());
        let closing = Instant::now();
        db.close()?;
        drop(db);
        std::fs::remove_dir_all(dir.join("store"))?;
        let after = sequential_writes(&dir.join("sequential"), total)?;
        let (store, disk) = (total as f64 / seconds / 1e6, (before + after) / 2.0);
        println!("  closed in {:.2} s", closing.elapsed().as_secs_f64());
        println!(
            "  {store:.0} MB/s; disk {before:.0} and {after:.0} MB/s: {:.0} %",
            100.0 * store / disk
        );
    }
    Ok(())
}

/// Returns MB/s of direct writes of 1 MiB.
fn sequential_writes(path: &Path, total: u64) -> std::io::Result<f64> {
    use tierce_cask::disk::{DIRECT_ALIGNMENT, Disk, OpenMode, OsDisk};
    const LEN: usize = 1 << 20;
    std::fs::File::create(path)?;
    let file = OsDisk.open(path, OpenMode::DirectWrite)?;
    let buf = vec![7u8; LEN + DIRECT_ALIGNMENT];
    let pad = buf.as_ptr().align_offset(DIRECT_ALIGNMENT);
    let block = std::io::IoSlice::new(&buf[pad..pad + LEN]);
    let start = Instant::now();
    for at in (0..total).step_by(LEN) {
        file.write_all_at(&[block], at)?;
    }
    let speed = total as f64 / start.elapsed().as_secs_f64() / 1e6;
    drop(file);
    std::fs::remove_file(path)?;
    Ok(speed)
}

/// User and system time of this process so far.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = |at: usize| -> f64 {
        after_name.split_whitespace().nth(at).and_then(|n| n.parse().ok()).unwrap_or(0.0)
    };
    // Linux counts 100 ticks per second, whatever the kernel's own clock.
    (ticks(11) + ticks(12)) / 100.0
}

fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = status.lines().filter(|l| l.starts_with("RssAnon") || l.starts_with("RssFile"));
    lines
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Measures index memory and opening time with many keys of 8 bytes.
fn opening(dir: &Path, index: IndexKind, keys: u64) -> tierce_cask::Result<()> {
    println!("{keys} keys of 8 bytes, values of 8, {index:?}");
    let options = Options { index, sync: SyncPolicy::None, ..Options::default() };
    let db = Db::open(dir, options.clone())?;
    let start = Instant::now();
    for n in 0..keys {
        db.put(&key(n)[..8], &n.to_le_bytes())?;
    }
    report("random fill", keys, start);
    let bytes_a_key = |db: &Db| db.stats().index_bytes as f64 / keys as f64;
    println!("  index as written: {:.2} bytes a key", bytes_a_key(&db));
    db.close()?;
    drop(db);
    let start = Instant::now();
    let db = Db::open(dir, options)?;
    println!("  open with hint files: {:.2} s", start.elapsed().as_secs_f64());
    println!("  index as opened: {:.2} bytes a key", bytes_a_key(&db));
    assert_eq!(db.stats().keys, keys);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let memory =
        status.lines().filter(|line| line.starts_with("VmRSS") || line.starts_with("VmHWM"));
    memory.for_each(|line| println!("  process: {line}"));
    Ok(())
}

/// Measures overwriting with and without compaction.
fn compaction(dir: &Path, keys: u64) -> tierce_cask::Result<()> {
    for automatic in [false, true] {
        let mut options = Options { sync: SyncPolicy::None, ..Options::default() };
        options.segment_size_bytes = 8 << 20;
        options.compaction.automatic = automatic;
        options.compaction.interval = Duration::from_millis(200);
        let db = Db::open(dir.join(format!("compaction-{automatic}")), options)?;
        for n in 0..keys {
            db.put(&key(n), &value(n))?;
        }
        let start = Instant::now();
        let mut count = 0;
        while start.elapsed() < Duration::from_secs(10) {
            let n = (count * 7_368_787) % keys;
            db.put(&key(n), &value(n))?;
            count += 1;
        }
        println!("overwriting, compaction {}", if automatic { "at work" } else { "off" });
        report("put", count, start);
        let stats = db.stats();
        println!(
            "  {} segments compacted; write amplification {:.2}, space amplification {:.2}",
            stats.compactions,
            stats.write_amplification(),
            stats.space_amplification(),
        );
        db.close()?;
    }
    Ok(())
}

fn durable_writes(dir: &Path, writers: u64) -> tierce_cask::Result<()> {
    let options = Options { sync: SyncPolicy::Always, ..Options::default() };
    let db = Db::open(dir, options)?;
    let start = Instant::now();
    let count = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..writers {
            scope.spawn(|| {
                while start.elapsed() < Duration::from_secs(3) {
                    let n = count.fetch_add(1, Ordering::Relaxed);
                    db.put(&key(n), &value(n)).expect("the store works");
                }
            });
        }
    });
    let count = count.into_inner();
    println!("always durable, {writers} writers");
    report("put", count, start);
    println!("  {:.1} writes a sync", count as f64 / db.stats().syncs as f64);
    db.close()
}
