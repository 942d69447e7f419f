//! Decides which thread answers a waiter: exactly one of those that have something for it, or its
//! timeout.
//!
//! A thread that might have something claims the waiter, tries to serve it, and then either has answered it or
//! gives the claim back. Others come meanwhile:
//!
//! - Another thread with something for it leaves a note, since the holder of the claim may have
//!   looked before. A thread that gives a claim back and finds the note must look once more.
//! - Its time is up, or it is to be unblocked: the reason is left, and the holder of the claim answers
//!   with that if there is nothing better.
//!
//! **Invariants:** from `DONE` there is no way back, and exactly one call leads there: it was told so,
//! and answers. A note is never lost: it is left while the claim is held, and the thread that gives
//! the claim back sees it.

use super::sync::{AtomicU32, Ordering};

const WAITING: u32 = 0;
const CLAIMED: u32 = 1;
const DONE: u32 = 2;
/// Beside `CLAIMED`.
const NOTE: u32 = 4;
/// From this bit on, beside `CLAIMED`: why the waiter is to be answered without being served.
const REASON_SHIFT: u32 = 8;

/// Why a waiter is answered without being served; what it means is the caller's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason(pub u8);

/// What became of an attempt to claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    /// The caller holds the claim.
    Yes,
    /// Another thread does, and will look once more.
    ByAnother,
    /// The waiter has its answer.
    Done,
}

/// What is to be done after giving a claim back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Returned {
    /// Nothing: the waiter waits.
    Waiting,
    /// The claim is still held: look once more.
    CheckAgain,
    /// The waiter is to be answered for this reason, by the caller.
    Answer(Reason),
}

/// What became of the end of a waiter's patience.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// The caller answers.
    Now,
    /// The holder of the claim answers, with this or with something better.
    ByAnother,
    /// It has its answer already.
    TooLate,
}

/// See the head of this file.
#[derive(Debug)]
pub struct WaiterState(AtomicU32);

impl WaiterState {
    /// Of a waiter that waits.
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

    /// The holder of the claim has answered.
    pub fn done(&self) {
        // Notes and reasons are of no use any more.
        self.0.store(DONE, Ordering::Release);
    }

    /// The holder of the claim has nothing.
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

    /// The waiter's patience has ended, for a reason other than 0.
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

    /// The waiter is withdrawn, and no thread answers it. To be called before another thread can know of it.
    pub(crate) fn withdraw(&self) {
        self.0.store(DONE, Ordering::Release);
    }

    /// Whether the waiter has its answer.
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
