//! Measures reads from a store of 8-byte keys and 4 KiB values, compared with its disk: `reads DIR KEYS fill|scan|get
//! [direct] [ordered]`. Each step is a process of its own; as root it begins with an empty page cache.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tierce_cask::{Compression, Db, IndexKind, Options, Placement, SyncPolicy};

const THREADS: u64 = 64;
const VALUE_LEN: usize = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, keys, step, rest @ ..] = &arguments[..] else {
        return Err("usage: reads DIR KEYS fill|scan|get [direct] [ordered]".into());
    };
    let (dir, keys) = (Path::new(dir), keys.parse()?);
    let options = Options {
        index: IndexKind::Ordered,
        compression: Compression::None,
        sync: SyncPolicy::None,
        shards: rest.iter().any(|word| word == "ordered").then_some(64),
        placement: if rest.iter().any(|word| word == "ordered") {
            Placement::Ordered
        } else {
            Placement::Hashed
        },
        direct_io: rest.iter().any(|word| word == "direct"),
        ..Options::default()
    };
    match &step[..] {
        "fill" => fill(dir, options, keys)?,
        "scan" => scan(dir, options, keys)?,
        "get" => get(dir, options, keys)?,
        _ => return Err("no such step".into()),
    }
    Ok(())
}

fn key(n: u64) -> [u8; 8] {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 32)).to_be_bytes()
}

fn empty_page_cache() {
    let dropped = std::fs::write("/proc/sys/vm/drop_caches", "3");
    println!("  page cache {}", if dropped.is_ok() { "emptied" } else { "as it was" });
}

fn report_memory() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = status.lines().filter(|line| line.starts_with("VmHWM"));
    lines.for_each(|line| println!("  {line}"));
}

fn fill(dir: &Path, options: Options, keys: u64) -> tierce_cask::Result<()> {
    let db = Db::open(dir, options)?;
    let mut value = vec![0x5a; VALUE_LEN];
    for n in 0..keys {
        value[..8].copy_from_slice(&key(n));
        db.put(&key(n), &value)?;
    }
    db.close()
}

/// Returns the segments, to be read without the engine.
fn segments(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "seg") {
            paths.push(path);
        }
    }
    Ok(paths)
}

/// Reads all segments once in blocks of 1 MiB, several at a time.
fn sequential(dir: &Path, threads: u64) -> std::io::Result<f64> {
    empty_page_cache();
    let mut blocks = Vec::new();
    for path in segments(dir)? {
        let file = std::sync::Arc::new(File::open(path)?);
        let len = file.metadata()?.len();
        blocks.extend((0..len.div_ceil(1 << 20)).map(|at| (file.clone(), at << 20)));
    }
    let (next, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut buf = vec![0; 1 << 20];
                while let Some((file, at)) =
                    blocks.get(next.fetch_add(1, Ordering::Relaxed) as usize)
                {
                    let read = file.read_at(&mut buf, *at).expect("the file can be read");
                    bytes.fetch_add(read as u64, Ordering::Relaxed);
                }
            });
        }
    });
    let seconds = start.elapsed().as_secs_f64();
    let megabytes = bytes.into_inner() as f64 / 1e6;
    println!("  sequential, {threads} at a time: {seconds:.2} s, {:.0} MB/s", megabytes / seconds);
    Ok(seconds)
}

fn scan(dir: &Path, options: Options, keys: u64) -> Result<(), Box<dyn std::error::Error>> {
    let once = sequential(dir, 1)?.min(sequential(dir, 8)?);
    let db = Db::open(dir, options)?;
    empty_page_cache();
    for threads in [1, THREADS] {
        for visiting in [true, false] {
            if threads == 1 && !visiting {
                continue;
            }
            empty_page_cache();
            let start = Instant::now();
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        for _ in 0..2 {
                            assert_eq!(pass(&db, visiting), keys);
                        }
                    });
                }
            });
            let seconds = start.elapsed().as_secs_f64();
            println!(
                "{threads} threads, two passes each, {}: {seconds:.2} s, {:.2} times one read; \
                 {:.0} ns of two cores a record",
                if visiting { "visiting" } else { "iterating" },
                seconds / once,
                seconds * 2e9 / (threads * 2 * keys) as f64,
            );
            report_memory();
        }
    }
    Ok(db.close()?)
}

/// Reads everything once, and checks order and the first bytes of the values.
fn pass(db: &Db, visiting: bool) -> u64 {
    let (mut count, mut last) = (0, [0; 8]);
    let mut check = |key: &[u8], value: &[u8]| {
        assert!(count == 0 || *key > last[..], "ascending");
        assert!(value.len() == VALUE_LEN && value[..8] == *key, "the value is the key's");
        last.copy_from_slice(key);
        count += 1;
    };
    if visiting {
        db.scan(b"", b"", |key, value| {
            check(key, value);
            ControlFlow::Continue(())
        })
        .expect("the store can be read");
    } else {
        for item in db.range(b"", b"").expect("the store is ordered") {
            let (key, entry) = item.expect("the store can be read");
            check(&key, &entry.value);
        }
    }
    count
}

fn for_seconds(seconds: u64, work: impl Fn(u64) + Sync) -> f64 {
    let count = AtomicU64::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (count, work) = (&count, &work);
            scope.spawn(move || {
                let mut n = thread.wrapping_mul(0x2545_f491_4f6c_dd1d) + 1;
                while start.elapsed() < Duration::from_secs(seconds) {
                    n ^= n << 13;
                    n ^= n >> 7;
                    n ^= n << 17;
                    work(n);
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    count.into_inner() as f64 / start.elapsed().as_secs_f64()
}

fn get(dir: &Path, options: Options, keys: u64) -> Result<(), Box<dyn std::error::Error>> {
    use std::os::unix::fs::OpenOptionsExt;
    // O_DIRECT on x86-64, and its different value on aarch64.
    let direct = if cfg!(target_arch = "x86_64") { 0o40000 } else { 0o200000 };
    let mut files = Vec::new();
    for path in segments(dir)? {
        let file = File::options().read(true).custom_flags(direct).open(path)?;
        let pages = file.metadata()?.len() / 4096;
        files.push((file, pages));
    }
    empty_page_cache();
    let raw = for_seconds(4, |n| {
        let (file, pages) = &files[(n % files.len() as u64) as usize];
        let mut buf = vec![0; 8192];
        let pad = buf.as_ptr().align_offset(4096);
        let read = file.read_at(&mut buf[pad..pad + 4096], (n >> 20) % pages * 4096);
        assert_eq!(read.expect("the file can be read"), 4096);
    });
    println!("raw, 4 KiB at depth {THREADS}: {:.1} k/s", raw / 1e3);
    let db = Db::open(dir, options)?;
    let read = |n: u64| {
        let key = key(n % keys);
        let value = db.get(&key).expect("the store can be read").expect("the key is there");
        assert!(value.len() == VALUE_LEN && value[..8] == key);
    };
    empty_page_cache();
    let cold = for_seconds(4, read);
    println!("cold: {:.1} k/s, {:.1} % of raw", cold / 1e3, cold / raw * 100.0);
    sequential(dir, 8)?;
    let warm = for_seconds(4, read);
    println!("warm: {:.1} k/s, {:.1} times cold", warm / 1e3, warm / cold);
    report_memory();
    Ok(db.close()?)
}
