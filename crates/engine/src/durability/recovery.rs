//! From the log back to the keys.

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
use crate::loading::{GivenUp, Loading};
use crate::next_step;

/// A line about the progress of loading appears this often.
const REPORT_EVERY: Duration = Duration::from_secs(2);

/// The progress of loading is reported each time that so much was loaded.
const TELL_EVERY_BYTES: u64 = 1 << 20;

/// This many keys are named whose values are gone.
const EXAMPLES_MAX: usize = 20;

/// Why the log could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoveryError {
    /// The log cannot be read, or was written by a newer version.
    #[error("the log in {}: {error}{}", dir.display(), next_step::of_store(error))]
    Log {
        /// Where the log is.
        dir: PathBuf,
        /// What is wrong.
        error: tierce_storage::Error,
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
        error: tierce_storage::Error,
    },
    /// Values are gone that the log says are on disk.
    #[error(
        "values on disk are gone, and nothing was loaded: {keys} keys have lost \
         theirs: {error}. To see all damage: tierce check {dir}. To start without these values: \
         spill-lost-values accept; their keys answer errors then until they are written or deleted",
        dir = dir.display()
    )]
    Lost {
        /// Where the values should be.
        dir: PathBuf,
        /// What is wrong with the first of the files.
        error: tierce_storage::Error,
        /// How many keys are concerned.
        keys: u64,
    },
    /// The log is whole, but says something that this version does not understand.
    #[error("the log in {}: {error}", dir.display())]
    Operation {
        /// Where the log is.
        dir: PathBuf,
        /// What is wrong.
        error: ReplayError,
    },
    /// The load was given up.
    #[error(transparent)]
    GivenUp(#[from] GivenUp),
    /// The system has no threads to give, or does not let the data directory be read.
    #[error("the log: {}{}", .0, next_step::of_system(.0))]
    Io(#[from] std::io::Error),
}

impl RecoveryError {
    /// By the kind of what the storage engine says.
    pub fn of(dir: &Path, error: tierce_storage::Error) -> Self {
        use tierce_storage::Error::{Corrupt, Foreign, Missing};
        let dir = dir.to_owned();
        match error {
            Corrupt { .. } | Foreign { .. } | Missing { .. } => Self::Damaged { dir, error },
            _ => Self::Log { dir, error },
        }
    }
}

/// Loads what the log in the data directory holds into the keyspace, which from then on writes
/// there. How far it is, it tells `loading`.
///
/// With `accepts_losses`, values that the log says are on disk may be gone, which the operator is told. Nothing is
/// removed before all of it has been loaded.
///
/// # Errors
/// When the log cannot be read, with the file and what can be done.
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

/// The same, and shows the records to a search.
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
                "The log ended in {} bytes that were never durable; they were cut off from {} at \
                 offset {}: {}",
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
                "Loaded {keys} {} from {} of log in {:.2} s",
                if keys == 1 { "key" } else { "keys" },
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
        // What a primary sends from there on would be applied to other data than its own.
        keyspace.locks().move_to(None);
    }
    if let Err(error) = log_directory.clear_others(&dir) {
        let line = format_args!("What is left of another log could not be removed: {error}");
        operator.tell(Severity::Warning, line);
    }
    Ok(())
}

