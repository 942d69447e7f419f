//! Loads the log into the keyspace.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tierce_keyspace::log::{Replay, ReplayError};
use tierce_keyspace::{Keyspace, LostValues};
use tierce_storage::disk::{Disk, OsDisk};
use tierce_storage::{ColdOptions, ColdStore, Wal, WalRecovery};

use super::cut_search::CutSearch;
use super::durable_log::DurableLog;
use super::host::{Operator, Severity};
use super::log_directory::{LogDirectory, LogOptions, cold_dir};
use crate::count;
use crate::loading::{GivenUp, Loading};
use crate::next_step;

/// Interval of the progress lines while loading.
const REPORT_EVERY: Duration = Duration::from_secs(2);

/// Bytes loaded between two progress reports.
const TELL_EVERY_BYTES: u64 = 1 << 20;

/// Maximum number of named keys that have lost their values.
const EXAMPLES_MAX: usize = 20;

/// Reason why the log could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoveryError {
    /// The log cannot be read, or was written by a newer version.
    #[error("the log in {}: {error}{}", dir.display(), next_step::of_store(error))]
    Log {
        /// Directory of the log.
        dir: PathBuf,
        /// The underlying error.
        error: tierce_storage::Error,
    },
    /// The log is damaged.
    #[error(
        "the log is damaged and nothing was loaded: {error}. To see all damage: tierce check {dir}. \
         To save what can be saved: tierce repair {dir} {dir}.repaired, then move {dir} away and \
         {dir}.repaired into its place",
        dir = dir.display()
    )]
    Damaged {
        /// Directory of the log.
        dir: PathBuf,
        /// The damage, with file and offset.
        error: tierce_storage::Error,
    },
    /// Values on disk are missing that the log refers to.
    #[error(
        "values on disk are gone, and nothing was loaded: {} without a value: {first}. To see all \
         damage: tierce check {dir}. To start without these values: \
         spill-lost-values accept; their keys answer errors then until they are written or deleted",
        count(*keys, "key"),
        first = flaws[0],
        dir = dir.display()
    )]
    Lost {
        /// The data directory.
        dir: PathBuf,
        /// Errors of the damaged and missing files, at least one.
        flaws: Vec<tierce_storage::Error>,
        /// Number of keys that have lost their values.
        keys: u64,
    },
    /// The log is intact, but has a record that this version does not understand.
    #[error("the log in {}: {error}", dir.display())]
    Operation {
        /// Directory of the log.
        dir: PathBuf,
        /// The underlying error.
        error: ReplayError,
    },
    /// Loading was aborted.
    #[error(transparent)]
    GivenUp(#[from] GivenUp),
    /// The system cannot start a thread, or the data directory cannot be read.
    #[error("the log: {}{}", .0, next_step::of_system(.0))]
    Io(#[from] std::io::Error),
}

impl RecoveryError {
    /// Converts an error of the storage engine.
    pub fn of(dir: &Path, error: tierce_storage::Error) -> Self {
        use tierce_storage::Error::{Corrupt, Foreign, Missing};
        let dir = dir.to_owned();
        match error {
            Corrupt { .. } | Foreign { .. } | Missing { .. } => Self::Damaged { dir, error },
            _ => Self::Log { dir, error },
        }
    }
}

/// Loads the log of the data directory into the keyspace, which logs its changes there from now on. Reports the
/// progress to `loading`.
///
/// With `accepts_losses`, values on disk that the log refers to may be missing; the operator is told. Nothing is
/// removed before the whole log has been loaded.
///
/// # Errors
/// When the log cannot be read, with the file and the remedy.
pub fn recover(
    durable_log: &DurableLog,
    keyspace: &Arc<Keyspace>,
    log_directory: &LogDirectory,
    operator: &dyn Operator,
    accepts_losses: bool,
    loading: &Loading,
) -> Result<(), RecoveryError> {
    let loaded = (durable_log, keyspace, log_directory);
    recover_and_search(loaded, operator, accepts_losses, loading, None)
}

/// Does the work of [`recover`], and shows the records to a search.
pub(super) fn recover_and_search(
    (durable_log, keyspace, log_directory): (&DurableLog, &Arc<Keyspace>, &LogDirectory),
    operator: &dyn Operator,
    accepts_losses: bool,
    loading: &Loading,
    search: Option<&mut CutSearch>,
) -> Result<(), RecoveryError> {
    let begun = Instant::now();
    let mut reported = begun;
    let losses = if accepts_losses { Losses::Accept(operator) } else { Losses::Refuse };
    let dir = log_directory.current()?;
    log_directory.check_values(&dir)?;
    let report = |_| {
        if reported.elapsed() >= REPORT_EVERY {
            reported = Instant::now();
            if let Some(report) = loading.report_for_log() {
                operator.tell(Severity::Notice, format_args!("Loading the log: {report}"));
            }
        }
    };
    let mut report = now_and_then(report);
    let note = |bytes| {
        report(bytes);
        loading.note(bytes)
    };
    let LogDirectory { disk, options, .. } = log_directory;
    let loaded = load(keyspace, disk, &dir, options, losses, search, note);
    if loading.is_given_up() {
        return Err(GivenUp.into());
    }
    let (wal, found) = loaded?;
    for torn in &found.torn_tails {
        operator.tell(
            Severity::Warning,
            format_args!(
                "The log ended in {} bytes that were never durable; {} was truncated at offset {}: {}",
                torn.bytes,
                torn.path.display(),
                torn.offset,
                torn.reason
            ),
        );
    }
    let keys = keyspace.total_len();
    if found.records > 0 {
        operator.tell(
            Severity::Notice,
            format_args!(
                "Loaded {} from {} of log in {:.2} s",
                count(keys, "key"),
                amount(found.bytes),
                begun.elapsed().as_secs_f64()
            ),
        );
    }
    let store = keyspace.cold_store();
    let has_losses = store.is_some_and(|store| !store.flaws().is_empty());
    durable_log.open(wal);
    durable_log.note_wanted();
    keyspace.begin_logging();
    if has_losses {
        // The data may differ from the primary's, so its later stream must not be applied.
        keyspace.locks().move_to(None);
    }
    if let Err(error) = log_directory.clear_others(&dir) {
        let line = format_args!("What is left of another log could not be removed: {error}");
        operator.tell(Severity::Warning, line);
    }
    Ok(())
}

/// Formats a number of bytes in a fitting unit.
fn amount(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{} kB", bytes / 1000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

/// Returns true if the log of a data directory has ever had a record. Always true for a log that was created at run
/// time: it holds the keys of that moment, even if there were none.
///
/// # Errors
/// When the directory cannot be read. Errors of the log itself are reported by [`recover`].
pub fn was_ever_written(log_directory: &LogDirectory) -> Result<bool, RecoveryError> {
    let dir = log_directory.current()?;
    if !log_directory.is_first(&dir) || !log_directory.is_log(&dir)? {
        return Ok(!log_directory.is_first(&dir));
    }
    let (disk, options) = (Arc::clone(&log_directory.disk), log_directory.options.wal.clone());
    let opened = Wal::open_idle_on(disk, &dir, options, |_| Err("a record".to_owned()));
    Ok(opened.map_or(true, |(wal, _)| wal.was_ever_written()))
}

/// Appends a record to an unused log that says that its data has no offset in a replication stream, because some of
/// it is lost. Does nothing if there is no log or it is empty.
///
/// # Errors
/// When the log cannot be written.
pub fn leave_stream(dir: &Path) -> Result<(), tierce_storage::Error> {
    let (disk, options) = (Arc::new(OsDisk), LogOptions::default().wal);
    match Wal::open_idle_on(disk, dir, options, |_| Ok(())) {
        Ok((wal, recovery)) if recovery.records > 0 => {
            wal.append(&tierce_keyspace::log::no_position())?;
            wal.close()
        }
        // This is another kind of store.
        _ => Ok(()),
    }
}

/// Returns a function that calls `tell` each time [`TELL_EVERY_BYTES`] more were loaded.
fn now_and_then(mut tell: impl FnMut(u64)) -> impl FnMut(u64) {
    let mut told = 0;
    move |bytes| {
        if bytes - told >= TELL_EVERY_BYTES {
            told = bytes;
            tell(bytes);
        }
    }
}

/// Loads the log in `dir`, with the locations of the values on disk that it refers to, into a keyspace. Regularly
/// tells `tell` how many bytes are loaded.
///
/// # Errors
/// When the log cannot be read, or has lost values and that is not accepted.
pub fn replay(
    keyspace: &Arc<Keyspace>,
    disk: Arc<dyn Disk>,
    dir: &Path,
    losses: Losses<'_>,
    tell: impl FnMut(u64),
) -> Result<(Wal, WalRecovery), RecoveryError> {
    let mut tell = now_and_then(tell);
    let note = |bytes| {
        tell(bytes);
        Ok(())
    };
    load(keyspace, &disk, dir, &LogOptions::default(), losses, None, note)
}

fn load(
    keyspace: &Arc<Keyspace>,
    disk: &Arc<dyn Disk>,
    dir: &Path,
    options: &LogOptions,
    losses: Losses<'_>,
    mut search: Option<&mut CutSearch>,
    mut note: impl FnMut(u64) -> Result<(), GivenUp>,
) -> Result<(Wal, WalRecovery), RecoveryError> {
    let cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let threads = options.loaders.unwrap_or_else(cores).get();
    let data_dir = dir.parent().unwrap_or(Path::new(""));
    let cold_dir = cold_dir(data_dir);
    let cold_failed = |error| RecoveryError::of(&cold_dir, error);
    let cold_options = options.cold.clone();
    open_cold(keyspace, Arc::clone(disk), &cold_dir, cold_options).map_err(cold_failed)?;
    let mut replay = Replay::start(Arc::clone(keyspace), threads, crate::clock::unix_ms())?;
    let mut bytes = 0;
    let take = |record: &[u8]| {
        bytes += record.len() as u64;
        note(bytes).map_err(|given_up| given_up.to_string())?;
        if let Some(search) = &mut search {
            search.take(record).map_err(|error| error.to_string())?;
        }
        replay.record(record).map_err(|error| error.to_string())
    };
    let failed = |error| RecoveryError::of(dir, error);
    let opened = Wal::open_idle_on(Arc::clone(disk), dir, options.wal.clone(), take);
    let (wal, recovery) = opened.map_err(failed)?;
    let finished = replay.finish();
    finished.map_err(|error| RecoveryError::Operation { dir: dir.to_owned(), error })?;
    // Free memory first. A thread that starts now may inherit memory of this load, and would keep the surplus.
    crate::memory::collect();
    wal.start_threads(dir).map_err(failed)?;
    if let Some(store) = keyspace.cold_store() {
        let flaws = store.flaws();
        if !flaws.is_empty() {
            losses.check(keyspace, data_dir, flaws)?;
        }
        store.finish_recovery_with_losses().map_err(cold_failed)?;
    }
    Ok((wal, recovery))
}

/// Opens the spilled values that the log may refer to, for a keyspace about to be loaded. Creates nothing if there
/// are none.
///
/// # Errors
/// When they cannot be opened.
fn open_cold(
    keyspace: &Keyspace,
    disk: Arc<dyn Disk>,
    dir: &Path,
    options: ColdOptions,
) -> Result<(), tierce_storage::Error> {
    // The store may be empty: an old part of the log may refer to values that are no longer needed.
    let is_there = disk.list(dir).is_ok();
    if is_there && keyspace.cold_store().is_none() {
        let store = ColdStore::open(disk, dir, options)?;
        keyspace.set_cold_store(Arc::new(store));
    }
    Ok(())
}

/// Policy for values on disk that the log refers to and that are missing.
pub enum Losses<'l> {
    /// Loading fails.
    Refuse,
    /// The operator is told, and reading such a value is an error.
    Accept(&'l dyn Operator),
}

impl Losses<'_> {
    fn check(
        self,
        keyspace: &Keyspace,
        dir: &Path,
        flaws: Vec<tierce_storage::Error>,
    ) -> Result<(), RecoveryError> {
        let lost = LostValues::find(keyspace, EXAMPLES_MAX);
        let Self::Accept(operator) = self else {
            return Err(RecoveryError::Lost { dir: dir.to_owned(), flaws, keys: lost.keys });
        };
        for flaw in flaws {
            let line = format_args!("Values on disk are gone: {flaw}");
            operator.tell(Severity::Warning, line);
        }
        let names = lost.examples.iter().map(|(_, key)| key.escape_ascii().to_string());
        operator.tell(
            Severity::Warning,
            format_args!(
                "{} without a value, which means errors until they are written or deleted, among them: {}",
                count(lost.keys, "key"),
                names.collect::<Vec<_>>().join(" ")
            ),
        );
        Ok(())
    }
}
