//! A shard's log: who may append to it, what a write consists of, and how it reaches the disk.
//!
//! * [`write`](mod@write): a put, delete or batch, encoded by the thread that wants it.
//! * [`lane`]: appending. A write is numbered, copied into the lane's tail and told to the index,
//!   all under one short lock; no system call.
//! * [`flush`]: from the tail into segments, in blocks, by whoever has time.
//! * [`sync`]: making it durable. Of all that want that, one does it for the others.
//! * [`salvage`]: what a tail still holds after a crash.
//!
//! Nothing here knows the index: what is to happen to it under the lane's lock comes in as a
//! closure, and the store as [`lane::Owner`].

pub(crate) mod flush;
pub(crate) mod lane;
pub(crate) mod salvage;
pub(crate) mod sync;
pub(crate) mod write;
