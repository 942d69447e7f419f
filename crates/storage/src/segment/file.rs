//! An open segment: reading, accounting, and removal at the right time.
//!
//! * A segment's file is opened on first read and may be closed when too many are open ([`OpenFiles`]); segments
//!   being written stay open.
//! * An obsolete segment's file is removed when its last user drops it, so a reader with a location can still
//!   read it.
//! * The end of a segment being written may be in its shard's tail only. Readers copy it from there and check
//!   afterwards that it was still there: no lock, no waiting for a disk write.

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

/// What all segments of a store share.
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
    /// No record in it has a lower sequence number.
    seq_min: AtomicU64,
    pub path: PathBuf,
    home: Arc<SegmentHome>,
    file: RwLock<Option<Arc<dyn DiskFile>>>,
    used: AtomicBool,
    /// Bytes that are written, to the file or to the tail.
    len: AtomicU64,
    /// Bytes for which the file's space is set aside; for the only writer.
    reserved: AtomicU64,
    /// Where the log's tail is, and where in the log this segment begins.
    tail: OnceLock<(Arc<Tail>, LogOffset)>,
    /// Bytes that readers find in the file; from there on they are in the tail.
    /// Whole blocks, until the segment is complete: then [`ALL_FLUSHED`].
    flushed: AtomicU64,
    /// Bytes of the file that are durable.
    synced: AtomicU64,
    /// Bytes of records the index points to.
    live: AtomicU64,
    /// Bytes of tombstones.
    tombstones: AtomicU64,
    /// Its contents, collected for its hint file while it is written.
    collected: Mutex<Option<Contents>>,
    obsolete: AtomicBool,
    damaged: AtomicBool,
    /// There was no space for its hint file.
    lacks_hint: AtomicBool,
}

