//! Watched keys that a thread has changed, and whose watchers it must still tell.

use std::cell::RefCell;

use crate::data::key::KeyHash;
use crate::db_index::DbIndex;

/// A watched key that has changed.
#[derive(Debug)]
pub(crate) struct TouchedKey {
    pub(crate) shard: usize,
    pub(crate) db: DbIndex,
    pub(crate) hash: KeyHash,
    pub(crate) key: Box<[u8]>,
}

/// Watched keys that have changed in the shards that are locked.
#[derive(Debug, Default)]
pub(crate) struct Touched(pub(crate) RefCell<Vec<TouchedKey>>);

impl Touched {
    #[inline]
    pub(crate) fn is_empty(&mut self) -> bool {
        self.0.get_mut().is_empty()
    }

    /// Returns their number, for [`Touched::truncate`].
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Forgets the latest ones, because their changes were rolled back.
    pub(crate) fn truncate(&self, len: usize) {
        self.0.borrow_mut().truncate(len);
    }

    #[cold]
    pub(crate) fn note(&self, shard: usize, db: DbIndex, hash: KeyHash, key: &[u8]) {
        let mut keys = self.0.borrow_mut();
        let is_same = |last: &TouchedKey| last.db == db && *last.key == *key;
        if !keys.last().is_some_and(is_same) {
            keys.push(TouchedKey { shard, db, hash, key: key.into() });
        }
    }
}
