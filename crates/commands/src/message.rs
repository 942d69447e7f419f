//! Messages to workers.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::durability::Switched;
use crate::maintenance::Notification;
use crate::persistence::SaveId;

/// A message to all workers.
#[derive(Clone)]
pub enum Notice {
    /// Deferred requests may be tried again.
    Resume,
    /// A line for the clients of MONITOR.
    Monitor(Arc<[u8]>),
    /// A message for the clients of `CLIENT MAINT_NOTIFICATIONS`.
    Maintenance(Notification),
    /// The backlogs of clients are about to be read: publish their current sizes.
    NoteBacklogs,
    /// A save has ended. Clients that wait for it get a reply.
    Saved {
        /// The save.
        save_id: SaveId,
        /// Its outcome, or the reason of its failure.
        outcome: Result<(), Arc<str>>,
    },
    /// The shutdown was cancelled because the save failed. Clients that asked for SHUTDOWN get an error.
    StaysUp,
    /// Return the memory that the allocator keeps for this worker to the system.
    Purge,
    /// The log is synced up to a new position, or has failed.
    Durable,
    /// The rights of some users have changed: connections with forbidden subscriptions are closed.
    RightsChanged,
    /// The log was switched on or off, or that failed. Clients that asked for it get a reply.
    LogSwitched(Arc<Switched>),
    /// The `timeout` directive has changed.
    IdleTimeout {
        /// Zero for never.
        timeout_ms: u64,
    },
    /// Report that all earlier work of this worker is done.
    Report(Arc<Reported>),
}

/// Counts the workers that have not read a notice yet.
#[derive(Debug)]
pub struct Reported(AtomicUsize);

impl Reported {
    /// Starts with the number of workers that will report.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self(AtomicUsize::new(workers))
    }

    /// Notes the report of one worker.
    pub fn one(&self) {
        self.0.fetch_sub(1, Release);
    }

    /// Returns true if all workers have reported.
    #[must_use]
    pub fn have_all(&self) -> bool {
        self.0.load(Acquire) == 0
    }
}
