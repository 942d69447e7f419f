//! Statistics for monitoring, as numbers with names and labels. INFO prints the same registry.
//!
//! Labels are commands, databases, kinds of errors and of memory, never keys or clients, so the number of series is
//! bounded.

/// Type of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It only grows, until the server ends or statistics are reset.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// All samples of one name.
#[derive(Debug)]
pub struct Family {
    /// The name, with its unit: that of redis_exporter if it has one, otherwise it begins with `tierce_`.
    pub name: &'static str,
    /// A sentence that explains it.
    pub help: &'static str,
    /// Its samples, of one type.
    pub samples: Samples,
}

/// The samples of a family.
#[derive(Debug)]
pub enum Samples {
    /// Numbers.
    Numbers(Kind, Vec<(Labels, f64)>),
    /// Durations that are counted in buckets.
    Histograms(Vec<(Labels, Durations)>),
    /// Durations with percentiles.
    Summaries(Vec<(Labels, Durations)>),
}

/// Names and values.
pub type Labels = Vec<(&'static str, String)>;

/// The durations of some calls, in microseconds.
#[derive(Debug)]
pub struct Durations {
    /// Calls.
    pub count: u64,
    /// Their total duration.
    pub sum: f64,
    /// Ascending percentages or bucket bounds, each with its duration or cumulative number of calls.
    pub points: Vec<(f64, f64)>,
}
