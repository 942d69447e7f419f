//! Errors, by cause. Every read error has the byte offset of the input at which it was noticed.
//!
//! Inside a packed value (a listpack, a ziplist and the like, which may be compressed) the offset is that of the
//! first byte after the packed value, since its inner bytes have no position in the file.

use std::io;

/// Result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reasons why reading or writing fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The underlying reader or writer failed.
    #[error("input or output failed at offset {offset}: {source}")]
    Io {
        /// Number of bytes that had been read or written.
        offset: u64,
        /// Error of the reader or writer.
        source: io::Error,
    },
    /// The input ends too early.
    #[error("the input ends at offset {offset}, expected {expected}")]
    Truncated {
        /// Length of the input.
        offset: u64,
        /// Data expected there.
        expected: &'static str,
    },
    /// The bytes do not match the format.
    #[error("damaged at offset {offset}: expected {expected}")]
    Corrupt {
        /// Offset at which the damage was noticed.
        offset: u64,
        /// Data expected there.
        expected: &'static str,
    },
    /// This crate does not read or write the version.
    #[error("version {version} of the format is not supported, expected {min} to {max}")]
    Version {
        /// Version found or requested.
        version: u32,
        /// Lowest supported version.
        min: u16,
        /// Highest supported version.
        max: u16,
    },
    /// The byte for the type of a value, or for the next item, is unknown.
    #[error("unknown type {code} at offset {offset}")]
    UnknownType {
        /// Offset of the byte.
        offset: u64,
        /// The byte.
        code: u8,
    },
    /// A value belongs to a Redis module. Only the module can decode it.
    #[error("the value before offset {offset} belongs to the Redis module type {name}")]
    Module {
        /// Offset of the first byte after the value, from which reading can continue.
        offset: u64,
        /// Nine characters by which the module names its type.
        name: String,
    },
    /// An encoding that only pre-release versions of Redis wrote.
    #[error("at offset {offset} is {what}, which no released version of Redis writes")]
    Unreleased {
        /// Offset of the item.
        offset: u64,
        /// Description of the item.
        what: &'static str,
    },
    /// All bytes could be decoded, but the checksum at their end does not match.
    #[error(
        "wrong checksum before offset {offset}: the file says {stored:016x}, its bytes {computed:016x}"
    )]
    Checksum {
        /// Offset behind the checksum.
        offset: u64,
        /// The checksum in the file.
        stored: u64,
        /// The checksum of its bytes.
        computed: u64,
    },
    /// The number of written elements differs from the declared one. The output is unusable.
    #[error("the number of elements differs from the announced one, {announced}")]
    Count {
        /// Declared number.
        announced: u64,
    },
    /// The version that is being written cannot express a value.
    #[error("{what} needs version {needed} of the format, and {version} is being written")]
    NotInVersion {
        /// Description of the value.
        what: &'static str,
        /// First version that supports it.
        needed: u16,
        /// Version that is being written.
        version: u16,
    },
    /// A value exceeds a limit of the format.
    #[error("{what} of {len} bytes exceeds the {max} that the format has room for")]
    TooLarge {
        /// Description of the value.
        what: &'static str,
        /// Its length.
        len: u64,
        /// The limit.
        max: u64,
    },
    /// There is no value to read: it was read or skipped before.
    #[error("there is no value to read here")]
    NoValue,
}
