//! Why a server could not start.

use std::io;

use crate::acl::FileError;
use crate::bucket;
use crate::engine::OpenError;
use crate::listening::ListeningError;
use crate::log::LogError;
use crate::tls::TlsError;
use tierce_transfer::FirstImportError;

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Something about encrypted connections.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Something about the addresses to listen on.
    #[error("{}{}", .0, .0.next_step())]
    Listening(#[from] ListeningError),
    /// Where to speak HTTP.
    #[error("{0}; http-port and bind say where")]
    Http(#[from] tierce_gateway::ListenError),
    /// The data.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A directive names a database that there is not.
    #[error("{directive} {wanted}: there are only {there} databases")]
    NoSuchDatabase {
        /// The directive.
        directive: &'static str,
        /// What it says.
        wanted: usize,
        /// How many there are.
        there: usize,
    },
    /// Directives name files that must not be the same.
    #[error("{0}")]
    Files(String),
    /// The file to log into.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The users of the configuration, or of the file of users.
    #[error(transparent)]
    Users(#[from] FileError),
    /// The names of commands.
    #[error("{0}")]
    Commands(String),
    /// Data that Redis left.
    #[error(transparent)]
    FirstImport(#[from] FirstImportError),
    /// Hardly any client could connect, or none.
    #[error(
        "could not start: the limit of open files is too low for any client; ulimit -n must be \
             {needed} or more"
    )]
    Descriptors {
        /// As many as one client needs.
        needed: u64,
    },
    /// The log in a bucket.
    #[error(transparent)]
    Bucket(#[from] bucket::BucketError),
    /// The system has no threads or descriptors to give.
    #[error(
        "could not start: {0}; the limits of processes and open files (ulimit -u, ulimit -n) may be too low"
    )]
    Io(#[from] io::Error),
}
