//! A shard's log: who may append to it, and what a write consists of.
//!
//! * [`write`](mod@write): a put, delete or batch, encoded by the thread that wants it.
//! * [`lane`]: group commit. One writer leads and appends for all that wait.

pub(crate) mod lane;
pub(crate) mod write;
