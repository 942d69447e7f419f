//! The only file of the race that uses the storage engine.

use std::ops::ControlFlow;
use std::path::Path;

use clap::ValueEnum;
use tierce_cask::{CompactionOptions, Compression, Db, IndexKind, Options, SyncPolicy};

use super::dataset::Key;
use super::error::RaceError;

/// Placement of keys in logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Placement {
    /// Each log takes a range of keys, so that scans read whole segments
    Ordered,
    /// Keys are spread over all logs
    Hashed,
}

/// Method of writing segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Writes {
    /// Without the page cache
    Direct,
    /// Through the page cache
    Buffered,
}

/// Options of the engine beyond the rules of the race.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
pub(super) struct Tuning {
    /// Number of logs that are written in parallel.
    pub(super) shards: u32,
    pub(super) placement: Placement,
    pub(super) writes: Writes,
    /// Memory for the end of each log.
    pub(super) tail_bytes: u64,
    /// Reads without the page cache.
    pub(super) direct_io: bool,
    /// Length of a segment.
    pub(super) segment_size_bytes: u64,
    /// Memory for recently read values.
    pub(super) read_cache_bytes: usize,
    /// Memory in which scans share loaded values.
    pub(super) scan_memory_bytes: usize,
}

impl Tuning {
    /// Returns the tuning for stores that are killed. Segments are so small that some are finished
    /// and compacted all the time, because a kill is most dangerous at these moments.
    pub(super) fn restless(self) -> Self {
        Self { segment_size_bytes: 4 << 20, ..self }
    }

    fn options(&self) -> Options {
        Options {
            shards: Some(self.shards),
            placement: match self.placement {
                Placement::Ordered => tierce_cask::Placement::Ordered,
                Placement::Hashed => tierce_cask::Placement::Hashed,
            },
            direct_writes: self.writes == Writes::Direct,
            tail_bytes: self.tail_bytes,
            index: IndexKind::Ordered,
            segment_size_bytes: self.segment_size_bytes,
            // The contest forbids compression, and its values are not compressible.
            compression: Compression::None,
            // Safe against a kill; otherwise writeback is left to the kernel, as the contest
            // allows.
            sync: SyncPolicy::None,
            compaction: CompactionOptions {
                interval: std::time::Duration::from_millis(100),
                bytes_per_second: 0,
                ..CompactionOptions::default()
            },
            read_cache_bytes: self.read_cache_bytes,
            scan_memory_bytes: self.scan_memory_bytes,
            direct_io: self.direct_io,
            ..Options::default()
        }
    }
}

/// An open store.
#[derive(Clone)]
pub(super) struct Store(Db);

/// Sizes that the engine reports.
#[derive(Clone, Copy, Debug, serde::Deserialize, serde::Serialize)]
pub(super) struct Sizes {
    pub(super) keys: u64,
    pub(super) disk_bytes: u64,
    pub(super) index_bytes: u64,
}

impl Store {
    pub(super) fn open(dir: &Path, tuning: &Tuning) -> Result<Self, RaceError> {
        Ok(Self(Db::open(dir, tuning.options())?))
    }

    pub(super) fn put(&self, key: Key, value: &[u8]) -> Result<(), RaceError> {
        Ok(self.0.put(&key, value)?)
    }

    /// Passes the value of a key, if there is one, to a function.
    pub(super) fn get<T>(
        &self,
        key: Key,
        see: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, RaceError> {
        Ok(self.0.get(&key)?.map(|value| see(&value)))
    }

    /// Passes everything from `lower` (included) to `upper` (excluded), in order, to a function
    /// until that fails. An empty bound is open.
    pub(super) fn scan(
        &self,
        lower: &[u8],
        upper: &[u8],
        mut see: impl FnMut(&[u8], &[u8]) -> Result<(), RaceError>,
    ) -> Result<(), RaceError> {
        let mut seen = Ok(());
        self.0.scan(lower, upper, |key, value| {
            seen = see(key, value);
            if seen.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        seen
    }

    /// Makes everything durable.
    pub(super) fn flush(&self) -> Result<(), RaceError> {
        Ok(self.0.flush()?)
    }

    pub(super) fn close(self) -> Result<(), RaceError> {
        Ok(self.0.close()?)
    }

    pub(super) fn sizes(&self) -> Sizes {
        let stats = self.0.stats();
        Sizes { keys: stats.keys, disk_bytes: stats.disk_bytes, index_bytes: stats.index_bytes }
    }
}
