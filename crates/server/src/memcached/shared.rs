//! What the workers share for the protocols of memcached.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use parking_lot::Mutex;
use tierce_keyspace::{DbIndex, Freeing, SHARD_PATIENCE, flush_dbs};

use super::counters::{Counters, Totals};
use super::prefixes::Prefixes;
use crate::command::{Access, Operations};
use crate::commands::replica_level::ReplicaLevel;
use crate::front_ends::Stages;
use crate::gates::Gates;
use crate::kernel::Kernel;

/// No flush is to come.
const NEVER: i64 = i64::MAX;

/// See the module.
pub struct Shared {
    /// The database these protocols see.
    pub db: DbIndex,
    /// Where the Unix socket is; empty if there is none.
    pub unix_path: String,
    operations: Operations,
    counters: Box<[Counters]>,
    /// What was counted when statistics were last reset.
    baseline: Mutex<Totals>,
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

    /// The counters of a worker.
    #[inline]
    pub(super) fn counters(&self, worker: usize) -> &Counters {
        &self.counters[worker]
    }

    /// What clients did since the start, or since statistics were reset.
    pub fn totals(&self) -> Totals {
        // The baseline first: what is counted after it was taken is more.
        let baseline = self.baseline.lock();
        Totals::sum(&self.counters).since(&baseline)
    }

    /// Statistics are being reset.
    pub fn reset_totals(&self) {
        *self.baseline.lock() = Totals::sum(&self.counters);
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

    /// Flushes if it is time to, and the gates let a flush pass; otherwise the next call does. Called once a
    /// second, which is how precise memcached is.
    pub fn flush_if_due(&self, kernel: &Kernel, now_ms: i64) {
        let at_ms = self.flush_at_ms.load(Relaxed);
        if at_ms > now_ms {
            return;
        }
        // It ends behind the locks, whose change it is for.
        let _under_way;
        let mut locks = kernel.keyspace.impatient_long_locks(SHARD_PATIENCE);
        let gates = Gates::read_for_all(kernel, now_ms);
        if gates.admit(kernel, &mut locks, Access::CHANGE, || false).is_err() {
            return;
        }
        let Ok(mut all) = locks.try_lock_all() else { return };
        _under_way = kernel.passages.enter();
        // A gate may have closed meanwhile, as for a failover, which waits for nothing else. Nor is it time if a client
        // has just asked for another one.
        if !kernel.has_closed(Access::CHANGE, ReplicaLevel::of_server(kernel))
            && self.flush_at_ms.compare_exchange(at_ms, NEVER, Relaxed, Relaxed).is_ok()
        {
            flush_dbs(all.locks(), [self.db], Freeing::Later);
        }
    }
}

/// A kernel, and what the workers share for these protocols.
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
    /// The stages of a batch of this worker.
    #[inline]
    pub(super) fn stages(self, worker: usize, now_ms: i64) -> Stages<'k> {
        let Shared { db, operations, .. } = *self.memcached;
        Stages::new(self.kernel, self.kernel.counters(worker), operations, db, now_ms)
    }
}
