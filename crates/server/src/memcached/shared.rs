//! State of the memcached protocols that the workers share.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use parking_lot::Mutex;
use tierce_keyspace::{DbIndex, Freeing, SHARD_PATIENCE, flush_dbs};

use super::counters::{Counters, Totals};
use super::prefixes::Prefixes;
use crate::admission::Admission;
use crate::command::{Access, Operations};
use crate::commands::replica_level::ReplicaLevel;
use crate::front_ends::Stages;
use crate::kernel::Kernel;

/// No flush is scheduled.
const NEVER: i64 = i64::MAX;

/// Shared state; see the module.
pub struct Shared {
    /// Database that these protocols see.
    pub db: DbIndex,
    /// Path of the Unix socket; empty if there is none.
    pub unix_path: String,
    operations: Operations,
    counters: Box<[Counters]>,
    /// Totals at the last reset of the statistics.
    baseline: Mutex<Totals>,
    /// Counts of `stats detail`.
    pub(super) prefixes: Prefixes,
    /// True if clients may dump all keys.
    has_crawler: AtomicBool,
    /// Time of the scheduled flush, in Unix milliseconds.
    flush_at_ms: AtomicI64,
}

impl Shared {
    /// Creates the state for this many workers.
    #[must_use]
    pub fn new(db: DbIndex, unix_path: String, operations: Operations, workers: usize) -> Self {
        let counters = (0..workers).map(|_| Counters::default()).collect();
        Self {
            db,
            unix_path,
            operations,
            counters,
            baseline: Mutex::default(),
            prefixes: Prefixes::default(),
            has_crawler: AtomicBool::new(true),
            flush_at_ms: AtomicI64::new(NEVER),
        }
    }

    /// Returns the counters of a worker.
    #[inline]
    pub(super) fn counters(&self, worker: usize) -> &Counters {
        &self.counters[worker]
    }

    /// Returns the counts since the start, or since the last reset.
    pub fn totals(&self) -> Totals {
        // The baseline is locked first: later counts only add to it.
        let baseline = self.baseline.lock();
        Totals::sum(&self.counters).since(&baseline)
    }

    /// Resets the totals.
    pub fn reset_totals(&self) {
        *self.baseline.lock() = Totals::sum(&self.counters);
    }

    /// Resets the counts by prefix.
    pub fn reset(&self) {
        self.prefixes.reset();
    }

    pub(super) fn has_crawler(&self) -> bool {
        self.has_crawler.load(Relaxed)
    }

    pub(super) fn enable_crawler(&self, on: bool) {
        self.has_crawler.store(on, Relaxed);
    }

    /// Schedules a flush at this time, in place of an earlier schedule.
    pub(super) fn flush_at(&self, at_ms: i64) {
        self.flush_at_ms.store(at_ms, Relaxed);
    }

    /// Flushes if it is due and writes are admitted; otherwise the next call does. Called once a second, which is
    /// memcached's precision.
    pub fn flush_if_due(&self, kernel: &Kernel, now_ms: i64) {
        let at_ms = self.flush_at_ms.load(Relaxed);
        if at_ms > now_ms {
            return;
        }
        // Dropped after the locks, whose change it covers.
        let _under_way;
        let mut locks = kernel.keyspace.impatient_long_locks(SHARD_PATIENCE);
        let admission = Admission::read_for_all(kernel, now_ms);
        if admission.admit(kernel, &mut locks, Access::CHANGE, || false).is_err() {
            return;
        }
        let Ok(mut all) = locks.try_lock_all() else { return };
        _under_way = kernel.in_flight_requests.enter();
        // Writes may be stopped meanwhile, for instance by a failover, which waits for nothing else. And a client may
        // just have rescheduled the flush.
        if !kernel.has_closed(Access::CHANGE, ReplicaLevel::of_server(kernel))
            && self.flush_at_ms.compare_exchange(at_ms, NEVER, Relaxed, Relaxed).is_ok()
        {
            flush_dbs(all.locks(), [self.db], Freeing::Later);
        }
    }
}

/// Kernel, with the shared state of these protocols.
#[derive(Clone, Copy)]
pub struct Host<'k> {
    pub kernel: &'k Kernel,
    pub memcached: &'k Shared,
}

impl Deref for Host<'_> {
    type Target = Kernel;

    #[inline]
    fn deref(&self) -> &Kernel {
        self.kernel
    }
}

impl<'k> Host<'k> {
    /// Returns the stages of a batch of this worker.
    #[inline]
    pub(super) fn stages(self, worker: usize, now_ms: i64) -> Stages<'k> {
        let Shared { db, operations, .. } = *self.memcached;
        Stages::new(self.kernel, self.kernel.counters(worker), operations, db, now_ms)
    }
}
