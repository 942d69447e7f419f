//! An open segment: reading from it, accounting for it, and removing it at the right time.
//!
//! * A segment's file is opened when first read and may be closed again when too many are open
//!   ([`OpenFiles`]); segments being written stay open.
//! * A doomed segment's file is removed when the last user lets go of it, so a reader that found a
//!   location keeps what it points to.

use super::header::{Origin, SEGMENT_HEADER_LEN, SegmentHeader};
use crate::checksum::Salt;
use crate::disk::{DIRECT_ALIGNMENT, Disk, DiskFile, OpenMode, read_exact_at};
use crate::error::{Error, Result};
use crate::location::SegmentId;
use crate::names;
use parking_lot::{Mutex, RwLock};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// What all segments of a store share.
pub(crate) struct SegmentHome {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) store_id: u128,
    pub(crate) direct_io: bool,
    pub(crate) open_files: OpenFiles,
    /// Segments whose files were removed since the list was last taken.
    pub(crate) removed: Mutex<Vec<SegmentId>>,
}

/// One segment of a store.
pub(crate) struct Segment {
    pub(crate) id: SegmentId,
    pub(crate) salt: Salt,
    pub(crate) origin: Origin,
    /// No record in it has a lower sequence number.
    seq_min: AtomicU64,
    pub(crate) path: PathBuf,
    home: Arc<SegmentHome>,
    file: RwLock<Option<Arc<dyn DiskFile>>>,
    used: AtomicBool,
    /// Bytes of the file that are written.
    len: AtomicU64,
    /// Bytes of the file that are durable.
    synced: AtomicU64,
    /// Bytes of records the index points to.
    live: AtomicU64,
    /// Bytes of tombstones.
    tombstones: AtomicU64,
    doomed: AtomicBool,
    damaged: AtomicBool,
}

impl Segment {
    /// Creates the file with its header, durable when this returns.
    pub(crate) fn create(
        home: &Arc<SegmentHome>,
        id: SegmentId,
        origin: Origin,
        seq_min: u64,
    ) -> Result<Arc<Self>> {
        let path = names::segment(&home.dir, id);
        // Truncating: a file left by an interrupted attempt is in the way of nobody.
        let file =
            home.disk.open(&path, OpenMode::Truncate).map_err(|e| Error::io("create", &path, e))?;
        let salt = Salt(home.disk.entropy() as u32);
        let header = SegmentHeader { salt, store_id: home.store_id, id, origin };
        file.write_all_at(&[std::io::IoSlice::new(&header.encode())], 0)
            .map_err(|e| Error::io("write", &path, e))?;
        file.sync_data().map_err(|e| Error::io("sync", &path, e))?;
        home.disk.sync_dir(&home.dir).map_err(|e| Error::io("sync", &home.dir, e))?;
        let segment = Self::new(home, &header, seq_min, SEGMENT_HEADER_LEN);
        *segment.file.write() = Some(file);
        Ok(Arc::new(segment))
    }

