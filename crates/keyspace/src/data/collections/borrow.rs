//! Collections borrowed for reading.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;

use tierce_collections::Collection;

/// A collection that an entry owns, borrowed for reading.
pub struct BorrowGuard<'a, T> {
    /// Made of the owner's pointer, and never dropped.
    value: ManuallyDrop<T>,
    owner: PhantomData<&'a T>,
}

impl<T> BorrowGuard<'_, T> {
    /// `value` must be owned by something else that outlives the lifetime.
    pub(crate) fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), owner: PhantomData }
    }
}

impl BorrowGuard<'_, Collection> {
    /// Hides elements that have expired by this time; see [`Set::as_of`](tierce_collections::Set::as_of).
    #[inline]
    pub(crate) fn hide_due(&mut self, now_ms: i64) {
        if let Collection::Set(set) = &mut *self.value {
            set.as_of(now_ms);
        }
    }
}

impl<T> Deref for BorrowGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for BorrowGuard<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}
