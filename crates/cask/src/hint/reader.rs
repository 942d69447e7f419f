//! Reads a hint file, and verifies every field.

use super::entry::{Entry, HintOrder, RANGES, decode};
use super::filter::Filter;
use super::writer::{BLOCK_HEADER_LEN, FIELDS_LEN, HINT_HEADER_LEN, HintSummary, MAGIC, VERSION};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use tierce_storage::bytes::Cursor;
use tierce_storage::checksum::crc32c;
use tierce_storage::disk::{Disk, DiskFile, OpenMode, read_exact_at};
use tierce_storage::location::{SEQ_MAX, SegmentId};
use tierce_storage::names;

/// Upper bound of a block that a writer makes: one entry above the usual length.
const BLOCK_LEN_MAX: usize = 256 << 10;
/// Bytes a cursor fetches at a time.
const FETCH_LEN: usize = 64 << 10;

/// The hint file must not be used; its segment has to be read instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Invalid;

/// An open hint file with a good header.
pub(crate) struct HintReader {
    file: Arc<dyn DiskFile>,
    order: HintOrder,
    ranges: Vec<u64>,
    filter_len: u64,
    filter_crc: u32,
    segment_len: u64,
    pub(crate) segment: SegmentId,
    pub(crate) summary: HintSummary,
}

impl HintReader {
    /// Opens the hint file of a segment, if it exists, is complete, and belongs to this segment and
    /// order.
    pub(crate) fn open(
        disk: &dyn Disk,
        dir: &Path,
        store_id: u128,
        segment: SegmentId,
        segment_len: u64,
        order: HintOrder,
    ) -> Result<Self, Invalid> {
        let path = names::hint(dir, segment);
        let file = disk.open(&path, OpenMode::ReadOnly).map_err(|_| Invalid)?;
        let mut header = vec![0; HINT_HEADER_LEN];
        read_exact_at(&*file, &mut header, 0).map_err(|_| Invalid)?;
        let (checked, crc) = header.split_last_chunk::<4>().ok_or(Invalid)?;
        if crc32c(checked) != u32::from_le_bytes(*crc) {
            return Err(Invalid);
        }
        let expected = Expected { store_id, segment, segment_len, order };
        let reader = Self::decode(file, checked, &expected).ok_or(Invalid)?;
        let len = reader.file.size().map_err(|_| Invalid)?;
        let end = reader.ranges[RANGES].checked_add(reader.filter_len).ok_or(Invalid)?;
        let ascends = reader.ranges.is_sorted() && reader.ranges[0] == HINT_HEADER_LEN as u64;
        if ascends && len == end { Ok(reader) } else { Err(Invalid) }
    }

    fn decode(file: Arc<dyn DiskFile>, bytes: &[u8], expected: &Expected) -> Option<Self> {
        let (fields, table) = bytes.split_at_checked(FIELDS_LEN)?;
        let mut cursor = Cursor::new(fields);
        let ours = cursor.take(8)? == MAGIC
            && cursor.u32()? == VERSION
            && cursor.u32()? == expected.segment.0
            && cursor.u128()? == expected.store_id
            && cursor.u32()? == expected.order.index as u32;
        ours.then_some(())?;
        let filter_crc = cursor.u32()?;
        (cursor.u64()? == expected.segment_len).then_some(())?;
        let summary = HintSummary {
            entries: cursor.u64()?,
            seq_min: cursor.u64()?,
            seq_max: cursor.u64()?,
            tombstones: cursor.u64()?,
        };
        let filter_len = cursor.u64()?;
        let mut cursor = Cursor::new(table);
        let ranges: Vec<u64> = (0..=RANGES).map_while(|_| cursor.u64()).collect();
        (ranges.len() == RANGES + 1).then_some(HintReader {
            file,
            order: expected.order,
            ranges,
            filter_len,
            filter_crc,
            segment_len: expected.segment_len,
            segment: expected.segment,
            summary,
        })
    }

