//! Removed values that are too large to be freed by the removing thread.
//!
//! The queue is bounded. When it is full, or when no reaper runs, the removing thread frees the value at once. This
//! is slower, but memory stays bounded.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::data::entry::{Entry, OutOfLine};
use crate::registries::cached::CachedKeys;
use crate::registries::flushed::{FlushedData, Freeing};

/// Minimum size of entries for the reaper. Freeing less costs about as much as waking it.
pub(crate) const LAZY_FREE_BYTES_MIN: usize = 64 * 1024;

/// Maximum number of waiting items.
const ITEMS_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) enum LazyFreeItem {
    /// One large value.
    Entry(Entry),
    /// Flushed data, and the thread that was asked to free them.
    Flushed(FlushedData, Freeing),
    /// Tables of cached keys, after all keys changed.
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
    /// Number of items that were queued and freed, except for those of a flush with `Freeing::Now`.
    freed: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<LazyFreeItem>,
    /// True while a thread empties the queue.
    is_collected: bool,
}

impl LazyFreeQueue {
    /// Queues an item for the reaper, or frees it here.
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

    /// Returns the number of items that were queued and freed.
    pub(crate) fn freed(&self) -> u64 {
        self.freed.load(Ordering::Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().items.is_empty()
    }

    /// Returns the number of waiting items.
    pub(crate) fn items(&self) -> usize {
        self.queue.lock().items.len()
    }

    /// Returns the bytes of waiting items.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Queues items for [`LazyFreeQueue::free_one`] from now on.
    pub(crate) fn begin_collecting(&self) {
        self.queue.lock().is_collected = true;
    }

    /// Stops queuing: threads free their own items from now on. Frees the waiting ones before it returns.
    pub(crate) fn end_collecting(&self) {
        self.queue.lock().is_collected = false;
        while self.free_one() {}
    }
}

/// Result of queuing an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is freed.
    Freed,
    /// The reaper will free it.
    Queued,
}
