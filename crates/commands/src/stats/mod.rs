//! Counters: each worker counts for itself, readers sum.

mod counters;
mod errors;
mod histogram;
mod http;
mod rate;
mod spare;

pub use self::counters::{Counted, Counters, Stat, Totals};
pub use self::errors::ErrorCounts;
pub use self::histogram::{percentile, upper_bound_nanos};
pub use self::http::HttpFigures;
pub use self::rate::Rates;
pub use self::spare::SpareCounters;
