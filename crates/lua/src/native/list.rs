//! Growing lists whose memory belongs to the state.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::{ptr, slice};

use mlua_sys as ffi;

use super::Stack;

/// Bytes that are copied between two calls of the hook.
const BYTES_PER_LOOK: usize = 256 * 1024;

/// Values that are stored in the frame of the function while they are few, and in a userdata later.
///
/// A longjmp of Lua leaks nothing: the collector frees the userdata. It occupies one slot of the stack, the top at the
/// time of creation, which must stay while the list is used.
///
/// A script may be stopped whenever it grows, however many values are added at once.
pub struct List<'call, T: Copy, const INLINE: usize> {
    stack: Stack<'call>,
    /// The slot: nil, or the userdata.
    slot: c_int,
    len: usize,
    capacity: usize,
    /// Bytes to copy until the next call of the hook.
    until_look: usize,
    /// The userdata's memory. Null while there is none.
    block: *mut T,
    inline: [MaybeUninit<T>; INLINE],
}

impl<'call, T: Copy, const INLINE: usize> List<'call, T, INLINE> {
    /// Creates an empty list, with its slot on top of the stack.
    #[inline]
    pub fn new(stack: Stack<'call>) -> Self {
        // Lua aligns userdata to 8 bytes.
        const { assert!(align_of::<T>() <= 8) };
        stack.push_nil();
        Self {
            stack,
            slot: stack.top(),
            len: 0,
            capacity: INLINE,
            until_look: BYTES_PER_LOOK,
            block: ptr::null_mut(),
            inline: [const { MaybeUninit::uninit() }; INLINE],
        }
    }

    /// Returns the stack of its creation.
    pub fn stack(&self) -> Stack<'call> {
        self.stack
    }

    #[inline]
    fn start(&mut self) -> *mut T {
        if self.block.is_null() { self.inline.as_mut_ptr().cast() } else { self.block }
    }

    /// Returns the values.
    #[inline]
    pub fn as_slice(&self) -> &[T] {
        let start = if self.block.is_null() {
            self.inline.as_ptr().cast()
        } else {
            self.block.cast_const()
        };
        // SAFETY: the first `len` values are written, here or in the userdata, which the slot keeps alive.
        unsafe { slice::from_raw_parts(start, self.len) }
    }

    /// Returns the last value.
    #[inline]
    pub fn last_mut(&mut self) -> Option<&mut T> {
        let last = self.len.checked_sub(1)?;
        // SAFETY: the first `len` values are written.
        Some(unsafe { &mut *self.start().add(last) })
    }

    /// Adds values.
    #[inline]
    pub fn extend(&mut self, values: &[T]) {
        self.reserve(values.len());
        // SAFETY: there is room behind the first `len` values, and `values` is not part of this list, which is
        // borrowed mutably.
        unsafe {
            let end = self.start().add(self.len);
            self.copy(values.as_ptr(), end, values.len());
        }
        self.len += values.len();
    }

    /// Copies values, and calls the hook at intervals.
    ///
    /// # Safety
    ///
    /// As [`ptr::copy_nonoverlapping`]. No frame above owns anything.
    #[inline]
    unsafe fn copy(&mut self, mut from: *const T, mut to: *mut T, mut count: usize) {
        // SAFETY: the caller has made room, and each piece is within the rest.
        unsafe {
            while count * size_of::<T>() >= self.until_look {
                let piece = count.min(self.until_look / size_of::<T>());
                ptr::copy_nonoverlapping(from, to, piece);
                (from, to, count) = (from.add(piece), to.add(piece), count - piece);
                self.until_look = BYTES_PER_LOOK;
                self.stack.look();
            }
            ptr::copy_nonoverlapping(from, to, count);
        }
        self.until_look -= count * size_of::<T>();
    }

    /// Adds `count` times the same value.
    pub fn extend_repeated(&mut self, value: T, count: usize) {
        self.reserve(count);
        for _ in 0..count {
            // SAFETY: there is room for `count` values behind the first `len`.
            unsafe { self.start().add(self.len).write(value) };
            self.len += 1;
        }
    }

    /// Adds a value.
    #[inline]
    pub fn push(&mut self, value: T) {
        self.extend(&[value]);
    }

    /// Removes the last value.
    #[inline]
    pub fn pop(&mut self) {
        self.len = self.len.saturating_sub(1);
    }

    /// Removes its values, and keeps its memory.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    #[inline]
    fn reserve(&mut self, more: usize) {
        if self.capacity - self.len < more {
            self.grow(more);
        }
    }

    /// At least doubles the capacity.
    #[cold]
    fn grow(&mut self, more: usize) {
        let capacity = self.len.saturating_add(more).max(self.capacity.saturating_mul(2));
        // SAFETY: a failed allocation raises Lua's memory error. The old values stay in their slot, or in the frame,
        // until they are copied.
        unsafe {
            let block =
                ffi::lua_newuserdata(self.stack.state, capacity.saturating_mul(size_of::<T>()))
                    .cast::<T>();
            // A call of the hook leaves the values where they are, and the new block on top of the stack.
            let start = self.start();
            self.copy(start, block, self.len);
            self.block = block;
        }
        self.stack.replace(self.slot);
        self.capacity = capacity;
    }
}
