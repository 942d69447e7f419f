//! What makes a keyspace durable: every change as an operation in a log, and the way back.
//!
//! * `op`: operations as bytes. An operation says what became of a key, not what was asked for, so
//!   that replaying one twice, or on top of a later state of another key, does no harm.
//! * `pending`: operations of the shards a thread holds locked, on their way to the log.
//! * `replay`: operations back into a keyspace, on several threads.
//! * `checkpoint`: writing every key again, so that the log up to there can go.
//!
//! **Order.** A record is appended before the shards of its operations are unlocked. So the records
//! of one key stand in the order of its changes, and what another thread has seen is in the log.
//!
//! **Atomicity.** All operations under one lock, or under one [`Many`](crate::Many), are one record.
//! A log keeps a record whole or not at all, and so MSET, RENAME or a transaction are there whole or
//! not at all.
//!
//! **What is not logged**: that a key expired, unless its value was on disk. Deadlines are absolute, and [`Replay::finish`] leaves
//! to the reaper what is due; a key that was removed because its deadline came is loaded and expires
//! again.

pub(crate) mod checkpoint;
pub(crate) mod op;
pub(crate) mod pending;
pub(crate) mod replay;

pub use checkpoint::{Checkpoint, Pass};
pub use op::Malformed;
pub use replay::{Replay, ReplayError, Replayed};

/// A record has at most this many bytes, unless it is a single operation with a longer value. What
/// happened under one lock and needs more is several records, and then not one as to a crash.
pub const RECORD_BYTES_MAX: usize = 512 << 20;

/// Where records go, in the order in which they are appended.
///
/// Called with shards locked: an implementation must be quick, must not call the keyspace, and must
/// not fail. One that can no longer keep records remembers that, and whoever replies to requests asks
/// it before a reply is sent.
pub trait LogSink: Send + Sync {
    /// Appends one record: one or more operations that belong together.
    fn append(&self, record: &[u8]);
}
