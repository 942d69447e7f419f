//! Values outside of an entry's allocation: the bytes of a large string, or a collection.
//!
//! The entry has a raw pointer in its payload. This module borrows the value as its real type, and takes it back.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use tierce_collections::{Collection, Form};

use super::layout::{COLLECTION_LEN, Kind, Shape, Tag};
use super::parts::{read_collection, write_collection, write_header};
use super::{Content, Entry};
use crate::data::collections::{BorrowGuard, CollectionType};
use crate::data::value::blob_bytes;

/// Checks what an entry's `Send` and `Sync` require.
const fn assert_threads_may_share<T: Send + Sync>() {}
const _: () = assert_threads_may_share::<OutOfLine>();

#[derive(Debug)]
pub(crate) enum OutOfLine {
    /// The bytes of a large string.
    Blob(Arc<Vec<u8>>),
    /// A collection.
    Collection(Collection),
}

impl OutOfLine {
    /// Returns its bytes, as the allocator counts them.
    pub(crate) fn allocated_bytes(&self) -> usize {
        match self {
            OutOfLine::Blob(blob) => blob_bytes(blob),
            OutOfLine::Collection(collection) => collection.allocated_bytes(),
        }
    }

    pub(crate) fn into_content(self) -> Content<'static> {
        match self {
            OutOfLine::Blob(blob) => Content::Blob(blob),
            OutOfLine::Collection(collection) => Content::Collection(collection),
        }
    }
}

impl Kind {
    /// Returns true if entries of this kind own something outside of their allocation.
    #[inline]
    pub(super) const fn has_out_of_line(self) -> bool {
        matches!(self, Kind::Collection | Kind::Blob)
    }
}

impl Entry {
    /// Returns the collection, unless the value is a string.
    #[inline]
    pub(crate) fn collection(&self) -> Option<BorrowGuard<'_, Collection>> {
        let (form, pointer) = self.raw_collection()?;
        // SAFETY: the payload owns the collection, which `self` keeps while it is borrowed; the collection made here
        // is not dropped.
        Some(BorrowGuard::new(unsafe { Collection::from_raw(form, pointer) }))
    }

    /// Returns form and pointer of the collection, unless the value is a string. The entry owns it.
    #[inline]
    pub(crate) fn raw_collection(&self) -> Option<(Form, NonNull<u8>)> {
        let tag = self.tag();
        // SAFETY: with this tag the payload is that of a collection.
        (tag.kind() == Kind::Collection).then(|| unsafe { read_collection(self.payload(tag)) })
    }

    /// Borrows the collection for changes, if it is of this type.
    #[inline]
    pub(crate) fn borrow_collection<T: CollectionType>(
        &mut self,
    ) -> Option<CollectionGuard<'_, T>> {
        let (form, pointer) = self.raw_collection()?;
        if form.kind() != T::KIND {
            return None;
        }
        // SAFETY: the form is one of this type. The collection borrows the ownership of the payload, and is not
        // dropped; the guard writes its final state back.
        let value = ManuallyDrop::new(unsafe { T::from_raw(form, pointer) });
        Some(CollectionGuard { entry: self, value })
    }

    /// Runs `change` on the `Arc` of a blob.
    ///
    /// # Panics
    ///
    /// If the value is no blob.
    pub(crate) fn change_blob<R>(&mut self, change: impl FnOnce(&mut Arc<Vec<u8>>) -> R) -> R {
        let tag = self.tag();
        assert!(tag.kind() == Kind::Blob, "only a blob can be changed as one");
        // SAFETY: the `Arc` borrows the count that the payload owns, and is not dropped here; the guard writes the
        // final `Arc` back.
        let blob = ManuallyDrop::new(unsafe { Arc::from_raw(self.blob_pointer(tag).as_ptr()) });
        let mut guard = BlobGuard { entry: self, blob };
        change(&mut guard.blob)
    }

    /// Takes the out-of-line value, if any, and leaves a value that owns nothing.
    pub(crate) fn take_out_of_line(&mut self) -> Option<OutOfLine> {
        let tag = self.tag();
        if !tag.kind().has_out_of_line() {
            return None;
        }
        let value = match self.raw_collection() {
            Some((form, pointer)) => {
                // SAFETY: ownership goes from the payload to the collection made here.
                let collection = unsafe { Collection::from_raw(form, pointer) };
                OutOfLine::Collection(collection)
            }
            // SAFETY: as above, for the count that the payload owned.
            None => OutOfLine::Blob(unsafe { Arc::from_raw(self.blob_pointer(tag).as_ptr()) }),
        };
        self.disown(tag);
        Some(value)
    }

    pub(crate) fn out_of_line_bytes(&self) -> usize {
        match self.collection() {
            Some(collection) => collection.allocated_bytes(),
            // SAFETY: an entry with a value out of line that is no collection owns a blob.
            None => blob_bytes(unsafe { self.blob_pointer(self.tag()).as_ref() }),
        }
    }

    /// Replaces the owning payload by bytes that own nothing, of the same length.
    fn disown(&mut self, tag: Tag) {
        let old = self.shape();
        let kind = if tag.kind() == Kind::Blob { Kind::Int } else { Kind::Raw };
        debug_assert!(kind == Kind::Int || old.payload_len == COLLECTION_LEN);
        // SAFETY: the payload stays where it is and as long as it is; all of it is initialized.
        unsafe {
            write_header(self.base(), &Shape { kind, ..old });
            self.payload(self.tag()).write_bytes(0, old.payload_len);
        }
    }
}

/// A collection that may change its form. The guard writes the final form back into the entry when it ends, by return
/// or panic. So the entry never keeps a freed pointer.
pub(crate) struct CollectionGuard<'a, T: CollectionType> {
    entry: &'a mut Entry,
    value: ManuallyDrop<T>,
}

impl<T: CollectionType> Deref for CollectionGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: CollectionType> DerefMut for CollectionGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: CollectionType> Drop for CollectionGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let payload = self.entry.payload(self.entry.tag());
        // SAFETY: the entry still has the payload of a collection; ownership moves into it, and the
        // `ManuallyDrop` keeps it from being dropped here.
        unsafe {
            let (form, pointer) = ManuallyDrop::take(&mut self.value).into_raw();
            write_collection(payload, form, pointer);
        }
    }
}

/// Like [`CollectionGuard`], for the `Arc` of a blob.
struct BlobGuard<'a> {
    entry: &'a mut Entry,
    blob: ManuallyDrop<Arc<Vec<u8>>>,
}

impl Drop for BlobGuard<'_> {
    fn drop(&mut self) {
        let payload = self.entry.payload(self.entry.tag());
        // SAFETY: the entry is still a blob with room for a pointer; ownership of the count moves
        // into it, and the `ManuallyDrop` keeps the `Arc` from dropping it.
        unsafe {
            let pointer = Arc::into_raw(ManuallyDrop::take(&mut self.blob));
            payload.cast::<*const Vec<u8>>().write_unaligned(pointer);
        }
    }
}
