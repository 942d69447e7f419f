//! A shard's log: appending to it, the parts of a write, and the way to the disk.
//!
//! * [`write`](mod@write): records that are written together, encoded by the calling thread.
//! * [`appender`]: appending. Under one short lock and without a system call, a write is numbered, copied into the
//!   shard's tail and applied to the index.
//! * [`flush`]: from the tail into segments, in blocks, by a writer or the flusher.
//! * [`sync`]: group commit.
//! * [`seal`]: finishing segments, and closing.
//! * [`files`]: the files of a log, and what its writers and its [`threads`] share.
//! * [`salvage`]: what a tail still holds after a crash.
//!
//! Nothing here knows the index: what happens to it under the shard's lock comes in as a closure, and what a
//! database does otherwise than a log alone as [`files::Owner`].

pub(crate) mod appender;
pub(crate) mod files;
pub(crate) mod flush;
pub(crate) mod options;
pub(crate) mod salvage;
pub(crate) mod seal;
pub(crate) mod sync;
pub(crate) mod threads;
pub(crate) mod write;
