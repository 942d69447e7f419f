//! Makes a keyspace durable: every change is an operation in a log, which replay loads again.
//!
//! * `op`, `encode`: operations as bytes, and back. An operation states the new value of a key, not the request, so
//!   replaying one twice, or on top of a later state of another key, does no harm.
//! * `pending`: operations of the shards a thread holds locked, on their way to the log.
//! * `batch`, `piece`: what is too long for a record as several, which count together.
//! * `sift`: which records of a log are changes.
//!
//! [`replay`](crate::services::replay) brings them back into a keyspace, and [`checkpoint`](crate::services::checkpoint)
//! writes every key again, so that the log up to there can go.
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
pub(crate) mod encode;
pub(crate) mod op;
pub(crate) mod pending;
pub(crate) mod piece;
mod sift;
pub(crate) mod sink;

pub use encode::{cut, no_place};
pub use op::{Effect, Op, Stored, plain_put};
pub use piece::Unfinished;
pub use sift::{Sieve, Sifted};
pub use sink::{LogSink, RecordKind, Sizes};
