//! Until when an owner may answer, and its clock: shared with the threads that send replies, without locks.
//!
//! A reply may leave when, **after** its command was executed, a fresh look says that the lease is held. A reply that
//! is held up after that look does no harm: at the moment of the look no other process could have claimed the log, so
//! the command had its effect before any other owner's. A look before the execution says nothing, since a process may
//! be stopped between any two instructions.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::env::Env;

/// Another process has claimed the log. This is final.
const DEPOSED: u64 = 0;

/// The owner has put a RELEASE, or is about to. This is final.
const RELEASED: u64 = 1;

/// No process takes the log over, so the lease never ends.
const UNBOUNDED: u64 = u64::MAX;

/// The lease of an owner.
///
/// # Thread safety
///
/// One thread extends it and all may look. An extension is published only after the record that brought it is known
/// to be committed, so a look that misses it is too strict at worst.
pub struct Lease {
    env: Arc<dyn Env>,
    /// Nanoseconds by [`Env::boottime`], or one of the constants above.
    until: AtomicU64,
}

impl Lease {
    /// A lease until a moment, or without end.
    pub(crate) fn new(env: Arc<dyn Env>, until: Option<Duration>) -> Self {
        let until = AtomicU64::new(until.map_or(UNBOUNDED, nanos));
        Self { env, until }
    }

    /// Whether replies may leave: by a fresh look at a clock that goes on while the machine is suspended.
    pub fn is_held(&self) -> bool {
        match self.until.load(Ordering::Acquire) {
            UNBOUNDED => true,
            until => nanos(self.env.boottime()) < until,
        }
    }

    /// As [`Lease::is_held`], by a moment that the caller has read before.
    #[cfg(test)]
    pub(crate) fn is_held_at(&self, now: Duration) -> bool {
        let until = self.until.load(Ordering::Acquire);
        until == UNBOUNDED || nanos(now) < until
    }

    /// Until when it is held, by [`Env::boottime`]. `None`: without end, since no process takes this log over by
    /// itself. Zero once it has ended for good.
    pub fn until(&self) -> Option<Duration> {
        match self.until.load(Ordering::Acquire) {
            UNBOUNDED => None,
            DEPOSED | RELEASED => Some(Duration::ZERO),
            until => Some(Duration::from_nanos(until)),
        }
    }

    /// Whether another process has claimed the log: nothing that waits for a commit will ever be answered.
    pub fn is_deposed(&self) -> bool {
        self.until.load(Ordering::Acquire) == DEPOSED
    }

    /// Whether it has ended for good, by a claim of another process or by this one's RELEASE.
    pub fn has_ended(&self) -> bool {
        self.until.load(Ordering::Acquire) <= RELEASED
    }

    /// A record was committed. What has ended stays so, and what has no end as well.
    pub(crate) fn extend(&self, until: Duration) {
        let extended = |old| (old > RELEASED && old != UNBOUNDED).then(|| nanos(until).max(old));
        let _ = self.until.fetch_update(Ordering::AcqRel, Ordering::Acquire, extended);
    }

    /// No reply leaves from now on.
    pub(crate) fn release(&self) {
        let _ = self.until.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
            (old > RELEASED).then_some(RELEASED)
        });
    }

    /// No reply ever leaves again.
    pub(crate) fn depose(&self) {
        self.until.store(DEPOSED, Ordering::Release);
    }
}

/// A moment as it is kept: never one of the constants.
fn nanos(moment: Duration) -> u64 {
    u64::try_from(moment.as_nanos()).unwrap_or(UNBOUNDED).clamp(RELEASED + 1, UNBOUNDED - 1)
}

/// The clock of an owner, by which keys expire: it starts no lower than the newest header's, never goes back, and
/// never stands still. A machine whose clock is behind continues the times of the log.
pub struct Clock {
    env: Arc<dyn Env>,
    /// Milliseconds that it is ahead of [`Env::boottime`].
    ahead: AtomicI64,
}

impl Clock {
    /// A clock that starts at `wall`, or at the machine's own if that is later.
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

/// How far a time of day is ahead of the time since the start.
fn ahead(wall: u64, env: &dyn Env) -> i64 {
    let ahead = i128::from(wall) - i128::from(boottime_ms(env));
    i64::try_from(ahead).unwrap_or(i64::MAX)
}

fn boottime_ms(env: &dyn Env) -> u64 {
    u64::try_from(env.boottime().as_millis()).unwrap_or(u64::MAX)
}
