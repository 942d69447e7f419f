//! Errors of a race, by cause.

use std::io;
use std::path::{Path, PathBuf};

/// Reason why a race ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RaceError {
    /// Options that contradict each other, or an unsuitable directory.
    #[error("{0}")]
    Usage(String),
    /// The store broke its guarantees: the run is void.
    #[error("the run is void: {0}")]
    Void(String),
    /// The store returned an error.
    #[error("the run is void: {0}")]
    Store(#[from] tierce_cask::Error),
    /// A phase ended without a result.
    #[error("phase {phase}: {reason}")]
    Phase {
        /// Name of the phase.
        phase: String,
        /// Error message, or exit status of its process.
        reason: String,
    },
    /// A system call failed.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        /// Failed action, as a verb.
        action: &'static str,
        /// The file or directory concerned.
        path: PathBuf,
        /// Error of the operating system.
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
