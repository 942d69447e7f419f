//! An open segment: reading, accounting, and removal at the right time.
//!
//! * A segment's file is opened on first read and may be closed when too many are open ([`OpenFiles`]); segments
//!   being written stay open.
//! * An obsolete segment's file is removed when its last user drops it, so a reader with a location can still
//!   read it.
//! * The end of a segment being written may be in its shard's tail only. Readers copy it from there and check
//!   afterwards that it was still there, without a lock and without waiting for a disk write.

use super::contents::{Contents, RecordMeta};
use super::header::{Origin, SEGMENT_HEADER_LEN, SegmentHeader};
use crate::checksum::Salt;
use crate::disk::span::{ReadBuf, read_span};
use crate::disk::{Disk, DiskFile, OpenMode, read_exact_at, space};
use crate::error::{Error, Result};
use crate::location::{ALIGNMENT, LocationHash, SegmentId};
use crate::names;
use crate::tail::{LogOffset, Tail};
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};

/// State shared by all segments of a store.
pub struct SegmentHome {
    pub disk: Arc<dyn Disk>,
    pub dir: PathBuf,
    pub store_id: u128,
    pub direct_io: bool,
    pub open_files: OpenFiles,
    /// Segments whose files were removed since the list was last taken.
    pub removed: Mutex<Vec<SegmentId>>,
}

impl SegmentHome {
    pub fn new(
        disk: Arc<dyn Disk>,
        dir: &Path,
        store_id: u128,
        direct_io: bool,
        open_files_max: usize,
    ) -> Arc<Self> {
        let (dir, open_files) = (dir.to_owned(), OpenFiles::new(open_files_max));
        Arc::new(Self { disk, dir, store_id, direct_io, open_files, removed: Mutex::default() })
    }
}

/// One segment of a store.
pub struct Segment {
    pub id: SegmentId,
    pub salt: Salt,
    pub origin: Origin,
    /// Lower bound of the sequence numbers of its records.
    seq_min: AtomicU64,
    pub path: PathBuf,
    home: Arc<SegmentHome>,
    file: RwLock<Option<Arc<dyn DiskFile>>>,
    used: AtomicBool,
    /// Number of bytes written, to the file or to the tail.
    len: AtomicU64,
    /// End of the file's reserved space; for the only writer.
    reserved: AtomicU64,
    /// The log's tail, and the offset in the log at which this segment begins.
    tail: OnceLock<(Arc<Tail>, LogOffset)>,
    /// End of the part that readers find in the file; later bytes are in the tail. Whole blocks, until the
    /// segment is complete: then [`ALL_FLUSHED`].
    flushed: AtomicU64,
    /// Number of durable bytes of the file.
    synced: AtomicU64,
    /// Bytes of the records that the index points to.
    live: AtomicU64,
    /// Bytes of tombstones.
    tombstones: AtomicU64,
    /// Contents for the hint file, collected while the segment is written.
    collected: Mutex<Option<Contents>>,
    obsolete: AtomicBool,
    damaged: AtomicBool,
    /// There was no space for its hint file.
    lacks_hint: AtomicBool,
}

/// Value of `flushed` when nothing is in the tail, or never was.
const ALL_FLUSHED: u64 = u64::MAX;
/// Memory limit of collecting for the hint file: this part of the segment's length, which suits records from
/// some 2 KiB on, or at least the second constant.
const COLLECTED_FRACTION: u64 = 32;
const COLLECTED_LEN_MIN: u64 = 32 << 10;
/// Number of bytes reserved at a time. A call takes some 10 microseconds, during which the shard's writers wait.
/// Reserved space is unavailable to others until the store is closed.
const RESERVE_LEN: u64 = 16 << 20;

