//! Iterators over packed elements.

use std::iter::FusedIterator;

use super::encoding::{begin_of, decode_at, total_at};
use super::{Element, Position};

/// Elements of a [`Packed`](super::Packed), from either end.
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    /// Ends at the end of the iteration.
    bytes: &'a [u8],
    /// Start of the next element from the front.
    front: usize,
}

impl<'a> Iter<'a> {
    #[inline]
    pub(super) fn new(bytes: &'a [u8], front: usize) -> Self {
        Self { bytes, front }
    }

    /// Creates an empty iterator.
    #[inline]
    pub fn empty() -> Self {
        Self { bytes: &[], front: 0 }
    }

    /// Returns the position of the element that `next` returns.
    #[inline]
    pub fn position(&self) -> Position {
        Position::of(self.front)
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        if self.front >= self.bytes.len() {
            return None;
        }
        let at = self.front;
        self.front += total_at(self.bytes, at);
        Some(decode_at(self.bytes, at))
    }

    fn count(self) -> usize {
        let (mut at, mut count) = (self.front, 0);
        while at < self.bytes.len() {
            at += total_at(self.bytes, at);
            count += 1;
        }
        count
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.front >= self.bytes.len() {
            return None;
        }
        let at = begin_of(self.bytes, self.bytes.len());
        let element = decode_at(self.bytes, at);
        self.bytes = &self.bytes[..at];
        Some(element)
    }
}

impl FusedIterator for Iter<'_> {}
