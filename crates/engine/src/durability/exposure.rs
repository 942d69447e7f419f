//! Measures the age of the oldest write that a power cut would lose.
//!
//! Under `everysec` the log is synced once a second. While syncs are quick, a power cut loses at most the
//! acknowledged writes of the last second. If a sync is slow, writers wait once the oldest unsynced write
//! is [`AGE_MS_MAX`] old, until the device has caught up. So all unsynced writes were accepted within that
//! time, however slow the device is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Maximum age of an unsynced write under `everysec`.
const AGE_MS_MAX: u64 = 2_000;

/// Interval in which a waiting writer checks again: `appendfsync` may have changed.
pub const CHECK_AGAIN_MS: u64 = 100;

/// State of unsynced writes, published by the sync thread for writers.
#[derive(Debug)]
pub struct Exposure {
    started: Instant,
    /// Milliseconds that tests add to the clock.
    ahead_ms: AtomicU64,
    /// Everything appended before this moment is durable.
    safe_before_ms: AtomicU64,
    /// True while a sync is running, or follows at once because the last one took too long.
    is_busy: AtomicBool,
    /// Moment since when writers wait; zero when none waits.
    held_since_ms: AtomicU64,
    /// Number of times that writers began to wait.
    delays: AtomicU64,
    /// A client relies on a sync within a second, whatever `appendfsync` says.
    is_guaranteed: AtomicBool,
}

impl Default for Exposure {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            ahead_ms: AtomicU64::new(0),
            safe_before_ms: AtomicU64::new(0),
            is_busy: AtomicBool::new(false),
            held_since_ms: AtomicU64::new(0),
            delays: AtomicU64::new(0),
            is_guaranteed: AtomicBool::new(false),
        }
    }
}

impl Exposure {
    /// Returns the milliseconds that have passed, never zero.
    pub(super) fn now_ms(&self) -> u64 {
        1 + self.started.elapsed().as_millis() as u64 + self.ahead_ms.load(Relaxed)
    }

    /// Advances the clock.
    pub(super) fn advance(&self, ms: u64) {
        self.ahead_ms.fetch_add(ms, Relaxed);
    }

    /// Returns true if writers must wait. Called once per batch.
    #[inline]
    pub fn is_too_long(&self) -> bool {
        self.is_busy.load(Relaxed) && self.age_ms() > AGE_MS_MAX
    }

    fn age_ms(&self) -> u64 {
        self.now_ms().saturating_sub(self.safe_before_ms.load(Relaxed))
    }

    /// Notes that a writer waits. It may miss the wake-up if the wait is just ending, so it checks again
    /// after [`CHECK_AGAIN_MS`].
    #[cold]
    pub fn hold(&self) {
        let is_first =
            self.held_since_ms.compare_exchange(0, self.now_ms(), Relaxed, Relaxed).is_ok();
        self.delays.fetch_add(u64::from(is_first), Relaxed);
    }

    /// Returns how many times writers began to wait.
    pub fn delays(&self) -> u64 {
        self.delays.load(Relaxed)
    }

    /// Notes that a client relies on its writes becoming durable within a second.
    #[inline]
    pub fn note_guarantee(&self) {
        self.is_guaranteed.store(true, Relaxed);
    }

    pub(super) fn take_guarantee(&self) -> bool {
        self.is_guaranteed.swap(false, Relaxed)
    }

    /// Notes that everything appended before `moment_ms` is durable.
    pub(super) fn note_safe(&self, moment_ms: u64) {
        self.safe_before_ms.store(moment_ms, Relaxed);
    }

    /// Notes the begin of a sync. Returns its time, for [`end_sync`](Self::end_sync).
    pub(super) fn begin_sync(&self) -> u64 {
        let now_ms = self.now_ms();
        self.is_busy.store(true, Relaxed);
        now_ms
    }

    /// Notes the end of the sync that began at `began_ms`. Writers keep waiting if unsynced writes are
    /// still too old and `another_follows`. Otherwise returns how long released writers have waited.
    pub(super) fn end_sync(
        &self,
        began_ms: u64,
        succeeded: bool,
        another_follows: bool,
    ) -> Option<Duration> {
        if succeeded {
            self.note_safe(began_ms);
        }
        if succeeded && another_follows && self.age_ms() > AGE_MS_MAX {
            return None;
        }
        self.rest()
    }

    /// Notes that no sync is running. Returns how long released writers have waited.
    pub(super) fn rest(&self) -> Option<Duration> {
        self.is_busy.store(false, Relaxed);
        let since_ms = self.held_since_ms.swap(0, Relaxed);
        (since_ms > 0).then(|| Duration::from_millis(self.now_ms().saturating_sub(since_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_wait_while_a_sync_leaves_writes_at_stake_for_too_long() {
        let exposure = Exposure::default();
        exposure.advance(10_000);
        exposure.note_safe(exposure.now_ms());
        exposure.advance(AGE_MS_MAX / 2);
        let began = exposure.begin_sync();
        assert!(!exposure.is_too_long());
        exposure.advance(AGE_MS_MAX / 2 + 1);
        assert!(exposure.is_too_long());
        exposure.hold();
        exposure.hold();
        assert_eq!(exposure.delays(), 1);
        // Writes since the begin of the sync are unsynced for half of the time.
        let waited = exposure.end_sync(began, true, true);
        assert!(waited.is_some() && !exposure.is_too_long());
    }

    #[test]
    fn writers_go_on_waiting_until_the_device_has_caught_up() {
        let exposure = Exposure::default();
        let began = exposure.begin_sync();
        exposure.advance(3 * AGE_MS_MAX);
        exposure.hold();
        assert_eq!(exposure.end_sync(began, true, true), None);
        assert!(exposure.is_too_long());
        let began = exposure.begin_sync();
        assert!(exposure.end_sync(began, true, true).is_some());
        assert!(!exposure.is_too_long());
    }

    #[test]
    fn nobody_waits_for_a_sync_that_failed_or_that_nothing_follows() {
        for (succeeded, another_follows) in [(false, true), (true, false)] {
            let exposure = Exposure::default();
            let began = exposure.begin_sync();
            exposure.advance(3 * AGE_MS_MAX);
            exposure.hold();
            assert!(exposure.end_sync(began, succeeded, another_follows).is_some());
            assert!(!exposure.is_too_long());
        }
    }
}
