//! Lists, sets, sorted sets, hashes and streams below the keyspace: their edits, and both as bytes.
//! `access/collections.rs` reads and edits them under a lock.
//!
//! * `editor`: a collection that is being edited; it records changes.
//! * `edits`: edits as bytes. A whole value is a sequence of edits as well: those that create it.
//!   So the log, checkpoints, snapshots and loading use one format.
//! * `convert`: collections to edits, and back. `parts`, `part`: copies for snapshots. `borrow`: for reading.
//! * `limits`: size limits of compact encodings.
//! * `incremental_snapshot`: a large collection as of one moment, in slices.
//! * a file for each type: its edits as methods of [`Editor`], as bytes, and back. `types` registers all of
//!   them, and decodes edits of any type.
//!
//! **Invariants:**
//! - Every change of a collection goes through an [`Editor`], which records it. Replaying the recorded edits makes an
//!   equal collection.
//! - Applying an edit never fails because of the collection's state: a log truncated at a checkpoint has edits whose
//!   collection does not exist yet. Numbers are clamped, and absent elements are not removed.
//! - Edits of sets, sorted sets, hashes and streams are idempotent: they state the new value. Applying one twice, or
//!   between those that create the whole value, does no harm. A checkpoint relies on that when it logs a large value
//!   in parts.
//! - A key whose collection loses its last element is removed, unless the type says otherwise.

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
pub use set::{MemberDeadline, SetEdit, TimedMember};
pub use sorted_set::SortedSetEdit;
pub use stream::{Delivery, StreamEdit, StreamFields, StreamIds};
pub use types::{Edit, Edits};
pub(crate) use types::{each_collection, with_type};

/// A type of collections in the keyspace.
///
/// Not implemented outside of this crate.
pub trait CollectionType: sealed::Sealed {
    /// Number of the type.
    const KIND: CollectionKind;

    /// Returns an empty collection.
    fn new() -> Self;

    /// Returns true if there is no element.
    fn is_empty(&self) -> bool;

    /// Returns true if a key would not keep the collection.
    #[inline]
    fn vanishes(&self) -> bool {
        self.is_empty() && !Self::STAYS_EMPTY
    }

    /// Converts it to a collection of any type.
    fn into_collection(self) -> Collection;

    /// Returns the collection, if it is of this type.
    fn of(collection: &Collection) -> Option<&Self>;
}

/// Methods of a type that only the keyspace needs.
pub(crate) mod sealed {
    use super::{
        CollectionPart, Fault, Form, LimitCells, Malformed, NonNull, Reader, SnapshotProgress,
        Snapshotted, Writer,
    };

    /// Part of a type that its registration generates.
    pub trait Registered: Sized {
        /// An edit, decoded.
        type Decoded<'a>;

        /// Reads an edit whose code has been read.
        fn read<'a>(code: u8, edit: &mut Reader<'a>) -> Result<Self::Decoded<'a>, Malformed>;

        /// See [`Collection::from_raw`](super::Collection::from_raw).
        ///
        /// # Safety
        ///
        /// As for [`Collection::from_raw`](super::Collection::from_raw), for a form of this type.
        unsafe fn from_raw(form: Form, pointer: NonNull<u8>) -> Self;

        /// See [`Collection::into_raw`](super::Collection::into_raw).
        fn into_raw(self) -> (Form, NonNull<u8>);

        /// See [`Collection::allocated_bytes`](super::Collection::allocated_bytes).
        fn allocated_bytes(&self) -> usize;
    }

    /// Part of a type that its file implements. The defaults are for types that cannot be saved in slices.
    pub trait Sealed: Registered + Snapshotted {
        /// Test fault that skips the inverse edits of the type in a rollback.
        const FAULT_OF_UNDO: Fault;

        /// True if a key keeps a collection without elements.
        const STAYS_EMPTY: bool = false;

        /// Returns the earliest deadline of an element, if it is a hash or set with such.
        #[inline]
        fn next_deadline_ms(&self) -> Option<i64> {
            None
        }

        /// Returns true for a hash or set whose elements have all expired.
        #[inline]
        fn is_all_due(&self, _now_ms: i64) -> bool {
            false
        }

        /// Hides elements that have expired by this time, unless the methods of the type take the time themselves.
        #[inline]
        fn as_of(&mut self, _now_ms: i64) {}

        /// Returns the earliest deadline of an element after `now_ms`; see
        /// [`Hash::deadline_after`](tierce_collections::Hash::deadline_after).
        fn deadline_after(&mut self, _now_ms: i64) -> Option<i64> {
            None
        }

        /// Removes expired elements, and appends that to `edits`. Stops after about `steps` of them. Returns true if
        /// there were any.
        fn reap(&mut self, _now_ms: i64, _steps: usize, _edits: Option<&mut Vec<u8>>) -> bool {
            false
        }

        /// Returns the progress of a checkpoint through a list; see
        /// [`List::noted_prefix`](tierce_collections::List::noted_prefix).
        fn noted_prefix(&self) -> Option<(u64, usize)> {
            None
        }

        /// Makes a list large again, with its noted progress, after a rollback of edits.
        fn restore_large(&mut self, _noted_prefix: Option<(u64, usize)>) {}

        /// Appends edits that create this value from an empty one.
        fn encode(&self, edits: &mut Writer<'_>);

        /// Appends edits for a part of the value that begins at `cursor`, of about `bytes_max` bytes. Returns the
        /// beginning of the next part, 0 at the end. Elements that stay from the first part to the last are in one of
        /// them.
        fn encode_part(&self, cursor: u64, bytes_max: usize, edits: &mut Writer<'_>) -> u64;

        /// Like [`Sealed::encode_part`], if nothing changes between two parts: the edits are for the value itself.
        fn encode_chunk(&self, cursor: u64, bytes_max: usize, edits: &mut Writer<'_>) -> u64 {
            self.encode_part(cursor, bytes_max, edits)
        }

        /// Appends edits for the next slice, of about `bytes_max` bytes. All slices together create the value as of
        /// the beginning of the snapshot.
        fn snapshot_slice(
            &mut self,
            _bytes_max: usize,
            _edits: &mut Writer<'_>,
        ) -> SnapshotProgress {
            SnapshotProgress::Complete
        }

        /// Applies an edit.
        fn apply(&mut self, edit: Self::Decoded<'_>, limits: &LimitCells);

        /// Returns the number of parts that an edit of [`Sealed::encode`] adds, whose code has been read.
        fn part_count(code: u8, edit: &mut Reader<'_>) -> Result<u64, Malformed>;

        /// Reads the next of these parts.
        fn part<'a>(code: u8, edit: &mut Reader<'a>) -> Result<CollectionPart<'a>, Malformed>;

        /// Panics if iteration and lookups disagree; see [`crate::fuzzing`].
        fn check(&self);
    }
}
