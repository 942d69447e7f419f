//! Copies by writers that the snapshot has not fetched yet, and their limits.
//!
//! Writers copy an entry before they change its key for the first time. The snapshot's thread
//! fetches these copies before it continues its walk. Usually it is much faster than the writers,
//! and the queue is short. Limits for other cases, such as a stalled disk:
//!
//! - While more than [`QUEUE_BYTES`] wait, a writer with a full batch, of a hundred or more small
//!   entries, waits until there is room, but at most a millisecond. It is throttled, not stopped.
//! - Beyond [`Backlog::bytes_max`] the snapshot is cancelled. Requests have priority.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::batch::SnapshotBatch;
use crate::registries::snapshot::larges::Larges;

/// Size of the queue above which writers slow down.
const QUEUE_BYTES: usize = 16 << 20;

/// Maximum wait of a writer, for each batch.
const WAIT_MAX: Duration = Duration::from_millis(1);

/// Size of the queue above which the snapshot's thread does not rest.
const RESTLESS_BYTES: usize = QUEUE_BYTES / 4;

#[derive(Debug)]
pub(crate) struct Backlog {
    queue: Mutex<Queue>,
    /// Signals that the queue became shorter.
    room: Condvar,
    /// Signals that the queue became longer than [`RESTLESS_BYTES`].
    crowded: Condvar,
    /// Extra memory of the snapshot: copies, intervals, flushed tables. Relaxed, like the others: a
    /// statistic.
    bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
    bytes_max: usize,
    is_given_up: AtomicBool,
    pub(crate) larges: Larges,
    /// Minimum size of large collections, in bytes.
    pub(crate) large_bytes_min: usize,
}

#[derive(Debug, Default)]
struct Queue {
    batches: VecDeque<SnapshotBatch>,
    bytes: usize,
}

impl Backlog {
    /// Returns a backlog for a snapshot that is cancelled when copies of more than `bytes_max`
    /// wait.
    pub(crate) fn new(bytes_max: usize, large_bytes_min: usize) -> Self {
        Self {
            queue: Mutex::default(),
            room: Condvar::new(),
            crowded: Condvar::new(),
            bytes: AtomicUsize::new(0),
            peak_bytes: AtomicUsize::new(0),
            bytes_max,
            is_given_up: AtomicBool::new(false),
            larges: Larges::default(),
            large_bytes_min,
        }
    }

    /// Returns the extra memory at this moment.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = self.bytes.load(Relaxed).wrapping_add(self.larges.bytes());
        self.peak_bytes.fetch_max(bytes, Relaxed);
        bytes
    }

    /// Returns the maximum extra memory so far.
    pub(crate) fn peak_bytes(&self) -> usize {
        self.peak_bytes.load(Relaxed)
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Returns true if the snapshot is cancelled, and needs no more copies.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Relaxed)
    }

    /// Updates the figures for memory that went from `before` to `after`. Only the copies in the
    /// queue count against the limit. Intervals have their own limit, a flushed table existed
    /// before, and each member of a large collection is copied at most once.
    pub(crate) fn follow(&self, before: usize, after: usize) {
        self.bytes.fetch_add(after.wrapping_sub(before), Relaxed);
        if after > before {
            self.bytes();
        }
    }

    /// Takes a full batch of a writer, which may have to wait a moment.
    #[cold]
    pub(crate) fn push(&self, batch: SnapshotBatch) {
        let mut queue = self.queue.lock();
        if queue.bytes > QUEUE_BYTES && !self.is_given_up() {
            self.room.wait_for(&mut queue, WAIT_MAX);
        }
        if queue.bytes > self.bytes_max {
            self.is_given_up.store(true, Relaxed);
        }
        queue.bytes += batch.memory_bytes();
        queue.batches.push_back(batch);
        if queue.bytes > RESTLESS_BYTES {
            self.crowded.notify_one();
        }
    }

    /// Takes the oldest batch out.
    pub(crate) fn pop(&self) -> Option<SnapshotBatch> {
        let mut queue = self.queue.lock();
        let batch = queue.batches.pop_front()?;
        queue.bytes -= batch.memory_bytes();
        drop(queue);
        self.room.notify_one();
        self.follow(batch.memory_bytes(), 0);
        Some(batch)
    }

    /// Sleeps for `time`, unless many bytes wait.
    pub(crate) fn rest(&self, time: Duration) {
        let mut queue = self.queue.lock();
        if queue.bytes <= RESTLESS_BYTES {
            self.crowded.wait_for(&mut queue, time);
        }
    }

    /// Cancels: nothing will be fetched any more.
    pub(crate) fn close(&self) {
        self.is_given_up.store(true, Relaxed);
        self.room.notify_all();
    }
}
