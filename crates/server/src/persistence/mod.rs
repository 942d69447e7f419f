//! Snapshots on disk, in the format of Redis: when they are taken, how they are written and read.
//!
//! A save begins with a `Snapshot` of the keyspace, on the thread that wants it, and so at a moment
//! that the client who asked can rely on. The rest happens on one thread, the saver (`saver.rs`),
//! while everybody goes on reading and writing. There is one save at a time.
//!
//! What it guarantees:
//! - The file of `dbfilename` is at any time a complete snapshot, the old one or the new one: the
//!   new one is written under another name, synced, and renamed (`file.rs`).
//! - A save that fails leaves the old file and says so in the log, in INFO, and, if
//!   `stop-writes-on-bgsave-error` asks for it, to everybody who wants to write.
//! - A file that cannot be loaded as a whole ends the start. Nothing in it is skipped silently.
//!
//! `leftovers.rs` removes what a process has left that was killed on the way, `backup.rs` decides where
//! BACKUP may write.
//!
//! No worker waits for a disk: a client that says SAVE is suspended until the saver is through.

mod backup;
mod error;
pub(crate) mod file;
mod host;
mod leftovers;
mod load;
mod pace;
mod place;
mod points;
pub(crate) mod save;
mod saver;
mod state;
mod streams;
mod unfit;
pub(crate) mod values;

use std::path::PathBuf;

use crate::config::{DirectiveId, Settings};

pub use backup::Backup;
pub use error::{LoadError, SaveError};
pub use file::Install;
pub use host::Host;
pub(crate) use leftovers::{Holding, remove_leftovers, unfinished_import};
pub(crate) use load::{Names, Purpose, read, verify};
pub use load::{load, load_without_unsupported};
pub(crate) use place::OwnFiles;
pub use saver::run as run_saver;
pub use state::{Cause, Persistence, Ticket};
pub use unfit::Unfit;
pub(crate) use unfit::lacking;

/// Where the snapshot is.
#[must_use]
pub fn snapshot_path(settings: &Settings) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    const NAME: DirectiveId = DirectiveId::of("dbfilename");
    let name = std::ffi::OsStr::from_bytes(settings.text(NAME));
    settings.dir().join(name)
}
