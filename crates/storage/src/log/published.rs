//! End of the published part of a log.
//!
//! Threads reserve ranges of the log one after the other under its lock, and store their records there at the same
//! time. They publish them in the order of the log, so that everything before the end that others see is stored.
//!
//! A thread waits until its range begins at the end. If that takes long, an earlier thread has probably lost its
//! processor. So it *offers* its range: the earlier thread publishes it together with its own, and need not wait for
//! the other one the next time. Without that, threads that share a processor would take turns for each record.
//!
//! Invariants:
//! * The end only grows. Every byte before it was stored before, also in the memory order.
//! * One thread at a time may move it: the one whose range begins there, or the one that has locked the log while
//!   nothing is reserved. Only it takes offers, before it moves the end, and those that follow its own range without
//!   a gap. So if the end is where a range begins, no thread has taken that range.
//! * A thread withdraws its offer, unless that was taken, before it publishes its range. So no offer is left behind.

use super::primitives::{AtomicU64, OFFERS, Ordering, SPINS, pause};

/// Offsets and lengths are multiples of this.
const UNIT: u64 = 8;
/// Bits of an offer for the length, in units. The beginning has the others, which suffice to tell it from other ranges
/// that are reserved.
const LEN_BITS: u32 = 20;

/// A reserved range with a stored record.
#[derive(Clone, Copy)]
pub(crate) struct Stored {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Number of the record.
    pub(crate) seq: u64,
}

/// The end of the published part.
pub(crate) struct Published {
    end: AtomicU64,
    /// Offers of threads that wait, by the number of the record; 0 is none. If two have one slot, the later thread
    /// replaces the offer of the earlier one, which then waits for its turn.
    offers: [AtomicU64; OFFERS],
}

impl Default for Published {
    fn default() -> Self {
        Published { end: AtomicU64::new(0), offers: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl Stored {
    fn offer(self) -> u64 {
        let len = (self.end - self.start) / UNIT;
        debug_assert!(len < 1 << LEN_BITS);
        (self.start / UNIT) << LEN_BITS | len
    }
}

impl Published {
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Publishes everything before `end`. Only for the thread that may move the end.
    #[inline]
    pub(crate) fn set(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }

    /// Waits until everything reserved, up to `end`, is published.
    #[inline]
    pub(crate) fn wait_for(&self, end: u64) {
        if self.end() != end {
            (0..).take_while(|_| self.end() != end).for_each(pause);
        }
    }

    /// Waits for the turn of a range. Returns the offset up to which the caller must publish, which covers its range
    /// and maybe others; `None` if another thread has published it.
    #[inline]
    pub(crate) fn await_turn(&self, stored: Stored) -> Option<u64> {
        if self.end() != stored.start && !self.wait_long(stored) {
            return None;
        }
        Some(self.take_offers(stored))
    }

    /// Returns true if it is the turn of a range, `false` if another thread has published it.
    #[cold]
    fn wait_long(&self, stored: Stored) -> bool {
        let slot = self.offer_of(stored.seq);
        let mut turn = 0_u32;
        loop {
            let end = self.end();
            if end >= stored.start {
                if end == stored.start && turn > SPINS {
                    slot.store(0, Ordering::Relaxed);
                }
                return end == stored.start;
            }
            if turn == SPINS {
                slot.store(stored.offer(), Ordering::Release);
            }
            pause(turn);
            turn = turn.saturating_add(1);
        }
    }

    /// Takes all offers that follow a range without a gap. Returns their end.
    #[inline]
    fn take_offers(&self, mut stored: Stored) -> u64 {
        loop {
            let slot = self.offer_of(stored.seq + 1);
            let offer = slot.load(Ordering::Acquire);
            let next = Stored { start: stored.end, end: stored.end, seq: stored.seq + 1 };
            let len = offer ^ next.offer();
            if offer == 0 || len >= 1 << LEN_BITS {
                return stored.end;
            }
            slot.store(0, Ordering::Relaxed);
            stored = Stored { end: next.end + len * UNIT, ..next };
        }
    }

    fn offer_of(&self, seq: u64) -> &AtomicU64 {
        &self.offers[seq as usize % OFFERS]
    }
}
