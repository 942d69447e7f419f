//! The clock as a turn of the loop sees it: read once, then passed on.
//!
//! Everything that happens in one turn happens at the same moment, so a session never sees time
//! move between two of its requests in a batch, and no request pays for a clock of its own.

use crate::system_clock::{monotonic_nanos, unix_ms};

/// The moment of a turn on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Milliseconds since the runtime was started; never goes back. Timers are set on this clock.
    pub monotonic_ms: u64,
    /// Milliseconds since 1970; follows the system's clock, so it may jump.
    pub unix_ms: u64,
}

/// Reads both clocks relative to the start of the runtime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start_nanos: u64,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { start_nanos: monotonic_nanos() }
    }

    pub(crate) fn now(&self) -> Now {
        Now { monotonic_ms: (monotonic_nanos() - self.start_nanos) / 1_000_000, unix_ms: unix_ms() }
    }
}
