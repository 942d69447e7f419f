//! Errors of requests.

use std::io;

use thiserror::Error;
use tierce_wire::pedrokv::TooLong;

/// Reason why a request has failed. It concerns this request only: the client goes on, and reconnects if necessary.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The client has been closed. If the request was in flight, the server may have executed it.
    #[error("client closed")]
    Closed,
    /// The connection ended after the request, or a part of it, was sent. It is unknown if the server has executed
    /// it.
    #[error("the connection was lost while the request was under way: {}", .0)]
    Disconnected(io::ErrorKind),
    /// There is no connection, and the request has not been sent.
    #[error("the server cannot be reached: {}", .0)]
    Unreachable(io::ErrorKind),
    /// The server refused the greeting of the connection, such as a password.
    #[error("the server refused the connection: {}", .0)]
    Refused(String),
    /// There was no answer in time.
    #[error("no answer in time; the request was {}", if *.sent { "sent" } else { "never sent" })]
    TimedOut {
        /// True if the server may have seen the request.
        sent: bool,
    },
    /// The window is full, and the caller cannot wait because it is a callback.
    #[error("too many requests are in flight")]
    WindowFull,
    /// The request exceeds a limit of the protocol, and has not been sent.
    #[error("the request does not fit the protocol: {}", .0)]
    TooLong(#[from] TooLong),
    /// A command without a name, or one after which answers no longer match requests.
    #[error("this command cannot be sent here: {}", .0)]
    Unsupported(String),
    /// The server violated its protocol. The connection was closed.
    #[error("the server broke the protocol: {}", .0)]
    Protocol(String),
    /// The server answered with an error of this text.
    #[error("{}", .0)]
    Server(String),
    /// The server answered, but not with a valid answer to this request.
    #[error("an unexpected answer: {}", .0)]
    Unexpected(String),
}

impl Error {
    /// Makes the error for an error reply of the server.
    pub(crate) fn server(text: &[u8]) -> Error {
        Error::Server(String::from_utf8_lossy(text).into_owned())
    }

    /// Returns true if the request was certainly not executed, so that it can be made again safely.
    pub fn is_harmless(&self) -> bool {
        matches!(
            self,
            Error::Unreachable(_)
                | Error::Refused(_)
                | Error::TimedOut { sent: false }
                | Error::WindowFull
                | Error::TooLong(_)
                | Error::Unsupported(_)
        )
    }
}
