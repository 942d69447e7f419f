//! Decides which thread answers a waiter: exactly one of those that can serve it, or its timeout.
//!
//! A thread that may serve a waiter claims it, tries to serve it, and then either has answered it or returns the
//! claim. Meanwhile:
//!
//! - Another thread that may serve it leaves a note, since the holder of the claim may have checked before. If a
//!   thread returns a claim and finds a note, it must check once more.
//! - On a timeout or an unblocking, the reason is stored. The holder of the claim answers with it, unless it can
//!   serve the waiter.
//!
//! **Invariants:** `DONE` is final, and exactly one call reaches it: that caller answers. A note is never lost: it is
//! left while the claim is held, and the thread that returns the claim sees it.

use super::sync::{AtomicU32, Ordering};

const WAITING: u32 = 0;
const CLAIMED: u32 = 1;
const DONE: u32 = 2;
/// Flag with `CLAIMED`.
const NOTE: u32 = 4;
/// First bit, with `CLAIMED`, of the reason to answer the waiter without serving it.
const REASON_SHIFT: u32 = 8;

/// Reason to answer a waiter without serving it; its meaning is up to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason(pub u8);

/// Result of an attempt to claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    /// The caller holds the claim.
    Yes,
    /// Another thread holds the claim, and will check once more.
    ByAnother,
    /// The waiter was answered.
    Done,
}

/// Next step after returning a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Returned {
    /// Nothing: the waiter waits.
    Waiting,
    /// The claim is still held: check once more.
    CheckAgain,
    /// The caller must answer the waiter for this reason.
    Answer(Reason),
}

/// Result of a cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// The caller answers.
    Now,
    /// The holder of the claim answers, for this reason or with a result.
    ByAnother,
    /// The waiter was already answered.
    TooLate,
}

/// State of a waiter; see the head of this file.
#[derive(Debug)]
pub struct WaiterState(AtomicU32);

impl WaiterState {
    /// Returns the state of a waiter that waits.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "each belongs to a waiter")]
    pub fn new() -> Self {
        Self(AtomicU32::new(WAITING))
    }

    /// Claims the waiter, or leaves a note for the holder of the claim.
    pub fn claim(&self) -> Claimed {
        self.advance(|state| match state {
            WAITING => (CLAIMED, Claimed::Yes),
            DONE => (DONE, Claimed::Done),
            claimed => (claimed | NOTE, Claimed::ByAnother),
        })
    }

    /// Ends the wait: the holder of the claim has answered.
    pub fn done(&self) {
        // Notes and reasons are of no use any more.
        self.0.store(DONE, Ordering::Release);
    }

    /// Returns the claim: its holder has nothing for the waiter.
    pub fn give_back(&self) -> Returned {
        self.advance(|state| {
            if state & NOTE != 0 {
                return (state & !NOTE, Returned::CheckAgain);
            }
            match (state >> REASON_SHIFT) as u8 {
                0 => (WAITING, Returned::Waiting),
                reason => (DONE, Returned::Answer(Reason(reason))),
            }
        })
    }

    /// Cancels the wait, for a reason other than 0.
    pub fn cancel(&self, reason: Reason) -> Cancelled {
        debug_assert!(reason.0 != 0);
        self.advance(|state| match state {
            WAITING => (DONE, Cancelled::Now),
            DONE => (DONE, Cancelled::TooLate),
            // The first reason counts.
            claimed if claimed >> REASON_SHIFT != 0 => (claimed, Cancelled::ByAnother),
            claimed => (claimed | u32::from(reason.0) << REASON_SHIFT, Cancelled::ByAnother),
        })
    }

    /// Withdraws the waiter, so that no thread answers it. Call it before another thread can know the waiter.
    pub(crate) fn withdraw(&self) {
        self.0.store(DONE, Ordering::Release);
    }

    /// Returns true if the waiter was answered.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.0.load(Ordering::Acquire) == DONE
    }

    fn advance<R>(&self, step: impl Fn(u32) -> (u32, R)) -> R {
        let mut state = self.0.load(Ordering::Acquire);
        loop {
            let (next, result) = step(state);
            match self.0.compare_exchange(state, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return result,
                Err(other) => state = other,
            }
        }
    }
}
