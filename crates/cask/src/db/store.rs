//! The state all handles of an open store share, and the rules that apply everywhere.

use super::encoder::Encoder;
use super::scan::pass::Passes;
use super::stats::{Counters, Stats};
use crate::cache::ReadCache;
use crate::disk::DiskLock;
use crate::error::{Error, Result};
use crate::hint::entry::HintOrder;
use crate::index::hash::HashIndex;
use crate::index::history::History;
use crate::index::ordered::OrderedIndex;
use crate::location::SegmentId;
use crate::log::lane::Lane;
use crate::manifest::{Entry, Manifest, Purpose, SegmentState};
use crate::options::{Options, Placement};
use crate::reserve_file::Reserve;
use crate::segment::file::{Segment, SegmentHome, Segments};
use crate::segment::header::Origin;
use parking_lot::{Condvar, Mutex, RwLock};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The index of the kind the store was opened with.
pub(crate) enum Index {
    Hash(HashIndex),
    Ordered(OrderedIndex),
}

/// An open store.
pub(crate) struct Store {
    pub(crate) home: Arc<SegmentHome>,
    pub(crate) options: Options,
    pub(crate) order: HintOrder,
    pub(crate) purpose: Purpose,
    pub(crate) index: Index,
    pub(crate) history: History,
    pub(crate) cache: ReadCache,
    pub(crate) passes: Arc<Passes>,
    /// How many writes have begun to change the index, and how many the index knows of; both are
    /// counted before a write is acknowledged.
    pub(crate) applying: AtomicU64,
    pub(crate) applied: AtomicU64,
    /// Every segment a location may name, which a spare one is not.
    pub(crate) segments: RwLock<Segments>,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) manifest: Mutex<Manifest>,
    pub(crate) next_seq: AtomicU64,
    /// Empty segments for writers to go on with, one a lane, made in the background: creating one
    /// takes several syncs, which a writer should not wait for.
    pub(crate) spares: Mutex<Vec<Arc<Segment>>>,
    /// Immutable segments: no record is appended any more, and they are not sealed yet, with their lanes.
    pub(crate) immutable: Mutex<Vec<(u32, Arc<Segment>)>>,
    /// Segments that were compacted away and that snapshots below the number may still read.
    pub(crate) retired: Mutex<Vec<(u64, SegmentId)>>,
    /// Only one thread makes spares, only one seals or drops segments, and only one compacts, at a
    /// time. Who holds one of these has looked afterwards whether the store is open, for closing
    /// waits for all of them.
    pub(crate) preparing: Mutex<()>,
    pub(crate) sealing: Mutex<()>,
    pub(crate) compacting: Mutex<()>,
    /// Taken after any other lock but that of `segments`.
    pub(crate) reserve: Reserve,
    /// Lanes that have no tail yet.
    pub(crate) tails_missing: AtomicU64,
    pub(crate) counters: Counters,
    pub(crate) wakeup: Wakeup,
    pub(crate) flush_wakeup: FlushWakeup,
    latch: OnceLock<String>,
    closed: AtomicBool,
    pub(crate) lock: Mutex<Option<Box<dyn DiskLock>>>,
}

/// Lets background threads sleep until there is something to do.
#[derive(Default)]
pub(crate) struct Wakeup {
    pub(crate) stop: Mutex<bool>,
    pub(crate) changed: Condvar,
}

/// Into how many logs new records go. When every write waits for a sync, one: each log is synced by
/// itself, so with more of them fewer writes share a sync.
fn lanes_in_use(options: &Options, shards: u32) -> u32 {
    if options.sync == crate::options::SyncPolicy::Always { 1 } else { shards }
}

/// Lets flushers sleep until there is a complete block.
#[derive(Default)]
pub(crate) struct FlushWakeup {
    notified: AtomicBool,
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl FlushWakeup {
    /// Wakes a flusher, unless one was woken that has not looked yet.
    pub(crate) fn notify(&self) {
        if !self.notified.swap(true, Ordering::AcqRel) {
            // Taken, so that a flusher that has found no notification is asleep.
            drop(self.stopped.lock());
            self.changed.notify_one();
        }
    }

    /// Sleeps until notified; `false` once the store stops.
    pub(crate) fn wait(&self) -> bool {
        let mut stopped = self.stopped.lock();
        while !*stopped && !self.notified.swap(false, Ordering::AcqRel) {
            self.changed.wait(&mut stopped);
        }
        !*stopped
    }

    pub(crate) fn stop(&self) {
        *self.stopped.lock() = true;
        self.changed.notify_all();
    }
}

impl Store {
    /// The page in which space is counted.
    pub(crate) fn page_len(&self) -> u64 {
        self.options.tail_geometry().page_len()
    }

