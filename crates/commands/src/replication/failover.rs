//! FAILOVER: this server, a primary, hands its role over to one of its replicas.
//!
//! ```text
//! FAILOVER  writes of clients are held back; a thread of the server waits until the replica has everything
//!           (`waiting-for-sync`)
//!        -> this server follows the replica, with PSYNC <id> <offset> FAILOVER (`failover-in-progress`)
//!        -> the replica accepts, as a primary: writes go on, and are refused with READONLY
//! ```
//!
//! With `bucket-takeover yes` and without `TO`, the log in the bucket replaces the replica: when it has everything,
//! this server ends and releases it. A server that follows the log then takes over at once.
//!
//! ABORT, the TIMEOUT and a replica that refuses undo it: the server is a primary again, and writes continue.
//!
//! **Invariant:** nothing changes the data from the time at which the offset is read until the replica has accepted or
//! the failover is undone. So the replica has every acknowledged write.
//!
//! **Invariant:** the phase only changes while the role is locked
//! ([`Role::hold_still`](super::role::Role::hold_still)).

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::role::Address;
use crate::maintenance::MOVING_SECONDS;

/// Arguments of FAILOVER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The replica; `None` for the first one that has everything.
    pub target: Option<Address>,
    /// Time at which the waiting ends, in Unix milliseconds.
    pub until_ms: Option<i64>,
    /// True if the target then takes over in any case. Otherwise the failover is undone.
    pub is_forced: bool,
    /// True if a server that follows the log in the bucket takes over, not a replica.
    pub leaves_bucket: bool,
}

/// Phase of a failover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// No failover.
    #[default]
    Nothing,
    /// The replica does not have everything yet.
    WaitsForSync,
    /// This server follows the replica, which has not accepted yet.
    HandsOver,
}

impl Phase {
    /// Returns its name in INFO.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "no-failover",
            Self::WaitsForSync => "waiting-for-sync",
            Self::HandsOver => "failover-in-progress",
        }
    }
}

/// A failover, if there is one.
#[derive(Debug, Default)]
pub struct Failover {
    state: Mutex<State>,
    changed: Condvar,
    is_on: AtomicBool,
    /// See [`Failover::target_asks`].
    target_asks: AtomicBool,
    /// Last id of a notification to clients.
    last_id: AtomicI64,
    /// Id of the notification that the target has taken over; zero unless it has.
    moving_id: AtomicI64,
}

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    /// Plan of the current failover, or of the last one.
    plan: Option<Plan>,
    /// Number of failovers so far.
    number: u64,
    /// True if something has happened since the last check of the waiting thread.
    has_news: bool,
    is_ended: bool,
}

