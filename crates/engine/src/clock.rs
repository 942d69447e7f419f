//! The time of day. Commands take theirs from the turn they run in; this is for the rest.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tierce_keyspace::interleaving;

/// The time that commands get when time stands still, before any deadline: those of a file that is being
/// imported.
pub const STOPPED_MS: i64 = 0;

/// The time before any deadline, also one that has passed: for snapshots that have what is expired as well.
pub const BEFORE_ALL_MS: i64 = i64::MIN;

/// Nanoseconds on the clock that never goes back, since this was first asked.
pub fn monotonic_nanos() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as u64
}

/// Microseconds since 1970.
pub fn unix_micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// Milliseconds since 1970.
pub fn unix_ms() -> i64 {
    interleaving::unix_ms().unwrap_or_else(|| (unix_micros() / 1000) as i64)
}
