//! `CLIENT PAUSE`: commands wait, connections stay. And writes that wait while the server is at something that
//! has to be one step.

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, Ordering::Relaxed};

use crate::command::{Flags, Spec};

/// Which commands wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PauseMode {
    /// Those that may change data.
    Write = 1,
    /// All but the few that end a pause.
    All = 2,
}

/// A pause of the whole server.
///
/// It is looked at once a batch; a session that has to wait leaves its requests in the input
/// buffer and asks to be resumed at [`Pause::until_ms`], or when the pause is ended earlier.
#[derive(Default)]
pub struct Pause {
    /// Unix milliseconds; zero when there is none.
    until_ms: AtomicI64,
    mode: AtomicU8,
    /// How many hold writes back for as long as they take.
    holders: AtomicU32,
}

/// Whoever is held back without knowing for how long looks again after so long, if nobody resumes it before.
const LOOK_EVERY_MS: i64 = 100;

impl Pause {
    /// Begins or prolongs a pause. As in Redis, a running pause is never made shorter or weaker.
    pub fn begin(&self, until_ms: i64, mode: PauseMode, now_ms: i64) {
        let running = self.until_ms.load(Relaxed) > now_ms;
        let stronger = self.mode.load(Relaxed).max(mode as u8);
        self.mode.store(if running { stronger } else { mode as u8 }, Relaxed);
        self.until_ms.fetch_max(until_ms, Relaxed);
    }

    /// Ends the pause at once; the caller wakes the sessions that wait.
    pub fn end(&self) {
        self.until_ms.store(0, Relaxed);
    }

    /// Holds writes back, beside any other pause, until [`Pause::let_go`].
    pub fn hold(&self) {
        self.holders.fetch_add(1, Relaxed);
    }

    /// Ends what [`Pause::hold`] began; the caller wakes the sessions that wait.
    pub fn let_go(&self) {
        self.holders.fetch_sub(1, Relaxed);
    }

    fn is_held(&self) -> bool {
        self.holders.load(Relaxed) > 0
    }

    /// Until when a command with these facts has to wait, if it has to.
    #[must_use]
    #[inline]
    pub fn holds(&self, spec: &Spec, now_ms: i64) -> Option<i64> {
        let until_ms = self.until_ms.load(Relaxed);
        if until_ms <= now_ms {
            let waits = self.is_held() && spec.flags.contains(Flags::WRITE);
            return waits.then_some(now_ms + LOOK_EVERY_MS);
        }
        let held = if self.mode.load(Relaxed) == PauseMode::All as u8 {
            // Whoever paused must be able to look after the server and to end it.
            !spec.flags.contains(Flags::ADMIN)
                && !spec.flags.contains(Flags::NO_AUTH)
                && spec.name != "client"
        } else {
            spec.flags.contains(Flags::WRITE)
        };
        held.then_some(until_ms)
    }

    /// Whether a pause is running.
    #[must_use]
    #[inline]
    pub fn is_on(&self, now_ms: i64) -> bool {
        self.until_ms.load(Relaxed) > now_ms || self.is_held()
    }

    /// The running pause: what it is for and how long it lasts, in milliseconds.
    #[must_use]
    pub fn remaining(&self, now_ms: i64) -> Option<(PauseMode, i64)> {
        let left = self.until_ms.load(Relaxed) - now_ms;
        let all = self.mode.load(Relaxed) == PauseMode::All as u8;
        if left <= 0 {
            return self.is_held().then_some((PauseMode::Write, LOOK_EVERY_MS));
        }
        Some((if all { PauseMode::All } else { PauseMode::Write }, left))
    }
}
