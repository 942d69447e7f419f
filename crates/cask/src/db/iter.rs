//! Iteration over all keys and values.
//!
//! The hash index yields them in disk order, which is fastest ([`full_scan`](super::full_scan)); the ordered index
//! yields a full range.

use super::full_scan::FullScan;
use super::range::Range;
use super::store::{Index, Store};
use super::view::View;
use crate::entry::Entry;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use tierce_storage::{Error, Result};

/// Iterator over the whole store.
///
/// Callers that do not keep the items are faster with [`Db::for_each`](crate::Db::for_each).
pub struct Iter(Inner);

enum Inner {
    Hash(Box<FullScan>),
    Ordered(Box<Range>),
    Failed(Option<Error>),
}

impl Iter {
    pub(crate) fn new(store: Arc<Store>, view: Option<Arc<View>>) -> Self {
        Iter(match &store.index {
            Index::Hash(_) => Inner::Hash(Box::new(FullScan::new(store, view))),
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
            Inner::Hash(scan) => scan
                .advance(|met| Ok(ControlFlow::Break((met.record.key.to_vec(), met.entry()?))))
                .transpose(),
            Inner::Ordered(range) => range.next(),
            Inner::Failed(error) => error.take().map(Err),
        }
    }
}

/// Passes all keys and values to a visitor, in disk order with either index.
pub(crate) fn for_each(
    store: Arc<Store>,
    view: Option<Arc<View>>,
    mut visitor: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<()> {
    let mut scratch = Vec::new();
    let mut scan = FullScan::new(store, view);
    let visited = scan.advance(|met| Ok(visitor(met.record.key, met.value(&mut scratch)?)));
    visited.map(|_| ())
}
