//! Limits the size of an object, so that its append takes only a part of the lease.
//!
//! An append renews the lease only when it is confirmed. On a slow network, one of the longest objects would take
//! longer than the lease, and another server would take over from a working owner.

use std::time::Duration;

use tierce_bucket::ClaimInfo;

/// Approximate maximum of an object's bytes of changes, before compression.
const OBJECT_BYTES_MAX: usize = 32 << 20;

/// First maximum with a lease, when nothing is known of the network.
const FIRST_BYTES: usize = 4 << 20;

/// Minimum: less is no faster, because a put has a fixed cost.
const OBJECT_BYTES_MIN: usize = 64 << 10;

/// Divisor of the lease that gives an append's target time. The lease is renewed when a third of it is over, so that
/// more than a third is left for a network that becomes slower.
const PART_OF_A_LEASE: u32 = 4;

/// Size limit of objects.
#[derive(Debug)]
pub(super) struct Pace {
    bytes: usize,
    /// Target time of an append; `None` without a lease.
    target: Option<Duration>,
}

impl Pace {
    /// Returns the limit of an owner with this claim.
    pub(super) fn new(claim: Option<&ClaimInfo>) -> Self {
        let lease_ms = claim.filter(|claim| claim.takeover).map(|claim| claim.lease_ms);
        Self::of_lease(lease_ms.map(Duration::from_millis))
    }

    fn of_lease(lease: Option<Duration>) -> Self {
        let bytes = if lease.is_some() { FIRST_BYTES } else { OBJECT_BYTES_MAX };
        Self { bytes, target: lease.map(|lease| lease / PART_OF_A_LEASE) }
    }

    pub(super) fn object_bytes(&self) -> usize {
        self.bytes
    }

    /// Notes that an append of this many bytes took this long. A short one says nothing about long ones, unless it was
    /// slow.
    pub(super) fn note(&mut self, bytes: usize, took: Duration) {
        let Some(target) = self.target else { return };
        if took <= target && bytes < self.bytes {
            return;
        }
        let fitting = bytes as f64 * target.as_secs_f64() / took.as_secs_f64().max(1e-6);
        self.bytes =
            (fitting as usize).min(2 * self.bytes).clamp(OBJECT_BYTES_MIN, OBJECT_BYTES_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(8);

    /// Returns the object size that results on a network with this rate.
    fn settled(bytes_per_second: usize) -> usize {
        let mut pace = Pace::of_lease(Some(LEASE));
        for _ in 0..20 {
            let bytes = pace.object_bytes();
            pace.note(bytes, Duration::from_secs_f64(bytes as f64 / bytes_per_second as f64));
        }
        pace.object_bytes()
    }

    #[test]
    fn an_append_takes_a_part_of_the_lease() {
        for (rate, expected) in
            [(1 << 30, OBJECT_BYTES_MAX), (1 << 20, 2 << 20), (1 << 10, OBJECT_BYTES_MIN)]
        {
            assert!(settled(rate).abs_diff(expected) <= 1, "{rate}: {}", settled(rate));
        }
    }

    #[test]
    fn short_objects_and_owners_without_a_lease_change_nothing() {
        let mut pace = Pace::of_lease(Some(LEASE));
        pace.note(100, Duration::from_millis(20));
        assert_eq!(pace.object_bytes(), FIRST_BYTES);
        // An outage is not caused by the objects' size, and later ones show that.
        pace.note(100, 10 * LEASE);
        assert_eq!(pace.object_bytes(), OBJECT_BYTES_MIN);
        pace.note(OBJECT_BYTES_MIN, Duration::from_millis(1));
        assert_eq!(pace.object_bytes(), 2 * OBJECT_BYTES_MIN);
        let mut pace = Pace::of_lease(None);
        pace.note(100, 10 * LEASE);
        assert_eq!(pace.object_bytes(), OBJECT_BYTES_MAX);
    }
}
