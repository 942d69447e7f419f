//! The time of day. Commands use the time of their turn; this is for everything else.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tierce_keyspace::interleaving;

/// Time of a stopped clock, before any deadline: for commands of a file that is being imported.
pub const STOPPED_MS: i64 = 0;

/// Time before any deadline, even a past one: for snapshots that include expired keys.
pub const BEFORE_ALL_MS: i64 = i64::MIN;

/// Returns the nanoseconds of the monotonic clock since the first call.
pub fn monotonic_nanos() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as u64
}

/// Returns the microseconds since 1970.
pub fn unix_micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// Returns the milliseconds since 1970.
pub fn unix_ms() -> i64 {
    interleaving::unix_ms().unwrap_or_else(|| (unix_micros() / 1000) as i64)
}
