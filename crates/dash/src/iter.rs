//! Iteration over all entries at once, by reference or by value.

use crate::bucket::SlotSet;
use crate::directory::Segments;
use crate::hash::EntryHash;
use crate::segment::{Drain, Segment};
use crate::table::Table;
use core::iter::FusedIterator;

impl<T> Table<T> {
    /// Returns all entries, roughly in the order of the axis. For a table that changes in between, use
    /// [`Table::scan`].
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { segments: self.segments(), entries: None, left: self.len() }
    }

    /// As [`Table::iter`], but prefetches entries before they are returned ([`EntryHash::prefetch_to_visit`]), which
    /// pays if the memory behind them is scattered.
    pub fn iter_ahead<H: EntryHash<T>>(&self, hasher: H) -> IterAhead<'_, T, H> {
        let (mut entries, left) = (self.iter(), self.len());
        let ahead = std::array::from_fn(|_| {
            entries.next().inspect(|entry| hasher.prefetch_to_visit(entry))
        });
        IterAhead { entries, hasher, ahead, at: 0, left }
    }
}

/// Iterator over the entries of a table; see [`Table::iter`].
pub struct Iter<'a, T> {
    segments: Segments<'a, T>,
    entries: Option<Entries<'a, T>>,
    left: usize,
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        loop {
            if let Some(entry) = self.entries.as_mut().and_then(Iterator::next) {
                self.left -= 1;
                return Some(entry);
            }
            self.entries = Some(Entries::of(self.segments.next()?));
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<T> ExactSizeIterator for Iter<'_, T> {}
impl<T> FusedIterator for Iter<'_, T> {}

/// Number of entries that are prefetched at once: about the number of fill buffers of a core.
const AHEAD: usize = 12;

/// Iterator over the entries of a table; see [`Table::iter_ahead`].
pub struct IterAhead<'a, T, H> {
    entries: Iter<'a, T>,
    hasher: H,
    /// A ring of announced entries; `None` after the last one.
    ahead: [Option<&'a T>; AHEAD],
    /// Index of the next one to be returned.
    at: usize,
    left: usize,
}

impl<'a, T, H: EntryHash<T>> Iterator for IterAhead<'a, T, H> {
    type Item = &'a T;

    #[inline]
    fn next(&mut self) -> Option<&'a T> {
        let entry = self.ahead[self.at]?;
        let announced = self.entries.next();
        self.ahead[self.at] = announced.inspect(|entry| self.hasher.prefetch_to_visit(entry));
        self.at = (self.at + 1) % AHEAD;
        self.left -= 1;
        Some(entry)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<T, H: EntryHash<T>> ExactSizeIterator for IterAhead<'_, T, H> {}
impl<T, H: EntryHash<T>> FusedIterator for IterAhead<'_, T, H> {}

impl<'a, T> IntoIterator for &'a Table<T> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// The entries of one segment.
struct Entries<'a, T> {
    segment: &'a Segment<T>,
    bucket: usize,
    occupied: SlotSet,
}

impl<'a, T> Entries<'a, T> {
    fn of(segment: &'a Segment<T>) -> Self {
        Self { segment, bucket: 0, occupied: segment.bucket_at(0).occupied() }
    }
}

impl<'a, T> Iterator for Entries<'a, T> {
    type Item = &'a T;

    #[inline]
    fn next(&mut self) -> Option<&'a T> {
        loop {
            if let Some(slot) = self.occupied.next() {
                return Some(self.segment.bucket_at(self.bucket).entry(slot));
            }
            if self.bucket + 1 == self.segment.bucket_count() {
                return None;
            }
            self.bucket += 1;
            self.occupied = self.segment.bucket_at(self.bucket).occupied();
        }
    }
}

impl<T> IntoIterator for Table<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    /// Returns all entries by value. Entries that are not taken are dropped with the iterator, segment by segment, and
    /// memory is freed as the iterator proceeds.
    fn into_iter(self) -> IntoIter<T> {
        let left = self.len();
        IntoIter { segments: self.into_segments().into_iter(), entries: None, left }
    }
}

/// Iterator that owns the entries of a table.
pub struct IntoIter<T> {
    segments: std::vec::IntoIter<Segment<T>>,
    entries: Option<Drain<T>>,
    left: usize,
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        loop {
            if let Some((_, entry)) = self.entries.as_mut().and_then(Iterator::next) {
                self.left -= 1;
                return Some(entry);
            }
            self.entries = Some(self.segments.next()?.drain());
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<T> ExactSizeIterator for IntoIter<T> {}
impl<T> FusedIterator for IntoIter<T> {}
