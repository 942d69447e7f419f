//! Appending to a shard's log.
//!
//! Under the shard's lock a write gets its sequence numbers and its offset, is copied into the tail and applied to
//! the index. This takes no system call, unless the tail or the segment is full, or the segment needs more reserved
//! space.
//!
//! * Threads append to a log without an index at the same time; see `reservation`. The lock that
//!   all others take ([`Appender::lock`]) waits until they are done.
//! * When the tail is full, the writer flushes it, or waits for the writer that does.
//! * A write longer than half the tail goes directly to the segment, with the shard locked.
//!
//! The lock can also be taken without a write: batches over several shards, snapshots and closing exclude writers that
//! way.
//!
//! Lock order: a shard's `flush` before any `head`; `head`s by ascending shard. No thread that waits for the disk
//! holds a `head`, except for a long write and for a new segment.
//!
//! Invariants:
//! * The parts of the log in `runs` follow each other; all but the last are closed.
//! * `end` is never more than a ring's length above `flushed`. Everything before `published` is stored and marked, and
//!   from there to `end` is reserved by threads that are about to publish it. Only what is published is flushed, made
//!   durable, or told to callers.
//! * `room_end` is 0 while no segment is open. While one is, all inputs of its computation only grow.
//! * `block` is the block in which the next write begins, or an earlier one.

use super::files::{LogFiles, Owner};
use super::flush::Flush;
use super::published::Published;
use super::sync::SyncGroup;
use super::write::Write;
use crate::cache_line::CacheLine;
use crate::error::Result;
use crate::location::SEGMENT_LEN_MAX;
use crate::segment::file::Segment;
use crate::segment::header::SEGMENT_HEADER_LEN;
use crate::tail::{Geometry, LogOffset, OpenBlock, Tail};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Time for which an update of the open segment's length waits.
const LEN_PATIENCE: Duration = Duration::from_millis(50);

/// Interval in which a waiting writer checks that the store still accepts writes.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Location of an appended write.
pub struct Appended<'a> {
    pub segment: &'a Arc<Segment>,
    /// Offset of its first byte in the segment.
    pub offset: u64,
    /// Sequence number of its first record.
    pub seq: u64,
}

/// A shard's log.
pub struct Appender {
    pub(super) number: u32,
    pub(super) geometry: Geometry,
    /// True if segments are written with direct I/O.
    pub(super) direct_writes: bool,
    pub(crate) head: CacheLine<Mutex<Head>>,
    pub(super) published: CacheLine<Published>,
    /// Made with the first segment.
    pub(super) tail: OnceLock<Arc<Tail>>,
    /// Signals that blocks were flushed, or could not be.
    pub(super) room: Condvar,
    pub(super) flush: Mutex<Flush>,
    /// End of the flushed part, in whole blocks: everything before it is in segments, and its slots are free.
    pub(super) flushed: AtomicU64,
    pub(super) sync: SyncGroup,
    /// Longest wait of a writer for the disk since the last [`Appender::take_longest_wait`].
    longest_wait_nanos: AtomicU64,
}

/// State at the end of the log. Each write changes only its first fields, which are next to the lock.
#[derive(Default)]
#[repr(C)]
pub struct Head {
    pub(super) end: LogOffset,
    /// Offset up to which writes fit into the current segment, its reserved space, and the tail.
    pub(super) room_end: LogOffset,
    /// Current block, cached because computing it takes divisions.
    pub(super) block: OpenBlock,
    /// Number of the next record of a log without an index, once it has one.
    pub(super) next_seq: u64,
    /// True if records were numbered by `next_seq` since the log was locked exclusively.
    pub(super) has_reserved: bool,
    pub(super) runs: VecDeque<Run>,
}

/// A part of the log in one segment.
#[derive(Clone)]
pub(super) struct Run {
    pub(super) segment: Arc<Segment>,
    pub(super) base: LogOffset,
    /// Its end, once nothing will be appended.
    pub(super) closed: Option<LogOffset>,
}

/// Result of an attempt to append.
enum Tried {
    Put(LogOffset),
    /// There is no room until more than this is flushed.
    Full {
        flushed: LogOffset,
    },
    /// The write does not fit into a tail.
    TooLong,
}

impl Head {
    pub(super) fn open_run(&self) -> Option<&Run> {
        self.runs.back().filter(|run| run.closed.is_none())
    }

