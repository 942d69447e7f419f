//! Messages to workers.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

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

/// Which workers have read a notice.
#[derive(Debug)]
pub struct Reported {
    /// How many have not.
    left: Mutex<usize>,
    none_left: Condvar,
}

impl Reported {
    /// So many are going to.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self { left: Mutex::new(workers), none_left: Condvar::new() }
    }

    /// One more has.
    pub fn one(&self) {
        let mut left = self.left.lock();
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.none_left.notify_all();
        }
    }

    /// Waits until all have, but no longer than so. Whether all have.
    #[must_use]
    pub fn wait(&self, at_most: Duration) -> bool {
        let mut left = self.left.lock();
        if *left > 0 {
            let _ = self.none_left.wait_for(&mut left, at_most);
        }
        *left == 0
    }
}
