//! How long one connection is served before the worker moves on to the next.

use crate::kernel::Kernel;

/// The request, or the batch, that runs then ends first. A buffer full of small requests takes less, so that only long
/// commands are interleaved with those of others: half of what a single command may take
/// ([`WEIGHT_MAX`](crate::pipeline::WEIGHT_MAX)).
const TURN_NANOS_MAX: u64 = 500_000;

/// The turn of a connection. It begins with the first of its batches, whose time is known anyway: a connection that
/// sends little costs no look at the clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    until_nanos: Option<u64>,
}

impl Turn {
    /// A batch begins now. When the turn is over, on the clock of [`Kernel::nanos`].
    #[inline]
    pub fn until(&mut self, now_nanos: u64) -> u64 {
        *self.until_nanos.get_or_insert(now_nanos.saturating_add(TURN_NANOS_MAX))
    }

    /// Whether it is over between two batches.
    #[inline]
    pub fn is_over(&self, kernel: &Kernel) -> bool {
        self.until_nanos.is_some_and(|until_nanos| (kernel.nanos)() >= until_nanos)
    }
}
