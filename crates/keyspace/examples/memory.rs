//! Memory cost of a key, by `Keyspace::memory` and by the operating system.
//!
//! `cargo run --release -p tierce-keyspace --example memory [keys]`
//!
//! For values of 10, 100 and 1,000 bytes under keys of 16 bytes: the bytes of memory beyond key and
//! value for each key. One figure is from `Keyspace::memory`. The other is the growth of the
//! resident memory of the process, with an allocator that returns free memory at once. They should
//! agree within a few megabytes of pages that are not quite full, since the former uses the
//! allocator's true sizes.

use tierce_keyspace::{DbIndex, Expiry, Keyspace, Options};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const KEY_LEN: usize = 16;

fn main() {
    let keys = std::env::args().nth(1).map_or(1_000_000, |text| text.parse().expect("a number"));
    println!("{:>10} {:>10} {:>10} {:>10}", "value", "entries", "account", "resident");
    for len in [10, 100, 1000] {
        // Each in its own process, which does not have the memory of the previous one.
        let child = std::env::args().nth(2);
        match child {
            None => run_child(keys, len),
            Some(only) if only == len.to_string() => measure(keys, len),
            Some(_) => {}
        }
    }
}

fn run_child(keys: u64, len: usize) {
    let program = std::env::current_exe().expect("this program has a path");
    let arguments = [keys.to_string(), len.to_string()];
    let mut command = std::process::Command::new(program);
    command.args(arguments).env("MIMALLOC_PURGE_DELAY", "0");
    let output = command.output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{}", text.lines().last().unwrap_or("no figures"));
}

fn measure(keys: u64, len: usize) {
    let keyspace = Keyspace::new(Options::default()).expect("default options are good");
    let value = vec![b'v'; len];
    let empty = resident_bytes();
    for number in 0..keys {
        let name = format!("key:{number:012}");
        let key = keyspace.key(name.as_bytes());
        let mut locks = keyspace.locks();
        let mut db = locks.db(DbIndex::ZERO, key.hash(), 0);
        db.set(key, &value, Expiry::Never).expect("a short key and value");
    }
    let each = |bytes: u64| bytes as f64 / keys as f64 - (KEY_LEN + len) as f64;
    let memory = keyspace.memory();
    println!(
        "{len:>10} {:>10.1} {:>10.1} {:>10.1}",
        each(memory.entries),
        each(memory.total()),
        each(resident_bytes() - empty),
    );
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("and this line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}
