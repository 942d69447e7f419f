//! Why a snapshot could not be written or read.

use std::io;
use std::path::PathBuf;

use tierce_keyspace::SnapshotError;

use crate::loading::GivenUp;
use crate::next_step;

/// Why there is no new snapshot on disk.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SaveError {
    /// There is one save at a time. The text is the one that clients of Redis know.
    #[error("Background save already in progress")]
    InProgress,
    /// The snapshot could not begin or go on.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A value could not be encoded, or the file not be written.
    #[error("{}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: tierce_rdb::Error,
    },
    /// The file system refuses something.
    #[error("could not {action} {}: {source}{}", path.display(), next_step::of_system(source))]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file has a place where no snapshot may be.
    #[error("{} {reason}", path.display())]
    Place {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: &'static str,
    },
    /// The server ends, and the snapshot is no longer needed.
    #[error("the save was given up because the server ends")]
    GivenUp,
}

/// Why a snapshot could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The end of the server was asked for.
    #[error(transparent)]
    GivenUp(#[from] GivenUp),
    /// The file cannot be read.
    #[error("could not read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file is damaged or cut short.
    #[error("{}: {source}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        source: tierce_rdb::Error,
    },
    /// The value of a key is damaged.
    #[error("{}: the key {key}, near offset {offset}: {flaw}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The key, escaped.
        key: String,
        /// How far the file was read.
        offset: u64,
        /// What is wrong.
        flaw: String,
    },
    /// The file is whole, but this server cannot hold what is in it.
    #[error("{}, near byte {offset}: {what}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// About where.
        offset: u64,
        /// What it is.
        what: String,
    },
}
