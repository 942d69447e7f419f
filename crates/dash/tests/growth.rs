//! Growing to many entries loses none, and neither does shrinking; `examples/growth.rs` does the
//! same with ten million.

use crate::support::{contains, even, insert, remove};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use tierce_dash::Table;

const COUNT: u32 = if cfg!(miri) { 180 } else { 300_000 };

#[test]
fn no_entry_is_lost() {
    let mut table = Table::new();
    for id in 0..COUNT {
        insert(&mut table, even(id));
        // A random one of the existing entries.
        assert!(contains(&table, even(id.wrapping_mul(2_654_435_761) % (id + 1))));
    }
    assert_eq!(table.len(), COUNT as usize);
    assert!((0..COUNT).all(|id| contains(&table, even(id))));
    assert!((COUNT..2 * COUNT).all(|id| !contains(&table, even(id))));

    for id in (0..COUNT).filter(|id| id % 10 != 0) {
        assert_eq!(remove(&mut table, even(id)), Some(even(id)));
    }
    assert!((0..COUNT).all(|id| contains(&table, even(id)) == (id % 10 == 0)));
}

/// Entries that only `eq` can tell apart, at the very end of their common prefix.
#[test]
fn long_equal_prefixes_are_not_confused() {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let hash = |key: &str| hasher.hash_one(key);
    let hash_entry = |key: &String| hash(key);
    let key = |number: u32| format!("{}:{number}", "prefix".repeat(40));
    let mut table: Table<String> = Table::new();
    let count = if cfg!(miri) { 16 } else { 5000 };
    for number in 0..count {
        let key = key(number);
        assert_eq!(table.find(hash(&key), |entry| *entry == key), None);
        table.insert_unique(hash(&key), key, &hash_entry);
    }
    for number in 0..count {
        let key = key(number);
        let found = table.find(hash(&key), |entry| *entry == key);
        assert_eq!(found, Some(&key));
    }
}

/// Tables can be sent to other threads, for example to be dropped there.
#[test]
fn tables_are_as_thread_safe_as_their_entries() {
    const fn is_send_and_sync<T: Send + Sync>() {}
    const { is_send_and_sync::<Table<Box<str>>>() };
    let mut table = Table::new();
    (0..100).for_each(|id| insert(&mut table, even(id)));
    let len = std::thread::spawn(move || table.iter().count()).join().unwrap();
    assert_eq!(len, 100);
}
