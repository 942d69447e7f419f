//! What a start would make of a data directory, found out without changing it: for `tierce check`.
//!
//! The log and the spilled values are opened by the same code as in a start, on a disk that keeps changes
//! to itself, so the check cannot disagree with the server. Like a server, this needs memory for the data.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tierce_keyspace::{Keyspace, Options, VALUE_LEN_MAX};
use tierce_storage::disk::OverlayDisk;

use crate::durability::{self, DurableLog, LogDirectory, LogOptions, RecoveryError};
use crate::loading::Loading;
use crate::log::Log;
use crate::persistence::{LoadError, verify};
use tierce_config::{LogLevel, is_own_name};

/// What a start with a log comes to.
#[derive(Debug)]
pub enum Start {
    /// It succeeds, with this many keys.
    Succeeds {
        /// How many.
        keys: u64,
    },
    /// It is refused, unless the loss of values is accepted.
    Loses {
        /// What the start says.
        refusal: String,
        /// How many keys there are then, with those that have lost their values.
        keys: u64,
    },
    /// It is refused.
    Fails {
        /// What the start says.
        refusal: String,
    },
}

/// What is in a data directory.
#[derive(Debug)]
pub struct Contents {
    /// The log that counts, whether or not it is there.
    pub log: PathBuf,
    /// Other files of the server: logs that do not count, and files beside them.
    pub others: Vec<PathBuf>,
    /// Spilled values.
    pub cold: Option<PathBuf>,
    /// A snapshot.
    pub snapshot: Option<PathBuf>,
}

/// Looks what is in a data directory; `None` if it is none.
///
/// # Errors
/// When it cannot be read, or what should be there is not.
pub fn contents(dir: &Path) -> std::io::Result<Option<Contents>> {
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
    let contents = Contents { log, others, cold, snapshot };
    let is_empty = !contents.log.exists()
        && contents.others.is_empty()
        && contents.cold.is_none()
        && contents.snapshot.is_none();
    Ok((!is_empty).then_some(contents))
}

/// Starts from the log of a data directory as a server does, changes nothing, and says how it went.
///
/// # Errors
/// When that cannot be found out: a server uses the directory, or it cannot be read.
pub fn start(dir: &Path, databases: usize) -> Result<Start, String> {
    match open(dir, databases, false) {
        Ok(keys) => Ok(Start::Succeeds { keys }),
        Err(RecoveryError::Log { error: tierce_storage::Error::Locked { .. }, dir }) => {
            Err(format!("{} is in use by another process", dir.display()))
        }
        Err(error @ RecoveryError::Lost { .. }) => {
            let refusal = error.to_string();
            Ok(match open(dir, databases, true) {
                Ok(keys) => Start::Loses { refusal, keys },
                Err(error) => Start::Fails { refusal: error.to_string() },
            })
        }
        Err(error) => Ok(Start::Fails { refusal: error.to_string() }),
    }
}

/// How many keys there are after a start.
fn open(dir: &Path, databases: usize, accepts_losses: bool) -> Result<u64, RecoveryError> {
    let options = Options {
        databases,
        seed: crate::random::word(),
        value_len_max: VALUE_LEN_MAX,
        ..Options::default()
    };
    let keyspace = Keyspace::new(options).map_err(std::io::Error::other)?;
    let keyspace = Arc::new(keyspace);
    let log_directory = LogDirectory::new(Arc::new(OverlayDisk::new()), dir, LogOptions::default());
    let (durable_log, log) = (DurableLog::default(), Log::open(None, LogLevel::Nothing));
    let log = log.expect("nothing is opened");
    let loading = Loading::default();
    durability::recover(&durable_log, &keyspace, &log_directory, &log, accepts_losses, &loading)?;
    Ok(keyspace.total_len())
}

/// Reads a snapshot as a start without a log does; how many keys that has then.
///
/// # Errors
/// What the start would say.
pub fn snapshot(path: &Path, databases: usize) -> Result<u64, LoadError> {
    verify(path, databases)
}
