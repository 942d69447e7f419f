//! Hashes that are not evenly distributed cost speed, but neither correctness nor, beyond a factor,
//! memory. Growing must come to an end even though it does not help.

use crate::support::{Entry, Hashes, contains, hash_of, insert, remove};
use tierce_dash::Table;

/// Several times the capacity of a segment, so that splitting has been tried. Under Miri too few to
/// test memory.
const COUNT: u32 = if cfg!(miri) { 60 } else { 5000 };

fn check(entry_of: impl Fn(u32) -> Entry, bytes_per_entry_max: usize) {
    let mut table = Table::new();
    for id in 0..COUNT {
        insert(&mut table, entry_of(id));
    }
    assert_eq!(table.len(), COUNT as usize);
    let bytes = table.memory_bytes() / table.len();
    assert!(bytes < bytes_per_entry_max || cfg!(miri), "{bytes} bytes an entry");
    assert!((0..COUNT).step_by(7).all(|id| contains(&table, entry_of(id))));

    let mut visited = 0;
    let mut cursor = 0;
    loop {
        cursor = table.scan(cursor, &hash_of, |_| visited += 1);
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(visited, COUNT);
    assert_eq!(table.sample(u64::MAX / 3).map(|entry| entry.id < COUNT), Some(true));

    for id in (0..COUNT).step_by(2).chain((1..COUNT).step_by(2)) {
        assert_eq!(remove(&mut table, entry_of(id)), Some(entry_of(id)));
    }
    assert_eq!(table.memory_bytes(), 0);
}

// A bucket of these 16-byte entries has 256 bytes, so a full one needs 19 bytes per entry.

#[test]
fn all_hashes_equal() {
    check(|id| Entry { hash: 0x1234_5678_9ABC_DEF0, id }, 40);
}

#[test]
fn all_positions_zero() {
    check(|id| Entry { hash: u64::from(id), id }, 40);
}

#[test]
fn all_positions_at_the_end() {
    check(|id| Entry { hash: !u64::from(id), id }, 40);
}

#[test]
fn three_hashes() {
    check(|id| Hashes::Equal.entry(id), 40);
}

#[test]
fn consecutive_numbers() {
    check(|id| Hashes::Sequential.entry(id), 40);
}

#[test]
fn narrow_clusters() {
    check(|id| Hashes::Clustered.entry(id), 40);
}

/// The caller used 16 bits to select the table and shifted them out: no skew at all.
#[test]
fn sixteen_bits_shifted_out_do_no_harm() {
    check(|id| Entry { hash: crate::support::mix(u64::from(id)) << 16, id }, 26);
}

/// A cluster that would need a directory of 2^30 slots to be told apart.
#[test]
fn the_directory_stays_small() {
    let mut table = Table::new();
    let cluster = |id: u32| Entry { hash: 1 << 63 | crate::support::mix(u64::from(id)) >> 30, id };
    (0..COUNT).for_each(|id| insert(&mut table, cluster(id)));
    assert!(table.memory_bytes() / table.len() < 40 || cfg!(miri));
    assert!((0..COUNT).step_by(11).all(|id| contains(&table, cluster(id))));
}
