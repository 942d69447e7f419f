//! Limits how long a worker serves one connection before it moves on to the next.

use crate::kernel::Kernel;

/// Duration of a turn. The running request or batch ends first. A buffer full of small requests takes less, so only
/// long commands are interleaved with those of others. This is half of the limit of a single command
/// ([`WEIGHT_MAX`](crate::pipeline::WEIGHT_MAX)).
const TURN_NANOS_MAX: u64 = 500_000;

/// Turn of a connection. It begins with the first of its batches, whose time is already known: a connection that sends
/// little never reads the clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    until_nanos: Option<u64>,
}

impl Turn {
    /// Begins a batch. Returns the end of the turn, on the clock of [`Kernel::nanos`].
    #[inline]
    pub fn until(&mut self, now_nanos: u64) -> u64 {
        *self.until_nanos.get_or_insert(now_nanos.saturating_add(TURN_NANOS_MAX))
    }

    /// Returns true if the turn is over between two batches.
    #[inline]
    pub fn is_over(&self, kernel: &Kernel) -> bool {
        self.until_nanos.is_some_and(|until_nanos| (kernel.nanos)() >= until_nanos)
    }
}
