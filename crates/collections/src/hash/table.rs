//! A large hash: an unordered table of fields.

use tierce_dash::{EntryHash, IterAhead, Table, prefetch_read};

use super::deadlines::{Deadlines, Item};
use super::field::Field;
use super::field::{FieldRef, Former};
use crate::incremental_snapshot::{CopyOwned, IncrementalSnapshot, SnapshotProgress};
use crate::prefetch::prefetch;
use crate::raw_box::allocated_bytes_of;
use crate::seed::hash_bytes;
use crate::text_int::IntText;

/// Minimum number of deadline items that are examined one by one: some microseconds.
const ITEMS_MIN: usize = 64;

#[derive(Debug, Default)]
pub(super) struct FieldTable {
    table: Table<Field>,
    /// Memory that the fields own.
    field_bytes: usize,
    /// Number of fields with a deadline.
    volatile: usize,
    deadlines: Deadlines,
    /// Set while the hash is being saved.
    pub(super) snapshot: Option<Box<IncrementalSnapshot<Field>>>,
}

/// Iterator over all fields.
pub(super) type Fields<'a> = IterAhead<'a, Field, ByName>;

/// Computes the hash of a field for the table.
pub(super) struct ByName;

impl EntryHash<Field> for ByName {
    #[inline]
    fn hash(&self, field: &Field) -> u64 {
        hash_bytes(field.name())
    }

    #[inline]
    fn prefetch(&self, field: &Field) {
        prefetch_read(field.address());
    }
}

impl CopyOwned for Field {
    fn owned_bytes(&self) -> usize {
        self.allocated_bytes()
    }
}

impl FieldTable {
    /// Returns the number of fields, including expired ones.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns all bytes of memory, including this struct, which is in an allocation of its own.
    #[inline]
    pub(super) fn allocated_bytes(&self) -> usize {
        allocated_bytes_of::<Self>()
            + self.table.memory_bytes()
            + self.field_bytes
            + self.deadlines.memory_bytes()
    }

    /// Returns all bytes of memory without the fields.
    #[cfg(test)]
    pub(super) fn empty_bytes(&self) -> usize {
        self.allocated_bytes() - self.field_bytes
    }

    #[inline]
    pub(super) fn get(&self, name: &[u8]) -> Option<&Field> {
        self.table.find(hash_bytes(name), |field| field.is_named(name))
    }

