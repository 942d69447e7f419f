//! A file that replaces another one atomically once it is complete.
//!
//! The order of the steps makes it safe against a power cut: write under another name, sync the file, rename
//! it, sync the directory. A reader sees the old file or the whole new one.
//!
//! **Invariant**: while a file is written, its writer holds an advisory lock on it, which the kernel releases
//! when the process dies. Only the holder of the lock removes or renames the file. The process id in its name
//! says less: two containers that share a directory may both be process 1.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, OFlags, RenameFlags, flock, renameat_with};
use rustix::io::Errno;

use super::error::SaveError;

/// Bytes between two syncs under incremental syncing. A single sync of a large file at the end would keep the
/// disk busy for seconds and delay its other users.
const SYNC_EVERY_BYTES: u64 = 8 << 20;

/// Number of temporary names to try when other processes are writing under them.
const NAMES_MAX: u32 = 64;

/// Time at which written data is synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syncing {
    /// In pieces while the file is written.
    Incremental,
    /// At the end.
    AtTheEnd,
}

/// Policy for an existing file of the final name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Install {
    /// It is replaced.
    Replace,
    /// It stays, and the new file is discarded.
    New,
}

/// A file under a temporary name. It is removed unless it gets its final name.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    path: PathBuf,
    syncing: Syncing,
    unsynced: u64,
    is_installed: bool,
}

impl NewFile {
    /// Creates a file next to `target`. Creates the directory if it is missing.
    pub fn create(target: &Path, syncing: Syncing) -> Result<Self, SaveError> {
        let dir = directory_of(target);
        fs::create_dir_all(dir).map_err(io_error("create the directory", dir))?;
        let process = std::process::id();
        let own = dir.join(temporary_name(process));
        // Remove the leftover of an earlier process with this id, but never the target of a link.
        if let Err(error) = remove_abandoned(&own)
            && error.kind() != io::ErrorKind::WouldBlock
            && error.kind() != io::ErrorKind::NotFound
        {
            // It is not a file that could be locked.
            let _ = fs::remove_file(&own);
        }
        for number in process..process.saturating_add(NAMES_MAX) {
            let path = dir.join(temporary_name(number));
            match create_locked(&path) {
                Ok(file) => {
                    return Ok(Self { file, path, syncing, unsynced: 0, is_installed: false });
                }
                // Another process writes there, perhaps one with the same id.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io_error("create", &path)(error)),
            }
        }
        Err(io_error("create", &own)(io::ErrorKind::AlreadyExists.into()))
    }

