//! Why a request has no answer.

use std::io;

use thiserror::Error;
use tierce_wire::pedrokv::TooLong;

/// Why a request has failed. What it says about the server holds for that request alone: the client
/// goes on, and connects anew if it has to.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The client has been closed. The request may have been carried out if it was under way.
    #[error("client closed")]
    Closed,
    /// The connection ended after the request, or part of it, was sent. It is unknown whether it has
    /// been carried out.
    #[error("the connection was lost while the request was under way: {}", .0)]
    Disconnected(io::ErrorKind),
    /// There is no connection, and the request has not been sent.
    #[error("the server cannot be reached: {}", .0)]
    Unreachable(io::ErrorKind),
    /// The server refused what a connection begins with, such as a password.
    #[error("the server refused the connection: {}", .0)]
    Refused(String),
    /// There was no answer in time.
    #[error("no answer in time; the request was {}", if *.sent { "sent" } else { "never sent" })]
    TimedOut {
        /// Whether the server may have seen the request.
        sent: bool,
    },
    /// The window is full, and the caller cannot wait: it is a callback.
    #[error("too many requests are in flight")]
    WindowFull,
    /// The request does not fit into the protocol, and has not been sent.
    #[error("the request does not fit the protocol: {}", .0)]
    TooLong(#[from] TooLong),
    /// A command without a name, or one after which answers no longer follow requests.
    #[error("this command cannot be sent here: {}", .0)]
    Unsupported(String),
    /// The server sent something that is not its protocol. The connection was given up.
    #[error("the server broke the protocol: {}", .0)]
    Protocol(String),
    /// The server answered with an error, whose text this is.
    #[error("{}", .0)]
    Server(String),
    /// The server answered, but not what this request is answered with.
    #[error("an unexpected answer: {}", .0)]
    Unexpected(String),
}

impl Error {
    /// The error that the server has sent, as text.
    pub(crate) fn server(text: &[u8]) -> Error {
        Error::Server(String::from_utf8_lossy(text).into_owned())
    }

    /// Whether the request was certainly not carried out, so that it can be made again without harm.
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
