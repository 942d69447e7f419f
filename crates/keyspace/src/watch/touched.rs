//! The watched keys that a thread has changed and whose watchers it has yet to tell.

use std::cell::RefCell;

use crate::db_index::DbIndex;
use crate::key::KeyHash;

/// A watched key that has changed.
#[derive(Debug)]
pub(super) struct TouchedKey {
    pub(super) shard: usize,
    pub(super) db: DbIndex,
    pub(super) hash: KeyHash,
    pub(super) key: Box<[u8]>,
}

/// Watched keys that have changed in the shards that are locked.
#[derive(Debug, Default)]
pub(crate) struct Touched(pub(super) RefCell<Vec<TouchedKey>>);

impl Touched {
    #[inline]
    pub(super) fn is_empty(&mut self) -> bool {
        self.0.get_mut().is_empty()
    }

    /// How many there are, for [`Touched::truncate`].
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Forgets those that were noted last, for what was done is taken back.
    pub(crate) fn truncate(&self, len: usize) {
        self.0.borrow_mut().truncate(len);
    }

    #[cold]
    pub(super) fn note(&self, shard: usize, db: DbIndex, hash: KeyHash, key: &[u8]) {
        let mut keys = self.0.borrow_mut();
        let is_same = |last: &TouchedKey| last.db == db && *last.key == *key;
        if !keys.last().is_some_and(is_same) {
            keys.push(TouchedKey { shard, db, hash, key: key.into() });
        }
    }
}
