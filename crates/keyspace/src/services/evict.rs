//! Eviction: keys removed by policy until memory is within its limit.
//!
//! A thread that is about to write evicts a few keys, one shard after the other, each locked only while one key is
//! chosen and removed. The [`Reaper`](crate::Reaper) evicts the rest. Busy shards are skipped. Eviction does not
//! favour the shard that a command writes to: shards take turns, and the larger one of two is chosen, so that their
//! sizes stay equal.

use crate::access::db::Db;
use crate::access::expire::evict_next_deadline;
use crate::access::keyspace::Keyspace;
use crate::access::shard::Held;
use crate::access::shard_locks::ShardLocks;
use crate::change::Removal;
use crate::data::deadline::NO_DEADLINE;
use crate::db_index::DbIndex;
use crate::random::mix;
use crate::registries::policy::{Measure, Policy, Scope, Search};
use crate::registries::pressure::Eviction;
use crate::services::coldest::{Candidate, ColdSearch};
use std::sync::atomic::Ordering;

/// Number of entries visited for each of [`Eviction::samples`]: a whole bucket costs as much as one entry. In the
/// measurements of docs/decisions/0010-eviction.md, a total of 20 is as good as Redis' samples of 5 with its pool; 40
/// is better, and more gains little.
const LOOKS_PER_SAMPLE: usize = 8;

/// Maximum number of entries visited for one eviction.
const LOOKS_MAX: usize = 1024;

/// The result of [`evict`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evicted {
    /// Memory is within its limit.
    Enough,
    /// It is not, and more keys may be evicted.
    Some,
    /// It is not, and no key may be evicted.
    Nothing,
    /// It is not, and all keys that may be evicted are in busy shards.
    Later,
}

/// Evicts keys by policy until memory is within its limit, at most `keys_max`. Releases the shard of the last
/// request.
///
/// For each evicted key, it visits at least eight times [`Eviction::samples`] entries, or all entries. The policy
/// `volatile-ttl` needs no sample: the nearest deadline is known.
///
/// # Panics
///
/// Under a [`MultiShardGuard`](crate::MultiShardGuard).
pub fn evict(locks: &mut ShardLocks<'_>, now_ms: i64, keys_max: usize) -> Evicted {
    evict_for(locks, 0, now_ms, keys_max)
}

/// Like [`evict`], until there is room for `bytes` more.
///
/// # Panics
///
/// As [`evict`].
pub fn evict_for(
    locks: &mut ShardLocks<'_>,
    bytes: usize,
    now_ms: i64,
    keys_max: usize,
) -> Evicted {
    let keyspace = locks.keyspace();
    for _ in 0..keys_max {
        if !keyspace.would_be_short(bytes) {
            return Evicted::Enough;
        }
        let mut passed_over = Vec::new();
        if !evict_one(locks, now_ms, &mut passed_over) {
            // The search itself may have freed stale heap items, and that may have been enough.
            return match keyspace.would_be_short(bytes) {
                false => Evicted::Enough,
                true if keyspace.pressure.policy() == Policy::Noeviction => Evicted::Nothing,
                // These shards may have keys to evict.
                true if !passed_over.is_empty() || keyspace.any_busy() => Evicted::Later,
                true => Evicted::Nothing,
            };
        }
    }
    if keyspace.would_be_short(bytes) { Evicted::Some } else { Evicted::Enough }
}

/// Evicts one key by policy; `false` if none may be evicted. Adds unavailable shards to `passed_over`.
fn evict_one(locks: &mut ShardLocks<'_>, now_ms: i64, passed_over: &mut Vec<usize>) -> bool {
    locks.release();
    let evicted = match locks.keyspace().pressure.policy().search() {
        None => false,
        Some(Search::NearestDeadline) => evict_nearest_deadline(locks, now_ms, passed_over),
        Some(Search::Coldest(scope, measure)) => {
            evict_coldest(locks, scope, measure, now_ms, passed_over)
        }
    };
    locks.release();
    evicted
}

fn evict_coldest(
    locks: &mut ShardLocks<'_>,
    scope: Scope,
    measure: Measure,
    now_ms: i64,
    passed_over: &mut Vec<usize>,
) -> bool {
    // Repeats only if another thread was faster.
    while let Some(coldest) = find_coldest(locks, scope, measure, now_ms, passed_over) {
        let Candidate { shard, db, .. } = coldest;
        // If another server decides about expiry by now, nothing is evicted here; checked again with the shard
        // locked.
        if locks.keyspace().is_following() {
            return false;
        }
        if locks.try_reach_shard(shard)
            && !locks.keyspace().is_following()
            && evict_candidate(&mut locks.shard_db(shard, db, now_ms), &coldest, scope)
        {
            return true;
        }
    }
    false
}

