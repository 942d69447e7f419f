//! Saving a large collection as it was at one moment, in slices, while it goes on changing: see
//! [`sealed::Sealed::begin_saving`](super::sealed::Sealed::begin_saving).

use tierce_collections::{Collection, Form, Leftover, SaveId, SaveTag, Saved};

use super::edits::Writer;
use super::sealed::Sealed;
use super::{each_collection, with_type};
use crate::entry::{Annex, Entry};

/// Whether collections of this form can be saved in slices.
const fn has_slices(form: Form) -> bool {
    matches!(form, Form::ListNodes | Form::SetTable | Form::HashTable | Form::SortedSetTree)
}

impl Entry {
    /// Whether this is a collection of at least so many bytes that can be saved in slices.
    pub(crate) fn has_slices(&self, bytes_min: usize) -> bool {
        let form = self.raw_collection().map(|(form, _)| form);
        form.is_some_and(has_slices) && self.annex_bytes() >= bytes_min
    }

    /// Which saving of the collection is under way.
    #[inline]
    pub(crate) fn save_id(&self) -> Option<SaveId> {
        let form = self.raw_collection().map(|(form, _)| form);
        if !form.is_some_and(has_slices) {
            return None;
        }
        let collection = self.collection()?;
        each_collection!(&*collection, value => Sealed::save_id(value))
    }

    /// Begins to save the collection as it is now; `false` if it is none, or has no slices.
    pub(crate) fn begin_saving(&mut self, tag: SaveTag) -> bool {
        let Some((form, _)) = self.raw_collection() else { return false };
        with_type!(form.kind(), T => {
            let mut value = self.lend::<T>().expect("it has the type of its form");
            Sealed::begin_saving(&mut *value, tag)
        })
    }

    /// Gives a saving up.
    pub(crate) fn end_saving(&mut self) -> Option<Leftover> {
        let (form, _) = self.raw_collection()?;
        with_type!(form.kind(), T => {
            let mut value = self.lend::<T>().expect("it has the type of its form");
            Sealed::end_saving(&mut *value)
        })
    }

    /// Appends edits for the next slice, of about `bytes_max` bytes.
    pub(crate) fn save_slice(&mut self, bytes_max: usize, edits: &mut Writer<'_>) -> Saved {
        let Some((form, _)) = self.raw_collection() else { return Saved::Complete };
        with_type!(form.kind(), T => {
            let mut value = self.lend::<T>().expect("it has the type of its form");
            Sealed::save_slice(&mut *value, bytes_max, edits)
        })
    }
}

impl Annex {
    /// Which saving is under way, if it is a collection.
    pub(crate) fn save_id(&self) -> Option<SaveId> {
        match self {
            Annex::Blob(_) => None,
            Annex::Collection(collection) => {
                each_collection!(collection, value => Sealed::save_id(value))
            }
        }
    }
}

/// The same as [`Entry::save_slice`], for a collection that has no key any more.
pub(crate) fn save_slice(
    collection: &mut Collection,
    bytes_max: usize,
    edits: &mut Writer<'_>,
) -> Saved {
    each_collection!(collection, value => Sealed::save_slice(value, bytes_max, edits))
}
