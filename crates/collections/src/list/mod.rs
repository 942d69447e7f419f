//! A list: a sequence of byte strings that grows and shrinks at both ends.
//!
//! A small one is a single block ([`Packed`]). One that outgrows its limits is a sequence of such
//! blocks, see `nodes`: an element at any index is found without going through the others, both ends
//! take constant time, and no edit moves more than a block. A list that has shrunk to a single block
//! of half the limits is a small one again, as in Redis; half, so that a list whose length goes up and
//! down does not change its form each time.

mod head;
mod iter;
mod nodes;
mod saving;

use std::ptr::NonNull;

use crate::collection::Form;
use crate::limits::ListLimits;
use crate::packed::{Element, Packed};
use crate::saving::{Leftover, SaveId, SaveTag, Saved};

pub use iter::{Iter, RevIter};
use nodes::Nodes;

/// A list: a sequence of byte strings that grows and shrinks at both ends.
#[derive(Debug)]
pub struct List {
    repr: Repr,
}

#[derive(Debug)]
enum Repr {
    Packed(Packed),
    Nodes(Box<Nodes>),
}

/// Bytes of a listpack beside its elements. They count against the limits, so that lists become
/// large at the same element as in Redis.
const LISTPACK_FRAME: usize = 7;

impl List {
    /// One without elements.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "no caller needs a default")]
    pub fn new() -> Self {
        Self { repr: Repr::Packed(Packed::new()) }
    }

    /// Number of elements.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "empty ones vanish")]
    pub fn len(&self) -> usize {
        match &self.repr {
            Repr::Packed(packed) => packed.len(),
            Repr::Nodes(nodes) => nodes.len(),
        }
    }

