//! Calls, times, errors and denials of a run of a program, for the statistics of the server.
//!
//! A side buffer keeps them until the run counts. A run that starts again is never counted.

use std::cell::Cell;
use std::iter;

use crate::acl::AclLog;
use crate::command::CommandId;
use crate::command_log::LogKind;
use crate::kernel::Kernel;
use crate::pipeline::meter::Noted;
use crate::stats::{Counted, Counters, ErrorCounts};

/// See the module. It is discarded unless [`Account::book`] is called.
pub(super) struct Account<'w> {
    pub(super) aside: &'w Aside,
    pub(super) errors: ErrorCounts,
    pub(super) denials: AclLog,
    pub(super) noted: Noted,
}

impl<'w> Account<'w> {
    /// Creates an empty one.
    pub(super) fn new(aside: &'w Aside) -> Self {
        // The previous run may have been discarded.
        aside.drain(|_, _| {});
        Self {
            aside,
            errors: ErrorCounts::default(),
            denials: AclLog::default(),
            noted: Noted::default(),
        }
    }

    /// Adds it to the statistics of the server and of this thread.
    pub(super) fn book(&self, kernel: &Kernel, counters: &Counters) {
        self.aside.drain(|counted, by| counters.add_counted(counted, by));
        kernel.errors.add_all(&self.errors);
        kernel.acl.log.add_all(&self.denials, kernel.config.live().acllog_max_len() as usize);
        let (slow, spikes) = (self.noted.slowlog.lock(), self.noted.latency.lock());
        if !slow.is_empty() {
            let log = kernel.command_logs.of(LogKind::Slow);
            log.lock().add_all(&slow, kernel.log_max_len(LogKind::Slow));
        }
        if spikes.events().len() > 0 {
            kernel.latency.lock().add_all(&spikes);
        }
    }
}

/// Counters of this thread for its runs.
pub(super) struct Aside {
    pub(super) counters: Counters,
    /// Bits of the commands with counts, so that few have to be visited.
    noted: Box<[Cell<u64>]>,
}

impl Aside {
    pub(super) fn new(commands: usize) -> Self {
        let noted = (0..commands.div_ceil(u64::BITS as usize)).map(|_| Cell::new(0)).collect();
        Self { counters: Counters::new(commands), noted }
    }

    /// Must be called before a command is counted.
    pub(super) fn note(&self, command: CommandId) {
        let id = u32::from(command.0);
        let word = &self.noted[(id / u64::BITS) as usize];
        word.set(word.get() | 1 << (id % u64::BITS));
    }

    fn drain(&self, take: impl FnMut(Counted, u64)) {
        let commands = self.noted.iter().enumerate().flat_map(|(at, word)| {
            let mut bits = word.take();
            iter::from_fn(move || {
                let lowest = bits.trailing_zeros();
                bits &= bits.wrapping_sub(1);
                (lowest < u64::BITS).then(|| CommandId((at as u32 * u64::BITS + lowest) as u16))
            })
        });
        self.counters.drain(commands, take);
    }
}
