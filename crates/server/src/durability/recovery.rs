//! From the log back to the keys.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tierce_cask::disk::Disk;
use tierce_cask::{Wal, WalOptions, WalRecovery};
use tierce_keyspace::Keyspace;
use tierce_keyspace::log::Replay;

use super::journal::Journal;
use crate::log::Log;

/// A line about the progress of loading appears this often.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Why the log could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoveryError {
    /// The log cannot be read, or is damaged.
    #[error("the log in {}: {error}", dir.display())]
    Log {
        /// Where the log is.
        dir: PathBuf,
        /// What is wrong.
        error: tierce_cask::Error,
    },
    /// The log is not what was written.
    #[error(
        "the log is damaged and nothing was loaded: {error}. To see all damage: tierce check {dir}. \
         To save what can be saved: tierce repair {dir} {dir}.repaired, then move {dir} away and \
         {dir}.repaired into its place",
        dir = dir.display()
    )]
    Damaged {
        /// Where the log is.
        dir: PathBuf,
        /// What is wrong, with file and offset.
        error: tierce_cask::Error,
    },
    /// The system has no threads to give.
    #[error("could not start to load the log: {0}")]
    Io(#[from] std::io::Error),
}

impl RecoveryError {
    pub(crate) fn of(dir: &Path, error: tierce_cask::Error) -> Self {
        use tierce_cask::Error::{Corrupt, Foreign, Missing};
        let dir = dir.to_owned();
        match error {
            Corrupt { .. } | Foreign { .. } | Missing { .. } => Self::Damaged { dir, error },
            _ => Self::Log { dir, error },
        }
    }
}

/// Loads the log in `dir` into the journal's keyspace, and has changes go there from then on.
/// Returns whether there was any record in it.
pub(super) fn recover(
    journal: &Journal,
    keyspace: &Arc<Keyspace>,
    disk: Arc<dyn Disk>,
    dir: &Path,
    log: &Log,
) -> Result<bool, RecoveryError> {
    let begun = Instant::now();
    let mut reported = begun;
    let (wal, found) = replay(keyspace, disk, dir, |bytes| {
        if reported.elapsed() >= REPORT_EVERY {
            reported = Instant::now();
            log.notice(format_args!("Loading the log: {} MB so far", bytes / 1_000_000));
        }
    })?;
    for torn in &found.torn_tails {
        log.warning(format_args!(
            "The log ended in {} bytes that were never durable; they were cut off from {} at offset \
             {}: {}",
            torn.bytes,
            torn.path.display(),
            torn.offset,
            torn.reason
        ));
    }
    let keys: u64 = keyspace.db_indices().map(|db| keyspace.len(db)).sum();
    if found.records > 0 {
        log.notice(format_args!(
            "Loaded {keys} keys from {} MB of log in {:.2} s",
            found.bytes / 1_000_000,
            begun.elapsed().as_secs_f64()
        ));
    }
    journal.compaction.set_base(wal.bytes());
    journal.open(wal);
    keyspace.begin_logging();
    Ok(found.records > 0)
}

/// Loads the log in `dir` into a keyspace, telling `tell` now and then how many bytes that were.
pub(crate) fn replay(
    keyspace: &Arc<Keyspace>,
    disk: Arc<dyn Disk>,
    dir: &Path,
    mut tell: impl FnMut(u64),
) -> Result<(Wal, WalRecovery), RecoveryError> {
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let mut replay = Replay::start(Arc::clone(keyspace), threads, crate::clock::unix_ms())?;
    let mut bytes = 0;
    let take = |record: &[u8]| {
        bytes += record.len() as u64;
        tell(bytes);
        replay.record(record).map_err(|error| error.to_string())
    };
    let opened = Wal::open_on(disk, dir, WalOptions::default(), take)
        .map_err(|error| RecoveryError::of(dir, error))?;
    let _ = replay.finish();
    Ok(opened)
}
