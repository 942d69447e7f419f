//! What the workers share for the protocols of memcached.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use tierce_keyspace::{DbIndex, Freeing, Keyspace};

use super::counters::{Counters, Totals};
use super::prefixes::Prefixes;

/// No flush is to come.
const NEVER: i64 = i64::MAX;

/// See the module.
pub struct Shared {
    /// The database these protocols see.
    pub db: DbIndex,
    counters: Box<[Counters]>,
    /// What `stats detail` tells.
    pub(super) prefixes: Prefixes,
    /// Clients may have all keys dumped.
    has_crawler: AtomicBool,
    /// When everything is to be flushed, in Unix milliseconds.
    flush_at_ms: AtomicI64,
}

impl Shared {
    /// For so many workers.
    #[must_use]
    pub fn new(db: DbIndex, workers: usize) -> Self {
        let counters = (0..workers).map(|_| Counters::default()).collect();
        Self {
            db,
            counters,
            prefixes: Prefixes::default(),
            has_crawler: AtomicBool::new(true),
            flush_at_ms: AtomicI64::new(NEVER),
        }
    }

    /// The counters of a worker.
    #[inline]
    pub(super) fn counters(&self, worker: usize) -> &Counters {
        &self.counters[worker]
    }

    /// What all workers counted.
    pub fn totals(&self) -> Totals {
        Totals::sum(&self.counters)
    }

    /// Forgets what was counted besides by the workers.
    pub fn reset(&self) {
        self.prefixes.reset();
    }

    pub(super) fn has_crawler(&self) -> bool {
        self.has_crawler.load(Relaxed)
    }

    pub(super) fn enable_crawler(&self, on: bool) {
        self.has_crawler.store(on, Relaxed);
    }

    /// Everything is flushed at this time, and not at one that was said before.
    pub(super) fn flush_at(&self, at_ms: i64) {
        self.flush_at_ms.store(at_ms, Relaxed);
    }

    /// Flushes if it is time to. Called once a second, which is how precise memcached is.
    pub fn flush_if_due(&self, keyspace: &Keyspace, now_ms: i64) {
        if self.flush_at_ms.load(Relaxed) <= now_ms {
            self.flush_at_ms.store(NEVER, Relaxed);
            keyspace.locker().flush([self.db], Freeing::Later);
        }
    }
}
