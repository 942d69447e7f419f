//! Errors that keep a server from starting.

use std::io;

use crate::acl::FileError;
use crate::bucket;
use crate::engine::OpenError;
use crate::listening::ListeningError;
use crate::log::LogError;
use crate::tls::TlsError;
use tierce_transfer::FirstImportError;

/// Reason why the server could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration of encrypted connections is wrong.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The server cannot listen on its addresses.
    #[error("{}{}", .0, .0.next_step())]
    Listening(#[from] ListeningError),
    /// The gateway cannot listen on the HTTP address.
    #[error("{0}; http-port and bind say where")]
    Http(#[from] tierce_gateway::ListenError),
    /// The data cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A directive names a database that does not exist.
    #[error("{directive} {wanted}: `databases` is {there}")]
    NoSuchDatabase {
        /// Name of the directive.
        directive: &'static str,
        /// Its value.
        wanted: usize,
        /// Number of databases.
        there: usize,
    },
    /// Directives name files that must differ.
    #[error("{0}")]
    Files(String),
    /// The log file cannot be opened.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The users of the configuration, or of the ACL file, are wrong.
    #[error(transparent)]
    Users(#[from] FileError),
    /// The names of commands are wrong.
    #[error("{0}")]
    Commands(String),
    /// Data of Redis cannot be imported.
    #[error(transparent)]
    FirstImport(#[from] FirstImportError),
    /// The limit of open files is too low for even one client.
    #[error(
        "could not start: the limit of open files is too low for any client; ulimit -n must be \
             {needed} or more"
    )]
    Descriptors {
        /// Number of descriptors that one client needs.
        needed: u64,
    },
    /// The log in a bucket cannot be used.
    #[error(transparent)]
    Bucket(#[from] bucket::BucketError),
    /// The system cannot provide threads or descriptors.
    #[error(
        "could not start: {0}; the limits of processes and open files (ulimit -u, ulimit -n) may be too low"
    )]
    Io(#[from] io::Error),
}
