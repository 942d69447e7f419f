//! Disk space that a file reserves for work that frees space, so that this work can be done on a full disk.
//!
//! Only the length of the file matters. Databases and spilled values have one each; [`Reserve`] is the form that
//! databases share.

use crate::disk::{Disk, DiskFile, OpenMode, space};
use crate::error::{Error, Result};
use crate::names;
use parking_lot::Mutex;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The file, and the number of bytes that it holds.
pub struct ReserveFile {
    disk: Arc<dyn Disk>,
    /// `None` while the disk has had no space for the file.
    file: Option<Arc<dyn DiskFile>>,
    bytes: u64,
    path: PathBuf,
}

impl ReserveFile {
    /// Opens or creates the file. Its space is reserved again, if there is enough.
    pub fn open(disk: &Arc<dyn Disk>, path: &Path) -> Result<Self> {
        let disk = Arc::clone(disk);
        let mut held = Self { disk, file: None, bytes: 0, path: path.to_owned() };
        let Some(file) = held.file()? else { return Ok(held) };
        let len = file.size().map_err(|e| Error::io("measure", path, e))?;
        // A power cut may have kept the length without the space. Take the available space at once: recovery of a
        // database writes hint files, which are optional.
        if len > 0 {
            held.hold_what_there_is(len)?;
        }
        Ok(held)
    }

    /// Returns the file. Creates it if it does not exist and the disk has space for a file.
    fn file(&mut self) -> Result<Option<Arc<dyn DiskFile>>> {
        if self.file.is_none() {
            let disk = &self.disk;
            let opened = match disk.open(&self.path, OpenMode::Existing) {
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    disk.open(&self.path, OpenMode::CreateNew)
                }
                opened => opened,
            };
            match opened {
                Ok(file) => self.file = Some(file),
                Err(e) if space::is_full(&e) => {}
                Err(e) => return Err(Error::io("create", &self.path, e)),
            }
        }
        Ok(self.file.clone())
    }

    /// Returns the number of bytes that it holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reserves `bytes` in total. Returns `false` when there is no space for them.
    pub fn hold(&mut self, bytes: u64) -> Result<bool> {
        if bytes <= self.bytes {
            return Ok(true);
        }
        let Some(file) = self.file()? else { return Ok(false) };
        match file.reserve(bytes).and_then(|()| file.truncate(bytes)) {
            Ok(()) => {
                self.bytes = bytes;
                Ok(true)
            }
            Err(error) if space::is_full(&error) => {
                // The file system may have reserved a part.
                self.shrink(self.bytes)?;
                Ok(false)
            }
            Err(error) => Err(Error::io("reserve", &self.path, error)),
        }
    }

    /// Reserves as [`Self::hold`] does, or as much as possible if there is not enough.
    pub fn hold_what_there_is(&mut self, bytes: u64) -> Result<bool> {
        if self.hold(bytes)? {
            return Ok(true);
        }
        let dir = self.path.parent().unwrap_or(Path::new(""));
        let free = self.disk.space(dir).map(|space| space.free);
        if let Some(free) = free.filter(|&free| free > 0) {
            self.hold(bytes.min(self.bytes.saturating_add(free)))?;
        }
        Ok(false)
    }

    /// Returns space to the disk.
    pub fn shrink(&mut self, bytes: u64) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        file.truncate(bytes).map_err(|e| Error::io("truncate", &self.path, e))?;
        self.bytes = bytes;
        Ok(())
    }

    /// Runs an action that needs so many bytes, with the space of the reserve if there is no other. The rest of
    /// the space returns to the reserve.
    pub fn lend<T>(&mut self, bytes: u64, action: impl Fn() -> Result<T>) -> Result<T> {
        match action() {
            Err(Error::NoSpace { .. }) if self.bytes > 0 => {}
            result => return result,
        }
        let before = self.bytes;
        self.shrink(before.saturating_sub(bytes))?;
        let result = action();
        self.hold_what_there_is(before)?;
        result
    }
}

/// Reserved space, shared by several threads.
pub struct Reserve {
    /// A write has met a full disk, or the reserve is smaller than it should be.
    pub is_short: AtomicBool,
    /// Number of times that compaction has freed space for deletes.
    pub room_made: AtomicU64,
    pub held: Mutex<ReserveFile>,
    pub path: PathBuf,
}

impl Reserve {
    /// Opens the reserve of a directory, without reserving more.
    pub fn open(disk: &Arc<dyn Disk>, dir: &Path) -> Result<Self> {
        let path = names::reserve(dir);
        let held = ReserveFile::open(disk, &path)?;
        let (is_short, room_made) = (AtomicBool::new(true), AtomicU64::new(0));
        Ok(Reserve { is_short, room_made, held: Mutex::new(held), path })
    }

    pub fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    pub fn set_short(&self) {
        self.is_short.store(true, Ordering::Relaxed);
    }

    /// Runs an action that needs so many bytes, with the space of the reserve if there is no other.
    pub fn lend<T>(&self, bytes: u64, action: impl Fn() -> Result<T>) -> Result<T> {
        match action() {
            Err(Error::NoSpace { .. }) => self.held.lock().lend(bytes, action),
            result => result,
        }
    }

    /// Returns all of the space to the disk.
    pub fn give_up(&self) -> Result<()> {
        self.held.lock().shrink(0)
    }

    /// Returns the number of reserved bytes.
    pub fn bytes(&self) -> u64 {
        self.held.lock().bytes()
    }
}
