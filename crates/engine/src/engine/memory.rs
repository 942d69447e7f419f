//! Memory of a whole engine.

use std::sync::atomic::Ordering::Relaxed;

use super::{Engine, News};
use crate::memory::{self, MemoryReport, resident_bytes, total_system_bytes};

impl MemoryReport {
    /// Measures the memory.
    pub fn take(engine: &Engine) -> Self {
        let memory = engine.keyspace.memory();
        let audience = engine.audience.get().map(|audience| audience.memory()).unwrap_or_default();
        let mut report = Self {
            entries: (memory.entries + memory.lazy_free) as usize,
            index: (memory.index + memory.deadlines) as usize,
            garbage: memory.lazy_free as usize,
            copies: memory.copies as usize,
            tracking: memory.cached as usize,
            code: memory.code as usize,
            clients: audience.connections,
            messages: audience.messages,
            startup: engine.startup_memory,
            resident: resident_bytes(),
            peak: 0,
            total_system: total_system_bytes(),
            limit: engine.config.live().maxmemory() as usize,
        };
        let used = report.used();
        report.peak = engine.memory_peak.fetch_max(used, Relaxed).max(used);
        report
    }
}

impl Engine {
    /// Makes all threads that own memory return the unused part.
    pub fn purge_memory(&self) {
        self.purge.begin();
        self.tell(News::PurgeMemory);
        if let Some(reaper) = &*self.reaper.lock() {
            reaper.call(memory::collect);
        }
        self.purge.collect();
    }

    /// Does this if much memory is unused. Must be called once a second on the thread that started the
    /// process, because the allocator leaves the memory of ended threads to it.
    pub(super) fn purge_memory_if_due(&self) {
        if self.purge.is_due(&MemoryReport::take(self)) {
            self.purge_memory();
        }
    }
}
