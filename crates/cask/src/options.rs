//! The options of a store.

use std::time::Duration;
use tierce_storage::compression::Compression;
use tierce_storage::directory::IfMissing;
use tierce_storage::log::options::WalOptions;
use tierce_storage::manifest::{IndexKind, SHARDS_DEFAULT, SHARDS_MAX};
use tierce_storage::{Error, Result};

/// Policy that assigns a record to one of the store's logs. Reading finds records in any log, so this may change from
/// one opening to the next.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Placement {
    /// Keys are spread evenly.
    #[default]
    Hashed,
    /// Each log takes the keys between two others, so that neighbouring keys lie together: a range then reads whole
    /// segments instead of single records. For stores that are scanned, with enough shards that the records of one fit
    /// into a quarter of [`Options::scan_memory_bytes`]. The first eight bytes of a key decide, and should vary
    /// evenly: keys with a common beginning share a log.
    /// come to share a log.
    Ordered,
}

/// Policy for syncing writes to the device.
///
/// Under every policy a completed write survives the death of the process; the policy decides what survives a power
/// cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncPolicy {
    /// Whenever the operating system decides.
    None,
    /// At most the writes of this period are lost.
    Every(Duration),
    /// Nothing is lost: a write returns when it is durable. Concurrent writes share a sync, and therefore all go to
    /// one log, whatever [`Options::shards`] says.
    Always,
}

/// Durability of one write when it returns, whatever the store's policy.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Durability {
    /// As [`Options::sync`] says.
    #[default]
    Policy,
    /// Passed to the operating system: survives the process, not a power cut.
    Written,
    /// On the device.
    Synced,
}

/// Schedule and intensity of compaction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CompactionOptions {
    /// True if the store compacts by itself; [`Db::compact`](crate::Db::compact) works in any case.
    pub automatic: bool,
    /// A segment is rewritten when at least this part of it is garbage.
    pub garbage_ratio: f64,
    /// Interval at which the background thread looks for work.
    pub interval: Duration,
    /// Bytes read and written per second by the background thread, 0 for no limit.
    pub bytes_per_second: u64,
}

/// Options for opening a store.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// True if a missing store is created.
    pub create_if_missing: bool,
    /// Number of independent logs that are written in parallel. `None` takes the number the store was created with (8
    /// for a new one). A different number loses nothing, since records are found in any log: new records are spread
    /// over the new number.
    pub shards: Option<u32>,
    /// Policy that assigns a record to a log.
    pub placement: Placement,
    /// Kind of index. A store opened with a different kind than before is indexed again from its segments, once.
    pub index: IndexKind,
    /// Length at which a segment is finished. If the segments being written would take more than a quarter of the
    /// device, they are smaller, down to 1 MiB.
    pub segment_size_bytes: u64,
    /// Compression of new values.
    pub compression: Compression,
    /// Policy for syncing writes to the device.
    pub sync: SyncPolicy,
    /// Schedule and intensity of compaction.
    pub compaction: CompactionOptions,
    /// Memory for recently read values, 0 for none.
    pub read_cache_bytes: usize,
    /// Memory for data that ranges share, used only while there are ranges; with 0 each range reads record by record.
    pub scan_memory_bytes: usize,
    /// Maximum number of open segments, in addition to those being written.
    pub open_files_max: usize,
    /// Reads values of finished segments without the page cache.
    pub direct_io: bool,
    /// Size of the tail of each log, where writes go first, in memory and on disk: a file mapped into memory, whose
    /// blocks of an eighth of its size are written to segments. At least 1 KiB; more than 8 MiB counts as 8 MiB, and
    /// on a small device all tails together take at most a sixteenth of it, or 64 KiB each.
    pub tail_bytes: u64,
    /// Writes segments without the page cache. Faster if there is more to write than fits in free memory; recently
    /// written data must then be read from the device.
    pub direct_writes: bool,
    /// Threads that read segments and hint files while opening, 0 for one a core.
    pub open_threads: usize,
    /// True if the store has threads that sync, finish segments and compact. Without them the writer that fills a
    /// segment finishes it, compaction waits for [`Db::compact`](crate::Db::compact), and [`SyncPolicy::Every`] is up
    /// to [`Db::flush`](crate::Db::flush): everything then happens in the order of the calls.
    pub background_threads: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            create_if_missing: true,
            shards: None,
            placement: Placement::default(),
            index: IndexKind::default(),
            segment_size_bytes: 128 << 20,
            compression: Compression::default(),
            sync: SyncPolicy::Every(Duration::from_secs(1)),
            compaction: CompactionOptions::default(),
            read_cache_bytes: 32 << 20,
            scan_memory_bytes: 256 << 20,
            open_files_max: 512,
            direct_io: false,
            tail_bytes: TAIL_BYTES_DEFAULT,
            direct_writes: false,
            open_threads: 0,
            background_threads: true,
        }
    }
}

impl Default for CompactionOptions {
    fn default() -> Self {
        CompactionOptions {
            automatic: true,
            garbage_ratio: 0.5,
            interval: Duration::from_secs(5),
            bytes_per_second: 64 << 20,
        }
    }
}

/// Blocks of 128 KiB: large enough to keep the device busy, and all tails of a store together stay in a processor's
/// cache. With four times as much, writing 4 KiB values is a fifth slower.
const TAIL_BYTES_DEFAULT: u64 = 1 << 20;

impl Options {
    pub(crate) fn if_missing(&self) -> IfMissing {
        let shards = self.shards.unwrap_or(SHARDS_DEFAULT);
        match self.create_if_missing {
            true => IfMissing::Make { index: self.index, shards },
            false => IfMissing::Refuse,
        }
    }

    /// Returns the options of the log alone.
    pub(crate) fn log(&self) -> WalOptions {
        WalOptions {
            segment_size_bytes: self.segment_size_bytes,
            tail_bytes: self.tail_bytes,
            compression: self.compression,
            background_threads: self.background_threads,
        }
    }

    pub(crate) fn validate(&self) -> Result<()> {
        let invalid = |option, detail: String| Err(Error::InvalidOption { option, detail });
        if self.shards.is_some_and(|n| !(1..=SHARDS_MAX).contains(&n)) {
            return invalid("shards", format!("1 to {SHARDS_MAX}"));
        }
        self.log().validate()?;
        if !(0.01..=1.0).contains(&self.compaction.garbage_ratio) {
            return invalid("compaction.garbage_ratio", "0.01 to 1".to_owned());
        }
        if self.open_files_max == 0 {
            return invalid("open_files_max", "at least 1".to_owned());
        }
        if matches!(self.sync, SyncPolicy::Every(interval) if interval.is_zero()) {
            return invalid("sync", "an interval above zero".to_owned());
        }
        Ok(())
    }
}
