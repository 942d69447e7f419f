//! State of the log in a bucket, for replies that wait for its commits and for INFO. The threads that write the log are
//! in the server.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tierce_engine::feed::{Feed, Reader};

use crate::lease::{Holding, LeaseCheck};

/// Progress of the log in the bucket.
#[derive(Debug, Default)]
pub struct Bucket {
    is_on: AtomicBool,
    /// Position in the feed; everything before it is committed.
    committed: AtomicU64,
    /// Time since which the oldest uncommitted change waits, in Unix milliseconds; 0 without such a change.
    oldest_ms: AtomicU64,
    /// Bytes that were taken from the feed and are not committed.
    taken_bytes: AtomicU64,
    /// True while a client waits: pending changes are uploaded at once.
    is_hastened: AtomicBool,
    figures: Mutex<Figures>,
    /// Signaled after a commit, and after an append was confirmed.
    advanced: Condvar,
    /// Holds replies back when another process may have taken the log over.
    pub lease: LeaseCheck,
}

/// Current activity of the log in the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum State {
    /// The data are being loaded from it.
    #[default]
    Restoring,
    /// The log was started afresh with the data of this directory. It is not usable before their snapshot is uploaded.
    Base,
    /// Changes are committed as they arrive.
    Following,
    /// Changes of another server are applied as they arrive.
    Follower,
    /// The object store does not answer.
    Away,
    /// Another server has claimed it.
    Deposed,
    /// It was released in an orderly way.
    Released,
}

impl State {
    /// Returns its name in INFO.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Restoring => "restoring",
            Self::Base => "base",
            Self::Following => "following",
            Self::Follower => "follower",
            Self::Away => "away",
            Self::Deposed => "deposed",
            Self::Released => "released",
        }
    }
}

/// Figures for INFO.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// The configured location.
    pub url: String,
    /// Current activity.
    pub state: State,
    /// Name of the owner of the log.
    pub owner: String,
    /// True if another server takes over when the owner's lease has expired.
    pub takeover: bool,
    /// Validity of the lease that each object of the log renews, in milliseconds.
    pub lease_ms: u64,
    /// Number of claims so far.
    pub epoch: u64,
    /// Number of the last object of the log.
    pub number: u64,
    /// Last position in the newest snapshot; 0 without one.
    pub snapshot: u64,
    /// Time when that snapshot became valid, in Unix milliseconds.
    pub snapshot_ms: u64,
    /// Stored size of that snapshot in bytes.
    pub snapshot_bytes: u64,
    /// Bytes uploaded so far of a snapshot in progress.
    pub uploading_bytes: Option<u64>,
    /// Records committed since the start.
    pub appends: u64,
    /// Records since the start without changes, which only renew the lease.
    pub renewals: u64,
    /// Bytes of changes in the committed records.
    pub append_bytes: u64,
    /// PUT and LIST requests since the start.
    pub puts: u64,
    /// GET requests since the start.
    pub gets: u64,
    /// Failed requests.
    pub failures: u64,
    /// Bytes sent.
    pub bytes_up: u64,
    /// Bytes received.
    pub bytes_down: u64,
    /// Cost of a month in US dollars at the rate of requests since the start.
    pub dollars_a_month: f64,
    /// The last error; empty without one.
    pub last_error: String,
    /// Time of the last error, in Unix milliseconds.
    pub last_error_ms: u64,
}

impl Bucket {
    /// Notes that there is a bucket at this location.
    pub fn turn_on(&self, url: &str) {
        url.clone_into(&mut self.figures.lock().url);
        self.is_on.store(true, Release);
    }

