//! The state that a snapshot and its iterators share, and reads in it.

use super::read::Fetched;
use super::store::{Index, Store};
use crate::entry::Entry;
use crate::index::hash::HashIndex;
use std::sync::Arc;
use tierce_storage::location::Location;
use tierce_storage::segment::file::Segment;
use tierce_storage::{Error, Result};

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

/// Visibility of a record to a view.
enum Sight {
    Visible(Fetched, Arc<Segment>),
    /// Of another key, or written later.
    Invisible,
    /// Moved by compaction.
    Gone,
}

impl View {
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.store.files.check_open()?;
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
