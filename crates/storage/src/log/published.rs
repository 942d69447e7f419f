//! End of the published part of a log.
//!
//! Threads reserve ranges of the log one after the other under its lock, and store their records there at the same
//! time. They publish them in the order of the log, so that everything before the end that others see is stored.
//!
//! Invariants:
//! * The end only grows. Every byte before it was stored before, also in the memory order.
//! * One thread at a time may move it: the one whose range begins there, or the one that has locked the log while
//!   nothing is reserved.

use super::primitives::{AtomicU64, Ordering, pause};

/// The end of the published part.
#[derive(Default)]
pub(crate) struct Published(AtomicU64);

impl Published {
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Waits until everything before `offset` is published, where a range begins or the reserved part ends.
    #[inline]
    pub(crate) fn wait_for(&self, offset: u64) {
        if self.end() != offset {
            self.wait_long(offset);
        }
    }

    /// An earlier writer is about to store its record. It has no lock, but may have lost its processor, or wait for a
    /// page of the tail.
    #[cold]
    fn wait_long(&self, offset: u64) {
        (0..).take_while(|_| self.end() != offset).for_each(pause);
    }

    /// Publishes everything before `end`. Only for the thread that may move the end.
    #[inline]
    pub(crate) fn set(&self, end: u64) {
        self.0.store(end, Ordering::Release);
    }
}
