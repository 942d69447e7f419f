//! Counters for threads that are not workers.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Counters;

/// Counters that a thread owns while it counts, so that each has one writer at a time. Their number is the maximum of
/// threads that have counted at once.
#[derive(Default)]
pub struct SpareCounters(Mutex<Spare>);

#[derive(Default)]
struct Spare {
    all: Vec<Arc<Counters>>,
    free: Vec<Arc<Counters>>,
}

impl SpareCounters {
    /// Returns counters for a table with this many identities. The caller has to give them back.
    pub fn take(&self, commands: usize) -> Arc<Counters> {
        let mut spare = self.0.lock();
        spare.free.pop().unwrap_or_else(|| {
            let counters = Arc::new(Counters::new(commands));
            spare.all.push(Arc::clone(&counters));
            counters
        })
    }

    /// Returns counters to the pool. Their thread has stopped counting.
    pub fn give_back(&self, counters: Arc<Counters>) {
        self.0.lock().free.push(counters);
    }

    /// Returns all counters, for readers that sum.
    pub fn all(&self) -> Vec<Arc<Counters>> {
        self.0.lock().all.clone()
    }
}
