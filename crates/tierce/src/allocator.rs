//! The allocator of the program: mimalloc, and the kernel's own mappings for what is large.
//!
//! mimalloc keeps a freed block with the thread that allocated it. Where a worker receives a value of 50 MB
//! and another thread frees it, that memory comes back only when the first one allocates again, which may be
//! never. A mapping belongs to no thread: it is back with the system as soon as it is freed, and grows
//! without being copied. See `docs/decisions/0004-allocator.md` for what was measured.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr;

use mimalloc::MiMalloc;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap, munmap};

/// Blocks of this size and more are mappings of their own. Making one takes some microseconds and a page
/// fault for each 4 KiB, which is little beside filling it.
const MAPPED_BYTES_MIN: usize = 1 << 20;

/// No block needs to be aligned more strictly than a mapping is.
const PAGE_BYTES: usize = 4096;

/// See the head of this file.
pub struct Allocator;

/// Which of the two serves a block. It follows from the layout alone, which is the same when the block is
/// freed.
fn is_mapped(size: usize, align: usize) -> bool {
    size >= MAPPED_BYTES_MIN && align <= PAGE_BYTES
}

fn map(size: usize) -> *mut u8 {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
    let mapped =
        unsafe { mmap_anonymous(ptr::null_mut(), size, ProtFlags::READ | ProtFlags::WRITE, flags) };
    mapped.map_or(ptr::null_mut(), <*mut _>::cast)
}

// SAFETY: blocks come from two allocators that keep the contract, and go back to the one they came from,
// because `is_mapped` decides by the layout alone.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_mapped(layout.size(), layout.align()) {
            return map(layout.size());
        }
        // SAFETY: by the caller's promise.
        unsafe { MiMalloc.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_mapped(layout.size(), layout.align()) {
            return map(layout.size());
        }
        // SAFETY: by the caller's promise.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_mapped(layout.size(), layout.align()) {
            // SAFETY: by the caller's promise the block is a whole mapping that nobody uses any more. The
            // kernel does not refuse that.
            let _ = unsafe { munmap(block.cast(), layout.size()) };
            return;
        }
        // SAFETY: by the caller's promise.
        unsafe { MiMalloc.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match (is_mapped(layout.size(), layout.align()), is_mapped(size, layout.align())) {
            // SAFETY: by the caller's promise.
            (false, false) => unsafe { MiMalloc.realloc(block, layout, size) },
            (true, true) => {
                let (old, flags) = (layout.size(), MremapFlags::MAYMOVE);
                // SAFETY: the block is a whole mapping, and its owner expects that it moves.
                let moved = unsafe { mremap(block.cast(), old, size, flags) };
                moved.map_or(ptr::null_mut(), <*mut _>::cast)
            }
            // SAFETY: by the caller's promise.
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
        // SAFETY: by the caller's promise, the size is valid for this alignment.
        let changed =
            unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !changed.is_null() {
            // SAFETY: both blocks hold that many bytes, and the new one is another one.
            unsafe {
                ptr::copy_nonoverlapping(block, changed, size.min(layout.size()));
                self.dealloc(block, layout);
            }
        }
        changed
    }
}

/// Of mimalloc's options, for which its crate has no name; the position in `mi_option_e` of version 2.
const ABANDONED_RECLAIM_ON_FREE: libmimalloc_sys::mi_option_t = 26;

/// To be called before there are threads. When a thread ends, whoever frees what it has allocated takes its
/// memory over. By default it is any thread that needs some: often one that hardly allocates again, where
/// it stays.
pub fn configure() {
    // SAFETY: setting an option has no preconditions, and nobody reads it at the same time.
    unsafe {
        libmimalloc_sys::mi_option_set(libmimalloc_sys::mi_option_max_segment_reclaim, 0);
        libmimalloc_sys::mi_option_set(ABANDONED_RECLAIM_ON_FREE, 1);
    }
}

/// Gives memory back to the system that was freed to the calling thread, and on the first thread of the
/// process that of threads that have ended.
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
