//! Additions of a run to the accounts of the server: its calls, their times, errors and denials.
//!
//! It is kept aside until it is known that the run counts: one that is begun again has never been.

use std::cell::Cell;

use crate::acl::AclLog;
use crate::command::CommandId;
use crate::kernel::Kernel;
use crate::pipeline::meter::Noted;
use crate::stats::{Counted, Counters, ErrorCounts};

/// See the module. Dropped unbooked, it is forgotten.
pub(super) struct Account<'w> {
    pub(super) aside: &'w Aside,
    pub(super) errors: ErrorCounts,
    pub(super) denials: AclLog,
    pub(super) noted: Noted,
}

impl<'w> Account<'w> {
    /// An empty one.
    pub(super) fn new(aside: &'w Aside) -> Self {
        // The run before may not have counted.
        aside.drain(|_, _| {});
        Self {
            aside,
            errors: ErrorCounts::default(),
            denials: AclLog::default(),
            noted: Noted::default(),
        }
    }

    /// Adds all of it to the accounts of the server, and to the counters of this thread.
    pub(super) fn book(&self, kernel: &Kernel, counters: &Counters) {
        self.aside.drain(|counted, by| counters.add_counted(counted, by));
        kernel.errors.add_all(&self.errors);
        kernel.acl.log.add_all(&self.denials, kernel.config.live().acllog_max_len() as usize);
        let (slow, spikes) = (self.noted.slowlog.lock(), self.noted.latency.lock());
        if !slow.is_empty() {
            kernel.slowlog.lock().add_all(&slow, kernel.slowlog_max_len());
        }
        if spikes.events().len() > 0 {
            kernel.latency.lock().add_all(&spikes);
        }
    }
}

/// Counters of this thread for its runs.
pub(super) struct Aside {
    pub(super) counters: Counters,
    /// A bit for each command that may have been counted, so that few are looked at.
    noted: Box<[Cell<u64>]>,
}

impl Aside {
    pub(super) fn new(commands: usize) -> Self {
        let noted = (0..commands.div_ceil(u64::BITS as usize)).map(|_| Cell::new(0)).collect();
        Self { counters: Counters::new(commands), noted }
    }

    /// To be called before anything is counted of a command.
    pub(super) fn note(&self, command: CommandId) {
        let id = u32::from(command.0);
        let word = &self.noted[(id / u64::BITS) as usize];
        word.set(word.get() | 1 << (id % u64::BITS));
    }

    fn drain(&self, take: impl FnMut(Counted, u64)) {
        let commands = self.noted.iter().enumerate().flat_map(|(at, word)| {
            let bits = word.take();
            let is_set = move |bit: &u32| bits & 1 << *bit != 0;
            (0..u64::BITS)
                .filter(is_set)
                .map(move |bit| CommandId((at as u32 * u64::BITS + bit) as u16))
        });
        self.counters.drain(commands, take);
    }
}