    /// Verifies all blocks, and that the entries are as a writer makes them: ascending, within the
    /// segment and the summary. Opening verifies first, so that merging cannot fail midway.
    pub(crate) fn verify(&self) -> Result<(), Invalid> {
        let mut cursor = self.cursor(0..RANGES);
        let (mut entry, mut last) = (Entry::default(), Entry::default());
        let mut count = 0;
        while cursor.next(&mut entry)? {
            let meta = entry.meta;
            let is_known = meta.offset + meta.len <= self.segment_len
                && (self.summary.seq_min..=self.summary.seq_max).contains(&meta.seq);
            let ascends = count == 0
                || self.order.compare((last.hash, &last.key), (entry.hash, &entry.key)).is_lt();
            if !(is_known && ascends) {
                return Err(Invalid);
            }
            std::mem::swap(&mut entry, &mut last);
            count += 1;
        }
        let is_whole = count == self.summary.entries && self.summary.seq_max <= SEQ_MAX;
        if is_whole { Ok(()) } else { Err(Invalid) }
    }

    /// Returns the entries of some ranges, in order.
    pub(crate) fn cursor(&self, ranges: Range<usize>) -> HintCursor {
        HintCursor {
            file: self.file.clone(),
            order: self.order,
            segment: self.segment,
            position: self.ranges[ranges.start],
            end: self.ranges[ranges.end],
            buf: Vec::new(),
            buf_at: 0,
            block_end: 0,
        }
    }

    /// Returns the filter over the segment's keys.
    pub(crate) fn filter(&self) -> Result<Filter, Invalid> {
        // The length was checked against the file's, so this allocates no more than the file has.
        let mut bytes = vec![0; self.filter_len as usize];
        read_exact_at(&*self.file, &mut bytes, self.ranges[RANGES]).map_err(|_| Invalid)?;
        if crc32c(&bytes) != self.filter_crc {
            return Err(Invalid);
        }
        Filter::from_bytes(bytes).ok_or(Invalid)
    }
}

struct Expected {
    store_id: u128,
    segment: SegmentId,
    segment_len: u64,
    order: HintOrder,
}

/// Iterator over entries.
pub(crate) struct HintCursor {
    file: Arc<dyn DiskFile>,
    order: HintOrder,
    pub(crate) segment: SegmentId,
    /// Offset of the next byte to fetch.
    position: u64,
    end: u64,
    buf: Vec<u8>,
    /// Position in `buf` of the next byte to decode.
    buf_at: usize,
    /// End in `buf` of the block being decoded.
    block_end: usize,
}

impl HintCursor {
    /// Reads the next entry into `entry`; `false` at the end.
    pub(crate) fn next(&mut self, entry: &mut Entry) -> Result<bool, Invalid> {
        if self.buf_at == self.block_end && !self.next_block()? {
            return Ok(false);
        }
        let block = &self.buf[self.buf_at..self.block_end];
        let mut cursor = Cursor::new(block);
        decode(&mut cursor, self.order.hash_key, entry).ok_or(Invalid)?;
        self.buf_at = self.block_end - cursor.remaining();
        Ok(true)
    }

    fn next_block(&mut self) -> Result<bool, Invalid> {
        if self.buf_at == self.buf.len() && self.position == self.end {
            return Ok(false);
        }
        self.fetch(BLOCK_HEADER_LEN)?;
        let mut cursor = Cursor::new(&self.buf[self.buf_at..]);
        let len = cursor.u32().ok_or(Invalid)? as usize;
        let crc = cursor.u32().ok_or(Invalid)?;
        if len == 0 || len > BLOCK_LEN_MAX {
            return Err(Invalid);
        }
        self.fetch(BLOCK_HEADER_LEN + len)?;
        let start = self.buf_at + BLOCK_HEADER_LEN;
        if crc32c(&self.buf[start..start + len]) != crc {
            return Err(Invalid);
        }
        (self.buf_at, self.block_end) = (start, start + len);
        Ok(true)
    }

    /// Makes at least `len` bytes from `buf_at` on available in the buffer.
    fn fetch(&mut self, len: usize) -> Result<(), Invalid> {
        let have = self.buf.len() - self.buf_at;
        if have >= len {
            return Ok(());
        }
        self.buf.copy_within(self.buf_at.., 0);
        let want = (self.end - self.position).min(FETCH_LEN.max(len) as u64 - have as u64);
        self.buf.resize(have + want as usize, 0);
        (self.buf_at, self.block_end) = (0, 0);
        if self.buf.len() < len {
            return Err(Invalid);
        }
        read_exact_at(&*self.file, &mut self.buf[have..], self.position).map_err(|_| Invalid)?;
        self.position += want;
        Ok(())
    }
}
