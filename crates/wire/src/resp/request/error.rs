//! Reasons why an input is not a sequence of requests.

use std::fmt;

use thiserror::Error;

/// The input violates the protocol; the connection has to be closed.
///
/// Messages are those of Redis 7.2, without the leading `ERR`: clients and test suites look for
/// these texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The number of arguments is no integer, or exceeds the limit.
    #[error("Protocol error: invalid multibulk length")]
    InvalidMultibulkLength,
    /// A client that has not authenticated sends more than a few arguments.
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedMultibulkLength,
    /// The line with the number of arguments exceeds the limit.
    #[error("Protocol error: too big mbulk count string")]
    MultibulkCountTooLong,
    /// An argument does not begin with `$`.
    #[error("Protocol error: expected '$', got '{}'", Shown(*got))]
    ExpectedBulk {
        /// The byte in place of the `$`.
        got: u8,
    },
    /// The length of an argument is no integer, is negative, or exceeds the limit.
    #[error("Protocol error: invalid bulk length")]
    InvalidBulkLength,
    /// A client that has not authenticated sends a long argument.
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulkLength,
    /// The line with the length of an argument exceeds the limit.
    #[error("Protocol error: too big bulk count string")]
    BulkCountTooLong,
    /// An inline request exceeds the limit.
    #[error("Protocol error: too big inline request")]
    InlineTooLong,
    /// A quoted word of an inline request is not closed, or something follows the closing quote.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// One request takes more than 4 GiB, which its spans cannot address. Redis has no such text.
    #[error("Protocol error: too big request")]
    RequestTooLarge,
}

/// A byte of the peer in a message. Control bytes are escaped: they could end the error line early
/// or reach a terminal.
struct Shown(u8);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            byte @ b' '..=b'~' => write!(f, "{}", char::from(byte)),
            b'\r' | b'\n' => f.write_str(" "),
            byte => write!(f, "\\x{byte:02x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_bytes_are_shown_safely() {
        let shown = |got| ProtocolError::ExpectedBulk { got }.to_string();
        assert_eq!(shown(b':'), "Protocol error: expected '$', got ':'");
        assert_eq!(shown(b'\r'), "Protocol error: expected '$', got ' '");
        assert_eq!(shown(0x1b), "Protocol error: expected '$', got '\\x1b'");
        assert_eq!(shown(0xff), "Protocol error: expected '$', got '\\xff'");
    }
}
