//! The request to end the thread of a bucket.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Request to end the thread.
#[derive(Debug, Default)]
pub(super) struct Ending {
    pub(super) is_asked: AtomicBool,
    /// Milliseconds that the shutdown has waited for clients before.
    pub(super) spent_ms: AtomicU64,
}

impl Ending {
    pub(super) fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Acquire)
    }

    pub(super) fn spent(&self) -> Duration {
        Duration::from_millis(self.spent_ms.load(Ordering::Relaxed))
    }
}
