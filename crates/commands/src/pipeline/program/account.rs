//! Additions of a run to the accounts of the server: its calls, their times, errors and denials.
//!
//! It is kept aside until it is known that the run counts: one that is begun again has never been.

use std::cell::Cell;
use std::ops::Deref;

use parking_lot::Mutex;

use crate::acl::AclLog;
use crate::kernel::Kernel;
use crate::latency::LatencyMonitor;
use crate::slowlog::SlowLog;
use crate::stats::{Counters, ErrorCounts};

/// See the module. Dropped unbooked, it is forgotten.
pub(super) struct Account {
    pub(super) counters: Aside,
    pub(super) errors: ErrorCounts,
    pub(super) denials: AclLog,
    pub(super) slowlog: Mutex<SlowLog>,
    pub(super) latency: Mutex<LatencyMonitor>,
}

impl Account {
    /// An empty one.
    pub(super) fn new(kernel: &Kernel) -> Self {
        Self {
            counters: Aside::take(kernel.commands.id_count()),
            errors: ErrorCounts::default(),
            denials: AclLog::default(),
            slowlog: Mutex::default(),
            latency: Mutex::default(),
        }
    }

    /// Adds all of it to the accounts of the server, and to the counters of this thread.
    pub(super) fn book(&self, kernel: &Kernel, counters: &Counters) {
        self.counters.move_to(counters);
        kernel.errors.add_all(&self.errors);
        kernel.acl.log.add_all(&self.denials, kernel.config.live().acllog_max_len() as usize);
        let (slow, spikes) = (self.slowlog.lock(), self.latency.lock());
        if !slow.is_empty() {
            kernel.slowlog.lock().add_all(&slow, kernel.slowlog_max_len());
        }
        if spikes.events().len() > 0 {
            kernel.latency.lock().add_all(&spikes);
        }
    }
}

/// Counters of this thread that are zero between two runs.
pub(super) struct Aside(Option<Box<Counters>>);

thread_local! {
    static SPARE: Cell<Option<Box<Counters>>> = const { Cell::new(None) };
}

impl Aside {
    fn take(commands: usize) -> Self {
        let spare = SPARE.take().filter(|spare| spare.has_room_for(commands));
        Self(Some(spare.unwrap_or_else(|| Box::new(Counters::aside(commands)))))
    }
}

impl Deref for Aside {
    type Target = Counters;

    fn deref(&self) -> &Counters {
        self.0.as_ref().expect("until it is dropped")
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.forget();
        SPARE.set(self.0.take());
    }
}
