//! A copy-on-write view of a real disk: writes stay in memory. So a store can be opened for a check without
//! changing it.
//!
//! A file opened for writing is read into memory completely; a store has few of these, of bounded size.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Disk, DiskFile, DiskLock, DiskMap, OpenMode, OsDisk};

/// The operating system's files with private changes.
#[derive(Default)]
pub struct OverlayDisk {
    state: Mutex<Changes>,
}

#[derive(Default)]
struct Changes {
    /// Changed names: another file, or none.
    names: BTreeMap<PathBuf, Option<Arc<OverlayFile>>>,
    /// Directories that were created (true) or removed.
    dirs: HashMap<PathBuf, bool>,
}

impl OverlayDisk {
    /// Creates a view without changes.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Changes {
    /// Returns a private copy of a file for writing.
    fn own(&mut self, path: &Path) -> io::Result<Arc<OverlayFile>> {
        match self.names.get(path) {
            Some(Some(file)) => Ok(Arc::clone(file)),
            Some(None) => Err(ErrorKind::NotFound.into()),
            None => {
                let file = Arc::new(OverlayFile(Mutex::new(std::fs::read(path)?)));
                self.names.insert(path.to_owned(), Some(Arc::clone(&file)));
                Ok(file)
            }
        }
    }

    fn create(&mut self, path: &Path) -> Arc<OverlayFile> {
        let file = Arc::<OverlayFile>::default();
        self.names.insert(path.to_owned(), Some(Arc::clone(&file)));
        file
    }

    fn exists(&self, path: &Path) -> bool {
        self.names.get(path).map_or_else(|| path.exists(), Option::is_some)
    }
}

impl Disk for OverlayDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        Ok(match mode {
            OpenMode::CreateNew if state.exists(path) => {
                return Err(ErrorKind::AlreadyExists.into());
            }
            OpenMode::CreateNew | OpenMode::Truncate => state.create(path),
            OpenMode::Existing | OpenMode::DirectWrite => state.own(path)?,
            OpenMode::ReadOnly | OpenMode::Direct if state.names.contains_key(path) => {
                state.own(path)?
            }
            OpenMode::ReadOnly | OpenMode::Direct => return OsDisk.open(path, mode),
        })
    }

    fn map(&self, path: &Path, len: usize) -> io::Result<Arc<dyn DiskMap>> {
        let file = self.state.lock().own(path)?;
        if file.0.lock().len() < len {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(file)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let file = state.own(from)?;
        state.names.insert(from.to_owned(), None);
        state.names.insert(to.to_owned(), Some(file));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.exists(path) {
            return Err(ErrorKind::NotFound.into());
        }
        state.names.insert(path.to_owned(), None);
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let state = self.state.lock();
        let made = state.dirs.get(dir).copied();
        let listed = match made {
            Some(false) => Err(ErrorKind::NotFound.into()),
            _ => OsDisk.list(dir),
        };
        let mut paths = match listed {
            Err(error) if error.kind() == ErrorKind::NotFound && made == Some(true) => Vec::new(),
            listed => listed?,
        };
        paths
            .retain(|path| !state.names.contains_key(path) && state.dirs.get(path) != Some(&false));
        let here = |path: &&PathBuf| path.parent() == Some(dir);
        let own = state.names.iter().filter(|(_, file)| file.is_some()).map(|(path, _)| path);
        paths.extend(own.filter(here).cloned());
        Ok(paths)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        if !dir.is_dir() {
            self.state.lock().dirs.insert(dir.to_owned(), true);
        }
        Ok(())
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        if !self.list(dir)?.is_empty() {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        self.state.lock().dirs.insert(dir.to_owned(), false);
        Ok(())
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    /// Takes a lock of the real disk. If the file does not exist, it is not locked and not created.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        struct Nobodys;
        impl DiskLock for Nobodys {}
        Ok(OsDisk.lock_existing(path)?.unwrap_or_else(|| Box::new(Nobodys)))
    }

    fn entropy(&self) -> u64 {
        OsDisk.entropy()
    }
}

/// A file in memory.
#[derive(Default)]
struct OverlayFile(Mutex<Vec<u8>>);

impl OverlayFile {
    fn put(&self, offset: usize, new: &[u8]) {
        let mut bytes = self.0.lock();
        let end = offset + new.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset..end].copy_from_slice(new);
    }
}

impl DiskFile for OverlayFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = self.0.lock();
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn write_all_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let mut at = offset as usize;
        for buf in bufs {
            self.put(at, buf);
            at += buf.len();
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.0.lock().resize(len as usize, 0);
        Ok(())
    }

    fn reserve(&self, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.lock().len() as u64)
    }
}

impl DiskMap for OverlayFile {
    fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.0.lock().len(), "a write beyond the map");
        self.put(offset, bytes);
    }

    fn read(&self, offset: usize, out: &mut [u8]) {
        let bytes = self.0.lock();
        out.copy_from_slice(&bytes[offset..offset + out.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_real_disk_changes() {
        let name = format!("tierce-overlay-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let at = |name: &str| dir.join(name);
        std::fs::write(at("a"), "old").unwrap();
        std::fs::write(at("b"), "stays").unwrap();
        let disk = OverlayDisk::new();
        let file = disk.open(&at("a"), OpenMode::Existing).unwrap();
        file.write_all_at(&[IoSlice::new(b"new")], 1).unwrap();
        disk.rename(&at("a"), &at("c")).unwrap();
        disk.remove(&at("b")).unwrap();
        assert!(disk.open(&at("b"), OpenMode::ReadOnly).is_err());
        disk.open(&at("b"), OpenMode::CreateNew).unwrap();
        assert_eq!(
            disk.open(&at("c"), OpenMode::ReadOnly).unwrap().read_to_vec(9, 0).unwrap(),
            b"onew"
        );
        let mut listed = disk.list(&dir).unwrap();
        listed.sort();
        assert_eq!(listed, [at("b"), at("c")]);
        assert_eq!(std::fs::read(at("a")).unwrap(), b"old");
        assert_eq!(std::fs::read(at("b")).unwrap(), b"stays");
        assert!(!at("c").exists());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
