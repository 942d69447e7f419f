//! Snapshot of a large collection as of one moment, in slices, while the collection changes: see [`Snapshotted`].

use tierce_collections::{
    Collection, Form, Remainder, SnapshotId, SnapshotProgress, SnapshotTag, Snapshotted,
};

use super::sealed::Sealed;
use super::{each_collection, with_type};
use crate::codec::Writer;
use crate::data::entry::{Entry, OutOfLine};

impl Entry {
    /// Returns true if this is a collection of at least `bytes_min` bytes that can be saved in slices.
    pub(crate) fn has_slices(&self, bytes_min: usize) -> bool {
        let form = self.raw_collection().map(|(form, _)| form);
        form.is_some_and(Form::has_slices) && self.out_of_line_bytes() >= bytes_min
    }

    /// Returns the running snapshot of the collection.
    #[inline]
    pub(crate) fn snapshot_id(&self) -> Option<SnapshotId> {
        let form = self.raw_collection().map(|(form, _)| form);
        if !form.is_some_and(Form::has_slices) {
            return None;
        }
        let collection = self.collection()?;
        each_collection!(&*collection, value => value.snapshot_id())
    }

    /// Begins to save the collection as it is now; `false` if it is none, or cannot be saved in slices.
    pub(crate) fn begin_snapshot(&mut self, tag: SnapshotTag) -> bool {
        let Some((form, _)) = self.raw_collection() else { return false };
        with_type!(form.kind(), T => {
            let mut value = self.borrow_collection::<T>().expect("it has the type of its form");
            value.begin_snapshot(tag)
        })
    }

    /// Cancels a snapshot.
    pub(crate) fn cancel_snapshot(&mut self) -> Option<Remainder> {
        let (form, _) = self.raw_collection()?;
        with_type!(form.kind(), T => {
            let mut value = self.borrow_collection::<T>().expect("it has the type of its form");
            value.cancel_snapshot()
        })
    }

    /// Appends edits for the next slice, of about `bytes_max` bytes.
    pub(crate) fn snapshot_slice(
        &mut self,
        bytes_max: usize,
        edits: &mut Writer<'_>,
    ) -> SnapshotProgress {
        let Some((form, _)) = self.raw_collection() else { return SnapshotProgress::Complete };
        with_type!(form.kind(), T => {
            let mut value = self.borrow_collection::<T>().expect("it has the type of its form");
            Sealed::snapshot_slice(&mut *value, bytes_max, edits)
        })
    }
}

impl OutOfLine {
    /// Returns the running snapshot, if the value is a collection.
    pub(crate) fn snapshot_id(&self) -> Option<SnapshotId> {
        match self {
            OutOfLine::Blob(_) => None,
            OutOfLine::Collection(collection) => {
                each_collection!(collection, value => value.snapshot_id())
            }
        }
    }
}

/// Like [`Entry::snapshot_slice`], for a collection without a key.
pub(crate) fn snapshot_slice(
    collection: &mut Collection,
    bytes_max: usize,
    edits: &mut Writer<'_>,
) -> SnapshotProgress {
    each_collection!(collection, value => Sealed::snapshot_slice(value, bytes_max, edits))
}
