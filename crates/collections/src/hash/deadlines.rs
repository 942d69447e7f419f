//! The deadlines of a large hash's fields, earliest first.
//!
//! A heap of 16-byte items, each a time and the hash of a field name. Items are hints; the deadline in the field
//! is authoritative. Moving a deadline later costs nothing, moving it earlier adds an item, and removing it
//! leaves its item behind.
//!
//! Invariants, kept together with the table:
//! - Each field with a deadline has an item with its hash that is not later.
//! - There are never more than [`crowd_limit`] items. When stale items exceed it, the heap is rebuilt; at least
//!   half of its items were added or became stale since the last rebuild, so a change costs amortized constant
//!   time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::size_class;

/// Upper bound of the items for `live` fields with a deadline; with more, the heap is rebuilt.
fn crowd_limit(live: usize) -> usize {
    2 * live + 16
}

/// Ordered by time first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Item {
    pub(super) deadline_ms: i64,
    pub(super) hash: u64,
}

const _: () = assert!(size_of::<Item>() == 16);

#[derive(Debug, Default)]
pub(super) struct Deadlines {
    heap: BinaryHeap<Reverse<Item>>,
}

impl Deadlines {
    /// Returns the time of the earliest item.
    #[inline]
    pub(super) fn next_ms(&self) -> Option<i64> {
        self.heap.peek().map(|item| item.0.deadline_ms)
    }

    /// Returns the number of items.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns the earliest time after `now_ms` among the items.
    pub(super) fn earliest_after(&self, now_ms: i64) -> Option<i64> {
        self.heap.iter().map(|item| item.0.deadline_ms).filter(|at| *at > now_ms).min()
    }

    /// Returns the hashes of all items that are due, in as many steps as there are.
    pub(super) fn due(&self, now_ms: i64) -> Vec<u64> {
        // The slice of a heap is the heap itself: those below an item that is not due are not due either.
        let items = self.heap.as_slice();
        let (mut hashes, mut next) = (Vec::new(), vec![0]);
        while let Some(at) = next.pop() {
            if let Some(Reverse(item)) = items.get(at).filter(|item| item.0.deadline_ms <= now_ms) {
                hashes.push(item.hash);
                next.extend([2 * at + 1, 2 * at + 2]);
            }
        }
        hashes
    }

    /// Adds an item.
    pub(super) fn arm(&mut self, deadline_ms: i64, hash: u64) {
        if self.heap.len() == self.heap.capacity() {
            // By a quarter, like the allocator's classes; a vector would double by default.
            self.heap.reserve_exact((self.heap.len() / 4).max(4));
        }
        self.heap.push(Reverse(Item { deadline_ms, hash }));
    }

    /// Removes and returns the earliest item if it is due.
    pub(super) fn pop_due(&mut self, now_ms: i64) -> Option<Item> {
        if self.next_ms()? > now_ms {
            return None;
        }
        let item = self.heap.pop()?.0;
        if self.heap.len() * 4 <= self.heap.capacity() {
            self.heap.shrink_to(self.heap.len() * 2);
        }
        Some(item)
    }

    /// Returns true if there are too many stale items for `live` fields with a deadline.
    #[inline]
    pub(super) fn is_crowded(&self, live: usize) -> bool {
        self.heap.len() > crowd_limit(live)
    }

    /// Replaces all items.
    #[cold]
    pub(super) fn rebuild(&mut self, items: impl Iterator<Item = Item>) {
        let items: Vec<_> = items.map(Reverse).collect();
        self.heap = BinaryHeap::from(items);
        self.heap.shrink_to_fit();
    }

    /// Returns the bytes of memory, as the allocator counts them.
    #[inline]
    pub(super) fn memory_bytes(&self) -> usize {
        match self.heap.capacity() {
            0 => 0,
            capacity => size_class(capacity * size_of::<Item>()),
        }
    }
}
