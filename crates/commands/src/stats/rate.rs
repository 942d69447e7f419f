//! Rates over the last moments (`instantaneous_ops_per_sec`), without a periodic timer.

use parking_lot::Mutex;

/// Minimum distance of two samples.
const SPACING_MS: i64 = 100;
/// Number of samples kept; a rate covers at most these.
const SAMPLES: usize = 16;

/// Counts of commands and bytes at some recent times.
///
/// Readers take samples, and busy workers take one a second. So an idle server does no work for it.
#[derive(Default)]
pub struct Rates {
    samples: Mutex<Vec<Sample>>,
}

#[derive(Clone, Copy)]
struct Sample {
    at_ms: i64,
    counts: [u64; 3],
}

impl Rates {
    /// Records the running totals `counts` at `now_ms`.
    pub fn sample(&self, now_ms: i64, counts: [u64; 3]) {
        let mut samples = self.samples.lock();
        if samples.last().is_some_and(|last| now_ms - last.at_ms < SPACING_MS) {
            return;
        }
        if samples.len() == SAMPLES {
            samples.remove(0);
        }
        samples.push(Sample { at_ms: now_ms, counts });
    }

    /// Returns the growth of each total per second since the last sample that is at least
    /// `SPACING_MS` old.
    pub fn per_second(&self, now_ms: i64, counts: [u64; 3]) -> [f64; 3] {
        let samples = self.samples.lock();
        let old = samples.iter().rev().find(|sample| now_ms - sample.at_ms >= SPACING_MS);
        let Some(old) = old else { return [0.0; 3] };
        let seconds = (now_ms - old.at_ms) as f64 / 1000.0;
        std::array::from_fn(|i| counts[i].saturating_sub(old.counts[i]) as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_growth_over_time() {
        let rates = Rates::default();
        rates.sample(0, [0, 0, 0]);
        rates.sample(50, [999, 0, 0]);
        assert_eq!(rates.per_second(500, [1000, 0, 50]), [2000.0, 0.0, 100.0]);
        assert_eq!(Rates::default().per_second(5, [1, 1, 1]), [0.0; 3]);
    }
}
