//! A shard's log: appending to it, the encoding of a write, and its way to the disk.
//!
//! * [`write`](mod@write): records that are written together, encoded by the calling thread.
//! * [`appender`]: appending. Under one short lock and without a system call, a write is numbered, copied into the
//!   shard's tail and applied to the index.
//! * `reservation`: appending records to a log without an index, by several threads at the same time.
//! * [`flush`]: moves blocks from the tail into segments, in a writer or the flusher.
//! * [`sync`]: group commit.
//! * [`seal`]: finishing segments, and closing.
//! * [`files`]: the files of a log, and the state that its writers and its [`threads`] share.
//! * [`salvage`]: recovers the content of a tail after a crash.
//!
//! Nothing here knows the index: its changes under the shard's lock are passed in as a closure. The points in
//! which a database differs from a plain log are in [`files::Owner`].

pub mod appender;
pub mod files;
pub mod flush;
pub mod options;
mod primitives;
pub(crate) mod published;
pub(crate) mod reservation;
pub mod salvage;
pub mod seal;
pub mod sync;
pub mod threads;
pub mod write;
