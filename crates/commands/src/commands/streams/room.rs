//! Limits of a whole reply with entries: MAXCOUNT and MAXSIZE.

use tierce_collections::stream::Entry;

use super::reply;

/// Remaining limits.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) entries: usize,
    pub(super) bytes: usize,
    has_entry: bool,
}

impl Room {
    /// Room without limits.
    pub(super) const ANY: Self = Self { entries: usize::MAX, bytes: usize::MAX, has_entry: false };

    /// Returns true if no entry may follow. The first one always may, whatever its size.
    pub(super) fn is_full(&self) -> bool {
        self.entries == 0 || self.has_entry && self.bytes == 0
    }

    pub(super) fn is_limited(&self) -> bool {
        self.entries != usize::MAX || self.bytes != usize::MAX
    }

    /// Returns this room, but for at most `count` entries.
    pub(super) fn at_most(self, count: usize) -> Self {
        Self { entries: self.entries.min(count), ..self }
    }

    /// Takes the room of one entry.
    pub(super) fn add(&mut self, bytes: impl FnOnce() -> usize) {
        if self.is_limited() {
            self.entries = self.entries.saturating_sub(1);
            self.has_entry = true;
        }
        if self.bytes != usize::MAX {
            self.bytes = self.bytes.saturating_sub(bytes());
        }
    }

    /// Takes the room of one entry if it may follow. Returns true then.
    pub(super) fn admit(&mut self, bytes: impl FnOnce() -> usize) -> bool {
        let may_follow = !self.is_full();
        if may_follow {
            self.add(bytes);
        }
        may_follow
    }

    /// Returns those of these entries that would be taken.
    pub(super) fn fitting<'s>(
        mut self,
        entries: impl Iterator<Item = Entry<'s>>,
    ) -> impl Iterator<Item = Entry<'s>> {
        entries.take_while(move |entry| self.admit(|| reply::entry_bytes(entry)))
    }

    /// Takes the room of the first of these entries. Returns their number, at most `count`; without limits, `count`.
    pub(super) fn take<'s>(
        &mut self,
        count: usize,
        entries: impl Iterator<Item = Entry<'s>>,
    ) -> usize {
        if !self.is_limited() {
            return count;
        }
        entries.take(count).take_while(|entry| self.admit(|| reply::entry_bytes(entry))).count()
    }
}
