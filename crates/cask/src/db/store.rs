//! The state that all handles of an open store share, and the rules that apply everywhere.

use super::encoder::Encoder;
use super::scan::pass::Passes;
use super::stats::{Counters, Stats};
use crate::cache::ReadCache;
use crate::hint::entry::HintOrder;
use crate::index::hash::HashIndex;
use crate::index::history::History;
use crate::index::ordered::OrderedIndex;
use crate::options::{Options, Placement};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tierce_storage::location::SegmentId;
use tierce_storage::log::files::LogFiles;
use tierce_storage::reserve_file::Reserve;
use tierce_storage::segment::file::Segment;

/// The index, of the kind the store was opened with.
pub(crate) enum Index {
    Hash(HashIndex),
    Ordered(OrderedIndex),
}

/// An open store.
pub(crate) struct Store {
    pub(crate) files: LogFiles,
    pub(crate) options: Options,
    pub(crate) order: HintOrder,
    pub(crate) index: Index,
    pub(crate) history: History,
    pub(crate) cache: ReadCache,
    pub(crate) passes: Arc<Passes>,
    /// Number of writes that have begun to change the index, and number applied to it; both are counted before a write
    /// is acknowledged.
    pub(crate) applying: AtomicU64,
    pub(crate) applied: AtomicU64,
    /// Segments that were compacted away and that snapshots below the number may still read.
    pub(crate) retired: Mutex<Vec<(u64, SegmentId)>>,
    /// Only one thread compacts at a time. After taking this lock, it checks that the store is open, since closing
    /// waits for the lock.
    pub(crate) compacting: Mutex<()>,
    /// Locked after any other lock but that of `segments`.
    pub(crate) reserve: Reserve,
    pub(crate) counters: Counters,
}

impl Store {
    pub(crate) fn new(
        files: LogFiles,
        options: Options,
        order: HintOrder,
        index: Index,
        reserve: Reserve,
    ) -> Self {
        Store {
            cache: ReadCache::new(options.read_cache_bytes),
            passes: Arc::new(Passes::new(options.scan_memory_bytes, options.background_threads)),
            applying: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            files,
            options,
            order,
            index,
            history: History::default(),
            retired: Mutex::default(),
            compacting: Mutex::default(),
            reserve,
            counters: Counters::default(),
        }
    }

    pub(crate) fn encoder(&self) -> Encoder {
        Encoder { hash_key: self.order.hash_key, compression: self.options.compression }
    }

    /// Returns the shard for the writes of a key: always the same one, which orders them.
    pub(crate) fn shard_of(&self, hash: u64, key: &[u8]) -> usize {
        match self.options.placement {
            // The low half: the high bits order the index and would put neighbours in one shard.
            Placement::Hashed => {
                (((hash & 0xffff_ffff) * self.files.appenders.len() as u64) >> 32) as usize
            }
            Placement::Ordered => self.shard_in_order(key),
        }
    }

    /// Returns the shard with the records of this key and its neighbours, if any.
    pub(crate) fn home_shard(&self, key: &[u8]) -> Option<usize> {
        (self.options.placement == Placement::Ordered).then(|| self.shard_in_order(key))
    }

    fn shard_in_order(&self, key: &[u8]) -> usize {
        let mut first = [0; 8];
        let len = key.len().min(first.len());
        first[..len].copy_from_slice(&key[..len]);
        let position = u128::from(u64::from_be_bytes(first));
        ((position * self.files.appenders.len() as u128) >> 64) as usize
    }

    /// Retires segments that no location refers to any more: at once, or after the last snapshot that may read them.
    pub(crate) fn retire(&self, ids: impl IntoIterator<Item = SegmentId>) {
        let stamp = self.files.next_seq.load(Ordering::Acquire);
        self.retired.lock().extend(ids.into_iter().map(|id| (stamp, id)));
        self.release_retired();
    }

    pub(crate) fn release_retired(&self) {
        let mut retired = self.retired.lock();
        // Checked with the list locked: a snapshot opened later cannot see the segments on it.
        let oldest = self.history.oldest_snapshot().unwrap_or(u64::MAX);
        let unneeded = retired.extract_if(.., |(stamp, _)| oldest >= *stamp);
        let gone = self.files.take_out(unneeded.map(|(_, id)| id));
        drop(retired);
        // Files are deleted here, with no lock held, or later with the last reader.
        drop(gone);
    }
}

impl Store {
    pub(crate) fn stats(&self) -> Stats {
        let segments = self.files.segments.read();
        let sum = |of: &dyn Fn(&Segment) -> u64| -> u64 {
            segments.values().map(|segment| of(segment)).sum()
        };
        let (keys, index_bytes) = match &self.index {
            Index::Hash(index) => (index.len(), index.memory_bytes()),
            Index::Ordered(index) => (index.len(), index.memory_bytes()),
        };
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            keys: keys as u64,
            segments: segments.len() as u64,
            disk_bytes: sum(&|segment| segment.len()),
            live_bytes: sum(&|segment| segment.live()),
            tombstone_bytes: sum(&|segment| segment.tombstones()),
            index_bytes: index_bytes as u64,
            cache_bytes: self.cache.memory_bytes() as u64,
            scan_bytes: self.passes.memory_bytes() as u64,
            open_files: self.files.home.open_files.count() as u64,
            bytes_written: count(&self.counters.bytes_written),
            bytes_compacted: count(&self.counters.bytes_compacted),
            compactions: count(&self.counters.compactions),
            syncs: count(&self.counters.syncs),
        }
    }
}
