//! Flushes the tail into segments.
//!
//! One thread at a time flushes a shard. It writes complete blocks, several at once if possible, directly from
//! the tail: no writer reuses their slots before they count as flushed. The rest of a closed segment, and the
//! part of an incomplete block that a sync needs, are written from a copy padded with zeros. Writers go on
//! meanwhile.
//!
//! Invariants:
//! * Only what is published is written.
//! * `next` is the beginning of a block; everything before it is in segments.
//! * The file holds everything before `in_file`, and zeros from there to `padded`.

use super::appender::{Appender, Head, Run};
use super::files::Owner;
use crate::disk::{DIRECT_ALIGNMENT, DiskFile, OpenMode};
use crate::error::{Error, Result};
use crate::location::SegmentId;
use crate::segment::file::Segment;
use crate::segment::header::SEGMENT_HEADER_LEN;
use crate::tail::{LogOffset, SLOTS, Tail};
use parking_lot::MutexGuard;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Progress of flushing.
#[derive(Default)]
pub struct Flush {
    pub(super) next: LogOffset,
    pub(super) in_file: LogOffset,
    padded: LogOffset,
    /// Segments with written data that is not yet durable, with the written length of each.
    unsynced: Vec<(Arc<Segment>, u64)>,
    /// Direct I/O handle of the segment being flushed.
    direct: Option<(SegmentId, Arc<dyn DiskFile>)>,
    buf: Vec<u8>,
}

/// Consecutive complete blocks, or a part of one, to be written.
struct Piece {
    run: Run,
    tail: Arc<Tail>,
    to: LogOffset,
    /// Slots that become free afterwards.
    finishes: Finishes,
}

/// Maximum number of blocks per write: the device likes long writes, but writers wait for room until all of it
/// is written.
const BLOCKS_AT_ONCE: u64 = SLOTS as u64 / 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Finishes {
    Nothing,
    Blocks,
    Segment,
}

impl Flush {
    fn note_unsynced(&mut self, run: &Run, to: LogOffset) {
        let len = to - run.base;
        match self.unsynced.iter_mut().find(|(segment, _)| segment.id == run.segment.id) {
            Some(noted) => noted.1 = len,
            None => self.unsynced.push((run.segment.clone(), len)),
        }
    }

    /// Returns the segments with written data that is not durable, with the written length of each. The caller
    /// makes them durable, or latches the store.
    pub(super) fn take_unsynced(&mut self) -> Vec<(Arc<Segment>, u64)> {
        // Sealed segments are durable.
        self.unsynced.retain(|(segment, len)| segment.synced() < *len);
        std::mem::take(&mut self.unsynced)
    }
}

impl Appender {
    /// Writes everything that is final: complete blocks and closed segments.
    pub(crate) fn flush_blocks(
        &self,
        owner: &impl Owner,
        flush: &mut MutexGuard<'_, Flush>,
    ) -> Result<()> {
        loop {
            let piece = self.complete_piece(&mut self.head.lock(), flush);
            let Some(piece) = piece else { return Ok(()) };
            let written = self.write_piece(flush, &piece);
            if written.is_ok() {
                self.set_free(flush, &piece);
            }
            // The lock is taken once, so that no writer checks for room before this and sleeps after it.
            drop(self.head.lock());
            self.room.notify_all();
            written.map_err(|e| owner.files().latch(e))?;
            // A sync may be waiting for this lock.
            MutexGuard::bump(flush);
        }
    }

    /// Flushes as [`Self::flush_blocks`] does, unless another thread is flushing.
    pub(crate) fn flush_if_idle(&self, owner: &impl Owner) -> Result<()> {
        match self.flush.try_lock() {
            Some(mut flush) => self.flush_blocks(owner, &mut flush),
            None => Ok(()),
        }
    }

