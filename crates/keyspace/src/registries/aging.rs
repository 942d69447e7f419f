//! Progress of the rounds of aging; see `services/aging.rs`.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use parking_lot::Mutex;

/// Between two rounds.
pub(crate) const EVERY_MS: i64 = 3_600_000;

/// A clock that is so much behind the last round was set back.
const SET_BACK_MS: i64 = 60_000;

/// No round yet.
pub(crate) const NEVER: i64 = i64::MIN;

/// When the last complete round began, and how far the present one is.
#[derive(Debug)]
pub(crate) struct Aging {
    pub(crate) before_ms: AtomicI64,
    /// Lock order: before any shard. A thread that holds a shard never takes it.
    pub(crate) round: Mutex<Option<Round>>,
}

/// Where a round continues.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    pub(crate) began_ms: i64,
    pub(crate) shard: usize,
    pub(crate) db: usize,
    pub(crate) cursor: u64,
    /// Counts the times that the shard was busy.
    pub(crate) tries: u32,
}

impl Round {
    /// One that goes on with the first entry of a shard.
    pub(crate) fn at_shard(shard: usize, began_ms: i64) -> Self {
        Self { began_ms, shard, db: 0, cursor: 0, tries: 0 }
    }
}

impl Default for Aging {
    fn default() -> Self {
        Self { before_ms: AtomicI64::new(NEVER), round: Mutex::new(None) }
    }
}

impl Aging {
    /// Milliseconds until the next round is due; 0 if it is, or is not complete.
    pub(crate) fn due_in_ms(&self, now_ms: i64) -> i64 {
        match self.before_ms.load(Relaxed) {
            NEVER => 0,
            before_ms if now_ms < before_ms - SET_BACK_MS => 0,
            before_ms => (before_ms + EVERY_MS - now_ms).max(0),
        }
    }
}
