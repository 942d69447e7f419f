//! Deadlines of results that clients of a worker wait for while their connections continue.

use std::collections::BTreeMap;
use std::sync::Weak;

use crate::blocking;
use crate::clients::Deferred;
use crate::kernel::Kernel;

/// Smallest number of entries at which those with a delivered result are removed.
const SWEEP_MIN: usize = 64;

/// Deadlines of one worker.
#[derive(Default)]
pub struct Deadlines {
    /// Ordered by time, then by arrival.
    due: BTreeMap<(u64, u64), Weak<Deferred>>,
    begun: u64,
    /// Number of entries at which those without a pending result are removed: twice as many as the last removal left.
    sweep_at: usize,
}

impl Deadlines {
    /// Adds a deadline at this time of the worker's clock.
    pub fn add(&mut self, at_ms: u64, deferred: Weak<Deferred>) {
        if self.due.len() >= self.sweep_at.max(SWEEP_MIN) {
            self.due.retain(|_, deferred| deferred.strong_count() > 0);
            self.sweep_at = 2 * self.due.len();
        }
        self.begun += 1;
        self.due.insert((at_ms, self.begun), deferred);
    }

    /// Ends the waits that are due. Returns the time of the next one.
    #[inline]
    pub fn turn_end(&mut self, kernel: &Kernel, now_ms: u64) -> Option<u64> {
        if self.due.is_empty() { None } else { self.end_due(kernel, now_ms) }
    }

    #[cold]
    fn end_due(&mut self, kernel: &Kernel, now_ms: u64) -> Option<u64> {
        while let Some(first) = self.due.first_entry() {
            if first.key().0 > now_ms {
                return Some(first.key().0);
            }
            if let Some(deferred) = first.remove().upgrade() {
                blocking::result_is_due(kernel, &deferred);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_without_results_do_not_pile_up() {
        let mut deadlines = Deadlines::default();
        for at_ms in 0..10_000 {
            deadlines.add(at_ms, Weak::new());
        }
        assert!(deadlines.due.len() <= SWEEP_MIN);
    }
}
