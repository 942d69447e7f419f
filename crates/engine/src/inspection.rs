//! Finds out how a start from a data directory would go, without changing it: for `tierce check`.
//!
//! The log and the spilled values are opened by the code of a start, on a disk that keeps changes in
//! memory, so the check cannot disagree with the server. Like a server, it needs memory for all data.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tierce_keyspace::{Keyspace, Options, VALUE_LEN_MAX};
use tierce_storage::disk::OverlayDisk;

use crate::durability::{self, DurableLog, LogDirectory, LogOptions, RecoveryError};
use crate::loading::Loading;
use crate::log::Log;
use crate::persistence::{LoadError, verify};
use tierce_config::{LogLevel, is_own_name};

/// Outcome of a start with a log.
#[derive(Debug)]
pub enum Start {
    /// The start succeeds.
    Succeeds {
        /// Number of keys.
        keys: u64,
    },
    /// The start is refused, unless the loss of values is accepted.
    Loses {
        /// Error of the start.
        refusal: String,
        /// Errors of the files whose values are lost.
        flaws: Vec<tierce_storage::Error>,
        /// Number of keys if it is accepted, including those that have lost their values.
        keys: u64,
    },
    /// The start is refused.
    Fails {
        /// Error of the start.
        refusal: String,
    },
}

/// Contents of a data directory.
#[derive(Debug)]
pub struct Contents {
    /// Directory of the authoritative log, even if it does not exist.
    pub log: PathBuf,
    /// Other files of the server: logs that are not authoritative, and marker files.
    pub others: Vec<PathBuf>,
    /// Directory of the spilled values.
    pub cold: Option<PathBuf>,
    /// The snapshot.
    pub snapshot: Option<PathBuf>,
}

impl Contents {
    /// Returns true if there is nothing, so that it may be no data directory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.log.exists()
            && self.others.is_empty()
            && self.cold.is_none()
            && self.snapshot.is_none()
    }
}

/// Lists the contents of a data directory.
///
/// # Errors
/// When it cannot be read, or a required file is missing.
pub fn contents(dir: &Path) -> std::io::Result<Contents> {
    const SNAPSHOT: &str = "dump.rdb";
    let log = durability::log_dir(dir)?;
    let cold = Some(durability::cold_dir(dir)).filter(|cold| cold.is_dir());
    let snapshot = Some(dir.join(SNAPSHOT)).filter(|snapshot| snapshot.is_file());
    let mut others = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let is_own = path.file_name().is_some_and(|name| is_own_name(name.as_encoded_bytes()));
        if is_own && path != log && Some(&path) != cold.as_ref() {
            others.push(path);
        }
    }
    others.sort_unstable();
    Ok(Contents { log, others, cold, snapshot })
}

/// Starts from the log of a data directory as a server does, without changing anything. Returns the
/// outcome.
///
/// # Errors
/// When the outcome is unknown: a server uses the directory, or it cannot be read.
pub fn start(dir: &Path, databases: usize) -> Result<Start, String> {
    match open(dir, databases, false) {
        Ok(keys) => Ok(Start::Succeeds { keys }),
        Err(RecoveryError::Log { error: tierce_storage::Error::Locked { .. }, dir }) => {
            Err(format!("{} is in use by another process", dir.display()))
        }
        Err(error) => {
            let refusal = error.to_string();
            let RecoveryError::Lost { flaws, .. } = error else {
                return Ok(Start::Fails { refusal });
            };
            Ok(match open(dir, databases, true) {
                Ok(keys) => Start::Loses { refusal, flaws, keys },
                Err(error) => Start::Fails { refusal: error.to_string() },
            })
        }
    }
}

/// Returns false if the log of a data directory never had a record, so a start imports data of Redis.
#[must_use]
pub fn was_ever_written(dir: &Path) -> bool {
    // The start reports the errors.
    durability::was_ever_written(&log_directory(dir)).unwrap_or(true)
}

fn log_directory(dir: &Path) -> LogDirectory {
    LogDirectory::new(Arc::new(OverlayDisk::new()), dir, LogOptions::default())
}

/// Returns the number of keys after a start.
fn open(dir: &Path, databases: usize, accepts_losses: bool) -> Result<u64, RecoveryError> {
    let options = Options {
        databases,
        seed: crate::random::word(),
        value_len_max: VALUE_LEN_MAX,
        ..Options::default()
    };
    let keyspace = Keyspace::new(options).map_err(std::io::Error::other)?;
    let keyspace = Arc::new(keyspace);
    let log_directory = log_directory(dir);
    let (durable_log, log) = (DurableLog::default(), Log::open(None, LogLevel::Nothing));
    let log = log.expect("nothing is opened");
    let loading = Loading::default();
    durability::recover(&durable_log, &keyspace, &log_directory, &log, accepts_losses, &loading)?;
    Ok(keyspace.total_len())
}

/// Reads a snapshot as a start without a log does. Returns the number of keys.
///
/// # Errors
/// Those of the start.
pub fn snapshot(path: &Path, databases: usize) -> Result<u64, LoadError> {
    verify(path, databases)
}
