//! Small collections: elements in sequence in one allocation.
//!
//! A [`Packed`] is a sequence of byte strings, in 16 to some thousand bytes, behind one pointer. An element of up to
//! 63 bytes takes two bytes more than its text, an integer two to ten bytes in total. Walking is possible in both
//! directions from any [`Position`]. All other operations scan, reading memory sequentially, so this is for small
//! collections and for nodes of large ones.
//!
//! Memory grows and shrinks by the allocator's size classes. An empty one has none.
//!
//! It does not know the meaning of elements: a hash alternates fields and values, and passes a `stride` of 2 to search
//! fields only.

mod block;
mod element;
mod encoding;
mod iter;

use std::fmt;
use std::ptr::NonNull;

use block::Block;
use encoding::{Encoded, begin_of, decode_at, short_string, total_at};

pub use element::Element;
pub use iter::Iter;

/// A sequence of byte strings in one allocation.
pub struct Packed {
    block: Block,
}

/// Start of an element, or the end, where the next one would begin.
///
/// It belongs to the [`Packed`] that it came from, in its current state: an edit invalidates all positions at and
/// after it. An invalid position may panic or read wrong bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(u32);

impl Position {
    #[inline]
    fn of(at: usize) -> Self {
        Self(at as u32)
    }

    #[inline]
    fn index(self) -> usize {
        self.0 as usize
    }
}

impl Packed {
    /// Maximum number of elements.
    pub const LEN_MAX: usize = block::COUNT_MAX;

    /// Maximum number of bytes.
    pub const BYTES_MAX: usize = block::USED_MAX;

    /// Creates an empty one. Allocates nothing.
    #[inline]
    pub const fn new() -> Self {
        Self { block: Block::new() }
    }

    /// Creates an empty one, with room for `bytes` in the sense of [`Packed::bytes_len`].
    pub fn with_capacity(bytes: usize) -> Self {
        let mut block = Block::new();
        block.reserve(bytes);
        Self { block }
    }

