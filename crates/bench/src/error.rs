//! Errors, by cause.

use std::io;

use tierce_wire::resp::ReplyError;

/// Reason why a run or a comparison ended without a result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Options that contradict each other or are out of range.
    #[error("{0}")]
    Usage(String),
    /// The connection failed.
    #[error(
        "cannot connect to {address}: {source}; start a server there, or name another with -h, -p or -s"
    )]
    Connect {
        /// Address of the server.
        address: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The server refused a command that had to succeed, such as AUTH.
    #[error("{address} refused {command}: {reply}")]
    Refused {
        /// Address of the server.
        address: String,
        /// The command.
        command: String,
        /// Answer of the server.
        reply: String,
    },
    /// The server closed a connection with pending replies.
    #[error("the server closed a connection with {outstanding} replies due{}", quote(.said))]
    ConnectionLost {
        /// Number of pending replies on this connection.
        outstanding: u64,
        /// First error reply before that, which may be the reason.
        said: Option<String>,
    },
    /// The server sent something that is no reply.
    #[error("the server does not speak RESP: {0}; --protocol and --tls name others")]
    Protocol(ReplyError),
    /// The server sent no reply of memcached's protocols.
    #[error("the server does not speak this protocol of memcached")]
    NotMemcached,
    /// The server sent no response of PedroKV's protocol.
    #[error("the server does not speak the protocol of PedroKV")]
    NotPedroKv,
    /// The server answers, but is still loading its data.
    #[error("the server is loading its data; try again when that is done")]
    Loading,
    /// The server sent more replies than it got requests.
    #[error("the server sent {replies} replies too many")]
    Unasked {
        /// Number of replies without a request.
        replies: u64,
    },
    /// No reply came for a long time.
    #[error("no reply for {seconds} s with {outstanding} connections waiting")]
    Stalled {
        /// Number of seconds without a reply.
        seconds: u64,
        /// Number of connections with pending replies.
        outstanding: usize,
    },
    /// The requests of one batch would take too much memory.
    #[error("encoded requests would take more than {limit} bytes: lower -P, -d or the ratio")]
    BatchTooLarge {
        /// Limit in bytes.
        limit: usize,
    },
    /// A server to be compared did not start.
    #[error("{command}: {reason}")]
    Server {
        /// The command line.
        command: String,
        /// Reason, with the end of the server's output.
        reason: String,
    },
    /// Data about a process could not be read.
    #[error("cannot read {path}: {source}")]
    Procfs {
        /// The file.
        path: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{context}: {source}")]
    Io {
        /// Operation that failed.
        context: &'static str,
        /// Error of the operating system.
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
