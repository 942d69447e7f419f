//! Source of the time.
//!
//! Operations get the time as an argument, once per loop turn. Only the reaper, which runs by
//! itself, asks a clock.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Tells the time: Unix time in milliseconds, as deadlines are.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now_ms(&self) -> i64;
}

/// The machine's wall clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        // A clock before 1970 is a misconfigured machine; nothing expires until it is set.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
    }
}

/// A clock that moves only when told to, for tests.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ms: AtomicI64,
}

impl ManualClock {
    /// A clock that is at `now_ms`.
    pub fn new(now_ms: i64) -> Self {
        Self { now_ms: AtomicI64::new(now_ms) }
    }

    /// Moves the clock to `now_ms`. A [`Reaper`](crate::Reaper) that sleeps does not notice by
    /// itself: see [`Reaper::wake`](crate::Reaper::wake).
    pub fn set(&self, now_ms: i64) {
        // Release, so that a thread that sees the new time also sees what the test did before.
        self.now_ms.store(now_ms, Ordering::Release);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::Acquire)
    }
}
