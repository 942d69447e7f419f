//! The only file of the race that knows the storage engine.

use std::path::Path;

use tierce_cask::{CompactionOptions, Compression, Db, IndexKind, Options, SyncPolicy};

use super::contents::Key;
use super::error::RaceError;

/// What the engine is told beside the rules of the race.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
pub(super) struct Tuning {
    /// Logs written in parallel.
    pub(super) shards: u32,
    /// Reads past the page cache.
    pub(super) direct_io: bool,
    /// Length of a segment.
    pub(super) segment_size_bytes: u64,
    /// Memory for values read lately.
    pub(super) read_cache_bytes: usize,
}

impl Tuning {
    /// As it is when the store is to be killed: segments are so small that some are finished and
    /// compacted all the time, because these are the moments at which a kill could do harm.
    pub(super) fn restless(self) -> Self {
        Self { segment_size_bytes: 4 << 20, ..self }
    }

    fn options(&self) -> Options {
        Options {
            shards: Some(self.shards),
            index: IndexKind::Ordered,
            segment_size_bytes: self.segment_size_bytes,
            // The contest forbids compression, and its values have nothing to compress.
            compression: Compression::None,
            // Safe against a kill and left to the system beyond that, as the contest allows.
            sync: SyncPolicy::None,
            compaction: CompactionOptions {
                interval: std::time::Duration::from_millis(100),
                bytes_per_second: 0,
                ..CompactionOptions::default()
            },
            read_cache_bytes: self.read_cache_bytes,
            direct_io: self.direct_io,
            ..Options::default()
        }
    }
}

/// An open store.
#[derive(Clone)]
pub(super) struct Store(Db);

/// Sizes that the engine knows of itself.
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

    /// Hands the value of a key, if there is one, to a function.
    pub(super) fn get<T>(
        &self,
        key: Key,
        see: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, RaceError> {
        Ok(self.0.get(&key)?.map(|value| see(&value)))
    }

    /// Hands everything from `lower` on and below `upper`, in order, to a function, until that
    /// fails; an empty bound is open.
    pub(super) fn scan(
        &self,
        lower: &[u8],
        upper: &[u8],
        mut see: impl FnMut(&[u8], &[u8]) -> Result<(), RaceError>,
    ) -> Result<(), RaceError> {
        for item in self.0.range(lower, upper)? {
            let (key, entry) = item?;
            see(&key, &entry.value)?;
        }
        Ok(())
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
