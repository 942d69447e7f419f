//! A statistic that the holder of a lock writes and any thread reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number with one writer at a time: the holder of the shard's lock.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) const fn zero() -> Self {
        Self(AtomicU64::new(0))
    }

    // Relaxed throughout: the number says nothing about other memory, and writers are ordered by
    // the lock.
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Sets the number and returns the old one; for a counter with other writers than the lock's holder.
    #[inline]
    pub(crate) fn swap(&self, value: u64) -> u64 {
        self.0.swap(value, Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.set(self.get().wrapping_add(more));
    }

    #[inline]
    pub(crate) fn sub(&self, less: u64) {
        self.set(self.get().wrapping_sub(less));
    }

    /// Adds the change of a quantity from `before` to `after`.
    #[inline]
    pub(crate) fn follow(&self, before: usize, after: usize) {
        self.add((after as u64).wrapping_sub(before as u64));
    }
}
