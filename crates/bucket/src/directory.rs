//! The directory that a log in `file://` is in, which may go away while a server runs, with the file system it is on.
//!
//! The client library makes every directory that is missing on the way to an object. In a mount point without its file
//! system that would begin another log, and leave a hole in this one. So a directory that was there is held open, which
//! also keeps it from being unmounted by mistake, and a request is refused while its path leads elsewhere.

use std::fs::{File, Metadata, metadata};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use object_store::Error;

/// The directory, if the first object was put, and what was last known to be in it.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// The directory itself, wherever its path leads.
    file: Option<File>,
    /// The last object of the log that was seen, by its name below the directory. Where it is, the log is, also on another file system.
    anchor: Option<String>,
}

impl Directory {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, held: Mutex::default() }
    }

    /// An object of the log is there.
    pub(crate) fn note_anchor(&self, name: &str) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.anchor.as_deref() < Some(name) {
            held.anchor = Some(name.to_owned());
        }
    }

    /// Refuses a request while the path does not lead to the directory of the log.
    pub(crate) async fn check(self: &Arc<Self>) -> object_store::Result<()> {
        let directory = Arc::clone(self);
        // A file system that does not answer holds nobody else up.
        let checked = tokio::task::spawn_blocking(move || directory.check_now()).await;
        checked.map_err(|source| Error::JoinError { source })?.map_err(|reason| {
            let path = self.path.display();
            let source = format!("{path} {reason}; is its file system mounted?").into();
            Error::Generic { store: "directory", source }
        })
    }

    fn check_now(&self) -> Result<(), &'static str> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let there = metadata(&self.path).ok().filter(Metadata::is_dir);
        let Some(file) = &held.file else {
            held.file = there.and_then(|_| File::open(&self.path).ok());
            return Ok(());
        };
        let there = there.ok_or("has gone")?;
        let is_held = |file: Metadata| (file.dev(), file.ino()) == (there.dev(), there.ino());
        if file.metadata().is_ok_and(is_held) {
            return Ok(());
        }
        let anchor = held.anchor.as_ref().map(|anchor| self.path.join(anchor));
        if !anchor.is_some_and(|anchor| anchor.exists()) {
            return Err("is another directory than before, without the log");
        }
        held.file = File::open(&self.path).ok();
        Ok(())
    }
}
