//! Measures the memory of a hash field and of a set member, above their bytes.
//!
//! `cargo run --release -p tierce-collections --example hash_and_set`
//!
//! Computes `allocated_bytes` per element minus the bytes of name and value, or of the member.
//! Compare with `MEMORY USAGE key SAMPLES 0` of a redis-server with the same data.

use tierce_collections::{Hash, PackedLimits, Set, SetLimits};

const PACKED: PackedLimits = PackedLimits { entries_max: 512, value_len_max: 64 };
const LIMITS: SetLimits =
    SetLimits { integers_max: 512, packed: PackedLimits { entries_max: 128, ..PACKED } };

fn main() {
    println!("{:<44} {:>9} {:>12}", "", "elements", "bytes above");
    for count in [10, 100, 1000, 100_000, 1_000_000] {
        hash("hash, names of 10 bytes, values of 10", count, 10);
        hash("hash, names of 10 bytes, values of 100", count, 100);
        set("set, integers of 6 digits", count, |number| (100_000 + number).to_string());
        set("set, integers of 12 digits", count, |number| (100_000_000_000 + number).to_string());
        set("set, members of 7 bytes", count, |number| format!("{number:x>7}"));
        set("set, members of 16 bytes", count, |number| format!("member:{number:09}"));
        set("set, members of 36 bytes", count, |number| format!("{number:0>32x}-uid"));
    }
}

fn hash(what: &str, count: u64, value_len: usize) {
    let (mut hash, value) = (Hash::new(), vec![b'v'; value_len]);
    for number in 0..count {
        hash.put(format!("field:{number:04x}").as_bytes(), &value, None, PACKED);
    }
    let bytes = hash.iter().map(|field| field.name.len() + field.value.len()).sum();
    print(what, count, hash.allocated_bytes(), bytes);
}

fn set(what: &str, count: u64, member: impl Fn(u64) -> String) {
    let mut set = Set::new();
    for number in 0..count {
        set.add(member(number).as_bytes(), LIMITS);
    }
    print(what, count, set.allocated_bytes(), set.iter().map(|member| member.len()).sum());
}

fn print(what: &str, count: u64, allocated: usize, contents: usize) {
    let above = (allocated as f64 - contents as f64) / count as f64;
    println!("{what:<44} {count:>9} {above:>12.1}");
}