/// What [`Segment::flushed`] says when nothing is in the tail, or never was.
const ALL_FLUSHED: u64 = u64::MAX;
/// Collecting for the hint file may take this part of the segment's length in memory, which suits
/// records from some 2 KiB on, or this much in any case.
const COLLECTED_FRACTION: u64 = 32;
const COLLECTED_LEN_MIN: u64 = 32 << 10;
/// How much space is set aside at a time. A call takes some 10 microseconds, during which the
/// writers of the shard wait; what a store holds in reserve is lost to others until it is closed.
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
        // Truncating: a file left by an interrupted attempt is replaced.
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

    /// Fails unless the segment has the length it was sealed with.
    pub fn check_len(&self, sealed: u64) -> Result<()> {
        let (len, what) = (self.len(), "segment has not the length it was finished with");
        if len == sealed { Ok(()) } else { Err(Error::corrupt(&self.path, len.min(sealed), what)) }
    }

    /// Called by the only writer after bytes were written or taken back.
    pub fn set_len(&self, len: u64) {
        self.len.store(len, Ordering::Release);
    }

    /// Notes where the file ends; no space is set aside behind that.
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

    /// Called when the segment is finished and the number is known exactly.
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

    /// Notes whether there was no space for the hint file of a finished segment.
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

    /// Lengths of long records are known as upper bounds only, hence saturating.
    pub fn subtract_live(&self, len: u64) {
        let _ = self.live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |live| {
            Some(live.saturating_sub(len))
        });
    }

    /// From now on the segment is written by way of a tail; called before anything is in it.
    pub fn attach(&self, tail: &Arc<Tail>, base: LogOffset) {
        self.flushed.store(0, Ordering::Release);
        let attached = self.tail.set((tail.clone(), base));
        debug_assert!(attached.is_ok(), "a segment is attached once");
    }

    /// Has its contents collected while the segment is written.
    pub fn start_collecting(&self) {
        *self.collected.lock() = Some(Contents::default());
    }

    /// Notes a record for the hint file, for the only writer. With small records it is given up
    /// before long: they would take too much memory, and are read faster than the disk writes.
    pub fn collect(&self, hash: u64, key: &[u8], meta: RecordMeta) {
        let mut collected = self.collected.lock();
        let Some(contents) = &mut *collected else { return };
        contents.add(hash, key, meta);
        let allowed = COLLECTED_LEN_MIN.max((meta.offset + meta.len) / COLLECTED_FRACTION);
        if contents.memory_bytes() as u64 > allowed {
            *collected = None;
        }
    }

    /// What was collected, if it is complete.
    pub fn take_collected(&self) -> Option<Contents> {
        self.collected.lock().take()
    }

    /// Called by the flusher when the file has the blocks before this offset.
    pub(crate) fn set_flushed(&self, offset: u64) {
        self.flushed.store(offset, Ordering::Release);
    }

    /// Called by the flusher when the file has everything.
    pub(crate) fn set_all_flushed(&self) {
        self.set_flushed(ALL_FLUSHED);
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.flushed.load(Ordering::Acquire) == ALL_FLUSHED
    }

    /// Up to where space is set aside or used.
    pub fn space(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed).max(self.len())
    }

    /// Up to where space should be set aside when it is needed up to `len`: more at once, so that this
    /// is not done often; at most `usual_len` unless more is needed, and little on a device that is
    /// nearly full.
    pub fn space_wanted(&self, len: u64, usual_len: u64) -> u64 {
        let reserved = self.reserved.load(Ordering::Relaxed);
        let wanted = (reserved + RESERVE_LEN).min(usual_len);
        space::decent(&*self.home.disk, &self.home.dir, reserved, len, wanted)
    }

    /// Whether space is set aside up to `len`.
    #[inline]
    pub(crate) fn has_space(&self, len: u64) -> bool {
        len <= self.reserved.load(Ordering::Relaxed)
    }

    /// Sets space aside up to `len`. For the only writer.
    pub fn reserve(&self, len: u64) -> Result<()> {
        if self.has_space(len) {
            return Ok(());
        }
        self.writable()?.reserve(len).map_err(|e| Error::io("reserve", &self.path, e))?;
        self.reserved.store(len, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the file durable; the caller knows that it goes up to `len`.
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

    /// Ends the file where the records end, durably, once all of them are in it.
    pub fn complete(&self) -> Result<()> {
        debug_assert!(self.is_flushed(), "the end is in the file");
        let (file, len) = (self.writable()?, self.len());
        file.truncate(len).map_err(|e| Error::failed("truncate", &self.path, e))?;
        file.sync_data().map_err(|e| Error::failed("sync", &self.path, e))?;
        self.synced.fetch_max(len, Ordering::AcqRel);
        self.reserved.store(len, Ordering::Relaxed);
        Ok(())
    }

    /// The handle of a segment that was created by this process and is not finished.
    pub fn writable(&self) -> Result<Arc<dyn DiskFile>> {
        self.file.read().clone().ok_or(Error::Closed)
    }

    /// Lets go of the handle used for writing; readers open their own from now on.
    pub fn finish(&self) {
        *self.file.write() = None;
    }

    /// Has the file removed once the segment is no longer used.
    pub fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    /// A handle for reading.
    pub fn readable(self: &Arc<Self>) -> Result<Arc<dyn DiskFile>> {
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

    /// Up to `len` bytes at `offset`; fewer where the segment ends.
    pub fn read(self: &Arc<Self>, offset: u64, len: usize) -> Result<ReadBuf> {
        while offset + len as u64 > self.flushed.load(Ordering::Acquire) {
            if let Some(buf) = self.read_by_tail(offset, len)? {
                return Ok(buf);
            }
        }
        self.read_file(offset, len)
    }

    /// As [`Self::read`], for bytes of which the end is in the tail; `None` when it no longer is.
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
        // A slot is written again only after its block is counted as flushed. So if that has not
        // come, what was read was what it should be; if a later word was read, the writer's fence
        // and this one make the count that it had seen visible here.
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
                // The file was cut; what is missing is noticed by the checksums.
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

    /// As [`Self::read`], into a buffer that has been used before.
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
    let mut bytes = [0; SEGMENT_HEADER_LEN as usize];
    match read_exact_at(file, &mut bytes, 0) {
        Ok(()) => SegmentHeader::decode(&bytes).map_err(|what| Error::corrupt(path, 0, what)),
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
            Err(Error::corrupt(path, 0, "segment header is cut off"))
        }
        Err(e) => Err(Error::io("read", path, e)),
    }
}

/// Keeps the number of open segments below a limit, closing those not read lately.
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
    pub fn count(&self) -> usize {
        self.open.lock().iter().filter(|weak| weak.strong_count() > 0).count()
    }
}

/// Segments by number.
pub type Segments = HashMap<SegmentId, Arc<Segment>, LocationHash>;
