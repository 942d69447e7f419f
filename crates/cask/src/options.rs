//! The options of a store.

use std::time::Duration;
use tierce_storage::compression::Compression;
use tierce_storage::directory::IfMissing;
use tierce_storage::log::options::WalOptions;
use tierce_storage::manifest::{IndexKind, SHARDS_DEFAULT, SHARDS_MAX};
use tierce_storage::{Error, Result};

/// Which of its logs a store writes a record to. Reading finds it in any case, so this may change
/// from one opening to the next.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Placement {
    /// Any keys are spread evenly.
    #[default]
    Hashed,
    /// Each log takes the keys between two others, so that neighbouring keys lie together: a range
    /// then reads whole segments instead of single records. For stores that are scanned, with as
    /// many shards that one's records fit into a quarter of [`Options::scan_memory_bytes`].
    /// Decided by a key's first eight bytes, which should vary evenly: keys that all begin alike
    /// come to share a log.
    Ordered,
}

/// When writes reach the device.
///
/// Under every policy a write that returned survives the death of the process; the policy says
/// what survives a power cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncPolicy {
    /// Whenever the operating system likes.
    None,
    /// At most this much is lost.
    Every(Duration),
    /// Nothing is lost: a write returns when it is durable. Concurrent writes share a sync, for
    /// which they all go to one log, whatever [`Options::shards`] says.
    Always,
}

/// How durable one write is when it returns, whatever the store's policy.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Durability {
    /// As [`Options::sync`] says.
    #[default]
    Policy,
    /// In the operating system's hands: survives the process, not a power cut.
    Written,
    /// On the device.
    Synced,
}

/// When and how hard compaction works.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CompactionOptions {
    /// Whether the store compacts by itself; [`Db::compact`](crate::Db::compact) works in any
    /// case.
    pub automatic: bool,
    /// A segment is rewritten when at least this part of it is garbage.
    pub garbage_ratio: f64,
    /// How often the background thread looks for work.
    pub interval: Duration,
    /// Bytes read and written a second by the background thread, 0 for no limit.
    pub bytes_per_second: u64,
}

/// How to open a store.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Whether a store is made where there is none.
    pub create_if_missing: bool,
    /// Independent logs that are written in parallel. `None` takes what the store was made with
    /// (8 for a new one); another number than before is no loss, since a record is found
    /// wherever it stands: new records are spread over the new number.
    pub shards: Option<u32>,
    /// Which log a record goes to.
    pub placement: Placement,
    /// How keys are found. A store opened with another kind than before is indexed anew from its
    /// segments, once.
    pub index: IndexKind,
    /// A segment is finished when it has reached this length. Where the segments being written would
    /// take more than a quarter of the device, they are smaller, down to 1 MiB.
    pub segment_size_bytes: u64,
    /// How new values are compressed.
    pub compression: Compression,
    /// When writes reach the device.
    pub sync: SyncPolicy,
    /// When garbage is collected.
    pub compaction: CompactionOptions,
    /// Memory for values read lately, 0 for none.
    pub read_cache_bytes: usize,
    /// Memory in which ranges share what they load, used only while there are ranges; 0 lets each
    /// read record by record.
    pub scan_memory_bytes: usize,
    /// Segments open at a time, besides those being written.
    pub open_files_max: usize,
    /// Reads values of finished segments past the page cache.
    pub direct_io: bool,
    /// Memory and disk for the end of each log, where writes go first: a file that is mapped into
    /// memory, from which blocks of an eighth of it are written to segments. At least 1 KiB; more
    /// than 8 MiB is taken for 8 MiB, and on a small device all together take at most a sixteenth of
    /// it, or 64 KiB each.
    pub tail_bytes: u64,
    /// Writes segments past the page cache. Faster when there is more to write than memory is free
    /// to hold; what was just written must then be fetched from the device to be read.
    pub direct_writes: bool,
    /// Threads that read segments and hint files while opening, 0 for one a core.
    pub open_threads: usize,
    /// Whether the store has threads that sync, finish segments and compact. Without them segments
    /// are finished by the writer that fills them, compaction waits for
    /// [`Db::compact`](crate::Db::compact), and [`SyncPolicy::Every`] is up to
    /// [`Db::flush`](crate::Db::flush): everything then happens in the order of the calls.
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

/// Blocks of 128 KiB: enough for the device to be busy with, and all tails of a store together stay
/// in a processor's cache. With four times as much, writing 4 KiB values is a fifth slower.
const TAIL_BYTES_DEFAULT: u64 = 1 << 20;

impl Options {
    pub(crate) fn if_missing(&self) -> IfMissing {
        let shards = self.shards.unwrap_or(SHARDS_DEFAULT);
        match self.create_if_missing {
            true => IfMissing::Make { index: self.index, shards },
            false => IfMissing::Refuse,
        }
    }

    /// Those of the log alone.
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