    #[expect(clippy::too_many_arguments, reason = "called once, by opening, which made each part")]
    pub(crate) fn new(
        home: Arc<SegmentHome>,
        mut options: Options,
        order: HintOrder,
        index: Index,
        segments: Segments,
        manifest: Manifest,
        lock: Box<dyn DiskLock>,
        counters: Counters,
        reserve: Reserve,
    ) -> Self {
        let lanes = lanes_in_use(&options, manifest.shards);
        let tails_missing = (0..lanes).filter(|lane| !manifest.tails.contains(lane)).count() as u64;
        options.fit_to_device(home.disk.space(&home.dir), lanes);
        Store {
            cache: ReadCache::new(options.read_cache_bytes),
            passes: Arc::new(Passes::new(options.scan_memory_bytes, options.background_threads)),
            applying: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            purpose: manifest.purpose,
            home,
            order,
            index,
            history: History::default(),
            segments: RwLock::new(segments),
            lanes: (0..lanes)
                .map(|lane| Lane::new(lane, options.tail_geometry(), options.direct_writes))
                .collect(),
            flush_wakeup: FlushWakeup::default(),
            next_seq: AtomicU64::new(manifest.next_seq),
            manifest: Mutex::new(manifest),
            options,
            spares: Mutex::new(Vec::new()),
            immutable: Mutex::new(Vec::new()),
            retired: Mutex::new(Vec::new()),
            preparing: Mutex::new(()),
            sealing: Mutex::new(()),
            compacting: Mutex::new(()),
            reserve,
            tails_missing: AtomicU64::new(tails_missing),
            counters,
            wakeup: Wakeup::default(),
            latch: OnceLock::new(),
            closed: AtomicBool::new(false),
            lock: Mutex::new(Some(lock)),
        }
    }

    pub(crate) fn encoder(&self) -> Encoder {
        Encoder { hash_key: self.order.hash_key, compression: self.options.compression }
    }

    /// Which lane the writes of a key take: the same for all of them, which puts them in order.
    pub(crate) fn lane_of(&self, hash: u64, key: &[u8]) -> usize {
        match self.options.placement {
            // The low half: the high bits order the index and would make neighbours share a lane.
            Placement::Hashed => (((hash & 0xffff_ffff) * self.lanes.len() as u64) >> 32) as usize,
            Placement::Ordered => self.lane_in_order(key),
        }
    }

    /// The lane that the records of this key and its neighbours lie in, if any.
    pub(crate) fn home_lane(&self, key: &[u8]) -> Option<usize> {
        (self.options.placement == Placement::Ordered).then(|| self.lane_in_order(key))
    }

    fn lane_in_order(&self, key: &[u8]) -> usize {
        let mut first = [0; 8];
        let len = key.len().min(first.len());
        first[..len].copy_from_slice(&key[..len]);
        let position = u128::from(u64::from_be_bytes(first));
        ((position * self.lanes.len() as u128) >> 64) as usize
    }

