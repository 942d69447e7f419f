//! A value on cache lines of its own.

use std::ops::Deref;

/// Keeps a value that many threads write away from what they only read. Processors fetch lines in pairs.
#[derive(Default)]
#[repr(align(128))]
pub struct CacheLine<T>(pub T);

impl<T> Deref for CacheLine<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}
