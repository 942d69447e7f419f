//! Wakes the reaper.
//!
//! Whoever sets a deadline that is earlier than the time the reaper sleeps until has to wake it,
//! and whoever sets any other must not pay for it. Neither may be missed: the reaper announces the
//! time and then looks at the deadlines once more; the others publish their deadline and then look
//! at the announced time. With a sequentially consistent fence between the two steps on both sides,
//! at least one of them sees the other.

use std::sync::atomic::{AtomicI64, Ordering, fence};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The reaper is not asleep, so there is nobody to wake.
const AWAKE: i64 = i64::MIN;

#[derive(Debug)]
pub(crate) struct Alarm {
    /// When the reaper will wake by itself, or [`AWAKE`].
    sleeps_until_ms: AtomicI64,
    rings: Mutex<bool>,
    ringing: Condvar,
}

impl Default for Alarm {
    fn default() -> Self {
        Self {
            sleeps_until_ms: AtomicI64::new(AWAKE),
            rings: Mutex::default(),
            ringing: Condvar::new(),
        }
    }
}

impl Alarm {
    /// A deadline was published. Wakes the reaper if that sleeps longer.
    #[inline]
    pub(crate) fn deadline_published(&self, deadline_ms: i64) {
        fence(Ordering::SeqCst);
        if deadline_ms < self.sleeps_until_ms.load(Ordering::Relaxed) {
            self.ring();
        }
    }

    /// Wakes the reaper, or keeps it from falling asleep.
    #[cold]
    pub(crate) fn ring(&self) {
        // The next deadline need not ring again.
        self.sleeps_until_ms.store(AWAKE, Ordering::Relaxed);
        *self.rings.lock() = true;
        self.ringing.notify_one();
    }

    /// Announces how long the reaper is going to sleep. Afterwards it has to look for earlier
    /// deadlines once more.
    pub(crate) fn announce_sleep(&self, until_ms: i64) {
        self.sleeps_until_ms.store(until_ms, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Sleeps until the alarm rings or `timeout` has passed.
    pub(crate) fn sleep(&self, timeout: Duration) {
        let mut rings = self.rings.lock();
        if !*rings {
            self.ringing.wait_for(&mut rings, timeout);
        }
        *rings = false;
        self.sleeps_until_ms.store(AWAKE, Ordering::Relaxed);
    }
}
