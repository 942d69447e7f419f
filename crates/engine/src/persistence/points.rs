//! Save points: when an automatic snapshot is due.

use tierce_config::SavePoint;

/// Seconds between a failed save and the next attempt, as in Redis: trying a full disk every second does
/// not help.
const RETRY_SECONDS: u64 = 5;

/// Inputs of the decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation {
    /// Seconds since the last snapshot, or since the start.
    pub(super) age_seconds: u64,
    /// Changes since then.
    pub(super) changes: u64,
    /// Seconds since the last attempt, if it failed.
    pub(super) failed_seconds_ago: Option<u64>,
}

/// Returns the save point that is due now.
pub(super) fn due(points: &[SavePoint], now: Situation) -> Option<SavePoint> {
    if now.failed_seconds_ago.is_some_and(|seconds| seconds <= RETRY_SECONDS) {
        return None;
    }
    let reached = |point: &&SavePoint| {
        now.changes >= u64::from(point.changes) && now.age_seconds > point.seconds
    };
    // Without changes the file would be the same.
    points.iter().find(reached).filter(|_| now.changes > 0).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_needs_its_time_and_its_changes() {
        let points =
            [SavePoint { seconds: 900, changes: 1 }, SavePoint { seconds: 60, changes: 100 }];
        let due = |age_seconds, changes, failed_seconds_ago| {
            let found = due(&points, Situation { age_seconds, changes, failed_seconds_ago });
            found.map(|point| point.seconds)
        };
        assert_eq!(due(901, 1, None), Some(900));
        assert_eq!(due(900, 1, None), None);
        assert_eq!(due(61, 99, None), None);
        assert_eq!(due(61, 100, None), Some(60));
        assert_eq!(due(61, 100, Some(5)), None);
        assert_eq!(due(61, 100, Some(6)), Some(60));
        assert_eq!(due(u64::MAX, 0, None), None);
    }
}
