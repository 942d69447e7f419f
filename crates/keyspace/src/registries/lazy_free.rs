//! Removed values that are too large to be freed by the thread that removed them.
//!
//! The queue is bounded. When it is full, or when no reaper runs, the removing thread frees the
//! value at once: slower, but memory stays bounded.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::data::entry::{Entry, OutOfLine};
use crate::registries::cached::CachedKeys;
use crate::registries::flushed::{FlushedData, Freeing};

/// Entries of this size and more are left to the reaper. Freeing less costs about as much as
/// waking it.
pub(crate) const LAZY_FREE_BYTES_MIN: usize = 64 * 1024;

/// At most this many items wait.
const ITEMS_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) enum LazyFreeItem {
    /// One large value.
    Entry(Entry),
    /// A flushed database, and if that was to be freed by the reaper anyway.
    Flushed(FlushedData, Freeing),
    /// What was known of cached keys when all of them changed.
    Cached(Vec<CachedKeys>),
    /// A large value that was overwritten.
    OutOfLine(OutOfLine),
}

impl LazyFreeItem {
    fn bytes(&self) -> u64 {
        let bytes = match self {
            LazyFreeItem::Entry(entry) => entry.allocated_bytes(),
            LazyFreeItem::Flushed(data, _) => data.bytes(),
            LazyFreeItem::Cached(tables) => tables.iter().map(CachedKeys::memory_bytes).sum(),
            LazyFreeItem::OutOfLine(value) => value.allocated_bytes(),
        };
        bytes as u64
    }
}

#[derive(Debug, Default)]
pub(crate) struct LazyFreeQueue {
    queue: Mutex<Queue>,
    bytes: AtomicU64,
    /// Items that were queued and are freed, but for those of a flush that asked for something else.
    freed: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<LazyFreeItem>,
    /// Whether a thread empties the queue.
    is_collected: bool,
}

impl LazyFreeQueue {
    /// Leaves an item to the reaper, or frees it here.
    pub(crate) fn push(&self, item: LazyFreeItem) -> Fate {
        let bytes = item.bytes();
        let mut queue = self.queue.lock();
        if !queue.is_collected || queue.items.len() == ITEMS_MAX {
            drop(queue);
            drop(item);
            return Fate::Freed;
        }
        queue.items.push_back(item);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Fate::Queued
    }

    /// Frees one item; `false` when there is none.
    pub(crate) fn free_one(&self) -> bool {
        let item = self.queue.lock().items.pop_front();
        let Some(item) = item else { return false };
        let bytes = item.bytes();
        let is_counted = !matches!(item, LazyFreeItem::Flushed(_, Freeing::Now));
        drop(item);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.freed.fetch_add(u64::from(is_counted), Ordering::Relaxed);
        true
    }

    /// How many items were queued and are freed.
    pub(crate) fn freed(&self) -> u64 {
        self.freed.load(Ordering::Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().items.is_empty()
    }

    /// How many items wait.
    pub(crate) fn items(&self) -> usize {
        self.queue.lock().items.len()
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// From now on items are kept for [`LazyFreeQueue::free_one`].
    pub(crate) fn begin_collecting(&self) {
        self.queue.lock().is_collected = true;
    }

    /// From now on items are freed by the thread that brings them. Returns after freeing those that wait.
    pub(crate) fn end_collecting(&self) {
        self.queue.lock().is_collected = false;
        while self.free_one() {}
    }
}

/// What became of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is freed.
    Freed,
    /// The reaper will free it.
    Queued,
}
