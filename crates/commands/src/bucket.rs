//! What the kernel knows of the log in a bucket: how far it is, for replies that wait for it and for INFO. The threads
//! that write it are in the server.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tierce_engine::feed::{Feed, Reader};

use crate::lease::{Holding, LeaseGate};

/// How far the log in the bucket is.
#[derive(Debug, Default)]
pub struct Bucket {
    is_on: AtomicBool,
    /// The position of the feed up to which everything is committed.
    committed: AtomicU64,
    /// Since when the oldest change waits that is not committed, in Unix milliseconds; 0 if none does.
    oldest_ms: AtomicU64,
    /// Bytes that were taken from the feed and are not committed.
    taken_bytes: AtomicU64,
    /// A client waits: what there is goes out at once.
    is_hastened: AtomicBool,
    figures: Mutex<Figures>,
    /// More is committed, or an append was confirmed.
    advanced: Condvar,
    /// What replies pass where another process may take the log over.
    pub lease: LeaseGate,
}

/// What the log in the bucket is busy with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum State {
    /// The data are loaded from it.
    #[default]
    Restoring,
    /// It has begun anew with the data of this directory: nothing counts before a snapshot of them is there.
    Base,
    /// Changes are committed as they come.
    Following,
    /// What another server writes is applied as it comes.
    Follower,
    /// The store does not answer.
    Away,
    /// Another server has claimed it.
    Deposed,
    /// It was released in good order.
    Released,
}

impl State {
    /// As INFO says it.
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
    /// Where it is, as configured.
    pub url: String,
    /// What it is busy with.
    pub state: State,
    /// What the owner of the log is known as.
    pub owner: String,
    /// Whether another server takes over when the owner's lease is over.
    pub takeover: bool,
    /// How long an object of the log is a lease, in milliseconds.
    pub lease_ms: u64,
    /// How many claims there were.
    pub epoch: u64,
    /// The number of the last object of the log.
    pub number: u64,
    /// The last position that the newest snapshot contains; 0 without one.
    pub snapshot: u64,
    /// When that began to count, in Unix milliseconds.
    pub snapshot_ms: u64,
    /// Bytes of it as they are stored.
    pub snapshot_bytes: u64,
    /// Bytes of a snapshot that is being uploaded, so far.
    pub uploading_bytes: Option<u64>,
    /// Records committed since the start.
    pub appends: u64,
    /// Records since the start that say nothing but that this server is alive.
    pub renewals: u64,
    /// Bytes of changes in them.
    pub append_bytes: u64,
    /// Requests since the start that put, and that list.
    pub puts: u64,
    /// Those that read.
    pub gets: u64,
    /// Those that failed.
    pub failures: u64,
    /// Bytes sent.
    pub bytes_up: u64,
    /// Bytes received.
    pub bytes_down: u64,
    /// What a month costs in US dollars at the rate of requests since the start.
    pub dollars_a_month: f64,
    /// What has failed last; empty if nothing has.
    pub last_error: String,
    /// When that was, in Unix milliseconds.
    pub last_error_ms: u64,
}

impl Bucket {
    /// There is one, at this location.
    pub fn turn_on(&self, url: &str) {
        url.clone_into(&mut self.figures.lock().url);
        self.is_on.store(true, Release);
    }

    /// Whether there is one.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// The position of the feed up to which everything is committed.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.committed.load(Acquire)
    }

    /// Everything up to this position of the feed is committed.
    pub fn note_committed(&self, position: u64) {
        let _figures = self.figures.lock();
        self.committed.store(position, Release);
        self.advanced.notify_all();
    }

    /// Waits until everything up to this position is committed, or for `at_most`.
    pub fn wait_for(&self, position: u64, at_most: Duration) {
        let mut figures = self.figures.lock();
        if self.committed() < position {
            let _ = self.advanced.wait_for(&mut figures, at_most);
        }
    }

    /// An append with this number is confirmed, which [`LeaseGate::note_begun`] gave it. Whether replies wait for that.
    #[must_use]
    pub fn note_proven(&self, number: u64) -> bool {
        let _figures = self.figures.lock();
        let is_awaited = self.lease.note_proven(number);
        self.advanced.notify_all();
        is_awaited
    }

    /// Another process owns the log: nothing waits for it any more.
    pub fn note_deposed(&self) {
        self.figures.lock().state = State::Deposed;
        self.advanced.notify_all();
    }

    /// Waits until what was executed before may be shown, or until that `is_over`, which is asked now and then. Whether
    /// it may.
    pub fn wait_for_lease(&self, look_every: Duration, is_over: &dyn Fn() -> bool) -> bool {
        let needed = match self.lease.holding() {
            Holding::Held => return true,
            Holding::Deposed => return false,
            Holding::Over { proof } => proof,
        };
        let mut figures = self.figures.lock();
        loop {
            // It may be proven by an append that began before another process claimed the log.
            if self.lease.is_proven(needed) {
                return true;
            }
            if self.lease.holding() == Holding::Deposed || is_over() {
                return false;
            }
            let _ = self.advanced.wait_for(&mut figures, look_every);
        }
    }

    /// The oldest change that is not committed waits since then, and so many bytes were taken from the feed.
    pub fn note_waiting(&self, since_ms: Option<u64>, taken_bytes: u64) {
        self.oldest_ms.store(since_ms.unwrap_or(0), Relaxed);
        self.taken_bytes.store(taken_bytes, Relaxed);
    }

    /// Bytes of changes that are not committed.
    #[must_use]
    pub fn lag_bytes(&self, feed: &Feed) -> u64 {
        self.taken_bytes.load(Relaxed) + feed.waiting_bytes_of(Reader::Bucket) as u64
    }

    /// The age of the oldest change that is not committed, in milliseconds.
    #[must_use]
    pub fn lag_ms(&self, now_ms: u64) -> u64 {
        match self.oldest_ms.load(Relaxed) {
            0 => 0,
            since_ms => now_ms.saturating_sub(since_ms),
        }
    }

    /// Has what there is go out at once: a client waits for it.
    pub fn hasten(&self, feed: &Feed) {
        if !self.is_hastened.swap(true, Acquire) {
            feed.call(Reader::Bucket);
        }
    }

    /// Whether that was asked for.
    #[must_use]
    pub fn is_hastened(&self) -> bool {
        self.is_hastened.load(Acquire)
    }

    /// Whether that was asked for since it was asked last.
    pub fn take_haste(&self) -> bool {
        self.is_hastened.swap(false, Acquire)
    }

    /// Changes the figures.
    pub fn update<R>(&self, change: impl FnOnce(&mut Figures) -> R) -> R {
        change(&mut self.figures.lock())
    }

    /// The figures, if there is a bucket.
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
