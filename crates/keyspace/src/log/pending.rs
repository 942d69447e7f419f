//! Operations that a thread has done under its locks, before they are appended to the log as one
//! record or batch.

use std::cell::{RefCell, RefMut};
use std::ops::{Deref, DerefMut};

use super::batch::{Batch, Outlet};
use super::op::{Out, begin_edits, encode_change, encode_flush, encode_swap, end_edits};
use crate::change::Change;
use crate::entry::Entry;
use crate::keyspace::DbIndex;

/// The operations of one record or batch.
#[derive(Debug)]
pub(crate) struct Pending<'k> {
    outlet: &'k Outlet,
    batch: RefCell<Batch>,
}

impl<'k> Pending<'k> {
    #[inline]
    pub(crate) fn new(outlet: &'k Outlet) -> Self {
        Self { outlet, batch: RefCell::default() }
    }

    #[inline]
    pub(crate) fn push_change(&self, db: DbIndex, entry: &Entry, change: Change) {
        let mut batch = self.batch.borrow_mut();
        let mut out = batch.to(self.outlet);
        encode_change(&mut out, db, entry, change);
        out.cut();
    }

    /// Begins an operation on the collection of a key, whose edits go into what is returned.
    #[inline]
    pub(crate) fn record_edits(&self, db: DbIndex, key: &[u8]) -> Recording<'_> {
        let mut batch = self.batch.borrow_mut();
        let ops = batch.ops();
        let op = ops.len();
        let edits = begin_edits(ops, db, key, 0, None);
        Recording { outlet: self.outlet, batch, op, edits }
    }

    pub(crate) fn push_flush(&self, db: DbIndex) {
        encode_flush(self.batch.borrow_mut().ops(), db);
    }

    pub(crate) fn push_swap(&self, a: DbIndex, b: DbIndex) {
        encode_swap(self.batch.borrow_mut().ops(), a, b);
    }

    /// Appends what there is, and is empty again. Whether there was anything.
    #[inline]
    pub(crate) fn append(&mut self) -> bool {
        self.batch.get_mut().finish(self.outlet) > 0
    }
}

/// An operation on a collection while its edits are recorded. Forgotten unless it is kept.
pub(crate) struct Recording<'a> {
    outlet: &'a Outlet,
    batch: RefMut<'a, Batch>,
    /// Where the operation begins.
    op: usize,
    /// Where its edits begin.
    edits: usize,
}

impl Recording<'_> {
    /// Makes the edits a part of the record.
    #[inline]
    pub(crate) fn keep(mut self) {
        let batch = &mut self.batch;
        end_edits(batch.ops(), self.edits);
        batch.to(self.outlet).cut();
        self.op = batch.ops().len();
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        let op = self.op;
        self.batch.ops().truncate(op);
    }
}

impl Deref for Recording<'_> {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        self.batch.recorded()
    }
}

impl DerefMut for Recording<'_> {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        self.batch.ops()
    }
}