    pub(crate) fn segment(&self, id: SegmentId) -> Option<Arc<Segment>> {
        self.segments.read().get(&id).cloned()
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    pub(crate) fn mark_closed(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        match self.latch.get() {
            None => Ok(()),
            Some(cause) => Err(Error::ReadOnly { cause: cause.clone() }),
        }
    }

    /// Makes the store read-only after a failure that leaves open what reached the disk. One that
    /// may pass by itself, such as a full disk, is no such failure.
    pub(crate) fn latch(&self, error: Error) -> Error {
        if !error.is_transient() {
            let _ = self.latch.set(error.to_string());
        }
        error
    }

    pub(crate) fn is_latched(&self) -> bool {
        self.latch.get().is_some()
    }

    /// As [`Self::latch`], for failures of a sync: then even a full disk has lost something.
    pub(crate) fn latch_always(&self, error: Error) -> Error {
        let _ = self.latch.set(error.to_string());
        error
    }

    /// Changes the manifest, durably. On failure nothing has changed here; on disk, the old or
    /// the new one is there, and both are right.
    pub(crate) fn update_manifest<T>(&self, change: impl FnOnce(&mut Manifest) -> T) -> Result<T> {
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
        self.reserve.lend(next.space(self.page_len()), store).map_err(|e| self.latch(e))?;
        *manifest = next;
        // Only now: had it failed, they would still be listed. More may have come since.
        self.home.removed.lock().retain(|id| !removed.contains(id));
        Ok(result)
    }

    /// Creates a segment that the manifest lists as open (logs) or obsolete (compaction, until it
    /// is complete). [`Store::use_segment`] is next.
    pub(crate) fn create_segment(&self, origin: Origin) -> Result<Arc<Segment>> {
        let seq_min = match origin {
            Origin::Log => self.next_seq.load(Ordering::Acquire),
            Origin::Compaction => 0,
        };
        let id = self.update_manifest(|manifest| {
            if manifest.next_segment > SegmentId::MAX {
                return Err(Error::SegmentsExhausted { max: SegmentId::MAX });
            }
            let id = SegmentId(manifest.next_segment);
            manifest.next_segment += 1;
            manifest.segments.insert(id, Entry { state: SegmentState::Obsolete, origin, seq_min });
            Ok(id)
        })??;
        let create = || Segment::create(&self.home, id, origin, seq_min);
        let created = self.reserve.lend(self.page_len(), create);
        let segment = match created {
            Ok(segment) => segment,
            Err(error) => {
                self.forget_file(id);
                return Err(self.latch(error));
            }
        };
        if origin == Origin::Log
            && let Err(error) = self.set_state(id, SegmentState::Open, seq_min)
        {
            // After a failure that latches, the manifest on disk may list the segment as open.
            if !self.is_latched() {
                segment.mark_obsolete();
            }
            return Err(error);
        }
        Ok(segment)
    }

    /// From now on locations may name the segment.
    pub(crate) fn use_segment(&self, segment: &Arc<Segment>) {
        self.segments.write().insert(segment.id, segment.clone());
    }

    /// A segment for a lane to write to, whose lock the caller holds.
    pub(crate) fn next_log_segment(&self) -> Result<Arc<Segment>> {
        let spare = self.spares.lock().pop();
        let segment = match spare {
            Some(spare) => {
                // Nothing is in it yet, and what comes has a higher number than anything now.
                spare.set_seq_min(self.next_seq.load(Ordering::Acquire));
                spare
            }
            None => self.create_segment(Origin::Log)?,
        };
        self.use_segment(&segment);
        Ok(segment)
    }

    /// Has a spare segment ready for every lane.
    pub(crate) fn prepare_spares(&self) -> Result<()> {
        let _one_at_a_time = self.preparing.lock();
        while self.spares.lock().len() < self.lanes.len() {
            self.check_writable()?;
            if self.reserve.is_short() {
                return Ok(());
            }
            let spare = self.create_segment(Origin::Log)?;
            self.spares.lock().push(spare);
        }
        Ok(())
    }

    /// Tries to remove a segment's file that could not be created whole.
    fn forget_file(&self, id: SegmentId) {
        let path = crate::names::segment(&self.home.dir, id);
        if self.home.disk.remove(&path).is_ok() {
            self.home.removed.lock().push(id);
        }
    }

    pub(crate) fn set_state(&self, id: SegmentId, state: SegmentState, seq_min: u64) -> Result<()> {
        self.update_manifest(|manifest| {
            if let Some(entry) = manifest.segments.get_mut(&id) {
                entry.state = state;
                entry.seq_min = seq_min;
            }
        })
    }

    /// Takes segments out of use that no location names any more: at once, or when the last
    /// snapshot that may read them is gone.
    pub(crate) fn retire(&self, ids: impl IntoIterator<Item = SegmentId>) {
        let stamp = self.next_seq.load(Ordering::Acquire);
        self.retired.lock().extend(ids.into_iter().map(|id| (stamp, id)));
        self.release_retired();
    }

    pub(crate) fn release_retired(&self) {
        let mut retired = self.retired.lock();
        // Looked at with the list locked: a snapshot opened later cannot see what is on it.
        let oldest = self.history.oldest_snapshot().unwrap_or(u64::MAX);
        let mut segments = self.segments.write();
        let mut gone = Vec::new();
        retired.retain(|&(stamp, id)| {
            let needed = oldest < stamp;
            if !needed && let Some(segment) = segments.remove(&id) {
                segment.mark_obsolete();
                gone.push(segment);
            }
            needed
        });
        drop(segments);
        drop(retired);
        // Files go here, with no lock held, or later with the last reader.
        drop(gone);
    }
}

impl Store {
    pub(crate) fn stats(&self) -> Stats {
        let segments = self.segments.read();
        let sum = |of: &dyn Fn(&Segment) -> u64| -> u64 {
            segments.values().map(|segment| of(segment)).sum()
        };
        let (keys, index_bytes) = match &self.index {
            Index::Hash(index) => (index.len(), index.memory_bytes()),
            Index::Ordered(index) => (index.len(), index.memory_bytes()),
        };
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            keys: keys as u64,
            segments: segments.len() as u64,
            disk_bytes: sum(&|segment| segment.len()),
            live_bytes: sum(&|segment| segment.live()),
            tombstone_bytes: sum(&|segment| segment.tombstones()),
            index_bytes: index_bytes as u64,
            cache_bytes: self.cache.memory_bytes() as u64,
            scan_bytes: self.passes.memory_bytes() as u64,
            open_files: self.home.open_files.count() as u64,
            bytes_written: count(&self.counters.bytes_written),
            bytes_compacted: count(&self.counters.bytes_compacted),
            compactions: count(&self.counters.compactions),
            syncs: count(&self.counters.syncs),
        }
    }
}
