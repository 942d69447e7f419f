//! Edits of collections as bytes, inside an operation of the log and in snapshots.
//!
//! An edit is a byte, the number of the type in its upper half and the kind of edit in the lower one,
//! and what the file of the type says. Edits stand one behind the other.

use std::marker::PhantomData;

use tierce_collections::CollectionKind;
use tierce_collections::stream::StreamId;

use super::hash::HashEdit;
use super::list::ListEdit;
use super::set::SetEdit;
use super::sorted_set::SortedSetEdit;
use super::stream::StreamEdit;
pub use crate::log::op::Malformed;
pub(crate) use crate::log::op::Reader;
use crate::log::op::push_varint;

/// Bits of an edit's code that say what it does.
const EDIT_BITS: u32 = 4;

/// The code of the edit number `edit` of a type.
pub(crate) const fn code(kind: CollectionKind, edit: u8) -> u8 {
    debug_assert!(edit < 1 << EDIT_BITS);
    (kind as u8) << EDIT_BITS | edit
}

/// The type whose edit has this code.
pub(crate) fn kind_of(code: u8) -> Option<CollectionKind> {
    Some(match code >> EDIT_BITS {
        1 => CollectionKind::List,
        2 => CollectionKind::Set,
        3 => CollectionKind::SortedSet,
        4 => CollectionKind::Hash,
        5 => CollectionKind::Stream,
        _ => return None,
    })
}

/// Appends edits.
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Bytes written so far, with those that were there before.
    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    /// How many bytes `write` writes.
    pub(crate) fn measure(&mut self, write: impl FnOnce(&mut Self)) -> usize {
        let before = self.len();
        write(self);
        self.len() - before
    }

    /// Begins an edit.
    pub(crate) fn begin(&mut self, code: u8) {
        self.out.push(code);
    }

    pub(crate) fn number(&mut self, value: u64) {
        push_varint(self.out, value);
    }

    pub(crate) fn count(&mut self, value: usize) {
        self.number(value as u64);
    }

    pub(crate) fn byte(&mut self, value: u8) {
        self.out.push(value);
    }

    /// Eight bytes, little-endian.
    pub(crate) fn fixed(&mut self, value: u64) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// A length and as many bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        push_varint(self.out, bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }
}

/// An edit of any type, decoded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Edit<'a> {
    /// Of a list.
    List(ListEdit<'a>),
    /// Of a set.
    Set(SetEdit<'a>),
    /// Of a sorted set.
    SortedSet(SortedSetEdit<'a>),
    /// Of a hash.
    Hash(HashEdit<'a>),
    /// Of a stream.
    Stream(StreamEdit<'a>),
}

/// The edits of an operation, one after the other. Ends behind an error.
#[derive(Debug, Clone)]
pub struct Edits<'a>(Reader<'a>);

impl<'a> Edits<'a> {
    /// The edits in these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(Reader::new(bytes))
    }

    fn read(&mut self) -> Result<Edit<'a>, Malformed> {
        let edit = &mut self.0;
        let code = edit.byte()?;
        let kind = kind_of(code).ok_or(edit.malformed("an edit of an unknown type"))?;
        Ok(match kind {
            CollectionKind::List => Edit::List(ListEdit::read(code, edit)?),
            CollectionKind::Set => Edit::Set(SetEdit::read(code, edit)?),
            CollectionKind::SortedSet => Edit::SortedSet(SortedSetEdit::read(code, edit)?),
            CollectionKind::Hash => Edit::Hash(HashEdit::read(code, edit)?),
            CollectionKind::Stream => Edit::Stream(StreamEdit::read(code, edit)?),
        })
    }
}

impl<'a> Iterator for Edits<'a> {
    type Item = Result<Edit<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_at_end() {
            return None;
        }
        let edit = self.read();
        if edit.is_err() {
            self.0 = Reader::new(&[]);
        }
        Some(edit)
    }
}

impl<'a, T: Field<'a>> ExactSizeIterator for Fields<'a, T> {}

/// What edits consist of.
pub trait Field<'a>: Sized {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// If the bytes are none.
    fn read(edit: &mut Reader<'a>) -> Result<Self, Malformed>;
}

/// Bytes with their length.
impl<'a> Field<'a> for &'a [u8] {
    fn read(edit: &mut Reader<'a>) -> Result<Self, Malformed> {
        edit.bytes()
    }
}

/// A number of elements or an index; one that no collection reaches becomes the largest there is.
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

/// Fields of one kind, of which an edit states the number. All of them were read once, so none is damaged.
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
    /// Reads their number and all of them.
    pub(crate) fn read(edit: &mut Reader<'a>) -> Result<Self, Malformed> {
        let left = edit.varint()?;
        let rest = edit.rest();
        for _ in 0..left {
            T::read(edit)?;
        }
        Ok(Self { left, rest, kind: PhantomData })
    }

    /// One alone, which has no number before it.
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