    /// Writes everything, with the shard locked exclusively.
    pub(super) fn flush_all(
        &self,
        owner: &impl Owner,
        flush: &mut Flush,
        head: &mut Head,
    ) -> Result<()> {
        let next = |head: &mut Head, flush: &Flush| {
            self.complete_piece(head, flush).or_else(|| self.rest(head, flush, head.end))
        };
        while let Some(piece) = next(head, flush) {
            self.write_piece(flush, &piece).map_err(|e| owner.files().latch(e))?;
            self.set_free(flush, &piece);
        }
        Ok(())
    }

    /// Writes everything published so far. Returns the end of what is in the file.
    pub(super) fn flush_published(
        &self,
        owner: &impl Owner,
        flush: &mut MutexGuard<'_, Flush>,
    ) -> Result<LogOffset> {
        let target = self.published.end();
        self.flush_blocks(owner, flush)?;
        loop {
            let mut head = self.head.lock();
            let end = self.published.end();
            let complete = self.complete_piece(&mut head, flush);
            let piece = complete.or_else(|| self.rest(&head, flush, end));
            // A segment's file is created with its header. On a full disk there may be no space for more: that
            // is reserved with the first record.
            let has_records = |piece: &Piece| piece.to > piece.run.base + SEGMENT_HEADER_LEN;
            let Some(piece) = piece.filter(has_records) else { return Ok(end) };
            drop(head);
            self.write_piece(flush, &piece).map_err(|e| owner.files().latch(e))?;
            self.set_free(flush, &piece);
            if piece.to >= target {
                return Ok(piece.to);
            }
        }
    }

    /// Writes everything up to the end of a closed segment.
    pub(crate) fn flush_segment(&self, owner: &impl Owner, segment: &Segment) -> Result<()> {
        if segment.is_flushed() {
            return Ok(());
        }
        self.flush_blocks(owner, &mut self.flush.lock())
    }

    /// Returns the next complete block, or the rest of a closed segment.
    fn complete_piece(&self, head: &mut Head, flush: &Flush) -> Option<Piece> {
        while let Some(run) = head.runs.front()
            && run.closed.is_some_and(|end| end <= flush.next)
        {
            // Its end may have been flushed as a complete block before the segment was closed.
            run.segment.set_all_flushed();
            head.runs.pop_front();
        }
        let run = head.runs.front()?;
        let published = self.published.end();
        let block_end = flush.next.max(run.base) + self.geometry.block_len;
        let (to, finishes) = match run.closed {
            Some(end) if end <= block_end => (end, Finishes::Segment),
            _ if block_end <= published => {
                (self.blocks_end(published, run, block_end), Finishes::Blocks)
            }
            _ => return None,
        };
        Some(Piece { run: run.clone(), tail: self.tail().clone(), to, finishes })
    }

    /// Returns the end of the complete blocks that can be written together with the one that ends at
    /// `first_end`.
    fn blocks_end(&self, published: LogOffset, run: &Run, first_end: LogOffset) -> LogOffset {
        let block_len = self.geometry.block_len;
        let start = first_end - block_len;
        let complete = self.geometry.floor(run.closed.unwrap_or(published));
        complete.min(start + BLOCKS_AT_ONCE * block_len).min(self.geometry.wrap_after(start))
    }

    /// Returns the part of the current block up to `end`, which is published, that is not in the file.
    fn rest(&self, head: &Head, flush: &Flush, end: LogOffset) -> Option<Piece> {
        let run = head.open_run().filter(|_| flush.in_file < end)?;
        let (run, tail) = (run.clone(), self.tail().clone());
        Some(Piece { run, tail, to: end, finishes: Finishes::Nothing })
    }

