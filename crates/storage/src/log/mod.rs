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

pub mod appender;
pub mod files;
pub mod flush;
pub mod options;
pub mod salvage;
pub mod seal;
pub mod sync;
pub mod threads;
pub mod write;
