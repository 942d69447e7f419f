//! Statistics for monitoring, as numbers with names and labels. INFO prints the same registry.
//!
//! Labels are commands, databases, kinds of errors and of memory, never keys or clients, so the number of series is
//! bounded.

/// How a number moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It grows, until the server ends or statistics are reset.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// All samples of one name.
#[derive(Debug)]
pub struct Family {
    /// The name, with its unit: that of redis_exporter if it has one, otherwise it begins with `tierce_`.
    pub name: &'static str,
    /// What it says, a sentence.
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
    /// Durations below which so many percent stayed.
    Summaries(Vec<(Labels, Durations)>),
}

/// Names and values.
pub type Labels = Vec<(&'static str, String)>;

/// The durations of some calls, in microseconds.
#[derive(Debug)]
pub struct Durations {
    /// Calls.
    pub count: u64,
    /// What they took together.
    pub sum: f64,
    /// Percentages or bounds of buckets in ascending order, with the duration or the calls up to there.
    pub points: Vec<(f64, f64)>,
}
