//! `CLIENT PAUSE`: commands wait, connections stay. Also holds writes back while the server does something
//! that must be atomic.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicI64, AtomicU8, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use parking_lot::Mutex;

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
    /// Counts its ends by `CLIENT UNPAUSE`. Locked by who begins or ends it: each is one step.
    ends: Mutex<u32>,
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
    /// Begins or prolongs a pause; `false` if there were not this many ends, as one has ended it before. As in Redis, a
    /// running pause is never made shorter or weaker.
    #[must_use]
    pub fn begin(&self, ends: u32, until_ms: i64, mode: PauseMode, now_ms: i64) -> bool {
        let ended = self.ends.lock();
        if *ended != ends {
            return false;
        }
        let running = self.until_ms.load(Relaxed) > now_ms;
        let stronger = self.mode.load(Relaxed).max(mode as u8);
        self.mode.store(if running { stronger } else { mode as u8 }, Relaxed);
        self.until_ms.fetch_max(until_ms, Release);
        true
    }

    /// Ends the pause at once; the caller wakes the sessions that wait.
    pub fn end(&self) {
        let mut ends = self.ends.lock();
        self.until_ms.store(0, Release);
        *ends += 1;
    }

    /// Ends so far.
    pub fn ends(&self) -> u32 {
        *self.ends.lock()
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::AcqRel;
    use std::thread;

    use super::*;

    #[test]
    fn of_two_that_begin_at_once_the_stronger_one_counts() {
        const ROUNDS: i64 = 2_000;
        let (pause, arrived) = (Pause::default(), AtomicI64::new(0));
        // Each goes on when both are there.
        let meet = |place: i64| {
            arrived.fetch_add(1, AcqRel);
            while arrived.load(Acquire) < 2 * place {
                thread::yield_now();
            }
        };
        let begin = |mode| {
            let fails = |&now_ms: &i64| {
                meet(2 * now_ms + 1);
                let is_begun = pause.begin(0, now_ms + 1, mode, now_ms);
                meet(2 * now_ms + 2);
                !is_begun || pause.remaining(now_ms) != Some((PauseMode::All, 1))
            };
            (0..ROUNDS).filter(fails).count()
        };
        // Neither leaves the other one waiting.
        let failed = thread::scope(|scope| {
            let other = scope.spawn(|| begin(PauseMode::All));
            [begin(PauseMode::Write), other.join().expect("the other thread")]
        });
        assert_eq!(failed, [0, 0]);
    }

    #[test]
    fn one_that_was_ended_before_does_not_begin() {
        let pause = Pause::default();
        let ends = pause.ends();
        pause.end();
        assert!(!pause.begin(ends, 10, PauseMode::All, 0));
        assert!(!pause.is_on(0));
        assert!(pause.begin(pause.ends(), 10, PauseMode::All, 0));
        assert!(pause.is_on(0));
    }
}
