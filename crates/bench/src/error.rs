//! Errors, by cause.

use std::io;

use tierce_wire::resp::ReplyError;

/// Why a run or a comparison ended without a result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Options that contradict each other or are out of range.
    #[error("{0}")]
    Usage(String),
    /// No connection could be made.
    #[error(
        "cannot connect to {address}: {source}; start a server there, or name another with -h, -p or -s"
    )]
    Connect {
        /// Where to.
        address: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The server refused a command that had to succeed, such as AUTH.
    #[error("{address} refused {command}: {reply}")]
    Refused {
        /// Which server.
        address: String,
        /// The command.
        command: String,
        /// The server's answer.
        reply: String,
    },
    /// The server closed a connection while replies were due.
    #[error("the server closed a connection with {outstanding} replies due{}", quote(.said))]
    ConnectionLost {
        /// Replies that were still to come on this connection.
        outstanding: u64,
        /// The first error reply before that, which may be the reason.
        said: Option<String>,
    },
    /// The server sent what is no reply.
    #[error("the server does not speak RESP: {0}; --protocol and --tls name others")]
    Protocol(ReplyError),
    /// The same for the protocols of memcached.
    #[error("the server does not speak this protocol of memcached")]
    NotMemcached,
    /// The same for PedroKV.
    #[error("the server does not speak the protocol of PedroKV")]
    NotPedroKv,
    /// The server answers, but its data are not there yet.
    #[error("the server is loading its data; try again when that is done")]
    Loading,
    /// The server sent more replies than it got requests.
    #[error("the server sent {replies} replies too many")]
    Unasked {
        /// How many were not requested.
        replies: u64,
    },
    /// No reply came for a long time.
    #[error("no reply for {seconds} s with {outstanding} connections waiting")]
    Stalled {
        /// How long nothing came.
        seconds: u64,
        /// Connections with replies due.
        outstanding: usize,
    },
    /// The requests of one batch would take too much memory.
    #[error("encoded requests would take more than {limit} bytes: lower -P, -d or the ratio")]
    BatchTooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// A server to be compared did not start.
    #[error("{command}: {reason}")]
    Server {
        /// The command line.
        command: String,
        /// What happened, with the end of its output.
        reason: String,
    },
    /// Facts about a process could not be read.
    #[error("cannot read {path}: {source}")]
    Procfs {
        /// The file.
        path: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{context}: {source}")]
    Io {
        /// What was being done.
        context: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl Error {
    /// Wraps a failed system call, for `map_err`.
    pub(crate) fn io<E: Into<io::Error>>(context: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Io { context, source: source.into() }
    }
}

fn quote(said: &Option<String>) -> String {
    said.as_ref().map_or_else(String::new, |said| format!(", after saying {said:?}"))
}
