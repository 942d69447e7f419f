//! All segments of a directory.

use super::batch::ColdBatch;
use super::location::{ColdLocation, SEGMENT_HEADER_LEN};
use super::reads::ColdReads;
use super::segment::{ColdBuffer, ColdSegment};
use crate::checksum::Salt;
use crate::disk::reads::{ReadDriver, ReadThreads};
use crate::disk::{DIRECT_ALIGNMENT, Disk, DiskFile, DiskLock, OpenMode, Space, space};
use crate::error::{Error, Result};
use crate::location::LocationHash;
use crate::names;
use crate::reserve_file::ReserveFile;
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const EXTENSION: &str = "cold";

/// Upper bound of a segment's length, since offsets are 32 bits of units of 8 bytes.
const SEGMENT_LEN_MAX: u64 = 8 << 32;

/// Divisor of all segments' length for the length of one. So the waste of the segment being written, and the reserve,
/// are a small part of the whole. The minimum is about a batch.
const SEGMENT_PART: u64 = 16;
const SEGMENT_LEN_MIN: u64 = 1 << 20;

/// Limits of [`ColdStore::read_many`], so that each thread is worth its start.
const READ_THREADS_MAX: usize = 16;
const READS_PER_THREAD: usize = 8;

/// Options of a [`ColdStore`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ColdOptions {
    /// Length at which a segment is finished, before the batch that would exceed it; at most a sixteenth of all
    /// segments. A longer batch gets its own segment.
    pub segment_size_bytes: u64,
    /// Maximum number of segments kept open for reading.
    pub open_files_max: usize,
}

impl Default for ColdOptions {
    fn default() -> Self {
        ColdOptions { segment_size_bytes: 64 << 20, open_files_max: 512 }
    }
}

/// Durability of written values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durable {
    /// They are durable when the write returns.
    Yes,
    /// They are not needed after a crash.
    No,
}

/// Origin of the values of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Memory. Space for moving other values is reserved first.
    Memory,
    /// Other segments, which can be removed afterwards, so the reserve may be used.
    Segments,
}

/// Figures of a [`ColdStore`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ColdFigures {
    /// Number of segments.
    pub segments: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Bytes of live values among them, including the format's overhead.
    pub live_bytes: u64,
}

/// Values in the files of a directory; see the head of the module.
///
/// All methods may be called by several threads at the same time. Only [`ColdStore::write`] and [`ColdStore::remove`]
/// wait for one another.
pub struct ColdStore {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    options: ColdOptions,
    segments: RwLock<Segments>,
    writer: Mutex<Writer>,
    /// Segments open for reading, in the order in which they were opened.
    opened: Mutex<VecDeque<u32>>,
    /// Threads for callers without a ring.
    threads: Arc<ReadThreads>,
    lock: Mutex<Option<Box<dyn DiskLock>>>,
    /// Bytes of the disk that new values leave free; see [`ColdStore::leave_free`].
    left_free: AtomicU64,
}

type Segments = HashMap<u32, Arc<ColdSegment>, LocationHash>;

struct Writer {
    active: Option<Active>,
    next_id: u32,
    /// Space for moving the live half of a segment, so that the segment can be removed when the disk is full.
    reserve: ReserveFile,
}

/// The segment being written.
struct Active {
    segment: Arc<ColdSegment>,
    file: Arc<dyn DiskFile>,
    /// Offset of the next batch.
    end: u64,
    /// End of the reserved space.
    reserved: u64,
    /// Approximate final length.
    len_max: u64,
    /// True if its name is durable.
    is_named: bool,
}

impl Writer {
    /// Ends writing to the active segment.
    fn finish(&mut self) {
        if let Some(active) = self.active.take() {
            // This frees the reserved space. If it fails, the space is freed with the segment.
            let _ = active.file.truncate(active.end);
        }
    }
}

impl ColdStore {
    /// Opens the store in a directory, creating it if there is none. No value is live until the user reports it with
    /// [`ColdStore::hold`]. After that the user must call [`ColdStore::finish_recovery`].
    ///
    /// # Errors
    /// [`Error::Locked`] when another process has it open, or the error of the disk.
    pub fn open(disk: Arc<dyn Disk>, dir: impl AsRef<Path>, options: ColdOptions) -> Result<Self> {
        let dir = dir.as_ref();
        disk.create_dir_all(dir).map_err(|e| Error::io("create", dir, e))?;
        let lock = lock(&*disk, dir)?;
        let reserve = ReserveFile::open(&disk, &names::reserve(dir))?;
        let mut segments = Segments::default();
        for (id, path) in list(&*disk, dir)? {
            segments.insert(id, Arc::new(ColdSegment::open(&disk, path, id)));
        }
        let next_id = segments.keys().max().map_or(1, |last| last.saturating_add(1));
        Ok(ColdStore {
            disk,
            dir: dir.to_owned(),
            options,
            segments: RwLock::new(segments),
            writer: Mutex::new(Writer { active: None, next_id, reserve }),
            opened: Mutex::default(),
            threads: Arc::default(),
            lock: Mutex::new(Some(lock)),
            left_free: AtomicU64::new(0),
        })
    }

