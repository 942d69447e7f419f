//! What several fields of INFO are taken from, looked up once for all of them.

use std::cell::OnceCell;
use std::sync::Arc;

use crate::config::Settings;
use crate::durability::{CompactionFigures, JournalFigures};
use crate::memory::MemoryReport;
use crate::process::{self, CpuTimes};
use crate::server::{KeyStats, Server};
use crate::stats::{Stat, Totals};

pub(super) struct Facts<'a> {
    pub(super) server: &'a Server,
    pub(super) totals: Totals,
    pub(super) now_ms: i64,
    settings: Arc<Settings>,
    memory: OnceCell<MemoryReport>,
    cpu: OnceCell<CpuTimes>,
    cpu_of_main: OnceCell<CpuTimes>,
    log: OnceCell<Option<JournalFigures>>,
    compaction: OnceCell<CompactionFigures>,
    rates: OnceCell<[f64; 3]>,
}

impl<'a> Facts<'a> {
    pub(super) fn new(server: &'a Server, now_ms: i64) -> Self {
        Self {
            server,
            totals: server.totals(),
            now_ms,
            settings: server.config.settings(),
            memory: OnceCell::new(),
            cpu: OnceCell::new(),
            cpu_of_main: OnceCell::new(),
            log: OnceCell::new(),
            compaction: OnceCell::new(),
            rates: OnceCell::new(),
        }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn count(&self, stat: Stat) -> String {
        self.totals.get(stat).to_string()
    }

    pub(super) fn memory(&self) -> &MemoryReport {
        self.memory.get_or_init(|| MemoryReport::take(self.server))
    }

    pub(super) fn keys(&self) -> KeyStats {
        self.server.key_stats()
    }

    pub(super) fn cpu(&self) -> &CpuTimes {
        self.cpu.get_or_init(process::cpu_times)
    }

    pub(super) fn cpu_of_main(&self) -> &CpuTimes {
        self.cpu_of_main.get_or_init(process::cpu_times_of_main_thread)
    }

    /// The log of writes, if there is one.
    pub(super) fn log(&self) -> Option<&JournalFigures> {
        let figures = || self.server.durability.journal().map(|journal| journal.figures());
        self.log.get_or_init(figures).as_ref()
    }

    pub(super) fn compaction(&self) -> &CompactionFigures {
        self.compaction.get_or_init(|| self.server.durability.compaction_figures())
    }

    /// Commands, bytes received and bytes sent in a second.
    pub(super) fn rates(&self) -> [f64; 3] {
        *self.rates.get_or_init(|| {
            let running = self.server.running_totals();
            let rates = self.server.rates.per_second(self.now_ms, running);
            self.server.rates.sample(self.now_ms, running);
            rates
        })
    }
}
