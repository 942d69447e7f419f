//! The clock as a turn of the loop sees it: read once, then passed on.
//!
//! Everything that happens in one turn happens at the same moment, so a session never sees time
//! move between two of its requests in a batch, and no request pays for a clock of its own.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The moment of a turn on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// For measuring durations finer than a millisecond.
    pub instant: Instant,
    /// Milliseconds since the runtime was started; never goes back. Timers are set on this clock.
    pub monotonic_ms: u64,
    /// Milliseconds since 1970; follows the system's clock, so it may jump.
    pub unix_ms: u64,
}

/// Reads both clocks relative to the start of the runtime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    pub(crate) fn now(&self) -> Now {
        let instant = Instant::now();
        // A system clock set before 1970 is read as 1970.
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Now {
            instant,
            monotonic_ms: instant.duration_since(self.start).as_millis() as u64,
            unix_ms: unix.as_millis() as u64,
        }
    }
}
