//! The latency monitor: slow moments, by their cause.

use std::collections::{BTreeMap, VecDeque};

/// Number of samples kept per event.
const HISTORY_MAX: usize = 160;

/// A latency spike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Unix time in seconds.
    pub unix_seconds: i64,
    /// Duration in milliseconds.
    pub millis: u64,
}

/// Samples of one event: at most one per second, the worst of that second.
#[derive(Default)]
pub struct Series {
    samples: VecDeque<Sample>,
    worst_millis: u64,
}

impl Series {
    /// Returns the samples, oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Sample> {
        self.samples.iter()
    }

    /// Returns the newest sample.
    pub fn latest(&self) -> Option<Sample> {
        self.samples.back().copied()
    }

    /// Returns the worst latency ever, in milliseconds.
    pub fn worst_millis(&self) -> u64 {
        self.worst_millis
    }
}

/// Series by event. The table of all events is in `docs/latency.md`.
#[derive(Default)]
pub struct LatencyMonitor {
    events: BTreeMap<&'static str, Series>,
}

impl LatencyMonitor {
    /// Records that `event` took `millis` at `unix_seconds`.
    pub fn record(&mut self, event: &'static str, unix_seconds: i64, millis: u64) {
        let series = self.events.entry(event).or_default();
        series.worst_millis = series.worst_millis.max(millis);
        if let Some(last) = series.samples.back_mut()
            && last.unix_seconds == unix_seconds
        {
            last.millis = last.millis.max(millis);
            return;
        }
        series.samples.push_back(Sample { unix_seconds, millis });
        if series.samples.len() > HISTORY_MAX {
            series.samples.pop_front();
        }
    }

    /// Adds all records of another monitor.
    pub fn add_all(&mut self, others: &Self) {
        for (event, others) in &others.events {
            for Sample { unix_seconds, millis } in &others.samples {
                self.record(event, *unix_seconds, *millis);
            }
            if let Some(series) = self.events.get_mut(event) {
                series.worst_millis = series.worst_millis.max(others.worst_millis);
            }
        }
    }

    /// Returns all events by name.
    pub fn events(&self) -> impl ExactSizeIterator<Item = (&'static str, &Series)> {
        self.events.iter().map(|(name, series)| (*name, series))
    }

    /// Returns the series of one event.
    pub fn series(&self, event: &[u8]) -> Option<&Series> {
        self.events.iter().find(|(name, _)| name.as_bytes() == event).map(|(_, series)| series)
    }

    /// Resets the named events, or all of them. Returns the number of events that were reset.
    pub fn reset<'a>(&mut self, names: impl ExactSizeIterator<Item = &'a [u8]>) -> usize {
        let before = self.events.len();
        if names.len() == 0 {
            self.events.clear();
        }
        for name in names {
            self.events.retain(|event, _| event.as_bytes() != name);
        }
        before - self.events.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_worst_of_a_second() {
        let mut monitor = LatencyMonitor::default();
        for (second, millis) in [(10, 5), (10, 9), (10, 7), (11, 3)] {
            monitor.record("command", second, millis);
        }
        let series = monitor.series(b"command").unwrap();
        let samples: Vec<_> = series.iter().map(|s| (s.unix_seconds, s.millis)).collect();
        assert_eq!(samples, [(10, 9), (11, 3)]);
        assert_eq!(series.worst_millis(), 9);
        assert_eq!(monitor.reset([&b"nothing"[..]].into_iter()), 0);
        assert_eq!(monitor.reset([].into_iter()), 1);
    }

    #[test]
    fn history_is_bounded() {
        let mut monitor = LatencyMonitor::default();
        (0..1000).for_each(|second| monitor.record("command", second, 1));
        assert_eq!(monitor.series(b"command").unwrap().iter().len(), HISTORY_MAX);
    }
}
