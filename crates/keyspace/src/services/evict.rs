//! Eviction: keys removed by policy until memory is within its limit.
//!
//! A thread that is about to write evicts, a few keys at a time and one shard after the other, each locked
//! only while one key is chosen and removed. The [`Reaper`](crate::Reaper) evicts the rest. A shard that
//! another thread holds for long is passed over. Eviction does not favour the shard that a command writes
//! to: shards take turns, and of two the larger one is chosen, so that they stay equally large.

use crate::access::keyspace::Keyspace;
use crate::access::shard::Held;
use crate::access::shard_locks::ShardLocks;
use crate::change::Removal;
use crate::data::deadline::NO_DEADLINE;
use crate::db_index::DbIndex;
use crate::random::mix;
use crate::registries::policy::{Measure, Policy, Scope, Search};
use crate::registries::pressure::{Eviction, Pressure};
use crate::services::coldest::{Candidate, ColdSearch};
use std::sync::atomic::Ordering;

/// Entries that are looked at for each of [`Eviction::samples`]: they come by the bucket, for the
/// price of one. By the measurements of docs/decisions/0010-eviction.md, 20 in all are as good as
/// Redis' samples of 5 with its pool, 40 are better, and more gain little.
const LOOKS_PER_SAMPLE: usize = 8;

/// At most this many entries are looked at for one that goes.
const LOOKS_MAX: usize = 1024;

/// How far [`ShardLocks::evict`] got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evicted {
    /// Memory is within its limit.
    Enough,
    /// It is not, and there are more keys that may go.
    Some,
    /// It is not, and no key may go.
    Nothing,
    /// It is not, and all keys that may go are in shards that are busy.
    Later,
}

impl Keyspace {
    /// Sets what happens when memory runs short, from now on. Keys are not removed here: the next
    /// write does that, and the reaper, which is woken.
    pub fn set_eviction(&self, eviction: &Eviction) {
        self.pressure.set(eviction, self.shard_count());
        if eviction.limit_bytes == 0 {
            return;
        }
        // Without a limit no shard tells its size, and under a larger one it does so less often. No lock is
        // waited for: the caller may hold shards itself.
        for slot in &self.slots {
            slot.stats.tell(&self.pressure);
        }
        if self.is_short_of_memory() {
            self.reaper_wakeup.notify();
        }
    }

    /// What happens when memory runs short.
    pub fn eviction(&self) -> Eviction {
        self.pressure.eviction()
    }

    /// Whether there is a limit for memory.
    #[inline]
    pub fn has_memory_limit(&self) -> bool {
        self.pressure.has_limit()
    }

    /// Whether memory is beyond its limit, give or take a 256th. Takes no lock and reads two
    /// numbers.
    #[inline]
    pub fn is_short_of_memory(&self) -> bool {
        self.pressure.is_exceeded()
    }

    /// True if memory would be beyond its limit with so many bytes more.
    #[inline]
    pub fn would_be_short(&self, bytes: usize) -> bool {
        self.pressure.is_exceeded_with(bytes as u64)
    }

    /// Has the reaper evict what is too much.
    pub fn evict_later(&self) {
        self.reaper_wakeup.notify();
    }
}

