//! Synchronization primitives of `registry`; its model checker replaces this module.

use std::time::{Duration, Instant};

pub(super) use crate::interleaving::Condvar;
use crate::interleaving::now;
pub(super) use parking_lot::{Mutex, MutexGuard};
pub(super) use std::sync::atomic::{AtomicBool, Ordering};

/// Time for woken workers to retry their deferred requests, before another thread may keep the
/// shard locked for long.
const RESERVATION: Duration = Duration::from_millis(10);

pub(super) type Deadline = Instant;

pub(super) fn deadline() -> Deadline {
    now() + RESERVATION
}

pub(super) fn wait<T>(condvar: &Condvar, guard: &mut MutexGuard<'_, T>) {
    condvar.wait(guard);
}

/// Returns `false` when the time is up.
pub(super) fn wait_until<T>(
    condvar: &Condvar,
    guard: &mut MutexGuard<'_, T>,
    until: Deadline,
) -> bool {
    condvar.wait_until(guard, until)
}
