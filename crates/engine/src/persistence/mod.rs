//! Snapshots on disk, in the format of Redis: when they are taken, how they are written and read.
//!
//! A save begins with a `Snapshot` of the keyspace on the requesting thread, so the client knows
//! the moment that is saved. The rest happens on one thread, the saver (`saver.rs`), while clients
//! continue to read and write. There is one save at a time.
//!
//! What it guarantees:
//! - The file of `dbfilename` is at any time a complete snapshot, the old one or the new one: the
//!   new one is written under another name, synced, and renamed (`file.rs`).
//! - A save that fails leaves the old file and says so in the log, in INFO, and, if
//!   `stop-writes-on-bgsave-error` asks for it, to all writers.
//! - A file that cannot be loaded as a whole ends the start. Nothing in it is skipped silently.
//!
//! `leftovers.rs` removes files that a killed process has left, `backup.rs` decides where BACKUP may
//! write.
//!
//! No worker waits for a disk: a client that says SAVE is suspended until the saver is through.

mod backup;
mod batches;
mod code;
mod error;
mod file;
mod host;
mod leftovers;
mod load;
mod own_files;
mod pace;
mod points;
mod save;
mod saver;
mod state;
mod streams;
mod unfit;
pub mod values;

use std::path::PathBuf;

use tierce_config::{DirectiveId, Settings};

pub use backup::Backup;
pub use code::{NamedScript, library_name};
pub use error::{LoadError, SaveError};
pub use file::{Install, NewFile, Syncing};
pub use host::Host;
pub use leftovers::{Holding, remove_leftovers, unfinished_import};
pub use load::{LoadReport, Source, load};
pub(crate) use load::{Names, Purpose, load_arriving, read, read_all, verify};
pub use own_files::OwnFiles;
pub use save::{CopySink, Encoder};
pub use saver::run as run_saver;
pub use state::{Cause, Persistence, SaveId};
pub use unfit::{Unfit, lacking, too_long};

/// Where the snapshot is.
pub fn snapshot_path(settings: &Settings) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    const NAME: DirectiveId = DirectiveId::of("dbfilename");
    let name = std::ffi::OsStr::from_bytes(settings.text(NAME));
    settings.dir().join(name)
}
