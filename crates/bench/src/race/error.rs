//! Errors of a race, by cause.

use std::io;
use std::path::{Path, PathBuf};

/// What ended a race.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RaceError {
    /// Options that contradict each other, or the place they lead to.
    #[error("{0}")]
    Usage(String),
    /// The store did not keep what it promised: the run counts for nothing.
    #[error("the run is void: {0}")]
    Void(String),
    /// The store refused or failed.
    #[error("the run is void: {0}")]
    Store(#[from] tierce_cask::Error),
    /// A phase ended without a result.
    #[error("phase {phase}: {reason}")]
    Phase {
        /// Which phase.
        phase: String,
        /// What it said, or how its process ended.
        reason: String,
    },
    /// The operating system failed a call.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        /// What was attempted, as a verb.
        action: &'static str,
        /// The file or directory concerned.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl RaceError {
    /// Wraps a failed system call, for `map_err`.
    pub(super) fn io<E: Into<io::Error>>(
        action: &'static str,
        path: &Path,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source: source.into() }
    }
}