    /// Closes the current segment and returns it. The log must be locked exclusively.
    pub(crate) fn close_run(&mut self) -> Option<Arc<Segment>> {
        let end = self.end;
        let run = self.runs.back_mut().filter(|run| run.closed.is_none())?;
        run.closed = Some(end);
        run.segment.set_len(end - run.base);
        self.room_end = 0;
        Some(run.segment.clone())
    }
}

impl Appender {
    pub(crate) fn new(number: u32, geometry: Geometry, direct_writes: bool) -> Self {
        Appender {
            number,
            geometry,
            direct_writes,
            head: CacheLine::default(),
            published: CacheLine::default(),
            tail: OnceLock::new(),
            room: Condvar::new(),
            flush: Mutex::default(),
            flushed: AtomicU64::new(0),
            sync: SyncGroup::default(),
            longest_wait_nanos: AtomicU64::new(0),
        }
    }

    /// Returns the longest wait of a writer for the disk since the last call.
    pub(crate) fn take_longest_wait(&self) -> Duration {
        Duration::from_nanos(self.longest_wait_nanos.swap(0, Ordering::Relaxed))
    }

    /// Runs work that a writer waits for, and records its duration.
    fn timed<R>(&self, work: impl FnOnce() -> R) -> R {
        let begun = Instant::now();
        let done = work();
        let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.longest_wait_nanos.fetch_max(nanos, Ordering::Relaxed);
        done
    }

