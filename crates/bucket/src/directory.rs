//! The directory of a log in `file://`, which may disappear together with its file system while a server runs.
//!
//! The client library creates every missing directory on the way to an object. In a mount point whose file system is
//! gone, that would begin another log and leave a hole in this one. So a directory that once existed is held open,
//! which also keeps it from being unmounted by mistake, and requests are refused while its path leads elsewhere.

use std::fs::{File, Metadata, metadata};
use std::mem;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use object_store::Error;

/// The directory, if the first object was put, and the last object that is known to be in it.
///
/// **Invariant:** no lock is held during a call of the file system, which may not answer.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// The directory itself, even if its path leads elsewhere by now.
    held: Mutex<Option<Arc<File>>>,
    /// Last object of the log that was seen, by its name below the directory. A directory that has this object is the
    /// one of the log, also on another file system.
    anchor: Mutex<Option<String>>,
}

impl Directory {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, held: Mutex::default(), anchor: Mutex::default() }
    }

    /// Notes that an object of the log is there.
    pub(crate) fn note_anchor(&self, name: &str) {
        let mut anchor = lock(&self.anchor);
        if anchor.as_deref() < Some(name) {
            *anchor = Some(name.to_owned());
        }
    }

    /// Refuses a request while the path does not lead to the directory of the log.
    pub(crate) async fn check(self: &Arc<Self>) -> object_store::Result<()> {
        let directory = Arc::clone(self);
        // On a thread of its own, since a file system that does not answer must not block others.
        let checked = tokio::task::spawn_blocking(move || directory.check_now()).await;
        checked.map_err(|source| Error::JoinError { source })?.map_err(|reason| {
            let path = self.path.display();
            let source = format!("{path} {reason}; is its file system mounted?").into();
            Error::Generic { store: "directory", source }
        })
    }

    fn check_now(&self) -> Result<(), &'static str> {
        let held = lock(&self.held).clone();
        let there = metadata(&self.path).ok().filter(Metadata::is_dir);
        let Some(file) = held else {
            if there.is_some() {
                self.hold();
            }
            return Ok(());
        };
        let there = there.ok_or("has gone")?;
        let is_held = |file: Metadata| (file.dev(), file.ino()) == (there.dev(), there.ino());
        if file.metadata().is_ok_and(is_held) {
            return Ok(());
        }
        let anchor = lock(&self.anchor).as_ref().map(|anchor| self.path.join(anchor));
        if !anchor.is_some_and(|anchor| anchor.exists()) {
            return Err("is another directory than before, without the log");
        }
        self.hold();
        Ok(())
    }

    fn hold(&self) {
        let file = File::open(&self.path).ok().map(Arc::new);
        let before = mem::replace(&mut *lock(&self.held), file);
        drop(before);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::env::temp_dir;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Tasks note objects while another thread may be waiting for the file system.
    #[test]
    fn an_object_is_noted_while_the_directory_is_looked_for() {
        let directory = Arc::new(Directory::new(temp_dir()));
        assert_eq!(directory.check_now(), Ok(()));
        let _looks = lock(&directory.held);
        let (done, is_done) = channel();
        let notes = Arc::clone(&directory);
        thread::spawn(move || {
            ["log/2", "log/1"].iter().for_each(|name| notes.note_anchor(name));
            done.send(())
        });
        assert_eq!(is_done.recv_timeout(Duration::from_secs(20)), Ok(()));
        assert_eq!(lock(&directory.anchor).as_deref(), Some("log/2"));
    }
}
