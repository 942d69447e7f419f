//! Messages to workers.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::durability::Switched;
use crate::persistence::SaveId;

/// A message to all workers.
#[derive(Clone)]
pub enum Notice {
    /// Requests that were held back may be tried again.
    Resume,
    /// A line for the clients of MONITOR.
    Monitor(Arc<[u8]>),
    /// The backlogs of clients are about to be read: update them.
    NoteBacklogs,
    /// A save has ended. Clients that wait for it get a reply.
    Saved {
        /// Which one.
        save_id: SaveId,
        /// How it ended, or why it failed.
        outcome: Result<(), Arc<str>>,
    },
    /// The server does not shut down, since it could not save. Clients that asked for SHUTDOWN get an error.
    StaysUp,
    /// Memory that the allocator holds for this worker is to go back to the system.
    Purge,
    /// The log has reached the device, or never will.
    Durable,
    /// The rights of some users have changed: connections end that subscribe to channels they may not.
    RightsChanged,
    /// The log was switched on or off, or could not be. Clients that asked for it get a reply.
    LogSwitched(Arc<Switched>),
    /// The `timeout` directive has changed.
    IdleTimeout {
        /// Zero for never.
        timeout_ms: u64,
    },
    /// What the worker was doing is done: it says so.
    Report(Arc<Reported>),
}

/// Counts the workers that have not read a notice yet.
#[derive(Debug)]
pub struct Reported(AtomicUsize);

impl Reported {
    /// So many are going to.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self(AtomicUsize::new(workers))
    }

    /// One more has.
    pub fn one(&self) {
        self.0.fetch_sub(1, Release);
    }

    /// True if all have.
    #[must_use]
    pub fn have_all(&self) -> bool {
        self.0.load(Acquire) == 0
    }
}