    /// Writes from the end of the file to the end of the piece, in whole pages.
    fn write_piece(&self, flush: &mut Flush, piece: &Piece) -> Result<()> {
        let Piece { run, tail, to, .. } = piece;
        let page = self.geometry.page_len();
        let block = flush.next.max(run.base);
        let from = flush.in_file.max(block);
        let from = from - from % page;
        let end = self.padded_end(flush, piece);
        let file = self.file_to_write(flush, &run.segment)?;
        if piece.finishes == Finishes::Blocks {
            tail.write_to(from, *to - from, &*file, from - run.base)
        } else {
            Self::write_copy(flush, piece, from, end, &*file)
        }
        .map_err(|e| Error::io("write", &run.segment.path, e))?;
        flush.note_unsynced(run, *to);
        flush.in_file = *to;
        flush.padded = flush.padded.max(end);
        Ok(())
    }

    /// Writes from `from` to the end of the piece, and zeros from there to `end`.
    fn write_copy(
        flush: &mut Flush,
        piece: &Piece,
        from: LogOffset,
        end: LogOffset,
        file: &dyn DiskFile,
    ) -> std::io::Result<()> {
        let len = (piece.to - from) as usize;
        // The extra room allows the beginning to move to an aligned address.
        let wanted = (end - from) as usize + DIRECT_ALIGNMENT;
        if flush.buf.len() < wanted {
            flush.buf.resize(wanted, 0);
        }
        let pad = flush.buf.as_ptr().align_offset(DIRECT_ALIGNMENT);
        let buf = &mut flush.buf[pad..pad + (end - from) as usize];
        piece.tail.read(from, &mut buf[..len]);
        buf[len..].fill(0);
        file.write_all_at(&[IoSlice::new(buf)], from - piece.run.base)
    }

    /// Writes the part that does not fit into the tail. Everything before it is in the file.
    pub(super) fn write_long(
        &self,
        flush: &mut Flush,
        run: &Run,
        start: LogOffset,
        frame: &[u8],
    ) -> Result<()> {
        debug_assert_eq!(flush.in_file, start);
        let segment = &run.segment;
        segment
            .writable()?
            .write_all_at(&[IoSlice::new(frame)], start - run.base)
            .map_err(|e| Error::failed("write", &segment.path, e))?;
        let end = start + frame.len() as u64;
        flush.note_unsynced(run, end);
        flush.in_file = end;
        flush.next = self.geometry.floor(end);
        Ok(())
    }

    /// Returns the end of a write that covers a piece, extended to a whole page. The first sync in a block
    /// writes the whole block, mostly zeros. Later syncs then change only bytes inside the file, which the
    /// file system makes durable without its journal.
    fn padded_end(&self, flush: &Flush, piece: &Piece) -> LogOffset {
        let page = self.geometry.page_len();
        match piece.finishes {
            Finishes::Nothing if flush.padded < piece.to => self.geometry.ceil(piece.to),
            _ => piece.to.next_multiple_of(page),
        }
    }

    fn file_to_write(
        &self,
        flush: &mut Flush,
        segment: &Arc<Segment>,
    ) -> Result<Arc<dyn DiskFile>> {
        if !self.direct_writes || self.geometry.page_len() < DIRECT_ALIGNMENT as u64 {
            return segment.writable();
        }
        match &flush.direct {
            Some((id, file)) if *id == segment.id => Ok(file.clone()),
            _ => {
                // Direct I/O is only faster. The handle that is open anyway works even if there is no
                // descriptor left for another one.
                let Ok(file) = segment.open_file(OpenMode::DirectWrite) else {
                    return segment.writable();
                };
                flush.direct = Some((segment.id, file.clone()));
                Ok(file)
            }
        }
    }

    /// Lets readers use the file, and writers reuse the slots.
    fn set_free(&self, flush: &mut Flush, piece: &Piece) {
        match piece.finishes {
            Finishes::Nothing => return,
            Finishes::Blocks => piece.run.segment.set_flushed(piece.to - piece.run.base),
            Finishes::Segment => piece.run.segment.set_all_flushed(),
        }
        flush.next = self.geometry.ceil(piece.to);
        flush.in_file = flush.in_file.max(flush.next);
        self.flushed.store(flush.next, Ordering::Release);
    }
}
