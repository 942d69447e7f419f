//! What was watched takes no memory afterwards.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tierce_keyspace::{DbIndex, Keyspace, Options, Watch};

thread_local! {
    /// Bytes this thread has allocated and not freed. Tests run on threads of their own.
    static HELD_BYTES: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counting.
struct Counting;

fn count(bytes: isize) {
    // The counter is gone while its thread ends, when it is not read any more.
    _ = HELD_BYTES.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: everything is passed on to the system's allocator, as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller keeps to the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the caller keeps to the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A shard keeps a table for a few keys, about a kilobyte, so that it is not made for each watch.
const KEPT_BYTES_MAX: isize = 2048;

fn watch(keyspace: &Keyspace, keys: std::ops::Range<u32>) -> Watch {
    let mut watch = Watch::new(keyspace);
    let mut locks = keyspace.locks();
    for key in keys {
        let name = key.to_le_bytes();
        locks.watch(&mut watch, DbIndex::ZERO, keyspace.key(&name), 0);
    }
    watch
}

#[test]
fn many_watches_leave_nothing_behind() {
    let cycles = if cfg!(debug_assertions) { 100_000 } else { 10_000_000 };
    let keyspace = Keyspace::new(Options { shards: 1, ..Options::default() }).unwrap();
    let before = HELD_BYTES.get();
    for cycle in 0..cycles {
        let watch = watch(&keyspace, cycle..cycle + 2);
        match cycle % 3 {
            0 => drop(watch),
            _ => keyspace.locks().unwatch(watch),
        }
        if cycle % 100 == 0 {
            keyspace.locks().end_dropped_watches();
        }
    }
    keyspace.locks().end_dropped_watches();
    assert_eq!(keyspace.watching(), (0, 0));
    let held = HELD_BYTES.get() - before;
    assert!(held <= KEPT_BYTES_MAX, "{held} bytes");
}

#[test]
fn the_table_of_many_keys_is_given_back() {
    let keyspace = Keyspace::new(Options { shards: 1, ..Options::default() }).unwrap();
    let before = HELD_BYTES.get();
    let watch = watch(&keyspace, 0..100_000);
    assert!(HELD_BYTES.get() - before > 1 << 20);
    keyspace.locks().unwatch(watch);
    let held = HELD_BYTES.get() - before;
    assert!(held <= KEPT_BYTES_MAX, "{held} bytes");
}
