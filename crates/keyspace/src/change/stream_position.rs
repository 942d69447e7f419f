//! The replication offset that the data of a replica corresponds to, so that the replica can continue there after a
//! restart.
//!
//! The offset is logged in the record of the change that reaches it. **Invariant:** the last offset in a log is that of
//! the data in this log, or an older one after which the stream has changed nothing. So a power cut that takes the end
//! of the log takes data and offset together.
//!
//! A primary logs the final offset in its own stream once, at an orderly shutdown ([`ShardLocks::end_at`]), and
//! revokes it at the next start ([`ShardLocks::move_to`]). So the log of a primary that was killed has none.

use parking_lot::Mutex;

use crate::db_index::DbIndex;

/// Length of the name of a stream.
pub const STREAM_NAME_LEN: usize = 40;

/// An offset in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPosition {
    /// The name of the stream.
    pub stream: [u8; STREAM_NAME_LEN],
    /// Number of bytes of the stream that are applied.
    pub offset: u64,
    /// Database that is selected there.
    pub db: DbIndex,
}

/// Pending offset that the next changes reach.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub(crate) position: Option<StreamPosition>,
    /// True if it is logged even without a change.
    pub(crate) is_forced: bool,
    /// True if it is in this server's own stream: a primary that shuts down.
    pub(crate) is_own: bool,
}

/// Offset of the data, as in the log. Locked while a record with an offset is appended, so that a checkpoint does not
/// restate an older one after it.
pub(crate) type KnownPosition = Mutex<Option<StreamPosition>>;
