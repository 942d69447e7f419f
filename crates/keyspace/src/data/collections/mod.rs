//! Lists, sets, sorted sets, hashes and streams under the keyspace: their edits, and both as bytes. How they are read and
//! edited under a lock is in `access/collections.rs`.
//!
//! * `editor`: a collection while it is edited, which records what is changed.
//! * `edits`: edits as bytes. A whole value is a sequence of edits, too: those that make it out
//!   of nothing. So the log, its checkpoints, snapshots and loading have one format.
//! * `convert`: collections as edits, and back. `parts`, `part`: copies for snapshots. `borrow`: for reading.
//! * `limits`: up to which size collections are compact.
//! * `incremental_snapshot`: a large collection as it was at one moment, in slices.
//! * a file for each type: what its edits are, as methods of [`Editor`], as bytes, and back. `types` registers all of
//!   them, and decodes edits of any type.
//!
//! **Invariants:**
//! - Every change of a collection goes through an [`Editor`], which records it. Replaying what was
//!   recorded makes an equal collection.
//! - Applying an edit never fails because of the collection's state: a log that was cut off at a
//!   checkpoint has edits whose collection is not there yet. Numbers are clamped, what is not there is
//!   not removed.
//! - Edits of sets, sorted sets, hashes and streams are idempotent: they state the new value, and
//!   applying one twice, or between those that create the whole value, does no harm. A checkpoint
//!   relies on that when it logs a large value in parts.
//! - A key whose collection loses its last element is gone, unless the type says otherwise.

pub(crate) mod borrow;
pub(crate) mod convert;
pub(crate) mod editor;
pub(crate) mod edits;
pub(crate) mod hash;
pub(crate) mod incremental_snapshot;
pub(crate) mod limits;
pub(crate) mod list;
mod part;
mod parts;
mod set;
mod sorted_set;
mod stream;
mod types;

use std::ptr::NonNull;

use tierce_collections::{Collection, CollectionKind, Form, SnapshotProgress, Snapshotted};

use crate::codec::{Malformed, Reader, Writer};
use crate::planted::Fault;
pub use borrow::BorrowGuard;
pub use editor::Editor;
pub use edits::Fields;
pub use hash::{FieldDeadline, HashEdit, TimedField};
use limits::LimitCells;
pub use limits::Limits;
pub use list::{ListEdit, ListSide};
pub use part::CollectionPart;
pub use parts::{CollectionParts, SavedCollection};
pub use set::SetEdit;
pub use sorted_set::SortedSetEdit;
pub use stream::{Delivery, StreamEdit, StreamFields, StreamIds};
pub use types::{Edit, Edits};
pub(crate) use types::{each_collection, with_type};

/// A type of collections, as the keyspace sees it.
///
/// It is not implemented outside.
pub trait CollectionType: sealed::Sealed {
    /// Which one.
    const KIND: CollectionKind;

    /// One without elements.
    fn new() -> Self;

    /// Whether there is no element.
    fn is_empty(&self) -> bool;

    /// True if a key would not keep it.
    #[inline]
    fn vanishes(&self) -> bool {
        self.is_empty() && !Self::STAYS_EMPTY
    }

    /// As a collection of any type.
    fn into_collection(self) -> Collection;

    /// The collection, if it is of this type.
    fn of(collection: &Collection) -> Option<&Self>;
}

/// What only the keyspace needs of a type.
pub(crate) mod sealed {
    use super::{
        CollectionPart, Fault, Form, LimitCells, Malformed, NonNull, Reader, SnapshotProgress,
        Snapshotted, Writer,
    };

    /// That of a type which follows from its registration.
    pub trait Registered: Sized {
        /// An edit, decoded.
        type Decoded<'a>;

        /// Reads an edit whose code has been read.
        fn read<'a>(code: u8, edit: &mut Reader<'a>) -> Result<Self::Decoded<'a>, Malformed>;

        /// See [`Collection::from_raw`](super::Collection::from_raw).
        ///
        /// # Safety
        ///
        /// As there, for a form of this type.
        unsafe fn from_raw(form: Form, pointer: NonNull<u8>) -> Self;

        /// See [`Collection::into_raw`](super::Collection::into_raw).
        fn into_raw(self) -> (Form, NonNull<u8>);

        /// See [`Collection::allocated_bytes`](super::Collection::allocated_bytes).
        fn allocated_bytes(&self) -> usize;
    }

    /// That of a type which its file says. The defaults are for types that are not saved in slices.
    pub trait Sealed: Registered + Snapshotted {
        /// The fault that leaves edits of the type when they are to be taken back.
        const FAULT_OF_UNDO: Fault;

        /// True if a key keeps a collection without elements.
        const STAYS_EMPTY: bool = false;

        /// When the next deadline of one of its fields comes, if it is a hash with such.
        #[inline]
        fn next_deadline_ms(&self) -> Option<i64> {
            None
        }

        /// `true` for a hash of which the deadlines of all fields have come.
        #[inline]
        fn is_all_due(&self, _now_ms: i64) -> bool {
            false
        }

        /// What a list has noted for a checkpoint that goes through it; see
        /// [`List::noted_prefix`](tierce_collections::List::noted_prefix).
        fn noted_prefix(&self) -> Option<(u64, usize)> {
            None
        }

        /// Makes a list large again, with what it had noted, when edits of it are taken back.
        fn restore_large(&mut self, _noted_prefix: Option<(u64, usize)>) {}

        /// Appends edits that make this value out of an empty one.
        fn encode(&self, edits: &mut Writer<'_>);

        /// Appends edits for a part of the value that begins at `cursor`, of about `bytes_max` bytes,
        /// and returns where the next part begins, 0 at the end. What stays in the collection from the
        /// first part to the last is in one of them.
        fn encode_part(&self, cursor: u64, bytes_max: usize, edits: &mut Writer<'_>) -> u64;

        /// The same where nothing changes between two parts: the edits are for the value itself.
        fn encode_chunk(&self, cursor: u64, bytes_max: usize, edits: &mut Writer<'_>) -> u64 {
            self.encode_part(cursor, bytes_max, edits)
        }

        /// Appends edits for the next slice, of about `bytes_max` bytes. All slices together make what
        /// the value was when the snapshot began.
        fn snapshot_slice(
            &mut self,
            _bytes_max: usize,
            _edits: &mut Writer<'_>,
        ) -> SnapshotProgress {
            SnapshotProgress::Complete
        }

        /// Applies an edit.
        fn apply(&mut self, edit: Self::Decoded<'_>, limits: &LimitCells);

        /// How many parts an edit of [`Sealed::encode`] adds, whose code has been read.
        fn part_count(code: u8, edit: &mut Reader<'_>) -> Result<u64, Malformed>;

        /// Reads the next of these parts.
        fn part<'a>(code: u8, edit: &mut Reader<'a>) -> Result<CollectionPart<'a>, Malformed>;

        /// Panics if iteration and lookups do not tell the same; see [`crate::fuzzing`].
        fn check(&self);
    }
}
