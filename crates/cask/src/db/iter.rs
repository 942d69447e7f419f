//! All keys and values, in the order that is quickest to read.
//!
//! With the hash index, the locations of many partitions are copied at once and their records read
//! in the order they lie on disk, neighbours in one read; the segments they lie in are held until
//! the group is done. A key that exists all the time is met exactly once. With the ordered index
//! this is a full range.

use super::range::Range;
use super::read::{Entry, Value};
use super::snapshot::View;
use super::store::{Index, Segments, Store};
use crate::compression::decompress;
use crate::error::{Error, Result};
use crate::index::hash::HashIndex;
use crate::location::{Location, SegmentId};
use crate::log::write::Attributes;
use crate::segment::file::Segment;
use crate::segment::record::Record;
use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;

/// Locations copied at a time, at 8 bytes each: enough that what is read between two wanted records
/// is little in a store of some million keys.
const GROUP_LEN: usize = 1 << 20;
/// Bytes read at a time, beyond a single record.
const CHUNK_LEN: u64 = 256 << 10;
/// Unwanted bytes that are read to save a request.
const GAP_LEN_MAX: u64 = 16 << 10;

/// Iterator over the whole store.
pub struct Iter(Inner);

enum Inner {
    Hash(Partitions),
    Ordered(Box<Range>),
    Failed(Option<Error>),
}

struct Partitions {
    store: Arc<Store>,
    view: Option<Arc<View>>,
    next: usize,
    /// What is still to come of the partitions copied last, the next one at the end.
    locations: Vec<Location>,
    segments: Segments,
    /// Numbers of the records met in this group, with a view: what compaction moves while
    /// index and history are copied may be in both, at different places.
    seen: HashSet<u64>,
    chunk: Chunk,
}

/// A part of a segment that was read at once.
#[derive(Default)]
struct Chunk {
    segment: Option<SegmentId>,
    offset: u64,
    bytes: Arc<Vec<u8>>,
    /// Where in `bytes` the part begins and ends.
    start: usize,
    end: usize,
}

impl Chunk {
    /// The record at a location, if it is in here and good.
    fn get(&self, segment: &Segment, location: Location) -> Option<Record<'_>> {
        let skip = location.offset().checked_sub(self.offset)? as usize;
        if self.segment != Some(segment.id) {
            return None;
        }
        let bytes = self.bytes.get(self.start..self.end)?.get(skip..)?;
        Record::decode(bytes, segment.salt, location.offset()).ok()
    }

    /// The entry of a record in here; its value shares the buffer.
    fn entry(&self, record: &Record<'_>, location: Location) -> Option<Entry> {
        let header = &record.header;
        let value = match header.compression {
            0 => {
                let skip = (location.offset() - self.offset) as usize;
                let start = self.start + skip + header.len() + header.key_len;
                Value::part(self.bytes.clone(), start..start + header.value_len)
            }
            id => Value::whole(decompress(id, record.value).ok()?),
        };
        let attributes = Attributes { expiry_ms: header.expiry, version: header.version };
        Some(Entry { value, attributes, seq: header.seq })
    }
}

impl Iter {
    pub(crate) fn new(store: Arc<Store>, view: Option<Arc<View>>) -> Self {
        Iter(match &store.index {
            Index::Hash(_) => Inner::Hash(Partitions {
                store,
                view,
                next: 0,
                locations: Vec::new(),
                segments: Segments::default(),
                seen: HashSet::new(),
                chunk: Chunk::default(),
            }),
            Index::Ordered(_) => match Range::new(store, view, b"", Bound::Unbounded) {
                Ok(range) => Inner::Ordered(Box::new(range)),
                Err(error) => Inner::Failed(Some(error)),
            },
        })
    }
}

impl Iterator for Iter {
    type Item = Result<(Vec<u8>, Entry)>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Inner::Hash(partitions) => partitions.step().transpose(),
            Inner::Ordered(range) => range.next(),
            Inner::Failed(error) => error.take().map(Err),
        }
    }
}

