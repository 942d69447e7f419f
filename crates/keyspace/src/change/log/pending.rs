//! Operations that a thread has done under its locks, before they are appended to the log as one
//! record or batch.

use std::cell::{RefCell, RefMut};
use std::ops::{Deref, DerefMut};

use super::batch::{Outlet, RecordBatch};
use crate::change::log::encode::{
    Out, begin_edits, encode_change, encode_code, encode_entry, encode_flush, encode_place,
    encode_swap, end_edits,
};
use crate::change::log::sink::RecordKind;
use crate::change::stream_place::StreamPlace;
use crate::change::{Change, Removal};
use crate::data::code::CodeKind;
use crate::data::entry::Entry;
use crate::db_index::DbIndex;

/// The operations of one record or batch.
#[derive(Debug)]
pub(crate) struct Pending<'k> {
    outlet: &'k Outlet,
    recorded: RefCell<Recorded>,
}

/// How much there was at a moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PendingMark {
    ops: usize,
    expired: usize,
}

#[derive(Debug, Default)]
struct Recorded {
    batch: RecordBatch,
    /// The first this many bytes say only that keys expired.
    expired: usize,
}

impl<'k> Pending<'k> {
    #[inline]
    pub(crate) fn new(outlet: &'k Outlet) -> Self {
        Self { outlet, recorded: RefCell::default() }
    }

    #[inline]
    pub(crate) fn push_change(&self, db: DbIndex, entry: &Entry, change: Change) {
        let batch = &mut self.recorded.borrow_mut().batch;
        let mut out = batch.to(self.outlet);
        encode_change(&mut out, db, entry, change);
        out.cut();
    }

    /// The same for a key that has expired, which no command has removed.
    #[cold]
    pub(crate) fn push_expired(&self, db: DbIndex, entry: &Entry) {
        let mut recorded = self.recorded.borrow_mut();
        let Recorded { batch, expired } = &mut *recorded;
        let is_all = batch.ops().len() == *expired;
        let mut out = batch.to(self.outlet);
        encode_change(&mut out, db, entry, Change::Removed(Removal::Expired));
        if is_all {
            *expired = out.ops().len();
        }
        out.cut();
    }

    /// Says where the value of a key is on disk, apart from what has changed.
    pub(crate) fn push_move(&self, db: DbIndex, entry: &Entry) {
        let mut recorded = self.recorded.borrow_mut();
        let Recorded { batch, expired } = &mut *recorded;
        *expired = 0;
        batch.append_apart(self.outlet, RecordKind::Move, |out| encode_entry(out, db, entry));
    }

    /// Begins an operation on the collection of a key, whose edits go into what is returned.
    #[inline]
    pub(crate) fn record_edits(&self, db: DbIndex, key: &[u8]) -> Recording<'_> {
        let mut recorded = self.recorded.borrow_mut();
        let ops = recorded.batch.ops();
        let op = ops.len();
        let edits = begin_edits(ops, db, key, 0, None);
        Recording { outlet: self.outlet, recorded, op, edits }
    }

    pub(crate) fn push_flush(&self, db: DbIndex) {
        encode_flush(self.recorded.borrow_mut().batch.ops(), db);
    }

    pub(crate) fn push_swap(&self, a: DbIndex, b: DbIndex) {
        encode_swap(self.recorded.borrow_mut().batch.ops(), a, b);
    }

    pub(crate) fn push_code(&self, kind: CodeKind, name: &[u8], source: Option<&[u8]>) {
        let batch = &mut self.recorded.borrow_mut().batch;
        let mut out = batch.to(self.outlet);
        encode_code(&mut out, kind, name, source);
        out.cut();
    }

    pub(crate) fn push_place(&self, place: Option<&StreamPlace>) {
        encode_place(self.recorded.borrow_mut().batch.ops(), place);
    }

    /// Whether nothing is recorded but that keys expired.
    pub(crate) fn is_unchanged(&self) -> bool {
        let recorded = self.recorded.borrow();
        !recorded.batch.has_begun() && recorded.batch.recorded().len() == recorded.expired
    }

    /// With `is_held`, keeps everything here, however long it is: it may have to be taken back.
    pub(crate) fn hold(&self, is_held: bool) {
        let batch = &mut self.recorded.borrow_mut().batch;
        batch.hold(is_held);
        batch.to(self.outlet).cut();
    }

    /// Where [`Pending::truncate`] goes back to.
    pub(crate) fn mark(&self) -> PendingMark {
        let recorded = self.recorded.borrow();
        PendingMark { ops: recorded.batch.recorded().len(), expired: recorded.expired }
    }

    /// Forgets what came behind a mark, which was made since everything is kept here.
    pub(crate) fn truncate(&self, to: PendingMark) {
        let mut recorded = self.recorded.borrow_mut();
        recorded.batch.ops().truncate(to.ops);
        recorded.expired = to.expired;
    }

    #[cfg(test)]
    pub(crate) fn ops(&self) -> Vec<u8> {
        self.recorded.borrow().batch.recorded().clone()
    }

    /// Bytes of operations.
    pub(crate) fn len(&self) -> usize {
        self.recorded.borrow().batch.recorded().len()
    }

    /// Appends what there is, and is empty again. Whether there was anything that a command did: one that only
    /// met a key that had expired need not wait until that is on the device, for until then the key
    /// has its deadline there.
    #[inline]
    pub(crate) fn append(&mut self) -> bool {
        let Recorded { batch, expired } = self.recorded.get_mut();
        batch.finish(self.outlet) > std::mem::take(expired)
    }
}

/// An operation on a collection while its edits are recorded. Forgotten unless it is kept.
pub(crate) struct Recording<'a> {
    outlet: &'a Outlet,
    recorded: RefMut<'a, Recorded>,
    /// Where the operation begins.
    op: usize,
    /// Where its edits begin.
    edits: usize,
}

impl Recording<'_> {
    /// Makes the edits a part of the record.
    #[inline]
    pub(crate) fn keep(mut self) {
        let batch = &mut self.recorded.batch;
        end_edits(batch.ops(), self.edits);
        batch.to(self.outlet).cut();
        self.op = batch.ops().len();
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        let op = self.op;
        self.recorded.batch.ops().truncate(op);
    }
}

impl Deref for Recording<'_> {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        self.recorded.batch.recorded()
    }
}

impl DerefMut for Recording<'_> {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        self.recorded.batch.ops()
    }
}