impl ShardLocks<'_> {
    /// Removes keys by policy until memory is within its limit, at most `keys_max` of them. Releases
    /// the shard of the last request.
    ///
    /// For each key that goes, at least eight times [`Eviction::samples`] are looked at, or all
    /// there are. The policy `volatile-ttl` needs no sample: the nearest deadline is known.
    ///
    /// # Panics
    ///
    /// Under a [`MultiShardGuard`](crate::MultiShardGuard).
    pub fn evict(&mut self, now_ms: i64, keys_max: usize) -> Evicted {
        self.evict_for(0, now_ms, keys_max)
    }

    /// Does what [`ShardLocks::evict`] does, until there is room for so many `bytes` more.
    ///
    /// # Panics
    ///
    /// As [`ShardLocks::evict`].
    pub fn evict_for(&mut self, bytes: usize, now_ms: i64, keys_max: usize) -> Evicted {
        let keyspace = self.keyspace();
        for _ in 0..keys_max {
            if !keyspace.would_be_short(bytes) {
                return Evicted::Enough;
            }
            let mut passed_over = Vec::new();
            if !self.evict_one(now_ms, &mut passed_over) {
                // The search itself may have freed items of a heap that stood for no key, and those
                // may have been what was too much.
                return match keyspace.would_be_short(bytes) {
                    false => Evicted::Enough,
                    true if keyspace.pressure.policy() == Policy::Noeviction => Evicted::Nothing,
                    // Keys that may go may be in there.
                    true if !passed_over.is_empty() || keyspace.any_busy() => Evicted::Later,
                    true => Evicted::Nothing,
                };
            }
        }
        if keyspace.would_be_short(bytes) { Evicted::Some } else { Evicted::Enough }
    }

    /// Removes one key by policy; `false` if none may go. Adds the shards to `passed_over` that are not to be had.
    fn evict_one(&mut self, now_ms: i64, passed_over: &mut Vec<usize>) -> bool {
        self.release();
        let evicted = match self.keyspace().pressure.policy().search() {
            None => false,
            Some(Search::NearestDeadline) => self.evict_nearest_deadline(now_ms, passed_over),
            Some(Search::Coldest(scope, measure)) => {
                self.evict_coldest(scope, measure, now_ms, passed_over)
            }
        };
        self.release();
        evicted
    }

    fn evict_coldest(
        &mut self,
        scope: Scope,
        measure: Measure,
        now_ms: i64,
        passed_over: &mut Vec<usize>,
    ) -> bool {
        // Only when another thread was quicker is there a second try.
        while let Some(coldest) = self.find_coldest(scope, measure, now_ms, passed_over) {
            let Candidate { shard, db, .. } = coldest;
            // As soon as another server decides what goes, nothing is evicted here: it is asked with the shard locked.
            if self.keyspace().is_following() {
                return false;
            }
            if self.try_reach_shard(shard)
                && !self.keyspace().is_following()
                && self.shard_db(shard, db, now_ms).evict(&coldest, scope)
            {
                return true;
            }
        }
        false
    }

    /// The coldest of a sample: from one shard, if it has enough keys, or else from several. The
    /// shard of the last one stays locked.
    fn find_coldest(
        &mut self,
        scope: Scope,
        measure: Measure,
        now_ms: i64,
        passed_over: &mut Vec<usize>,
    ) -> Option<Candidate> {
        let keyspace = self.keyspace();
        let Eviction { samples, frequency: tuning, .. } = keyspace.pressure.eviction();
        let want = (samples as usize).saturating_mul(LOOKS_PER_SAMPLE).clamp(1, LOOKS_MAX);
        let turn = keyspace.pressure.turn();
        let random = mix(turn as u64 ^ now_ms as u64);
        let mut search = ColdSearch { keyspace, scope, measure, tuning, now_ms, random, want };
        let (mut best, mut seen) = (None::<Candidate>, 0);
        let first = keyspace.larger_shard(scope, turn, mix(random) as usize);
        for step in 0..keyspace.shard_count() {
            let index = (first + step) % keyspace.shard_count();
            if !keyspace.has_keys_in_scope(scope, index) {
                continue;
            }
            if !self.try_reach_shard(index) {
                passed_over.push(index);
                continue;
            }
            search.want = want - seen;
            let (looked_at, coldest) = search.coldest(self.held(index));
            seen += looked_at;
            let is_colder =
                |coldest: &Candidate| best.is_none_or(|best| coldest.warmth < best.warmth);
            best = coldest.filter(is_colder).or(best);
            if seen >= want {
                break;
            }
        }
        best
    }

    /// Removes the key with the nearest deadline of all.
    fn evict_nearest_deadline(&mut self, now_ms: i64, passed_over: &mut Vec<usize>) -> bool {
        let keyspace = self.keyspace();
        // Each turn removes a key, or a stale item of a heap.
        loop {
            let times = keyspace.next_deadlines_ms.iter().map(|time| time.load(Ordering::Relaxed));
            let free = times.enumerate().filter(|(index, _)| !passed_over.contains(index));
            let nearest = free.min_by_key(|(_, time_ms)| *time_ms);
            let Some((index, time_ms)) = nearest else { return false };
            if time_ms == NO_DEADLINE {
                return false;
            }
            if !self.try_reach_shard(index) {
                passed_over.push(index);
                continue;
            }
            if keyspace.is_following() {
                return false;
            }
            let removed = match nearest_db(self.held(index)) {
                Some(db) => self.shard_db(index, db, now_ms).evict_next_deadline(),
                None => false,
            };
            self.held(index).publish_next_deadline(keyspace);
            if removed {
                return true;
            }
        }
    }
}

