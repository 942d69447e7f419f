//! All keys and values.
//!
//! With the hash index they come in the order they lie on the disk, which is quickest to read
//! ([`sweep`](super::sweep)); with the ordered index this is a full range.

use super::range::Range;
use super::snapshot::View;
use super::store::{Index, Store};
use super::sweep::Sweep;
use crate::entry::Entry;
use crate::error::{Error, Result};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// Iterator over the whole store.
///
/// Who does not need the items afterwards is quicker with [`Db::for_each`](crate::Db::for_each).
pub struct Iter(Inner);

enum Inner {
    Hash(Box<Sweep>),
    Ordered(Box<Range>),
    Failed(Option<Error>),
}

impl Iter {
    pub(crate) fn new(store: Arc<Store>, view: Option<Arc<View>>) -> Self {
        Iter(match &store.index {
            Index::Hash(_) => Inner::Hash(Box::new(Sweep::new(store, view))),
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
            Inner::Hash(sweep) => sweep
                .advance(|met| Ok(ControlFlow::Break((met.record.key.to_vec(), met.entry()?))))
                .transpose(),
            Inner::Ordered(range) => range.next(),
            Inner::Failed(error) => error.take().map(Err),
        }
    }
}

/// Hands all keys and values to a visitor, in the disk's order with either index.
pub(crate) fn for_each(
    store: Arc<Store>,
    view: Option<Arc<View>>,
    mut visitor: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<()> {
    let mut scratch = Vec::new();
    let mut sweep = Sweep::new(store, view);
    let visited = sweep.advance(|met| Ok(visitor(met.record.key, met.value(&mut scratch)?)));
    visited.map(|_| ())
}