    /// The bytes it owns, as the allocator counts them.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        match &self.repr {
            Repr::Packed(packed) => packed.allocated_bytes(),
            Repr::Nodes(nodes) => nodes.allocated_bytes(),
        }
    }

    /// The name of its encoding that OBJECT ENCODING replies with.
    #[must_use]
    pub fn encoding(&self) -> &'static str {
        match &self.repr {
            Repr::Packed(_) => "listpack",
            Repr::Nodes(_) => "quicklist",
        }
    }

    /// The element number `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Element<'_>> {
        if index >= self.len() {
            return None;
        }
        Some(match &self.repr {
            Repr::Packed(packed) => packed.get(packed.seek(index)),
            Repr::Nodes(nodes) => nodes.get(index),
        })
    }

    /// The elements from number `index` on.
    #[must_use]
    pub fn iter_from(&self, index: usize) -> Iter<'_> {
        match &self.repr {
            Repr::Packed(packed) => Iter::of_packed(packed, index),
            Repr::Nodes(nodes) => Iter::of_nodes(nodes, index),
        }
    }

    /// All elements.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        self.iter_from(0)
    }

    /// The elements before number `index`, the nearest one first.
    #[must_use]
    pub fn rev_iter_from(&self, index: usize) -> RevIter<'_> {
        match &self.repr {
            Repr::Packed(packed) => RevIter::of_packed(packed, index),
            Repr::Nodes(nodes) => RevIter::of_nodes(nodes, index),
        }
    }

    /// Makes the list large if `elements` more, with so many bytes of text in all, are beyond the
    /// limits. To add several at once, announce them first.
    pub fn make_room(&mut self, elements: usize, bytes: usize, limits: ListLimits) {
        if let Repr::Packed(packed) = &mut self.repr {
            let bytes = LISTPACK_FRAME + packed.bytes_len() + bytes;
            let elements = packed.len() + elements;
            if bytes > limits.bytes_max || elements > limits.entries_max {
                let packed = std::mem::take(packed);
                self.repr = Repr::Nodes(Box::new(Nodes::of(packed)));
            }
        }
    }

    /// Puts an element before number `index`, or at the end.
    pub fn insert<'a>(
        &mut self,
        index: usize,
        element: impl Into<Element<'a>>,
        limits: ListLimits,
    ) {
        let element = element.into();
        self.make_room(1, element.len(), limits);
        match &mut self.repr {
            Repr::Packed(packed) => packed.insert(packed.seek(index), element),
            Repr::Nodes(nodes) => nodes.insert(index, element, limits),
        }
    }

    /// Puts an element at the beginning.
    #[inline]
    pub fn push_front<'a>(&mut self, element: impl Into<Element<'a>>, limits: ListLimits) {
        self.insert(0, element, limits);
    }

    /// Puts an element at the end.
    #[inline]
    pub fn push_back<'a>(&mut self, element: impl Into<Element<'a>>, limits: ListLimits) {
        self.insert(self.len(), element, limits);
    }

    /// Puts `element` in the place of number `index`; `false` if there is none.
    pub fn set<'a>(
        &mut self,
        index: usize,
        element: impl Into<Element<'a>>,
        limits: ListLimits,
    ) -> bool {
        if index >= self.len() {
            return false;
        }
        let element = element.into();
        self.make_room(0, element.len(), limits);
        match &mut self.repr {
            Repr::Packed(packed) => packed.replace(packed.seek(index), element),
            Repr::Nodes(nodes) => nodes.set(index, element, limits),
        }
        self.become_small(limits);
        true
    }

    /// Removes `count` elements from number `index` on, or those that there are. Returns how many.
    pub fn remove(&mut self, index: usize, count: usize, limits: ListLimits) -> usize {
        let count = count.min(self.len().saturating_sub(index));
        if count == 0 {
            return 0;
        }
        match &mut self.repr {
            Repr::Packed(packed) => packed.remove(packed.seek(index), count),
            Repr::Nodes(nodes) => nodes.remove(index, count, limits),
        }
        self.become_small(limits);
        count
    }

    /// Becomes a single block if it is one of at most half the limits.
    fn become_small(&mut self, limits: ListLimits) {
        let Repr::Nodes(nodes) = &mut self.repr else { return };
        // One that is being saved stays, for it keeps more than its elements.
        if nodes.save_id().is_some() {
            return;
        }
        let is_small = nodes.single().is_some_and(|block| {
            LISTPACK_FRAME + block.bytes_len() <= limits.bytes_max / 2
                && block.len() <= limits.entries_max / 2
        });
        if is_small || nodes.len() == 0 {
            self.repr = Repr::Packed(nodes.take_single().unwrap_or_default());
        }
    }

    /// How many of the first elements `owner` has seen: as many as it said last, and since then one
    /// more for each that was put among those, and one less for each of them that was removed. `None`
    /// if another snapshot has marked the list since, or it is not large.
    #[must_use]
    pub fn mark(&self, owner: u64) -> Option<usize> {
        match &self.repr {
            Repr::Packed(_) => None,
            Repr::Nodes(nodes) => nodes.mark().get(owner),
        }
    }

    /// Notes that `owner`, which is not 0, has seen the first `len` elements; `false` if the list is not
    /// large, for a small one has no room to note it.
    #[must_use]
    pub fn set_mark(&self, owner: u64, len: usize) -> bool {
        let Repr::Nodes(nodes) = &self.repr else { return false };
        nodes.mark().set(owner, len);
        true
    }

    /// A copy.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        let repr = match &self.repr {
            Repr::Packed(packed) => Repr::Packed(packed.duplicate()),
            Repr::Nodes(nodes) => Repr::Nodes(Box::new(nodes.duplicate())),
        };
        Self { repr }
    }

    /// Which saving of the list is under way; see [`List::begin_saving`].
    #[inline]
    #[must_use]
    pub fn save_id(&self) -> Option<SaveId> {
        match &self.repr {
            Repr::Nodes(nodes) => nodes.save_id(),
            Repr::Packed(_) => None,
        }
    }

    /// Begins to save the list as it is now, in slices, in place of another saving that may be under
    /// way; `false` if it is too small for that.
    pub fn begin_saving(&mut self, tag: SaveTag) -> bool {
        match &mut self.repr {
            Repr::Nodes(nodes) => nodes.begin_saving(tag),
            Repr::Packed(_) => return false,
        }
        true
    }

    /// Gives the saving up.
    pub fn end_saving(&mut self) -> Option<Leftover> {
        match &mut self.repr {
            Repr::Nodes(nodes) => nodes.end_saving(),
            Repr::Packed(_) => None,
        }
    }

    /// Shows elements as they were when the saving began, each in one slice, in their order. `visit`
    /// says how many bytes it makes of one, and a slice ends when these are `bytes_max`, or somewhat
    /// more. After the last slice the saving is over.
    pub fn save_slice(
        &mut self,
        bytes_max: usize,
        visit: impl FnMut(Element<'_>) -> usize,
    ) -> Saved {
        match &mut self.repr {
            Repr::Nodes(nodes) => nodes.save_slice(bytes_max, visit),
            Repr::Packed(_) => Saved::Complete,
        }
    }

    /// See [`Collection::into_raw`](crate::Collection::into_raw).
    #[inline]
    #[must_use]
    pub fn into_raw(self) -> (Form, NonNull<u8>) {
        match self.repr {
            Repr::Packed(packed) => (Form::ListPacked, packed.into_raw()),
            Repr::Nodes(nodes) => (Form::ListNodes, NonNull::from(Box::leak(nodes)).cast()),
        }
    }

    /// See [`Collection::from_raw`](crate::Collection::from_raw).
    ///
    /// # Safety
    ///
    /// As there.
    #[inline]
    #[must_use]
    pub unsafe fn from_raw(form: Form, pointer: NonNull<u8>) -> Self {
        let repr = match form {
            // SAFETY: with this form the pointer comes from `Packed::into_raw`, by the caller's promise.
            Form::ListPacked => Repr::Packed(unsafe { Packed::from_raw(pointer) }),
            // SAFETY: with the other form of lists it comes from a box of nodes.
            _ => Repr::Nodes(unsafe { Box::from_raw(pointer.cast().as_ptr()) }),
        };
        Self { repr }
    }
}

#[cfg(test)]
mod tests;
