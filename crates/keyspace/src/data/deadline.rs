//! The deadlines of one database in one shard, earliest first.
//!
//! A heap of 16-byte items, each with a time and the hash of a key. Items are hints: the deadline
//! in the entry is authoritative, and the code that handles an item checks it. That makes the
//! common changes cheap:
//!
//! - A deadline that moves later costs nothing. Its item fires at the old time and is put back at
//!   the new one.
//! - A deadline that moves earlier adds an item; the old one finds nothing to do.
//! - A deadline that is removed, or whose key is deleted, leaves its item behind.
//!
//! Invariants:
//! - For each entry with a deadline there is an item of its hash that is not later.
//! - There are never more than [`crowd_limit`] items: when stale ones exceed it, the heap is
//!   rebuilt with one item for each hash that has a deadline. A rebuild looks up every item, and at
//!   least a fifth of them were added or became stale since the last one. So its cost is a constant
//!   number of lookups for each change.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::data::entry::size_class;
use crate::data::key::KeyHash;
use crate::random::mix;

/// Maximum number of items for `live` entries with a deadline; above it, the heap is rebuilt. The
/// constant avoids constant rebuilds with a handful of keys. With twice as many items as entries, a
/// cache under a volatile policy had room for a tenth fewer keys.
fn crowd_limit(live: usize) -> usize {
    live + live / 4 + 64
}

/// Ordered by time first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    deadline_ms: i64,
    hash: KeyHash,
}

const _: () = assert!(size_of::<Item>() == 16);

#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    heap: BinaryHeap<Reverse<Item>>,
}

impl Deadlines {
    /// Returns the time when the earliest item is due.
    #[inline]
    pub(crate) fn next_ms(&self) -> Option<i64> {
        self.heap.peek().map(|item| item.0.deadline_ms)
    }

    /// Adds an item.
    pub(crate) fn arm(&mut self, deadline_ms: i64, hash: KeyHash) {
        if self.heap.len() == self.heap.capacity() {
            // By a quarter, like the allocator's classes; a vector by itself would double.
            self.heap.reserve_exact((self.heap.len() / 4).max(4));
        }
        self.heap.push(Reverse(Item { deadline_ms, hash }));
    }

    /// Takes the earliest item if it is due, and all items with the same time and hash.
    pub(crate) fn pop_due(&mut self, now_ms: i64) -> Option<(i64, KeyHash)> {
        if self.next_ms()? > now_ms {
            return None;
        }
        let item = self.heap.pop()?;
        while self.heap.peek() == Some(&item) {
            self.heap.pop();
        }
        self.give_back();
        Some((item.0.deadline_ms, item.0.hash))
    }

    /// Maximum number of hashes from a [`Deadlines::draw`] for one.
    pub(crate) const DRAW_ALL: usize = 128;

    /// Returns the hashes of `count` random items. If there are few more, it returns all items,
    /// starting at a random one. Some may be stale, or duplicates.
    pub(crate) fn draw(&self, random: u64, count: usize) -> impl Iterator<Item = KeyHash> {
        let items = self.heap.as_slice();
        let is_small = items.len() <= Self::DRAW_ALL.max(count);
        let count = if is_small { items.len() } else { count };
        let at =
            move |random: u64| ((u128::from(random) * items.len() as u128) >> u64::BITS) as usize;
        let mut random = random;
        (0..count).map(move |step| {
            let index = if is_small {
                (at(random) + step) % items.len()
            } else {
                random = mix(random);
                at(random)
            };
            items[index].0.hash
        })
    }

    /// Returns true if there is an item of this hash that is not later.
    #[cfg(test)]
    pub(crate) fn has_item(&self, hash: KeyHash, deadline_ms: i64) -> bool {
        self.heap.iter().any(|item| item.0.hash == hash && item.0.deadline_ms <= deadline_ms)
    }

    /// Returns true if there are too many stale items for `live` entries with a deadline.
    #[inline]
    pub(crate) fn is_crowded(&self, live: usize) -> bool {
        self.heap.len() > crowd_limit(live)
    }

    /// Keeps one item for each hash that has a deadline, at the `earliest` of its entries.
    #[cold]
    pub(crate) fn rebuild(&mut self, earliest: impl Fn(KeyHash) -> Option<i64>) {
        let mut hashes: Vec<KeyHash> = self.heap.drain().map(|item| item.0.hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        let live = hashes.into_iter().filter_map(|hash| {
            let deadline_ms = earliest(hash)?;
            Some(Reverse(Item { deadline_ms, hash }))
        });
        self.heap.extend(live);
        self.give_back();
    }

    /// Returns the bytes of memory, as the allocator counts them.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> usize {
        match self.heap.capacity() {
            0 => 0,
            capacity => size_class(capacity * size_of::<Item>()),
        }
    }

    /// Frees memory once three quarters of it are unused.
    fn give_back(&mut self) {
        if self.heap.len() * 4 <= self.heap.capacity() {
            self.heap.shrink_to(self.heap.len() * 2);
        }
    }
}

/// Next deadline of a shard without deadlines.
pub(crate) const NO_DEADLINE: i64 = i64::MAX;
