//! How old the oldest write is that a power cut would lose.
//!
//! Under `everysec` the log is synced once a second, so that a power cut loses at most what was
//! acknowledged in the second before, as long as syncs are quick. Where one is not, writers are held back
//! when the oldest write at stake is [`AGE_MS_MAX`] old, until the device has caught up: whatever the
//! device does, the writes at stake were all accepted within that time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How old a write may become under `everysec` that is not on the device.
const AGE_MS_MAX: u64 = 2_000;

/// When a writer that is held back looks again, if it has heard nothing: `appendfsync` may be another one.
pub const CHECK_AGAIN_MS: u64 = 100;

/// What the sync thread knows about unsynced writes, for writers.
#[derive(Debug)]
pub struct Exposure {
    started: Instant,
    /// Added to the time that has passed: tests move it on.
    ahead_ms: AtomicU64,
    /// Whatever was appended before this moment is on the device.
    safe_before_ms: AtomicU64,
    /// A sync is underway, or follows at once because the last one took too long.
    is_busy: AtomicBool,
    /// Since when writers are held back; zero when none is.
    held_since_ms: AtomicU64,
    /// How often that began.
    delays: AtomicU64,
    /// A client was promised a sync within a second, whatever `appendfsync` says.
    is_promised: AtomicBool,
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
            is_promised: AtomicBool::new(false),
        }
    }
}

impl Exposure {
    /// Milliseconds that have passed, never zero.
    pub(super) fn now_ms(&self) -> u64 {
        1 + self.started.elapsed().as_millis() as u64 + self.ahead_ms.load(Relaxed)
    }

    /// Moves time on.
    pub(super) fn advance(&self, ms: u64) {
        self.ahead_ms.fetch_add(ms, Relaxed);
    }

    /// Whether writers have to wait. To be looked at once a batch.
    #[inline]
    pub fn is_too_long(&self) -> bool {
        self.is_busy.load(Relaxed) && self.age_ms() > AGE_MS_MAX
    }

    fn age_ms(&self) -> u64 {
        self.now_ms().saturating_sub(self.safe_before_ms.load(Relaxed))
    }

    /// A writer waits from now on. It hears of the end, unless that is just coming: so it looks again after
    /// [`CHECK_AGAIN_MS`].
    #[cold]
    pub fn hold(&self) {
        let is_first =
            self.held_since_ms.compare_exchange(0, self.now_ms(), Relaxed, Relaxed).is_ok();
        self.delays.fetch_add(u64::from(is_first), Relaxed);
    }

    /// How often writers were held back.
    pub fn delays(&self) -> u64 {
        self.delays.load(Relaxed)
    }

    /// A client is to have its writes on the device within a second.
    #[inline]
    pub fn promise(&self) {
        self.is_promised.store(true, Relaxed);
    }

    pub(super) fn take_promise(&self) -> bool {
        self.is_promised.swap(false, Relaxed)
    }

    /// Everything appended before `moment` is on the device.
    pub(super) fn note_safe(&self, moment_ms: u64) {
        self.safe_before_ms.store(moment_ms, Relaxed);
    }

    /// A sync begins; when it did, for [`end_sync`](Self::end_sync).
    pub(super) fn begin_sync(&self) -> u64 {
        let now_ms = self.now_ms();
        self.is_busy.store(true, Relaxed);
        now_ms
    }

    /// The sync that began then has ended. Writers go on waiting if writes at stake are still too old and
    /// `another_follows`. Returns how long some have waited who may go on now.
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

    /// No sync is underway. Returns how long some have waited who may go on now.
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
        // What was written since the sync began is at stake for half of the time.
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
