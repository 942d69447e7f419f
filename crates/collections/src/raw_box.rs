//! A box that can be aliased.
//!
//! Reading a collection that an entry owns creates a second value of the same pointer, which is never dropped. With a
//! `Box` inside there would be two unique owners, which is undefined behaviour even if both only read.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::size_class;

/// Returns the bytes of a `RawBox<T>`, without the memory that `T` owns.
pub(crate) const fn allocated_bytes_of<T>() -> usize {
    size_class(size_of::<T>())
}

/// Owns a `T` behind a pointer. Of two made from one pointer only one may be dropped, and while there are two, neither
/// may be used mutably.
#[derive(Debug)]
pub(crate) struct RawBox<T> {
    pointer: NonNull<T>,
}

// SAFETY: it owns its `T` like a box.
unsafe impl<T: Send> Send for RawBox<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for RawBox<T> {}

impl<T> RawBox<T> {
    pub(crate) fn new(value: T) -> Self {
        let pointer = Box::into_raw(Box::new(value));
        Self { pointer: NonNull::new(pointer).expect("a box is not null") }
    }

    /// Converts it into its pointer.
    #[inline]
    pub(crate) fn into_raw(self) -> NonNull<T> {
        std::mem::ManuallyDrop::new(self).pointer
    }

    /// Converts the result of `into_raw` back.
    ///
    /// # Safety
    ///
    /// The pointer must come from `into_raw`, and the rules of this type and of the head of this file must hold.
    #[inline]
    pub(crate) unsafe fn from_raw(pointer: NonNull<T>) -> Self {
        Self { pointer }
    }
}

impl<T> Deref for RawBox<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the pointer comes from a box that is not freed yet.
        unsafe { self.pointer.as_ref() }
    }
}

impl<T> DerefMut for RawBox<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; the creator of a second one guarantees that it is not in use now.
        unsafe { self.pointer.as_mut() }
    }
}

impl<T> Drop for RawBox<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from a box, and this is the only owner that is dropped.
        drop(unsafe { Box::from_raw(self.pointer.as_ptr()) });
    }
}
