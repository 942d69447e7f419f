//! Memory of the data and its limit; the store for values on disk; freeing of removed values.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tierce_collections::{Form, Stream};
use tierce_storage::{ColdLocation, ColdStore};

use crate::access::keyspace::Keyspace;
use crate::access::saving::save_removed;
use crate::data::collections::CollectionType;
use crate::data::entry::{Entry, OutOfLine};
use crate::registries::lazy_free::{Fate, LAZY_FREE_BYTES_MIN, LazyFreeItem, LazyFreeQueue};
use crate::registries::pressure::Eviction;
use crate::registries::stats::Memory;

/// Number of blocks, groups and pending entries above which the reaper frees a stream, as in Redis.
const PARTS_MAX: usize = 64;

/// Figures of values on disk.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SpillStats {
    /// Keys whose values are on disk only.
    pub keys: u64,
    /// Bytes of these values.
    pub bytes: u64,
    /// Number of values fetched so far.
    pub fetched: u64,
    /// Number of these that a command had to wait for with a shard locked.
    pub fetched_late: u64,
}

/// Extra memory of a snapshot, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SnapshotMemory {
    /// Present value.
    pub now: u64,
    /// Maximum since the snapshot began.
    pub peak: u64,
}

impl Keyspace {
    /// Returns the memory in use, without a lock.
    pub fn memory(&self) -> Memory {
        let mut memory = Memory {
            lazy_free: self.lazy_free.bytes(),
            copies: self.copies_bytes.load(Ordering::Relaxed),
            code: self.code.memory_bytes() as u64,
            ..Memory::default()
        };
        for slot in &self.slots {
            memory.entries += slot.stats.entry_bytes.get();
            memory.index += slot.stats.index_bytes.get();
            memory.deadlines += slot.stats.deadline_bytes.get();
            memory.cached += slot.stats.cached_bytes.get();
        }
        memory
    }

    /// Returns the extra memory of the snapshot in progress; `None` if there is none.
    pub fn snapshot_memory(&self) -> Option<SnapshotMemory> {
        let running = self.snapshot.lock();
        let backlog = running.as_ref()?;
        let (now, peak) = (backlog.bytes() as u64, backlog.peak_bytes() as u64);
        Some(SnapshotMemory { now, peak })
    }

    /// Returns the bytes of memory that count against the limit, within a 256th of the limit.
    pub fn told_memory(&self) -> u64 {
        self.pressure.used_bytes()
    }

    /// Sets the eviction policy and limit. This evicts no keys itself: the next write does, and the reaper, which is
    /// woken.
    pub fn set_eviction(&self, eviction: &Eviction) {
        self.pressure.set(eviction, self.shard_count());
        if eviction.limit_bytes == 0 {
            return;
        }
        // Shards do not report their sizes without a limit, and report less often under a larger limit. This waits
        // for no lock, since the caller may have locked shards itself.
        for slot in &self.slots {
            slot.stats.tell(&self.pressure);
        }
        if self.is_short_of_memory() {
            self.reaper_wakeup.notify();
        }
    }

    /// Returns the eviction policy.
    pub fn eviction(&self) -> Eviction {
        self.pressure.eviction()
    }

    /// Returns true if there is a memory limit.
    #[inline]
    pub fn has_memory_limit(&self) -> bool {
        self.pressure.has_limit()
    }

    /// Returns true if memory exceeds its limit, within a 256th. Takes no lock and reads two numbers.
    #[inline]
    pub fn is_short_of_memory(&self) -> bool {
        self.pressure.is_exceeded()
    }

    /// Returns true if memory would exceed its limit with so many bytes more.
    #[inline]
    pub fn would_be_short(&self, bytes: usize) -> bool {
        self.pressure.is_exceeded_with(bytes as u64)
    }

    /// Wakes the reaper to evict the excess.
    pub fn evict_later(&self) {
        self.reaper_wakeup.notify();
    }

    /// Sets the store for values on disk. Call it before loading anything that refers to the store. A second call has
    /// no effect.
    pub fn set_cold_store(&self, store: Arc<ColdStore>) {
        let _ = self.cold.set(store);
    }

    /// Returns the store for values on disk.
    #[inline]
    pub fn cold_store(&self) -> Option<&Arc<ColdStore>> {
        self.cold.get()
    }

    /// Returns true if there may be values that are only on disk.
    #[inline]
    pub fn has_spilled(&self) -> bool {
        self.has_spilled.load(Ordering::Relaxed)
    }

    /// Returns figures of values on disk, without a lock.
    pub fn spill_stats(&self) -> SpillStats {
        let mut all = SpillStats::default();
        for slot in &self.slots {
            all.keys += slot.stats.spilled_keys.get();
            all.bytes += slot.stats.spilled_bytes.get();
            all.fetched += slot.stats.fetched.get();
            all.fetched_late += slot.stats.fetched_late.get();
        }
        all
    }

    /// Releases the location of an entry that is in no database any more.
    pub(crate) fn let_go(&self, entry: &Entry) {
        if let Some(location) = entry.location() {
            self.release(location);
        }
    }

    pub(crate) fn release(&self, location: ColdLocation) {
        if let Some(store) = self.cold_store() {
            store.release(location);
        }
    }

    /// Frees something large, preferably through the reaper.
    pub(crate) fn discard(&self, item: LazyFreeItem) {
        if self.lazy_free.push(item) == Fate::Queued {
            self.reaper_wakeup.notify();
        }
    }

    /// Returns the number of removed large items that wait to be freed.
    pub fn lazy_free_items(&self) -> usize {
        self.lazy_free.items()
    }

    pub(crate) fn lazy_free(&self) -> &LazyFreeQueue {
        &self.lazy_free
    }

    /// Frees an entry that is in no database any more. The reaper frees a large one, and a snapshot keeps one until
    /// it is saved.
    pub(crate) fn free(&self, mut entry: Entry) {
        if let Some(id) = entry.snapshot_id()
            && let Some(value) = entry.take_out_of_line()
        {
            return save_removed(self, id, value);
        }
        if entry.allocated_bytes() >= LAZY_FREE_BYTES_MIN || has_many_parts(&entry) {
            self.discard(LazyFreeItem::Entry(entry));
        }
    }

    /// Frees a value that was replaced in its entry, in the same way.
    pub(crate) fn free_displaced(&self, displaced: Option<OutOfLine>) {
        let Some(value) = displaced else { return };
        if let Some(id) = value.snapshot_id() {
            save_removed(self, id, value);
        } else if value.allocated_bytes() >= LAZY_FREE_BYTES_MIN {
            self.discard(LazyFreeItem::OutOfLine(value));
        }
    }
}

fn has_many_parts(entry: &Entry) -> bool {
    if !matches!(entry.raw_collection(), Some((Form::Stream, _))) {
        return false;
    }
    let collection = entry.collection();
    let stream = collection.as_ref().and_then(|collection| Stream::of(collection));
    stream.is_some_and(|stream| {
        let of_groups = stream.groups().map(|(_, group)| 1 + group.pending_len());
        stream.block_count() + of_groups.sum::<usize>() > PARTS_MAX
    })
}