    /// Returns the number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.block.count()
    }

    /// Returns true if there are no elements.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of all elements, including their framing.
    #[inline]
    pub fn bytes_len(&self) -> usize {
        self.block.used()
    }

    /// Returns the bytes of the elements from `at` on, including their framing.
    #[inline]
    pub fn bytes_from(&self, at: Position) -> usize {
        self.bytes_len() - at.index()
    }

    /// Returns the bytes it owns, as the allocator counts them.
    #[inline]
    pub fn allocated_bytes(&self) -> usize {
        self.block.allocated_bytes()
    }

    /// Returns the number of the size class of its allocation, for [`Packed::bytes_of_class`].
    #[inline]
    pub(crate) fn class(&self) -> u8 {
        self.block.class()
    }

    /// Returns [`Packed::allocated_bytes`] of one with this [`Packed::class`].
    #[inline]
    pub(crate) fn bytes_of_class(class: u8) -> usize {
        block::class_bytes(class)
    }

    /// Returns the bytes that `element` would add to [`Packed::bytes_len`].
    #[inline]
    pub fn bytes_of<'a>(element: impl Into<Element<'a>>) -> usize {
        Encoded::of(element.into()).total()
    }

    /// Returns true if there is room for this many more elements of this many bytes. Adding elements panics if there
    /// is not, so callers with large ones check first, or have lower limits.
    #[inline]
    pub fn has_room_for(&self, elements: usize, bytes: usize) -> bool {
        Self::LEN_MAX - self.len() >= elements && Self::BYTES_MAX - self.bytes_len() >= bytes
    }

    /// Returns the position of the first element, or the end.
    #[inline]
    pub fn start(&self) -> Position {
        Position(0)
    }

    /// Returns the position after the last element.
    #[inline]
    pub fn end(&self) -> Position {
        Position::of(self.block.used())
    }

    /// Returns the position of the first element.
    #[inline]
    pub fn first(&self) -> Option<Position> {
        (!self.is_empty()).then_some(Position(0))
    }

    /// Returns the position of the last element.
    #[inline]
    pub fn last(&self) -> Option<Position> {
        self.prev(self.end())
    }

    /// Returns the position after the element at `at`: that of the next one, or the end.
    ///
    /// # Panics
    ///
    /// If `at` is the end.
    #[inline]
    pub fn next(&self, at: Position) -> Position {
        Position::of(at.index() + total_at(self.block.bytes(), at.index()))
    }

    /// Returns the position of the element before `at`, which may be the end.
    #[inline]
    pub fn prev(&self, at: Position) -> Option<Position> {
        (at.index() > 0).then(|| Position::of(begin_of(self.block.bytes(), at.index())))
    }

    /// Returns the position of element number `index`, or the end if there are fewer elements. Walks from the nearer
    /// end.
    pub fn seek(&self, index: usize) -> Position {
        let behind = self.len().saturating_sub(index);
        if index <= behind {
            (0..index).fold(self.start(), |at, _| self.next(at))
        } else {
            let bytes = self.block.bytes();
            Position::of((0..behind).fold(bytes.len(), |end, _| begin_of(bytes, end)))
        }
    }

    /// Returns the position `count` elements after `at`, or the end if there are fewer.
    pub fn skip(&self, mut at: Position, count: usize) -> Position {
        let end = self.end();
        for _ in 0..count {
            if at == end {
                break;
            }
            at = self.next(at);
        }
        at
    }

    /// Returns the element at `at`.
    ///
    /// # Panics
    ///
    /// If `at` is the end.
    #[inline]
    pub fn get(&self, at: Position) -> Element<'_> {
        decode_at(self.block.bytes(), at.index())
    }

    /// Inserts an element before the one at `at`, which may be the end. `at` is then the position of the new one.
    #[inline]
    pub fn insert<'a>(&mut self, at: Position, element: impl Into<Element<'a>>) {
        self.put_within(at, element.into(), usize::MAX);
    }

    /// As [`Packed::insert`], if [`Packed::bytes_len`] stays at most `bytes_max`; otherwise `false`.
    #[inline]
    pub fn insert_within<'a>(
        &mut self,
        at: Position,
        element: impl Into<Element<'a>>,
        bytes_max: usize,
    ) -> bool {
        self.put_within(at, element.into(), bytes_max)
    }

    fn put_within(&mut self, at: Position, element: Element<'_>, bytes_max: usize) -> bool {
        let (element, count) = (element.compacted(), self.len() + 1);
        if let Some((ends, body)) = short_string(element) {
            let fits = self.bytes_len() + 2 + body.len() <= bytes_max;
            if fits {
                self.block.splice_short(at.index(), 0, ends, body, count);
            }
            return fits;
        }
        let encoded = Encoded::of(element);
        let fits = self.bytes_len() + encoded.total() <= bytes_max;
        if fits {
            self.put(at, 0, &encoded, count);
        }
        fits
    }

    /// Appends an element.
    #[inline]
    pub fn push_back<'a>(&mut self, element: impl Into<Element<'a>>) {
        self.insert(self.end(), element);
    }

    /// Inserts an element at the beginning.
    #[inline]
    pub fn push_front<'a>(&mut self, element: impl Into<Element<'a>>) {
        self.insert(self.start(), element);
    }

    /// Replaces the element at `at` by `element`.
    ///
    /// # Panics
    ///
    /// If `at` is the end.
    #[inline]
    pub fn replace<'a>(&mut self, at: Position, element: impl Into<Element<'a>>) {
        let removed = total_at(self.block.bytes(), at.index());
        let encoded = Encoded::of(element.into());
        self.put(at, removed, &encoded, self.len());
    }

    fn put(&mut self, at: Position, removed: usize, encoded: &Encoded<'_>, count: usize) {
        let tail = encoded.tail();
        let parts = [encoded.head.as_slice(), encoded.body, tail.as_slice()];
        self.block.splice(at.index(), removed, parts, count);
    }

    /// Removes up to `count` elements from `at` on. `at` is then the position of the elements after them.
    pub fn remove(&mut self, at: Position, count: usize) {
        let (mut end, mut removed) = (at, 0);
        while removed < count && end < self.end() {
            end = self.next(end);
            removed += 1;
        }
        let count = self.len() - removed;
        self.block.splice(at.index(), end.index() - at.index(), [&[]; 3], count);
    }

    /// Removes all elements and frees the memory.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Returns the position of the first element that equals `bytes`, among the one at `from` and every `stride`-th
    /// element after it.
    ///
    /// Compares encoded bytes: nothing is decoded, and nearly every other element fails at its first
    /// byte.
    ///
    /// # Panics
    ///
    /// If the stride is 0.
    pub fn find<'a>(
        &self,
        from: Position,
        element: impl Into<Element<'a>>,
        stride: usize,
    ) -> Option<Position> {
        assert!(stride > 0, "a search that does not move");
        let wanted = Encoded::of(element.into());
        let bytes = self.block.bytes();
        let mut at = from.index();
        while at < bytes.len() {
            if wanted.begins(&bytes[at..]) {
                return Some(Position::of(at));
            }
            for _ in 0..stride {
                if at < bytes.len() {
                    at += total_at(bytes, at);
                }
            }
        }
        None
    }

    /// Returns all elements in their order, from either end.
    #[inline]
    pub fn iter(&self) -> Iter<'_> {
        Iter::new(self.block.bytes(), 0)
    }

    /// Returns the elements from `at` on.
    #[inline]
    pub fn iter_from(&self, at: Position) -> Iter<'_> {
        Iter::new(self.block.bytes(), at.index())
    }

    /// Returns the elements before `at`; `iter_until(at).rev()` begins with the nearest one.
    #[inline]
    pub fn iter_until(&self, at: Position) -> Iter<'_> {
        Iter::new(&self.block.bytes()[..at.index()], 0)
    }

    /// Appends copies of all elements of `other`.
    pub fn append(&mut self, other: &Self) {
        self.insert_all(self.end(), other);
    }

    /// Inserts copies of all elements of `other` before the one at `at`, which may be the end.
    pub fn insert_all(&mut self, at: Position, other: &Self) {
        let count = self.len() + other.len();
        self.block.splice(at.index(), 0, [other.block.bytes(), &[], &[]], count);
    }

    /// Splits off the elements from `at` on and returns them.
    #[must_use]
    pub fn split_off(&mut self, at: Position) -> Self {
        let behind = self.iter_from(at).count();
        let mut cut = Self::new();
        cut.block.splice(0, 0, [&self.block.bytes()[at.index()..], &[], &[]], behind);
        let (removed, count) = (self.block.used() - at.index(), self.len() - behind);
        self.block.splice(at.index(), removed, [&[]; 3], count);
        cut
    }

    /// Splits off the elements before `at` and returns them.
    #[must_use]
    pub fn split_front(&mut self, at: Position) -> Self {
        let cut_count = self.iter_until(at).count();
        let mut cut = Self::new();
        cut.block.splice(0, 0, [&self.block.bytes()[..at.index()], &[], &[]], cut_count);
        let count = self.len() - cut_count;
        self.block.splice(0, at.index(), [&[]; 3], count);
        cut
    }

    /// Frees the unused memory left over from growing or shrinking, see [`size_class`].
    ///
    /// [`size_class`]: crate::size_class
    pub fn shrink_to_fit(&mut self) {
        self.block.shrink_to_fit();
    }

    /// Returns a copy without spare capacity.
    pub fn duplicate(&self) -> Self {
        let mut copy = Self::new();
        copy.append(self);
        copy
    }

    /// Returns the stored bytes of all elements, which are those of a Redis listpack without its header of six bytes
    /// and its last byte.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.block.bytes()
    }

    /// Converts it into one pointer, aligned to 8 bytes. The memory leaks unless [`Packed::from_raw`] takes it back.
    #[inline]
    #[must_use]
    pub fn into_raw(self) -> NonNull<u8> {
        self.block.into_raw()
    }

    /// Converts the result of [`Packed::into_raw`] back.
    ///
    /// # Safety
    ///
    /// The pointer must come from a call of `into_raw`, and must not be used again.
    #[inline]
    pub unsafe fn from_raw(pointer: NonNull<u8>) -> Self {
        // SAFETY: as the caller guarantees.
        Self { block: unsafe { Block::from_raw(pointer) } }
    }
}

impl Default for Packed {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> IntoIterator for &'a Packed {
    type Item = Element<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

#[cfg(test)]
mod tests;
