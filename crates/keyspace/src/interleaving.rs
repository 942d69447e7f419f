//! The places where threads meet: locks, wake-ups, and what they ask of the clock and of chance.
//!
//! A simulation (`simulation`) runs its threads one at a time, and decides at these places which one goes on and what
//! time it is. Without the feature of that name, which only tests have, nothing is left here but what the system offers.

use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

#[cfg(feature = "simulation")]
use crate::simulation;

/// Other threads may come in here. Not to be called with a lock held that is not one of a shard.
#[inline(always)]
pub fn pass(place: &'static str) {
    let _ = place;
    #[cfg(feature = "simulation")]
    simulation::pass(place);
}

/// The time on the clock that never goes back.
#[inline]
#[must_use]
pub fn now() -> Instant {
    #[cfg(feature = "simulation")]
    if let Some(now) = simulation::instant() {
        return now;
    }
    Instant::now()
}

/// Milliseconds since 1970, where the system's clock does not count.
#[inline]
#[must_use]
pub fn unix_ms() -> Option<i64> {
    #[cfg(feature = "simulation")]
    return simulation::unix_ms();
    #[cfg(not(feature = "simulation"))]
    None
}

/// A random word, where the system's chance does not count.
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

/// Waits for a shard.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    #[cfg(feature = "simulation")]
    if let Some(guard) = simulation::lock(mutex) {
        return guard;
    }
    mutex.lock()
}

/// Waits for a shard, so long at most.
#[inline]
pub(crate) fn try_lock_for<T>(mutex: &Mutex<T>, time: Duration) -> Option<MutexGuard<'_, T>> {
    #[cfg(feature = "simulation")]
    if simulation::is_here() {
        return simulation::try_lock_for(mutex, time);
    }
    mutex.try_lock_for(time)
}

/// Dropped when a shard was unlocked.
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

/// A condition that threads wait for.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// One that nobody waits for.
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

    /// Waits no longer than until then; `false` when the time is up.
    #[inline]
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, until: Instant) -> bool {
        #[cfg(feature = "simulation")]
        if let Some(is_notified) = simulation::wait(simulation::name(self), guard, Some(until)) {
            return is_notified;
        }
        !self.0.wait_until(guard, until).timed_out()
    }

    /// Waits for so long at most; `false` when the time is up.
    #[inline]
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) -> bool {
        self.wait_until(guard, now() + time)
    }

    /// Has one of those go on that wait.
    #[inline]
    pub fn notify_one(&self) {
        #[cfg(feature = "simulation")]
        simulation::notify(simulation::name(self), 1);
        self.0.notify_one();
    }

    /// Has all of them go on.
    #[inline]
    pub fn notify_all(&self) {
        #[cfg(feature = "simulation")]
        simulation::notify(simulation::name(self), usize::MAX);
        self.0.notify_all();
    }
}