impl Segment {
    /// Creates the file with its header, durable when this returns.
    pub fn create(
        home: &Arc<SegmentHome>,
        id: SegmentId,
        origin: Origin,
        seq_min: u64,
    ) -> Result<Arc<Self>> {
        let path = names::segment(&home.dir, id);
        // The mode replaces a file left by an interrupted attempt.
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
    pub fn open(home: &Arc<SegmentHome>, id: SegmentId, seq_min: u64) -> Result<Arc<Self>> {
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

    pub(crate) fn new(
        home: &Arc<SegmentHome>,
        header: &SegmentHeader,
        seq_min: u64,
        len: u64,
    ) -> Self {
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
            reserved: AtomicU64::new(len),
            tail: OnceLock::new(),
            flushed: AtomicU64::new(ALL_FLUSHED),
            synced: AtomicU64::new(len),
            live: AtomicU64::new(0),
            tombstones: AtomicU64::new(0),
            collected: Mutex::new(None),
            obsolete: AtomicBool::new(false),
            damaged: AtomicBool::new(false),
            lacks_hint: AtomicBool::new(false),
        }
    }

    pub fn header(&self) -> SegmentHeader {
        let store_id = self.home.store_id;
        SegmentHeader { salt: self.salt, store_id, id: self.id, origin: self.origin }
    }

    #[expect(clippy::len_without_is_empty, reason = "it has a header at least")]
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Fails unless the segment has the length with which it was sealed.
    pub fn check_len(&self, sealed: u64) -> Result<()> {
        let (len, what) = (self.len(), "segment has not the length it was finished with");
        if len == sealed { Ok(()) } else { Err(Error::corrupt(&self.path, len.min(sealed), what)) }
    }

    /// Sets the length. Called by the only writer after bytes were written or withdrawn.
    pub fn set_len(&self, len: u64) {
        self.len.store(len, Ordering::Release);
    }

    /// Sets the end of the file, beyond which no space is reserved.
    pub fn set_end(&self, len: u64) {
        self.set_len(len);
        self.reserved.store(len, Ordering::Relaxed);
    }

    pub fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    pub fn seq_min(&self) -> u64 {
        self.seq_min.load(Ordering::Acquire)
    }

    /// Sets the lowest sequence number. Called when the segment is finished and the number is known exactly.
    pub fn set_seq_min(&self, seq: u64) {
        self.seq_min.store(seq, Ordering::Release);
    }

    /// Notes that compaction could not read the segment to its end.
    pub fn mark_damaged(&self) {
        self.damaged.store(true, Ordering::Relaxed);
    }

    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Notes if there was no space for the hint file of a finished segment.
    pub fn set_lacks_hint(&self, lacks: bool) {
        self.lacks_hint.store(lacks, Ordering::Relaxed);
    }

    pub fn lacks_hint(&self) -> bool {
        self.lacks_hint.load(Ordering::Relaxed)
    }

    pub fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    pub fn tombstones(&self) -> u64 {
        self.tombstones.load(Ordering::Relaxed)
    }

    pub fn add_live(&self, len: u64) {
        self.live.fetch_add(len, Ordering::Relaxed);
    }

    pub fn add_tombstone(&self, len: u64) {
        self.tombstones.fetch_add(len, Ordering::Relaxed);
    }

    /// Subtracts from the live bytes. Lengths of long records are upper bounds, so this saturates at zero.
    pub fn subtract_live(&self, len: u64) {
        let _ = self.live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |live| {
            Some(live.saturating_sub(len))
        });
    }

    /// Makes the segment be written through a tail. Called before anything is in it.
    pub fn attach(&self, tail: &Arc<Tail>, base: LogOffset) {
        self.flushed.store(0, Ordering::Release);
        let attached = self.tail.set((tail.clone(), base));
        debug_assert!(attached.is_ok(), "a segment is attached once");
    }

    /// Starts to collect the contents while the segment is written.
    pub fn start_collecting(&self) {
        *self.collected.lock() = Some(Contents::default());
    }

    /// Collects a record for the hint file; for the only writer. Small records soon end the collection: they
    /// would take too much memory, and are read faster than the disk writes.
    pub fn collect(&self, hash: u64, key: &[u8], meta: RecordMeta) {
        let mut collected = self.collected.lock();
        let Some(contents) = &mut *collected else { return };
        contents.add(hash, key, meta);
        let allowed = COLLECTED_LEN_MIN.max((meta.offset + meta.len) / COLLECTED_FRACTION);
        if contents.memory_bytes() as u64 > allowed {
            *collected = None;
        }
    }

    /// Returns the collected contents, if they are complete.
    pub fn take_collected(&self) -> Option<Contents> {
        self.collected.lock().take()
    }

    /// Notes that the file has the blocks before this offset. Called by the flusher.
    pub(crate) fn set_flushed(&self, offset: u64) {
        self.flushed.store(offset, Ordering::Release);
    }

    /// Notes that the file has everything. Called by the flusher.
    pub(crate) fn set_all_flushed(&self) {
        self.set_flushed(ALL_FLUSHED);
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.flushed.load(Ordering::Acquire) == ALL_FLUSHED
    }

