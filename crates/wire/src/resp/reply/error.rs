//! Reasons why an input is not a sequence of replies.

use thiserror::Error;

use super::decoder::DEPTH_MAX;
use super::token::LINE_LEN_MAX;

/// The server violated the protocol; nothing after this point can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// No type begins with this byte.
    #[error("unknown reply type {:?}", char::from(*got))]
    UnknownType {
        /// The byte in place of a type.
        got: u8,
    },
    /// A count, length or number is malformed.
    #[error("malformed {:?} line in a reply", char::from(*of))]
    MalformedLine {
        /// Type byte of the line.
        of: u8,
    },
    /// A line exceeds its limit.
    #[error("a reply line exceeds {LINE_LEN_MAX} bytes")]
    LineTooLong,
    /// A carriage return without its line feed, or a string longer than declared.
    #[error("CRLF is missing in a reply")]
    CrlfMissing,
    /// A string or aggregate whose length comes at its end.
    #[error("streamed replies are not supported")]
    Streamed,
    /// More values are declared than can be counted.
    #[error("a reply announces more than 2^64 values")]
    TooManyValues,
    /// Aggregates nest too deep.
    #[error("a reply nests deeper than {DEPTH_MAX} levels")]
    TooDeep,
}
