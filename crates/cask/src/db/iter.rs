//! All keys and values, in the order that is quickest to read.
//!
//! With the hash index, a partition's locations are copied at once and its records read in the
//! order they lie on disk; the segments they lie in are held until the partition is done. A key
//! that exists all the time is met exactly once. With the ordered index this is a full range.

use super::range::Range;
use super::read::Entry;
use super::snapshot::View;
use super::store::{Index, Store};
use crate::error::{Error, Result};
use crate::index::hash::HashIndex;
use crate::location::{Location, SegmentId};
use crate::segment::file::Segment;
use std::collections::{HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

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
    locations: Vec<Location>,
    segments: HashMap<SegmentId, Arc<Segment>>,
    /// Numbers of the records met in this partition, with a view: what compaction moves while
    /// index and history are copied may be in both, at different places.
    seen: HashSet<u64>,
}

impl Iter {
    pub(crate) fn new(store: Arc<Store>, view: Option<Arc<View>>) -> Self {
        Iter(match &store.index {
            Index::Hash(_) => Inner::Hash(Partitions {
                store,
                view,
                next: 0,
                locations: Vec::new(),
                segments: HashMap::new(),
                seen: HashSet::new(),
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
            while !self.copy_partition() {}
            self.next += 1;
        }
    }

    /// Copies a partition and takes hold of its segments; `false` when one of them has just been
    /// compacted away, which has changed the partition.
    fn copy_partition(&mut self) -> bool {
        let Index::Hash(index) = &self.store.index else { unreachable!("chosen when made") };
        self.locations.clear();
        self.segments.clear();
        self.seen.clear();
        index.partition_locations(self.next, &mut self.locations);
        if let Some(view) = &self.view {
            let (lower, upper) = hash_bounds(self.next);
            let upper =
                upper.as_ref().map_or(Bound::Unbounded, |upper| Bound::Excluded(&upper[..]));
            let past = self.store.history.all_after(Bound::Included(&lower), upper, view.seq);
            self.locations.extend(past);
        }
        // Taken from the end; a write between the two copies above may have put one in both.
        self.locations.sort_unstable_by(|a, b| b.cmp(a));
        self.locations.dedup();
        let segments = self.store.segments.read();
        for location in &self.locations {
            let id = location.segment();
            if self.segments.contains_key(&id) {
                continue;
            }
            let Some(segment) = segments.get(&id) else { return false };
            self.segments.insert(id, segment.clone());
        }
        true
    }

    fn load(&mut self, location: Location) -> Result<Option<(Vec<u8>, Entry)>> {
        let segment = &self.segments[&location.segment()];
        let (fetched, segment) = Store::fetch_from(segment, location)?;
        if let Some(view) = &self.view {
            let seq = fetched.header.seq;
            if seq > view.seq || !self.seen.insert(seq) {
                return Ok(None);
            }
        }
        let key = fetched.key().to_vec();
        Ok(Some((key, fetched.into_entry(&segment, location)?)))
    }
}

/// The hashes of a partition, as the history writes them.
fn hash_bounds(partition: usize) -> ([u8; 8], Option<[u8; 8]>) {
    let width = (u64::MAX / HashIndex::PARTITIONS as u64) + 1;
    let first = partition as u64 * width;
    (first.to_be_bytes(), first.checked_add(width).map(u64::to_be_bytes))
}
