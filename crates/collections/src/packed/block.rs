//! The allocation of a packed collection: an 8-byte header, then the bytes of the elements.
//!
//! The only unsafe part of the module. Invariants:
//!
//! - `header` points to a `Header`, followed by `capacity()` bytes, the first `used` of them initialized.
//! - Header and bytes are one allocation of `class_bytes(class)` bytes, which this block owns; or
//!   `class` is 0, and the header is `EMPTY`, which has no bytes and is never written to.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::ptr::{self, NonNull};

use crate::size_class;

/// Header before the elements.
#[repr(C, align(8))]
struct Header {
    /// Bytes of the elements.
    used: u32,
    /// Number of elements, and in the low eight bits the size class of the allocation.
    count_and_class: u32,
}

const HEADER_LEN: usize = size_of::<Header>();
const CLASS_BITS: u32 = 8;

/// Maximum number of elements of a block.
pub const COUNT_MAX: usize = (1 << (32 - CLASS_BITS)) - 1;

/// Maximum bytes of elements: the capacity of the largest class that `used` can express.
pub const USED_MAX: usize = class_bytes(CLASS_MAX) - HEADER_LEN;

/// The class of 3.5 GiB.
const CLASS_MAX: u8 = 8 + 4 * 24 + 3;

/// Blocks without elements need no allocation.
static EMPTY: Header = Header { used: 0, count_and_class: 0 };

/// Returns the number of a size class: 1 for 16 bytes.
fn class_of(bytes: usize) -> u8 {
    let bytes = size_class(bytes);
    if bytes <= 128 {
        return (bytes / 16) as u8;
    }
    let top = usize::BITS - 1 - (bytes - 1).leading_zeros();
    let steps = (bytes - (1 << top)) >> (top - 2);
    8 + 4 * (top - 7) as u8 + steps as u8
}

/// Returns the bytes of an allocation of size class number `class`, the inverse of `class_of`; 0 for 0.
pub const fn class_bytes(class: u8) -> usize {
    if class <= 8 {
        return class as usize * 16;
    }
    let (doublings, steps) = ((class - 9) / 4, (class - 9) % 4 + 1);
    (128usize << doublings) + ((32usize << doublings) * steps as usize)
}

/// An allocation with header and elements; see the head of this file.
pub struct Block {
    header: NonNull<Header>,
}

// SAFETY: a block owns its allocation alone, and `EMPTY` is only ever read.
unsafe impl Send for Block {}
// SAFETY: as above; through a shared reference it is only read.
unsafe impl Sync for Block {}

impl Block {
    /// Creates a block without elements and without an allocation.
    #[inline]
    pub const fn new() -> Self {
        Self { header: NonNull::from_ref(&EMPTY) }
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: it points to a header by the invariant of this type.
        unsafe { self.header.as_ref() }
    }

    /// Returns the number of elements.
    #[inline]
    pub fn count(&self) -> usize {
        (self.header().count_and_class >> CLASS_BITS) as usize
    }

    /// Returns the number of the size class of the allocation, which states its bytes.
    #[inline]
    pub fn class(&self) -> u8 {
        self.header().count_and_class as u8
    }

    /// Returns the bytes of the allocation.
    #[inline]
    pub fn allocated_bytes(&self) -> usize {
        class_bytes(self.class())
    }

    /// Returns the bytes of the elements.
    #[inline]
    pub fn used(&self) -> usize {
        self.header().used as usize
    }

