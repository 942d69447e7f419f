//! `CLIENT PAUSE`: commands wait, connections stay. Also defers writes during operations of the server that must be
//! atomic.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicI64, AtomicU8, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use parking_lot::Mutex;

/// The commands that wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PauseMode {
    /// Commands that may change data.
    Write = 1,
    /// All commands but the few that end a pause.
    All = 2,
}

/// A pause of the whole server.
///
/// Sessions check it once a batch. A session that has to wait leaves its requests in the input buffer and asks to be
/// resumed at `until_ms`; an earlier end of the pause also resumes it. The thread that ends a pause may change the role
/// first. A session that sees the end, and reads the role after that, sees the change.
#[derive(Debug, Default)]
pub struct Pause {
    /// Unix milliseconds; zero without a pause.
    until_ms: AtomicI64,
    mode: AtomicU8,
    /// Number of operations that currently defer writes.
    holders: AtomicU32,
    /// Number of ends by `CLIENT UNPAUSE`. Locked to begin or end a pause, so that each is one step.
    ends: Mutex<u32>,
}

/// Defers writes as long as it exists.
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
    /// Waiting sessions notice it by polling.
    fn drop(&mut self) {
        self.0.let_go();
    }
}

/// Interval at which a client polls that waits for an unknown time, unless it is resumed earlier.
const CHECK_EVERY_MS: i64 = 100;

impl Pause {
    /// Begins or prolongs a pause. Returns false if the number of ends is not `ends`, because it was ended in the
    /// meantime. As in Redis, a running pause is never made shorter or weaker.
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

    /// Ends the pause at once. The caller wakes the waiting sessions.
    pub fn end(&self) {
        let mut ends = self.ends.lock();
        self.until_ms.store(0, Release);
        *ends += 1;
    }

    /// Returns the number of ends so far.
    pub fn ends(&self) -> u32 {
        *self.ends.lock()
    }

    /// Defers writes until [`Pause::let_go`], independent of any other pause.
    pub fn hold(&self) {
        self.holders.fetch_add(1, Relaxed);
    }

    /// Reverts [`Pause::hold`]. The caller wakes the waiting sessions.
    pub fn let_go(&self) {
        self.holders.fetch_sub(1, Release);
    }

    /// To be called before `until_ms` is read: the thread that lets go may have begun a pause just before.
    #[inline]
    fn is_held(&self) -> bool {
        self.holders.load(Acquire) > 0
    }

    /// Returns the time until which a request has to wait, if it has to. A request that `writes` always waits. Some
    /// others are exempt from a pause of all, because the client that paused must be able to inspect the server and end
    /// the pause.
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

    /// Returns true during a pause.
    #[inline]
    pub fn is_on(&self, now_ms: i64) -> bool {
        self.is_held() || self.until_ms.load(Acquire) > now_ms
    }

    /// Returns the mode of the running pause and its remaining milliseconds.
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
        // Each thread continues when both have arrived.
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
        // Neither thread leaves the other waiting.
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
