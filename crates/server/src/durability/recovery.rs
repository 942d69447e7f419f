//! From the log back to the keys.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tierce_cask::disk::OsDisk;
use tierce_cask::{Wal, WalOptions};
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
        /// What is wrong, with file and offset.
        error: tierce_cask::Error,
    },
    /// The system has no threads to give.
    #[error("could not start to load the log: {0}")]
    Io(#[from] std::io::Error),
}

pub(super) fn recover(
    journal: &Journal,
    keyspace: &Arc<Keyspace>,
    dir: &Path,
    log: &Log,
) -> Result<(), RecoveryError> {
    let begun = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let mut replay = Replay::start(Arc::clone(keyspace), threads, crate::clock::unix_ms())?;
    let (mut bytes, mut reported) = (0, begun);
    let take = |record: &[u8]| {
        bytes += record.len();
        if reported.elapsed() >= REPORT_EVERY {
            reported = Instant::now();
            log.notice(format_args!("Loading the log: {} MB so far", bytes / 1_000_000));
        }
        replay.record(record).map_err(|error| error.to_string())
    };
    let (wal, found) = Wal::open_on(Arc::new(OsDisk), dir, WalOptions::default(), take)
        .map_err(|error| RecoveryError::Log { dir: dir.to_owned(), error })?;
    let replayed = replay.finish();
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
    if replayed.records > 0 {
        log.notice(format_args!(
            "Loaded {keys} keys from {} MB of log in {:.2} s",
            found.bytes / 1_000_000,
            begun.elapsed().as_secs_f64()
        ));
    }
    journal.compaction.set_base(wal.bytes());
    journal.open(wal);
    keyspace.begin_logging();
    Ok(())
}
