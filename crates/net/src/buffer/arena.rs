//! The memory of one arena, mapped from the operating system and given back to it.
//!
//! The memory is zeroed when it is mapped, so all of it is initialized at any time. It is neither
//! read nor written here.

use std::ptr::NonNull;

use super::buddy::BLOCK_BYTES_MAX;

/// [`BLOCK_BYTES_MAX`] bytes of memory; unmapped when dropped.
#[derive(Debug)]
pub(super) struct Arena {
    base: NonNull<u8>,
}

impl Arena {
    /// Maps the memory.
    ///
    /// # Panics
    ///
    /// If there is none, as all allocations do.
    pub(super) fn map() -> Arena {
        Arena { base: system::map().expect("out of memory") }
    }

    /// A part of the memory. Valid as long as the arena is.
    pub(super) fn bytes(&self, offset: usize, len: usize) -> NonNull<[u8]> {
        assert!(offset <= BLOCK_BYTES_MAX && len <= BLOCK_BYTES_MAX - offset);
        // SAFETY: `offset` is inside the mapping or one past its end, as was just checked.
        let start = unsafe { self.base.add(offset) };
        NonNull::slice_from_raw_parts(start, len)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: `base` comes from `map`, and only here it is given back. The pool drops an arena
        // only when none of its blocks is taken.
        unsafe { system::unmap(self.base) }
    }
}

#[cfg(not(miri))]
mod system {
    use std::ptr::{self, NonNull};

    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

    use super::BLOCK_BYTES_MAX;

    pub(super) fn map() -> Option<NonNull<u8>> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping at an address of the kernel's choice touches nobody's
        // memory.
        let base =
            unsafe { mmap_anonymous(ptr::null_mut(), BLOCK_BYTES_MAX, access, MapFlags::PRIVATE) };
        NonNull::new(base.ok()?.cast())
    }

    /// # Safety
    ///
    /// `base` comes from [`map`], and nothing refers to the memory any more.
    pub(super) unsafe fn unmap(base: NonNull<u8>) {
        // SAFETY: by the contract this is exactly one mapping, and unused.
        let result = unsafe { munmap(base.as_ptr().cast(), BLOCK_BYTES_MAX) };
        debug_assert!(result.is_ok(), "unmapping our own mapping cannot fail");
    }
}

/// Miri knows no system calls; the allocator stands in for them.
#[cfg(miri)]
mod system {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    use super::BLOCK_BYTES_MAX;

    const LAYOUT: Layout = match Layout::from_size_align(BLOCK_BYTES_MAX, 4096) {
        Ok(layout) => layout,
        Err(_) => unreachable!(),
    };

    pub(super) fn map() -> Option<NonNull<u8>> {
        // SAFETY: the size is not zero.
        NonNull::new(unsafe { alloc_zeroed(LAYOUT) })
    }

    /// # Safety
    ///
    /// `base` comes from [`map`], and nothing refers to the memory any more.
    pub(super) unsafe fn unmap(base: NonNull<u8>) {
        // SAFETY: by the contract this is an allocation with this layout, and unused.
        unsafe { dealloc(base.as_ptr(), LAYOUT) }
    }
}
