//! Ended watches leave no memory in use.

use crate::counting::held_bytes;
use tierce_keyspace::{DbIndex, Keyspace, Options, Watch, end_dropped_watches, unwatch, watch_key};

/// A shard keeps a table for a few keys, about a kilobyte, so that it is not made for each watch.
const KEPT_BYTES_MAX: isize = 2048;

fn watch(keyspace: &Keyspace, keys: std::ops::Range<u32>) -> Watch {
    let mut watch = Watch::new(keyspace);
    let mut locks = keyspace.locks();
    for key in keys {
        let name = key.to_le_bytes();
        watch_key(&mut locks, &mut watch, DbIndex::ZERO, keyspace.key(&name), 0);
    }
    watch
}

#[test]
fn many_watches_leave_nothing_behind() {
    let cycles = if cfg!(debug_assertions) { 100_000 } else { 10_000_000 };
    let keyspace = Keyspace::new(Options { shards: 1, ..Options::default() }).unwrap();
    let before = held_bytes();
    for cycle in 0..cycles {
        let watch = watch(&keyspace, cycle..cycle + 2);
        match cycle % 3 {
            0 => drop(watch),
            _ => unwatch(&mut keyspace.locks(), watch),
        }
        if cycle % 100 == 0 {
            end_dropped_watches(&mut keyspace.locks());
        }
    }
    end_dropped_watches(&mut keyspace.locks());
    assert_eq!(keyspace.watching(), (0, 0));
    let held = held_bytes() - before;
    assert!(held <= KEPT_BYTES_MAX, "{held} bytes");
}

#[test]
fn the_table_of_many_keys_is_given_back() {
    let keyspace = Keyspace::new(Options { shards: 1, ..Options::default() }).unwrap();
    let before = held_bytes();
    let watch = watch(&keyspace, 0..100_000);
    assert!(held_bytes() - before > 1 << 20);
    unwatch(&mut keyspace.locks(), watch);
    let held = held_bytes() - before;
    assert!(held <= KEPT_BYTES_MAX, "{held} bytes");
}
