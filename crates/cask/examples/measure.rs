//! Prints figures: `measure DIR [KEYS]`. The directory's file system is what is measured, with the
//! page cache warm; for cold reads see the race.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tierce_cask::{Compression, Db, IndexKind, Options, SyncPolicy};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("usage: measure DIR [KEYS]")?;
    let keys: u64 = arguments.next().map_or(Ok(1_000_000), |keys| keys.parse())?;
    let dir = Path::new(&dir);
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

/// The key with number `n`: random order, 16 bytes.
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
