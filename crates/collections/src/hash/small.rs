//! A small hash: its fields in one block.
//!
//! [`Pairs`] alternate names and values. [`Triples`] have a deadline after each value, 0 for none.

use std::ptr::NonNull;

use super::field::{FieldRef, Former};
use crate::packed::{self, Element, Packed, Position};
use crate::raw_box::allocated_bytes_of;

/// Maximum number of fields in one block, whatever the limits say: every operation scans the block.
const FIELDS_MAX: usize = 1 << 20;

/// Maximum number of bytes in one block, as in Redis.
const BYTES_MAX: usize = 1 << 30;

const _: () = assert!(3 * FIELDS_MAX <= Packed::LEN_MAX && 2 * BYTES_MAX <= Packed::BYTES_MAX);

/// Caps the limit for the number of fields.
pub(super) fn clamp(entries_max: usize) -> usize {
    entries_max.min(FIELDS_MAX)
}

/// Names and values, alternating.
#[derive(Debug)]
pub(super) struct Pairs {
    block: Packed,
}

impl Pairs {
    pub(super) fn new() -> Self {
        Self { block: Packed::new() }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.block.len() / 2
    }

    #[inline]
    pub(super) fn allocated_bytes(&self) -> usize {
        self.block.allocated_bytes()
    }

    /// Returns true if strings of this many bytes can be added.
    pub(super) fn has_room_for(&self, bytes: usize) -> bool {
        self.block.bytes_len().saturating_add(bytes) <= BYTES_MAX
    }

    #[inline]
    fn find(&self, name: &[u8]) -> Option<Position> {
        self.block.find(self.block.start(), name, 2)
    }

    #[inline]
    pub(super) fn get(&self, name: &[u8]) -> Option<FieldRef<'_>> {
        self.find(name).and_then(|at| self.iter_from(at).next())
    }

    pub(super) fn put(&mut self, name: &[u8], value: &[u8]) -> Former {
        match self.find(name) {
            Some(at) => {
                self.block.replace(self.block.next(at), value);
                Former::Field(None)
            }
            None => {
                self.block.push_back(name);
                self.block.push_back(value);
                Former::Absent
            }
        }
    }

    pub(super) fn remove(&mut self, name: &[u8]) -> Former {
        let Some(at) = self.find(name) else { return Former::Absent };
        self.block.remove(at, 2);
        Former::Field(None)
    }

    pub(super) fn iter(&self) -> Iter<'_> {
        self.iter_from(self.block.start())
    }

    fn iter_from(&self, at: Position) -> Iter<'_> {
        Iter { elements: self.block.iter_from(at), left: self.len(), has_deadlines: false }
    }

    pub(super) fn at(&self, index: usize) -> Option<FieldRef<'_>> {
        self.iter_from(self.block.seek(2 * index)).next()
    }

    pub(super) fn duplicate(&self) -> Self {
        Self { block: self.block.duplicate() }
    }

    #[inline]
    pub(super) fn into_raw(self) -> NonNull<u8> {
        self.block.into_raw()
    }

    /// # Safety
    ///
    /// As for [`Packed::from_raw`].
    #[inline]
    pub(super) unsafe fn from_raw(pointer: NonNull<u8>) -> Self {
        // SAFETY: as the caller guarantees.
        Self { block: unsafe { Packed::from_raw(pointer) } }
    }
}

/// Names, values and deadlines, alternating.
#[derive(Debug)]
pub(super) struct Triples {
    block: Packed,
    /// Lower bound of all deadlines.
    next_deadline_ms: i64,
}

/// Placeholder for no deadline. No deadline is that early: an expired deadline removes its field instead of being set.
const NONE: i64 = 0;

impl Triples {
    pub(super) fn new() -> Self {
        Self { block: Packed::new(), next_deadline_ms: i64::MAX }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.block.len() / 3
    }

    #[inline]
    pub(super) fn allocated_bytes(&self) -> usize {
        allocated_bytes_of::<Self>() + self.block.allocated_bytes()
    }

    /// Returns true if strings of this many bytes can be added.
    pub(super) fn has_room_for(&self, bytes: usize) -> bool {
        self.block.bytes_len().saturating_add(bytes) <= BYTES_MAX
    }

    /// See [`super::Hash::next_deadline_ms`].
    #[inline]
    pub(super) fn next_deadline_ms(&self) -> Option<i64> {
        (self.next_deadline_ms != i64::MAX).then_some(self.next_deadline_ms)
    }

