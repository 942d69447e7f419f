//! Returns unused memory of the allocator to the system.
//!
//! A block belongs to the thread that allocated it. When another thread frees it, the owner finds out the next
//! time it allocates much, and a quiet owner never does. So once a second the server compares its resident
//! memory with the accounted memory. If they differ much, every thread that owns memory collects its freed
//! blocks.
//!
//! This costs a thread some microseconds per megabyte that it owns, and does not help against fragmentation. So
//! after an attempt that did not help it pauses, twice as long each time. A pause ends early when the excess has
//! doubled since: then blocks were freed that had been in use.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

use super::MemoryReport;

/// Excess that is left with the allocator in any case, which will need it.
const SLACK_BYTES: usize = 8 << 20;

/// Divisor of the memory in use: an excess below this part is left too, as usual loss by rounding and partly
/// used pages.
const SLACK_PART: usize = 8;

/// Longest pause, in checks; there is one check a second.
const PAUSE_MAX: u32 = 64;

/// Divisor of the excess: an attempt helped if it returned at least this part.
const HELPED_PART: usize = 4;

/// Multiple of the excess at the last attempt from which an excess counts as new.
const NEW_FACTOR: usize = 2;

/// Divisor of a processor's time: collecting takes at most this part.
const COST_PART: u32 = 50;

static COLLECT: OnceLock<fn()> = OnceLock::new();

/// Sets the function that returns unused memory of the calling thread; the program that chose the allocator
/// knows it.
pub fn on_purge(collect: fn()) {
    // Set once, at the start.
    let _ = COLLECT.set(collect);
}

/// Returns the unused memory of this thread to the system.
pub fn collect() {
    if let Some(collect) = COLLECT.get() {
        collect();
    }
}

/// Schedule of the collections, and their cost.
#[derive(Default)]
pub struct Purge {
    pace: Mutex<Pace>,
    /// Processor time of the slowest thread at the last collection, in microseconds. Wall-clock time would
    /// include waiting for a processor, which costs nothing.
    took_us: AtomicU64,
}

impl Purge {
    /// Returns true if it is time to collect; called once a second.
    pub fn is_due(&self, report: &MemoryReport) -> bool {
        let excess = report.resident.saturating_sub(report.used());
        let rest = self.rest().as_secs() as u32;
        self.pace.lock().is_due(excess, report.used(), rest)
    }

    /// Notes that all threads are about to collect.
    pub fn begin(&self) {
        self.took_us.store(0, Relaxed);
    }

    /// Returns the unused memory of this thread, and records the cost.
    pub fn collect(&self) {
        let begun = thread_time();
        collect();
        let took = thread_time().saturating_sub(begun);
        self.took_us.fetch_max(took.as_micros() as u64, Relaxed);
    }

    /// Returns how long all threads should not collect again.
    fn rest(&self) -> Duration {
        Duration::from_micros(self.took_us.load(Relaxed)) * COST_PART
    }
}

/// Returns the processor time of the calling thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Decides at each check if it is time to collect.
#[derive(Default)]
struct Pace {
    /// Number of checks to skip.
    pause: u32,
    /// Number of those that are skipped in any case.
    rest: u32,
    /// Number of checks to skip after the next attempt that does not help.
    next_pause: u32,
    /// Excess at the last attempt, until the check that tells if it helped.
    tried_at: Option<usize>,
    /// Excess that the attempt has left.
    left: usize,
}

impl Pace {
    /// Decides for one check. `excess` is resident memory beyond `used`; `rest` is the minimum pause, in checks.
    fn is_due(&mut self, excess: usize, used: usize, rest: u32) -> bool {
        if excess <= SLACK_BYTES.max(used / SLACK_PART) {
            *self = Self::default();
            return false;
        }
        if let Some(before) = self.tried_at.take() {
            let helped = before.saturating_sub(excess) >= before / HELPED_PART;
            self.next_pause = if helped { 0 } else { (self.next_pause * 2).clamp(1, PAUSE_MAX) };
            self.pause = self.next_pause.max(rest);
            (self.rest, self.left) = (rest, excess.min(before));
        }
        if self.rest == 0 && excess / NEW_FACTOR >= self.left {
            (self.pause, self.next_pause) = (0, 0);
        }
        if self.pause > 0 {
            self.pause -= 1;
            self.rest = self.rest.saturating_sub(1);
            return false;
        }
        self.tried_at = Some(excess);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: usize = 1 << 20;

    #[test]
    fn what_allocators_need_is_left_to_them() {
        let mut pace = Pace::default();
        assert!(!pace.is_due(8 * MB, 10 * MB, 0));
        assert!(!pace.is_due(100 * MB, 1000 * MB, 0));
        assert!(pace.is_due(200 * MB, 1000 * MB, 0));
    }

    #[test]
    fn attempts_that_help_follow_each_other() {
        let mut pace = Pace::default();
        let mut excess = 1000 * MB;
        for _ in 0..5 {
            assert!(pace.is_due(excess, MB, 0));
            excess /= 2;
        }
    }

    #[test]
    fn attempts_that_do_not_help_become_rare() {
        let mut pace = Pace::default();
        let looks: Vec<u32> = (0..400).filter(|_| pace.is_due(1000 * MB, MB, 0)).collect();
        let pauses: Vec<u32> = looks.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(pauses[..7], [2, 3, 5, 9, 17, 33, 65]);
        assert!(pauses[7..].iter().all(|pause| *pause == PAUSE_MAX + 1));
        // A lower excess resets the pauses.
        assert!(!pace.is_due(MB, MB, 0));
        assert!(pace.is_due(1000 * MB, MB, 0));
    }

    #[test]
    fn a_pause_ends_when_much_was_freed() {
        let mut pace = Pace::default();
        // The load leaves an excess that no attempt reduces.
        (0..20).for_each(|_| _ = pace.is_due(20 * MB, MB, 0));
        assert!(!pace.is_due(39 * MB, MB, 0));
        assert!(pace.is_due(40 * MB, MB, 0));
        assert!(!pace.is_due(40 * MB, MB, 0));
    }

    #[test]
    fn what_takes_long_is_done_rarely() {
        let mut pace = Pace::default();
        assert!(pace.is_due(1000 * MB, MB, 3));
        assert_eq!((0..4).filter(|_| pace.is_due(500 * MB, MB, 3)).count(), 1);
    }

    #[test]
    fn what_takes_long_is_done_rarely_though_much_was_freed() {
        let mut pace = Pace::default();
        assert!(pace.is_due(100 * MB, MB, 3));
        assert_eq!(
            (0..4).map(|_| pace.is_due(1000 * MB, MB, 3)).collect::<Vec<_>>(),
            [false, false, false, true]
        );
    }
}
