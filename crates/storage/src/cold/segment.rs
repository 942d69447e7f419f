//! A file of values.

use super::location::{ColdLocation, RECORD_HEADER_LEN, SEGMENT_HEADER_LEN};
use crate::bytes::Cursor;
use crate::checksum::{Salt, crc32c, crc32c_append, crc32c_of_location};
use crate::disk::span::{ReadBuf, read_span};
use crate::disk::{Disk, DiskFile, OpenMode, read_exact_at};
use crate::error::{Error, Result};
use parking_lot::RwLock;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const MAGIC: &[u8; 8] = b"TIERCECS";
const VERSION: u32 = 1;
const CHECKED_LEN: usize = 20;
const HEADER_FIELDS_LEN: usize = CHECKED_LEN + 4;

/// Reusable memory for reading.
#[derive(Default)]
pub struct ColdBuffer(ReadBuf);

impl std::fmt::Debug for ColdBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ColdBuffer").field("capacity", &self.0.bytes.capacity()).finish()
    }
}

impl ColdBuffer {
    /// Frees the memory if it exceeds this many bytes.
    pub fn shrink_to(&mut self, bytes_max: usize) {
        if self.0.bytes.capacity() > bytes_max {
            self.0 = ReadBuf::default();
        }
    }
}

/// One segment. Its counters are relaxed: each is independent.
pub(super) struct ColdSegment {
    pub(super) id: u32,
    pub(super) path: PathBuf,
    salt: Salt,
    disk: Arc<dyn Disk>,
    /// `Some` while the file is open for reading.
    file: RwLock<Option<Arc<dyn DiskFile>>>,
    /// Number of bytes written, in whole pages, including the header.
    len: AtomicU64,
    /// Bytes of live records.
    live: AtomicU64,
    /// End of the last record that was held, a lower bound of the file's length.
    held_end: AtomicU64,
    /// Reason why nothing can be read. After a crash there may be incomplete files that are not
    /// needed, and locations in removed files; neither matters until it is read.
    flaw: Option<Error>,
}

impl ColdSegment {
    /// Creates the state of a new file and its first page.
    pub(super) fn new(disk: &Arc<dyn Disk>, path: PathBuf, id: u32, salt: Salt) -> Self {
        let (disk, file) = (Arc::clone(disk), RwLock::default());
        let (len, live) = (AtomicU64::new(SEGMENT_HEADER_LEN), AtomicU64::new(0));
        let held_end = AtomicU64::new(0);
        ColdSegment { id, path, salt, disk, file, len, live, held_end, flaw: None }
    }

    /// Opens an existing file. If it is not a segment, reading reports that.
    pub(super) fn open(disk: &Arc<dyn Disk>, path: PathBuf, id: u32) -> Self {
        match open_file(&**disk, &path, id) {
            Ok((salt, len)) => {
                let segment = Self::new(disk, path, id, salt);
                segment.len.store(len, Relaxed);
                segment
            }
            Err(error) => ColdSegment { flaw: Some(error), ..Self::new(disk, path, id, Salt(0)) },
        }
    }

    /// Creates the state of a missing file.
    pub(super) fn missing(disk: &Arc<dyn Disk>, path: PathBuf, id: u32) -> Self {
        let flaw = Some(Error::Missing { path: path.clone() });
        ColdSegment { flaw, ..Self::new(disk, path, id, Salt(0)) }
    }

