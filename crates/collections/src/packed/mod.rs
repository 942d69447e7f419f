//! Small collections: elements in sequence in one allocation.
//!
//! A [`Packed`] is a sequence of byte strings, in 16 to some thousand bytes, behind one pointer. An element of up
//! to 63 bytes takes two bytes more than its text, an integer two to ten bytes in all. Walking is possible in both
//! directions from any [`Position`]. All other operations scan, reading memory sequentially, which is why this
//! is for small collections and for nodes of large ones.
//!
//! Memory grows and shrinks by the allocator's size classes. An empty one has none.
//!
//! It does not know what elements mean: a hash alternates fields and values, and passes a `stride` of 2 to
//! search fields only.

mod block;
mod element;
mod encoding;
mod iter;

use std::fmt;
use std::ptr::NonNull;

use block::Block;
use encoding::{Encoded, begin_of, decode_at, total_at};

pub use element::Element;
pub use iter::Iter;

/// A sequence of byte strings in one allocation.
pub struct Packed {
    block: Block,
}

/// Where an element begins, or the end, where the next one would.
///
/// It belongs to the [`Packed`] that it came from, and to that as it is now: an edit makes all
/// positions at and behind it void. A void position may panic or meet the wrong bytes.
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
    /// The most elements of one.
    pub const LEN_MAX: usize = block::COUNT_MAX;

    /// The most bytes of one.
    pub const BYTES_MAX: usize = block::USED_MAX;

    /// One without elements. Allocates nothing.
    #[inline]
    pub const fn new() -> Self {
        Self { block: Block::new() }
    }

    /// One without elements, with room for `bytes` in the sense of [`Packed::bytes_len`].
    pub fn with_capacity(bytes: usize) -> Self {
        let mut block = Block::new();
        block.reserve(bytes);
        Self { block }
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.block.count()
    }

    /// Whether there are no elements.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all elements with what frames them.
    #[inline]
    pub fn bytes_len(&self) -> usize {
        self.block.used()
    }

    /// The same of the elements from `at` on.
    #[inline]
    pub fn bytes_from(&self, at: Position) -> usize {
        self.bytes_len() - at.index()
    }

    /// The bytes it owns, as the allocator counts them.
    #[inline]
    pub fn allocated_bytes(&self) -> usize {
        self.block.allocated_bytes()
    }

    /// Bytes that `element` would add to [`Packed::bytes_len`].
    #[inline]
    pub fn bytes_of<'a>(element: impl Into<Element<'a>>) -> usize {
        Encoded::of(element.into()).total()
    }

    /// Whether there is room for so many more elements of this many bytes. What adds elements panics if
    /// there is not, so callers that keep large ones ask, or have lower limits.
    #[inline]
    pub fn has_room_for(&self, elements: usize, bytes: usize) -> bool {
        Self::LEN_MAX - self.len() >= elements && Self::BYTES_MAX - self.bytes_len() >= bytes
    }

    /// Where the first element is, or the end.
    #[inline]
    pub fn start(&self) -> Position {
        Position(0)
    }

    /// Behind the last element.
    #[inline]
    pub fn end(&self) -> Position {
        Position::of(self.block.used())
    }

    /// The position of the first element.
    #[inline]
    pub fn first(&self) -> Option<Position> {
        (!self.is_empty()).then_some(Position(0))
    }

    /// The position of the last element.
    #[inline]
    pub fn last(&self) -> Option<Position> {
        self.prev(self.end())
    }

    /// The position behind the element at `at`: that of the next one, or the end.
    ///
    /// # Panics
    ///
    /// If `at` is the end.
    #[inline]
    pub fn next(&self, at: Position) -> Position {
        Position::of(at.index() + total_at(self.block.bytes(), at.index()))
    }

    /// The position of the element before `at`, which may be the end.
    #[inline]
    pub fn prev(&self, at: Position) -> Option<Position> {
        (at.index() > 0).then(|| Position::of(begin_of(self.block.bytes(), at.index())))
    }

    /// The position of element number `index`, or the end if there are fewer elements. Comes from
    /// the nearer end.
    pub fn seek(&self, index: usize) -> Position {
        let behind = self.len().saturating_sub(index);
        if index <= behind {
            (0..index).fold(self.start(), |at, _| self.next(at))
        } else {
            let bytes = self.block.bytes();
            Position::of((0..behind).fold(bytes.len(), |end, _| begin_of(bytes, end)))
        }
    }

    /// The position `count` elements behind `at`, or the end if there are fewer.
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

    /// The element at `at`.
    ///
    /// # Panics
    ///
    /// If `at` is the end.
    #[inline]
    pub fn get(&self, at: Position) -> Element<'_> {
        decode_at(self.block.bytes(), at.index())
    }

    /// Puts an element before the one at `at`, which may be the end. `at` is the new one's position then.
    #[inline]
    pub fn insert<'a>(&mut self, at: Position, element: impl Into<Element<'a>>) {
        let encoded = Encoded::of(element.into());
        self.put(at, 0, &encoded, self.len() + 1);
    }

    /// The same if that leaves [`Packed::bytes_len`] at most `bytes_max`; otherwise `false`.
    #[inline]
    pub fn insert_within<'a>(
        &mut self,
        at: Position,
        element: impl Into<Element<'a>>,
        bytes_max: usize,
    ) -> bool {
        let encoded = Encoded::of(element.into());
        let fits = self.bytes_len() + encoded.total() <= bytes_max;
        if fits {
            self.put(at, 0, &encoded, self.len() + 1);
        }
        fits
    }

    /// Puts an element at the end.
    #[inline]
    pub fn push_back<'a>(&mut self, element: impl Into<Element<'a>>) {
        self.insert(self.end(), element);
    }

    /// Puts an element at the beginning.
    #[inline]
    pub fn push_front<'a>(&mut self, element: impl Into<Element<'a>>) {
        self.insert(self.start(), element);
    }

    /// Puts `element` in the place of the one at `at`.
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

    #[inline]
    fn put(&mut self, at: Position, removed: usize, encoded: &Encoded<'_>, count: usize) {
        let tail = encoded.tail();
        let parts = [encoded.head.as_slice(), encoded.body, tail.as_slice()];
        self.block.splice(at.index(), removed, parts, count);
    }

    /// Removes `count` elements from `at` on, or those that there are. `at` is the position of what
    /// follows then.
    pub fn remove(&mut self, at: Position, count: usize) {
        let (mut end, mut removed) = (at, 0);
        while removed < count && end < self.end() {
            end = self.next(end);
            removed += 1;
        }
        let count = self.len() - removed;
        self.block.splice(at.index(), end.index() - at.index(), [&[]; 3], count);
    }

    /// Removes all elements and gives the memory back.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// The position of the first element that equals `bytes` among those at `from` and every
    /// `stride` elements behind it.
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

    /// All elements in their order, from either end.
    #[inline]
    pub fn iter(&self) -> Iter<'_> {
        Iter::new(self.block.bytes(), 0)
    }

    /// The elements from `at` on.
    #[inline]
    pub fn iter_from(&self, at: Position) -> Iter<'_> {
        Iter::new(self.block.bytes(), at.index())
    }

    /// The elements before `at`; those of `iter_until(at).rev()` begin with the nearest one.
    #[inline]
    pub fn iter_until(&self, at: Position) -> Iter<'_> {
        Iter::new(&self.block.bytes()[..at.index()], 0)
    }

    /// Puts copies of all elements of `other` at the end.
    pub fn append(&mut self, other: &Self) {
        self.insert_all(self.end(), other);
    }

    /// Puts copies of all elements of `other` before the one at `at`, which may be the end.
    pub fn insert_all(&mut self, at: Position, other: &Self) {
        let count = self.len() + other.len();
        self.block.splice(at.index(), 0, [other.block.bytes(), &[], &[]], count);
    }

    /// Cuts off the elements from `at` on and returns them.
    #[must_use]
    pub fn split_off(&mut self, at: Position) -> Self {
        let behind = self.iter_from(at).count();
        let mut cut = Self::new();
        cut.block.splice(0, 0, [&self.block.bytes()[at.index()..], &[], &[]], behind);
        let (removed, count) = (self.block.used() - at.index(), self.len() - behind);
        self.block.splice(at.index(), removed, [&[]; 3], count);
        cut
    }

    /// Cuts off the elements before `at` and returns them.
    #[must_use]
    pub fn split_front(&mut self, at: Position) -> Self {
        let cut_count = self.iter_until(at).count();
        let mut cut = Self::new();
        cut.block.splice(0, 0, [&self.block.bytes()[..at.index()], &[], &[]], cut_count);
        let count = self.len() - cut_count;
        self.block.splice(0, at.index(), [&[]; 3], count);
        cut
    }

    /// Gives back the memory that growing or shrinking has left over, see [`size_class`].
    ///
    /// [`size_class`]: crate::size_class
    pub fn shrink_to_fit(&mut self) {
        self.block.shrink_to_fit();
    }

    /// A copy without spare capacity.
    pub fn duplicate(&self) -> Self {
        let mut copy = Self::new();
        copy.append(self);
        copy
    }

    /// The bytes of all elements as they lie, which are those of a Redis listpack without its header
    /// of six bytes and its last byte.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.block.bytes()
    }

    /// Gives it away as one pointer, aligned to 8 bytes. The memory is lost unless
    /// [`Packed::from_raw`] takes it back.
    #[inline]
    #[must_use]
    pub fn into_raw(self) -> NonNull<u8> {
        self.block.into_raw()
    }

    /// Takes back what [`Packed::into_raw`] gave away.
    ///
    /// # Safety
    ///
    /// The pointer must come from a call of `into_raw`, and must not be used again.
    #[inline]
    pub unsafe fn from_raw(pointer: NonNull<u8>) -> Self {
        // SAFETY: the caller's promise.
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
