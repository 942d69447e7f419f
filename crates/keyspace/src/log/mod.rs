//! Makes a keyspace durable: every change is an operation in a log, which replay loads again.
//!
//! * `op`: operations as bytes. An operation states the new value of a key, not the request, so
//!   replaying one twice, or on top of a later state of another key, does no harm.
//! * `pending`: operations of the shards a thread holds locked, on their way to the log.
//! * `batch`, `piece`: what is too long for a record as several, which count together.
//! * `replay`: operations back into a keyspace, on several threads.
//! * `live`: operations of another server's log, while clients read.
//! * `moved`: values that another server has on its disk.
//! * `sift`: which records of a log are changes.
//! * `checkpoint`: writing every key again, so that the log up to there can go.
//!
//! **Order.** A record is appended before the shards of its operations are unlocked. So the records
//! of one key are in the order of its changes, and what another thread has seen is in the log.
//!
//! **Atomicity.** All operations under one lock, or under one [`MultiShardGuard`](crate::MultiShardGuard), are one
//! record or, if they are longer than a piece, one batch of records. A log keeps a record whole or not at all, and a
//! batch counts from its last record on; so MSET, RENAME or a transaction are there whole or not at all,
//! whatever their size. To give up in the middle of a batch, do not finish it.
//!
//! **Expiry** is a removal like any other. Deadlines are absolute and nothing expires while a log is
//! read: without the removal, an edit of what was in the log before the key expired, or before a
//! checkpoint reached it, would be all that is left of the key, and stay.

pub(crate) mod batch;
pub(crate) mod checkpoint;
mod live;
mod moved;
pub(crate) mod op;
pub(crate) mod pending;
mod piece;
pub(crate) mod replay;
mod sift;

pub use checkpoint::{Checkpoint, Pass};
pub use live::LiveReplay;
pub use op::{Effect, Malformed, Op, Reader, Stored, cut, no_place, plain_put};
pub use piece::Unfinished;

pub use crate::collections::{
    Edit, Edits, FieldDeadline, Fields, HashEdit, ListEdit, SetEdit, SortedSetEdit, StreamEdit,
    TimedField,
};
pub use crate::entry::{Attributes, Spilled};
pub use replay::{Replay, ReplayError, Replayed};
pub use sift::{Sieve, Sifted};

/// How what is logged is cut into records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// What happened under one lock is several records if it is more bytes than this, each with about as
    /// many at most. So neither is more than that copied, nor does a writer wait longer for another one's
    /// record. At least 1.
    pub piece_len: usize,
    /// A checkpoint writes a collection of more bytes than this in parts, under a lock each.
    pub large_bytes_min: usize,
    /// About as many bytes are such a part: some hundred elements, each of which may have to be waited
    /// for, in memory of its own. So a lock is held for some tens of microseconds.
    pub part_bytes: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { piece_len: 1 << 20, large_bytes_min: 64 << 10, part_bytes: 16 << 10 }
    }
}

/// Where records go, in the order in which they are appended.
///
/// Called with shards locked: an implementation must be quick, must not call the keyspace, and must
/// not fail. One that can no longer keep records remembers that, and the code that replies to requests asks
/// it before a reply is sent.
pub trait LogSink: Send + Sync {
    /// Appends one record: one or more operations that belong together, all of this kind.
    fn append(&self, record: &[u8], kind: RecordKind);
}

/// Why a record was written. A log keeps all of them; a reader that follows the changes of a server that is
/// ahead of it in nothing else needs the changes alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RecordKind {
    /// Something happened: a command, an expiry, an eviction, a flush.
    #[default]
    Change,
    /// A checkpoint wrote what was there again.
    Restatement,
    /// A value went to disk, or to another place there. Its key has the same value as before.
    Move,
}
