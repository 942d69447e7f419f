//! The only access to the file system.
//!
//! The engine accesses files only through [`Disk`], [`DiskFile`] and [`DiskMap`]. There are three
//! implementations. [`OsDisk`] is the real one. [`SimDisk`] is in memory; it tears writes, loses unsynced data,
//! flips bits, fills up and crashes at a chosen call. [`OverlayDisk`] reads the real one and keeps changes in
//! memory.
//!
//! The engine assumes only this of a disk:
//! * `sync_data` makes the file's bytes and length survive a power cut. Before it, any subset of the written
//!   sectors may survive, in any order.
//! * `sync_dir` does this for a directory's names. `rename` is atomic.
//! * A completed write is seen by every later read, and survives the death of the process. So do stores into a
//!   mapped file, word by word in program order.

mod descriptors;
mod map;
mod os;
mod overlay;
pub(crate) mod reads;
mod sim;
#[doc(hidden)]
pub mod space;
#[doc(hidden)]
pub mod span;

pub use os::OsDisk;
pub use overlay::OverlayDisk;
pub use reads::ReadDriver;
pub use sim::{Fault, Moment, SimDisk};
pub use space::Space;

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Mode of opening a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// Reading and writing; the file must exist.
    Existing,
    /// Reading only; the file must exist.
    ReadOnly,
    /// Reading only, with direct I/O if the file system allows it. Offsets, lengths and addresses must then be
    /// multiples of [`DIRECT_ALIGNMENT`].
    Direct,
    /// Reading and writing with direct I/O, as [`OpenMode::Direct`]; the file must exist.
    DirectWrite,
    /// Reading and writing; created empty, an existing file is an error.
    CreateNew,
    /// Reading and writing; created empty, an existing file is emptied.
    Truncate,
}

/// Alignment that satisfies direct I/O on common devices.
pub const DIRECT_ALIGNMENT: usize = 4096;

/// A file system, or something that behaves like one.
pub trait Disk: Send + Sync + 'static {
    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;
    /// Maps an existing file of at least `len` bytes, a multiple of 8, into memory. Its space must have been
    /// reserved: a store into a page without space kills the process.
    fn map(&self, path: &Path, len: usize) -> io::Result<Arc<dyn DiskMap>>;
    /// Renames a file, replacing an existing one of the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file's name; open handles stay valid.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Returns the names in a directory, in no order.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;
    /// Creates a directory and its parents; an existing one is not an error.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Takes the exclusive lock on a file, creating it. Fails with `WouldBlock` when another process has it.
    /// The lock is released with the returned value, or with the process.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>>;
    /// Takes the lock like [`Self::lock`] if its file exists. Otherwise no process has the lock, and this returns
    /// `None` without creating the file.
    fn lock_existing(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.lock(path).map(Some)
    }
    /// Returns the space of the device that holds a directory, if known.
    fn space(&self, _dir: &Path) -> Option<Space> {
        None
    }
    /// Returns a random number, for identities, salts and the hash secret of a new store.
    fn entropy(&self) -> u64;
}

/// A held lock.
pub trait DiskLock: Send + Sync {}

/// An open file. All offsets are explicit, so handles can be shared between threads.
pub trait DiskFile: Send + Sync {
    /// Reads at an offset; returns fewer bytes than asked for only at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Reads as [`Self::read_at`] does, into a new vector. A disk that can read into uninitialized memory does
    /// so.
    fn read_to_vec(&self, len: usize, offset: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let read = self.read_at(&mut bytes, offset)?;
        bytes.truncate(read);
        Ok(bytes)
    }
    /// Writes all buffers at an offset, one after the other. After an error a part may be written.
    fn write_all_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()>;
    /// Makes bytes and length durable.
    fn sync_data(&self) -> io::Result<()>;
    /// Truncates or extends the file.
    fn truncate(&self, len: u64) -> io::Result<()>;
    /// Reserves space, so that writes below `len` cannot meet a full disk; the length stays. A file system that
    /// cannot do this returns success without any guarantee.
    fn reserve(&self, len: u64) -> io::Result<()>;
    /// Returns the length in bytes.
    fn size(&self) -> io::Result<u64>;
    /// Advises the disk that reads are random, so that read-ahead is wasted.
    fn expect_random_reads(&self) {}
    /// Returns true if this handle bypasses the page cache and so needs aligned reads.
    fn is_direct(&self) -> bool {
        false
    }
    /// Returns the operating system's handle, if there is one.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A file in memory, shared with the operating system: stored data survives the process.
///
/// Offsets and lengths are multiples of 8. Threads may read and write the same words at the same time. Each
/// word is then the old or the new one, and the caller must check which belong together.
pub trait DiskMap: Send + Sync {
    /// Stores bytes, from the first word to the last.
    ///
    /// # Panics
    /// When they do not fit, or are not whole words.
    fn write(&self, offset: usize, bytes: &[u8]);
    /// Stores a word twice, at `offset` and directly after it.
    ///
    /// # Panics
    /// As [`DiskMap::write`].
    fn write_twice(&self, offset: usize, word: [u8; 8]) {
        let mut twice = [0; 16];
        twice[..8].copy_from_slice(&word);
        twice[8..].copy_from_slice(&word);
        self.write(offset, &twice);
    }
    /// Copies bytes out.
    ///
    /// # Panics
    /// When the range is too long, or is not whole words.
    fn read(&self, offset: usize, out: &mut [u8]);
    /// Writes `len` bytes to a file at `position`, without a copy if possible. If other threads store
    /// meanwhile, the old or new bytes may end up in the file. For a direct I/O handle, everything must be a
    /// multiple of [`DIRECT_ALIGNMENT`].
    ///
    /// # Panics
    /// When the range is too long, or is not whole words.
    fn write_to(
        &self,
        offset: usize,
        len: usize,
        file: &dyn DiskFile,
        position: u64,
    ) -> io::Result<()> {
        let mut bytes = vec![0; len];
        self.read(offset, &mut bytes);
        file.write_all_at(&[IoSlice::new(&bytes)], position)
    }
}

/// Reads exactly `buf.len()` bytes, or fails with `UnexpectedEof` at the end of the file.
pub fn read_exact_at(file: &dyn DiskFile, buf: &mut [u8], offset: u64) -> io::Result<()> {
    if file.read_at(buf, offset)? == buf.len() {
        return Ok(());
    }
    Err(io::Error::from(io::ErrorKind::UnexpectedEof))
}
