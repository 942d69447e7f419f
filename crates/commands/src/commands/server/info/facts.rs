//! Values that several fields of INFO need, looked up once.

use std::cell::OnceCell;
use std::sync::Arc;

use super::value::Value;
use crate::config::Settings;
use crate::durability::{CompactionFigures, WalFigures};
use crate::kernel::{Kernel, KeyStats};
use crate::memory::MemoryReport;
use crate::process::{self, CpuTimes};
use crate::replication::role::Following;
use crate::stats::{Stat, Totals};

pub(in crate::commands::server) struct Facts<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) now_ms: i64,
    settings: Arc<Settings>,
    totals: OnceCell<Totals>,
    memory: OnceCell<MemoryReport>,
    cpu: OnceCell<CpuTimes>,
    cpu_of_main: OnceCell<CpuTimes>,
    log: OnceCell<Option<WalFigures>>,
    compaction: OnceCell<CompactionFigures>,
    rates: OnceCell<[f64; 3]>,
    following: Option<Following>,
}

impl<'a> Facts<'a> {
    pub(in crate::commands::server) fn new(kernel: &'a Kernel, now_ms: i64) -> Self {
        Self {
            kernel,
            now_ms,
            settings: kernel.config.settings(),
            totals: OnceCell::new(),
            memory: OnceCell::new(),
            cpu: OnceCell::new(),
            cpu_of_main: OnceCell::new(),
            log: OnceCell::new(),
            compaction: OnceCell::new(),
            rates: OnceCell::new(),
            following: kernel.role.following(),
        }
    }

    /// Returns the state as a replica.
    pub(super) fn following(&self) -> Option<&Following> {
        self.following.as_ref()
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn count(&self, stat: Stat) -> Value {
        self.kernel.stat(stat).into()
    }

    /// Returns the counts of all commands.
    pub(super) fn totals(&self) -> &Totals {
        self.totals.get_or_init(|| self.kernel.totals())
    }

    pub(super) fn memory(&self) -> &MemoryReport {
        self.memory.get_or_init(|| MemoryReport::take(self.kernel))
    }

    pub(super) fn keys(&self) -> KeyStats {
        self.kernel.key_stats()
    }

    pub(super) fn cpu(&self) -> &CpuTimes {
        self.cpu.get_or_init(process::cpu_times)
    }

    pub(super) fn cpu_of_main(&self) -> &CpuTimes {
        self.cpu_of_main.get_or_init(process::cpu_times_of_main_thread)
    }

    /// Returns the figures of the log, if there is one.
    pub(super) fn log(&self) -> Option<&WalFigures> {
        let figures =
            || self.kernel.durability.durable_log().map(|durable_log| durable_log.figures());
        self.log.get_or_init(figures).as_ref()
    }

    pub(super) fn compaction(&self) -> &CompactionFigures {
        self.compaction.get_or_init(|| self.kernel.durability.compaction_figures())
    }

    /// Returns commands, received bytes and sent bytes per second.
    pub(super) fn rates(&self) -> [f64; 3] {
        *self.rates.get_or_init(|| {
            let running = self.kernel.running_totals();
            let rates = self.kernel.rates.per_second(self.now_ms, running);
            self.kernel.rates.sample(self.now_ms, running);
            rates
        })
    }
}
