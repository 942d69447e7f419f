//! Counts the requests of a process, and what they cost.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::error::Error;

/// US dollars for 1,000 requests that write or list, S3 standard in us-east-1, November 2026.
pub const PUT_DOLLARS: f64 = 0.005;
/// US dollars for 1,000 requests that read.
pub const GET_DOLLARS: f64 = 0.0004;
/// US dollars for 10^9 bytes stored for a month.
pub const GIGABYTE_MONTH_DOLLARS: f64 = 0.023;

const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);

/// Requests and bytes since the process started. Other threads may read them at any time.
#[derive(Debug, Default)]
pub struct Counters {
    pub(crate) puts: AtomicU64,
    pub(crate) gets: AtomicU64,
    pub(crate) heads: AtomicU64,
    pub(crate) lists: AtomicU64,
    pub(crate) deletes: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) bytes_up: AtomicU64,
    pub(crate) bytes_down: AtomicU64,
    pub(crate) records: AtomicU64,
    last_failure: Mutex<Option<String>>,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Attempts to put an object.
    pub puts: u64,
    /// Attempts to read an object.
    pub gets: u64,
    /// Attempts to see whether an object is there.
    pub heads: u64,
    /// Pages of lists: at most 1,000 names each.
    pub lists: u64,
    /// Objects deleted, which costs nothing.
    pub deletes: u64,
    /// Attempts of any kind that the store answered with an error, or did not answer in time.
    pub failures: u64,
    /// Bytes of bodies sent.
    pub bytes_up: u64,
    /// Bytes of bodies received.
    pub bytes_down: u64,
    /// Records that this process committed.
    pub records: u64,
}

impl Counters {
    /// Returns the counters now.
    pub fn usage(&self) -> Usage {
        Usage {
            puts: self.puts.load(Relaxed),
            gets: self.gets.load(Relaxed),
            heads: self.heads.load(Relaxed),
            lists: self.lists.load(Relaxed),
            deletes: self.deletes.load(Relaxed),
            failures: self.failures.load(Relaxed),
            bytes_up: self.bytes_up.load(Relaxed),
            bytes_down: self.bytes_down.load(Relaxed),
            records: self.records.load(Relaxed),
        }
    }

    /// Returns the error of the newest failed attempt.
    pub fn last_failure(&self) -> Option<String> {
        self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn note_failure(&self, error: &Error) {
        Self::add(&self.failures, 1);
        let mut last = self.last_failure.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(error.to_string());
    }

    pub(crate) fn add(counter: &AtomicU64, by: usize) {
        counter.fetch_add(by as u64, Relaxed);
    }
}

impl Usage {
    /// Returns the cost of these requests in US dollars, at the prices above.
    pub fn dollars(&self) -> f64 {
        let writes = (self.puts + self.lists) as f64 * PUT_DOLLARS;
        let reads = (self.gets + self.heads) as f64 * GET_DOLLARS;
        (writes + reads) / 1000.0
    }

    /// Returns the cost in US dollars of a month at this rate, if these requests took `elapsed`.
    pub fn dollars_a_month(&self, elapsed: Duration) -> f64 {
        self.dollars() / elapsed.as_secs_f64().max(1.0) * MONTH.as_secs_f64()
    }

    /// Returns the requests since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            puts: self.puts.saturating_sub(earlier.puts),
            gets: self.gets.saturating_sub(earlier.gets),
            heads: self.heads.saturating_sub(earlier.heads),
            lists: self.lists.saturating_sub(earlier.lists),
            deletes: self.deletes.saturating_sub(earlier.deletes),
            failures: self.failures.saturating_sub(earlier.failures),
            bytes_up: self.bytes_up.saturating_sub(earlier.bytes_up),
            bytes_down: self.bytes_down.saturating_sub(earlier.bytes_down),
            records: self.records.saturating_sub(earlier.records),
        }
    }
}
