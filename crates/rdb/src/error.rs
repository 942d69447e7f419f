//! Errors, by cause. Every read error has the byte offset of the input where it was noticed.
//!
//! Inside a packed value (a listpack, a ziplist and the like, which may be compressed) the offset is that of the
//! first byte after the packed value, since its inner bytes have no position in the file.

use std::io;

/// Result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that reading and writing refuse or fail to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The underlying reader or writer failed.
    #[error("input or output failed at offset {offset}: {source}")]
    Io {
        /// How many bytes had been read or written.
        offset: u64,
        /// The answer of the reader or writer.
        source: io::Error,
    },
    /// The input ends where more was expected.
    #[error("the input ends at offset {offset}, expected {expected}")]
    Truncated {
        /// Where the input ends.
        offset: u64,
        /// What should have been there.
        expected: &'static str,
    },
    /// The bytes are not what the format has there.
    #[error("damaged at offset {offset}: expected {expected}")]
    Corrupt {
        /// Where the damage was noticed.
        offset: u64,
        /// What should have been there.
        expected: &'static str,
    },
    /// The version is none that this crate reads or writes.
    #[error("version {version} of the format is not supported, expected {min} to {max}")]
    Version {
        /// The version found or asked for.
        version: u32,
        /// The lowest version that would do.
        min: u16,
        /// The highest version that would do.
        max: u16,
    },
    /// The byte for the type of a value, or for what comes next, is unknown.
    #[error("unknown type {code} at offset {offset}")]
    UnknownType {
        /// Where the byte stands.
        offset: u64,
        /// The byte.
        code: u8,
    },
    /// A value belongs to a Redis module. Only the module can decode it.
    #[error("the value before offset {offset} belongs to the Redis module type {name}")]
    Module {
        /// The first byte after the value, so that reading can go on.
        offset: u64,
        /// The nine characters by which the module names its type.
        name: String,
    },
    /// Something that only versions of Redis before their release wrote.
    #[error("at offset {offset} is {what}, which no released version of Redis writes")]
    Unreleased {
        /// Where it stands.
        offset: u64,
        /// What it is.
        what: &'static str,
    },
    /// All bytes could be decoded, but their sum is not the one at their end.
    #[error(
        "wrong checksum before offset {offset}: the file says {stored:016x}, its bytes {computed:016x}"
    )]
    Checksum {
        /// Where the checksum ends.
        offset: u64,
        /// The checksum in the file.
        stored: u64,
        /// The checksum of its bytes.
        computed: u64,
    },
    /// A collection was announced with another number of elements than were handed over. What was
    /// written is unusable.
    #[error("{announced} elements were announced, but not as many were given")]
    Count {
        /// The number announced.
        announced: u64,
    },
    /// The version that is being written has no form for a value.
    #[error("{what} needs version {needed} of the format, and {version} is being written")]
    NotInVersion {
        /// What cannot be written.
        what: &'static str,
        /// The first version that can.
        needed: u16,
        /// The version being written.
        version: u16,
    },
    /// A value is larger than the format has room for.
    #[error("{what} of {len} bytes exceeds the {max} that the format has room for")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its length.
        len: u64,
        /// The limit.
        max: u64,
    },
    /// A key has no value left to read, since it was read or skipped before.
    #[error("there is no value to read here")]
    NoValue,
}
