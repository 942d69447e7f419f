//! Reads all records of a store in disk order.
//!
//! The scan copies the locations of a group of keys out of the index, sorts them, and reads each segment from front to
//! back: neighbours in one read, each record verified once. It pins the segments until the group is done, so
//! compaction cannot remove the copied locations.
//!
//! * Without a view, a key that exists throughout is visited exactly once, with a value it had since its group was
//!   copied.
//! * With a view, every key is visited as of the view's moment.
//! * An unreadable record is reported in its turn, with file and offset; the scan continues.

use super::scan::copy::copy_leaf;
use super::scan::cut::Cut;
use super::store::{Index, Store};
use super::view::View;
use crate::entry::{Attributes, Entry, Value};
use crate::index::hash::HashIndex;
use crate::index::ordered::{Run, Side};
use std::collections::HashSet;
use std::ops::{Bound, ControlFlow, Range};
use std::sync::Arc;
use tierce_storage::compression::decompress_into;
use tierce_storage::disk::span::ReadBuf;
use tierce_storage::location::Location;
use tierce_storage::segment::file::{Segment, Segments};
use tierce_storage::segment::record::{Damage, Record};
use tierce_storage::{Error, Result};

/// Number of locations copied at a time, at 8 bytes each. A store with more keys is read in several groups. Each group
/// reads over records of the others that lie between its own.
const GROUP_LEN: usize = 1 << 22;
/// Bytes read at a time, unless a record is longer: fits in a core's own cache.
const CHUNK_LEN: u64 = 256 << 10;
/// Maximum gap of unwanted bytes that is read to save a request.
const GAP_LEN_MAX: u64 = 16 << 10;

/// State of a scan over all records.
pub(crate) struct FullScan {
    store: Arc<Store>,
    view: Option<Arc<View>>,
    uncopied: Uncopied,
    /// Remaining locations of the keys copied last; the next one is at the end.
    locations: Vec<Location>,
    segments: Segments,
    /// Sequence numbers of the records visited in this group, if the history had entries: a record that compaction
    /// moves while index and history are copied may be in both, at different locations.
    seen: Option<HashSet<u64>>,
    chunk: Option<Chunk>,
}

/// Keys whose locations have not been copied yet.
enum Uncopied {
    /// Partitions from this one on.
    Hash(usize),
    /// Keys from the cut on.
    Ordered(Cut),
    None,
}

/// Part of a segment that was read at once.
struct Chunk {
    segment: Arc<Segment>,
    offset: u64,
    /// End of the last record that the chunk was read for.
    end: u64,
    bytes: Arc<Vec<u8>>,
    /// Range of the part in `bytes`.
    valid: Range<usize>,
}

/// A record, and the buffer that contains it.
pub(crate) struct Met<'a> {
    pub(crate) record: Record<'a>,
    segment: &'a Segment,
    offset: u64,
    bytes: &'a Arc<Vec<u8>>,
    /// Start of the record in the buffer.
    start: usize,
}

impl<'a> Met<'a> {
    /// Returns the value, decompressed into `scratch` if necessary.
    pub(crate) fn value<'b>(&self, scratch: &'b mut Vec<u8>) -> Result<&'b [u8]>
    where
        'a: 'b,
    {
        match self.record.header.compression {
            0 => Ok(self.record.value),
            _ => {
                scratch.clear();
                self.decompress_into(scratch)?;
                Ok(scratch)
            }
        }
    }

    /// Returns the entry. An uncompressed value shares the buffer.
    pub(crate) fn entry(&self) -> Result<Entry> {
        let header = &self.record.header;
        let value = match header.compression {
            0 => {
                let start = self.start + header.len() + header.key_len;
                Value::part(self.bytes.clone(), start..start + header.value_len)
            }
            _ => {
                let mut value = Vec::new();
                self.decompress_into(&mut value)?;
                Value::whole(value)
            }
        };
        let attributes = Attributes { expiry_ms: header.expiry, version: header.version };
        Ok(Entry { value, attributes, seq: header.seq })
    }

    fn decompress_into(&self, out: &mut Vec<u8>) -> Result<()> {
        let id = self.record.header.compression;
        decompress_into(id, self.record.value, out)
            .map_err(|error| error.at(id, &self.segment.path, self.offset))
    }
}

