//! `CLIENT PAUSE`: commands wait, connections stay. Also holds writes back while the server does something
//! that must be atomic.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicI64, AtomicU8, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

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
/// buffer and asks to be resumed at `until_ms`, or when the pause is ended earlier. Who ends it may have changed the
/// role before: one that sees the end, and reads the role behind that, sees the change.
#[derive(Debug, Default)]
pub struct Pause {
    /// Unix milliseconds; zero when there is none.
    until_ms: AtomicI64,
    mode: AtomicU8,
    /// How many hold writes back for as long as they take.
    holders: AtomicU32,
    /// Counts its ends by `CLIENT UNPAUSE`.
    ends: AtomicU32,
}

/// Holds writes back as long as it exists.
#[derive(Debug)]
pub struct Hold(Arc<Pause>);

impl Hold {
    /// See [`Pause::hold`].
    #[must_use]
    pub fn new(pause: &Arc<Pause>) -> Self {
        pause.hold();
        Self(Arc::clone(pause))
    }
}

impl Drop for Hold {
    /// Sessions that wait look by themselves.
    fn drop(&mut self) {
        self.0.let_go();
    }
}

/// A client that is held back for an unknown time checks again after this time, if it is not resumed before.
const CHECK_EVERY_MS: i64 = 100;

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
        self.until_ms.store(0, Release);
        self.ends.fetch_add(1, Relaxed);
    }

    /// Ends so far.
    pub fn ends(&self) -> u32 {
        self.ends.load(Relaxed)
    }

    /// Holds writes back, besides any other pause, until [`Pause::let_go`].
    pub fn hold(&self) {
        self.holders.fetch_add(1, Relaxed);
    }

    /// Ends what [`Pause::hold`] began; the caller wakes the sessions that wait.
    pub fn let_go(&self) {
        self.holders.fetch_sub(1, Release);
    }

    /// To be asked before `until_ms` is read: who lets go may have begun a pause just before.
    #[inline]
    fn is_held(&self) -> bool {
        self.holders.load(Acquire) > 0
    }

    /// Until when a request has to wait, if it has to: always if it `writes`. The client that paused must be able to
    /// look after the server and to end it, so some others are exempt from a pause of all.
    #[inline]
    pub fn holds(
        &self,
        writes: bool,
        is_exempt: impl FnOnce() -> bool,
        now_ms: i64,
    ) -> Option<i64> {
        let is_held = self.is_held() && writes;
        let until_ms = self.until_ms.load(Acquire);
        if until_ms <= now_ms {
            return is_held.then_some(now_ms + CHECK_EVERY_MS);
        }
        let holds_all = || self.mode.load(Relaxed) == PauseMode::All as u8;
        (writes || holds_all() && !is_exempt()).then_some(until_ms)
    }

    /// Whether a pause is running.
    #[inline]
    pub fn is_on(&self, now_ms: i64) -> bool {
        self.is_held() || self.until_ms.load(Acquire) > now_ms
    }

    /// The running pause: what it is for and how long it lasts, in milliseconds.
    pub fn remaining(&self, now_ms: i64) -> Option<(PauseMode, i64)> {
        let is_held = self.is_held();
        let left = self.until_ms.load(Relaxed) - now_ms;
        let all = self.mode.load(Relaxed) == PauseMode::All as u8;
        if left <= 0 {
            return is_held.then_some((PauseMode::Write, CHECK_EVERY_MS));
        }
        Some((if all { PauseMode::All } else { PauseMode::Write }, left))
    }
}
