//! Wakes the reaper.
//!
//! A thread that sets a deadline before the end of the reaper's sleep must wake the reaper, and other deadlines must
//! cost nothing. No deadline may be missed. The reaper announces the end of its sleep and then checks the deadlines
//! once more; a writer publishes its deadline and then checks the announced time. With a sequentially consistent
//! fence between the two steps on both sides, at least one of them sees the other.

use std::sync::atomic::{AtomicI64, Ordering, fence};
use std::time::Duration;

use parking_lot::Mutex;

use crate::interleaving::Condvar;

/// The reaper is awake, so nobody needs to wake it.
const AWAKE: i64 = i64::MIN;

#[derive(Debug)]
pub(crate) struct ReaperWakeup {
    /// Time when the reaper wakes by itself, or [`AWAKE`].
    sleeps_until_ms: AtomicI64,
    notified: Mutex<bool>,
    changed: Condvar,
}

impl Default for ReaperWakeup {
    fn default() -> Self {
        Self {
            sleeps_until_ms: AtomicI64::new(AWAKE),
            notified: Mutex::default(),
            changed: Condvar::new(),
        }
    }
}

impl ReaperWakeup {
    /// Wakes the reaper if it would sleep beyond a deadline, which was just published.
    #[inline]
    pub(crate) fn deadline_published(&self, deadline_ms: i64) {
        fence(Ordering::SeqCst);
        if deadline_ms < self.sleeps_until_ms.load(Ordering::Relaxed) {
            self.notify();
        }
    }

    /// Wakes the reaper, or prevents its sleep.
    #[cold]
    pub(crate) fn notify(&self) {
        // The next deadline need not notify again.
        self.sleeps_until_ms.store(AWAKE, Ordering::Relaxed);
        *self.notified.lock() = true;
        self.changed.notify_one();
    }

    /// Announces the end of the reaper's sleep. Afterwards the reaper must check for earlier deadlines once more.
    pub(crate) fn announce_sleep(&self, until_ms: i64) {
        self.sleeps_until_ms.store(until_ms, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Sleeps until notified, or until `timeout` has passed.
    pub(crate) fn sleep(&self, timeout: Duration) {
        let mut notified = self.notified.lock();
        if !*notified {
            self.changed.wait_for(&mut notified, timeout);
        }
        *notified = false;
        self.sleeps_until_ms.store(AWAKE, Ordering::Relaxed);
    }
}

/// Remaining work, and when to continue it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Left {
    Nothing,
    /// Some time later, in busy shards: a script may keep them locked without end.
    Busy,
    /// Immediately.
    Something,
}
