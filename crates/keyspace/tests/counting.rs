//! A counting allocator, for tests of memory that is left behind.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

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

/// Bytes that this thread has allocated and not freed.
pub(crate) fn held_bytes() -> isize {
    HELD_BYTES.get()
}