    /// Checks that everything that was held can exist.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(flaw) = &self.flaw {
            return Err(flaw.clone());
        }
        if self.held_end.load(Relaxed) > self.len() {
            return Err(Error::corrupt(&self.path, self.len(), "segment is cut off"));
        }
        Ok(())
    }

    /// Returns true if the record at a location can exist.
    pub(super) fn may_have(&self, location: ColdLocation) -> bool {
        self.flaw.is_none() && location.offset() + location.record_read_len() as u64 <= self.len()
    }

    pub(super) fn header(&self) -> Vec<u8> {
        let mut page = vec![0; SEGMENT_HEADER_LEN as usize];
        page[..8].copy_from_slice(MAGIC);
        page[8..12].copy_from_slice(&VERSION.to_le_bytes());
        page[12..16].copy_from_slice(&self.salt.0.to_le_bytes());
        page[16..20].copy_from_slice(&self.id.to_le_bytes());
        let crc = crc32c(&page[..CHECKED_LEN]);
        page[CHECKED_LEN..HEADER_FIELDS_LEN].copy_from_slice(&crc.to_le_bytes());
        page
    }

    /// Writes the checksum into the record at the start of `bytes`.
    pub(super) fn stamp(&self, bytes: &mut [u8], location: ColdLocation) {
        let end = RECORD_HEADER_LEN as usize + location.len as usize;
        let crc = crc32c_append(crc32c_of_location(self.salt, location.offset()), &bytes[4..end]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads and verifies the value at a location of this segment.
    pub(super) fn read<'b>(
        &self,
        location: ColdLocation,
        buf: &'b mut ColdBuffer,
    ) -> Result<&'b [u8]> {
        let file = self.file_of(location)?;
        read_span(&*file, location.offset(), location.record_read_len(), &mut buf.0)
            .map_err(|e| self.failed(e))?;
        self.value(location, &buf.0)
    }

    /// Returns the file for reading the record at a location.
    pub(super) fn file_of(&self, location: ColdLocation) -> Result<Arc<dyn DiskFile>> {
        if let Some(flaw) = &self.flaw {
            return Err(flaw.clone());
        }
        if location.offset() + location.record_read_len() as u64 > self.len() {
            let what = "a value stands beyond the end of its segment";
            return Err(Error::corrupt(&self.path, location.offset(), what));
        }
        self.readable()
    }

    /// Returns the verified value in bytes that were read at a location.
    pub(super) fn value<'b>(&self, location: ColdLocation, read: &'b ReadBuf) -> Result<&'b [u8]> {
        let corrupt = |what| Error::corrupt(&self.path, location.offset(), what);
        let record = read.as_slice();
        let Some((head, value)) = record.split_first_chunk::<{ RECORD_HEADER_LEN as usize }>()
        else {
            return Err(corrupt("a value is cut off"));
        };
        let mut head = Cursor::new(head);
        let (crc, value_len) = (head.u32(), head.u32());
        if value.len() != location.len as usize || value_len != Some(location.len) {
            return Err(corrupt("a value has another length"));
        }
        let location_crc = crc32c_of_location(self.salt, location.offset());
        if crc != Some(crc32c_append(location_crc, &record[4..])) {
            return Err(corrupt("the checksum of a value does not match"));
        }
        Ok(value)
    }

    pub(super) fn failed(&self, error: std::io::Error) -> Error {
        Error::io("read", &self.path, error)
    }

    fn readable(&self) -> Result<Arc<dyn DiskFile>> {
        if let Some(file) = &*self.file.read() {
            return Ok(Arc::clone(file));
        }
        let mut file = self.file.write();
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        let opened = self.disk.open(&self.path, OpenMode::Direct).map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::Missing { path: self.path.clone() },
            _ => Error::io("open", &self.path, e),
        })?;
        opened.expect_random_reads();
        *file = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Returns true if the file is open.
    pub(super) fn is_open(&self) -> bool {
        self.file.read().is_some()
    }

    /// Closes the file until it is read again.
    pub(super) fn close(&self) {
        *self.file.write() = None;
    }

    pub(super) fn len(&self) -> u64 {
        self.len.load(Relaxed)
    }

    pub(super) fn set_len(&self, len: u64) {
        self.len.store(len, Relaxed);
    }

    pub(super) fn live(&self) -> u64 {
        self.live.load(Relaxed)
    }

    pub(super) fn hold(&self, location: ColdLocation) {
        self.held_end
            .fetch_max(location.offset() + RECORD_HEADER_LEN + u64::from(location.len), Relaxed);
        self.add_live(location.stored_len());
    }

    pub(super) fn add_live(&self, bytes: u64) {
        self.live.fetch_add(bytes, Relaxed);
    }

    pub(super) fn sub_live(&self, bytes: u64) {
        self.live.fetch_sub(bytes, Relaxed);
    }
}

fn open_file(disk: &dyn Disk, path: &Path, id: u32) -> Result<(Salt, u64)> {
    let failed = |e| Error::io("open", path, e);
    let file = disk.open(path, OpenMode::ReadOnly).map_err(failed)?;
    let salt = read_header(&*file, path, id)?;
    Ok((salt, file.size().map_err(failed)?))
}

fn read_header(file: &dyn DiskFile, path: &Path, id: u32) -> Result<Salt> {
    let mut bytes = [0; HEADER_FIELDS_LEN];
    match read_exact_at(file, &mut bytes, 0) {
        Ok(()) => {}
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
            return Err(Error::corrupt(path, 0, "segment header is cut off"));
        }
        Err(e) => return Err(Error::io("read", path, e)),
    }
    let (checked, crc) = bytes.split_at(CHECKED_LEN);
    if checked[..8] != *MAGIC {
        return Err(Error::corrupt(path, 0, "segment header has no magic number"));
    }
    if crc32c(checked).to_le_bytes() != crc {
        return Err(Error::corrupt(path, 0, "segment header checksum does not match"));
    }
    let mut fields = Cursor::new(&checked[8..]);
    let (version, salt, number) = (fields.u32(), fields.u32(), fields.u32());
    if let Some(found) = version.filter(|found| *found > VERSION) {
        let path = path.to_owned();
        return Err(Error::TooNew { path, found, oldest: VERSION, newest: VERSION });
    }
    if version != Some(VERSION) {
        return Err(Error::corrupt(path, 8, "segment has an unknown format version"));
    }
    if number != Some(id) {
        return Err(Error::Foreign { path: path.to_owned(), what: "it has another number inside" });
    }
    Ok(Salt(salt.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cold::ColdBatch;
    use crate::disk::SimDisk;

    #[test]
    fn the_format_page_shows_these_bytes() {
        let page = include_str!("../../../../docs/formats/cold-segment.md");
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let segment = ColdSegment::new(&disk, PathBuf::from("x"), 7, Salt(0xdead_beef));
        let mut batch = ColdBatch::default();
        batch.push(|out| out.extend_from_slice(b"wine")).unwrap();
        segment.stamp(&mut batch.bytes, ColdLocation::new(7, SEGMENT_HEADER_LEN, 4));
        let hex = |line: &[u8]| {
            line.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
        };
        let header = segment.header();
        for line in header[..HEADER_FIELDS_LEN].chunks(16).chain([&batch.bytes[..]]).map(hex) {
            assert!(page.contains(&line), "the page lacks {line}");
        }
    }
}
