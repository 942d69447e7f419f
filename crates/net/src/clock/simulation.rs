//! Time and waiting in a simulation.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Clock, Now};

/// Function that tells whether a waiting worker may continue.
pub type IsDue = Arc<dyn Fn() -> bool + Send + Sync>;

/// Simulated part of the system.
pub trait System: Send + Sync {
    /// Returns the time.
    fn now(&self) -> Now;

    /// Waits until an event is due, at most for this many milliseconds.
    fn wait(&self, timeout_ms: Option<u64>, is_due: IsDue);
}

/// System as one worker sees it.
#[derive(Clone)]
pub(crate) struct World {
    system: Arc<dyn System>,
    /// Function that tells if the worker's poller has events.
    is_due: IsDue,
}

impl World {
    /// Creates the view of the worker with this poller.
    pub(crate) fn new(system: &Arc<dyn System>, poller: OwnedFd) -> Self {
        let is_due = move || can_read([&poller].into_iter());
        Self { system: Arc::clone(system), is_due: Arc::new(is_due) }
    }

    pub(crate) fn now(&self) -> Now {
        self.system.now()
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

impl Clock {
    /// Waits in the simulation, if this is its clock. Returns how long the worker still has to wait in the system.
    pub(crate) fn wait(&self, timeout_ms: Option<u64>) -> Option<u64> {
        let Some(World { system, is_due }) = &self.world else { return timeout_ms };
        if timeout_ms != Some(0) {
            system.wait(timeout_ms, Arc::clone(is_due));
        }
        Some(0)
    }
}

/// Returns true if a read from one of these would find something.
#[must_use]
pub fn can_read<'f>(all: impl Iterator<Item = &'f OwnedFd>) -> bool {
    let mut all: Vec<PollFd<'_>> = all.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut all, Some(&at_once)).is_ok_and(|count| count > 0)
}
