//! Progress of the load at the start.
//!
//! One thread loads. Any other thread can check with one atomic load if the load has ended, or cancel it.
//!
//! **Invariant:** until [`Loading::end`], only the loading thread looks at keys, because the data is incomplete.

use std::fmt::{self, Display};
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::clock::unix_ms;

/// The load was aborted because the server was asked to shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("loading was given up")]
pub struct GivenUp;

/// State of a load; see the head of the module. A load that has not begun counts as ended.
#[derive(Debug, Default)]
pub struct Loading {
    is_on: AtomicBool,
    is_given_up: AtomicBool,
    is_shown: AtomicBool,
    begun_ms: AtomicI64,
    total_bytes: AtomicU64,
    loaded_bytes: AtomicU64,
    /// Pause after each item, in microseconds: `key-load-delay`, for tests that need a slow load.
    delay_us: AtomicU64,
    /// Lock and signal to end a pause.
    changes: Mutex<()>,
    changed: Condvar,
}

/// Progress of a running load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadingReport {
    /// Unix milliseconds of its begin.
    pub begun_ms: i64,
    /// Bytes to load, as far as known.
    pub total_bytes: u64,
    /// Loaded bytes, at most `total_bytes`.
    pub loaded_bytes: u64,
    /// Estimated seconds until the end, at the rate so far. `None` before anything was loaded.
    pub eta_seconds: Option<u64>,
}

impl Loading {
    /// Notes the begin of the load.
    pub fn begin(&self) {
        self.begun_ms.store(unix_ms(), Relaxed);
        self.is_on.store(true, Release);
    }

    /// Sets the number of bytes to load.
    pub fn expect(&self, total_bytes: u64) {
        self.loaded_bytes.store(0, Relaxed);
        self.total_bytes.store(total_bytes, Relaxed);
    }

    /// Notes that everything is loaded. A thread that observes this sees all data.
    pub fn end(&self) {
        self.is_on.store(false, Release);
    }

    /// Returns true while data is being loaded.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Acquire)
    }

    /// Aborts the load soon, without its data.
    pub fn give_up(&self) {
        self.is_given_up.store(true, Relaxed);
        self.end_rest();
    }

    /// Returns true if the load was aborted.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.is_given_up.load(Relaxed)
    }

    /// Notes that a progress bar is shown, so that the log has no progress lines.
    pub fn show_elsewhere(&self) {
        self.is_shown.store(true, Relaxed);
    }

    /// Returns the progress for the log. Returns `None` if a bar shows it, or nothing is being loaded.
    #[must_use]
    pub fn report_for_log(&self) -> Option<LoadingReport> {
        self.report().filter(|_| !self.is_shown.load(Relaxed))
    }

    /// Sets the pause after each item. Ends a current pause.
    pub fn set_delay(&self, delay: Duration) {
        self.delay_us.store(u64::try_from(delay.as_micros()).unwrap_or(u64::MAX), Relaxed);
        self.end_rest();
    }

    /// Returns true if the load pauses after each item.
    #[must_use]
    pub fn is_slowed(&self) -> bool {
        self.delay_us.load(Relaxed) != 0
    }

    /// Notes that one more item, a key or a log record, is loaded, and the total of loaded bytes.
    ///
    /// # Errors
    /// When the load was aborted.
    #[inline]
    pub fn note(&self, loaded_bytes: u64) -> Result<(), GivenUp> {
        self.loaded_bytes.store(loaded_bytes, Relaxed);
        if self.is_slowed() {
            self.rest();
        }
        if self.is_given_up() { Err(GivenUp) } else { Ok(()) }
    }

    /// Pauses for the delay, or until it changes.
    #[cold]
    fn rest(&self) {
        let mut changes = self.changes.lock();
        let delay = Duration::from_micros(self.delay_us.load(Relaxed));
        if !delay.is_zero() && !self.is_given_up() {
            self.changed.wait_for(&mut changes, delay);
        }
    }

    fn end_rest(&self) {
        // A thread that is about to pause has either checked under this lock before, or will see the change.
        drop(self.changes.lock());
        self.changed.notify_all();
    }

    /// Returns the progress. Returns `None` when nothing is being loaded.
    #[must_use]
    pub fn report(&self) -> Option<LoadingReport> {
        if !self.is_on() {
            return None;
        }
        let (begun_ms, loaded_bytes) =
            (self.begun_ms.load(Relaxed), self.loaded_bytes.load(Relaxed));
        // The last records of a log are not counted in advance.
        let total_bytes = self.total_bytes.load(Relaxed).max(loaded_bytes);
        let took_ms = unix_ms().saturating_sub(begun_ms).max(0).unsigned_abs();
        let left = u128::from(total_bytes - loaded_bytes);
        let eta_ms = (u128::from(took_ms) * left).checked_div(u128::from(loaded_bytes));
        let eta_seconds = eta_ms.map(|ms| u64::try_from(ms / 1000).unwrap_or(u64::MAX));
        Some(LoadingReport { begun_ms, total_bytes, loaded_bytes, eta_seconds })
    }
}

impl LoadingReport {
    /// Returns the loaded part in percent.
    #[must_use]
    pub fn percent(&self) -> f64 {
        self.loaded_bytes as f64 * 100.0 / self.total_bytes.max(1) as f64
    }
}

/// Formats a line for the log: `2576 of 8589 MB, 130 s left`.
impl Display for LoadingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MB: u64 = 1_000_000;
        write!(f, "{} of {} MB", self.loaded_bytes / MB, self.total_bytes / MB)?;
        self.eta_seconds.map_or(Ok(()), |seconds| write!(f, ", {seconds} s left"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_load() {
        let loading = Loading::default();
        assert_eq!((loading.is_on(), loading.report()), (false, None));
        loading.begin();
        loading.expect(200);
        let report = loading.report().unwrap();
        assert_eq!((report.loaded_bytes, report.eta_seconds, report.percent()), (0, None, 0.0));
        loading.note(50).unwrap();
        assert_eq!(loading.report().unwrap().percent(), 25.0);
        let report = LoadingReport { eta_seconds: Some(130), ..loading.report().unwrap() };
        let large =
            LoadingReport { loaded_bytes: 2_576_000_000, total_bytes: 8_589_934_592, ..report };
        assert_eq!(large.to_string(), "2576 of 8589 MB, 130 s left");
        let begun = LoadingReport { loaded_bytes: 0, eta_seconds: None, ..large };
        assert_eq!(begun.to_string(), "0 of 8589 MB");
        // More bytes than expected are loaded.
        loading.note(300).unwrap();
        let report = loading.report().unwrap();
        assert_eq!((report.total_bytes, report.eta_seconds), (300, Some(0)));
        loading.give_up();
        assert_eq!(loading.note(301), Err(GivenUp));
        loading.end();
        assert_eq!(loading.report(), None);
    }

    #[test]
    fn a_rest_ends_when_the_delay_changes_or_the_load_is_given_up() {
        for give_up in [false, true] {
            let loading = Loading::default();
            loading.begin();
            loading.set_delay(Duration::from_secs(3600));
            std::thread::scope(|scope| {
                let noted = scope.spawn(|| loading.note(1));
                match give_up {
                    true => loading.give_up(),
                    false => loading.set_delay(Duration::ZERO),
                }
                assert_eq!(noted.join().unwrap().is_err(), give_up);
            });
        }
    }
}