    /// Opens the file for reading and verifies its header.
    pub(crate) fn open(home: &Arc<SegmentHome>, id: SegmentId, seq_min: u64) -> Result<Arc<Self>> {
        let path = names::segment(&home.dir, id);
        let file = match home.disk.open(&path, OpenMode::ReadOnly) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Err(Error::Missing { path }),
            Err(e) => return Err(Error::io("open", &path, e)),
        };
        let header = read_header(&*file, &path)?;
        if header.store_id != home.store_id || header.id != id {
            return Err(Error::Foreign { path, what: "its header names another store or segment" });
        }
        let len = file.size().map_err(|e| Error::io("measure", &path, e))?;
        Ok(Arc::new(Self::new(home, &header, seq_min, len)))
    }

    fn new(home: &Arc<SegmentHome>, header: &SegmentHeader, seq_min: u64, len: u64) -> Self {
        Segment {
            id: header.id,
            salt: header.salt,
            origin: header.origin,
            seq_min: AtomicU64::new(seq_min),
            path: names::segment(&home.dir, header.id),
            home: home.clone(),
            file: RwLock::new(None),
            used: AtomicBool::new(false),
            len: AtomicU64::new(len),
            synced: AtomicU64::new(len),
            live: AtomicU64::new(0),
            tombstones: AtomicU64::new(0),
            doomed: AtomicBool::new(false),
            damaged: AtomicBool::new(false),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Called by the only writer after bytes were written or taken back.
    pub(crate) fn set_len(&self, len: u64) {
        self.len.store(len, Ordering::Release);
    }

    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    pub(crate) fn seq_min(&self) -> u64 {
        self.seq_min.load(Ordering::Acquire)
    }

    /// Called when the segment is finished and the number is known exactly.
    pub(crate) fn set_seq_min(&self, seq: u64) {
        self.seq_min.store(seq, Ordering::Release);
    }

    /// Notes that compaction could not read the segment to its end.
    pub(crate) fn mark_damaged(&self) {
        self.damaged.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    pub(crate) fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    pub(crate) fn tombstones(&self) -> u64 {
        self.tombstones.load(Ordering::Relaxed)
    }

    pub(crate) fn add_live(&self, len: u64) {
        self.live.fetch_add(len, Ordering::Relaxed);
    }

    pub(crate) fn add_tombstone(&self, len: u64) {
        self.tombstones.fetch_add(len, Ordering::Relaxed);
    }

    /// Lengths of long records are known as upper bounds only, hence saturating.
    pub(crate) fn subtract_live(&self, len: u64) {
        let _ = self.live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |live| {
            Some(live.saturating_sub(len))
        });
    }

    /// Makes everything written so far durable.
    pub(crate) fn sync(&self) -> Result<()> {
        let len = self.len();
        if self.synced() >= len {
            return Ok(());
        }
        let file = self.writable()?;
        file.sync_data().map_err(|e| Error::io("sync", &self.path, e))?;
        self.synced.fetch_max(len, Ordering::AcqRel);
        Ok(())
    }

    /// The handle of a segment that was created by this process and is not finished.
    pub(crate) fn writable(&self) -> Result<Arc<dyn DiskFile>> {
        self.file.read().clone().ok_or(Error::Closed)
    }

    /// Lets go of the handle used for writing; readers open their own from now on.
    pub(crate) fn finish(&self) {
        *self.file.write() = None;
    }

    /// Has the file removed once nobody uses the segment any more.
    pub(crate) fn doom(&self) {
        self.doomed.store(true, Ordering::Release);
    }

    /// A handle for reading.
    pub(crate) fn readable(self: &Arc<Self>) -> Result<Arc<dyn DiskFile>> {
        // A plain load first: the bit is almost always set, and storing would move its line.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        if let Some(file) = &*self.file.read() {
            return Ok(file.clone());
        }
        let mode = if self.home.direct_io { OpenMode::Direct } else { OpenMode::ReadOnly };
        let file = self.open_file(mode)?;
        file.expect_random_reads();
        *self.file.write() = Some(file.clone());
        self.home.open_files.opened(self);
        Ok(file)
    }

    /// A handle of the caller's own, for reading from end to end.
    pub(crate) fn sequential(&self) -> Result<Arc<dyn DiskFile>> {
        self.open_file(OpenMode::ReadOnly)
    }

    pub(crate) fn open_file(&self, mode: OpenMode) -> Result<Arc<dyn DiskFile>> {
        match self.home.disk.open(&self.path, mode) {
            Ok(file) => Ok(file),
            Err(e) if e.kind() == ErrorKind::NotFound => {
                Err(Error::Missing { path: self.path.clone() })
            }
            Err(e) => Err(Error::io("open", &self.path, e)),
        }
    }

    /// Up to `len` bytes at `offset`; fewer where the file ends.
    pub(crate) fn read(self: &Arc<Self>, offset: u64, len: usize) -> Result<ReadBuf> {
        let file = self.readable()?;
        let read = if file.is_direct() {
            let mut buf = ReadBuf::default();
            read_aligned(&*file, offset, len, &mut buf).map(|()| buf)
        } else {
            let bytes = file.read_to_vec(len, offset);
            bytes.map(|bytes| ReadBuf { start: 0, end: bytes.len(), bytes })
        };
        read.map_err(|e| Error::io("read", &self.path, e))
    }

    /// As [`Self::read`], into a buffer that has been used before.
    pub(crate) fn read_into(
        self: &Arc<Self>,
        offset: u64,
        len: usize,
        buf: &mut ReadBuf,
    ) -> Result<()> {
        let file = self.readable()?;
        let read = if file.is_direct() {
            read_aligned(&*file, offset, len, buf)
        } else {
            read_plain(&*file, offset, len, buf)
        };
        read.map_err(|e| Error::io("read", &self.path, e))
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if !*self.doomed.get_mut() {
            return;
        }
        // When a removal fails, the file stays listed as doomed and the next opening tries again.
        let hint = names::hint(&self.home.dir, self.id);
        let _ = self.home.disk.remove(&hint);
        if self.home.disk.remove(&self.path).is_ok() {
            self.home.removed.lock().push(self.id);
        }
    }
}

