//! FAILOVER: this server, a primary, hands its role over to one of its replicas.
//!
//! ```text
//! FAILOVER  writes of clients are held back; a thread of the server waits until the replica has everything
//!           (`waiting-for-sync`)
//!        -> this server follows the replica, with PSYNC <id> <offset> FAILOVER (`failover-in-progress`)
//!        -> the replica accepts, as a primary: writes go on, and are refused with READONLY
//! ```
//!
//! With `bucket-takeover yes` and without `TO`, the log in the bucket takes the place of the replica: when it has
//! everything, this server ends, and releases it, so that one that follows it takes over at once.
//!
//! ABORT, the TIMEOUT and a replica that refuses undo it: the server is a primary again, and the writes go on.
//!
//! **Invariant:** from the moment at which the offset is taken until the replica has accepted or the failover is
//! undone, nothing changes the data. So no acknowledged write is missing in what the replica has.
//!
//! **Invariant:** the phase changes only while the role is held still
//! ([`Role::hold_still`](super::role::Role::hold_still)).

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::role::Address;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Which replica; the first one that has everything if there is none.
    pub target: Option<Address>,
    /// When the waiting ends, in Unix milliseconds.
    pub until_ms: Option<i64>,
    /// Whether the target takes over then all the same; otherwise the failover is undone.
    pub is_forced: bool,
    /// Whether not a replica takes over, but a server that follows the log in the bucket.
    pub leaves_bucket: bool,
}

/// How far a failover is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// There is none.
    #[default]
    Nothing,
    /// The replica does not have everything yet.
    WaitsForSync,
    /// This server follows the replica, which has not accepted yet.
    HandsOver,
}

impl Phase {
    /// As INFO names it.
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
}

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    /// Of the failover, or of the last one.
    plan: Option<Plan>,
    /// Counts failovers.
    number: u64,
    /// Something has happened since the thread that waits has looked.
    has_news: bool,
    is_ended: bool,
}

impl Failover {
    /// Whether there is one.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Acquire)
    }

    /// How far it is.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.state.lock().phase
    }

    /// Begins one; `false` if there is one already.
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

    /// The failover with this number goes on to `HandsOver`; `false` if it is over.
    #[must_use]
    pub fn hand_over(&self, number: u64) -> bool {
        let mut state = self.state.lock();
        let waits = state.number == number && state.phase == Phase::WaitsForSync;
        if waits {
            state.phase = Phase::HandsOver;
        }
        waits
    }

    /// Ends it. The phase it was in.
    pub fn finish(&self) -> Phase {
        let mut state = self.state.lock();
        // Behind the change of the role, which who reads this reads then.
        self.is_on.store(false, Release);
        let phase = std::mem::take(&mut state.phase);
        drop(state);
        self.changed.notify_all();
        phase
    }

    /// The server that is to take over has asked this one for its stream, as its replica. So it is none that has taken
    /// over, or not any more.
    pub fn note_target_asks(&self) {
        self.target_asks.store(true, Relaxed);
    }

    /// Whether it has since this was last called.
    #[must_use]
    pub fn take_target_asks(&self) -> bool {
        self.target_asks.swap(false, Relaxed)
    }

    /// Waits until one begins: its number and what is asked for. `None` at the end of the server.
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

    /// Whether the failover with this number still waits for the replica.
    #[must_use]
    pub fn waits(&self, number: u64) -> bool {
        let state = self.state.lock();
        !state.is_ended && state.number == number && state.phase == Phase::WaitsForSync
    }

    /// Waits for news, but no longer than so.
    pub fn wait(&self, at_most: Duration) {
        let mut state = self.state.lock();
        if !std::mem::take(&mut state.has_news) && !state.is_ended {
            let _ = self.changed.wait_for(&mut state, at_most);
            state.has_news = false;
        }
    }

    /// A replica has said how far it is, or the stream has gone on.
    #[inline]
    pub fn note_news(&self) {
        if self.is_on() {
            self.state.lock().has_news = true;
            self.changed.notify_all();
        }
    }

    /// Ends the thread that waits.
    pub fn end(&self) {
        self.state.lock().is_ended = true;
        self.changed.notify_all();
    }
}
