//! Chooses the coldest entry of a locked shard, without removing it.
//!
//! A clock hand visits the shard's tables bucket by bucket. Buckets are in the order of the hash, so any few of them
//! are a random sample. Their 128 bytes each have everything that the choice needs, and neighbours in memory cost one
//! cache miss. Every entry is sampled equally often. If only keys with deadlines may be evicted and there are few of
//! them, they are taken from the deadline heap instead.
//!
//! Frequencies decay only under pressure: if even the coldest entry of a sample has been used since it was added, all
//! entries in the sample lose one use. So a working set that fits keeps its counts, and an unpopular one is evicted
//! when others need the space.
//!
//! The caller evicts or spills the entry. A caller that takes several at once gets the coldest quarter of the sampled
//! entries.

use crate::access::keyspace::Keyspace;
use crate::access::shard::Held;
use crate::data::db_counters::DbCounters;
use crate::data::deadline::Deadlines;
use crate::data::entry::Entry;
use crate::data::key::{KeyHash, KeyHasher};
use crate::data::shard_db::ShardDb;
use crate::data::usage::{Access, Frequency, FrequencyTuning, ON_DISK};
use crate::db_index::{DbIndex, DbSet};
use crate::random::mix;
use crate::registries::policy::{Measure, Scope};
use crate::registries::stats::ShardStats;

/// Maximum number of buckets searched for entries in scope under one lock: some microseconds.
const BUCKETS_MAX: usize = 64;

/// One in this many visited entries, the coldest, is chosen if several are taken.
const QUARTER: usize = 4;

/// Number of low address bits to ignore, so that neighbours in memory compare equal. Some pages of the allocator.
const REGION_BITS: u32 = 18;

/// One in this many visits ignores the marks of values on disk.
const DOUBTS_ONE_IN: u64 = 16;

/// If less than one key in this many has a deadline, those are drawn from the heap.
const SPARSE: u64 = 4;

/// Position of a shard's clock hand. Stored in the statistics, as one number, since the memory next to the lock is
/// reserved for what every request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClockHand {
    db: usize,
    cursor: u64,
}

/// Bits of a cursor in a table.
const CURSOR_BITS: u32 = 48;

impl ClockHand {
    fn of(stats: &ShardStats) -> Self {
        let number = stats.clock_hand.get();
        let cursor = number & ((1 << CURSOR_BITS) - 1);
        Self { db: (number >> CURSOR_BITS) as usize, cursor }
    }

    /// Returns the hand itself, or the beginning of the next used database.
    fn in_used(self, used: &DbSet) -> Self {
        let db = used.iter_from(self.db).next().map_or(0, DbIndex::get);
        if db == self.db { self } else { Self { db, cursor: 0 } }
    }

    fn put(self, stats: &ShardStats) {
        stats.clock_hand.set((self.db as u64) << CURSOR_BITS | self.cursor);
    }
}

/// Search for cold entries.
pub(crate) struct ColdSearch<'k> {
    pub(crate) keyspace: &'k Keyspace,
    pub(crate) scope: Scope,
    pub(crate) measure: Measure,
    pub(crate) tuning: FrequencyTuning,
    pub(crate) now_ms: i64,
    pub(crate) random: u64,
    /// Number of entries to visit in one shard.
    pub(crate) want: usize,
}

/// An entry that may be evicted. It may be gone if its shard was unlocked meanwhile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) shard: usize,
    pub(crate) db: DbIndex,
    pub(crate) hash: KeyHash,
    /// Address of the entry, to distinguish it from another one of the same hash.
    pub(crate) address: *const u8,
    /// Rank: the lower, the better for eviction; chance decides among equals.
    pub(crate) warmth: u64,
}