    /// Adds a reference to the value at a location. The location may be in a missing segment: an old log names such
    /// locations before it releases them.
    pub fn hold(&self, location: ColdLocation) {
        let found = self.segments.read().get(&location.segment).map(Arc::clone);
        let segment = found.unwrap_or_else(|| {
            let mut segments = self.segments.write();
            let missing =
                || ColdSegment::missing(&self.disk, self.path(location.segment), location.segment);
            Arc::clone(segments.entry(location.segment).or_insert_with(|| Arc::new(missing())))
        });
        segment.hold(location);
    }

    /// Removes a reference to the value at a location, which [`ColdStore::hold`] or [`ColdStore::write`] added.
    pub fn release(&self, location: ColdLocation) {
        if let Some(segment) = self.segments.read().get(&location.segment) {
            segment.sub_live(location.stored_len());
        }
    }

    /// Ends the recovery, in which locations are only held and released. All held ones must now exist, and segments
    /// without live values are removed.
    ///
    /// # Errors
    /// [`Error::Missing`] or [`Error::Corrupt`] when a held location does not exist.
    pub fn finish_recovery(&self) -> Result<()> {
        match self.flaws().into_iter().next() {
            Some(flaw) => Err(flaw),
            None => self.finish_recovery_with_losses(),
        }
    }

    /// Returns the errors for which [`ColdStore::finish_recovery`] would fail, one per segment.
    pub fn flaws(&self) -> Vec<Error> {
        let segments = self.segments.read();
        let live = segments.values().filter(|segment| segment.live() > 0);
        live.filter_map(|segment| segment.check().err()).collect()
    }

    /// Returns true if the value at a location can exist: its segment exists and is long enough.
    pub fn may_have(&self, location: ColdLocation) -> bool {
        self.segments
            .read()
            .get(&location.segment)
            .is_some_and(|segment| segment.may_have(location))
    }

    /// Ends the recovery as [`ColdStore::finish_recovery`] does, but held values may be missing: reading them is an
    /// error.
    ///
    /// # Errors
    /// The error of the disk when segments without live values are removed.
    pub fn finish_recovery_with_losses(&self) -> Result<()> {
        let segments: Vec<_> = self.segments.read().values().map(Arc::clone).collect();
        if let Some(last) = segments.iter().map(|segment| segment.id).max() {
            // A location in a removed segment must never be one of a new segment.
            let mut writer = self.writer.lock();
            writer.next_id = writer.next_id.max(last.saturating_add(1));
        }
        let idle = segments.iter().filter(|segment| segment.live() == 0);
        self.remove(&idle.map(|segment| segment.id).collect::<Vec<_>>())
    }

    /// Makes new values, and the reserve, leave so many bytes of the disk free from now on.
    pub fn leave_free(&self, bytes: u64) {
        self.left_free.store(bytes, Ordering::Relaxed);
    }

    /// Writes all values of a batch, which are live from now on, and returns their locations. If it fails nothing is
    /// kept.
    ///
    /// # Errors
    /// [`Error::NoSpace`] or [`Error::NoReserve`] when the disk is full, or the error of the disk.
    pub fn write(
        &self,
        batch: &mut ColdBatch,
        durable: Durable,
        origin: Origin,
    ) -> Result<Vec<ColdLocation>> {
        let mut writer = self.writer.lock();
        let len = (batch.bytes.len() as u64).next_multiple_of(DIRECT_ALIGNMENT as u64);
        if origin == Origin::Memory {
            self.check_room(&mut writer, len)?;
        }
        self.make_room(&mut writer, len, origin)?;
        let result = self.append(&mut writer, batch, len, durable);
        if result.is_err() {
            // The content of its end is unknown now.
            writer.finish();
        }
        result
    }