/// Returns the coldest entry of a sample: from one shard if it has enough keys, otherwise from several. The shard of
/// the last one stays locked.
fn find_coldest(
    locks: &mut ShardLocks<'_>,
    scope: Scope,
    measure: Measure,
    now_ms: i64,
    passed_over: &mut Vec<usize>,
) -> Option<Candidate> {
    let keyspace = locks.keyspace();
    let Eviction { samples, frequency: tuning, .. } = keyspace.pressure.eviction();
    let want = (samples as usize).saturating_mul(LOOKS_PER_SAMPLE).clamp(1, LOOKS_MAX);
    let turn = keyspace.pressure.turn();
    let random = mix(turn as u64 ^ now_ms as u64);
    let mut search = ColdSearch { keyspace, scope, measure, tuning, now_ms, random, want };
    let (mut best, mut seen) = (None::<Candidate>, 0);
    let first = larger_shard(keyspace, scope, turn, mix(random) as usize);
    for step in 0..keyspace.shard_count() {
        let index = (first + step) % keyspace.shard_count();
        if !has_keys_in_scope(keyspace, scope, index) {
            continue;
        }
        if !locks.try_reach_shard(index) {
            passed_over.push(index);
            continue;
        }
        search.want = want - seen;
        let (looked_at, coldest) = search.coldest(locks.held(index));
        seen += looked_at;
        let is_colder = |coldest: &Candidate| best.is_none_or(|best| coldest.warmth < best.warmth);
        best = coldest.filter(is_colder).or(best);
        if seen >= want {
            break;
        }
    }
    best
}

/// Evicts the key with the nearest deadline.
fn evict_nearest_deadline(
    locks: &mut ShardLocks<'_>,
    now_ms: i64,
    passed_over: &mut Vec<usize>,
) -> bool {
    let keyspace = locks.keyspace();
    // Each turn removes a key, or a stale heap item.
    loop {
        let times = keyspace.next_deadlines_ms.iter().map(|time| time.load(Ordering::Relaxed));
        let free = times.enumerate().filter(|(index, _)| !passed_over.contains(index));
        let nearest = free.min_by_key(|(_, time_ms)| *time_ms);
        let Some((index, time_ms)) = nearest else { return false };
        if time_ms == NO_DEADLINE {
            return false;
        }
        if !locks.try_reach_shard(index) {
            passed_over.push(index);
            continue;
        }
        if keyspace.is_following() {
            return false;
        }
        let removed = match nearest_db(locks.held(index)) {
            Some(db) => evict_next_deadline(&mut locks.shard_db(index, db, now_ms)),
            None => false,
        };
        keyspace.publish_next_deadline(locks.held(index));
        if removed {
            return true;
        }
    }
}

/// Returns the larger one of two shards, in bytes that may be evicted.
pub(super) fn larger_shard(keyspace: &Keyspace, scope: Scope, a: usize, b: usize) -> usize {
    let [a, b] = [a, b].map(|number| number % keyspace.shard_count());
    if bytes_in_scope(keyspace, scope, a) >= bytes_in_scope(keyspace, scope, b) { a } else { b }
}

fn has_keys_in_scope(keyspace: &Keyspace, scope: Scope, shard: usize) -> bool {
    let stats = &keyspace.slots[shard].stats;
    match scope {
        Scope::All => stats.entry_bytes.get() > 0,
        // A deadline heap may contain only items of removed keys.
        Scope::Volatile => stats.dbs.used().any(|(_, db)| db.expires.get() > 0),
    }
}

fn bytes_in_scope(keyspace: &Keyspace, scope: Scope, shard: usize) -> u64 {
    let stats = &keyspace.slots[shard].stats;
    match scope {
        Scope::All => stats.entry_bytes.get(),
        Scope::Volatile => stats.deadline_bytes.get(),
    }
}

/// Evicts a candidate, if it still exists and is in scope.
fn evict_candidate(db: &mut Db<'_>, candidate: &Candidate, scope: Scope) -> bool {
    let now_ms = db.now_ms();
    let entry = db.unlink_where(candidate.hash, |entry| {
        let in_scope = scope == Scope::All || entry.is_volatile();
        entry.address() == candidate.address && in_scope
    });
    let Some(entry) = entry else { return false };
    let expiry = db.at.keyspace.expiry_of(&entry, now_ms);
    let why = expiry.unwrap_or(Removal::Evicted);
    db.forget(candidate.hash, entry, why);
    true
}

/// Evicts a key as if it had been chosen.
#[cfg(test)]
pub(crate) fn evict_key(db: &mut Db<'_>, key: crate::data::key::Key<'_>) {
    let Some(address) = db.find(key).map(|entry| entry.address()) else { return };
    let (shard, index) = (db.at.shard_index, db.at.db);
    let candidate = Candidate { shard, db: index, hash: key.hash(), address, warmth: 0 };
    assert!(evict_candidate(db, &candidate, Scope::All));
}

/// Returns the database of a shard with the nearest deadline.
fn nearest_db(held: &Held<'_>) -> Option<DbIndex> {
    let times = held.shard.dbs().map(|(db, data)| (data.deadlines.next_ms(), db));
    let times = times.filter_map(|(time_ms, db)| Some((time_ms?, db)));
    times.min().map(|(_, db)| db)
}
