//! Makes a keyspace durable: every change is an operation in a log, which replay loads again.
//!
//! * `op`, `encode`: operations as bytes, and back. An operation states the new value of a key, not the request, so
//!   replaying one twice, or on top of a later state of another key, does no harm.
//! * `pending`: operations of the shards a thread holds locked, on their way to the log.
//! * `batch`, `piece`: what is too long for a record as several, which count together.
//! * `sift`: which records of a log are changes.
//!
//! `services/replay` brings them back into a keyspace, and `services/checkpoint.rs` writes every key again, so that the
//! log up to there can go.
//!
//! The guarantees are at [`crate::log`].

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
