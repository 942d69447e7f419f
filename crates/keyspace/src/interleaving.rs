//! Points at which threads interact: locks, wake-ups, and reads of clocks and random numbers.
//!
//! A simulation (`simulation`) runs its threads one at a time, and decides at these points which thread continues and
//! what time it is. Without the feature `simulation`, which only tests enable, only the system's functions remain.

use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

#[cfg(feature = "simulation")]
use crate::simulation;

/// Point at which other threads may run. The caller must have no lock except those of shards.
#[inline(always)]
pub fn pass(place: &'static str) {
    let _ = place;
    #[cfg(feature = "simulation")]
    simulation::pass(place);
}

/// Returns the monotonic time.
#[inline]
#[must_use]
pub fn now() -> Instant {
    #[cfg(feature = "simulation")]
    if let Some(now) = simulation::instant() {
        return now;
    }
    Instant::now()
}

/// Returns the simulated milliseconds since 1970, unless the system's clock applies.
#[inline]
#[must_use]
pub fn unix_ms() -> Option<i64> {
    #[cfg(feature = "simulation")]
    return simulation::unix_ms();
    #[cfg(not(feature = "simulation"))]
    None
}

/// Returns a simulated random word, unless the system's random numbers apply.
#[inline]
#[must_use]
pub fn random_word() -> Option<u64> {
    #[cfg(feature = "simulation")]
    return simulation::random_word();
    #[cfg(not(feature = "simulation"))]
    None
}

/// Sleeps.
pub fn sleep(time: Duration) {
    #[cfg(feature = "simulation")]
    if simulation::sleep(time) {
        return;
    }
    std::thread::sleep(time);
}

/// Locks a shard, and waits if necessary.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    #[cfg(feature = "simulation")]
    if let Some(guard) = simulation::lock(mutex) {
        return guard;
    }
    mutex.lock()
}

/// Locks a shard, and waits at most this long.
#[inline]
pub(crate) fn try_lock_for<T>(mutex: &Mutex<T>, time: Duration) -> Option<MutexGuard<'_, T>> {
    #[cfg(feature = "simulation")]
    if simulation::is_here() {
        return simulation::try_lock_for(mutex, time);
    }
    mutex.try_lock_for(time)
}

/// Dropped after a shard was unlocked.
#[derive(Debug)]
pub(crate) struct Unlocked(#[cfg(feature = "simulation")] usize);

impl Unlocked {
    #[inline(always)]
    pub(crate) fn of<T>(mutex: &Mutex<T>) -> Self {
        let _ = mutex;
        Self(
            #[cfg(feature = "simulation")]
            simulation::name(mutex),
        )
    }
}

#[cfg(feature = "simulation")]
impl Drop for Unlocked {
    fn drop(&mut self) {
        simulation::unlocked(self.0);
    }
}

/// A condition variable.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// Returns one without waiting threads.
    #[must_use]
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    /// Waits until another thread notifies this one.
    #[inline]
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        #[cfg(feature = "simulation")]
        if simulation::wait(simulation::name(self), guard, None).is_some() {
            return;
        }
        self.0.wait(guard);
    }

    /// Waits until notified, or until that time; `false` on a timeout.
    #[inline]
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, until: Instant) -> bool {
        #[cfg(feature = "simulation")]
        if let Some(is_notified) = simulation::wait(simulation::name(self), guard, Some(until)) {
            return is_notified;
        }
        !self.0.wait_until(guard, until).timed_out()
    }

    /// Waits until notified, at most this long; `false` on a timeout.
    #[inline]
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) -> bool {
        self.wait_until(guard, now() + time)
    }

    /// Wakes one waiting thread.
    #[inline]
    pub fn notify_one(&self) {
        #[cfg(feature = "simulation")]
        simulation::notify(simulation::name(self), 1);
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    #[inline]
    pub fn notify_all(&self) {
        #[cfg(feature = "simulation")]
        simulation::notify(simulation::name(self), usize::MAX);
        self.0.notify_all();
    }
}
