//! Makes a keyspace durable: every change is an operation in a log, and replay loads the log.
//!
//! From a command to the file:
//!
//! | | type | file |
//! |---|---|---|
//! | operation | the bytes of a change; `Op` is their decoded view | `op`, `encode` |
//! | batch | `Batch`: the operations of the shards that a thread holds locked | `batch` |
//! | record | the bytes of a batch or, if that is long, of a piece of it | `piece` |
//! | log | [`LogSink`]: engine's `Feed`, for followers, and `DurableLog`, for the disk | `sink` |
//! | segment | storage's `Wal`, and the `Tail` of the segment that it writes to | |
//!
//! An operation states the new value of a key, not the request, so replaying one twice, or on top of a later state of
//! another key, does no harm. `sift` tells which records of a log are changes.
//!
//! `services/replay` loads operations into a keyspace, and `services/checkpoint.rs` writes every key again, so that
//! the log before it can be removed.
//!
//! [`crate::log`] has the guarantees.

pub(crate) mod batch;
pub(crate) mod encode;
pub(crate) mod op;
pub(crate) mod piece;
mod sift;
pub(crate) mod sink;

pub use encode::{cut, no_position};
pub use op::{Effect, Op, Stored, plain_put};
pub use piece::Unfinished;
pub use sift::{Sieve, Sifted};
pub use sink::{LogSink, RecordKind, Sizes};