    #[inline]
    fn find(&self, name: &[u8]) -> Option<Position> {
        self.block.find(self.block.start(), name, 3)
    }

    /// Returns the field with this name, even if expired.
    #[inline]
    pub(super) fn get(&self, name: &[u8]) -> Option<FieldRef<'_>> {
        self.find(name).and_then(|at| self.iter_from(at).next())
    }

    pub(super) fn put(&mut self, name: &[u8], value: &[u8], deadline_ms: Option<i64>) -> Former {
        let Some(at) = self.find(name) else {
            let (name, value) = (Element::Bytes(name), Element::Bytes(value));
            self.push(FieldRef { name, value, deadline_ms });
            return Former::Absent;
        };
        let value_at = self.block.next(at);
        self.block.replace(value_at, value);
        self.replace_deadline(self.block.next(value_at), deadline_ms)
    }

    /// Adds a field that does not exist.
    pub(super) fn push(&mut self, field: FieldRef<'_>) {
        self.block.push_back(field.name);
        self.block.push_back(field.value);
        self.block.push_back(field.deadline_ms.unwrap_or(NONE));
        self.note(field.deadline_ms);
    }

    pub(super) fn set_deadline(&mut self, name: &[u8], deadline_ms: Option<i64>) -> Former {
        let Some(at) = self.find(name) else { return Former::Absent };
        self.replace_deadline(self.block.skip(at, 2), deadline_ms)
    }

    fn replace_deadline(&mut self, at: Position, deadline_ms: Option<i64>) -> Former {
        let former = deadline_of(self.block.get(at));
        if former != deadline_ms {
            self.block.replace(at, deadline_ms.unwrap_or(NONE));
            self.note(deadline_ms);
        }
        Former::Field(former)
    }

    fn note(&mut self, deadline_ms: Option<i64>) {
        self.next_deadline_ms = self.next_deadline_ms.min(deadline_ms.unwrap_or(i64::MAX));
    }

    pub(super) fn remove(&mut self, name: &[u8]) -> Former {
        let Some(at) = self.find(name) else { return Former::Absent };
        let former = deadline_of(self.block.get(self.block.skip(at, 2)));
        self.block.remove(at, 3);
        Former::Field(former)
    }

    /// See [`super::Hash::deadline_after`].
    pub(super) fn deadline_after(&mut self, now_ms: i64) -> Option<i64> {
        let deadlines = || self.iter().filter_map(|field| field.deadline_ms);
        let (earliest, next) = (deadlines().min(), deadlines().filter(|at| *at > now_ms).min());
        self.next_deadline_ms = earliest.unwrap_or(i64::MAX);
        next
    }

    /// Removes all expired fields.
    pub(super) fn reap(&mut self, now_ms: i64, mut gone: impl FnMut(FieldRef<'_>)) {
        if self.next_deadline_ms > now_ms {
            return;
        }
        let mut kept = Self::new();
        for field in self.iter() {
            if field.is_live(now_ms) {
                kept.push(field);
            } else {
                gone(field);
            }
        }
        *self = kept;
    }

    pub(super) fn iter(&self) -> Iter<'_> {
        self.iter_from(self.block.start())
    }

    fn iter_from(&self, at: Position) -> Iter<'_> {
        Iter { elements: self.block.iter_from(at), left: self.len(), has_deadlines: true }
    }

    pub(super) fn at(&self, index: usize) -> Option<FieldRef<'_>> {
        self.iter_from(self.block.seek(3 * index)).next()
    }

    pub(super) fn duplicate(&self) -> Self {
        Self { block: self.block.duplicate(), ..*self }
    }
}

fn deadline_of(element: Element<'_>) -> Option<i64> {
    element.to_int().filter(|deadline_ms| *deadline_ms != NONE)
}

/// The fields of a block.
#[derive(Debug, Clone)]
pub(super) struct Iter<'a> {
    elements: packed::Iter<'a>,
    left: usize,
    has_deadlines: bool,
}

impl<'a> Iterator for Iter<'a> {
    type Item = FieldRef<'a>;

    #[inline]
    fn next(&mut self) -> Option<FieldRef<'a>> {
        let (name, value) = (self.elements.next()?, self.elements.next()?);
        let deadline_ms =
            if self.has_deadlines { deadline_of(self.elements.next()?) } else { None };
        self.left -= 1;
        Some(FieldRef { name, value, deadline_ms })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}