impl ColdSearch<'_> {
    /// Returns the coldest of a few entries of a shard, and their number. Advances the hand.
    pub(crate) fn coldest(&mut self, held: &mut Held<'_>) -> (usize, Option<Candidate>) {
        if self.measure == Measure::Chance {
            let drawn = self.draw(held);
            return (if drawn.is_some() { self.want } else { 0 }, drawn);
        }
        let (keyspace, start, seed) = (self.keyspace, ClockHand::of(held.stats), self.random);
        let (mut best, mut best_uses) = (None::<Candidate>, 0);
        let seen = self.visit(held, |search, db, entry| {
            search.random = mix(search.random);
            let warmth = u64::from(search.warmth(entry)) << 32 | search.random >> 32;
            if best.is_none_or(|best| warmth < best.warmth) {
                best_uses = entry.access().uses;
                let (hash, address) = (keyspace.hash(entry.key()), entry.address());
                best = Some(Candidate { shard: usize::MAX, db, hash, address, warmth });
            }
            true
        });
        if self.measure == Measure::Uses && best_uses > 0 {
            start.put(held.stats);
            self.random = seed;
            self.visit(held, |search, _, entry| {
                search.random = mix(search.random);
                wear(entry);
                true
            });
        }
        let shard = held.index;
        (seen, best.map(|best| Candidate { shard, ..best }))
    }

    /// Returns the coldest quarter of a few candidates of a shard. Advances the hand. Among equals, those highest in
    /// memory are chosen. So whole pages of the allocator become empty and are released; random choice would leave
    /// all of them half full.
    pub(crate) fn coldest_few(
        &mut self,
        held: &mut Held<'_>,
        is_candidate: impl Fn(&Entry) -> bool,
    ) -> Vec<Candidate> {
        let (keyspace, shard) = (self.keyspace, held.index);
        let (start, seed) = (ClockHand::of(held.stats), self.random);
        let (mut all, mut uses_min) = (Vec::with_capacity(2 * self.want), u8::MAX);
        // Sometimes the marks are ignored, since they may come from another policy.
        let believes = self.measure == Measure::Uses && !seed.is_multiple_of(DOUBTS_ONE_IN);
        self.visit(held, |search, db, entry| {
            if believes && entry.access().uses == ON_DISK {
                return false;
            }
            if !is_candidate(entry) {
                if search.measure == Measure::Uses && entry.is_spilled() {
                    entry.set_access(Access { uses: ON_DISK, ..entry.access() });
                }
                return false;
            }
            let region = entry.address().addr() >> REGION_BITS;
            let warmth = u64::from(search.warmth(entry)) << 32 | u64::from(!(region as u32));
            uses_min = uses_min.min(entry.access().uses);
            let (hash, address) = (keyspace.hash(entry.key()), entry.address());
            all.push(Candidate { shard, db, hash, address, warmth });
            true
        });
        if self.measure == Measure::Uses && !all.is_empty() && uses_min > 0 {
            start.put(held.stats);
            self.random = seed;
            self.visit(held, |_, _, entry| {
                let is_on_disk = believes && entry.access().uses == ON_DISK;
                let counts = !is_on_disk && is_candidate(entry);
                if counts {
                    wear(entry);
                }
                counts
            });
        }
        let few = all.len().div_ceil(QUARTER);
        if few < all.len() {
            all.select_nth_unstable_by_key(few, |candidate| candidate.warmth);
            all.truncate(few);
        }
        all
    }

    fn warmth(&self, entry: &Entry) -> u32 {
        match self.measure {
            Measure::Uses => entry.access().warmth(self.now_ms),
            Measure::Frequency => {
                u32::from(Frequency::of(entry.access()).counter(&self.tuning, self.now_ms))
            }
            Measure::LastChange => u32::MAX - entry.access().stamp.idle_seconds(self.now_ms),
            Measure::Chance => 0,
        }
    }

    /// Visits about as many entries as wanted, of those that `visit` counts, starting at the hand, which advances.
    /// With the same hand and random number it visits the same entries.
    fn visit(
        &mut self,
        held: &mut Held<'_>,
        mut visit: impl FnMut(&mut Self, DbIndex, &mut Entry) -> bool,
    ) -> usize {
        let start = ClockHand::of(held.stats).in_used(held.shard.used());
        let (mut hand, mut seen, mut buckets) = (start, 0, 0);
        let databases = held.shard.used().iter().count();
        // Each database in turn, and at the end the rest of the first one: nothing twice.
        let rounds = databases + usize::from(start.cursor > 0);
        for round in 1..=rounds {
            let db = DbIndex::from_number(hand.db as u16);
            let counters = held.stats.dbs.get(db);
            let ShardDb { table, deadlines, .. } = held.shard.present_mut(db);
            if self.scope == Scope::Volatile && is_sparse(counters) {
                // Each draw is from the whole database, so the first one is not drawn from again at the end.
                let draws_max = if round > databases { 0 } else { usize::MAX };
                let seed = self.random;
                for hash in deadlines.draw(seed, self.want - seen).take(draws_max) {
                    let table_hash = self.keyspace.hasher.table_hash(hash);
                    let is_it = |entry: &Entry| is_volatile(&self.keyspace.hasher, entry, hash);
                    if let Some(entry) = table.find_mut(table_hash, is_it) {
                        seen += usize::from(visit(self, db, entry));
                    }
                }
            } else {
                while buckets < BUCKETS_MAX && seen < self.want && !table.is_empty() {
                    buckets += 1;
                    hand.cursor = table.visit_bucket_mut(hand.cursor, |entry| {
                        if self.scope == Scope::All || entry.is_volatile() {
                            seen += usize::from(visit(self, db, entry));
                        }
                    });
                    if hand.cursor == 0 || (round > databases && hand.cursor == start.cursor) {
                        break;
                    }
                }
                if hand.cursor != 0 && (seen >= self.want || buckets == BUCKETS_MAX) {
                    break;
                }
            }
            hand = ClockHand { db: db.get() + 1, cursor: 0 }.in_used(held.shard.used());
            if seen >= self.want || buckets == BUCKETS_MAX {
                break;
            }
        }
        hand.put(held.stats);
        seen
    }

    /// Returns a random entry, each about equally likely.
    fn draw(&mut self, held: &mut Held<'_>) -> Option<Candidate> {
        let (keyspace, scope) = (self.keyspace, self.scope);
        self.random = mix(self.random);
        let weight = |counters: &DbCounters| match scope {
            Scope::All => counters.keys.get(),
            Scope::Volatile => counters.expires.get(),
        };
        let used = held.shard.used().iter().map(|db| (db, weight(held.stats.dbs.get(db))));
        let db = random_db(used, self.random)?;
        self.random = mix(self.random);
        let ShardDb { table, deadlines, .. } = held.shard.db(db);
        let entry = match scope {
            Scope::All => table.sample(self.random),
            Scope::Volatile => deadlines.draw(self.random, Deadlines::DRAW_ALL).find_map(|hash| {
                let is_it = |entry: &Entry| is_volatile(&keyspace.hasher, entry, hash);
                table.find(keyspace.hasher.table_hash(hash), is_it)
            }),
        }?;
        let (hash, address) = (keyspace.hash(entry.key()), entry.address());
        let warmth = self.random >> 32;
        Some(Candidate { shard: held.index, db, hash, address, warmth })
    }
}