impl Chunk {
    fn has(&self, location: Location) -> bool {
        let offset = location.offset();
        self.segment.id == location.segment()
            && self.offset <= offset
            && offset + location.len_bound() <= self.end
    }

    fn get(&self, location: Location) -> Result<Met<'_>, Damage> {
        let offset = location.offset();
        let start = self.valid.start + (offset - self.offset) as usize;
        let bytes = self.bytes.get(start..self.valid.end).unwrap_or_default();
        let record = Record::decode(bytes, self.segment.salt, offset)?;
        Ok(Met { record, segment: &self.segment, offset, bytes: &self.bytes, start })
    }
}

impl FullScan {
    pub(crate) fn new(store: Arc<Store>, view: Option<Arc<View>>) -> Self {
        let uncopied = match &store.index {
            Index::Hash(_) => Uncopied::Hash(0),
            Index::Ordered(_) => Uncopied::Ordered(Cut::before(b"")),
        };
        FullScan {
            store,
            view,
            uncopied,
            locations: Vec::new(),
            segments: Segments::default(),
            seen: None,
            chunk: None,
        }
    }

    /// Passes records to `take`, until it returns a result or there are no more. After an error, the next call
    /// continues after the record that failed.
    pub(crate) fn advance<T>(
        &mut self,
        mut take: impl FnMut(Met<'_>) -> Result<ControlFlow<T>>,
    ) -> Result<Option<T>> {
        loop {
            let Some(location) = self.locations.pop() else {
                if matches!(self.uncopied, Uncopied::None) {
                    return Ok(None);
                }
                self.check_open()?;
                self.copy_group();
                continue;
            };
            if !self.chunk.as_ref().is_some_and(|chunk| chunk.has(location)) {
                self.check_open()?;
                self.read_chunk(location);
            }
            let met = match self.chunk.as_ref().map(|chunk| chunk.get(location)) {
                Some(Ok(met)) => met,
                // Read alone: if this record is the bad one, the error occurs again.
                _ => {
                    let end = location.offset() + location.len_bound();
                    let chunk = self.read(location, end)?;
                    let chunk = self.chunk.insert(chunk);
                    let path = &chunk.segment.path;
                    chunk
                        .get(location)
                        .map_err(|damage| Error::corrupt(path, location.offset(), damage.0))?
                }
            };
            let seq = met.record.header.seq;
            let mut is_new = || self.seen.as_mut().is_none_or(|seen| seen.insert(seq));
            if self.view.as_ref().is_none_or(|view| seq <= view.seq && is_new())
                && let ControlFlow::Break(taken) = take(met)?
            {
                return Ok(Some(taken));
            }
        }
    }

    fn check_open(&mut self) -> Result<()> {
        self.store.files.check_open().inspect_err(|_| {
            // Reported once: a loop that skips errors must come to an end.
            self.locations.clear();
            self.uncopied = Uncopied::None;
        })
    }

    /// Copies locations until there are enough, and sorts them in disk order.
    fn copy_group(&mut self) {
        self.segments.clear();
        self.seen = None;
        while self.locations.len() < GROUP_LEN {
            match std::mem::replace(&mut self.uncopied, Uncopied::None) {
                Uncopied::Hash(partition) if partition < HashIndex::PARTITIONS => {
                    self.copy_held(|scan| scan.copy_partition(partition));
                    self.uncopied = Uncopied::Hash(partition + 1);
                }
                Uncopied::Ordered(lower) => {
                    let Some(next) = self.copy_held(|scan| scan.copy_leaves(&lower)) else {
                        break;
                    };
                    self.uncopied = Uncopied::Ordered(next);
                }
                Uncopied::Hash(_) | Uncopied::None => break,
            }
        }
        // Taken from the end. A write between copying the index and copying the history may have put a location in
        // both.
        self.locations.sort_unstable_by(|a, b| b.cmp(a));
        self.locations.dedup();
    }

    /// Copies locations and pins their segments. Repeats the copy if a segment has just been compacted away, which has
    /// changed the index.
    fn copy_held<T>(&mut self, copy: impl Fn(&mut Self) -> T) -> T {
        loop {
            let before = self.locations.len();
            let copied = copy(self);
            if self.hold_from(before) {
                return copied;
            }
            self.locations.truncate(before);
        }
    }

    fn hold_from(&mut self, first: usize) -> bool {
        let segments = self.store.files.segments.read();
        self.locations[first..].iter().map(|location| location.segment()).all(|id| {
            self.segments.contains_key(&id)
                || segments
                    .get(&id)
                    .map(|segment| self.segments.insert(id, segment.clone()))
                    .is_some()
        })
    }

    fn copy_partition(&mut self, partition: usize) {
        let Index::Hash(index) = &self.store.index else { unreachable!("chosen when made") };
        index.partition_locations(partition, &mut self.locations);
        let Some(view) = &self.view else { return };
        let (lower, upper) = hash_bounds(partition);
        let upper = upper.as_ref().map_or(Bound::Unbounded, |upper| Bound::Excluded(&upper[..]));
        let past = self.store.history.all_after(Bound::Included(&lower), upper, view.seq);
        if !past.is_empty() {
            self.seen.get_or_insert_default();
        }
        self.locations.extend(past);
    }

    /// Copies the locations of the next keys. Returns the start of the following keys, if there may be any.
    fn copy_leaves(&mut self, lower: &Cut) -> Option<Cut> {
        let Some(view) = &self.view else {
            let Index::Ordered(index) = &self.store.index else { unreachable!("chosen when made") };
            let (Bound::Included(key) | Bound::Excluded(key)) = lower.as_lower() else {
                unreachable!("cuts at keys only")
            };
            return index.locations(key, &mut self.locations).map(|next| Cut::before(&next));
        };
        let mut run = Run::default();
        copy_leaf(&self.store, Some(view), (lower, &Cut::End), Side::Lower, &mut run);
        self.locations.extend_from_slice(run.locations());
        let last = run.len().checked_sub(1)?;
        Some(Cut::after(run.get(last).0))
    }

    /// Reads a record and the wanted records close after it. If that fails, no chunk is kept, and the records are read
    /// one by one.
    fn read_chunk(&mut self, location: Location) {
        let start = location.offset();
        let mut end = start + location.len_bound();
        for next in self.locations.iter().rev() {
            let next_end = next.offset() + next.len_bound();
            if next.segment() != location.segment()
                || next.offset() > end + GAP_LEN_MAX
                || next_end > start + CHUNK_LEN
            {
                break;
            }
            end = end.max(next_end);
        }
        // Neither the buffer nor the error is of use.
        self.chunk = self.read(location, end).ok();
    }

    /// Reads from a record up to an offset, into the previous buffer if it is not shared.
    fn read(&mut self, location: Location, end: u64) -> Result<Chunk> {
        let segment = self.segments[&location.segment()].clone();
        let bytes = self.chunk.take().and_then(|chunk| Arc::into_inner(chunk.bytes));
        let mut buf = ReadBuf { bytes: bytes.unwrap_or_default(), start: 0, end: 0 };
        let offset = location.offset();
        segment.read_into(offset, (end - offset) as usize, &mut buf)?;
        let valid = buf.start..buf.end;
        Ok(Chunk { segment, offset, end, bytes: Arc::new(buf.bytes), valid })
    }
}

/// Returns the hashes of a partition, in the history's encoding.
fn hash_bounds(partition: usize) -> ([u8; 8], Option<[u8; 8]>) {
    let width = (u64::MAX / HashIndex::PARTITIONS as u64) + 1;
    let first = partition as u64 * width;
    (first.to_be_bytes(), first.checked_add(width).map(u64::to_be_bytes))
}
