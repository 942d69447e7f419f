//! The files of a log, and the state that its writers and its threads share.
//!
//! A database uses a log of several shards. [`Owner`] holds the points in which it differs from a plain log.

use super::appender::Appender;
use super::options::WalOptions;
use super::write::Write;
use crate::disk::DiskLock;
use crate::error::{Error, Result};
use crate::location::SegmentId;
use crate::manifest::{Entry, Manifest, SegmentState};
use crate::names;
use crate::segment::file::{Segment, SegmentHome, Segments};
use crate::segment::header::Origin;
use crate::tail::{Geometry, Tail};
use parking_lot::{Condvar, Mutex, RwLock};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Owner of the files of a log, which the log's methods take as an argument: a plain log, which uses the provided
/// methods, or a database.
pub trait Owner: Send + Sync + 'static {
    fn files(&self) -> &LogFiles;

    /// Runs an action that needs so many bytes of space. A reserve may provide them.
    fn lend<T>(&self, _bytes: u64, action: impl Fn() -> Result<T>) -> Result<T> {
        action()
    }

    /// Returns true while there is no space for deferrable work.
    fn is_short_of_space(&self) -> bool {
        false
    }

    /// Reserves space in a segment: at least `needed` bytes, and up to `usual` if possible.
    fn set_aside(&self, segment: &Segment, needed: u64, usual: u64, _: &Write) -> Result<()> {
        let wanted = segment.space_wanted(needed, usual);
        match segment.reserve(wanted) {
            Err(Error::NoSpace { .. }) if wanted > needed => segment.reserve(needed),
            result => result,
        }
    }

    /// Notes that the next records go to this segment.
    fn begin_segment(&self, _segment: &Segment) {}

    /// Completes a segment that is about to be listed as sealed. Returns its lowest sequence number.
    fn describe_segment(&self, segment: &Segment) -> Result<u64> {
        Ok(segment.seq_min())
    }
}

/// The files of an open log.
pub struct LogFiles {
    pub home: Arc<SegmentHome>,
    pub options: WalOptions,
    pub appenders: Vec<Appender>,
    /// All segments that a location may name, without spare ones.
    pub segments: RwLock<Segments>,
    pub manifest: Mutex<Manifest>,
    /// The next sequence number, or a lower one while threads append with reservations.
    pub next_seq: AtomicU64,
    /// Empty spare segments for writers, one per shard, made in the background: creating one takes several syncs,
    /// which a writer should not wait for.
    pub(crate) spares: Mutex<Vec<Arc<Segment>>>,
    /// Full segments that are not sealed yet, with their shards. No record is appended to them any more.
    pub(crate) immutable: Mutex<Vec<(u32, Arc<Segment>)>>,
    /// Locks that admit one thread at a time: `preparing` for making spares, `sealing` for sealing or dropping
    /// segments. Their holder must check afterwards that the log is open, because closing waits for both locks.
    pub(super) preparing: Mutex<()>,
    pub(crate) sealing: Mutex<()>,
    /// Number of shards that have no tail yet.
    tails_missing: AtomicU64,
    pub wakeup: Wakeup,
    pub(super) flush_wakeup: FlushWakeup,
    latch: OnceLock<String>,
    closed: AtomicBool,
    /// Lock of the directory, until the log is closed.
    lock: Mutex<Option<Box<dyn DiskLock>>>,
}

/// Lets background threads sleep until there is work.
#[derive(Default)]
pub struct Wakeup {
    pub(super) stop: Mutex<bool>,
    pub(super) changed: Condvar,
}

