//! Collections as of the beginning of a snapshot: copies of their elements, in the bytes of
//! `edits`.

use tierce_collections::CollectionKind;

use super::edits::{kind_of, read_code};
use super::part::CollectionPart;
use super::sealed::Sealed;
use super::with_type;
use crate::codec::{Malformed, Reader};

/// A copy of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavedCollection<'a> {
    pub(crate) edits: &'a [u8],
}

#[expect(clippy::len_without_is_empty, reason = "what is empty vanishes, except for streams")]
impl SavedCollection<'_> {
    /// Returns its type.
    ///
    /// # Panics
    ///
    /// If the copy is damaged. A copy made in this process is not.
    pub fn kind(&self) -> CollectionKind {
        let code = self.edits.first().copied();
        code.and_then(kind_of).expect("a copy begins with an edit")
    }

    /// Returns its parts, in the order of the collection if it has one.
    pub fn parts(&self) -> CollectionParts<'_> {
        CollectionParts { edits: Reader::new(self.edits), code: 0, left: 0 }
    }

    /// Returns the number of parts. Takes constant time except for streams.
    pub fn len(&self) -> u64 {
        let mut parts = self.parts();
        match self.kind() {
            CollectionKind::Stream => parts.count() as u64,
            _ => parts.turn_to_edit().map_or(0, |()| parts.left),
        }
    }
}

/// The parts of a [`SavedCollection`].
#[derive(Debug)]
pub struct CollectionParts<'a> {
    edits: Reader<'a>,
    /// Code of the edit that is being read.
    code: u8,
    /// Number of its parts still to be read.
    left: u64,
}

impl<'a> CollectionParts<'a> {
    /// Reads the beginning of the next edit.
    fn turn_to_edit(&mut self) -> Result<(), Malformed> {
        let (code, kind) = read_code(&mut self.edits)?;
        self.code = code;
        self.left = with_type!(kind, T => T::part_count(self.code, &mut self.edits))?;
        Ok(())
    }

    fn next_part(&mut self) -> Result<Option<CollectionPart<'a>>, Malformed> {
        while self.left == 0 {
            if self.edits.is_at_end() {
                return Ok(None);
            }
            self.turn_to_edit()?;
        }
        self.left -= 1;
        let kind = kind_of(self.code).expect("compared when the edit began");
        with_type!(kind, T => T::part(self.code, &mut self.edits)).map(Some)
    }
}

impl<'a> Iterator for CollectionParts<'a> {
    type Item = CollectionPart<'a>;

    /// Ends at damaged bytes, which do not occur in a copy made in this process. A reader that
    /// knows the number of parts notices.
    fn next(&mut self) -> Option<CollectionPart<'a>> {
        self.next_part().ok().flatten()
    }
}
