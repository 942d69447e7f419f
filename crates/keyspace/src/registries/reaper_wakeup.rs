//! Wakes the reaper.
//!
//! A thread that sets a deadline earlier than the end of the reaper's sleep has to wake the reaper,
//! and one that sets any other deadline must not pay for it. Neither may be missed: the reaper announces the
//! time and then looks at the deadlines once more; the others publish their deadline and then look
//! at the announced time. With a sequentially consistent fence between the two steps on both sides,
//! at least one of them sees the other.

use std::sync::atomic::{AtomicI64, Ordering, fence};
use std::time::Duration;

use parking_lot::Mutex;

use crate::interleaving::Condvar;

/// The reaper is not asleep, so it need not be woken.
const AWAKE: i64 = i64::MIN;

#[derive(Debug)]
pub(crate) struct ReaperWakeup {
    /// When the reaper will wake by itself, or [`AWAKE`].
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
    /// A deadline was published. Wakes the reaper if that sleeps longer.
    #[inline]
    pub(crate) fn deadline_published(&self, deadline_ms: i64) {
        fence(Ordering::SeqCst);
        if deadline_ms < self.sleeps_until_ms.load(Ordering::Relaxed) {
            self.notify();
        }
    }

    /// Wakes the reaper, or keeps it from falling asleep.
    #[cold]
    pub(crate) fn notify(&self) {
        // The next deadline need not notify again.
        self.sleeps_until_ms.store(AWAKE, Ordering::Relaxed);
        *self.notified.lock() = true;
        self.changed.notify_one();
    }

    /// Announces how long the reaper is going to sleep. Afterwards it has to look for earlier
    /// deadlines once more.
    pub(crate) fn announce_sleep(&self, until_ms: i64) {
        self.sleeps_until_ms.store(until_ms, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Sleeps until notified or `timeout` has passed.
    pub(crate) fn sleep(&self, timeout: Duration) {
        let mut notified = self.notified.lock();
        if !*notified {
            self.changed.wait_for(&mut notified, timeout);
        }
        *notified = false;
        self.sleeps_until_ms.store(AWAKE, Ordering::Relaxed);
    }
}

/// The work that is left, and when to go on with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Left {
    Nothing,
    /// Some time later, in busy shards: a program may hold them without end.
    Busy,
    /// At once.
    Something,
}
