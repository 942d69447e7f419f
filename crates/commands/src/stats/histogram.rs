//! Histograms of durations with exponential buckets, small enough to be kept for each command and
//! worker.

/// Number of classes: below 1.024 µs, then doubling up to about 1.1 s, and all above.
pub const BUCKETS: usize = 22;

/// The first class ends at `2^FIRST_BITS` nanoseconds.
const FIRST_BITS: u32 = 10;

/// Returns the class of a duration.
#[inline]
pub fn bucket_of(nanos: u64) -> usize {
    let bits = u64::BITS - nanos.leading_zeros();
    (bits.saturating_sub(FIRST_BITS) as usize).min(BUCKETS - 1)
}

/// Returns the exclusive upper bound of a class in nanoseconds.
pub fn upper_bound_nanos(bucket: usize) -> u64 {
    1 << (FIRST_BITS as usize + bucket)
}

/// Returns the bound below which the given percentage of all calls stayed, in nanoseconds.
pub fn percentile(histogram: &[u64], percent: f64) -> u64 {
    let calls: u64 = histogram.iter().sum();
    let wanted = (calls as f64 * percent / 100.0).ceil().max(1.0) as u64;
    let mut seen = 0;
    for (bucket, count) in histogram.iter().enumerate() {
        seen += count;
        if seen >= wanted {
            return upper_bound_nanos(bucket);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_below_the_bound_of_their_class() {
        for nanos in [0, 1, 1023, 1024, 1025, 2048, 1 << 20, (1 << 30) - 1] {
            let bucket = bucket_of(nanos);
            assert!(nanos < upper_bound_nanos(bucket), "{nanos}");
            assert!(bucket == 0 || nanos >= upper_bound_nanos(bucket - 1), "{nanos}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles() {
        let mut histogram = [0; BUCKETS];
        histogram[0] = 98;
        histogram[3] = 2;
        assert_eq!(percentile(&histogram, 50.0), 1024);
        assert_eq!(percentile(&histogram, 99.0), 8192);
        assert_eq!(percentile(&[0; BUCKETS], 99.0), 0);
    }
}
