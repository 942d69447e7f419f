//! Why an input is not a sequence of replies.

use thiserror::Error;

use super::decoder::DEPTH_MAX;
use super::token::LINE_LEN_MAX;

/// The server broke the protocol; nothing after it can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// No type begins with this byte.
    #[error("unknown reply type {:?}", char::from(*got))]
    UnknownType {
        /// The byte in the place of a type.
        got: u8,
    },
    /// A count, length or number is none.
    #[error("malformed {:?} line in a reply", char::from(*of))]
    MalformedLine {
        /// The type the line is of.
        of: u8,
    },
    /// A line does not end.
    #[error("a reply line exceeds {LINE_LEN_MAX} bytes")]
    LineTooLong,
    /// A carriage return without its line feed, or a string longer than it said.
    #[error("CRLF is missing in a reply")]
    CrlfMissing,
    /// A string or aggregate whose length comes at its end.
    #[error("streamed replies are not supported")]
    Streamed,
    /// More values announced than can be counted.
    #[error("a reply announces more than 2^64 values")]
    TooManyValues,
    /// Aggregates in aggregates in aggregates.
    #[error("a reply nests deeper than {DEPTH_MAX} levels")]
    TooDeep,
}
