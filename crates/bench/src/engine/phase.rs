//! A phase: the progress that its workers share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// End of a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    /// After exactly so many requests.
    Requests(u64),
    /// After so much time. Replies that are pending then are still awaited.
    Time(Duration),
}

/// Shared by all workers of a phase.
#[derive(Debug)]
pub(super) struct Phase {
    pub(super) start: Instant,
    /// Time between the batches of one connection, if the rate is limited.
    pub(super) interval: Option<Duration>,
    /// Number of requests handed out to workers so far.
    pub(super) claimed: AtomicU64,
    requests_max: u64,
    deadline: Option<Instant>,
    aborted: AtomicBool,
}

/// Consecutive requests of one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// Number of the phase's requests before it.
    pub(super) position: u64,
    pub(super) count: usize,
}

impl Phase {
    pub(super) fn new(goal: Goal, interval: Option<Duration>) -> Self {
        let start = Instant::now();
        let (requests_max, deadline) = match goal {
            Goal::Requests(count) => (count, None),
            Goal::Time(time) => (u64::MAX, Some(start + time)),
        };
        Self {
            start,
            interval,
            claimed: AtomicU64::new(0),
            requests_max,
            deadline,
            aborted: AtomicBool::new(false),
        }
    }

    /// Hands out the next `count_max` requests, fewer at the end, then none.
    ///
    /// The counter is all that workers share, and it publishes no other data. So relaxed order
    /// suffices to hand out every request once.
    #[inline]
    pub(super) fn claim(&self, count_max: usize, now: Instant) -> Option<Claim> {
        if self.deadline.is_some_and(|deadline| now >= deadline)
            || self.aborted.load(Ordering::Relaxed)
            || self.claimed.load(Ordering::Relaxed) >= self.requests_max
        {
            return None;
        }
        let position = self.claimed.fetch_add(count_max as u64, Ordering::Relaxed);
        let count = self.requests_max.saturating_sub(position).min(count_max as u64) as usize;
        (count > 0).then_some(Claim { position, count })
    }

    /// Ends the phase for all workers.
    pub(super) fn abort(&self) {
        self.aborted.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_handed_out_once() {
        let phase = Phase::new(Goal::Requests(10), None);
        let claim = |count| phase.claim(count, phase.start).map(|it| (it.position, it.count));
        assert_eq!(claim(4), Some((0, 4)));
        assert_eq!(claim(4), Some((4, 4)));
        assert_eq!(claim(4), Some((8, 2)));
        assert_eq!(claim(4), None);
    }

    #[test]
    fn time_and_failure_end_a_phase() {
        let phase = Phase::new(Goal::Time(Duration::from_secs(5)), None);
        assert!(phase.claim(1, phase.start + Duration::from_millis(4999)).is_some());
        assert_eq!(phase.claim(1, phase.start + Duration::from_secs(5)), None);
        phase.abort();
        assert_eq!(phase.claim(1, phase.start), None);
    }
}
