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

    fn is_limited(&self) -> bool {
        self.entries != usize::MAX || self.bytes != usize::MAX
    }

    /// Takes the room of one entry.
    pub(super) fn add(&mut self, bytes: impl FnOnce() -> usize) {
        if self.is_limited() {
            self.entries = self.entries.saturating_sub(1);
            self.bytes = self.bytes.saturating_sub(bytes());
            self.has_entry = true;
        }
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
        let mut taken = 0;
        for entry in entries.take(count) {
            if self.is_full() {
                break;
            }
            self.add(|| reply::entry_bytes(&entry));
            taken += 1;
        }
        taken
    }
}
