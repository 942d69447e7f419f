//! Edits of collections as bytes, inside an operation of the log and in snapshots.
//!
//! An edit is a byte, the number of the type in its upper half and the kind of edit in the lower one,
//! and what the file of the type says. Edits stand one behind the other.

use tierce_collections::CollectionKind;

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
