//! A file that takes the place of another one when it is complete, or never.
//!
//! The order of the steps is what survives a power cut: write under another name, sync the file,
//! rename it, sync the directory. Whoever looks sees the old file or the whole new one.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::error::SaveError;

/// With incremental syncing, the disk gets so much at a time. In one piece at the end, a large file
/// would keep the disk busy for seconds, and everybody else who needs it.
const SYNC_EVERY_BYTES: u64 = 8 << 20;

/// When the disk gets what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syncing {
    /// Piece by piece while it is written.
    Incremental,
    /// At the end.
    AtTheEnd,
}

/// What becomes of a file that has the true name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Install {
    /// It is replaced.
    Replace,
    /// It stays, and the new file is given up.
    New,
}

/// A file under a temporary name, which is removed if it does not get its true one.
#[derive(Debug)]
pub(crate) struct NewFile {
    file: File,
    path: PathBuf,
    syncing: Syncing,
    unsynced: u64,
    is_installed: bool,
}

impl NewFile {
    /// Begins a file beside `target`, in a directory that is made if it is missing.
    pub(crate) fn create(target: &Path, syncing: Syncing) -> Result<Self, SaveError> {
        let dir = directory_of(target);
        fs::create_dir_all(dir).map_err(io_error("create the directory", dir))?;
        let path = dir.join(temporary_name(std::process::id()));
        // What an earlier process of this number may have left; never what a link points to.
        let _ = fs::remove_file(&path);
        let file = File::create_new(&path).map_err(io_error("create", &path))?;
        Ok(Self { file, path, syncing, unsynced: 0, is_installed: false })
    }

    /// The temporary name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the file durable and puts it in the place of `target`.
    pub(crate) fn install(mut self, target: &Path, install: Install) -> Result<(), SaveError> {
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
            // It is of no use, and the next save would overwrite it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// What a file is called that this process has not completed yet.
fn temporary_name(process: u32) -> String {
    format!("temp-{process}.rdb")
}

/// The process that gave a file a temporary name, if it is one.
pub(super) fn process_of(name: &OsStr) -> Option<u32> {
    let number = name.to_str()?.strip_prefix("temp-")?.strip_suffix(".rdb")?;
    let process = number.parse().ok()?;
    (*name == *temporary_name(process)).then_some(process)
}

/// Renames, unless the new name is taken. A file system that cannot do that in one step gets two.
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
    use crate::test_dir::TestDir;

    #[test]
    fn the_old_file_stays_until_the_new_one_is_complete() {
        let dir = TestDir::new("new-file");
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
    fn a_name_that_is_taken_stays_as_it_is() {
        let dir = TestDir::new("taken");
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
        let dir = TestDir::new("no-directory");
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let error = NewFile::create(&file.join("dump.rdb"), Syncing::AtTheEnd).unwrap_err();
        assert!(error.to_string().contains(&file.display().to_string()), "{error}");
    }
}
