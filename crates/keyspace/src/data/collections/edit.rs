//! Edits of all types, decoded one after the other.

use super::edits::kind_of;
use super::hash::HashEdit;
use super::list::ListEdit;
use super::set::SetEdit;
use super::sorted_set::SortedSetEdit;
use super::stream::StreamEdit;
use crate::codec::{Malformed, Reader};
use tierce_collections::CollectionKind;

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
