//! Progress of the rounds of aging; see `services/aging.rs`.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use parking_lot::Mutex;

/// Time between two rounds.
pub(crate) const EVERY_MS: i64 = 3_600_000;

/// If the clock is this much before the last round, it was set back.
const SET_BACK_MS: i64 = 60_000;

/// No round yet.
pub(crate) const NEVER: i64 = i64::MIN;

/// Beginning of the last complete round, and progress of the present one.
#[derive(Debug)]
pub(crate) struct Aging {
    pub(crate) before_ms: AtomicI64,
    /// Lock order: before any shard. A thread with a locked shard never takes it.
    pub(crate) round: Mutex<Option<Round>>,
}

/// Position at which a round continues.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    pub(crate) began_ms: i64,
    pub(crate) shard: usize,
    pub(crate) db: usize,
    pub(crate) cursor: u64,
    /// Number of times that the shard was busy.
    pub(crate) tries: u32,
}

impl Round {
    /// Returns a round that continues with the first entry of a shard.
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
    /// Returns the milliseconds until the next round; 0 if one is due or incomplete.
    pub(crate) fn due_in_ms(&self, now_ms: i64) -> i64 {
        match self.before_ms.load(Relaxed) {
            NEVER => 0,
            before_ms if now_ms < before_ms - SET_BACK_MS => 0,
            before_ms => (before_ms + EVERY_MS - now_ms).max(0),
        }
    }
}
