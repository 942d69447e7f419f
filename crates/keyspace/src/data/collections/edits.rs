//! Edits of collections as bytes, in log operations and in snapshots.
//!
//! An edit is a code byte and fields. The upper half of the byte is the number of the type, the lower half the kind
//! of edit; the file of the type describes the fields. Edits follow one another without separators.

use std::marker::PhantomData;

use tierce_collections::stream::StreamId;
use tierce_collections::{CollectionKind, Element, IntText};

use crate::codec::{Malformed, Reader, Writer};

/// Number of bits in a code that select the edit.
const EDIT_BITS: u32 = 4;

/// Returns the code of edit number `edit` of a type.
pub(crate) const fn code(kind: CollectionKind, edit: u8) -> u8 {
    debug_assert!(edit < 1 << EDIT_BITS);
    (kind as u8) << EDIT_BITS | edit
}

/// Returns the type whose edit has this code.
pub(crate) fn kind_of(code: u8) -> Option<CollectionKind> {
    CollectionKind::from_number(code >> EDIT_BITS)
}

/// Reads the code of an edit, and its type.
pub(super) fn read_code(edit: &mut Reader<'_>) -> Result<(u8, CollectionKind), Malformed> {
    let code = edit.byte()?;
    let kind = kind_of(code).ok_or(edit.malformed("an edit of an unknown type"))?;
    Ok((code, kind))
}

/// Appends an element as bytes with their length.
#[inline]
pub(super) fn write_element(edits: &mut Writer<'_>, element: Element<'_>) {
    edits.bytes(element.bytes(&mut IntText::new()));
}

impl<'a, T: Field<'a>> ExactSizeIterator for Fields<'a, T> {}

/// A field of an edit.
pub trait Field<'a>: Sized {
    /// Reads a field.
    ///
    /// # Errors
    ///
    /// If the bytes are no such field.
    fn read(edit: &mut Reader<'a>) -> Result<Self, Malformed>;
}

/// Bytes with their length.
impl<'a> Field<'a> for &'a [u8] {
    fn read(edit: &mut Reader<'a>) -> Result<Self, Malformed> {
        edit.bytes()
    }
}

/// A number of elements or an index; a value that does not fit becomes the maximum.
impl<'a> Field<'a> for usize {
    fn read(edit: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(usize::try_from(edit.varint()?).unwrap_or(usize::MAX))
    }
}

impl<'a> Field<'a> for f64 {
    fn read(edit: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(f64::from_bits(edit.fixed()?))
    }
}

impl<'a> Field<'a> for StreamId {
    fn read(edit: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(StreamId::new(edit.varint()?, edit.varint()?))
    }
}

impl<'a, A: Field<'a>, B: Field<'a>> Field<'a> for (A, B) {
    fn read(edit: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok((A::read(edit)?, B::read(edit)?))
    }
}

/// Fields of one type, after their count. All of them were read once, so none is malformed.
#[derive(Debug, PartialEq, Eq)]
pub struct Fields<'a, T> {
    left: u64,
    rest: &'a [u8],
    kind: PhantomData<T>,
}

impl<T> Clone for Fields<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Fields<'_, T> {}

impl<'a, T: Field<'a>> Fields<'a, T> {
    /// Reads their count and all of them.
    pub(crate) fn read(edit: &mut Reader<'a>) -> Result<Self, Malformed> {
        let left = edit.varint()?;
        let rest = edit.rest();
        for _ in 0..left {
            T::read(edit)?;
        }
        Ok(Self { left, rest, kind: PhantomData })
    }

    /// Reads a single field, without a count before it.
    pub(crate) fn read_one(edit: &mut Reader<'a>) -> Result<Self, Malformed> {
        let rest = edit.rest();
        T::read(edit)?;
        Ok(Self { left: 1, rest, kind: PhantomData })
    }
}

impl<'a, T: Field<'a>> Iterator for Fields<'a, T> {
    type Item = T;

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.left as usize;
        (left, Some(left))
    }

    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        let mut reader = Reader::new(self.rest);
        let field = T::read(&mut reader).ok()?;
        self.rest = reader.rest();
        Some(field)
    }
}
