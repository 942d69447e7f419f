//! Disk space that a file holds for work that frees space, so that it can be done on a full disk.
//!
//! Only the length of the file matters. Databases and spilled values have one each.

use crate::disk::{Disk, DiskFile, OpenMode, space};
use crate::error::{Error, Result};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file, and how much it holds. A log has none.
pub(crate) struct ReserveFile {
    backing: Option<(Arc<dyn Disk>, Arc<dyn DiskFile>)>,
    bytes: u64,
    path: PathBuf,
}

impl ReserveFile {
    /// Opens the file, or makes it. What it held is held again if there is still space for it.
    pub(crate) fn open(disk: &Arc<dyn Disk>, path: &Path) -> Result<Self> {
        let file = match disk.open(path, OpenMode::Existing) {
            Err(e) if e.kind() == ErrorKind::NotFound => disk.open(path, OpenMode::CreateNew),
            opened => opened,
        };
        let file = file.map_err(|e| Error::io("create", path, e))?;
        let len = file.size().map_err(|e| Error::io("measure", path, e))?;
        let backing = Some((Arc::clone(disk), file));
        let mut held = Self { backing, bytes: 0, path: path.to_owned() };
        // A power cut may have left the length and not the space. What can be had is taken at once: recovery
        // of a database writes hint files, and they may do without.
        if len > 0 {
            held.hold_what_there_is(len)?;
        }
        Ok(held)
    }

    /// For a log.
    pub(crate) fn none() -> Self {
        Self { backing: None, bytes: 0, path: PathBuf::new() }
    }

    /// What it holds.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Sets aside `bytes` in all; `false` when there is no space for them.
    pub(crate) fn hold(&mut self, bytes: u64) -> Result<bool> {
        if bytes <= self.bytes {
            return Ok(true);
        }
        let Some((_, file)) = &self.backing else { return Ok(false) };
        match file.reserve(bytes).and_then(|()| file.truncate(bytes)) {
            Ok(()) => {
                self.bytes = bytes;
                Ok(true)
            }
            Err(error) if space::is_full(&error) => {
                // A file system may have set a part aside.
                self.shrink(self.bytes)?;
                Ok(false)
            }
            Err(error) => Err(Error::io("reserve", &self.path, error)),
        }
    }

    /// As [`Self::hold`]; takes what there is if there is not enough.
    pub(crate) fn hold_what_there_is(&mut self, bytes: u64) -> Result<bool> {
        if self.hold(bytes)? {
            return Ok(true);
        }
        let dir = self.path.parent().unwrap_or(Path::new(""));
        let free = self.backing.as_ref().and_then(|(disk, _)| disk.space(dir)).map(|s| s.free);
        if let Some(free) = free.filter(|&free| free > 0) {
            self.hold(bytes.min(self.bytes.saturating_add(free)))?;
        }
        Ok(false)
    }

    /// Gives space back to the disk.
    pub(crate) fn shrink(&mut self, bytes: u64) -> Result<()> {
        let Some((_, file)) = &self.backing else { return Ok(()) };
        file.truncate(bytes).map_err(|e| Error::io("truncate", &self.path, e))?;
        self.bytes = bytes;
        Ok(())
    }

    /// Does something that needs so much space, with that of the reserve if there is no other. What is
    /// left over then comes back.
    pub(crate) fn lend<T>(&mut self, bytes: u64, action: impl Fn() -> Result<T>) -> Result<T> {
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