    /// Refuses `len` bytes of new values unless there is also space for the reserve and for the part to be left free.
    fn check_room(&self, writer: &mut Writer, len: u64) -> Result<()> {
        let grown = writer.active.as_ref().map_or(SEGMENT_HEADER_LEN, |active| active.end) + len;
        let needed = room_for_half(self.longest().max(grown));
        let grows = needed.saturating_sub(writer.reserve.bytes());
        let left_free = self.left_free.load(Ordering::Relaxed);
        let leaves_it = left_free == 0 || self.spare() >= len + grows;
        if leaves_it && writer.reserve.hold(needed)? {
            return Ok(());
        }
        let path = writer.reserve.path().to_owned();
        Err(Error::NoReserve { path, needed: needed + left_free })
    }

    /// Returns the space of the disk, if known.
    pub fn space(&self) -> Option<Space> {
        self.disk.space(&self.dir)
    }

    /// Returns the free space of the disk beyond the part to be left free.
    fn spare(&self) -> u64 {
        let left_free = self.left_free.load(Ordering::Relaxed);
        self.space().map_or(u64::MAX, |space| space.free.saturating_sub(left_free))
    }

    /// Returns the length of the longest segment.
    fn longest(&self) -> u64 {
        self.segments.read().values().map(|segment| segment.len()).max().unwrap_or(0)
    }

    fn append(
        &self,
        writer: &mut Writer,
        batch: &mut ColdBatch,
        len: u64,
        durable: Durable,
    ) -> Result<Vec<ColdLocation>> {
        let Some(active) = &mut writer.active else { return Ok(Vec::new()) };
        let segment = &active.segment;
        let mut locations = Vec::with_capacity(batch.records.len());
        for (start, value_len) in &batch.records {
            let location = ColdLocation::new(segment.id, active.end + *start as u64, *value_len);
            segment.stamp(&mut batch.bytes[*start..], location);
            locations.push(location);
        }
        let failed = |action, e| Error::io(action, &segment.path, e);
        write_pages(&*active.file, &mut batch.bytes, len as usize, active.end)
            .map_err(|e| failed("write", e))?;
        if durable == Durable::Yes {
            active.file.sync_data().map_err(|e| failed("sync", e))?;
            if !active.is_named {
                self.disk.sync_dir(&self.dir).map_err(|e| Error::io("sync", &self.dir, e))?;
                active.is_named = true;
            }
        }
        active.end += len;
        segment.set_len(active.end);
        segment.add_live(locations.iter().map(|location| location.stored_len()).sum());
        Ok(locations)
    }

    /// Begins a new segment unless the active one has room for `len` bytes, and reserves their space. On failure only
    /// the reserve may have become smaller.
    fn make_room(&self, writer: &mut Writer, len: u64, origin: Origin) -> Result<()> {
        if let Some(active) = &mut writer.active
            && active.end + len <= active.len_max
        {
            return self.set_aside(active, len, origin, &mut writer.reserve);
        }
        writer.finish();
        let id = writer.next_id;
        writer.next_id = id.checked_add(1).ok_or(Error::SegmentsExhausted { max: u32::MAX })?;
        let active = self.create(id, len, origin, &mut writer.reserve).inspect_err(|_| {
            // On a full disk the leftover would only take space.
            let _ = self.disk.remove(&self.path(id));
        })?;
        self.segments.write().insert(id, Arc::clone(&active.segment));
        writer.active = Some(active);
        Ok(())
    }

    /// Creates the file of a segment, with room for `len` bytes.
    fn create(
        &self,
        id: u32,
        len: u64,
        origin: Origin,
        reserve: &mut ReserveFile,
    ) -> Result<Active> {
        let path = self.path(id);
        let failed = |action, e| Error::io(action, &path, e);
        let created =
            self.disk.open(&path, OpenMode::CreateNew).map_err(|e| failed("create", e))?;
        let salt = Salt(self.disk.entropy() as u32);
        let segment = Arc::new(ColdSegment::new(&self.disk, path.clone(), id, salt));
        let mut active = Active {
            segment,
            file: Arc::clone(&created),
            end: SEGMENT_HEADER_LEN,
            reserved: 0,
            len_max: self.segment_len_max(),
            is_named: false,
        };
        self.set_aside(&mut active, len, origin, reserve)?;
        created
            .write_all_at(&[IoSlice::new(&active.segment.header())], 0)
            .map_err(|e| failed("write", e))?;
        active.file =
            self.disk.open(&path, OpenMode::DirectWrite).map_err(|e| failed("open", e))?;
        Ok(active)
    }

    /// Returns the approximate final length of a segment that begins now.
    fn segment_len_max(&self) -> u64 {
        let max = self.options.segment_size_bytes.min(SEGMENT_LEN_MAX);
        (self.figures().bytes / SEGMENT_PART).max(SEGMENT_LEN_MIN).min(max)
    }