    /// Returns the temporary path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the file durable and renames it to `target`.
    pub fn install(mut self, target: &Path, install: Install) -> Result<(), SaveError> {
        self.file.sync_all().map_err(io_error("sync", &self.path))?;
        let renamed = match install {
            Install::Replace => fs::rename(&self.path, target),
            Install::New => rename_to_new(&self.path, target),
        };
        renamed.map_err(io_error("rename a new file to", target))?;
        self.is_installed = true;
        let dir = directory_of(target);
        let synced = File::open(dir).and_then(|dir| dir.sync_all());
        synced.map_err(io_error("sync the directory", dir))
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.unsynced += written as u64;
        if self.syncing == Syncing::Incremental && self.unsynced >= SYNC_EVERY_BYTES {
            self.file.sync_data()?;
            self.unsynced = 0;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_installed {
            // The file is useless, and the next save would overwrite it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Creates and locks a file. The error is `AlreadyExists` if the name belongs, or belonged, to another
/// process.
fn create_locked(path: &Path) -> io::Result<File> {
    let file = File::create_new(path)?;
    let is_own = match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        // Another process may just have removed it as a leftover.
        Ok(()) => has_name(&file, path)?,
        // Some file systems have no locks.
        Err(error) => error != Errno::WOULDBLOCK,
    };
    if is_own { Ok(file) } else { Err(io::ErrorKind::AlreadyExists.into()) }
}

/// Removes a file that is no longer written. The error is `WouldBlock` if it still is.
pub(super) fn remove_abandoned(path: &Path) -> io::Result<()> {
    let not_of_a_link = OFlags::NOFOLLOW.bits() as i32;
    let file = OpenOptions::new().read(true).write(true).custom_flags(not_of_a_link).open(path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    // Its writer may have renamed it before it released the lock, and another process may have created a new
    // one.
    if has_name(&file, path)? {
        fs::remove_file(path)
    } else {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// Returns true if `path` names this open file.
fn has_name(file: &File, path: &Path) -> io::Result<bool> {
    let file = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (file.dev(), file.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the temporary name for a file of this process.
fn temporary_name(process: u32) -> String {
    format!("temp-{process}.rdb")
}

/// Returns the process id in a temporary name, if it is one.
pub(super) fn process_of(name: &OsStr) -> Option<u32> {
    let number = name.to_str()?.strip_prefix("temp-")?.strip_suffix(".rdb")?;
    let process = number.parse().ok()?;
    (*name == *temporary_name(process)).then_some(process)
}

/// Renames, unless the new name is taken. Takes two steps on a file system that cannot do it in one.
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => match fs::symlink_metadata(to) {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => fs::rename(from, to),
        },
        renamed => Ok(renamed?),
    }
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

fn io_error<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> SaveError + 'a {
    move |source| SaveError::Io { action, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierce_harness::TempDir;

    #[test]
    fn the_old_file_stays_until_the_new_one_is_complete() {
        let dir = TempDir::new();
        let target = dir.path().join("sub/dump.rdb");
        let mut first = NewFile::create(&target, Syncing::AtTheEnd).unwrap();
        first.write_all(b"first").unwrap();
        first.install(&target, Install::Replace).unwrap();

        let mut second = NewFile::create(&target, Syncing::Incremental).unwrap();
        second.write_all(b"second").unwrap();
        let temporary = second.path().to_owned();
        assert_eq!(fs::read(&target).unwrap(), b"first");
        drop(second);
        assert_eq!(fs::read(&target).unwrap(), b"first");
        assert!(!temporary.exists());
    }

    #[test]
    fn two_processes_of_one_number_write_each_its_own_file() {
        let dir = TempDir::new();
        let target = dir.path().join("dump.rdb");
        // Locks belong to open files, so this one process can act as two.
        let mut one = NewFile::create(&target, Syncing::AtTheEnd).unwrap();
        one.write_all(b"one, ").unwrap();
        let mut other = NewFile::create(&target, Syncing::AtTheEnd).unwrap();
        other.write_all(b"other").unwrap();
        one.write_all(b"whole").unwrap();
        one.install(&target, Install::Replace).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"one, whole");
        other.install(&target, Install::Replace).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"other");
    }

    #[test]
    fn what_an_earlier_process_of_this_number_left_is_written_anew() {
        let dir = TempDir::new();
        let left = dir.write(&temporary_name(std::process::id()), "the beginning of a longer file");
        let target = dir.path().join("dump.rdb");
        let mut file = NewFile::create(&target, Syncing::AtTheEnd).unwrap();
        assert_eq!(file.path(), left);
        file.write_all(b"whole").unwrap();
        file.install(&target, Install::Replace).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"whole");
    }

    #[test]
    fn a_name_that_is_taken_stays_as_it_is() {
        let dir = TempDir::new();
        let target = dir.write("backup.rdb", "old");
        let mut file = NewFile::create(&target, Syncing::AtTheEnd).unwrap();
        file.write_all(b"new").unwrap();
        file.install(&target, Install::New).unwrap_err();
        assert_eq!(fs::read(&target).unwrap(), b"old");
        let file = NewFile::create(&target, Syncing::AtTheEnd).unwrap();
        file.install(&dir.path().join("other.rdb"), Install::New).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing temporary is left");
    }

    #[test]
    fn a_directory_that_cannot_be_is_named() {
        let dir = TempDir::new();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let error = NewFile::create(&file.join("dump.rdb"), Syncing::AtTheEnd).unwrap_err();
        assert!(error.to_string().contains(&file.display().to_string()), "{error}");
    }
}
