//! Aging: rewrites the time of last use before it wraps around.
//!
//! An entry has few bits for the time of its last use, so old times would wrap around and look recent. So once an
//! hour the reaper visits all entries, a few buckets per lock and a bounded number of locks per turn. It stores old
//! times in a coarser unit: see [`crate::data::stamp`], and [`Frequency`] for policies that count uses. A round may
//! miss an entry because its table changes or its shard is busy meanwhile. Such an entry has two more rounds before
//! its time is misread.

use std::sync::atomic::Ordering::Relaxed;

use crate::access::shard_locks::ShardLocks;
use crate::data::entry::Entry;
use crate::data::usage::{Access, Frequency, Tracking};
use crate::registries::aging::{NEVER, Round};
use crate::registries::pressure::Eviction;
use crate::registries::reaper_wakeup::Left;

/// Number of buckets visited under one lock: some microseconds.
const BUCKETS_PER_LOCK: usize = 64;

/// Number of times that a step takes the lock: a fraction of a millisecond.
const LOCKS_PER_STEP: usize = 32;

/// Number of attempts, some seconds, after which a busy shard is skipped.
const TRIES_MAX: u32 = 500;

/// Ages all entries if the last round is an hour old, so that no stamp wraps around and looks recent. Stops at a busy
/// shard. The [`Reaper`](crate::Reaper) does this; call it without a reaper. Releases the lock of a shard after every
/// few keys.
///
/// # Panics
///
/// Under a [`MultiShardGuard`](crate::MultiShardGuard).
pub fn age_uses(locks: &mut ShardLocks<'_>, now_ms: i64) {
    while age_some(locks, now_ms) == Left::Something {}
}

/// Does a step of a round, if one is due.
pub(crate) fn age_some(locks: &mut ShardLocks<'_>, now_ms: i64) -> Left {
    let keyspace = locks.keyspace();
    locks.release();
    let mut round = keyspace.aging.round.lock();
    if keyspace.aging.due_in_ms(now_ms) > 0 {
        return Left::Nothing;
    }
    let mut at = round.take().unwrap_or(Round::at_shard(0, now_ms));
    let now_ms = at.began_ms;
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
            Tracking::Time | Tracking::Uses | Tracking::Changes => {
                let stamp = access.stamp.aged(before_ms / 1000, now_ms / 1000);
                Access { stamp, ..access }
            }
        };
        entry.set_access(aged);
    };
    for _ in 0..LOCKS_PER_STEP {
        if at.shard == keyspace.shard_count() {
            keyspace.aging.before_ms.store(now_ms, Relaxed);
            return Left::Nothing;
        }
        if locks.try_reach_shard(at.shard) {
            at.tries = 0;
            visit_some(locks, &mut at, age);
        } else if at.tries < TRIES_MAX {
            at.tries += 1;
            *round = Some(at);
            return Left::Busy;
        } else {
            at = Round::at_shard(at.shard + 1, at.began_ms);
        }
    }
    *round = Some(at);
    Left::Something
}

/// Visits the next entries of a shard, and advances.
fn visit_some(locks: &mut ShardLocks<'_>, at: &mut Round, visit: impl Fn(&mut Entry)) {
    let shard = &mut locks.held(at.shard).shard;
    for _ in 0..BUCKETS_PER_LOCK {
        let next = shard.used().iter_from(at.db).next();
        let Some(db) = next else {
            *at = Round::at_shard(at.shard + 1, at.began_ms);
            break;
        };
        // The cursor's database may have been emptied, or exchanged with an unused one.
        let cursor = if db.get() == at.db { at.cursor } else { 0 };
        at.cursor = shard.present_mut(db).table.visit_bucket_mut(cursor, &visit);
        at.db = db.get() + usize::from(at.cursor == 0);
    }
    locks.release();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::keyspace::{Keyspace, Options};
    use crate::data::expiry::Expiry;
    use crate::registries::aging::EVERY_MS;

    #[test]
    fn a_round_goes_on_a_step_at_a_time() {
        const KEYS: usize = 60_000;
        const BEGIN_MS: i64 = 1_700_000_000_000;
        const HOURS: i64 = 18;
        const END_MS: i64 = BEGIN_MS + HOURS * EVERY_MS;
        let options = Options { shards: 1, databases: 100, ..Options::default() };
        let keyspace = Keyspace::new(options).unwrap();
        let mut locks = keyspace.locks();
        let position =
            |number: usize| (keyspace.db_index(number % 3 * 40).unwrap(), number.to_string());
        for (db, name) in (0..KEYS).map(position) {
            let key = keyspace.key(name.as_bytes());
            locks.db(db, key.hash(), BEGIN_MS).set(key, b"", Expiry::Never).unwrap();
        }
        let mut steps = 0;
        let mut round = |locks: &mut ShardLocks<'_>, now_ms: i64| {
            while age_some(locks, now_ms) == Left::Something {
                steps += 1;
                assert_eq!(keyspace.aging.due_in_ms(now_ms), 0, "the reaper comes again at once");
            }
        };
        // Seconds wrap around after half of this time.
        (0..=HOURS).for_each(|hour| round(&mut locks, BEGIN_MS + hour * EVERY_MS));
        assert_eq!(keyspace.aging.due_in_ms(END_MS), EVERY_MS);
        assert!(steps > HOURS, "{steps} steps left something");
        for (db, name) in (0..KEYS).map(position) {
            let key = keyspace.key(name.as_bytes());
            let idle = locks.db(db, key.hash(), END_MS).idle_seconds(key).unwrap();
            assert!(idle.abs_diff(HOURS as u64 * 3600) <= 512, "{idle} in {}", db.get());
        }
    }
}
