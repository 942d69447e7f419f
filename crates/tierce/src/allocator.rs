//! The allocator of the program: mimalloc, and separate kernel mappings for large blocks.
//!
//! mimalloc keeps a freed block with the thread that allocated it. If a worker receives a value of 50 MB and
//! another thread frees it, that memory comes back only when the worker allocates again, which may be never. A
//! mapping belongs to no thread: it returns to the system as soon as it is freed, and grows without being copied.
//! The measurements are in `docs/decisions/0004-allocator.md`.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use mimalloc::MiMalloc;
use rustix::mm::{
    Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mremap, munmap,
};

/// Size from which blocks are separate mappings. Making one takes some microseconds and a page fault for each 4
/// KiB, which is little compared with filling it.
const MAPPED_BYTES_MIN: usize = 1 << 20;

/// Maximum number of separate mappings; the system allows a process some 65,000. Further large blocks come from
/// mimalloc.
const MAPPINGS_MAX: usize = 30_000;

/// Number of separate mappings.
static MAPPINGS: AtomicUsize = AtomicUsize::new(0);

/// Alignment of a mapping, and the strictest one of a block that becomes one.
const PAGE_BYTES: usize = 4096;

/// The allocator; see the head of this file.
pub struct Allocator;

/// Returns true if a block of this layout should be a mapping.
#[inline]
fn is_large(size: usize, align: usize) -> bool {
    size >= MAPPED_BYTES_MIN && align <= PAGE_BYTES
}

/// Returns true if a block is a mapping. mimalloc recognizes its own blocks; it is asked only about large ones.
#[inline]
fn is_mapped(block: *mut u8, layout: Layout) -> bool {
    // SAFETY: the function uses the address alone.
    let is_foreign = || unsafe { !libmimalloc_sys::mi_is_in_heap_region(block.cast()) };
    is_large(layout.size(), layout.align()) && is_foreign()
}

/// Creates a mapping. Returns null if there are too many or the system refuses.
fn map(size: usize) -> *mut u8 {
    if MAPPINGS.fetch_add(1, Relaxed) >= MAPPINGS_MAX {
        MAPPINGS.fetch_sub(1, Relaxed);
        return ptr::null_mut();
    }
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
    let mapped =
        unsafe { mmap_anonymous(ptr::null_mut(), size, ProtFlags::READ | ProtFlags::WRITE, flags) };
    mapped.map_or_else(
        |_| {
            MAPPINGS.fetch_sub(1, Relaxed);
            ptr::null_mut()
        },
        |mapped| mapped.cast(),
    )
}

/// Frees a mapping.
///
/// # Safety
///
/// The block is a mapping of this size, and no longer used.
unsafe fn unmap(block: *mut u8, size: usize) {
    MAPPINGS.fetch_sub(1, Relaxed);
    // SAFETY: the caller guarantees it.
    if unsafe { munmap(block.cast(), size) }.is_err() {
        // The system has merged it with others and cannot keep track of one more gap. The addresses are lost, the
        // memory is not. SAFETY: the caller guarantees that the content is not needed.
        let _ = unsafe { madvise(block.cast(), size, Advice::LinuxDontNeed) };
    }
}

// SAFETY: blocks come from two allocators that keep the contract, and return to the one they came from, because
// `is_mapped` identifies it.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout.size(), layout.align()) {
            let block = map(layout.size());
            if !block.is_null() {
                return block;
            }
        }
        // SAFETY: the caller guarantees it.
        unsafe { MiMalloc.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout.size(), layout.align()) {
            let block = map(layout.size());
            if !block.is_null() {
                return block;
            }
        }
        // SAFETY: the caller guarantees it.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_mapped(block, layout) {
            // SAFETY: the block is a whole mapping of this size, and the caller guarantees that it is not used any
            // more.
            return unsafe { unmap(block, layout.size()) };
        }
        // SAFETY: the caller guarantees it.
        unsafe { MiMalloc.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match (is_mapped(block, layout), is_large(size, layout.align())) {
            // This includes a large block of mimalloc that stays large.
            // SAFETY: the caller guarantees it.
            (false, false) => unsafe { MiMalloc.realloc(block, layout, size) },
            (true, true) => {
                let (old, flags) = (layout.size(), MremapFlags::MAYMOVE);
                // SAFETY: the block is a whole mapping, and its owner expects that it moves.
                let moved = unsafe { mremap(block.cast(), old, size, flags) };
                moved.map_or(ptr::null_mut(), |moved| moved.cast())
            }
            // SAFETY: the caller guarantees it.
            _ => unsafe { self.change_allocator(block, layout, size) },
        }
    }
}

impl Allocator {
    /// Copies a block that grows or shrinks past the threshold.
    ///
    /// # Safety
    ///
    /// As [`GlobalAlloc::realloc`].
    #[cold]
    unsafe fn change_allocator(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that the size is valid for this alignment.
        let changed =
            unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !changed.is_null() {
            // SAFETY: both blocks hold that many bytes, and the new one is distinct.
            unsafe {
                ptr::copy_nonoverlapping(block, changed, size.min(layout.size()));
                self.dealloc(block, layout);
            }
        }
        changed
    }
}

/// A mimalloc option that its crate does not name; the position in `mi_option_e` of version 2.
const ABANDONED_RECLAIM_ON_FREE: libmimalloc_sys::mi_option_t = 26;

/// Configures mimalloc. Must be called before there are threads. When a thread ends, the thread that frees its
/// blocks takes its memory over. By default any thread that needs memory does: often one that hardly allocates
/// again, so that the memory stays there.
pub fn configure() {
    // SAFETY: setting an option has no preconditions, and no thread reads it at the same time.
    unsafe {
        libmimalloc_sys::mi_option_set(libmimalloc_sys::mi_option_max_segment_reclaim, 0);
        libmimalloc_sys::mi_option_set(ABANDONED_RECLAIM_ON_FREE, 1);
    }
}

/// Returns memory that was freed to the calling thread to the system. On the first thread of the process, this
/// includes the memory of ended threads.
pub fn collect() {
    // SAFETY: the function has no preconditions and may be called from any thread at any time.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_their_bytes_whatever_they_grow_to() {
        let sizes = [100, MAPPED_BYTES_MIN - 1, MAPPED_BYTES_MIN, 5 * MAPPED_BYTES_MIN, 3000, 1];
        for align in [1, 64, PAGE_BYTES, 4 * PAGE_BYTES] {
            let layout = |size| Layout::from_size_align(size, align).expect("a sound layout");
            // SAFETY: each block is used within its size and freed with its last layout.
            unsafe {
                let mut block = Allocator.alloc_zeroed(layout(sizes[0]));
                assert_eq!(*block.add(99), 0);
                *block = 7;
                for pair in sizes.windows(2) {
                    block = Allocator.realloc(block, layout(pair[0]), pair[1]);
                    assert!(block.addr().is_multiple_of(align));
                    assert_eq!(*block, 7);
                    *block.add(pair[1] - 1) = 7;
                }
                Allocator.dealloc(block, layout(sizes[5]));
            }
        }
    }
}
