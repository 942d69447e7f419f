//! What `registry` is made of; its model checker puts something else here.

use std::time::{Duration, Instant};

pub(super) use crate::interleaving::Condvar;
use crate::interleaving::now;
pub(super) use parking_lot::{Mutex, MutexGuard};
pub(super) use std::sync::atomic::{AtomicBool, Ordering};

/// The workers that were woken have so long to retry what they had set aside, before another thread
/// holds the shard for long again.
const PROMISE: Duration = Duration::from_millis(10);

pub(super) type Deadline = Instant;

pub(super) fn deadline() -> Deadline {
    now() + PROMISE
}

pub(super) fn wait<T>(condvar: &Condvar, guard: &mut MutexGuard<'_, T>) {
    condvar.wait(guard);
}

/// `false` when the time is up.
pub(super) fn wait_until<T>(
    condvar: &Condvar,
    guard: &mut MutexGuard<'_, T>,
    until: Deadline,
) -> bool {
    condvar.wait_until(guard, until)
}
