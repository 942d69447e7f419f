//! Why data could not be imported or exported.

use std::io;
use std::path::PathBuf;

use crate::durability::RecoveryError;
use crate::persistence::SaveError;
use tierce_engine::next_step;

/// Why nothing was imported or exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The log of the data directory: in use by a server, or damaged.
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
        "there are {keys} keys in {} already: --merge adds to them, --replace removes them",
        dir.display()
    )]
    HasData {
        /// The data directory.
        dir: PathBuf,
        /// How many keys it has.
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
    /// A manifest that says nothing sensible.
    #[error("{}: {source}", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong.
        source: tierce_rdb::aof::ManifestError,
    },
    /// A file without any bytes.
    #[error("{} is empty (0 bytes, or a pipe): there is nothing in it to import; take a whole copy of the file", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
    /// A file of Redis is damaged or cut short.
    #[error("{}: {source}; take a whole copy of the file, or mend it (redis-check-rdb, redis-check-aof --fix)", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
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
        /// Where the last whole one ends.
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
        /// Where the command ends.
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
        /// Where the command begins.
        offset: u64,
        /// Its name.
        name: String,
        /// What the server replied.
        reason: String,
    },
    /// A line of JSON that is wrong.
    #[error("{}, line {line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: u64,
        /// What is wrong.
        reason: String,
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
    /// Something that this server cannot hold.
    #[error("{}, near offset {offset}: {what}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// About where.
        offset: u64,
        /// What it is.
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
        /// Which libraries, and which function.
        what: String,
    },
    /// What was to be written exists.
    #[error("{} exists already, and nothing is overwritten; choose another name", path.display())]
    Exists {
        /// The file or directory.
        path: PathBuf,
    },
    /// The target is among the files of the server, which may load it.
    #[error("{} is in the data directory, of which a server may load it; choose a name outside of it", path.display())]
    InDataDir {
        /// The file or directory.
        path: PathBuf,
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
}

impl TransferError {
    pub(super) fn io<'a>(
        action: &'static str,
        path: &'a std::path::Path,
    ) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}