/// Lets flushers sleep until there is a complete block.
#[derive(Default)]
pub(crate) struct FlushWakeup {
    notified: AtomicBool,
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl FlushWakeup {
    /// Wakes a flusher, unless an earlier notification is still pending.
    pub fn notify(&self) {
        if !self.notified.swap(true, Ordering::AcqRel) {
            // The lock is taken so that a flusher that has found no notification is asleep.
            drop(self.stopped.lock());
            self.changed.notify_one();
        }
    }

    /// Sleeps until notified. Returns `false` once the store stops.
    pub fn wait(&self) -> bool {
        let mut stopped = self.stopped.lock();
        while !*stopped && !self.notified.swap(false, Ordering::AcqRel) {
            self.changed.wait(&mut stopped);
        }
        !*stopped
    }

    pub fn stop(&self) {
        *self.stopped.lock() = true;
        self.changed.notify_all();
    }
}

impl LogFiles {
    /// Creates the state of a log. `options` are adapted to the device.
    pub fn new(
        home: Arc<SegmentHome>,
        mut options: WalOptions,
        shards: u32,
        direct_writes: bool,
        segments: Segments,
        manifest: Manifest,
        lock: Box<dyn DiskLock>,
    ) -> Self {
        options.fit_to_device(home.disk.space(&home.dir), shards);
        let geometry = options.tail_geometry();
        let tails_missing =
            (0..shards).filter(|shard| !manifest.tails.contains(shard)).count() as u64;
        LogFiles {
            home,
            options,
            appenders: (0..shards)
                .map(|shard| Appender::new(shard, geometry, direct_writes))
                .collect(),
            segments: RwLock::new(segments),
            next_seq: AtomicU64::new(manifest.next_seq),
            manifest: Mutex::new(manifest),
            spares: Mutex::default(),
            immutable: Mutex::default(),
            preparing: Mutex::default(),
            sealing: Mutex::default(),
            tails_missing: AtomicU64::new(tails_missing),
            wakeup: Wakeup::default(),
            flush_wakeup: FlushWakeup::default(),
            latch: OnceLock::new(),
            closed: AtomicBool::new(false),
            lock: Mutex::new(Some(lock)),
        }
    }

    pub fn geometry(&self) -> Geometry {
        self.options.tail_geometry()
    }

    /// Returns the page size in which space is counted.
    pub fn page_len(&self) -> u64 {
        self.geometry().page_len()
    }

    /// Returns the number of shards without a tail.
    pub fn tails_missing(&self) -> u64 {
        self.tails_missing.load(Ordering::Relaxed)
    }

    pub fn segment(&self, id: SegmentId) -> Option<Arc<Segment>> {
        self.segments.read().get(&id).cloned()
    }

    pub fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    pub(super) fn mark_closed(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Releases the lock of the directory, so that another process may open it.
    pub fn unlock(&self) {
        *self.lock.lock() = None;
    }

    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        match self.latch.get() {
            None => Ok(()),
            Some(cause) => Err(Error::ReadOnly { cause: cause.clone() }),
        }
    }

    /// Makes the store read-only after a failure that leaves the content of the disk unknown. A transient failure,
    /// such as a full disk, does not.
    pub fn latch(&self, error: Error) -> Error {
        if !error.is_transient() {
            let _ = self.latch.set(error.to_string());
        }
        error
    }

    pub fn is_latched(&self) -> bool {
        self.latch.get().is_some()
    }

    /// Latches as [`Self::latch`] does, even for a transient error: after a failed sync, data may be lost.
    pub fn latch_always(&self, error: Error) -> Error {
        let _ = self.latch.set(error.to_string());
        error
    }

    /// Changes the manifest durably. On failure the manifest in memory is unchanged; the disk has the old or the
    /// new one, and both are valid.
    pub fn update_manifest<T>(
        &self,
        owner: &impl Owner,
        change: impl FnOnce(&mut Manifest) -> T,
    ) -> Result<T> {
        let mut manifest = self.manifest.lock();
        let mut next = manifest.clone();
        let removed = self.home.removed.lock().clone();
        if !removed.is_empty() {
            // A removed file is forgotten only when it cannot come back.
            let synced = self.home.disk.sync_dir(&self.home.dir);
            synced.map_err(|e| self.latch(Error::io("sync", &self.home.dir, e)))?;
            next.segments
                .retain(|id, entry| entry.state != SegmentState::Obsolete || !removed.contains(id));
        }
        let result = change(&mut next);
        next.next_seq = next.next_seq.max(self.next_seq.load(Ordering::Acquire));
        let store = || next.store(&*self.home.disk, &self.home.dir);
        owner.lend(next.space(self.page_len()), store).map_err(|e| self.latch(e))?;
        *manifest = next;
        // Do this only after the manifest is stored: after a failure the files would still be listed. More may
        // have been removed since.
        self.home.removed.lock().retain(|id| !removed.contains(id));
        Ok(result)
    }

