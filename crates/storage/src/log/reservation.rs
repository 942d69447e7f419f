//! Appending to a log without an index, by several threads at the same time.
//!
//! Under the log's lock a writer only reserves the range of its record, and its sequence number. It stores the record
//! there without the lock, and publishes it after all earlier ones. So when [`Appender::append_record`] returns, the
//! record and all earlier ones are in the tail, and marks cover them.
//!
//! Everything else takes the exclusive lock ([`Appender::lock`]), which waits until nothing is reserved: a new segment
//! or more space for it, a full tail, a record that is too long for it. `docs/decisions/0027-parallel-appends.md` has
//! the reasons.
//!
//! Invariants:
//! * A reservation is always published: nothing can fail in between, and its thread takes no lock meanwhile.
//! * Its range is in the open segment, in space that is set aside, and in slots of the tail that are free.
//! * A reserved range is not marked before it is published. So a death of the process in between loses this record
//!   and all later ones, none of which was acknowledged.

use super::appender::Appender;
use super::files::Owner;
use super::published::Stored;
use crate::checksum::{Salt, crc32c, crc32c_append};
use crate::error::Result;
use crate::location::{ALIGNMENT, SegmentId};
use crate::segment::record::{HEADER_LEN, Plain};
use crate::tail::{LogOffset, OpenBlock, Tail};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Records up to this length are joined first, since that takes less than storing their parts.
const SHORT_LEN: usize = 128;

/// A range of the log that one thread stores its record in.
pub(crate) struct Reservation {
    pub(crate) start: LogOffset,
    pub(crate) end: LogOffset,
    /// The block in which it begins, or an earlier one.
    block: OpenBlock,
    base: LogOffset,
    segment: SegmentId,
    salt: Salt,
    synced: u64,
    seq: u64,
}

/// A record's value in whole words.
pub(crate) struct Body<'a> {
    words: &'a [u8],
    /// The rest, padded with zeros, if there is any.
    last: Option<[u8; 8]>,
    crc: u32,
}

impl<'a> Body<'a> {
    #[inline]
    pub(crate) fn new(value: &'a [u8]) -> Self {
        let (words, rest) = value.split_at(value.len() - value.len() % ALIGNMENT as usize);
        let crc = crc32c(words);
        if rest.is_empty() {
            return Body { words, last: None, crc };
        }
        // A copy of a variable number of bytes would take longer.
        let last = match value.last_chunk() {
            Some(bytes) => u64::from_le_bytes(*bytes) >> (64 - 8 * rest.len()),
            None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        let last = last.to_le_bytes();
        Body { words, last: Some(last), crc: crc32c_append(crc, &last) }
    }

    /// Returns the length of the whole record.
    pub(crate) fn record_len(&self) -> u64 {
        (HEADER_LEN + self.words.len() + self.last.map_or(0, |last| last.len())) as u64
    }
}

impl Appender {
    /// Appends a record without a key; `value` is its stored form. Returns `false` if it takes the exclusive lock to
    /// append it, and does nothing then. The log must have only this appender.
    ///
    /// # Errors
    /// When the log is closed or has failed.
    #[inline]
    pub(crate) fn append_record(
        &self,
        owner: &impl Owner,
        compression: u8,
        value: &[u8],
    ) -> Result<bool> {
        // The checksum of a long record is not worth a try, and its copy would keep others waiting.
        if value.len() as u64 > self.geometry.block_len {
            return Ok(false);
        }
        let body = Body::new(value);
        let Some((reservation, tail)) = self.reserve(owner, body.record_len())? else {
            return Ok(false);
        };
        reservation.store(tail, compression, value.len(), &body);
        self.publish(owner, tail, &reservation);
        Ok(true)
    }

    /// Reserves the range of a record.
    #[inline]
    pub(crate) fn reserve(
        &self,
        owner: &impl Owner,
        len: u64,
    ) -> Result<Option<(Reservation, &Arc<Tail>)>> {
        let mut head = self.head.lock();
        owner.files().check_writable()?;
        let (start, end) = (head.end, head.end + len);
        let (Some(run), Some(tail)) = (head.runs.back(), self.tail.get()) else { return Ok(None) };
        if end > head.room_end {
            return Ok(None);
        }
        let (block, segment) = (head.block, &run.segment);
        let reservation = Reservation {
            start,
            end,
            block,
            base: run.base,
            segment: segment.id,
            salt: segment.salt,
            synced: segment.synced(),
            seq: head.next_seq,
        };
        if end >= block.end {
            head.block = self.geometry.block(end);
        }
        (head.end, head.has_reserved) = (end, true);
        head.next_seq += 1;
        Ok(Some((reservation, tail)))
    }

    /// Waits until a stored record is published, or until everything before it is, then publishes it.
    #[inline]
    pub(crate) fn publish(&self, owner: &impl Owner, tail: &Tail, reservation: &Reservation) {
        let Reservation { start, end, block, base, segment, seq, .. } = *reservation;
        let Some(to) = self.published.await_turn(Stored { start, end, seq }) else { return };
        // Only this thread marks now. The mark is after the records that it covers, also those of other threads. They
        // are in the same segment: a new one begins when nothing is reserved.
        if to < block.end {
            tail.mark_block(block, segment, to - base);
            return self.published.set(to);
        }
        tail.mark(segment, base, self.geometry.floor(start), to);
        self.published.set(to);
        owner.files().block_is_complete();
    }
}

impl Reservation {
    /// Stores the record in its range.
    #[inline]
    pub(crate) fn store(&self, tail: &Tail, compression: u8, value_len: usize, body: &Body<'_>) {
        let Reservation { start, base, salt, synced, seq, .. } = *self;
        let plain = Plain { compression, value_len, body_crc: body.crc };
        let header = plain.header(seq, synced, salt, start - base);
        // As for other writes: see `Appender::put`.
        fence(Ordering::Release);
        let last = body.last.as_ref().map_or(&[][..], |last| last);
        let words_end = HEADER_LEN + body.words.len();
        let mut short = [0; SHORT_LEN];
        if words_end + last.len() > SHORT_LEN {
            return tail.write_parts(start, [&header, body.words, last]);
        }
        short[..HEADER_LEN].copy_from_slice(&header);
        short[HEADER_LEN..words_end].copy_from_slice(body.words);
        if let Some(last) = body.last {
            short[words_end..words_end + last.len()].copy_from_slice(&last);
        }
        tail.write(start, &short[..words_end + last.len()]);
    }
}
