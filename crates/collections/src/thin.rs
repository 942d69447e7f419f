//! Allocations of exactly a size class, for the memory behind 8-byte handles.
//!
//! Addresses are multiples of [`ALIGN`] with at most [`ADDRESS_BITS`] bits, which leaves 20 bits of a handle for data
//! that is needed without following it.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use crate::size_class;

/// Alignment of every size class, so that it costs nothing.
pub(crate) const ALIGN: usize = 16;

/// Bits of an address in user space.
pub(crate) const ADDRESS_BITS: u32 = 48;

/// Bits of a handle that contain the address.
pub(crate) const ADDRESS_MASK: usize = (1 << ADDRESS_BITS) - ALIGN;

const _: () = assert!(usize::BITS == 64, "a handle keeps 16 bits above a 48-bit address");

fn layout(bytes: usize) -> Layout {
    // Elements are bounded by the size of a request, far below `isize::MAX`.
    Layout::from_size_align(size_class(bytes), ALIGN).expect("a size far below isize::MAX")
}

/// Allocates uninitialized memory for `bytes`; the whole [`size_class`] may be used.
#[inline]
pub(crate) fn allocate(bytes: usize) -> NonNull<u8> {
    let layout = layout(bytes);
    // SAFETY: a size class is never zero.
    let pointer = unsafe { alloc(layout) };
    let Some(pointer) = NonNull::new(pointer) else { handle_alloc_error(layout) };
    assert!(pointer.addr().get() & !ADDRESS_MASK == 0, "an address beyond 48 bits");
    pointer
}

/// Frees memory from [`allocate`], given the same bytes or others of the same size class.
///
/// # Safety
///
/// As for [`dealloc`]; the memory must not be used again.
#[inline]
pub(crate) unsafe fn free(pointer: NonNull<u8>, bytes: usize) {
    // SAFETY: as the caller guarantees; the layout depends on the size class alone.
    unsafe { dealloc(pointer.as_ptr(), layout(bytes)) }
}
