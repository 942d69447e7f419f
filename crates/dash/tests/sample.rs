//! Sampling reaches every entry, none much more often than the others, and ends on sparse tables.

use crate::support::{even, insert, mix, remove};
use std::collections::HashMap;
use tierce_dash::Table;

#[test]
fn every_entry_is_about_as_likely() {
    let (count, rounds) = if cfg!(miri) { (40, 10) } else { (3000, 100) };
    let mut table = Table::new();
    (0..count).for_each(|id| insert(&mut table, even(id)));
    let mut sampled: HashMap<u32, u32> = HashMap::new();
    for random in 0..u64::from(count * rounds) {
        let entry = table.sample(mix(random)).expect("the table has entries");
        *sampled.entry(entry.id).or_default() += 1;
    }
    let most = sampled.values().max().copied().unwrap_or(0);
    assert!(sampled.len() as u32 > count * 99 / 100, "{} of {count}", sampled.len());
    assert!(most < rounds * 3, "{most} times in {rounds} rounds");
}

#[test]
fn few_entries_are_found_in_a_large_table() {
    let count = if cfg!(miri) { 50 } else { 20_000 };
    let mut table = Table::new();
    (0..count).for_each(|id| insert(&mut table, even(id)));
    for id in 1..count {
        remove(&mut table, even(id));
        assert!(table.sample(mix(u64::from(id))).is_some());
    }
    assert_eq!(table.sample(0), Some(&even(0)));
    assert_eq!(table.sample(u64::MAX), Some(&even(0)));
    remove(&mut table, even(0));
    assert_eq!(table.sample(0), None);
}
