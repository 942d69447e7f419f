//! Errors of writing and reading snapshots.

use std::io;
use std::path::PathBuf;

use tierce_keyspace::SnapshotError;

use crate::loading::GivenUp;
use crate::next_step;

/// Reason why a save failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SaveError {
    /// Another save is running. The text is the one that Redis' clients know.
    #[error("Background save already in progress")]
    InProgress,
    /// The snapshot could not begin or continue.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A value could not be encoded, or the file could not be written.
    #[error("{}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The underlying error.
        source: tierce_rdb::Error,
    },
    /// The file system reports an error.
    #[error("could not {action} {}: {source}{}", path.display(), next_step::of_system(source))]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A snapshot must not be written to this path.
    #[error("{} {reason}", path.display())]
    ForbiddenPath {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: &'static str,
    },
    /// The server is shutting down, and the snapshot is no longer needed.
    #[error("the save was given up because the server ends")]
    GivenUp,
}

/// Reason why a snapshot could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The server was asked to shut down.
    #[error(transparent)]
    GivenUp(#[from] GivenUp),
    /// The file cannot be read.
    #[error("could not read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is damaged or truncated.
    #[error("{}: {source}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The damage, with its offset.
        source: tierce_rdb::Error,
    },
    /// The value of a key is damaged.
    #[error("{}: the key {key}, near offset {offset}: {flaw}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The key, escaped.
        key: String,
        /// Offset in the file up to which it was read.
        offset: u64,
        /// The damage.
        flaw: String,
    },
    /// The file is intact, but this server does not support something in it.
    #[error("{}, near byte {offset}: {what}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// Approximate offset in the file.
        offset: u64,
        /// The unsupported item.
        what: String,
    },
}
