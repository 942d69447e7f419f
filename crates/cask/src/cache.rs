//! Cache of recently read records, within a memory budget.
//!
//! Entries are keyed by location. A location is never reused, so nothing needs invalidation: superseded records are no
//! longer requested and get evicted. Each shard evicts with a clock (second chance).
//!
//! A record is admitted at its second miss within a short time, so random reads over much more data than the budget
//! cost neither admission nor eviction.
//!
//! * All entries together stay within the budget, except those that callers still hold.
//! * A record larger than an eighth of a shard's budget is not cached: it would evict everything else.

use crate::entry::Entry;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tierce_storage::location::{Location, LocationHash};

/// Number of shards, each with its own lock.
const SHARDS: usize = 16;
/// The cache remembers one recently missed location per this many bytes of budget: about one for each entry of a small
/// record, at a cost of 8 bytes.
const BUDGET_AN_OFFER: usize = 256;
/// Memory of an entry in addition to its bytes: the map's slot, the ring's slot, two headers.
const ENTRY_OVERHEAD: usize = 160;

/// A cached record. Its key is kept too, since a lookup may have found the location by its fingerprint only.
pub(crate) struct Cached {
    pub(crate) key: Box<[u8]>,
    pub(crate) entry: Entry,
}

pub(crate) struct ReadCache {
    shards: Vec<Mutex<CacheShard>>,
}

#[derive(Default)]
struct CacheShard {
    budget: usize,
    bytes: usize,
    slots: HashMap<Location, usize, LocationHash>,
    ring: Vec<Slot>,
    hand: usize,
    /// Locations of recent misses, each in the slot of its hash, where it overwrites another.
    offered: Vec<u64>,
}

struct Slot {
    location: Location,
    cached: Arc<Cached>,
    cost: usize,
    used: bool,
}

impl ReadCache {
    pub(crate) fn new(budget: usize) -> Self {
        let budget = budget / SHARDS;
        let offered = || vec![0; budget / BUDGET_AN_OFFER + 1];
        let shard =
            || Mutex::new(CacheShard { budget, offered: offered(), ..CacheShard::default() });
        ReadCache {
            shards: if budget == 0 { Vec::new() } else { (0..SHARDS).map(|_| shard()).collect() },
        }
    }

    fn shard(&self, location: Location) -> Option<&Mutex<CacheShard>> {
        self.shards.get(mix(location) as usize % SHARDS)
    }

    pub(crate) fn get(&self, location: Location) -> Option<Arc<Cached>> {
        let mut shard = self.shard(location)?.lock();
        let at = *shard.slots.get(&location)?;
        let slot = &mut shard.ring[at];
        slot.used = true;
        Some(slot.cached.clone())
    }

    /// Offers a record that was read. It is kept if it was offered before.
    pub(crate) fn insert(&self, location: Location, key: &[u8], entry: &Entry) {
        let Some(shard) = self.shard(location) else { return };
        let cost = ENTRY_OVERHEAD + key.len() + entry.value.memory_bytes();
        let mut shard = shard.lock();
        if !shard.is_offered_again(location) {
            return;
        }
        if cost > shard.budget / 8 || shard.slots.contains_key(&location) {
            return;
        }
        while shard.bytes + cost > shard.budget {
            shard.evict();
        }
        let cached = Arc::new(Cached { key: key.into(), entry: entry.clone() });
        let at = shard.ring.len();
        shard.ring.push(Slot { location, cached, cost, used: false });
        shard.slots.insert(location, at);
        shard.bytes += cost;
    }

    /// Returns the memory of all entries.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().bytes).sum()
    }
}

/// Hashes a location, to spread neighbouring records.
fn mix(location: Location) -> u64 {
    (location.raw() >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

impl CacheShard {
    /// Returns true if the record was offered before, not too long ago.
    fn is_offered_again(&mut self, location: Location) -> bool {
        let at = mix(location) as usize / SHARDS % self.offered.len();
        std::mem::replace(&mut self.offered[at], location.raw()) == location.raw()
    }

    /// Evicts the first entry at the clock hand that was not used since the hand last passed.
    fn evict(&mut self) {
        loop {
            if self.hand >= self.ring.len() {
                self.hand = 0;
            }
            let slot = &mut self.ring[self.hand];
            if std::mem::take(&mut slot.used) {
                self.hand += 1;
                continue;
            }
            let gone = self.ring.swap_remove(self.hand);
            self.slots.remove(&gone.location);
            self.bytes -= gone.cost;
            if let Some(moved) = self.ring.get(self.hand) {
                self.slots.insert(moved.location, self.hand);
            }
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Attributes, Value};
    use tierce_storage::location::SegmentId;

    fn location(n: u64) -> Location {
        Location::new(SegmentId(1), n * 8, 8)
    }

    fn entry(len: usize) -> Entry {
        Entry { value: Value::whole(vec![7; len]), attributes: Attributes::default(), seq: 1 }
    }

    #[test]
    fn stays_within_its_budget_and_keeps_what_is_used() {
        let cache = ReadCache::new(1 << 20);
        let insert = |n, key| (0..2).for_each(|_| cache.insert(location(n), key, &entry(100)));
        insert(0, &b"hot"[..]);
        for n in 1..20_000 {
            insert(n, b"cold");
            assert!(cache.get(location(0)).is_some_and(|cached| *cached.key == *b"hot"));
            assert!(n % 997 != 0 || cache.memory_bytes() <= 1 << 20);
        }
        assert!(cache.memory_bytes() > 1 << 19);
        assert!(cache.get(location(1)).is_none());
    }

    #[test]
    fn what_is_read_once_is_not_kept() {
        let cache = ReadCache::new(1 << 20);
        (0..20_000).for_each(|n| cache.insert(location(n), b"k", &entry(100)));
        assert_eq!(cache.memory_bytes(), 0);
        (0..2).for_each(|_| cache.insert(location(7), b"k", &entry(100)));
        assert!(cache.get(location(7)).is_some());
    }

    #[test]
    fn large_records_and_a_budget_of_nothing_keep_nothing() {
        let cache = ReadCache::new(1 << 20);
        (0..2).for_each(|_| cache.insert(location(0), b"k", &entry(1 << 20)));
        assert_eq!(cache.memory_bytes(), 0);
        let none = ReadCache::new(0);
        (0..2).for_each(|_| none.insert(location(0), b"k", &entry(1)));
        assert!(none.get(location(0)).is_none());
    }
}