    /// Prevents all other threads from appending until the guard is dropped, after everything reserved is published.
    pub fn lock(&self, files: &LogFiles) -> MutexGuard<'_, Head> {
        let mut head = self.head.lock();
        self.published.wait_for(head.end);
        if std::mem::take(&mut head.has_reserved) {
            files.next_seq.store(head.next_seq, Ordering::Release);
        }
        head
    }

    /// Allocates the sequence numbers of a write. The log must be locked exclusively.
    fn take_seqs(&self, owner: &impl Owner, head: &mut Head, write: &Write) -> u64 {
        let count = write.ops.as_slice().len() as u64;
        let seq = owner.files().take_seqs(count);
        head.next_seq = seq + count;
        seq
    }

    /// Sets the end of the log, which must be locked exclusively.
    fn set_end(&self, head: &mut Head, end: LogOffset) {
        head.end = end;
        self.published.set(end);
    }

    pub(crate) fn tail(&self) -> &Arc<Tail> {
        self.tail.get().expect("made with the first segment")
    }

    /// Updates the length of the open segment, which [`Self::append_record`] leaves as it is. Gives up
    /// soon: a thread may hold the lock while it waits for the disk, and INFO asks for the length.
    pub(crate) fn update_len(&self) {
        if let Some(head) = self.head.try_lock_for(LEN_PATIENCE)
            && let Some(run) = head.open_run()
        {
            run.segment.set_len(self.published.end() - run.base);
        }
    }

    /// Closes the current segment if `wanted` returns true, so that later records go to another one.
    pub fn close_run_if(&self, owner: &impl Owner, wanted: impl Fn(&Segment) -> bool) -> bool {
        let mut head = self.lock(owner.files());
        let is_wanted = head.open_run().is_some_and(|run| wanted(&run.segment));
        if is_wanted && let Some(full) = head.close_run() {
            owner.files().add_immutable(self.number, full);
        }
        is_wanted
    }

    /// Returns the end of the published log. It covers all that this thread has appended, and all that it has seen.
    pub fn end(&self) -> LogOffset {
        self.published.end()
    }

    /// Appends a write and returns the end of the log after it. `apply` is called once, under the lock.
    pub fn append(
        &self,
        owner: &impl Owner,
        write: &mut Write,
        mut apply: impl FnMut(&Write, Appended<'_>),
    ) -> Result<LogOffset> {
        loop {
            let mut head = self.lock(owner.files());
            match self.try_put(owner, &mut head, write, &mut apply)? {
                Tried::Put(end) => return Ok(end),
                Tried::Full { flushed } => {
                    drop(head);
                    self.timed(|| self.wait_for_room(owner, flushed))?;
                }
                Tried::TooLong => {
                    drop(head);
                    return self.timed(|| {
                        let mut flush = self.flush.lock();
                        let mut head = self.lock(owner.files());
                        self.put_long(owner, &mut flush, &mut head, write, &mut apply)
                    });
                }
            }
        }
    }

    /// Appends as [`Self::append`] does, while no other writer can append to any of the `appenders`, which are in
    /// ascending order. The write goes to the one at index `home`.
    pub fn append_across(
        appenders: &[&Appender],
        home: usize,
        owner: &impl Owner,
        write: &mut Write,
        mut apply: impl FnMut(&Write, Appended<'_>),
    ) -> Result<LogOffset> {
        let appender = appenders[home];
        let files = owner.files();
        let lock_all =
            || -> Vec<_> { appenders.iter().map(|appender| appender.lock(files)).collect() };
        loop {
            let mut heads = lock_all();
            match appender.try_put(owner, &mut heads[home], write, &mut apply)? {
                Tried::Put(end) => return Ok(end),
                Tried::Full { flushed } => {
                    drop(heads);
                    appender.timed(|| appender.wait_for_room(owner, flushed))?;
                }
                Tried::TooLong => {
                    drop(heads);
                    return appender.timed(|| {
                        let mut flush = appender.flush.lock();
                        let mut heads = lock_all();
                        appender.put_long(owner, &mut flush, &mut heads[home], write, &mut apply)
                    });
                }
            }
        }
    }

    fn try_put(
        &self,
        owner: &impl Owner,
        head: &mut Head,
        write: &mut Write,
        apply: &mut impl FnMut(&Write, Appended<'_>),
    ) -> Result<Tried> {
        owner.files().check_writable()?;
        let len = write.frame.len() as u64;
        if head.end + len <= head.room_end {
            debug_assert!(self.fits(owner, head, len));
            return Ok(Tried::Put(self.put(owner, head, write, apply)));
        }
        let (geometry, ring_len) = (self.geometry, self.geometry.ring_len());
        if len > ring_len / 2 {
            return Ok(Tried::TooLong);
        }
        let fits = self.fits(owner, head, len);
        let end = match fits {
            true => head.end + len,
            false => geometry.ceil(head.end) + SEGMENT_HEADER_LEN + len,
        };
        let flushed = self.flushed.load(Ordering::Acquire);
        // The whole block in which it ends must be free, because marks are per block. The free part ends with a
        // block, so it is enough that the end is free.
        if end > flushed + ring_len {
            return Ok(Tried::Full { flushed });
        }
        if !fits {
            self.timed(|| self.rotate(owner, head))?;
        }
        self.set_space_aside(owner, head, write)?;
        head.room_end = self.room_end(owner, head, flushed);
        Ok(Tried::Put(self.put(owner, head, write, apply)))
    }

    /// Returns the offset up to which writes need no check of the segment, its space and the tail. It is at most
    /// half a tail away, so that no write passes that is too long for the tail.
    fn room_end(&self, owner: &impl Owner, head: &Head, flushed: LogOffset) -> LogOffset {
        let run = head.open_run().expect("there is room in a segment");
        let segment_end = run.base + owner.files().options.segment_size_bytes;
        let space_end = (run.base + run.segment.space()).saturating_sub(self.geometry.block_len);
        let ring_len = self.geometry.ring_len();
        (flushed + ring_len).min(head.end + ring_len / 2).min(segment_end).min(space_end)
    }

    /// Returns true if the current segment can take so many more bytes.
    fn fits(&self, owner: &impl Owner, head: &Head, len: u64) -> bool {
        head.open_run().is_some_and(|run| {
            let offset = head.end - run.base;
            // An empty segment takes a frame of any length: no other segment has more room.
            offset + len <= owner.files().options.segment_size_bytes
                || (offset == SEGMENT_HEADER_LEN && offset + len <= SEGMENT_LEN_MAX)
        })
    }

    fn rotate(&self, owner: &impl Owner, head: &mut Head) -> Result<()> {
        if self.tail.get().is_none() {
            let tail = owner.files().open_tail(owner, self.number)?;
            self.tail.get_or_init(|| tail);
        }
        let segment = owner.files().next_segment(owner)?;
        if let Some(full) = head.close_run() {
            owner.files().add_immutable(self.number, full);
        }
        let base = self.geometry.ceil(head.end);
        let tail = self.tail();
        // The first block is written as a whole, so the tail must have the header.
        let header = segment.header().encode();
        fence(Ordering::Release);
        tail.write(base, &header);
        segment.attach(tail, base);
        head.runs.push_back(Run { segment, base, closed: None });
        self.set_end(head, base + SEGMENT_HEADER_LEN);
        Ok(())
    }

    /// Reserves space, so that acknowledged data cannot meet a full disk later.
    fn set_space_aside(&self, owner: &impl Owner, head: &Head, write: &Write) -> Result<()> {
        let run = head.open_run().expect("there is room in a segment");
        let len = write.frame.len() as u64;
        // Nearly always one more block is reserved, and this check needs no division.
        if run.segment.has_space(head.end + len + self.geometry.block_len - run.base) {
            return Ok(());
        }
        let needed = self.geometry.ceil(head.end + len) - run.base;
        if run.segment.has_space(needed) {
            return Ok(());
        }
        let usual =
            owner.files().options.segment_size_bytes.next_multiple_of(self.geometry.block_len);
        let set_aside = || owner.set_aside(&run.segment, needed, usual, write);
        self.timed(set_aside).map_err(|e| owner.files().latch(e))
    }

    fn put(
        &self,
        owner: &impl Owner,
        head: &mut Head,
        write: &mut Write,
        apply: &mut impl FnMut(&Write, Appended<'_>),
    ) -> LogOffset {
        let seq = self.take_seqs(owner, head, write);
        let run = head.runs.back().expect("there is room in a segment");
        let tail = self.tail();
        let (segment, base, start) = (&run.segment, run.base, head.end);
        let (offset, end) = (start - base, start + write.frame.len() as u64);
        write.stamp(seq, segment.synced(), segment.salt, offset);
        // Pairs with the fence of readers: a reader that sees bytes stored here over an older block also sees that
        // the older block was flushed.
        fence(Ordering::Release);
        tail.write(start, &write.frame);
        let leaves_block = end >= head.block.end;
        if leaves_block {
            tail.mark(segment.id, base, self.geometry.floor(start), end);
            head.block = self.geometry.block(end);
        } else {
            tail.mark_block(head.block, segment.id, end - base);
        }
        segment.set_len(end - base);
        apply(write, Appended { segment, offset, seq });
        self.set_end(head, end);
        if leaves_block {
            owner.files().block_is_complete();
        }
        end
    }

    /// Waits until more than `flushed` is flushed, or flushes itself.
    fn wait_for_room(&self, owner: &impl Owner, flushed: LogOffset) -> Result<()> {
        if !owner.files().block_is_complete() {
            return self.flush_blocks(owner, &mut self.flush.lock());
        }
        if let Some(mut flush) = self.flush.try_lock() {
            return self.flush_blocks(owner, &mut flush);
        }
        // The flusher takes the shard's lock between counting a block as flushed and signalling, so the signal is
        // not missed. Latching and closing are not signalled, hence the time limit.
        let mut head = self.head.lock();
        if self.flushed.load(Ordering::Acquire) == flushed {
            self.room.wait_for(&mut head, LOOK_AGAIN);
        }
        Ok(())
    }

    /// Writes data that is too long for the tail directly to the segment.
    fn put_long(
        &self,
        owner: &impl Owner,
        flush: &mut Flush,
        head: &mut Head,
        write: &mut Write,
        apply: &mut impl FnMut(&Write, Appended<'_>),
    ) -> Result<LogOffset> {
        owner.files().check_writable()?;
        let len = write.frame.len() as u64;
        self.flush_all(owner, flush, head)?;
        if !self.fits(owner, head, len) {
            self.rotate(owner, head)?;
            self.flush_all(owner, flush, head)?;
        }
        self.set_space_aside(owner, head, write)?;
        let seq = self.take_seqs(owner, head, write);
        let run = head.runs.back().expect("there is room in a segment");
        let tail = self.tail();
        let (segment, base, start) = (&run.segment, run.base, head.end);
        let (offset, end) = (start - base, start + len);
        write.stamp(seq, segment.synced(), segment.salt, offset);
        self.write_long(flush, run, start, &write.frame)
            .map_err(|e| owner.files().latch_always(e))?;
        // The block in which it ends will be written again, with later data.
        let block = self.geometry.floor(end);
        // Set this first: the slot may belong to the block in which this write began, where readers still look for
        // it.
        segment.set_flushed(block - base);
        fence(Ordering::Release);
        tail.write(block, &write.frame[(block - start) as usize..]);
        tail.mark(segment.id, base, block, end);
        segment.set_len(end - base);
        apply(write, Appended { segment, offset, seq });
        self.set_end(head, end);
        self.flushed.store(block, Ordering::Release);
        self.room.notify_all();
        Ok(end)
    }
}