/// Reads and verifies a segment's header.
pub(crate) fn read_header(file: &dyn DiskFile, path: &Path) -> Result<SegmentHeader> {
    let mut bytes = [0; SEGMENT_HEADER_LEN as usize];
    match read_exact_at(file, &mut bytes, 0) {
        Ok(()) => SegmentHeader::decode(&bytes).map_err(|what| Error::corrupt(path, 0, what)),
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
            Err(Error::corrupt(path, 0, "segment header is cut off"))
        }
        Err(e) => Err(Error::io("read", path, e)),
    }
}

/// Bytes that were read, at some place of a buffer.
#[derive(Default)]
pub(crate) struct ReadBuf {
    pub(crate) bytes: Vec<u8>,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl ReadBuf {
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Room for `len` bytes. Only what the buffer never had is zeroed: what is read afterwards
    /// replaces the rest.
    fn room(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len {
            // A new vector of zeros comes from the system as such; growing would write them.
            self.bytes = vec![0; len];
        }
        &mut self.bytes
    }
}

fn read_plain(
    file: &dyn DiskFile,
    offset: u64,
    len: usize,
    buf: &mut ReadBuf,
) -> std::io::Result<()> {
    let read = file.read_at(&mut buf.room(len)[..len], offset)?;
    (buf.start, buf.end) = (0, read);
    Ok(())
}

/// Reads through a handle that wants everything aligned.
fn read_aligned(
    file: &dyn DiskFile,
    offset: u64,
    len: usize,
    buf: &mut ReadBuf,
) -> std::io::Result<()> {
    let alignment = DIRECT_ALIGNMENT as u64;
    let first = offset - offset % alignment;
    let end = (offset + len as u64).next_multiple_of(alignment);
    let span = (end - first) as usize;
    let bytes = buf.room(span + DIRECT_ALIGNMENT);
    let pad = bytes.as_ptr().align_offset(DIRECT_ALIGNMENT);
    let read = file.read_at(&mut bytes[pad..pad + span], first)?;
    let skip = (offset - first) as usize;
    let end = skip.max(read.min(skip + len));
    (buf.start, buf.end) = (pad + skip, pad + end);
    Ok(())
}

/// Keeps the number of open segments below a limit, closing those not read lately.
pub(crate) struct OpenFiles {
    max: usize,
    open: Mutex<VecDeque<Weak<Segment>>>,
}

impl OpenFiles {
    pub(crate) fn new(max: usize) -> Self {
        OpenFiles { max, open: Mutex::new(VecDeque::new()) }
    }

    fn opened(&self, segment: &Arc<Segment>) {
        let mut open = self.open.lock();
        open.push_back(Arc::downgrade(segment));
        let mut spared = 0;
        while open.len() > self.max {
            let Some(oldest) = open.pop_front() else { break };
            let Some(candidate) = oldest.upgrade() else { continue };
            // Second chance for what was read since the last look, but only once round.
            if candidate.used.swap(false, Ordering::Relaxed) && spared < self.max {
                spared += 1;
                open.push_back(oldest);
                continue;
            }
            *candidate.file.write() = None;
        }
    }

    /// How many handles are kept open for reading.
    pub(crate) fn count(&self) -> usize {
        self.open.lock().iter().filter(|weak| weak.strong_count() > 0).count()
    }
}