    /// Returns the bytes of the elements.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `used` bytes behind the header are initialized, and the borrow keeps them so.
        unsafe { std::slice::from_raw_parts(self.first_byte(), self.used()) }
    }

    #[inline]
    fn first_byte(&self) -> *mut u8 {
        // SAFETY: the header is complete, so the address after it is within or at the end of the allocation.
        unsafe { self.header.as_ptr().add(1).cast() }
    }

    /// Writes the header. The caller has initialized `used` bytes, and the block is allocated.
    #[inline]
    fn set_header(&mut self, used: usize, count: usize, class: u8) {
        debug_assert!(used + HEADER_LEN <= class_bytes(class) && count <= COUNT_MAX);
        let count_and_class = (count as u32) << CLASS_BITS | u32::from(class);
        // SAFETY: an allocated block owns its header, see the invariant.
        unsafe { self.header.as_ptr().write(Header { used: used as u32, count_and_class }) };
    }

    /// Reserves room for `used` bytes in total.
    #[inline]
    pub fn reserve(&mut self, used: usize) {
        if used + HEADER_LEN > self.allocated_bytes() && used > 0 {
            self.resize(used);
        }
    }

    /// Moves to an allocation of the class for `used` bytes, which the elements fit in.
    ///
    /// # Panics
    ///
    /// If that is more than `USED_MAX`.
    #[cold]
    fn resize(&mut self, used: usize) {
        assert!(used <= USED_MAX && used >= self.used(), "a block of {used} bytes");
        let (class, old) = (class_of(used + HEADER_LEN), self.class());
        let (used, count) = (self.used(), self.count());
        let layout = layout(class);
        let pointer = if old == 0 {
            // SAFETY: no class but 0 has a size of zero.
            unsafe { alloc(layout) }
        } else {
            // SAFETY: the allocation is ours and was made with the layout of its class.
            unsafe { realloc(self.header.as_ptr().cast(), self::layout(old), layout.size()) }
        };
        let Some(header) = NonNull::new(pointer) else { handle_alloc_error(layout) };
        self.header = header.cast();
        self.set_header(used, count, class);
    }

    /// Replaces the `removed` bytes from `at` on by `parts`; `count` is the new number of elements.
    ///
    /// # Panics
    ///
    /// If there are no such bytes, or it would be larger than `COUNT_MAX` or `USED_MAX`.
    pub fn splice(&mut self, at: usize, removed: usize, parts: [&[u8]; 3], count: usize) {
        let added: usize = parts.iter().map(|part| part.len()).sum();
        let fill = |mut to: *mut u8| {
            for part in parts {
                // SAFETY: the gap has room for all parts, which are borrowed from elsewhere, as `self` is borrowed
                // mutably.
                unsafe {
                    copy_short(part, to);
                    to = to.add(part.len());
                }
            }
        };
        // SAFETY: `fill` writes as many bytes as all parts have.
        unsafe { self.replace(at, removed, added, count, fill) };
    }

    /// Like [`Block::splice`], with a part of one byte before and after `body`, as nearly all elements have. As slices
    /// of unknown length they would cost more than the body.
    pub fn splice_short(
        &mut self,
        at: usize,
        removed: usize,
        [head, tail]: [u8; 2],
        body: &[u8],
        count: usize,
    ) {
        let fill = |to: *mut u8| {
            // SAFETY: the gap has room for the body and two bytes. The body is borrowed from elsewhere, as `self` is
            // borrowed mutably.
            unsafe {
                to.write(head);
                copy_short(body, to.add(1));
                to.add(1 + body.len()).write(tail);
            }
        };
        // SAFETY: `fill` writes that many bytes.
        unsafe { self.replace(at, removed, 2 + body.len(), count, fill) };
    }

    /// Replaces the `removed` bytes from `at` on by `added` bytes, which `fill` writes. Panics as `splice`.
    ///
    /// # Safety
    ///
    /// `fill` must initialize `added` bytes from its argument on, and no others.
    #[inline(always)]
    unsafe fn replace(
        &mut self,
        at: usize,
        removed: usize,
        added: usize,
        count: usize,
        fill: impl FnOnce(*mut u8),
    ) {
        let used = self.used();
        assert!(at <= used && removed <= used - at && count <= COUNT_MAX, "outside of the block");
        let used_then = used - removed + added;
        self.reserve(used_then);
        let class = self.class();
        if class == 0 {
            return;
        }
        // SAFETY: there is room for `used_then` bytes now. So the bytes after the removed ones, which end at `used`,
        // fit in their new place, after a gap of `added` bytes.
        let gap = unsafe {
            let gap = self.first_byte().add(at);
            let behind = used - at - removed;
            if behind > 0 {
                ptr::copy(gap.add(removed), gap.add(added), behind);
            }
            gap
        };
        fill(gap);
        self.set_header(used_then, count, class);
        if removed > added {
            self.shrink();
        }
    }

    /// Frees memory when half of it is unused. An earlier limit would move a queue whose length alternates at the
    /// border of two classes each time.
    #[inline]
    fn shrink(&mut self) {
        if self.used() + HEADER_LEN <= self.allocated_bytes() / 2 {
            self.shrink_to_fit();
        }
    }

    /// Frees all memory that the elements do not need.
    pub fn shrink_to_fit(&mut self) {
        if self.used() == 0 {
            *self = Self::new();
        } else if class_of(self.used() + HEADER_LEN) < self.class() {
            self.resize(self.used());
        }
    }

    /// Converts the block into its pointer.
    #[inline]
    pub fn into_raw(self) -> NonNull<u8> {
        let pointer = self.header.cast();
        std::mem::forget(self);
        pointer
    }

    /// Converts the result of `into_raw` back.
    ///
    /// # Safety
    ///
    /// The pointer comes from a call of `into_raw` and is not used again.
    #[inline]
    pub unsafe fn from_raw(pointer: NonNull<u8>) -> Self {
        Self { header: pointer.cast() }
    }
}

