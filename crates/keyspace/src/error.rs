//! Errors of operations on the keyspace.

/// Reason why an operation left the keyspace unchanged.
///
/// The server translates these into its protocols' error texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key holds a value of another type than the operation is for.
    #[error("the key holds a value of another type")]
    WrongType,
    /// The value is not the canonical text of a signed 64-bit integer.
    #[error("the value is not a 64-bit signed integer")]
    NotAnInteger,
    /// The result of an increment is outside of the range of signed 64-bit integers.
    #[error("the increment leaves the range of 64-bit signed integers")]
    IntegerOverflow,
    /// The key is longer than [`KEY_LEN_MAX`](crate::KEY_LEN_MAX).
    #[error("a key of {len} bytes is longer than the {max} allowed")]
    KeyTooLong {
        /// Bytes of the refused key.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The value is on disk, and could not be read.
    #[error("the value is on disk and cannot be read")]
    Unreadable,
    /// The value would become longer than
    /// [`Options::value_len_max`](crate::Options::value_len_max).
    #[error("a value of {len} bytes is longer than the {max} allowed")]
    ValueTooLong {
        /// Bytes of the resulting value.
        len: u64,
        /// The limit.
        max: usize,
    },
}

/// The result of an operation on the keyspace.
pub type Result<T> = std::result::Result<T, Error>;

/// A thread keeps this shard locked for long. If the caller is a worker, it is woken when the shard
/// is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("shard {shard} is busy")]
pub struct Busy {
    /// Its number.
    pub shard: usize,
}

/// Reason why a snapshot could not begin or continue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Another thread keeps a shard locked for long, and these are a worker's locks.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// Another snapshot is running.
    #[error("a snapshot is in progress already")]
    InProgress,
    /// Copies came faster than they were fetched, for too long.
    #[error("more than {bytes_max} bytes of copies waited to be fetched: the snapshot is too slow")]
    TooSlow {
        /// The limit.
        bytes_max: usize,
    },
    /// A value on disk could not be read.
    #[error("a value on disk cannot be read: {0}")]
    Unreadable(String),
    /// A large collection is not at its registered location. This is a bug.
    #[error("a large collection was lost while it was being saved")]
    Lost,
}