    /// Returns true if there is a bucket.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Returns the position in the feed up to which everything is committed.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.committed.load(Acquire)
    }

    /// Notes that everything up to this position in the feed is committed.
    pub fn note_committed(&self, position: u64) {
        let _figures = self.figures.lock();
        self.committed.store(position, Release);
        self.advanced.notify_all();
    }

    /// Waits until everything up to this position is committed, at most for `at_most`.
    pub fn wait_for(&self, position: u64, at_most: Duration) {
        let mut figures = self.figures.lock();
        if self.committed() < position {
            let _ = self.advanced.wait_for(&mut figures, at_most);
        }
    }

    /// Notes that an append (number from [`LeaseCheck::note_begun`]) is confirmed. Returns true if replies wait for it.
    #[must_use]
    pub fn note_proven(&self, number: u64) -> bool {
        let _figures = self.figures.lock();
        let is_awaited = self.lease.note_proven(number);
        self.advanced.notify_all();
        is_awaited
    }

    /// Notes that another process owns the log. Nothing waits for the log any more.
    pub fn note_deposed(&self) {
        self.figures.lock().state = State::Deposed;
        self.advanced.notify_all();
    }

    /// Waits until replies to earlier commands may be sent, or until `is_over`, which is polled every `look_every`.
    /// Returns true if they may be sent.
    pub fn wait_for_lease(&self, look_every: Duration, is_over: &dyn Fn() -> bool) -> bool {
        let needed = match self.lease.holding() {
            Holding::Held => return true,
            Holding::Deposed => return false,
            Holding::Over { proof } => proof,
        };
        let mut figures = self.figures.lock();
        loop {
            // An append that began before another process claimed the log may still prove it.
            if self.lease.is_proven(needed) {
                return true;
            }
            if self.lease.holding() == Holding::Deposed || is_over() {
                return false;
            }
            let _ = self.advanced.wait_for(&mut figures, look_every);
        }
    }

    /// Sets the time since which the oldest uncommitted change waits, and the uncommitted bytes taken from the feed.
    pub fn note_waiting(&self, since_ms: Option<u64>, taken_bytes: u64) {
        self.oldest_ms.store(since_ms.unwrap_or(0), Relaxed);
        self.taken_bytes.store(taken_bytes, Relaxed);
    }

    /// Returns the bytes of uncommitted changes.
    #[must_use]
    pub fn lag_bytes(&self, feed: &Feed) -> u64 {
        self.taken_bytes.load(Relaxed) + feed.waiting_bytes_of(Reader::Bucket) as u64
    }

    /// Returns the age of the oldest uncommitted change in milliseconds.
    #[must_use]
    pub fn lag_ms(&self, now_ms: u64) -> u64 {
        match self.oldest_ms.load(Relaxed) {
            0 => 0,
            since_ms => now_ms.saturating_sub(since_ms),
        }
    }

    /// Requests the upload of pending changes at once, because a client waits for it.
    pub fn hasten(&self, feed: &Feed) {
        if !self.is_hastened.swap(true, Acquire) {
            feed.call(Reader::Bucket);
        }
    }

    /// Returns true if an upload at once was requested.
    #[must_use]
    pub fn is_hastened(&self) -> bool {
        self.is_hastened.load(Acquire)
    }

    /// Resets this request. Returns true if it was made since the last call.
    pub fn take_haste(&self) -> bool {
        self.is_hastened.swap(false, Acquire)
    }

    /// Changes the figures.
    pub fn update<R>(&self, change: impl FnOnce(&mut Figures) -> R) -> R {
        change(&mut self.figures.lock())
    }

    /// Returns the figures, if there is a bucket.
    #[must_use]
    pub fn figures(&self) -> Option<Figures> {
        self.is_on().then(|| self.figures.lock().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_is_that_of_what_is_not_committed() {
        let bucket = Bucket::default();
        assert!(bucket.figures().is_none());
        bucket.turn_on("file:///x");
        assert_eq!(bucket.figures().map(|figures| figures.url).as_deref(), Some("file:///x"));
        bucket.note_waiting(Some(100), 7);
        assert_eq!((bucket.lag_ms(350), bucket.lag_ms(50)), (250, 0));
        bucket.note_waiting(None, 0);
        assert_eq!(bucket.lag_ms(350), 0);
    }
}