impl Partitions {
    fn step(&mut self) -> Result<Option<(Vec<u8>, Entry)>> {
        loop {
            while let Some(location) = self.locations.pop() {
                if let Some(found) = self.load(location)? {
                    return Ok(Some(found));
                }
            }
            if let Err(closed) = self.store.check_open() {
                // Once is enough: a loop that passes over errors must come to an end.
                return if std::mem::replace(&mut self.next, HashIndex::PARTITIONS)
                    < HashIndex::PARTITIONS
                {
                    Err(closed)
                } else {
                    Ok(None)
                };
            }
            if self.next == HashIndex::PARTITIONS {
                return Ok(None);
            }
            self.copy_group();
        }
    }

    /// Copies partitions until there are enough locations, and puts these in the disk's order.
    fn copy_group(&mut self) {
        self.locations.clear();
        self.segments.clear();
        self.seen.clear();
        while self.next < HashIndex::PARTITIONS && self.locations.len() < GROUP_LEN {
            while !self.copy_partition() {}
            self.next += 1;
        }
        // Taken from the end; a write between the two copies of a partition may have put one in
        // both.
        self.locations.sort_unstable_by(|a, b| b.cmp(a));
        self.locations.dedup();
    }

    /// Copies a partition and takes hold of its segments; `false` when one of them has just been
    /// compacted away, which has changed the partition.
    fn copy_partition(&mut self) -> bool {
        let Index::Hash(index) = &self.store.index else { unreachable!("chosen when made") };
        let before = self.locations.len();
        index.partition_locations(self.next, &mut self.locations);
        if let Some(view) = &self.view {
            let (lower, upper) = hash_bounds(self.next);
            let upper =
                upper.as_ref().map_or(Bound::Unbounded, |upper| Bound::Excluded(&upper[..]));
            let past = self.store.history.all_after(Bound::Included(&lower), upper, view.seq);
            self.locations.extend(past);
        }
        let segments = self.store.segments.read();
        for location in &self.locations[before..] {
            let id = location.segment();
            if self.segments.contains_key(&id) {
                continue;
            }
            let Some(segment) = segments.get(&id) else {
                self.locations.truncate(before);
                return false;
            };
            self.segments.insert(id, segment.clone());
        }
        true
    }

    fn load(&mut self, location: Location) -> Result<Option<(Vec<u8>, Entry)>> {
        let segment = self.segments[&location.segment()].clone();
        if self.chunk.get(&segment, location).is_none() {
            self.read_chunk(&segment, location);
        }
        let loaded = self
            .chunk
            .get(&segment, location)
            .and_then(|record| Some((record.key.to_vec(), self.chunk.entry(&record, location)?)));
        let (key, entry) = match loaded {
            Some(loaded) => loaded,
            // Read alone, to say what is wrong with it if it is this record.
            None => {
                let (fetched, segment) = Store::fetch_from(&segment, location)?;
                (fetched.key().to_vec(), fetched.into_entry(&segment, location)?)
            }
        };
        let is_visible = self
            .view
            .as_ref()
            .is_none_or(|view| entry.seq <= view.seq && self.seen.insert(entry.seq));
        Ok(is_visible.then_some((key, entry)))
    }

    /// Reads a record and those wanted that lie close behind it. What cannot be read is tried
    /// again record by record.
    fn read_chunk(&mut self, segment: &Arc<Segment>, location: Location) {
        let start = location.offset();
        let mut end = start + location.len_bound();
        for next in self.locations.iter().rev() {
            let next_end = next.offset() + next.len_bound();
            if next.segment() != segment.id
                || next.offset() > end + GAP_LEN_MAX
                || next_end > start + CHUNK_LEN
            {
                break;
            }
            end = end.max(next_end);
        }
        self.chunk = Chunk::default();
        if let Ok(buf) = segment.read(start, (end - start) as usize) {
            self.chunk = Chunk {
                segment: Some(segment.id),
                offset: start,
                bytes: Arc::new(buf.bytes),
                start: buf.start,
                end: buf.end,
            };
        }
    }
}

/// The hashes of a partition, as the history writes them.
fn hash_bounds(partition: usize) -> ([u8; 8], Option<[u8; 8]>) {
    let width = (u64::MAX / HashIndex::PARTITIONS as u64) + 1;
    let first = partition as u64 * width;
    (first.to_be_bytes(), first.checked_add(width).map(u64::to_be_bytes))
}