    /// See [`Hash::prefetch`](super::Hash::prefetch).
    pub(super) fn prefetch<'a>(&self, names: impl Iterator<Item = &'a [u8]>) {
        prefetch(&self.table, &ByName, names.map(hash_bytes));
    }

    /// Sets a field to a value and a deadline, after `visit` has seen its old state.
    pub(super) fn put(
        &mut self,
        name: &[u8],
        value: &[u8],
        deadline_ms: Option<i64>,
        visit: impl FnOnce(FieldRef<'_>),
    ) -> Former {
        let hash = hash_bytes(name);
        self.before_change(hash);
        let Some(field) = self.table.find_mut(hash, |field| field.is_named(name)) else {
            self.insert(hash, Field::new(name, value, deadline_ms));
            return Former::Absent;
        };
        visit(field.view());
        if field.overwrite(value, deadline_ms) {
            return Former::Field(None);
        }
        let (bytes, before) = (field.allocated_bytes(), field.deadline_ms());
        field.set(value, deadline_ms);
        self.field_bytes = self.field_bytes - bytes + field.allocated_bytes();
        self.follow_deadline(hash, before, deadline_ms);
        Former::Field(before)
    }

    /// Adds a field that does not exist.
    pub(super) fn add(&mut self, field: FieldRef<'_>) {
        let (mut name, mut value) = (IntText::new(), IntText::new());
        let (name, value) = (field.name.bytes(&mut name), field.value.bytes(&mut value));
        self.insert(hash_bytes(name), Field::new(name, value, field.deadline_ms));
    }

    fn insert(&mut self, hash: u64, field: Field) {
        let deadline_ms = field.deadline_ms();
        self.field_bytes += field.allocated_bytes();
        self.table.insert_unique(hash, field, &ByName);
        self.follow_deadline(hash, None, deadline_ms);
    }

    /// Sets or removes a field's deadline.
    pub(super) fn set_deadline(&mut self, name: &[u8], deadline_ms: Option<i64>) -> Former {
        let hash = hash_bytes(name);
        self.before_change(hash);
        let Some(field) = self.table.find_mut(hash, |field| field.is_named(name)) else {
            return Former::Absent;
        };
        let (bytes, before) = (field.allocated_bytes(), field.deadline_ms());
        field.set_deadline(deadline_ms);
        self.field_bytes = self.field_bytes - bytes + field.allocated_bytes();
        self.follow_deadline(hash, before, deadline_ms);
        Former::Field(before)
    }

    /// Removes a field, which `visit` sees.
    pub(super) fn remove(&mut self, name: &[u8], visit: impl FnOnce(FieldRef<'_>)) -> Former {
        let hash = hash_bytes(name);
        self.before_change(hash);
        let Some(field) = self.table.remove(hash, |field| field.is_named(name), &ByName) else {
            return Former::Absent;
        };
        visit(field.view());
        self.field_bytes -= field.allocated_bytes();
        let before = field.deadline_ms();
        self.follow_deadline(hash, before, None);
        Former::Field(before)
    }

    pub(super) fn duplicate(&self) -> Self {
        let mut copy = Self::default();
        self.iter().for_each(|field| copy.add(field.view()));
        copy
    }

    /// Must be called before a field with this hash is added, removed or changed.
    #[inline]
    fn before_change(&mut self, hash: u64) {
        if let Some(snapshot) = &mut self.snapshot {
            let copy = |field: &Field| Field::new(field.name(), field.value(), field.deadline_ms());
            snapshot.before_change(&self.table, hash, &ByName, copy);
        }
    }

    pub(super) fn snapshot_slice(
        &mut self,
        bytes_max: usize,
        mut visit: impl FnMut(FieldRef<'_>) -> usize,
    ) -> SnapshotProgress {
        let Some(snapshot) = &mut self.snapshot else { return SnapshotProgress::Complete };
        let mut visit = |field: &Field| visit(field.view());
        let bytes = snapshot.take_copies(bytes_max, &mut visit);
        let saved = snapshot.walk_on(&self.table, &ByName, bytes_max - bytes.min(bytes_max), visit);
        if saved == SnapshotProgress::Complete {
            self.snapshot = None;
        }
        saved
    }

    pub(super) fn iter(&self) -> Fields<'_> {
        self.table.iter_ahead(ByName)
    }

    /// Visits some fields at a time; see [`Table::scan`].
    pub(super) fn scan(&self, cursor: u64, visit: impl FnMut(&Field)) -> u64 {
        self.table.scan(cursor, &ByName, visit)
    }

    /// Returns a random field.
    pub(super) fn sample(&self, random: u64) -> Option<&Field> {
        self.table.sample(random)
    }

    /// Returns a lower bound of the earliest deadline.
    #[inline]
    pub(super) fn next_deadline_ms(&self) -> Option<i64> {
        self.deadlines.next_ms()
    }

    /// Returns true only if some field has no deadline: each deadline has an item, and other items may be outdated.
    pub(super) fn has_lasting_fields(&self) -> bool {
        self.deadlines.len() < self.len()
    }

    /// See [`Hash::deadline_after`](super::Hash::deadline_after).
    pub(super) fn deadline_after(&mut self, now_ms: i64) -> Option<i64> {
        let mut due = Vec::new();
        // Rebuilding the heap costs less than replacing most items one by one.
        for _ in 0..ITEMS_MIN + self.deadlines.len() / 16 {
            let item = self.deadlines.pop_due(i64::MAX);
            let is_later = item.is_some_and(|item| item.deadline_ms > now_ms);
            match item {
                Some(item) if !self.is_true(item) => self.arm_again(item.hash),
                Some(item) if !is_later => due.push(item),
                _ => {
                    let items = item.into_iter().chain(due);
                    items.for_each(|item| self.deadlines.arm(item.deadline_ms, item.hash));
                    return item.map(|item| item.deadline_ms);
                }
            }
        }
        self.rebuild_deadlines();
        self.deadlines.earliest_after(now_ms)
    }

    /// Returns the number of expired fields, in a few steps for each and for each outdated item that is due.
    pub(super) fn due_len(&self, now_ms: i64) -> usize {
        let mut hashes = self.deadlines.due(now_ms);
        // A field may have several items.
        hashes.sort_unstable();
        hashes.dedup();
        let mut len = 0;
        for hash in hashes {
            self.table.find(hash, |field| {
                len += usize::from(field.is_due(now_ms) && hash_bytes(field.name()) == hash);
                false
            });
        }
        len
    }

    /// Returns true if a field has the deadline of this item.
    fn is_true(&self, item: Item) -> bool {
        let has_it = |field: &Field| {
            field.deadline_ms() == Some(item.deadline_ms) && hash_bytes(field.name()) == item.hash
        };
        self.table.find(item.hash, has_it).is_some()
    }

    /// Removes expired fields, in about `steps` steps at most.
    pub(super) fn reap(&mut self, now_ms: i64, steps: usize, mut gone: impl FnMut(FieldRef<'_>)) {
        for _ in 0..steps {
            let Some(item) = self.deadlines.pop_due(now_ms) else { return };
            self.before_change(item.hash);
            // The hash is compared too, since only fields of this hash have been saved.
            let is_due =
                |field: &Field| field.is_due(now_ms) && hash_bytes(field.name()) == item.hash;
            while let Some(field) = self.table.remove(item.hash, is_due, &ByName) {
                self.field_bytes -= field.allocated_bytes();
                self.volatile -= 1;
                gone(field.view());
            }
            self.arm_again(item.hash);
        }
    }

    /// Adds items for the fields with this hash, whose item has just been removed.
    fn arm_again(&mut self, hash: u64) {
        self.table.find(hash, |field| {
            if let Some(deadline_ms) = field.deadline_ms()
                && hash_bytes(field.name()) == hash
            {
                self.deadlines.arm(deadline_ms, hash);
            }
            false
        });
    }

    /// Maintains the invariants of the deadlines after that of a field with this hash has changed.
    #[inline]
    fn follow_deadline(&mut self, hash: u64, before: Option<i64>, after: Option<i64>) {
        if before != after {
            self.follow_change(hash, before, after);
        }
    }

    fn follow_change(&mut self, hash: u64, before: Option<i64>, after: Option<i64>) {
        self.volatile -= usize::from(before.is_some());
        self.volatile += usize::from(after.is_some());
        if let Some(deadline_ms) = after
            && before.is_none_or(|before| deadline_ms < before)
        {
            self.deadlines.arm(deadline_ms, hash);
        }
        if self.deadlines.is_crowded(self.volatile) {
            self.rebuild_deadlines();
        }
    }

    fn rebuild_deadlines(&mut self) {
        self.deadlines.rebuild(self.table.iter().filter_map(|field| {
            let deadline_ms = field.deadline_ms()?;
            Some(Item { deadline_ms, hash: hash_bytes(field.name()) })
        }));
    }
}
