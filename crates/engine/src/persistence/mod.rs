//! Snapshots on disk in Redis' format: when they are taken, and how they are written and read.
//!
//! A save begins with a `Snapshot` of the keyspace on the requesting thread, so the client knows the
//! moment that is saved. The rest happens on one thread, the saver (`saver.rs`), while clients
//! continue to read and write. At most one save runs at a time.
//!
//! Guarantees:
//! - The file of `dbfilename` is at any time a complete snapshot, the old one or the new one. The
//!   new one is written under another name, synced, and renamed (`file.rs`).
//! - A failed save leaves the old file. It is reported in the log and in INFO, and it makes the
//!   server refuse writes if `stop-writes-on-bgsave-error` says so.
//! - A file that cannot be loaded completely aborts the start. Nothing in it is skipped silently.
//!
//! `leftovers.rs` removes files that a killed process has left. `backup.rs` decides where BACKUP may
//! write.
//!
//! No worker waits for a disk: a client that sends SAVE is suspended until the saver has finished.

mod backup;
mod batches;
mod code;
mod error;
mod file;
mod host;
mod leftovers;
mod load;
mod member_deadlines;
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
pub use member_deadlines::MemberDeadlines;
pub use own_files::OwnFiles;
pub use save::{CopySink, Encoder};
pub use saver::run as run_saver;
pub use state::{Cause, Persistence, SaveId};
pub use unfit::{Unfit, lacking, too_long};

/// Returns the path of the snapshot.
pub fn snapshot_path(settings: &Settings) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    const NAME: DirectiveId = DirectiveId::of("dbfilename");
    let name = std::ffi::OsStr::from_bytes(settings.text(NAME));
    settings.dir().join(name)
}
