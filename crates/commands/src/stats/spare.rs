//! Counters for threads that are not workers.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Counters;

/// Counters that a thread has to itself for as long as it counts, so that they have one writer at a time. There are
/// as many as threads have counted at once.
#[derive(Default)]
pub struct SpareCounters(Mutex<Spare>);

#[derive(Default)]
struct Spare {
    all: Vec<Arc<Counters>>,
    free: Vec<Arc<Counters>>,
}

impl SpareCounters {
    /// Counters for a table with this many identities, to be given back.
    pub fn take(&self, commands: usize) -> Arc<Counters> {
        let mut spare = self.0.lock();
        spare.free.pop().unwrap_or_else(|| {
            let counters = Arc::new(Counters::new(commands));
            spare.all.push(Arc::clone(&counters));
            counters
        })
    }

    /// The thread that took these counts no more.
    pub fn give_back(&self, counters: Arc<Counters>) {
        self.0.lock().free.push(counters);
    }

    /// All of them, for readers that sum.
    pub fn all(&self) -> Vec<Arc<Counters>> {
        self.0.lock().all.clone()
    }
}
