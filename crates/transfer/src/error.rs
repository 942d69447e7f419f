//! Reasons why data could not be imported or exported.

use std::io;
use std::path::PathBuf;

use crate::durability::RecoveryError;
use crate::persistence::SaveError;
use tierce_engine::next_step;

/// Reason why nothing was imported or exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The log of the data directory is in use by a server, or damaged.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// The log of the data directory cannot be written.
    #[error("the log cannot be written: {}{}", .0, next_step::of_store(.0))]
    Log(#[from] tierce_storage::Error),
    /// The file for Redis cannot be written.
    #[error(transparent)]
    Save(#[from] SaveError),
    /// There are keys already.
    #[error(
        "{} already has {}: --merge adds to the data, --replace removes it",
        dir.display(), tierce_engine::count(*keys, "key")
    )]
    HasData {
        /// The data directory.
        dir: PathBuf,
        /// Number of its keys.
        keys: u64,
    },
    /// There is no log to export.
    #[error("{} contains no Tierce data; --dir names the directory that the server has as dir", dir.display())]
    NoData {
        /// The data directory.
        dir: PathBuf,
    },
    /// A directory that is no append-only directory of Redis.
    #[error(
        "{} has no manifest of an append-only directory (*.manifest), or several; name Redis' appenddirname, or the \
         RDB file",
        dir.display()
    )]
    NoManifest {
        /// The directory.
        dir: PathBuf,
    },
    /// A manifest that cannot be parsed.
    #[error("{}: {source}", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// The fault in it.
        source: tierce_rdb::aof::ManifestError,
    },
    /// A file without any bytes.
    #[error("{} is empty (0 bytes, or a pipe): there is nothing in it to import; take a whole copy of the file", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
    /// A file of Redis is damaged or truncated.
    #[error("{}: {source}; take a whole copy of the file, or mend it (redis-check-rdb, redis-check-aof --fix)", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The fault and its offset.
        source: tierce_rdb::Error,
    },
    /// A file ends in the middle of a command, and that is not accepted.
    #[error(
        "{}: it ends in the middle of a command or transaction, behind byte {offset} \
         (aof-load-truncated yes leaves that out)",
        path.display()
    )]
    CutOff {
        /// The file.
        path: PathBuf,
        /// Offset behind the last complete command.
        offset: u64,
    },
    /// A command that this server does not know.
    #[error(
        "{}: the command {name} at offset {offset} is unknown (--skip-unknown skips it)",
        path.display()
    )]
    UnknownCommand {
        /// The file.
        path: PathBuf,
        /// Offset at which the command begins.
        offset: u64,
        /// Its name.
        name: String,
    },
    /// A command that cannot be executed.
    #[error(
        "{}: the command {name} at offset {offset} failed: {reason} (--skip-unknown skips it)",
        path.display()
    )]
    FailedCommand {
        /// The file.
        path: PathBuf,
        /// Offset at which the command begins.
        offset: u64,
        /// Its name.
        name: String,
        /// Reply of the server.
        reason: String,
    },
    /// An invalid line of JSON.
    #[error("{}, line {line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// The fault in it.
        reason: String,
    },
    /// The value of a key is damaged.
    #[error("{}: the key {key}, near offset {offset}: {flaw}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The key, escaped.
        key: String,
        /// Offset up to which the file was read.
        offset: u64,
        /// The fault in it.
        flaw: String,
    },
    /// Data that this server cannot store.
    #[error("{}, near offset {offset}: {what}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// Approximate offset.
        offset: u64,
        /// Description of the data.
        what: String,
    },
    /// Libraries of the source and of the data directory have a function of the same name.
    #[error(
        "{}: {what}, so one of them could not be called; remove one with FUNCTION DELETE before, here or there",
        path.display()
    )]
    Functions {
        /// The file or directory.
        path: PathBuf,
        /// Names of the libraries and of the function.
        what: String,
    },
    /// The target exists already.
    #[error("{} exists already, and nothing is overwritten; choose another name", path.display())]
    Exists {
        /// The file or directory.
        path: PathBuf,
    },
    /// The target is among the server's own files, and a server may load it.
    #[error("{} is in the data directory, of which a server may load it; choose a name outside of it", path.display())]
    InDataDir {
        /// The file or directory.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("could not {action} {}: {source}{}", path.display(), next_step::of_system(source))]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

impl TransferError {
    pub(super) fn io<'a>(
        action: &'static str,
        path: &'a std::path::Path,
    ) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}