    /// Reserves space for `len` more bytes, and for the rest of the segment if there is plenty. Values of other
    /// segments may use the reserve.
    fn set_aside(
        &self,
        active: &mut Active,
        len: u64,
        origin: Origin,
        reserve: &mut ReserveFile,
    ) -> Result<()> {
        let needed = active.end + len;
        if needed <= active.reserved {
            return Ok(());
        }
        if origin == Origin::Segments {
            let lent = (needed - active.reserved).min(reserve.bytes());
            reserve.shrink(reserve.bytes() - lent)?;
        }
        let (disk, dir) = (&*self.disk, &self.dir);
        let reserved = active.reserved;
        let wanted = active.len_max.min(reserved.saturating_add(self.spare()));
        active.reserved = space::reserve(disk, dir, &*active.file, reserved, needed, wanted)
            .map_err(|e| Error::io("reserve space for", &active.segment.path, e))?;
        Ok(())
    }

    /// Reads the value at a location.
    ///
    /// # Errors
    /// [`Error::Missing`] when the segment was removed, [`Error::Corrupt`] when the value is damaged, or the error of
    /// the disk.
    pub fn read<'b>(&self, location: ColdLocation, buf: &'b mut ColdBuffer) -> Result<&'b [u8]> {
        self.segment_of(location)?.read(location, buf)
    }

    /// Creates asynchronous reads for one thread.
    ///
    /// # Errors
    /// The system's error when it has no ring or no descriptor for it.
    pub fn reads<T>(self: &Arc<Self>, driver: ReadDriver) -> std::io::Result<ColdReads<T>> {
        ColdReads::new(self, driver, &self.threads)
    }

    /// Returns the segment of a location.
    pub(super) fn segment_of(&self, location: ColdLocation) -> Result<Arc<ColdSegment>> {
        let found = self.segments.read().get(&location.segment).map(Arc::clone);
        let segment = found.ok_or_else(|| Error::Missing { path: self.path(location.segment) })?;
        if !segment.is_open() {
            self.note_opening(location.segment);
        }
        Ok(segment)
    }

    /// Reads the values at many locations, with enough concurrent reads to keep the disk busy. Blocks until all are
    /// read.
    #[must_use]
    pub fn read_many(&self, locations: &[ColdLocation]) -> Vec<Result<Vec<u8>>> {
        let next = AtomicUsize::new(0);
        let read_some = || {
            let (mut values, mut buffer) = (Vec::new(), ColdBuffer::default());
            while let index = next.fetch_add(1, Ordering::Relaxed)
                && let Some(location) = locations.get(index)
            {
                values.push((index, self.read(*location, &mut buffer).map(<[u8]>::to_vec)));
            }
            values
        };
        let mut values = std::thread::scope(|scope| {
            let helpers = (locations.len() / READS_PER_THREAD).min(READ_THREADS_MAX);
            let helpers: Vec<_> = (0..helpers).map(|_| scope.spawn(read_some)).collect();
            let mut values = read_some();
            for helper in helpers {
                values.extend(helper.join().expect("reading does not panic"));
            }
            values
        });
        values.sort_unstable_by_key(|(index, _)| *index);
        values.into_iter().map(|(_, value)| value).collect()
    }

    /// Closes a segment if too many are open.
    fn note_opening(&self, id: u32) {
        let mut opened = self.opened.lock();
        opened.push_back(id);
        if opened.len() > self.options.open_files_max
            && let Some(oldest) = opened.pop_front()
            && let Some(segment) = self.segments.read().get(&oldest)
        {
            segment.close();
        }
    }

    /// Returns the segments without live values.
    pub fn dead(&self) -> Vec<u32> {
        self.finished(|segment| segment.live() == 0)
    }

    /// Returns the segments with some live data, but less than `share`. The reserve suits a share of up to a half.
    pub fn sparse(&self, share: f64) -> Vec<u32> {
        self.finished(|segment| {
            let live = segment.live();
            live > 0 && (live as f64) < segment.len() as f64 * share
        })
    }

    /// Returns those of these segments whose values there is room to move: as many as possible, those with the least
    /// live data first.
    pub fn movable(&self, ids: &[u32]) -> Vec<u32> {
        let held = self.writer.lock().reserve.bytes();
        let mut room = held.saturating_add(self.spare());
        let segments = self.segments.read();
        let mut lives: Vec<_> =
            ids.iter().filter_map(|id| Some((segments.get(id)?.live(), *id))).collect();
        lives.sort_unstable();
        let fits = |(live, id): (u64, u32)| {
            room = room.checked_sub(room_for(live))?;
            Some(id)
        };
        lives.into_iter().map_while(fits).collect()
    }

    fn finished(&self, is_wanted: impl Fn(&ColdSegment) -> bool) -> Vec<u32> {
        let writer = self.writer.lock();
        let active = writer.active.as_ref().map(|active| active.segment.id);
        let segments = self.segments.read();
        let finished = segments.values().filter(|segment| Some(segment.id) != active);
        finished.filter(|segment| is_wanted(segment)).map(|segment| segment.id).collect()
    }

    /// Removes segments of [`ColdStore::dead`]. No value in them may be read any more, not even after a crash: the
    /// changes that made them dead must be durable.
    ///
    /// # Errors
    /// The error of the disk. Segments that were not removed stay in [`ColdStore::dead`].
    pub fn remove(&self, ids: &[u32]) -> Result<()> {
        for id in ids {
            let found = self.segments.read().get(id).map(Arc::clone);
            // No key refers to a dead segment, so none can begin to.
            let Some(segment) = found.filter(|segment| segment.live() == 0) else { continue };
            match self.disk.remove(&segment.path) {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    return Err(Error::io("remove", &segment.path, e));
                }
                _ => {}
            }
            self.segments.write().remove(id);
        }
        Ok(())
    }

    /// Restores the full reserve, if there is space for it besides the part to be left free: segments may have been
    /// removed, and moved values may have used it. Call [`ColdStore::leave_free`] first.
    ///
    /// # Errors
    /// Failures of the disk.
    pub fn restore_reserve(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        let (held, needed) = (writer.reserve.bytes(), room_for_half(self.longest()));
        if held > needed {
            return writer.reserve.shrink(needed);
        }
        writer.reserve.hold_what_there_is(needed.min(held.saturating_add(self.spare()))).map(drop)
    }

    /// Lets another process open the store. Nothing may be written from now on.
    pub fn close(&self) {
        *self.lock.lock() = None;
    }

    /// Returns the current figures.
    pub fn figures(&self) -> ColdFigures {
        let mut figures = ColdFigures::default();
        for segment in self.segments.read().values() {
            figures.segments += 1;
            figures.bytes += segment.len();
            figures.live_bytes += segment.live();
        }
        figures
    }

    fn path(&self, id: u32) -> PathBuf {
        self.dir.join(format!("{id:08}.{EXTENSION}"))
    }
}

