//! Asynchronous reads of values.

use super::location::ColdLocation;
use super::segment::ColdSegment;
use super::store::ColdStore;
use crate::disk::reads::{DEPTH_MAX, Done, ReadDriver, ReadQueue, ReadThreads};
use crate::disk::span::ReadBuf;
use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Approximate memory limit of the values being read; one is read in any case.
const UNDERWAY_BYTES_MAX: usize = 8 << 20;

/// Maximum length of a buffer that is kept for the next read.
const BUFFER_KEPT_BYTES: usize = 16 << 10;

/// Reads of one thread, from [`ColdStore::reads`]. Each has a `T` that identifies it to the caller.
/// Dropping this abandons the reads in flight.
pub struct ColdReads<T> {
    store: Arc<ColdStore>,
    queue: ReadQueue,
    /// Reads for which the disk had no room yet.
    waiting: VecDeque<(ColdLocation, T)>,
    underway: Vec<Option<Underway<T>>>,
    free: Vec<u32>,
    underway_bytes: usize,
    /// Reads that failed before they began.
    failed: Vec<(T, Error)>,
    /// Reusable memory.
    buffers: Vec<ReadBuf>,
    done: Vec<Done>,
}

/// A read in flight.
struct Underway<T> {
    location: ColdLocation,
    segment: Arc<ColdSegment>,
    tag: T,
}

impl<T> ColdReads<T> {
    pub(super) fn new(
        store: &Arc<ColdStore>,
        driver: ReadDriver,
        threads: &Arc<ReadThreads>,
    ) -> std::io::Result<Self> {
        Ok(ColdReads {
            store: Arc::clone(store),
            queue: ReadQueue::new(driver, threads)?,
            waiting: VecDeque::new(),
            underway: (0..DEPTH_MAX).map(|_| None).collect(),
            free: (0..DEPTH_MAX as u32).rev().collect(),
            underway_bytes: 0,
            failed: Vec::new(),
            buffers: Vec::new(),
            done: Vec::new(),
        })
    }

    /// Returns a descriptor that is readable when [`ColdReads::submit`] should be called.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.queue.descriptor()
    }

    /// Returns true if there are no reads.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.queue.underway() == 0 && self.failed.is_empty()
    }

    /// Adds a read of the value at a location; [`ColdReads::submit`] begins it.
    pub fn add(&mut self, location: ColdLocation, tag: T) {
        self.waiting.push_back((location, tag));
    }

    /// Returns true if reads wait that [`ColdReads::submit`] would begin.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Submits as many reads as the disk can use, in one system call, or none if there is nothing to
    /// do. With `may_begin` false no waiting reads begin; those in flight are finished in any case.
    /// Returns `false` if the system was too busy and the call must be repeated soon.
    pub fn submit(&mut self, may_begin: bool) -> bool {
        while may_begin && self.queue.room() > 0 && !self.free.is_empty() {
            let Some((location, tag)) = self.waiting.pop_front() else { break };
            if self.underway_bytes > 0
                && self.underway_bytes + location.record_read_len() > UNDERWAY_BYTES_MAX
            {
                self.waiting.push_front((location, tag));
                break;
            }
            self.begin(location, tag);
        }
        self.queue.submit()
    }

    fn begin(&mut self, location: ColdLocation, tag: T) {
        let found = self.store.segment_of(location);
        let found = found.and_then(|segment| Ok((segment.file_of(location)?, segment)));
        let (file, segment) = match found {
            Ok(found) => found,
            Err(error) => return self.failed.push((tag, error)),
        };
        let Some(token) = self.free.pop() else { return };
        let buf = self.buffers.pop().unwrap_or_default();
        self.underway_bytes += location.record_read_len();
        self.underway[token as usize] = Some(Underway { location, segment, tag });
        self.queue.begin(token, file, location.offset(), location.record_read_len(), buf);
    }

    /// Calls `each` for all ended reads. Returns true if [`ColdReads::submit`] must be called before
    /// there can be more.
    pub fn take(&mut self, mut each: impl FnMut(T, Result<&[u8]>)) -> bool {
        for (tag, error) in self.failed.drain(..) {
            each(tag, Err(error));
        }
        let mut done = std::mem::take(&mut self.done);
        let is_continued = self.queue.take(&mut done);
        for Done { token, buf, result } in done.drain(..) {
            let Some(read) = self.underway[token as usize].take() else { continue };
            self.free.push(token);
            self.underway_bytes -= read.location.record_read_len();
            let result = result.map_err(|e| read.segment.failed(e));
            each(read.tag, result.and_then(|()| read.segment.value(read.location, &buf)));
            if buf.bytes.capacity() <= BUFFER_KEPT_BYTES {
                self.buffers.push(buf);
            }
        }
        self.done = done;
        is_continued
    }
}

impl<T> std::fmt::Debug for ColdReads<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ColdReads")
            .field("waiting", &self.waiting.len())
            .field("underway", &self.queue.underway())
            .finish_non_exhaustive()
    }
}
