//! A list: a sequence of byte strings that grows and shrinks at both ends.
//!
//! A small list is a single block ([`Packed`]). Beyond its limits it is a sequence of blocks (`nodes`): an
//! element at any index is found without visiting the others, both ends take constant time, and no edit moves
//! more than a block. A list that shrinks to a single block of half the limits becomes small again, as in Redis;
//! half, so that a list whose length oscillates does not convert each time.

mod head;
mod iter;
mod nodes;
mod snapshot;

use std::ptr::NonNull;

use crate::form::Form;
use crate::incremental_snapshot::{SnapshotProgress, snapshotted};
use crate::limits::ListLimits;
use crate::packed::{Element, Packed};
use snapshot::ListSnapshot;

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

/// Bytes of a listpack in addition to its elements. They count against the limits, so that lists become large at the
/// same element as in Redis.
const LISTPACK_FRAME: usize = 7;

snapshotted!(List, Repr::Nodes[nodes], tag => ListSnapshot::begin(tag, nodes.len()));

impl List {
    /// Creates an empty list.
    #[expect(clippy::new_without_default, reason = "no caller needs a default")]
    pub fn new() -> Self {
        Self { repr: Repr::Packed(Packed::new()) }
    }

    /// Returns the number of elements.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "empty ones vanish")]
    pub fn len(&self) -> usize {
        match &self.repr {
            Repr::Packed(packed) => packed.len(),
            Repr::Nodes(nodes) => nodes.len(),
        }
    }

    /// Returns the bytes it owns, as the allocator counts them.
    #[inline]
    pub fn allocated_bytes(&self) -> usize {
        match &self.repr {
            Repr::Packed(packed) => packed.allocated_bytes(),
            Repr::Nodes(nodes) => nodes.allocated_bytes(),
        }
    }

