//! Facts of an entry that the figures of a shard follow, before and after a change.

use tierce_storage::ColdLocation;

use crate::change::Change;
use crate::data::collections::CollectionType;
use crate::data::entry::Entry;

/// What the figures have to know of an entry.
#[derive(Clone, Copy)]
pub(crate) struct Accounting {
    pub(crate) bytes: usize,
    pub(crate) deadline_ms: Option<i64>,
    /// That of its fields, if it is a hash.
    pub(crate) fields_ms: Option<i64>,
    pub(crate) cold: ColdAccounting,
}

impl Accounting {
    /// Of a key that is not there.
    pub(crate) const NONE: Self =
        Self { bytes: 0, deadline_ms: None, fields_ms: None, cold: ColdAccounting::NONE };

    #[inline]
    pub(crate) fn of(entry: &Entry) -> Self {
        Self {
            bytes: entry.allocated_bytes(),
            deadline_ms: entry.deadline_ms(),
            fields_ms: entry.next_field_deadline_ms(),
            cold: ColdAccounting::of(entry),
        }
    }
}

/// What the figures have to know of a collection. Its entry stays as it is when it is edited.
#[derive(Clone, Copy)]
pub(crate) struct CollectionAccounting {
    pub(crate) bytes: usize,
    /// The deadline of its fields, if it is a hash with such.
    pub(crate) fields_ms: Option<i64>,
}

impl CollectionAccounting {
    #[inline]
    pub(crate) fn of<T: CollectionType>(value: &T) -> Self {
        Self { bytes: value.allocated_bytes(), fields_ms: value.next_deadline_ms() }
    }
}

/// What the figures have to know of an entry's location on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ColdAccounting {
    pub(crate) location: Option<ColdLocation>,
    /// The value is nowhere else.
    pub(crate) is_spilled: bool,
    /// The entry lives on elsewhere, and the location with it.
    pub(crate) is_moved: bool,
}

impl ColdAccounting {
    pub(crate) const NONE: Self = Self { location: None, is_spilled: false, is_moved: false };

    #[inline]
    pub(crate) fn of(entry: &Entry) -> Self {
        Self { location: entry.location(), is_spilled: entry.is_spilled(), is_moved: false }
    }

    /// What a change of an entry is to others, given what the entry was before. A value in memory that
    /// has changed is not the one on disk any more, and it has to be logged as a whole: readers of the
    /// log do not know the old one.
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
