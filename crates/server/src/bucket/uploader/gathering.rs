//! Group commit: decides how long an append waits for more changes, when clients wait for the bucket.
//!
//! Clients that got their reply send their next change at about one time. An append that begins earlier leaves these
//! changes to the next append. Then the clients split into two groups, each waits for the puts of both, and a put has
//! half of the possible changes. So an append waits for a part of the time of a put, until there are as many changes as
//! those just committed plus those that waited meanwhile.

use std::time::{Duration, Instant};

/// Maximum wait,
const GATHER_MAX: Duration = Duration::from_millis(10);

/// also bounded by this part of the previous append.
const PART_OF_AN_APPEND: u32 = 2;

/// Polling interval: positions of the feed wake nobody.
pub(super) const LOOK_EVERY: Duration = Duration::from_micros(250);

/// Wait of the next append.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// Feed position at which all clients have sent their next change.
    expected: u64,
    until: Option<Instant>,
}

impl Gathering {
    /// Notes that this many items were committed, by an append that took this long. The feed is at `position`.
    pub(super) fn committed(&mut self, items: u64, position: u64, took: Duration, now: Instant) {
        self.expected = position + items;
        self.until = Some(now + GATHER_MAX.min(took / PART_OF_AN_APPEND));
    }

    /// Returns true if the append should keep waiting with the feed at `position`.
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
