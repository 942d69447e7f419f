//! Copies made by writers that the snapshot has not fetched yet, and the bounds on them.
//!
//! Writers copy one entry for each key that they change first, the thread of the snapshot fetches
//! these copies before it walks on. As a rule it is much faster than they are, and the queue is
//! short. Bounds for the rest, such as a disk that stalls:
//!
//! - While more than [`QUEUE_BYTES`] wait, a writer that brings a full batch, of a hundred or more
//!   small entries, waits until there is room, but a millisecond at most: it is throttled, not
//!   stopped.
//! - Beyond [`Backlog::bytes_max`] the snapshot is given up. Serving has priority.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::batch::SnapshotBatch;
use crate::registries::snapshot::larges::Larges;

/// Writers slow down while more than this waits.
const QUEUE_BYTES: usize = 16 << 20;

/// How long a writer waits at most, for each batch.
const WAIT_MAX: Duration = Duration::from_millis(1);

/// The thread of the snapshot rests no longer when this much waits.
const RESTLESS_BYTES: usize = QUEUE_BYTES / 4;

#[derive(Debug)]
pub(crate) struct Backlog {
    queue: Mutex<Queue>,
    /// The queue became shorter.
    room: Condvar,
    /// The queue became longer than [`RESTLESS_BYTES`].
    crowded: Condvar,
    /// Extra memory of the snapshot: copies, intervals, tables that were flushed. Relaxed, as are
    /// the others: a figure.
    bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
    bytes_max: usize,
    is_given_up: AtomicBool,
    pub(crate) larges: Larges,
    /// Collections of at least this many bytes are large.
    pub(crate) large_bytes_min: usize,
}

#[derive(Debug, Default)]
struct Queue {
    batches: VecDeque<SnapshotBatch>,
    bytes: usize,
}

impl Backlog {
    /// For a snapshot that is given up when copies of more than `bytes_max` wait.
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

    /// Extra memory at this moment.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = self.bytes.load(Relaxed).wrapping_add(self.larges.bytes());
        self.peak_bytes.fetch_max(bytes, Relaxed);
        bytes
    }

    /// The most there was.
    pub(crate) fn peak_bytes(&self) -> usize {
        self.peak_bytes.load(Relaxed)
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Whether nothing need be copied any more.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Relaxed)
    }

    /// Follows memory that went from `before` to `after`. For the figures only: against the bound
    /// count the copies in the queue. Intervals are bounded otherwise, a table that was flushed
    /// was there before, and of a large collection each member is copied once at most.
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

    /// Sleeps for `time`, unless much waits.
    pub(crate) fn rest(&self, time: Duration) {
        let mut queue = self.queue.lock();
        if queue.bytes <= RESTLESS_BYTES {
            self.crowded.wait_for(&mut queue, time);
        }
    }

    /// Nothing will be fetched any more.
    pub(crate) fn close(&self) {
        self.is_given_up.store(true, Relaxed);
        self.room.notify_all();
    }
}
