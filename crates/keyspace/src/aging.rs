//! Aging: what entries remember of their uses is kept from coming round.
//!
//! An entry has few bits for the time of its last use, and none for which turn of the clock that was in. So
//! once an hour all entries are looked at, a few buckets under one lock, and what would come round soon is
//! written in another way: see [`crate::stamp`], and [`Frequency`] for the policies that count. An entry that is
//! missed because its table changes at that moment has two more rounds before it is read wrong.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use crate::db_index::DbIndex;
use crate::entry::Entry;
use crate::locker::Locker;
use crate::pressure::Eviction;
use crate::usage::{Access, Frequency, Tracking};

/// Between two rounds.
const EVERY_MS: i64 = 3_600_000;

/// A clock that is so much behind the last round was set back.
const SET_BACK_MS: i64 = 60_000;

/// So many buckets are looked at under one lock: some microseconds.
const BUCKETS_PER_LOCK: usize = 64;

/// No round yet.
const NEVER: i64 = i64::MIN;

/// When the last round began.
#[derive(Debug)]
pub(crate) struct Aging {
    before_ms: AtomicI64,
}

impl Default for Aging {
    fn default() -> Self {
        Self { before_ms: AtomicI64::new(NEVER) }
    }
}

impl Aging {
    /// Milliseconds until the next round is due; 0 if it is.
    pub(crate) fn due_in_ms(&self, now_ms: i64) -> i64 {
        match self.before_ms.load(Relaxed) {
            NEVER => 0,
            before_ms if now_ms < before_ms - SET_BACK_MS => 0,
            before_ms => (before_ms + EVERY_MS - now_ms).max(0),
        }
    }
}

impl Locker<'_> {
    /// Looks at all entries, if that was not done for an hour, so that none is taken for one that was used only
    /// now because its time has come round: what the [`Reaper`](crate::Reaper) does, for who has none. The lock
    /// of a shard is released after every few keys.
    ///
    /// # Panics
    ///
    /// Under a [`Many`](crate::Many).
    pub fn age_uses(&mut self, now_ms: i64) {
        let keyspace = self.keyspace();
        if keyspace.aging.due_in_ms(now_ms) > 0 {
            return;
        }
        let before_ms = match keyspace.aging.before_ms.load(Relaxed) {
            NEVER => now_ms,
            before_ms => before_ms,
        };
        let Eviction { policy, frequency: tuning, .. } = keyspace.eviction();
        let tracking = policy.tracking();
        let age = |entry: &mut Entry| {
            let access = entry.access();
            let aged = match tracking {
                Tracking::Frequency => {
                    Frequency::of(access).aged(&tuning, before_ms, now_ms).to_access()
                }
                Tracking::Time | Tracking::Uses => {
                    let stamp = access.stamp.aged(before_ms / 1000, now_ms / 1000);
                    Access { stamp, ..access }
                }
            };
            entry.set_access(aged);
        };
        for shard in 0..keyspace.shard_count() {
            let counters = &keyspace.slots[shard].stats.dbs;
            for (db, counters) in DbIndex::below(counters.len()).zip(counters) {
                if counters.keys.get() > 0 {
                    self.visit_all(shard, db, age);
                }
            }
        }
        keyspace.aging.before_ms.store(now_ms, Relaxed);
    }

    fn visit_all(&mut self, shard: usize, db: DbIndex, visit: impl Fn(&mut Entry)) {
        let mut cursor = 0;
        loop {
            let table = &mut self.held(shard).shard.db_mut(db).table;
            for _ in 0..BUCKETS_PER_LOCK {
                cursor = table.sweep(cursor, &visit);
                if cursor == 0 {
                    break;
                }
            }
            self.release();
            if cursor == 0 {
                return;
            }
        }
    }
}