    /// Returns the end of the reserved or used space.
    pub fn space(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed).max(self.len())
    }

    /// Returns the end up to which to reserve space when `len` bytes are needed: more at once, so that this is
    /// rare; at most `usual_len` unless more is needed, and little on a nearly full device.
    pub fn space_wanted(&self, len: u64, usual_len: u64) -> u64 {
        let reserved = self.reserved.load(Ordering::Relaxed);
        let wanted = (reserved + RESERVE_LEN).min(usual_len);
        space::decent(&*self.home.disk, &self.home.dir, reserved, len, wanted)
    }

    /// Returns true if space is reserved up to `len`.
    #[inline]
    pub(crate) fn has_space(&self, len: u64) -> bool {
        len <= self.reserved.load(Ordering::Relaxed)
    }

    /// Reserves space up to `len`. For the only writer.
    pub fn reserve(&self, len: u64) -> Result<()> {
        if self.has_space(len) {
            return Ok(());
        }
        self.writable()?.reserve(len).map_err(|e| Error::io("reserve", &self.path, e))?;
        self.reserved.store(len, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the file durable. The caller knows that it reaches up to `len`.
    pub fn sync(&self, len: u64) -> Result<()> {
        if self.synced() >= len {
            return Ok(());
        }
        let Ok(file) = self.writable() else {
            // It was made durable when it was finished.
            return if self.synced() >= len { Ok(()) } else { Err(Error::Closed) };
        };
        file.sync_data().map_err(|e| Error::io("sync", &self.path, e))?;
        self.synced.fetch_max(len, Ordering::AcqRel);
        Ok(())
    }

    /// Truncates the file at the end of its records, durably, once all of them are in it.
    pub fn complete(&self) -> Result<()> {
        debug_assert!(self.is_flushed(), "the end is in the file");
        let (file, len) = (self.writable()?, self.len());
        file.truncate(len).map_err(|e| Error::failed("truncate", &self.path, e))?;
        file.sync_data().map_err(|e| Error::failed("sync", &self.path, e))?;
        self.synced.fetch_max(len, Ordering::AcqRel);
        self.reserved.store(len, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the handle of an unfinished segment that this process has created.
    pub fn writable(&self) -> Result<Arc<dyn DiskFile>> {
        self.file.read().clone().ok_or(Error::Closed)
    }

    /// Drops the handle used for writing; readers open their own from now on.
    pub fn finish(&self) {
        *self.file.write() = None;
    }

    /// Marks the file to be removed once the segment is no longer used.
    pub fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    /// Returns a handle for reading.
    pub fn readable(self: &Arc<Self>) -> Result<Arc<dyn DiskFile>> {
        // A plain load first: the bit is almost always set, and storing would move its cache line.
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

    /// Opens a handle for the caller alone, for reading from end to end.
    pub fn sequential(&self) -> Result<Arc<dyn DiskFile>> {
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

    /// Reads up to `len` bytes at `offset`; fewer at the end of the segment.
    pub fn read(self: &Arc<Self>, offset: u64, len: usize) -> Result<ReadBuf> {
        while offset + len as u64 > self.flushed.load(Ordering::Acquire) {
            if let Some(buf) = self.read_by_tail(offset, len)? {
                return Ok(buf);
            }
        }
        self.read_file(offset, len)
    }

    /// Reads bytes whose end is in the tail; returns `None` when it no longer is.
    fn read_by_tail(self: &Arc<Self>, offset: u64, len: usize) -> Result<Option<ReadBuf>> {
        let Some((tail, base)) = self.tail.get() else { return Ok(None) };
        let flushed = self.flushed.load(Ordering::Acquire);
        if flushed == ALL_FLUSHED {
            return Ok(None);
        }
        let end = self.len().min((offset + len as u64).next_multiple_of(ALIGNMENT));
        let start = offset.max(flushed).min(end);
        let mut bytes = vec![0; end.saturating_sub(offset) as usize];
        let skip = (start - offset.min(start)) as usize;
        tail.read(base + start, &mut bytes[skip..]);
        // A slot is rewritten only after its block counts as flushed. So if the block does not count yet, the
        // bytes read are the right ones. If a later word was read, the writer's fence and this one make the
        // count that the writer had seen visible here.
        fence(Ordering::Acquire);
        let now = self.flushed.load(Ordering::Relaxed);
        if now > start {
            return Ok(None);
        }
        if skip > 0 {
            let head = self.read_file(offset, skip)?;
            let head = head.as_slice();
            bytes[..head.len()].copy_from_slice(head);
            if head.len() < skip {
                // The file was truncated; the checksums reveal the missing part.
                bytes.truncate(head.len());
            }
        }
        bytes.truncate(len);
        Ok(Some(ReadBuf { start: 0, end: bytes.len(), bytes }))
    }

    fn read_file(self: &Arc<Self>, offset: u64, len: usize) -> Result<ReadBuf> {
        let file = self.readable()?;
        let read = if file.is_direct() {
            let mut buf = ReadBuf::default();
            read_span(&*file, offset, len, &mut buf).map(|()| buf)
        } else {
            let bytes = file.read_to_vec(len, offset);
            bytes.map(|bytes| ReadBuf { start: 0, end: bytes.len(), bytes })
        };
        read.map_err(|e| Error::io("read", &self.path, e))
    }

    /// Reads as [`Self::read`] does, into a buffer that has been used before.
    pub fn read_into(self: &Arc<Self>, offset: u64, len: usize, buf: &mut ReadBuf) -> Result<()> {
        if offset + len as u64 > self.flushed.load(Ordering::Acquire) {
            *buf = self.read(offset, len)?;
            return Ok(());
        }
        let file = self.readable()?;
        read_span(&*file, offset, len, buf).map_err(|e| Error::io("read", &self.path, e))
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if !*self.obsolete.get_mut() {
            return;
        }
        // When a removal fails, the file stays listed as obsolete and the next opening tries again.
        let hint = names::hint(&self.home.dir, self.id);
        let _ = self.home.disk.remove(&hint);
        if self.home.disk.remove(&self.path).is_ok() {
            self.home.removed.lock().push(self.id);
        }
    }
}

/// Reads and verifies a segment's header.
pub(crate) fn read_header(file: &dyn DiskFile, path: &Path) -> Result<SegmentHeader> {
    let bytes = read_header_bytes(file, path)?;
    SegmentHeader::decode(&bytes).map_err(|what| Error::corrupt(path, 0, what))
}

/// Reads a segment's header, of which one byte may be wrong.
pub(crate) fn read_damaged_header(
    file: &dyn DiskFile,
    path: &Path,
    id: SegmentId,
) -> Result<SegmentHeader> {
    read_header(file, path).or_else(|error| {
        let corrected = SegmentHeader::decode_corrected(&read_header_bytes(file, path)?);
        corrected.filter(|header| header.id == id).ok_or(error)
    })
}

fn read_header_bytes(
    file: &dyn DiskFile,
    path: &Path,
) -> Result<[u8; SEGMENT_HEADER_LEN as usize]> {
    let mut bytes = [0; SEGMENT_HEADER_LEN as usize];
    match read_exact_at(file, &mut bytes, 0) {
        Ok(()) => Ok(bytes),
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
            Err(Error::corrupt(path, 0, "segment header is cut off"))
        }
        Err(e) => Err(Error::io("read", path, e)),
    }
}

/// Limits the number of open segments by closing those not read lately.
pub struct OpenFiles {
    max: usize,
    open: Mutex<VecDeque<Weak<Segment>>>,
}

impl OpenFiles {
    pub fn new(max: usize) -> Self {
        OpenFiles { max, open: Mutex::new(VecDeque::new()) }
    }

    fn opened(&self, segment: &Arc<Segment>) {
        let mut open = self.open.lock();
        open.push_back(Arc::downgrade(segment));
        let mut spared = 0;
        while open.len() > self.max {
            let Some(oldest) = open.pop_front() else { break };
            let Some(candidate) = oldest.upgrade() else { continue };
            // A segment read since the last check gets a second chance, but only one round.
            if candidate.used.swap(false, Ordering::Relaxed) && spared < self.max {
                spared += 1;
                open.push_back(oldest);
                continue;
            }
            *candidate.file.write() = None;
        }
    }

    /// Returns the number of handles open for reading.
    pub fn count(&self) -> usize {
        self.open.lock().iter().filter(|weak| weak.strong_count() > 0).count()
    }
}

/// Segments by number.
pub type Segments = HashMap<SegmentId, Arc<Segment>, LocationHash>;
