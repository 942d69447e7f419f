//! Measures the memory of an index: `index_memory DIR [KEYS] [KEY_LEN]`, by default 10,000,000 keys
//! of 8 bytes.
//!
//! For each kind of index a store is filled in random order, and reopened in a process of its own.
//! The memory of that process shows the real cost of opening: the index, memory kept by the
//! allocator, and temporary memory.

use std::path::Path;
use std::process::Command;
use std::time::Instant;
use tierce_cask::{Compression, Db, IndexKind, Options, SyncPolicy};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let dir = arguments.first().ok_or("usage: index_memory DIR [KEYS] [KEY_LEN]")?;
    let number =
        |at: usize, usual: u64| arguments.get(at).map_or(Ok(usual), |text| text.parse::<u64>());
    let (keys, key_len) = (number(1, 10_000_000)?, number(2, 8)? as usize);
    if let Some(step) = arguments.get(3) {
        let index = if step.ends_with("hash") { IndexKind::Hash } else { IndexKind::Ordered };
        return match step.starts_with("fill") {
            true => fill(Path::new(dir), index, keys, key_len),
            false => open(Path::new(dir), index, keys),
        };
    }
    println!("{keys} keys of {key_len} bytes, values of 8");
    for name in ["hash", "ordered"] {
        let store = Path::new(dir).join(name);
        for step in ["fill", "open"] {
            let status = Command::new(std::env::current_exe()?)
                .arg(&store)
                .args([keys.to_string(), key_len.to_string(), format!("{step}-{name}")])
                .status()?;
            assert!(status.success(), "{step} of {name} failed");
        }
        std::fs::remove_dir_all(store)?;
    }
    Ok(())
}

fn options(index: IndexKind) -> Options {
    Options {
        index,
        compression: Compression::None,
        sync: SyncPolicy::None,
        read_cache_bytes: 0,
        ..Options::default()
    }
}

fn fill(dir: &Path, index: IndexKind, keys: u64, key_len: usize) -> Result<()> {
    let before = resident("VmRSS")?;
    let db = Db::open(dir, options(index))?;
    let start = Instant::now();
    let mut key = Vec::new();
    for n in 0..keys {
        let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        key.clear();
        key.extend_from_slice(&(mixed ^ (mixed >> 32)).to_be_bytes());
        key.resize(key_len, b'k');
        db.put(&key, &n.to_le_bytes())?;
    }
    report(&format!("{index:?}, as written"), &db, keys, before, start)?;
    Ok(db.close()?)
}

fn open(dir: &Path, index: IndexKind, keys: u64) -> Result<()> {
    let before = resident("VmRSS")?;
    let start = Instant::now();
    let db = Db::open(dir, options(index))?;
    assert_eq!(db.stats().keys, keys);
    report(&format!("{index:?}, as opened"), &db, keys, before, start)
}

fn report(what: &str, db: &Db, keys: u64, before: f64, start: Instant) -> Result<()> {
    let seconds = start.elapsed().as_secs_f64();
    let a_key = |bytes: f64| bytes / keys as f64;
    println!(
        "  {what} in {seconds:.1} s: index {:.2} bytes a key; process grew by {:.2}, at most by {:.2}",
        a_key(db.stats().index_bytes as f64),
        a_key(resident("VmRSS")? - before),
        a_key(resident("VmHWM")? - before),
    );
    Ok(())
}

/// Returns the memory of this process in bytes, current or peak.
fn resident(field: &str) -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with(field)).ok_or("no such field")?;
    let kib = line.split_whitespace().nth(1).ok_or("an odd line")?;
    Ok(kib.parse::<f64>()? * 1024.0)
}