    /// Creates a segment that the manifest lists as open (logs) or obsolete (compaction, until it is complete).
    /// The caller must then call [`Self::use_segment`].
    pub fn create_segment(&self, owner: &impl Owner, origin: Origin) -> Result<Arc<Segment>> {
        let seq_min = match origin {
            Origin::Log => self.next_seq.load(Ordering::Acquire),
            Origin::Compaction => 0,
        };
        let id = self.update_manifest(owner, |manifest| {
            if manifest.next_segment > SegmentId::MAX {
                return Err(Error::SegmentsExhausted { max: SegmentId::MAX });
            }
            let id = SegmentId(manifest.next_segment);
            manifest.next_segment += 1;
            manifest.segments.insert(id, Entry { state: SegmentState::Obsolete, origin, seq_min });
            Ok(id)
        })??;
        let create = || Segment::create(&self.home, id, origin, seq_min);
        let created = owner.lend(self.page_len(), create);
        let segment = match created {
            Ok(segment) => segment,
            Err(error) => {
                self.forget_file(id);
                return Err(self.latch(error));
            }
        };
        if origin == Origin::Log
            && let Err(error) = self.set_state(owner, id, SegmentState::Open, seq_min)
        {
            // After a failure that latches, the manifest on disk may list the segment as open.
            if !self.is_latched() {
                segment.mark_obsolete();
            }
            return Err(error);
        }
        Ok(segment)
    }

    /// Allows locations to name the segment.
    pub fn use_segment(&self, segment: &Arc<Segment>) {
        self.segments.write().insert(segment.id, segment.clone());
    }

    /// Returns a segment for a shard to write to. The caller must hold the shard's lock.
    pub(super) fn next_segment(&self, owner: &impl Owner) -> Result<Arc<Segment>> {
        let spare = self.spares.lock().pop();
        let segment = match spare {
            Some(spare) => {
                // The segment is empty, and its records will have higher numbers than any now.
                spare.set_seq_min(self.next_seq.load(Ordering::Acquire));
                spare
            }
            None => self.create_segment(owner, Origin::Log)?,
        };
        self.use_segment(&segment);
        owner.begin_segment(&segment);
        Ok(segment)
    }

    /// Makes a spare segment for every shard.
    pub(crate) fn prepare_spares(&self, owner: &impl Owner) -> Result<()> {
        let _one_at_a_time = self.preparing.lock();
        while self.spares.lock().len() < self.appenders.len() {
            self.check_writable()?;
            if owner.is_short_of_space() {
                return Ok(());
            }
            let spare = self.create_segment(owner, Origin::Log)?;
            self.spares.lock().push(spare);
        }
        Ok(())
    }

    /// Tries to remove the file of a segment whose creation failed.
    fn forget_file(&self, id: SegmentId) {
        let path = names::segment(&self.home.dir, id);
        if self.home.disk.remove(&path).is_ok() {
            self.home.removed.lock().push(id);
        }
    }

    pub(crate) fn set_state(
        &self,
        owner: &impl Owner,
        id: SegmentId,
        state: SegmentState,
        seq_min: u64,
    ) -> Result<()> {
        self.update_manifest(owner, |manifest| {
            if let Some(entry) = manifest.segments.get_mut(&id) {
                entry.state = state;
                entry.seq_min = seq_min;
            }
        })
    }

    /// Removes segments that no location names any more. Their files are removed with the last reader.
    #[must_use = "files go where this is dropped, best with no lock held"]
    pub fn take_out(&self, ids: impl IntoIterator<Item = SegmentId>) -> Vec<Arc<Segment>> {
        let mut segments = self.segments.write();
        let gone: Vec<_> = ids.into_iter().filter_map(|id| segments.remove(&id)).collect();
        gone.iter().for_each(|segment| segment.mark_obsolete());
        gone
    }

    /// Opens the tail of a shard, creating it if there is none.
    pub(super) fn open_tail(&self, owner: &impl Owner, shard: u32) -> Result<Arc<Tail>> {
        let (home, geometry) = (&self.home, self.geometry());
        let open = || Tail::open(&*home.disk, &home.dir, home.store_id, shard, geometry);
        let tail = owner.lend(geometry.file_len() as u64, open).map_err(|e| self.latch(e))?;
        // List it before anything in it is acknowledged, so that a lost tail is noticed.
        if !self.manifest.lock().tails.contains(&shard) {
            self.update_manifest(owner, |manifest| manifest.tails.insert(shard))?;
            self.tails_missing.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(tail)
    }

    /// Adds a segment to which nothing will be appended any more.
    pub(crate) fn add_immutable(&self, shard: u32, segment: Arc<Segment>) {
        self.immutable.lock().push((shard, segment));
        if self.options.background_threads {
            self.wakeup.changed.notify_all();
        }
    }

    /// Allocates consecutive sequence numbers and returns the first.
    pub(super) fn take_seqs(&self, count: u64) -> u64 {
        self.next_seq.fetch_add(count, Ordering::AcqRel)
    }

    /// Notifies a flusher of a complete block. Returns `false` if there are no flusher threads.
    pub(super) fn block_is_complete(&self) -> bool {
        if self.options.background_threads {
            self.flush_wakeup.notify();
        }
        self.options.background_threads
    }
}