fn is_sparse(counters: &DbCounters) -> bool {
    counters.expires.get() * SPARSE < counters.keys.get()
}

fn is_volatile(hasher: &KeyHasher, entry: &Entry, hash: KeyHash) -> bool {
    entry.is_volatile() && hasher.hash_bytes(entry.key()) == hash
}

/// Reduces the uses by one.
fn wear(entry: &mut Entry) {
    let mut access = entry.access();
    access.uses = access.uses.saturating_sub(1);
    entry.set_access(access);
}

/// Returns a random database of a shard, with a probability in proportion to its weight.
fn random_db(
    weights: impl Iterator<Item = (DbIndex, u64)> + Clone,
    random: u64,
) -> Option<DbIndex> {
    let total: u64 = weights.clone().map(|(_, weight)| weight).sum();
    let mut rank = ((u128::from(random) * u128::from(total)) >> u64::BITS) as u64;
    for (db, weight) in weights {
        if rank < weight {
            return Some(db);
        }
        rank -= weight;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::keyspace::Options;
    use crate::data::expiry::Expiry;

    #[test]
    fn a_database_of_few_volatile_keys_is_drawn_from_once_in_a_round() {
        const NOW_MS: i64 = 1_000;
        let keyspace = Keyspace::new(Options { shards: 1, ..Options::default() }).unwrap();
        let mut locks = keyspace.locks();
        for number in 0..100 {
            let name = format!("key:{number}");
            let key = keyspace.key(name.as_bytes());
            let expiry = if number == 0 { Expiry::At(NOW_MS + 1) } else { Expiry::Never };
            locks.db(DbIndex::ZERO, key.hash(), NOW_MS).set(key, b"value", expiry).unwrap();
        }
        let held = locks.held(0);
        // Another policy has left the hand in the middle of the database.
        ClockHand { db: 0, cursor: 1 }.put(held.stats);
        let mut search = ColdSearch {
            keyspace: &keyspace,
            scope: Scope::Volatile,
            measure: Measure::Uses,
            tuning: FrequencyTuning::default(),
            now_ms: NOW_MS,
            random: 7,
            want: 10,
        };
        let mut visited = Vec::new();
        search.visit(held, |_, _, entry| {
            visited.push(entry.key().to_vec());
            true
        });
        assert_eq!(visited, [b"key:0".to_vec()]);
    }
}
