//! Which entry of a locked shard is the coldest: the choice, without the deed.
//!
//! A hand goes through the shard's tables bucket by bucket. Buckets are in the order of the hash, so
//! that any few of them are a random sample, all that the choice needs stands in their 128 bytes
//! each, and neighbours in memory cost the processor one wait. An entry's turn comes as often as any
//! other's. Where few keys have deadlines and only those may go, they are drawn from the deadline
//! heap instead.
//!
//! Frequencies wear off as the tide rises: when the coldest of a sample has been used since it came,
//! all in the sample count one use less. So a set that fits is never forgotten for lack of use, and
//! one that has become unpopular goes when others press.
//!
//! What is done with the entry, removal or something milder, is for others. Who takes several at once gets
//! the coldest quarter of those that are looked at.

use crate::db_index::DbIndex;
use crate::deadline::Deadlines;
use crate::entry::Entry;
use crate::key::{KeyHash, KeyHasher};
use crate::keyspace::Keyspace;
use crate::policy::{Measure, Scope};
use crate::scan::mix;
use crate::shard::{Held, ShardDb};
use crate::stats::{DbCounters, ShardStats};
use crate::usage::{Access, Frequency, FrequencyTuning, ON_DISK};

/// At most this many buckets are searched for entries in scope under one lock: some microseconds.
const BUCKETS_MAX: usize = 64;

/// Of the entries looked at, the coldest one in so many is chosen where several are.
const QUARTER: usize = 4;

/// Neighbours in memory: so many bits of an address do not matter. Some pages of the allocator.
const REGION_BITS: u32 = 18;

/// One in so many looks does not believe the marks of values on disk.
const DOUBTS_ONE_IN: u64 = 16;

/// When less than one key in so many has a deadline, those are drawn from the heap.
const SPARSE: u64 = 4;

/// Where the hand of a shard is. Kept among the figures, as one number, for what stands beside the
/// lock is what every request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hand {
    db: usize,
    cursor: u64,
}

/// Bits of a cursor in a table.
const CURSOR_BITS: u32 = 48;

impl Hand {
    fn of(stats: &ShardStats) -> Self {
        let number = stats.hand.get();
        let cursor = number & ((1 << CURSOR_BITS) - 1);
        Self { db: (number >> CURSOR_BITS) as usize, cursor }
    }

    fn put(self, stats: &ShardStats) {
        stats.hand.set((self.db as u64) << CURSOR_BITS | self.cursor);
    }
}

/// What is looked for.
pub(crate) struct Look<'k> {
    pub(crate) keyspace: &'k Keyspace,
    pub(crate) scope: Scope,
    pub(crate) measure: Measure,
    pub(crate) tuning: FrequencyTuning,
    pub(crate) now_ms: i64,
    pub(crate) random: u64,
    /// Entries to look at in one shard.
    pub(crate) want: usize,
}

/// An entry that may go. It may be gone when its shard was unlocked in between.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) shard: usize,
    pub(crate) db: DbIndex,
    pub(crate) hash: KeyHash,
    /// Of the entry, to tell it from another one of the same hash.
    pub(crate) address: *const u8,
    /// The less, the less is lost with it; chance decides among equals.
    pub(crate) warmth: u64,
}

