//! Statistics of a store.

use std::sync::atomic::{AtomicU64, Ordering};
use tierce_storage::log::write::Write;

/// Counters of the running store; summed by [`Store::stats`](super::store::Store::stats).
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) bytes_written: AtomicU64,
    pub(crate) bytes_compacted: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) syncs: AtomicU64,
}

impl Counters {
    /// Notes that a write was committed.
    pub(crate) fn written(&self, write: &Write) {
        self.bytes_written.fetch_add(write.frame.len() as u64, Ordering::Relaxed);
    }
}

/// Statistics of a store. Sizes are those of records, including headers and padding.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Keys with a value.
    pub keys: u64,
    /// Segments, including those being written.
    pub segments: u64,
    /// Bytes of all segments.
    pub disk_bytes: u64,
    /// Bytes of records that are the newest of their key.
    pub live_bytes: u64,
    /// Bytes of tombstones.
    pub tombstone_bytes: u64,
    /// Memory of the index.
    pub index_bytes: u64,
    /// Memory of the read cache.
    pub cache_bytes: u64,
    /// Memory of the windows that ranges share.
    pub scan_bytes: u64,
    /// Segments open for reading.
    pub open_files: u64,
    /// Bytes of records written by users since opening.
    pub bytes_written: u64,
    /// Bytes of records moved by compaction since opening.
    pub bytes_compacted: u64,
    /// Segments compacted since opening.
    pub compactions: u64,
    /// Syncs made for writers since opening; fewer than their writes if groups share a sync.
    pub syncs: u64,
}

impl Stats {
    /// Returns the bytes written to disk for each byte written by users.
    pub fn write_amplification(&self) -> f64 {
        (self.bytes_written + self.bytes_compacted) as f64 / (self.bytes_written.max(1)) as f64
    }

    /// Returns the bytes on disk for each byte of newest records.
    pub fn space_amplification(&self) -> f64 {
        self.disk_bytes as f64 / (self.live_bytes.max(1)) as f64
    }
}
