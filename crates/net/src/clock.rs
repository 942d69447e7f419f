//! The clock of a turn: read once, then passed on.
//!
//! Everything in one turn happens at one time: a session never sees time move within a batch, and no request reads the
//! clock itself.

#[cfg(feature = "simulation")]
pub(crate) mod simulation;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::system_clock::{monotonic_nanos, unix_ms};

/// Time of a turn on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Milliseconds since the runtime's clock was started; never decreases. Timers use this clock.
    pub monotonic_ms: u64,
    /// Milliseconds since 1970; follows the system's clock, so it may jump.
    pub unix_ms: u64,
}

/// Reader of both clocks; the monotonic one counts from its creation.
#[derive(Clone, Debug)]
pub struct Clock {
    start_nanos: u64,
    ahead_ms: Option<Arc<AtomicU64>>,
    /// Replaces the system's clock.
    #[cfg(feature = "simulation")]
    pub(crate) world: Option<simulation::World>,
}

impl Clock {
    /// Returns the system's clocks.
    pub fn start() -> Clock {
        Clock {
            start_nanos: monotonic_nanos(),
            ahead_ms: None,
            #[cfg(feature = "simulation")]
            world: None,
        }
    }

    /// Returns a monotonic clock that is this far ahead of the system's, so that a test need not wait.
    pub fn ahead_by(ahead_ms: Arc<AtomicU64>) -> Clock {
        Clock { ahead_ms: Some(ahead_ms), ..Clock::start() }
    }

    pub(crate) fn now(&self) -> Now {
        #[cfg(feature = "simulation")]
        if let Some(world) = &self.world {
            return world.now();
        }
        let ahead_ms = self.ahead_ms.as_ref().map_or(0, |ahead_ms| ahead_ms.load(Relaxed));
        Now {
            monotonic_ms: (monotonic_nanos() - self.start_nanos) / 1_000_000 + ahead_ms,
            unix_ms: unix_ms(),
        }
    }
}