impl Look<'_> {
    /// The coldest of a few entries of a shard, and how many they were. The hand moves on.
    pub(crate) fn coldest(&mut self, held: &mut Held<'_>) -> (usize, Option<Candidate>) {
        if self.measure == Measure::Chance {
            let drawn = self.draw(held);
            return (if drawn.is_some() { self.want } else { 0 }, drawn);
        }
        let (keyspace, start, seed) = (self.keyspace, Hand::of(held.stats), self.random);
        let (mut best, mut best_uses) = (None::<Candidate>, 0);
        let seen = self.visit(held, |look, db, entry| {
            look.random = mix(look.random);
            let warmth = u64::from(look.warmth(entry)) << 32 | look.random >> 32;
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
            self.visit(held, |look, _, entry| {
                look.random = mix(look.random);
                wear(entry);
                true
            });
        }
        let shard = held.index;
        (seen, best.map(|best| Candidate { shard, ..best }))
    }

    /// The coldest quarter of a few entries of a shard that are candidates. The hand moves on. Among
    /// equals those go that stand highest in memory: then whole pages of the allocator become empty and
    /// go back, where chance would leave all of them half full.
    pub(crate) fn coldest_few(
        &mut self,
        held: &mut Held<'_>,
        is_candidate: impl Fn(&Entry) -> bool,
    ) -> Vec<Candidate> {
        let (keyspace, shard) = (self.keyspace, held.index);
        let (start, seed) = (Hand::of(held.stats), self.random);
        let (mut all, mut uses_min) = (Vec::with_capacity(2 * self.want), u8::MAX);
        // Now and then marks are not believed, for they may come from another policy.
        let believes = self.measure == Measure::Uses && !seed.is_multiple_of(DOUBTS_ONE_IN);
        self.visit(held, |look, db, entry| {
            if believes && entry.access().uses == ON_DISK {
                return false;
            }
            if !is_candidate(entry) {
                if look.measure == Measure::Uses && entry.is_spilled() {
                    entry.set_access(Access { uses: ON_DISK, ..entry.access() });
                }
                return false;
            }
            let region = entry.address().addr() >> REGION_BITS;
            let warmth = u64::from(look.warmth(entry)) << 32 | u64::from(!(region as u32));
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
            Measure::Chance => 0,
        }
    }

    /// Visits about as many entries as wanted, of those that `visit` says count, from the hand on, which
    /// moves. From the same hand with the same random number it visits the same ones.
    fn visit(
        &mut self,
        held: &mut Held<'_>,
        mut visit: impl FnMut(&mut Self, DbIndex, &mut Entry) -> bool,
    ) -> usize {
        let (mut hand, mut seen, mut buckets) = (Hand::of(held.stats), 0, 0);
        let databases = held.stats.dbs.len();
        // Each database in turn, and at the end what is left of the first one.
        for _ in 0..=databases {
            let db = self.keyspace.db_index(hand.db).unwrap_or(DbIndex::ZERO);
            let counters = &held.stats.dbs[db.get()];
            let ShardDb { table, deadlines, .. } = held.shard.present_mut(db);
            if self.scope == Scope::Volatile && is_sparse(counters) {
                let seed = self.random;
                for hash in deadlines.draw(seed, self.want - seen) {
                    let table_hash = self.keyspace.hasher.table_hash(hash);
                    let is_it = |entry: &Entry| is_volatile(&self.keyspace.hasher, entry, hash);
                    if let Some(entry) = table.find_mut(table_hash, is_it) {
                        seen += usize::from(visit(self, db, entry));
                    }
                }
            } else {
                while buckets < BUCKETS_MAX && seen < self.want && !table.is_empty() {
                    buckets += 1;
                    hand.cursor = table.sweep(hand.cursor, |entry| {
                        if self.scope == Scope::All || entry.is_volatile() {
                            seen += usize::from(visit(self, db, entry));
                        }
                    });
                    if hand.cursor == 0 {
                        break;
                    }
                }
                if hand.cursor != 0 && (seen >= self.want || buckets == BUCKETS_MAX) {
                    break;
                }
            }
            hand = Hand { db: (db.get() + 1) % databases, cursor: 0 };
            if seen >= self.want || buckets == BUCKETS_MAX {
                break;
            }
        }
        hand.put(held.stats);
        seen
    }

    /// Any entry, each about equally likely.
    fn draw(&mut self, held: &mut Held<'_>) -> Option<Candidate> {
        let (keyspace, scope) = (self.keyspace, self.scope);
        self.random = mix(self.random);
        let weight = |counters: &DbCounters| match scope {
            Scope::All => counters.keys.get(),
            Scope::Volatile => counters.expires.get(),
        };
        let used = &held.stats.dbs[..held.shard.db_count()];
        let db = keyspace.db_index(random_db(used, self.random, weight)?)?;
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

/// Counts one use less.
fn wear(entry: &mut Entry) {
    let mut access = entry.access();
    access.uses = access.uses.saturating_sub(1);
    entry.set_access(access);
}

/// A database of a shard, each with a probability in proportion to its weight.
fn random_db(
    dbs: &[DbCounters],
    random: u64,
    weight: impl Fn(&DbCounters) -> u64,
) -> Option<usize> {
    let total: u64 = dbs.iter().map(&weight).sum();
    let mut rank = ((u128::from(random) * u128::from(total)) >> u64::BITS) as u64;
    for (db, counters) in dbs.iter().enumerate() {
        let weight = weight(counters);
        if rank < weight {
            return Some(db);
        }
        rank -= weight;
    }
    None
}
