//! Why an operation on the keyspace was refused.

/// The reason an operation left the keyspace as it was.
///
/// The server translates these into the texts of its protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key holds a value of another type than the operation is for.
    #[error("the key holds a value of another type")]
    WrongType,
    /// The value is not the canonical text of a signed 64-bit integer.
    #[error("the value is not a 64-bit signed integer")]
    NotAnInteger,
    /// The result of an increment is outside of the signed 64-bit integers.
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
        /// Bytes of the value as it would have become.
        len: u64,
        /// The limit.
        max: usize,
    },
}

/// The result of an operation on the keyspace.
pub type Result<T> = std::result::Result<T, Error>;

/// A thread holds this shard for long. If the caller is a worker, it is woken when the shard is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("shard {shard} is busy")]
pub struct Busy {
    /// Its number.
    pub shard: usize,
}

/// Why a snapshot could not begin or go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// A shard is held for long by another thread, and the locks are a worker's.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// There is one at a time.
    #[error("a snapshot is in progress already")]
    InProgress,
    /// Copies came faster than they were fetched, for too long.
    #[error("more than {bytes_max} bytes of copies waited to be fetched: the snapshot is too slow")]
    TooSlow {
        /// The bound.
        bytes_max: usize,
    },
    /// A value on disk could not be read.
    #[error("a value on disk cannot be read: {0}")]
    Unreadable(String),
    /// A large collection is not where it was noted to be. This is a bug.
    #[error("a large collection was lost while it was being saved")]
    Lost,
}
