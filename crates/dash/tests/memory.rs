//! Memory is accounted exactly, follows the number of entries both ways, and does not oscillate.

use crate::support::{Entry, Hashes, even, insert, mix, remove};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use tierce_dash::Table;

thread_local! {
    /// Bytes this thread has allocated and not freed. Tests run on threads of their own.
    static HELD_BYTES: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, with a counter.
struct Counting;

fn count(bytes: isize) {
    // The counter is gone while its thread ends, when it is no longer read.
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

/// Only differences count: a thread also frees what others have allocated for it.
fn held_bytes() -> isize {
    HELD_BYTES.get()
}

/// Returns the hash of an 8-byte entry: the number is its own key.
fn number_hash(number: &u64) -> u64 {
    mix(*number)
}

fn insert_number(table: &mut Table<u64>, number: u64) {
    table.insert_unique(number_hash(&number), number, &number_hash);
}

fn remove_number(table: &mut Table<u64>, number: u64) {
    let removed = table.remove(number_hash(&number), |entry| *entry == number, &number_hash);
    assert_eq!(removed, Some(number));
}

fn bytes_per_entry(table: &Table<u64>) -> f64 {
    table.memory_bytes() as f64 / table.len() as f64
}

#[test]
fn accounting_is_exact() {
    for hashes in [Hashes::Even, Hashes::Clustered, Hashes::Sequential, Hashes::Equal] {
        let accounted = |table: &Table<Entry>| table.memory_bytes().cast_signed();
        let held_before = held_bytes();
        let mut table = Table::new();
        let count = match hashes {
            _ if cfg!(miri) => 35,
            Hashes::Even => 20_000,
            _ => 1000,
        };
        for id in 0..count {
            insert(&mut table, hashes.entry(id));
            assert_eq!(held_bytes() - held_before, accounted(&table), "{hashes:?}");
        }
        for id in 0..count {
            remove(&mut table, hashes.entry(id));
            assert_eq!(held_bytes() - held_before, accounted(&table), "{hashes:?}");
        }
        assert_eq!(table.memory_bytes(), 0, "an empty table owns nothing");
    }
}

#[test]
fn clear_frees_everything_at_once() {
    let held_before = held_bytes();
    let mut table = Table::new();
    assert_eq!(held_bytes(), held_before, "a new table has allocated nothing");
    (0..if cfg!(miri) { 150 } else { 1000 }).for_each(|id| insert(&mut table, even(id)));
    assert!(held_bytes() > held_before);
    table.clear();
    assert_eq!((table.len(), table.memory_bytes()), (0, 0));
    assert_eq!(held_bytes(), held_before);
    insert(&mut table, even(1));
    assert_eq!(table.len(), 1);
}

/// The guarantee of the crate's head: at no size is the table much larger than its entries.
#[test]
fn grows_without_valleys() {
    let mut table = Table::new();
    for number in 0..if cfg!(miri) { 160 } else { 200_000 } {
        insert_number(&mut table, number);
        let bytes = bytes_per_entry(&table);
        assert!(table.len() < 33 || bytes < 12.5, "{bytes} at {} entries", table.len());
        assert!(table.len() < 15 || bytes < 18.2, "{bytes} at {} entries", table.len());
    }
}

/// A segment is at least half full, or about to shrink.
#[test]
fn shrinks_with_its_entries() {
    let mut table = Table::new();
    let count = if cfg!(miri) { 160 } else { 100_000 };
    (0..count).for_each(|number| insert_number(&mut table, number));
    // An order unrelated to that of insertion.
    for number in (0..count).map(|n| n * 7919 % count) {
        remove_number(&mut table, number);
        let bytes = bytes_per_entry(&table);
        assert!(table.len() < 100 || bytes < 20.0, "{bytes} at {} entries", table.len());
        assert!(table.len() > 100 || table.memory_bytes() < 100 * 25);
    }
    assert_eq!(table.memory_bytes(), 0);
}

/// Removing and inserting in turn never rebuilds a segment repeatedly, at any fill of the table
/// between two sizes.
#[test]
fn does_not_flutter_at_any_size() {
    let hashed = Cell::new(0);
    let hash = |number: &u64| {
        hashed.set(hashed.get() + 1);
        mix(*number)
    };
    let mut table = Table::new();
    let sizes = if cfg!(miri) { 16 } else { 3000 };
    for number in 0..sizes {
        table.insert_unique(mix(number), number, &hash);
        hashed.set(0);
        for _ in 0..20 {
            let removed = table.remove(mix(number), |entry| *entry == number, &hash);
            assert_eq!(removed, Some(number));
            table.insert_unique(mix(number), number, &hash);
        }
        // One rebuild at most: a segment has 896 slots.
        assert!(hashed.get() <= 896, "{} hashes at {} entries", hashed.get(), table.len());
    }
    // And on the way down.
    for number in (1..sizes).rev() {
        table.remove(mix(number), |entry| *entry == number, &hash);
        hashed.set(0);
        for _ in 0..20 {
            table.insert_unique(mix(number), number, &hash);
            table.remove(mix(number), |entry| *entry == number, &hash);
        }
        assert!(hashed.get() <= 2 * 896, "{} hashes at {} entries", hashed.get(), table.len());
    }
}
