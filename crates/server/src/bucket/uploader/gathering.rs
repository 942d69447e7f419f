//! How long an append waits for others to join it, when clients wait for the bucket.
//!
//! Clients that were answered come back with their next change at about the same time. An append that begins before
//! leaves them to the one after it: then the clients divide into two crowds, each waits for the puts of both, and a put
//! brings half of what it could. So an append waits until as many changes are there as those that were just committed
//! and those that waited meanwhile, for a part of the time that a put takes.

use std::time::{Duration, Instant};

/// It waits no longer than this,
const GATHER_MAX: Duration = Duration::from_millis(10);

/// and no longer than this part of the append before.
const PART_OF_AN_APPEND: u32 = 2;

/// It looks this often: positions of the feed wake nobody.
pub(super) const LOOK_EVERY: Duration = Duration::from_micros(250);

/// What the next append waits for.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// The position of the feed at which everyone is back.
    expected: u64,
    until: Option<Instant>,
}

impl Gathering {
    /// So many items have just been committed, by an append that took so long. The feed is at `position`.
    pub(super) fn committed(&mut self, items: u64, position: u64, took: Duration, now: Instant) {
        self.expected = position + items;
        self.until = Some(now + GATHER_MAX.min(took / PART_OF_AN_APPEND));
    }

    /// Whether to wait on, where the feed is at `position`.
    pub(super) fn waits(&self, position: u64, now: Instant) -> bool {
        position < self.expected && self.until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn an_append_waits_for_all_who_were_answered() {
        let (mut gathering, now) = (Gathering::default(), Instant::now());
        assert!(!gathering.waits(7, now), "nothing was committed before");
        // One was answered, and 499 wait: with the one that comes back, all go together.
        gathering.committed(1, 500, 20 * MS, now);
        assert!(gathering.waits(500, now));
        assert!(!gathering.waits(501, now));
    }

    #[test]
    fn who_does_not_come_back_is_not_waited_for() {
        let (mut gathering, now) = (Gathering::default(), Instant::now());
        gathering.committed(1, 500, 20 * MS, now);
        assert!(gathering.waits(500, now + 9 * MS));
        assert!(!gathering.waits(500, now + 10 * MS));
        gathering.committed(1, 500, 1000 * MS, now);
        assert!(!gathering.waits(500, now + 10 * MS), "a slow store is no reason to wait longer");
        gathering.committed(1, 500, 4 * MS, now);
        assert!(!gathering.waits(500, now + 2 * MS), "nor does a fast one wait for clients");
    }
}
