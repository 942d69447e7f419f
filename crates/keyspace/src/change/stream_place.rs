//! The replication offset that the data of a replica corresponds to, so that the replica can continue there after a
//! restart.
//!
//! The offset is logged in the record of the change that reaches it. **Invariant:** the last offset in a log is that of
//! the data in this log, or an older one after which the stream has changed nothing. So a power cut that takes the end
//! of the log takes data and offset together.
//!
//! A primary logs the place in its own stream once, when it ends in order ([`ShardLocks::end_at`]), and takes it back
//! when it starts ([`ShardLocks::move_to`]). So the log of a primary that was killed has none.

use parking_lot::Mutex;

use crate::db_index::DbIndex;

/// Length of the name of a stream.
pub const STREAM_NAME_LEN: usize = 40;

/// A place in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPlace {
    /// The name of the stream.
    pub stream: [u8; STREAM_NAME_LEN],
    /// So many bytes of it are known.
    pub offset: u64,
    /// The database that is selected there.
    pub db: DbIndex,
}

/// A place that the next changes lead to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub(crate) place: Option<StreamPlace>,
    /// It is logged even if nothing changes.
    pub(crate) is_forced: bool,
    /// It is in the stream of this server itself, which is a primary and ends here.
    pub(crate) is_own: bool,
}

/// The place of the data, as the log has it. Locked while a record with it is appended, so that a checkpoint does not
/// restate an older one behind it.
pub(crate) type KnownPlace = Mutex<Option<StreamPlace>>;
