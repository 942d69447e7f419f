//! The store as of one moment, while writes continue.

use super::iter::{Iter, for_each};
use super::range::Range;
use super::read::Fetched;
use super::store::{Index, Store};
use crate::entry::{Entry, Value};
use crate::error::{Error, Result};
use crate::index::hash::HashIndex;
use crate::location::Location;
use crate::segment::file::Segment;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// A view of the store that does not change. Clones share it.
///
/// While it lives, what it can see is kept: superseded locations in memory, compacted segments on
/// disk. So hold it no longer than needed.
#[derive(Clone)]
pub struct Snapshot(Arc<View>);

/// The view itself, released when the last snapshot or iterator is dropped.
pub(crate) struct View {
    pub(crate) store: Arc<Store>,
    pub(crate) seq: u64,
}

impl Drop for View {
    fn drop(&mut self) {
        self.store.history.close_snapshot(self.seq);
        self.store.release_retired();
    }
}

impl Snapshot {
    /// Waits for writes in progress, then takes the view.
    pub(crate) fn new(store: &Arc<Store>) -> Result<Self> {
        store.check_open()?;
        let _heads: Vec<_> = store.lanes.iter().map(|lane| lane.lock()).collect();
        let seq = store.next_seq.load(std::sync::atomic::Ordering::Acquire) - 1;
        store.history.open_snapshot(seq);
        Ok(Snapshot(Arc::new(View { store: store.clone(), seq })))
    }

    /// Number of the last write this snapshot sees.
    pub fn seq(&self) -> u64 {
        self.0.seq
    }

    /// The value of a key at the snapshot's moment.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        Ok(self.get_entry(key)?.map(|entry| entry.value))
    }

    /// As [`Self::get`], with attributes.
    pub fn get_entry(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.0.get(key)
    }

    /// All keys and values, in no order.
    pub fn iter(&self) -> Iter {
        Iter::new(self.0.store.clone(), Some(self.0.clone()))
    }

    /// As [`Db::for_each`](crate::Db::for_each), of the snapshot's moment.
    ///
    /// # Errors
    /// The first one; what comes after it is not visited.
    pub fn for_each(&self, visitor: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<()> {
        for_each(self.0.store.clone(), Some(self.0.clone()), visitor)
    }

    /// As [`Db::range`](crate::Db::range).
    pub fn range(&self, lower: &[u8], upper: &[u8]) -> Result<Range> {
        let upper = if upper.is_empty() { Bound::Unbounded } else { Bound::Excluded(upper) };
        Range::new(self.0.store.clone(), Some(self.0.clone()), lower, upper)
    }

    /// As [`Db::prefix`](crate::Db::prefix).
    pub fn prefix(&self, prefix: &[u8]) -> Result<Range> {
        Range::with_prefix(self.0.store.clone(), Some(self.0.clone()), prefix)
    }
}

/// What a record at a location is to a view.
enum Sight {
    Visible(Fetched, Arc<Segment>),
    /// Another key's, or written later.
    Invisible,
    /// Moved by compaction.
    Gone,
}

impl View {
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.store.check_open()?;
        match &self.store.index {
            Index::Hash(index) => self.get_by_hash(index, key),
            Index::Ordered(index) => loop {
                // The index first, the history second: see `history`.
                let current = index.get(key);
                let versions = self.store.history.versions_after(key, self.seq);
                let past = versions.first().map(|version| version.location);
                let Some(location) = past.or(current) else { return Ok(None) };
                match self.look(key, location)? {
                    Sight::Visible(fetched, segment) => {
                        return fetched.into_entry(&segment, location).map(Some);
                    }
                    Sight::Invisible => return Ok(None),
                    Sight::Gone => {}
                }
            },
        }
    }

    fn get_by_hash(&self, index: &HashIndex, key: &[u8]) -> Result<Option<Entry>> {
        let hash = self.store.order.hash_key.hash(key);
        let mut candidates = Vec::new();
        'again: loop {
            candidates.clear();
            index.candidates(hash, &mut candidates);
            let versions = self.store.history.versions_after(&hash.to_be_bytes(), self.seq);
            candidates.extend(versions.iter().map(|version| version.location));
            for &location in &candidates {
                match self.look(key, location)? {
                    Sight::Visible(fetched, segment) => {
                        return fetched.into_entry(&segment, location).map(Some);
                    }
                    Sight::Invisible => {}
                    Sight::Gone => continue 'again,
                }
            }
            return Ok(None);
        }
    }

    fn look(&self, key: &[u8], location: Location) -> Result<Sight> {
        Ok(match self.store.fetch(location)? {
            None => Sight::Gone,
            Some((fetched, segment)) if fetched.key() == key && fetched.header.seq <= self.seq => {
                Sight::Visible(fetched, segment)
            }
            Some((fetched, segment)) => {
                if matches!(self.store.index, Index::Ordered(_)) && fetched.key() != key {
                    let offset = location.offset();
                    return Err(Error::corrupt(&segment.path, offset, "record of another key"));
                }
                Sight::Invisible
            }
        })
    }
}