/// A number of bytes in a unit that fits.
fn amount(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{} kB", bytes / 1000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

/// Whether there has ever been a record in the log of a data directory. One that was begun at run time holds what was
/// there then, even if that was nothing.
///
/// # Errors
/// When the directory cannot be read. What is wrong with the log itself, [`recover`] says.
pub fn was_ever_written(log_directory: &LogDirectory) -> Result<bool, RecoveryError> {
    let dir = log_directory.current()?;
    if !log_directory.is_first(&dir) || !log_directory.is_log(&dir)? {
        return Ok(!log_directory.is_first(&dir));
    }
    let (disk, options) = (Arc::clone(&log_directory.disk), log_directory.options.wal.clone());
    let opened = Wal::open_idle_on(disk, &dir, options, |_| Err("a record".to_owned()));
    Ok(opened.map_or(true, |(wal, _)| wal.was_ever_written()))
}

/// Notes at the end of a log, which no server uses, that its data are those of no stream: some of it is lost. Where
/// there is no log, or an empty one, nothing is done.
///
/// # Errors
/// When it cannot be written.
pub fn leave_stream(dir: &Path) -> Result<(), tierce_storage::Error> {
    let (disk, options) = (Arc::new(OsDisk), LogOptions::default().wal);
    match Wal::open_idle_on(disk, dir, options, |_| Ok(())) {
        Ok((wal, recovery)) if recovery.records > 0 => {
            wal.append(&tierce_keyspace::log::no_place())?;
            wal.close()
        }
        // A store of another kind.
        _ => Ok(()),
    }
}

/// Has `tell` called each time that so much more was loaded.
fn now_and_then(mut tell: impl FnMut(u64)) -> impl FnMut(u64) {
    let mut told = 0;
    move |bytes| {
        if bytes - told >= TELL_EVERY_BYTES {
            told = bytes;
            tell(bytes);
        }
    }
}

/// Loads the log in `dir`, and the places of what it says is on disk beside it, into a keyspace, telling
/// `tell` now and then how many bytes that were.
///
/// # Errors
/// When the log cannot be read, or, unless that is accepted, has lost values.
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
    let cold_dir = dir.parent().map(cold_dir).unwrap_or_default();
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
    // A thread that starts may get memory that was used here. It would keep what it does not need of it.
    crate::memory::collect();
    wal.start_threads(dir).map_err(failed)?;
    if let Some(store) = keyspace.cold_store() {
        let flaws = store.flaws();
        if !flaws.is_empty() {
            losses.judge(keyspace, &cold_dir, flaws)?;
        }
        store.finish_recovery_with_losses().map_err(cold_failed)?;
    }
    Ok((wal, recovery))
}

/// Gives a keyspace that is about to be loaded from a log the values that the log may refer to; where
/// there are none, nothing is made.
///
/// # Errors
/// When they cannot be opened.
fn open_cold(
    keyspace: &Keyspace,
    disk: Arc<dyn Disk>,
    dir: &Path,
    options: ColdOptions,
) -> Result<(), tierce_storage::Error> {
    // It may be empty: an old part of the log may refer to values that are no longer needed.
    let is_there = disk.list(dir).is_ok();
    if is_there && keyspace.cold_store().is_none() {
        let store = ColdStore::open(disk, dir, options)?;
        keyspace.set_cold_store(Arc::new(store));
    }
    Ok(())
}

/// What to do when values are gone that the log says are on disk.
pub enum Losses<'l> {
    /// Nothing is loaded.
    Refuse,
    /// It is logged, and reading such a value is an error.
    Accept(&'l dyn Operator),
}

impl Losses<'_> {
    fn judge(
        self,
        keyspace: &Keyspace,
        dir: &Path,
        mut flaws: Vec<tierce_storage::Error>,
    ) -> Result<(), RecoveryError> {
        let lost = LostValues::find(keyspace, EXAMPLES_MAX);
        let Self::Accept(operator) = self else {
            let (dir, error) = (dir.to_owned(), flaws.swap_remove(0));
            return Err(RecoveryError::Lost { dir, error, keys: lost.keys });
        };
        for flaw in flaws {
            let line = format_args!("Values on disk are gone: {flaw}");
            operator.tell(Severity::Warning, line);
        }
        let names = lost.examples.iter().map(|(_, key)| key.escape_ascii().to_string());
        operator.tell(
            Severity::Warning,
            format_args!(
                "{} keys have no value any more and answer errors until they are written or \
                 deleted, among them: {}",
                lost.keys,
                names.collect::<Vec<_>>().join(" ")
            ),
        );
        Ok(())
    }
}
