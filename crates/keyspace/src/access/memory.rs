//! Memory that the data take, and its limit; the store for values on disk; freeing what is in no database any more.

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

/// A stream with more blocks, groups and pending entries than this is left to the reaper as well, as in Redis.
const PARTS_MAX: usize = 64;

/// Figures of values on disk.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SpillStats {
    /// Keys whose values are on disk only.
    pub keys: u64,
    /// Bytes of these values.
    pub bytes: u64,
    /// Values that were fetched so far.
    pub fetched: u64,
    /// Of these, values that a command had to wait for with a shard locked.
    pub fetched_late: u64,
}

/// Extra memory of a snapshot, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SnapshotMemory {
    /// Now.
    pub now: u64,
    /// The most since it began.
    pub peak: u64,
}

impl Keyspace {
    /// The memory taken, without a lock.
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

    /// Extra memory of the snapshot in progress; `None` if there is none.
    pub fn snapshot_memory(&self) -> Option<SnapshotMemory> {
        let running = self.snapshot.lock();
        let backlog = running.as_ref()?;
        let (now, peak) = (backlog.bytes() as u64, backlog.peak_bytes() as u64);
        Some(SnapshotMemory { now, peak })
    }

    /// Bytes of memory as they count against the limit, give or take a 256th of that.
    pub fn told_memory(&self) -> u64 {
        self.pressure.used_bytes()
    }

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

    /// The policy for when memory runs short.
    pub fn eviction(&self) -> Eviction {
        self.pressure.eviction()
    }

    /// True if there is a limit for memory.
    #[inline]
    pub fn has_memory_limit(&self) -> bool {
        self.pressure.has_limit()
    }

    /// True if memory is beyond its limit, give or take a 256th. Takes no lock and reads two
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

    /// Gives the keyspace its store for values on disk: before anything is loaded that refers to it. A
    /// second one is not taken.
    pub fn set_cold_store(&self, store: Arc<ColdStore>) {
        let _ = self.cold.set(store);
    }

    /// The store for values on disk.
    #[inline]
    pub fn cold_store(&self) -> Option<&Arc<ColdStore>> {
        self.cold.get()
    }

    /// True if there may be values that are on disk only.
    #[inline]
    pub fn has_spilled(&self) -> bool {
        self.has_spilled.load(Ordering::Relaxed)
    }

    /// Figures of values on disk, without a lock.
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

    /// An entry ends that is in no database any more.
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

    /// Frees something large, by the reaper if possible.
    pub(crate) fn discard(&self, item: LazyFreeItem) {
        if self.lazy_free.push(item) == Fate::Queued {
            self.reaper_wakeup.notify();
        }
    }

    /// The number of large things that were removed and wait to be freed.
    pub fn lazy_free_items(&self) -> usize {
        self.lazy_free.items()
    }

    pub(crate) fn lazy_free(&self) -> &LazyFreeQueue {
        &self.lazy_free
    }

    /// Frees an entry that is in no database any more, here, or, if it is large, by the reaper, or when it has been
    /// saved.
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

    /// Frees a value that no entry has any more, in the same way.
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
