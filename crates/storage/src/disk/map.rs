//! A mapped file of the real file system.
//!
//! Invariants:
//! * `words` is the start of a shared, writable mapping of `len` words that lives as long as the value; only
//!   its drop unmaps it.
//! * This program accesses the memory through atomic words only. The kernel, other threads and other
//!   processes that map the file see old or new words, never undefined behaviour.
//!
//! There is no protection against truncating the file while it is mapped. Touching a missing page kills the
//! process (`SIGBUS`), as for every program that maps files.
#![allow(unsafe_code, reason = "mapping memory; the invariants are above")]

use super::{DiskFile, DiskMap};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

/// A mapping of the first bytes of a file.
pub(super) struct OsMap {
    words: NonNull<AtomicU64>,
    len: usize,
}

// SAFETY: the mapping belongs to no thread, and its memory is only touched through atomics.
unsafe impl Send for OsMap {}
// SAFETY: as above.
unsafe impl Sync for OsMap {}

impl OsMap {
    /// Maps the first `bytes` bytes of a file, which must be that long.
    pub(super) fn new(file: &File, bytes: usize) -> io::Result<Self> {
        assert!(bytes > 0 && bytes.is_multiple_of(8), "a mapping has whole words");
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses the address, so no memory in use is replaced.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, protection, flags, file, 0) }?;
        // Mappings begin at page boundaries, so words are aligned.
        let words = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(OsMap { words, len: bytes / 8 })
    }

    fn words(&self, offset: usize, bytes: usize) -> &[AtomicU64] {
        assert!(offset.is_multiple_of(8) && bytes.is_multiple_of(8), "only whole words");
        // SAFETY: the invariants; `AtomicU64` has the layout of `u64`, for which any bytes are a
        // value, and the borrow of `self` keeps the mapping alive.
        let all = unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.len) };
        &all[offset / 8..(offset + bytes) / 8]
    }
}

impl Drop for OsMap {
    fn drop(&mut self) {
        // SAFETY: the invariants; there is no borrow of the memory now. A failure would
        // leave the mapping in place, which does no harm.
        let _ = unsafe { munmap(self.words.as_ptr().cast(), self.len * 8) };
    }
}

impl DiskMap for OsMap {
    fn write(&self, offset: usize, bytes: &[u8]) {
        let store = |word: &AtomicU64, chunk: &[u8; 8]| {
            word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
        };
        // Atomics are not vectorized. Four at a time take half as long as one by one.
        let (fours, rest) = self.words(offset, bytes.len()).as_chunks::<4>();
        let (four_chunks, rest_chunks) = bytes.as_chunks::<8>().0.as_chunks::<4>();
        for (words, chunks) in fours.iter().zip(four_chunks) {
            store(&words[0], &chunks[0]);
            store(&words[1], &chunks[1]);
            store(&words[2], &chunks[2]);
            store(&words[3], &chunks[3]);
        }
        for (word, chunk) in rest.iter().zip(rest_chunks) {
            store(word, chunk);
        }
    }

    fn write_twice(&self, offset: usize, word: [u8; 8]) {
        let words = self.words(offset, 16);
        // The fence orders the mark after the bytes that it covers, in case the process dies in between.
        compiler_fence(Ordering::Release);
        words[0].store(u64::from_ne_bytes(word), Ordering::Relaxed);
        compiler_fence(Ordering::Release);
        words[1].store(u64::from_ne_bytes(word), Ordering::Relaxed);
    }

    fn read(&self, offset: usize, out: &mut [u8]) {
        let words = self.words(offset, out.len());
        for (word, chunk) in words.iter().zip(out.as_chunks_mut().0) {
            *chunk = word.load(Ordering::Relaxed).to_ne_bytes();
        }
    }

    fn write_to(
        &self,
        offset: usize,
        len: usize,
        file: &dyn DiskFile,
        position: u64,
    ) -> io::Result<()> {
        let Some(descriptor) = file.descriptor() else {
            let mut bytes = vec![0; len];
            self.read(offset, &mut bytes);
            return file.write_all_at(&[io::IoSlice::new(&bytes)], position);
        };
        let start = self.words(offset, len).as_ptr().cast::<u8>();
        let mut done = 0;
        while done < len {
            let at = i64::try_from(position + done as u64).map_err(io::Error::other)?;
            // SAFETY: `words` has checked that these bytes are in the mapping, which the borrow of
            // `self` keeps alive. No reference to them as bytes is made, since others may store
            // into them; the kernel copies what it finds.
            let written = unsafe {
                libc::pwrite(descriptor.as_raw_fd(), start.add(done).cast(), len - done, at)
            };
            match usize::try_from(written) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(more) => done += more,
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_in_the_file_at_once() {
        let path = std::env::temp_dir().join(format!("tierce-cask-map-{}", std::process::id()));
        let file =
            File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        file.set_len(8192).unwrap();
        let map = OsMap::new(&file, 8192).unwrap();
        let bytes: Vec<u8> = (0..24).collect();
        map.write(4088, &bytes);
        map.write_twice(8, [7; 8]);
        let content = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(content[4088..4112], bytes);
        assert_eq!(content[8..24], [7; 16]);
        assert_eq!(content[24..4088], [0; 4064]);
        let mut back = [0; 24];
        map.read(4088, &mut back);
        assert_eq!(back[..], bytes);
    }

    #[test]
    fn what_is_stored_can_be_written_to_another_file() {
        use crate::disk::{Disk, OpenMode, OsDisk};
        let name = |what: &str| {
            let name = format!("tierce-cask-map-{what}-{}", std::process::id());
            std::env::temp_dir().join(name)
        };
        let (from, to) = (name("from"), name("to"));
        let file =
            File::options().read(true).write(true).create(true).truncate(true).open(&from).unwrap();
        file.set_len(12_288).unwrap();
        let map = OsMap::new(&file, 12_288).unwrap();
        map.write(4096, &[7; 4096]);
        let target = OsDisk.open(&to, OpenMode::Truncate).unwrap();
        map.write_to(4096, 8192, &*target, 100).unwrap();
        let (content, missing) =
            (std::fs::read(&to).unwrap(), OsDisk.open(&from, OpenMode::ReadOnly).unwrap());
        assert!(map.write_to(0, 8, &*missing, 0).is_err(), "a handle for reading");
        std::fs::remove_file(&from).unwrap();
        std::fs::remove_file(&to).unwrap();
        assert_eq!(content[100..4196], [7; 4096]);
        assert_eq!(content[4196..], [0; 4096]);
    }
}