impl Keyspace {
    /// The larger one of two shards, in what may be evicted.
    pub(crate) fn larger_shard(&self, scope: Scope, a: usize, b: usize) -> usize {
        let [a, b] = [a, b].map(|number| number % self.shard_count());
        if self.bytes_in_scope(scope, a) >= self.bytes_in_scope(scope, b) { a } else { b }
    }

    fn has_keys_in_scope(&self, scope: Scope, shard: usize) -> bool {
        let stats = &self.slots[shard].stats;
        match scope {
            Scope::All => stats.entry_bytes.get() > 0,
            // A heap of deadlines may be full of those of keys that are gone.
            Scope::Volatile => stats.dbs.used().any(|(_, db)| db.expires.get() > 0),
        }
    }

    fn bytes_in_scope(&self, scope: Scope, shard: usize) -> u64 {
        let stats = &self.slots[shard].stats;
        match scope {
            Scope::All => stats.entry_bytes.get(),
            Scope::Volatile => stats.deadline_bytes.get(),
        }
    }

    /// Has a shard, which is locked, tell its size if that has moved enough.
    #[inline]
    pub(crate) fn follow_size(&self, stats: &crate::registries::stats::ShardStats) {
        let step = self.pressure.step();
        if step != u64::MAX && stats.untold().unsigned_abs() >= step {
            stats.tell(&self.pressure);
        }
    }
}

impl crate::registries::stats::ShardStats {
    fn bytes(&self) -> u64 {
        self.entry_bytes.get()
            + self.index_bytes.get()
            + self.deadline_bytes.get()
            + self.cached_bytes.get()
    }

    /// Bytes since the shard last reported.
    fn untold(&self) -> i64 {
        self.bytes().wrapping_sub(self.told_bytes.get()) as i64
    }

    /// Adds the change of size since the last report to the sum. Needs no lock: each report swaps the reported
    /// size, so concurrent ones add up.
    pub(crate) fn tell(&self, pressure: &Pressure) {
        loop {
            let bytes = self.bytes();
            let before = self.told_bytes.swap(bytes);
            pressure.tell(bytes.wrapping_sub(before) as i64);
            // What was told last must not be what was looked at first.
            if self.bytes() == bytes {
                return;
            }
        }
    }
}

impl crate::access::db::Db<'_> {
    /// Removes a candidate, if it is still there and in scope.
    fn evict(&mut self, candidate: &Candidate, scope: Scope) -> bool {
        let now_ms = self.now_ms();
        let entry = self.unlink_where(candidate.hash, |entry| {
            let in_scope = scope == Scope::All || entry.is_volatile();
            entry.address() == candidate.address && in_scope
        });
        let Some(entry) = entry else { return false };
        let expiry = self.at.keyspace.expiry_of(&entry, now_ms);
        let why = expiry.unwrap_or(Removal::Evicted);
        self.forget(candidate.hash, entry, why);
        true
    }

    /// Removes a key as if it had been chosen.
    #[cfg(test)]
    pub(crate) fn evict_key(&mut self, key: crate::data::key::Key<'_>) {
        let Some(address) = self.find(key).map(|entry| entry.address()) else { return };
        let (shard, db) = (self.at.shard_index, self.at.db);
        let candidate = Candidate { shard, db, hash: key.hash(), address, warmth: 0 };
        assert!(self.evict(&candidate, Scope::All));
    }
}

/// The database of a shard with the nearest deadline.
fn nearest_db(held: &Held<'_>) -> Option<DbIndex> {
    let times = held.shard.dbs().map(|(db, data)| (data.deadlines.next_ms(), db));
    let times = times.filter_map(|(time_ms, db)| Some((time_ms?, db)));
    times.min().map(|(_, db)| db)
}
