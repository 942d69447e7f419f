//! Direct file I/O, without the page cache.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::error::RaceError;

/// Alignment of offsets, lengths and addresses for direct I/O on common devices.
pub(super) const ALIGNMENT: usize = 4096;

/// An open file.
#[derive(Debug)]
pub(super) struct DirectFile {
    file: File,
    path: PathBuf,
}

impl DirectFile {
    /// Creates a file of this length with allocated blocks, so that writing needs no allocation.
    /// Returns `None` if the file system has no direct I/O.
    pub(super) fn create(path: &Path, len: u64) -> Result<Option<Self>, RaceError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        options.custom_flags(OFlags::DIRECT.bits() as i32);
        let file = match options.open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => return Ok(None),
            Err(error) => return Err(RaceError::io("create", path)(error)),
        };
        let path = path.to_owned();
        match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len) {
            // Not every file system can allocate in advance. Then each write allocates.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(Some(Self { file, path })),
            Err(errno) => Err(RaceError::io("extend", &path)(errno)),
        }
    }

    pub(super) fn write(&self, buffer: &Buffer, offset: u64) -> Result<(), RaceError> {
        self.file.write_all_at(buffer.bytes(), offset).map_err(RaceError::io("write", &self.path))
    }

    pub(super) fn read(&self, buffer: &mut Buffer, offset: u64) -> Result<(), RaceError> {
        self.file
            .read_exact_at(buffer.bytes_mut(), offset)
            .map_err(RaceError::io("read", &self.path))
    }

    pub(super) fn sync(&self) -> Result<(), RaceError> {
        self.file.sync_data().map_err(RaceError::io("sync", &self.path))
    }
}

/// Bytes at an aligned address.
#[derive(Debug)]
pub(super) struct Buffer {
    /// Longer than needed by the alignment, so that it has an aligned range.
    room: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    pub(super) fn new(len: usize) -> Self {
        let room = vec![0; len + ALIGNMENT];
        // The vector never grows, so its bytes stay at their address.
        let start = room.as_ptr().align_offset(ALIGNMENT);
        assert!(start < ALIGNMENT, "the address of bytes can be aligned");
        Self { room, start, len }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.room[self.start..][..self.len]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.room[self.start..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_as_long_as_asked() {
        for len in [4096, 8192, 1 << 20] {
            let mut buffer = Buffer::new(len);
            assert_eq!(buffer.bytes().len(), len);
            assert_eq!(buffer.bytes_mut().as_ptr().addr() % ALIGNMENT, 0);
        }
    }
}
