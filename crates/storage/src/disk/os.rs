//! The real file system, through Linux system calls.
//!
//! Short reads and writes are continued, interrupted calls repeated. Direct I/O falls back to ordinary reads
//! if the file system refuses it ([`DiskFile::is_direct`]).

use super::descriptors;
use super::map::OsMap;
use super::{Disk, DiskFile, DiskLock, DiskMap, OpenMode, Space};
use rustix::buffer::spare_capacity;
use rustix::fs::{self, Advice, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::hash::BuildHasher;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files of the operating system.
#[derive(Clone, Copy, Default, Debug)]
pub struct OsDisk;

struct OsFile {
    /// `Some` until the handle is dropped.
    file: Option<File>,
    direct: bool,
    writable: bool,
}

impl OsFile {
    fn file(&self) -> &File {
        self.file.as_ref().expect("taken when dropped")
    }
}

impl Drop for OsFile {
    fn drop(&mut self) {
        if let Some(file) = self.file.take()
            && self.writable
        {
            descriptors::close(file);
        }
    }
}

struct OsLock(File);

impl DiskLock for OsLock {}

impl Drop for OsLock {
    fn drop(&mut self) {
        // Closing is not enough while another thread is starting a process: that process has a copy of the
        // descriptor until it executes, and the lock would stay until then.
        let _ = fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Maximum number of buffers that the kernel takes in one call (`UIO_MAXIOV`).
const BUFFERS_PER_CALL: usize = 1024;

impl Disk for OsDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let flags = OFlags::CLOEXEC
            | match mode {
                OpenMode::Existing => OFlags::RDWR,
                OpenMode::ReadOnly => OFlags::RDONLY,
                OpenMode::Direct => OFlags::RDONLY | OFlags::DIRECT,
                OpenMode::DirectWrite => OFlags::RDWR | OFlags::DIRECT,
                OpenMode::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
                OpenMode::Truncate => {
                    OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW
                }
            };
        let direct = flags.contains(OFlags::DIRECT);
        let writable = flags.contains(OFlags::RDWR);
        let open = || fs::open(path, flags, Mode::from_raw_mode(0o600));
        // Readers can wait until descriptors are free again.
        let opened = if writable { descriptors::open(open) } else { open() };
        match opened {
            Ok(fd) => Ok(Arc::new(OsFile { file: Some(fd.into()), direct, writable })),
            // Some file systems do not support direct I/O, which is only faster.
            Err(Errno::INVAL) if mode == OpenMode::Direct => self.open(path, OpenMode::ReadOnly),
            Err(Errno::INVAL) if direct => self.open(path, OpenMode::Existing),
            Err(errno) => Err(errno.into()),
        }
    }

    fn map(&self, path: &Path, len: usize) -> io::Result<Arc<dyn DiskMap>> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(descriptors::open(|| fs::open(path, flags, Mode::empty()))?);
        let is_long_enough = file.metadata()?.len() >= len as u64;
        let map = is_long_enough.then(|| OsMap::new(&file, len));
        descriptors::close(file);
        Ok(Arc::new(map.ok_or(io::ErrorKind::UnexpectedEof)??))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Ok(fs::rename(from, to)?)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        Ok(fs::unlink(path)?)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect()
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        std::fs::create_dir_all(dir)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        std::fs::remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        // A name was changed before, so a failure here for lack of descriptors could not be undone.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = File::from(descriptors::open(|| fs::open(dir, flags, Mode::empty()))?);
        let synced = dir.sync_all();
        descriptors::close(dir);
        synced
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let lock = take_lock(path, OFlags::CREATE)?;
        // A store is being opened, which will need to write.
        descriptors::fill();
        Ok(lock)
    }

    fn lock_existing(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        match take_lock(path, OFlags::empty()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            taken => taken.map(Some),
        }
    }

    fn space(&self, dir: &Path) -> Option<Space> {
        let found = fs::statvfs(dir).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Some(Space { total: bytes(found.f_blocks), free: bytes(found.f_bavail) })
    }

    fn entropy(&self) -> u64 {
        // The standard library draws the keys of a `RandomState` from the operating system once per thread
        // and hands out a different pair each time; hashing nothing exposes 64 bits.
        std::hash::RandomState::new().hash_one(std::process::id())
    }
}

impl DiskFile for OsFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.file().read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                // A direct read that ends inside the last block is at the end of the file.
                Ok(n) if self.direct && !n.is_multiple_of(super::DIRECT_ALIGNMENT) => {
                    return Ok(done + n);
                }
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn read_to_vec(&self, len: usize, offset: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            // The vector may have a larger capacity than requested, and then more is read.
            let position = offset + bytes.len() as u64;
            match rustix::io::pread(self.file(), spare_capacity(&mut bytes), position) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        bytes.truncate(len);
        Ok(bytes)
    }

    fn write_all_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        if let [buf] = bufs {
            return self.file().write_all_at(buf, offset);
        }
        let mut position = offset;
        for chunk in bufs.chunks(BUFFERS_PER_CALL) {
            let len: usize = chunk.iter().map(|b| b.len()).sum();
            let written = match rustix::io::pwritev(self.file(), chunk, position) {
                Ok(written) => written,
                Err(Errno::INTR) => 0,
                Err(errno) => return Err(errno.into()),
            };
            if written < len {
                write_rest(self.file(), chunk, written, position)?;
            }
            position += len as u64;
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file().sync_data()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file().set_len(len)
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        loop {
            return match fs::fallocate(self.file(), FallocateFlags::KEEP_SIZE, 0, len) {
                Err(Errno::INTR) => continue,
                Err(Errno::OPNOTSUPP | Errno::NOSYS) | Ok(()) => Ok(()),
                Err(errno) => Err(errno.into()),
            };
        }
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.file().metadata()?.len())
    }

    fn expect_random_reads(&self) {
        // This is only advice: a kernel that ignores it reads ahead needlessly, with the same result.
        let _ = fs::fadvise(self.file(), 0, None, Advice::Random);
    }

    fn is_direct(&self) -> bool {
        self.direct
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file().as_fd())
    }
}

fn take_lock(path: &Path, more: OFlags) -> io::Result<Box<dyn DiskLock>> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | more;
    let fd = fs::open(path, flags, Mode::from_raw_mode(0o600))?;
    fs::flock(&fd, FlockOperation::NonBlockingLockExclusive)?;
    Ok(Box::new(OsLock(fd.into())))
}

/// Continues a short vectored write, buffer by buffer.
fn write_rest(file: &File, bufs: &[IoSlice<'_>], mut skip: usize, start: u64) -> io::Result<()> {
    let mut position = start;
    for buf in bufs {
        let skipped = skip.min(buf.len());
        if skipped < buf.len() {
            file.write_all_at(&buf[skipped..], position + skipped as u64)?;
        }
        skip -= skipped;
        position += buf.len() as u64;
    }
    Ok(())
}
