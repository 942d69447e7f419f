//! What earlier runs of a program tell about the next one: where it should begin, so that it need not begin twice.
//!
//! A program that has taken long begins on a thread for scripts the next time, and one that has reached a key that it
//! had not declared begins with all shards locked. Both are forgotten after a while: what a program does depends on its
//! arguments and on the data.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// After so many runs in a row that a worker could have done, the next one begins on a worker.
const SHORT_RUNS: u8 = 4;

/// After so many runs with all shards locked, one begins with the declared keys alone.
const WIDE_RUNS: u8 = 64;

/// See the module. Threads that write at the same time may lose a run, which only costs time.
#[derive(Debug, Default)]
pub struct History {
    /// Short runs that are to be seen before it begins on a worker again.
    long: AtomicU8,
    /// Runs that begin with all shards.
    wide: AtomicU8,
}

impl History {
    /// Whether it is to begin on a thread for scripts.
    #[inline]
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.long.load(Relaxed) > 0
    }

    /// It has taken too long for a worker.
    pub fn was_long(&self) {
        self.long.store(SHORT_RUNS, Relaxed);
    }

    /// It has run on a thread for scripts, and a worker could have done that.
    pub fn was_short(&self) {
        self.long.store(self.long.load(Relaxed).saturating_sub(1), Relaxed);
    }

    /// Whether it is to begin with all shards locked. Called once for each run.
    #[inline]
    #[must_use]
    pub fn begins_wide(&self) -> bool {
        let left = self.wide.load(Relaxed);
        if left > 0 {
            self.wide.store(left - 1, Relaxed);
        }
        left > 0
    }

    /// It has reached for a key that it had not declared.
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
