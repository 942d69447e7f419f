//! The store as of one moment, while writes continue.

use super::iter::{Iter, for_each};
use super::range::Range;
use super::store::Store;
use super::view::View;
use crate::entry::{Entry, Value};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use tierce_storage::Result;

/// A view of the store that does not change. Clones share it.
///
/// While it lives, everything it can see is kept: superseded locations in memory, compacted
/// segments on disk. So drop it as soon as possible.
#[derive(Clone)]
pub struct Snapshot(Arc<View>);

impl Snapshot {
    /// Waits for writes in progress, then takes the view.
    pub(crate) fn new(store: &Arc<Store>) -> Result<Self> {
        store.files.check_open()?;
        let _heads: Vec<_> = store.files.appenders.iter().map(|it| it.lock(&store.files)).collect();
        let seq = store.files.next_seq.load(std::sync::atomic::Ordering::Acquire) - 1;
        store.history.open_snapshot(seq);
        Ok(Snapshot(Arc::new(View { store: store.clone(), seq })))
    }

    /// Returns the number of the last write this snapshot sees.
    pub fn seq(&self) -> u64 {
        self.0.seq
    }

    /// Returns the value of a key at the snapshot's moment.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        Ok(self.get_entry(key)?.map(|entry| entry.value))
    }

    /// As [`Self::get`], with attributes.
    pub fn get_entry(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.0.get(key)
    }

    /// Returns all keys and values, in no order.
    pub fn iter(&self) -> Iter {
        Iter::new(self.0.store.clone(), Some(self.0.clone()))
    }

    /// As [`Db::for_each`](crate::Db::for_each), of the snapshot's moment.
    ///
    /// # Errors
    /// The first one; the scan ends there.
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
