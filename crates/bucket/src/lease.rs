//! The end of an owner's lease, and its clock: shared without locks with the threads that send replies.
//!
//! A reply may be sent when a check **after** the execution of its command says that the lease is valid. A reply that
//! is delayed after that check does no harm: at the moment of the check no other process could have claimed the log,
//! so the command took effect before those of any other owner. A check before the execution proves nothing, since a
//! process may be stopped between any two instructions.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::env::Env;

/// Another process has claimed the log. This is final.
const DEPOSED: u64 = 0;

/// The owner has put a RELEASE, or is about to. This is final.
const RELEASED: u64 = 1;

/// No process takes over the log, so the lease never ends.
const UNBOUNDED: u64 = u64::MAX;

/// The lease of an owner.
///
/// # Thread safety
///
/// One thread extends the lease and all threads may check it. An extension is published only after its record is known
/// to be committed, so a check that misses the extension is at worst too strict.
pub struct Lease {
    env: Arc<dyn Env>,
    /// Nanoseconds by [`Env::boottime`], or one of the constants above.
    until: AtomicU64,
}

impl Lease {
    /// Creates a lease until a moment, or without end.
    pub(crate) fn new(env: Arc<dyn Env>, until: Option<Duration>) -> Self {
        let until = AtomicU64::new(until.map_or(UNBOUNDED, nanos));
        Self { env, until }
    }

    /// Returns true if replies may be sent. Reads a clock that keeps running while the machine is suspended.
    pub fn is_held(&self) -> bool {
        match self.until.load(Ordering::Acquire) {
            UNBOUNDED => true,
            until => nanos(self.env.boottime()) < until,
        }
    }

    /// As [`Lease::is_held`], at a moment that the caller has read before.
    #[cfg(test)]
    pub(crate) fn is_held_at(&self, now: Duration) -> bool {
        let until = self.until.load(Ordering::Acquire);
        until == UNBOUNDED || nanos(now) < until
    }

    /// Returns the end of the lease, by [`Env::boottime`]. `None`: it has no end, since no process takes over this log
    /// automatically. Zero: it has ended for good.
    pub fn until(&self) -> Option<Duration> {
        match self.until.load(Ordering::Acquire) {
            UNBOUNDED => None,
            DEPOSED | RELEASED => Some(Duration::ZERO),
            until => Some(Duration::from_nanos(until)),
        }
    }

    /// Returns true if another process has claimed the log: pending commits will never be confirmed.
    pub fn is_deposed(&self) -> bool {
        self.until.load(Ordering::Acquire) == DEPOSED
    }

    /// Returns true if it has ended for good, by another process' claim or by this one's RELEASE.
    pub fn has_ended(&self) -> bool {
        self.until.load(Ordering::Acquire) <= RELEASED
    }

    /// Extends the lease after a commit. An ended or unlimited lease stays as it is.
    pub(crate) fn extend(&self, until: Duration) {
        let extended = |old| (old > RELEASED && old != UNBOUNDED).then(|| nanos(until).max(old));
        let _ = self.until.fetch_update(Ordering::AcqRel, Ordering::Acquire, extended);
    }

    /// Ends the lease: no reply is sent from now on.
    pub(crate) fn release(&self) {
        let _ = self.until.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
            (old > RELEASED).then_some(RELEASED)
        });
    }

    /// Ends the lease for good: no reply is ever sent again.
    pub(crate) fn depose(&self) {
        self.until.store(DEPOSED, Ordering::Release);
    }
}

/// Returns a moment as the atomic stores it: never one of the constants.
fn nanos(moment: Duration) -> u64 {
    u64::try_from(moment.as_nanos()).unwrap_or(UNBOUNDED).clamp(RELEASED + 1, UNBOUNDED - 1)
}

/// The clock of an owner, by which keys expire. It starts no lower than the newest header's, never goes back, and
/// never stands still. On a machine whose clock is behind, it continues the times of the log.
pub struct Clock {
    env: Arc<dyn Env>,
    /// Milliseconds by which it is ahead of [`Env::boottime`].
    ahead: AtomicI64,
}

impl Clock {
    /// Creates a clock that starts at `wall`, or at the machine's time if that is later.
    pub(crate) fn starting_at(env: Arc<dyn Env>, wall: u64) -> Self {
        let ahead = AtomicI64::new(ahead(wall, &*env));
        Self { env, ahead }
    }

    /// Milliseconds since 1970.
    pub fn now(&self) -> u64 {
        let machine = ahead(self.env.wall(), &*self.env);
        let ahead = self.ahead.fetch_max(machine, Ordering::AcqRel).max(machine);
        boottime_ms(&*self.env).saturating_add_signed(ahead)
    }
}

/// Returns how far a wall clock time is ahead of the boot time, in milliseconds.
fn ahead(wall: u64, env: &dyn Env) -> i64 {
    let ahead = i128::from(wall) - i128::from(boottime_ms(env));
    i64::try_from(ahead).unwrap_or(i64::MAX)
}

fn boottime_ms(env: &dyn Env) -> u64 {
    u64::try_from(env.boottime().as_millis()).unwrap_or(u64::MAX)
}
