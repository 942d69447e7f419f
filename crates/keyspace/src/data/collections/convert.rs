//! Converts collections to edits, and back.

use tierce_collections::Collection;

use super::edits::kind_of;
use super::limits::LimitCells;
use super::sealed::Sealed;
use super::{CollectionType, each_collection};
use crate::codec::{Malformed, Reader, Writer};

/// Appends edits for a part of a collection; see [`sealed::Sealed::encode_part`].
pub(crate) fn encode_part(
    collection: &Collection,
    cursor: u64,
    bytes_max: usize,
    edits: &mut Writer<'_>,
) -> u64 {
    each_collection!(collection, value => value.encode_part(cursor, bytes_max, edits))
}

/// Appends edits for a part of a collection; see [`sealed::Sealed::encode_chunk`].
pub(crate) fn encode_chunk(
    collection: &Collection,
    cursor: u64,
    bytes_max: usize,
    edits: &mut Writer<'_>,
) -> u64 {
    each_collection!(collection, value => value.encode_chunk(cursor, bytes_max, edits))
}

/// Appends edits that create a collection.
pub(crate) fn encode(collection: &Collection, edits: &mut Writer<'_>) {
    each_collection!(collection, value => value.encode(edits));
}

/// Returns the collection that edits create.
pub(crate) fn collection_of(
    edits: &[u8],
    limits: &LimitCells,
) -> std::result::Result<Collection, Malformed> {
    let Some(kind) = edits.first().copied().and_then(kind_of) else {
        return Err(Malformed { offset: 0, what: "edits of no type" });
    };
    let mut collection = Collection::new(kind);
    apply(&mut collection, edits, limits)?;
    Ok(collection)
}

/// Applies edits, which must all be of the collection's type.
pub(crate) fn apply(
    collection: &mut Collection,
    edits: &[u8],
    limits: &LimitCells,
) -> std::result::Result<(), Malformed> {
    each_collection!(collection, value => apply_to(value, edits, limits))
}

pub(crate) fn apply_to<T: CollectionType>(
    value: &mut T,
    edits: &[u8],
    limits: &LimitCells,
) -> std::result::Result<(), Malformed> {
    let mut edits = Reader::new(edits);
    while !edits.is_at_end() {
        let code = edits.byte()?;
        if kind_of(code) != Some(T::KIND) {
            return Err(edits.malformed("an edit of another type"));
        }
        value.apply(T::read(code, &mut edits)?, limits);
    }
    Ok(())
}

/// Returns true if a key would not keep the collection, because it is empty.
pub(crate) fn is_empty(collection: &Collection) -> bool {
    each_collection!(collection, value => value.vanishes())
}