/// Copies bytes to other memory: up to 16, as most elements have, without a call.
///
/// # Safety
///
/// There must be room for as many bytes at `to`, outside of `bytes`.
#[inline]
unsafe fn copy_short(bytes: &[u8], to: *mut u8) {
    let (from, len) = (bytes.as_ptr(), bytes.len());
    // Two words that overlap if the length is less than twice their size.
    // SAFETY: the words are within the first `len` bytes of both.
    unsafe {
        match len {
            8..=16 => {
                let (first, last) = (from.cast::<[u8; 8]>(), from.add(len - 8).cast::<[u8; 8]>());
                to.cast::<[u8; 8]>().write(*first);
                to.add(len - 8).cast::<[u8; 8]>().write(*last);
            }
            4..=7 => {
                let (first, last) = (from.cast::<[u8; 4]>(), from.add(len - 4).cast::<[u8; 4]>());
                to.cast::<[u8; 4]>().write(*first);
                to.add(len - 4).cast::<[u8; 4]>().write(*last);
            }
            1..=3 => {
                to.write(*from);
                to.add(len / 2).write(*from.add(len / 2));
                to.add(len - 1).write(*from.add(len - 1));
            }
            0 => {}
            _ => ptr::copy_nonoverlapping(from, to, len),
        }
    }
}

fn layout(class: u8) -> Layout {
    Layout::from_size_align(class_bytes(class), align_of::<Header>()).expect("a class is small")
}

impl Drop for Block {
    #[inline]
    fn drop(&mut self) {
        let class = self.class();
        if class != 0 {
            // SAFETY: the allocation is ours and was made with the layout of its class.
            unsafe { dealloc(self.header.as_ptr().cast(), layout(class)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_numbers() {
        assert_eq!(class_bytes(0), 0);
        for class in 1..=CLASS_MAX {
            let bytes = class_bytes(class);
            assert_eq!(size_class(bytes), bytes);
            assert_eq!(class_of(bytes), class);
            assert_eq!(class_of(class_bytes(class - 1) + 1), class);
        }
        assert!(USED_MAX < u32::MAX as usize);
    }

    #[test]
    fn a_short_element_is_copied_whole() {
        let body: Vec<u8> = (1..64).collect();
        for len in 0..=body.len() {
            let (mut short, mut parts) = (Block::new(), Block::new());
            for block in [&mut short, &mut parts] {
                block.splice(0, 0, [b"before", b"replaced", b"behind"], 2);
            }
            short.splice_short(6, 8, [0xaa, 0xbb], &body[..len], 3);
            parts.splice(6, 8, [&[0xaa], &body[..len], &[0xbb]], 3);
            let expected = [b"before\xaa".as_slice(), &body[..len], b"\xbbbehind"].concat();
            assert_eq!((short.bytes(), short.count()), (&expected[..], 3));
            assert_eq!((parts.bytes(), parts.count()), (&expected[..], 3));
        }
    }

    #[test]
    fn memory_follows_the_bytes() {
        let mut block = Block::new();
        assert_eq!(block.allocated_bytes(), 0);
        block.splice(0, 0, [&[7; 1000], b"ab", b"c"], 1);
        assert_eq!((block.used(), block.allocated_bytes()), (1003, 1024));
        block.splice(1, 499, [b"", b"", b""], 1);
        assert_eq!((block.used(), block.allocated_bytes()), (504, 512));
        assert_eq!(&block.bytes()[500..], b"7abc".map(|byte| if byte == b'7' { 7 } else { byte }));
        block.reserve(600);
        assert_eq!((block.used(), block.allocated_bytes()), (504, 640));
        // SAFETY: the pointer comes from `into_raw`.
        let mut block = unsafe { Block::from_raw(block.into_raw()) };
        block.splice(0, 504, [b"", b"", b""], 0);
        assert_eq!((block.bytes(), block.allocated_bytes()), (&b""[..], 0));
        // SAFETY: as above.
        let block = unsafe { Block::from_raw(block.into_raw()) };
        assert_eq!(block.count(), 0);
    }
}
