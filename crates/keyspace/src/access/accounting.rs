//! Properties of an entry, before and after a change, from which the figures of a shard are updated.

use tierce_collections::CollectionKind;
use tierce_storage::ColdLocation;

use crate::change::Change;
use crate::data::collections::CollectionType;
use crate::data::entry::Entry;

/// Accounting data of an entry.
#[derive(Clone, Copy)]
pub(crate) struct Accounting {
    pub(crate) bytes: usize,
    pub(crate) deadline_ms: Option<i64>,
    /// Earliest deadline of an element, if it is a hash or a set.
    pub(crate) elements: Option<ElementDeadline>,
    pub(crate) cold: ColdAccounting,
}

impl Accounting {
    /// Data of an absent key.
    pub(crate) const NONE: Self =
        Self { bytes: 0, deadline_ms: None, elements: None, cold: ColdAccounting::NONE };

    #[inline]
    pub(crate) fn of(entry: &Entry) -> Self {
        Self {
            bytes: entry.allocated_bytes(),
            deadline_ms: entry.deadline_ms(),
            elements: ElementDeadline::of(entry),
            cold: ColdAccounting::of(entry),
        }
    }
}

/// Accounting data of a collection. An edit does not change the entry of the collection.
#[derive(Clone, Copy)]
pub(crate) struct CollectionAccounting {
    pub(crate) bytes: usize,
    /// Earliest deadline of an element, if it is a hash or a set with such.
    pub(crate) elements: Option<ElementDeadline>,
}

impl CollectionAccounting {
    #[inline]
    pub(crate) fn of<T: CollectionType>(value: &T) -> Self {
        let elements = value.next_deadline_ms().map(|ms| ElementDeadline { ms, kind: T::KIND });
        Self { bytes: value.allocated_bytes(), elements }
    }
}

/// Earliest deadline of an element of a collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ElementDeadline {
    pub(crate) ms: i64,
    pub(crate) kind: CollectionKind,
}

impl ElementDeadline {
    #[inline]
    fn of(entry: &Entry) -> Option<Self> {
        // A string pays for this check only.
        entry.raw_collection().and_then(|_| Self::of_collection(entry))
    }

    #[inline(never)]
    fn of_collection(entry: &Entry) -> Option<Self> {
        let ms = entry.next_field_deadline_ms()?;
        let (form, _) = entry.raw_collection()?;
        Some(Self { ms, kind: form.kind() })
    }
}

/// Accounting data of an entry's location on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ColdAccounting {
    pub(crate) location: Option<ColdLocation>,
    /// The value is only on disk.
    pub(crate) is_spilled: bool,
    /// The entry lives on under another key, and keeps the location.
    pub(crate) is_moved: bool,
}

impl ColdAccounting {
    pub(crate) const NONE: Self = Self { location: None, is_spilled: false, is_moved: false };

    #[inline]
    pub(crate) fn of(entry: &Entry) -> Self {
        Self { location: entry.location(), is_spilled: entry.is_spilled(), is_moved: false }
    }

    /// Returns the change as listeners see it, given the entry's previous location. If a value in memory with a copy
    /// on disk has changed, the copy is obsolete and the whole value must be logged: readers of the log do not know
    /// the old one.
    #[inline]
    pub(crate) fn change(self, entry: &mut Entry, change: Change) -> Change {
        if self.location.is_none() { change } else { self.change_of_copied(entry, change) }
    }

    #[cold]
    fn change_of_copied(self, entry: &mut Entry, change: Change) -> Change {
        if matches!(change, Change::Deadline | Change::Marked | Change::Noted) || entry.is_spilled()
        {
            return change;
        }
        if entry.location() == self.location {
            entry.forget_copy();
        }
        Change::Stored
    }

    pub(crate) fn spilled_len(self) -> Option<u64> {
        self.location.filter(|_| self.is_spilled).map(|location| location.len.into())
    }
}
