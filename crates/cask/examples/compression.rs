//! Measures the cost and the savings of compression: `compression DIR [MIB]`. Each kind of value is put and got with
//! each method, 64 MiB of values each by default.

use std::path::Path;
use std::time::Instant;
use tierce_cask::{Compression, Db, IndexKind, Options, SyncPolicy};

const WORDS: &[&str] = &[
    "the", "of", "wine", "cellar", "and", "cask", "was", "harvest", "in", "that", "vineyard", "to",
    "autumn", "bottle", "had", "oak", "years", "with", "estate", "river", "from", "slow", "hill",
];

/// Creates value number `n` of this length.
type Make = fn(u64, usize) -> Vec<u8>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("usage: compression DIR [MIB]")?;
    let mib: usize = arguments.next().map_or(Ok(64), |mib| mib.parse())?;
    println!("| values | bytes | method | fill k/s | get k/s | disk bytes a value |");
    println!("|---|--:|---|--:|--:|--:|");
    let kinds: [(&str, Make); 3] = [("JSON", json), ("text", text), ("random", noise)];
    for (name, make) in kinds {
        for len in [100, 400, 4096] {
            let count = (mib << 20).div_ceil(len) as u64;
            let values: Vec<Vec<u8>> = (0..2000).map(|n| make(n, len)).collect();
            for method in [Compression::None, Compression::Snappy, Compression::Lz4] {
                let dir = Path::new(&dir).join("compression");
                // The better of two runs, since disturbances only slow a run down.
                let runs = [run(&dir, method, &values, count)?, run(&dir, method, &values, count)?];
                println!(
                    "| {name} | {len} | {method:?} | {:.0} | {:.0} | {:.0} |",
                    runs[0].0.max(runs[1].0),
                    runs[0].1.max(runs[1].1),
                    runs[0].2,
                );
            }
        }
    }
    Ok(())
}

/// Returns thousands of puts and gets per second, and bytes on disk per value.
fn run(
    dir: &Path,
    compression: Compression,
    values: &[Vec<u8>],
    count: u64,
) -> Result<(f64, f64, f64), Box<dyn std::error::Error>> {
    let options = Options {
        index: IndexKind::Ordered,
        compression,
        sync: SyncPolicy::None,
        read_cache_bytes: 0,
        ..Options::default()
    };
    let db = Db::open(dir, options)?;
    let start = Instant::now();
    for n in 0..count {
        db.put(&key(n), &values[n as usize % values.len()])?;
    }
    let fill = count as f64 / start.elapsed().as_secs_f64() / 1e3;
    let start = Instant::now();
    for n in 0..count {
        let n = n.wrapping_mul(4_294_967_291) % count;
        let found = db.get(&key(n))?.ok_or("a value is lost")?;
        assert_eq!(*found, *values[n as usize % values.len()]);
    }
    let get = count as f64 / start.elapsed().as_secs_f64() / 1e3;
    let disk = db.stats().disk_bytes as f64 / count as f64;
    db.close()?;
    std::fs::remove_dir_all(dir)?;
    Ok((fill, get, disk))
}

fn key(n: u64) -> [u8; 8] {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 32)).to_be_bytes()
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Returns an object whose fields always have the same names, with different values.
fn json(n: u64, len: usize) -> Vec<u8> {
    let mut state = n;
    let mut out = String::from("{");
    while out.len() < len {
        let (a, b) = (next(&mut state), next(&mut state));
        let word = WORDS[a as usize % WORDS.len()];
        out += &format!("\"user_id\":{a},\"name\":\"{word}\",\"active\":true,\"score\":{b},");
    }
    out.truncate(len);
    out.into_bytes()
}

/// Returns words of a small vocabulary in random order.
fn text(n: u64, len: usize) -> Vec<u8> {
    let mut state = n;
    let mut out = String::new();
    while out.len() < len {
        out += WORDS[next(&mut state) as usize % WORDS.len()];
        out.push(' ');
    }
    out.truncate(len);
    out.into_bytes()
}

fn noise(n: u64, len: usize) -> Vec<u8> {
    let mut state = n;
    (0..len).map(|_| (next(&mut state) >> 11) as u8).collect()
}