impl std::fmt::Debug for ColdStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ColdStore").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Returns the room for moving the live values of a segment of which less than half is live.
fn room_for_half(segment_len: u64) -> u64 {
    if segment_len == 0 { 0 } else { room_for(segment_len / 2) }
}

/// Returns the room for moving values of `live` bytes. An eighth of each page may be a gap, and some of the last page
/// of each batch; the header of a segment is added.
fn room_for(live: u64) -> u64 {
    let page = DIRECT_ALIGNMENT as u64;
    (live + live / 6).next_multiple_of(page) + SEGMENT_HEADER_LEN + page
}

/// Writes `len` bytes, padded with zeros after `bytes`, from an address aligned for direct I/O.
fn write_pages(
    file: &dyn DiskFile,
    bytes: &mut Vec<u8>,
    len: usize,
    offset: u64,
) -> std::io::Result<()> {
    let used = bytes.len();
    // The extra room allows the beginning to move to an aligned address.
    bytes.resize(len + DIRECT_ALIGNMENT, 0);
    let pad = match file.is_direct() {
        true => bytes.as_ptr().align_offset(DIRECT_ALIGNMENT),
        false => 0,
    };
    bytes.copy_within(..used, pad);
    bytes[pad + used..pad + len].fill(0);
    let result = file.write_all_at(&[IoSlice::new(&bytes[pad..pad + len])], offset);
    bytes.copy_within(pad..pad + used, 0);
    bytes.truncate(used);
    result
}

pub(super) fn lock(disk: &dyn Disk, dir: &Path) -> Result<Box<dyn DiskLock>> {
    let path = crate::names::lock(dir);
    disk.lock(&path).map_err(|error| Error::lock(&path, error))
}

/// Returns the segments in a directory. Files with other names are not ours.
pub(super) fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<(u32, PathBuf)>> {
    let paths = disk.list(dir).map_err(|e| Error::io("list", dir, e))?;
    let number = |path: &Path| {
        let (digits, extension) = path.file_name()?.to_str()?.split_once('.')?;
        let id = digits.parse().ok()?;
        (extension == EXTENSION && format!("{id:08}") == digits).then_some(id)
    };
    Ok(paths.into_iter().filter_map(|path| Some((number(&path)?, path))).collect())
}