impl Failover {
    /// Returns true during a failover.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Acquire)
    }

    /// Returns the current phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.state.lock().phase
    }

    /// Begins a failover; returns false during another one.
    #[must_use]
    pub fn begin(&self, plan: Plan) -> bool {
        let mut state = self.state.lock();
        if state.phase != Phase::Nothing {
            return false;
        }
        state.phase = Phase::WaitsForSync;
        state.plan = Some(plan);
        state.number += 1;
        self.is_on.store(true, Relaxed);
        drop(state);
        self.changed.notify_all();
        true
    }

    /// Moves the failover with this number to `HandsOver`; returns false if it is over.
    #[must_use]
    pub fn hand_over(&self, number: u64) -> bool {
        let mut state = self.state.lock();
        let waits = state.number == number && state.phase == Phase::WaitsForSync;
        if waits {
            state.phase = Phase::HandsOver;
        }
        waits
    }

    /// Ends the failover and returns its phase.
    pub fn finish(&self) -> Phase {
        let mut state = self.state.lock();
        // After the change of the role: a thread that reads this flag then reads the new role.
        self.is_on.store(false, Release);
        let phase = std::mem::take(&mut state.phase);
        drop(state);
        self.changed.notify_all();
        phase
    }

    /// Notes that the target has asked this server for its stream, as a replica. So the target has not taken over, or
    /// not any more.
    pub fn note_target_asks(&self) {
        self.target_asks.store(true, Relaxed);
    }

    /// Returns true if the target has asked since the last call.
    #[must_use]
    pub fn take_target_asks(&self) -> bool {
        self.target_asks.swap(false, Relaxed)
    }

    /// Returns the id of a notification to clients. The ids grow.
    pub(crate) fn next_id(&self, now_ms: i64) -> i64 {
        let next = |last: i64| now_ms.max(last + 1);
        let last = self.last_id.fetch_update(Relaxed, Relaxed, |last| Some(next(last)));
        last.map_or(now_ms, next)
    }

    /// Notes that the target has taken over. Clients that write here are to go there, as long as this server follows.
    pub(crate) fn note_moved(&self, now_ms: i64) {
        self.moving_id.store(self.next_id(now_ms), Release);
    }

    /// Notes that this server is a primary again.
    pub(crate) fn forget_moved(&self) {
        self.moving_id.store(0, Release);
    }

    /// Returns true if the target has taken over.
    pub(crate) fn has_moved(&self) -> bool {
        self.moving_id.load(Acquire) != 0
    }

    /// Returns the id of the notification that the target has taken over, if it has. Clients that are told at about the
    /// same time get the same id, because a library acts once for all its connections. It is a new one after that time.
    pub(crate) fn moving_id(&self, now_ms: i64) -> Option<i64> {
        let id = self.moving_id.load(Acquire);
        if id == 0 || now_ms < id.saturating_add(MOVING_SECONDS * 1000) {
            return Some(id).filter(|id| *id != 0);
        }
        let next = self.next_id(now_ms);
        match self.moving_id.compare_exchange(id, next, Release, Acquire) {
            Ok(_) => Some(next),
            Err(now) => Some(now).filter(|now| *now != 0),
        }
    }

    /// Waits until a failover begins, and returns its number and plan. `None` at the end of the server.
    #[must_use]
    pub fn wait_for_begin(&self, after: u64) -> Option<(u64, Plan)> {
        let mut state = self.state.lock();
        loop {
            match &state.plan {
                _ if state.is_ended => return None,
                Some(plan) if state.phase == Phase::WaitsForSync && state.number > after => {
                    return Some((state.number, plan.clone()));
                }
                _ => self.changed.wait(&mut state),
            }
        }
    }

    /// Returns true if the failover with this number still waits for the replica.
    #[must_use]
    pub fn waits(&self, number: u64) -> bool {
        let state = self.state.lock();
        !state.is_ended && state.number == number && state.phase == Phase::WaitsForSync
    }

    /// Waits for news, at most for `at_most`.
    pub fn wait(&self, at_most: Duration) {
        let mut state = self.state.lock();
        if !std::mem::take(&mut state.has_news) && !state.is_ended {
            let _ = self.changed.wait_for(&mut state, at_most);
            state.has_news = false;
        }
    }

    /// Notes that a replica has reported its offset, or that the stream has continued.
    #[inline]
    pub fn note_news(&self) {
        if self.is_on() {
            self.state.lock().has_news = true;
            self.changed.notify_all();
        }
    }

    /// Ends the waiting thread.
    pub fn end(&self) {
        self.state.lock().is_ended = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_grow_and_that_of_a_move_lasts_for_its_time() {
        let failover = Failover::default();
        assert_eq!((failover.next_id(1000), failover.next_id(1000)), (1000, 1001));
        // The clock was set back.
        assert_eq!(failover.next_id(500), 1002);
        assert_eq!((failover.has_moved(), failover.moving_id(2000)), (false, None));
        failover.note_moved(2000);
        assert_eq!((failover.has_moved(), failover.moving_id(31_999)), (true, Some(2000)));
        assert_eq!(failover.moving_id(32_000), Some(32_000));
        assert_eq!(failover.moving_id(33_000), Some(32_000));
        failover.forget_moved();
        assert_eq!((failover.has_moved(), failover.moving_id(33_000)), (false, None));
    }
}
