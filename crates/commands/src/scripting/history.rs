//! History of a program's runs. It chooses the start of the next run, so that the program need not start twice.
//!
//! A program that took long starts on a thread for scripts the next time. A program that accessed an undeclared key
//! starts with all shards locked. Both facts are forgotten after a while, because the behaviour of a program depends on
//! its arguments and on the data.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Number of consecutive short runs after which the next one starts on a worker.
const SHORT_RUNS: u8 = 4;

/// Number of runs with all shards locked after which one starts with the declared keys only.
const WIDE_RUNS: u8 = 64;

/// See the module. Concurrent writers may lose a run, which only costs time.
#[derive(Debug, Default)]
pub struct History {
    /// Remaining short runs before it starts on a worker again.
    long: AtomicU8,
    /// Remaining runs that start with all shards locked.
    wide: AtomicU8,
}

impl History {
    /// Returns true if it has to start on a thread for scripts.
    #[inline]
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.long.load(Relaxed) > 0
    }

    /// Notes that it took too long for a worker.
    pub fn was_long(&self) {
        self.long.store(SHORT_RUNS, Relaxed);
    }

    /// Notes that it ran on a thread for scripts, but was short enough for a worker.
    pub fn was_short(&self) {
        self.long.store(self.long.load(Relaxed).saturating_sub(1), Relaxed);
    }

    /// Returns true if it has to start with all shards locked. Called once for each run.
    #[inline]
    #[must_use]
    pub fn begins_wide(&self) -> bool {
        let left = self.wide.load(Relaxed);
        if left > 0 {
            self.wide.store(left - 1, Relaxed);
        }
        left > 0
    }

    /// Notes that it accessed an undeclared key.
    pub fn was_wide(&self) {
        self.wide.store(WIDE_RUNS, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_has_done_is_forgotten_after_a_while() {
        let history = History::default();
        assert!(!history.is_long() && !history.begins_wide());
        history.was_long();
        for _ in 0..SHORT_RUNS {
            assert!(history.is_long());
            history.was_short();
        }
        assert!(!history.is_long());
        history.was_short();
        assert!(!history.is_long());
        history.was_wide();
        assert_eq!(
            (0..2 * WIDE_RUNS).filter(|_| history.begins_wide()).count(),
            usize::from(WIDE_RUNS)
        );
    }
}
