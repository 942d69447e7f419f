//! Where the log is inside of the data directory.
//!
//! As a rule in `wal`. A log that was begun while the server ran (`CONFIG SET appendonly yes`) is
//! written to `wal-2`, or the next number, and does not count before a file `wal-2.complete` stands
//! beside it. So there is one log that counts at any moment, whatever the moment of a crash: that
//! with the highest number among those that are complete. The others are removed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tierce_cask::disk::{Disk, OpenMode, OsDisk};

/// The first log of a data directory, which is complete from its beginning.
const FIRST_NAME: &str = "wal";
/// What stands before the number of a later one.
const NAME_PREFIX: &str = "wal-";
/// What follows the name of a log in that of the file that makes it count.
const COMPLETE: &str = "complete";

/// The place of the logs of one data directory.
#[derive(Clone)]
pub(crate) struct LogHome {
    pub(super) disk: Arc<dyn Disk>,
    dir: PathBuf,
}

/// Whether this is the name of a directory with a log, of a complete one or not.
pub(crate) fn is_log_name(name: &[u8]) -> bool {
    let number = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    name == FIRST_NAME.as_bytes() || name.strip_prefix(NAME_PREFIX.as_bytes()).is_some_and(number)
}

/// The directory of the log that counts, whether or not it is there.
///
/// # Errors
/// When the data directory cannot be read.
pub(crate) fn log_dir(dir: &Path) -> io::Result<PathBuf> {
    LogHome::new(Arc::new(OsDisk), dir).current()
}

impl LogHome {
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: &Path) -> Self {
        Self { disk, dir: dir.to_owned() }
    }

    /// The directory of the log that counts, whether or not it is there.
    pub(super) fn current(&self) -> io::Result<PathBuf> {
        let listed = self.list()?;
        let complete = listed.iter().filter(|path| path.extension().is_some_and(|e| e == COMPLETE));
        Ok(self.log(complete.filter_map(|path| number_of(path)).max()))
    }

    /// An empty directory for a log that shall take the place of the present one.
    pub(super) fn begin(&self) -> io::Result<PathBuf> {
        let current = self.current()?;
        self.clear_others(&current)?;
        let next = number_of(&current).map_or(2, |number| number + 1);
        let path = self.log(Some(next));
        // On a disk that lists files only, nothing was seen of it.
        self.clear(&path)?;
        Ok(path)
    }

    /// Has a log count that is complete and on the device, and removes the others.
    pub(super) fn complete(&self, path: &Path) -> io::Result<()> {
        self.disk.open(&path.with_extension(COMPLETE), OpenMode::CreateNew)?;
        self.disk.sync_dir(&self.dir)?;
        self.clear_others(path)
    }

    /// Removes what remains of logs that do not count.
    pub(super) fn clear_others(&self, current: &Path) -> io::Result<()> {
        let first = self.log(None);
        if first != current {
            self.clear(&first)?;
        }
        for path in self.list()? {
            let marks_complete = path.extension().is_some_and(|kind| kind == COMPLETE);
            let log = if marks_complete { path.with_extension("") } else { path.clone() };
            let name = log.file_name().unwrap_or_default();
            if log == current || !is_log_name(name.as_encoded_bytes()) {
                continue;
            }
            self.clear(&log)?;
            if marks_complete {
                self.disk.remove(&path)?;
            }
        }
        Ok(())
    }

    /// Removes a log.
    pub(super) fn clear(&self, path: &Path) -> io::Result<()> {
        let files = match self.disk.list(path) {
            Ok(files) => files,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        files.iter().try_for_each(|file| self.disk.remove(file))?;
        self.disk.remove_dir(path)
    }

    fn list(&self) -> io::Result<Vec<PathBuf>> {
        match self.disk.list(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            listed => listed,
        }
    }

    fn log(&self, number: Option<u64>) -> PathBuf {
        self.dir.join(number.map_or(FIRST_NAME.to_owned(), |n| format!("{NAME_PREFIX}{n}")))
    }
}

/// The number in the name of a log, or of the file that makes it count.
fn number_of(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.strip_prefix(NAME_PREFIX)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir::TestDir;

    #[test]
    fn a_log_counts_when_it_is_complete_and_the_others_go() {
        let dir = TestDir::new("log-home");
        let at = |name: &str| dir.path().join(name);
        let home = LogHome::new(Arc::new(OsDisk), dir.path());
        assert_eq!(home.current().unwrap(), at("wal"));
        dir.write("wal/1.seg", "old");
        dir.write("wal.importing/1.seg", "not ours");
        dir.write("walrus", "not ours");
        dir.write("wal-5/1.seg", "never completed");

        let second = home.begin().unwrap();
        assert_eq!(second, at("wal-2"));
        assert!(!at("wal-5").exists());
        dir.write("wal-2/1.seg", "new");
        assert_eq!(home.current().unwrap(), at("wal"), "it does not count yet");
        // The next attempt finds nothing of it.
        assert_eq!(home.begin().unwrap(), second);
        assert!(!second.exists() && at("wal").exists());

        dir.write("wal-2/1.seg", "new");
        home.complete(&second).unwrap();
        assert_eq!(home.current().unwrap(), second);
        assert!(!at("wal").exists());
        let third = home.begin().unwrap();
        assert_eq!(third, at("wal-3"));
        home.complete(&third).unwrap();
        assert_eq!(log_dir(dir.path()).unwrap(), third);
        let mut left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().collect();
        left.sort_by_key(|entry| entry.file_name());
        let left: Vec<_> = left.iter().map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["wal-3.complete", "wal.importing", "walrus"]);
    }

    #[test]
    fn names_of_logs() {
        for (name, is_one) in [("wal", true), ("wal-2", true), ("wal-", false), ("wal-2x", false)] {
            assert_eq!(is_log_name(name.as_bytes()), is_one, "{name}");
        }
    }
}