    /// Returns the name of its encoding for OBJECT ENCODING.
    pub fn encoding(&self) -> &'static str {
        match &self.repr {
            Repr::Packed(_) => "listpack",
            Repr::Nodes(_) => "quicklist",
        }
    }

    /// Returns the element number `index`.
    pub fn get(&self, index: usize) -> Option<Element<'_>> {
        if index >= self.len() {
            return None;
        }
        Some(match &self.repr {
            Repr::Packed(packed) => packed.get(packed.seek(index)),
            Repr::Nodes(nodes) => nodes.get(index),
        })
    }

    /// Returns the elements from number `index` on.
    pub fn iter_from(&self, index: usize) -> Iter<'_> {
        match &self.repr {
            Repr::Packed(packed) => Iter::of_packed(packed, index),
            Repr::Nodes(nodes) => Iter::of_nodes(nodes, index),
        }
    }

    /// Returns all elements.
    pub fn iter(&self) -> Iter<'_> {
        self.iter_from(0)
    }

    /// Returns the elements before number `index`, the nearest one first.
    pub fn rev_iter_from(&self, index: usize) -> RevIter<'_> {
        match &self.repr {
            Repr::Packed(packed) => RevIter::of_packed(packed, index),
            Repr::Nodes(nodes) => RevIter::of_nodes(nodes, index),
        }
    }

    /// Converts the list to the large form if `elements` more, with this many bytes of text in total, would exceed the
    /// limits. To add several at once, call this first.
    #[inline]
    pub fn make_room(&mut self, elements: usize, bytes: usize, limits: ListLimits) {
        if let Repr::Packed(packed) = &mut self.repr {
            let bytes = LISTPACK_FRAME + packed.bytes_len() + bytes;
            let elements = packed.len() + elements;
            if bytes > limits.bytes_max || elements > limits.entries_max {
                self.become_large();
            }
        }
    }

    /// Converts the list to the large form, whatever its size.
    #[cold]
    pub fn become_large(&mut self) {
        if let Repr::Packed(packed) = &mut self.repr {
            self.repr = Repr::Nodes(Box::new(Nodes::of(std::mem::take(packed))));
        }
    }

    /// Inserts an element before number `index`, or at the end.
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

    /// Inserts an element at the beginning.
    #[inline]
    pub fn push_front<'a>(&mut self, element: impl Into<Element<'a>>, limits: ListLimits) {
        self.insert(0, element, limits);
    }

    /// Appends an element.
    #[inline]
    pub fn push_back<'a>(&mut self, element: impl Into<Element<'a>>, limits: ListLimits) {
        self.insert(self.len(), element, limits);
    }

    /// Replaces the element number `index`; `false` if there is none.
    pub fn set<'a>(
        &mut self,
        index: usize,
        element: impl Into<Element<'a>>,
        limits: ListLimits,
    ) -> bool {
        self.set_visited(index, element, limits, |_| ())
    }

    /// As [`List::set`]; `visit` sees the old element.
    pub fn set_visited<'a>(
        &mut self,
        index: usize,
        element: impl Into<Element<'a>>,
        limits: ListLimits,
        visit: impl FnOnce(Element<'_>),
    ) -> bool {
        if index >= self.len() {
            return false;
        }
        let element = element.into();
        self.make_room(0, element.len(), limits);
        match &mut self.repr {
            Repr::Packed(packed) => {
                let position = packed.seek(index);
                visit(packed.get(position));
                packed.replace(position, element);
            }
            Repr::Nodes(nodes) => nodes.set(index, element, limits, visit),
        }
        self.become_small(limits);
        true
    }

    /// Removes up to `count` elements from number `index` on. Returns the number removed.
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

    /// Converts to a single block if it is one of at most half the limits.
    fn become_small(&mut self, limits: ListLimits) {
        let Repr::Nodes(nodes) = &mut self.repr else { return };
        // A list that is being saved stays large, since it holds more than its elements.
        if nodes.snapshot.is_some() {
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

    /// Returns how many of the first elements `owner` has seen: the number it noted last, adjusted for insertions and
    /// removals among those since. `None` if another snapshot has marked the list since, or it is not large.
    pub fn visited_prefix(&self, owner: u64) -> Option<usize> {
        match &self.repr {
            Repr::Packed(_) => None,
            Repr::Nodes(nodes) => nodes.visited_prefix().get(owner),
        }
    }

    /// Returns the owner of the visited prefix and its length, for [`List::set_visited_prefix`]; `None` if there is
    /// none.
    pub fn noted_prefix(&self) -> Option<(u64, usize)> {
        match &self.repr {
            Repr::Packed(_) => None,
            Repr::Nodes(nodes) => nodes.visited_prefix().noted(),
        }
    }

    /// Notes that `owner`, which is not 0, has seen the first `len` elements; `false` if the list is not large, since
    /// a small one has no room for the note.
    pub fn set_visited_prefix(&self, owner: u64, len: usize) -> bool {
        let Repr::Nodes(nodes) = &self.repr else { return false };
        nodes.visited_prefix().set(owner, len);
        true
    }

    /// Returns a copy.
    pub fn duplicate(&self) -> Self {
        let repr = match &self.repr {
            Repr::Packed(packed) => Repr::Packed(packed.duplicate()),
            Repr::Nodes(nodes) => Repr::Nodes(Box::new(nodes.duplicate())),
        };
        Self { repr }
    }

    /// Visits elements as they were when the snapshot began, each in one slice, in their order. `visit` returns the
    /// bytes it produced for one, and a slice ends once these reach `bytes_max`. After the last slice the snapshot is
    /// over.
    pub fn snapshot_slice(
        &mut self,
        bytes_max: usize,
        visit: impl FnMut(Element<'_>) -> usize,
    ) -> SnapshotProgress {
        match &mut self.repr {
            Repr::Nodes(nodes) => nodes.snapshot_slice(bytes_max, visit),
            Repr::Packed(_) => SnapshotProgress::Complete,
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
    pub unsafe fn from_raw(form: Form, pointer: NonNull<u8>) -> Self {
        let repr = match form {
            // SAFETY: the caller guarantees that with this form the pointer is from `Packed::into_raw`.
            Form::ListPacked => Repr::Packed(unsafe { Packed::from_raw(pointer) }),
            // SAFETY: with the other form of lists it is from a box of nodes.
            _ => Repr::Nodes(unsafe { Box::from_raw(pointer.cast().as_ptr()) }),
        };
        Self { repr }
    }
}

#[cfg(test)]
mod tests;
