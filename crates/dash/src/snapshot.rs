//! A snapshot of a table as of one moment, saved in small steps while the table keeps changing.
//!
//! The snapshot walks the axis of positions like a scan. Before a change ahead of the walk, the entries around it are
//! saved in their old state, and the snapshot remembers that interval of the axis, to skip it when the walk gets
//! there. So each entry that existed at the beginning is saved exactly once, in the state it had then, and no later
//! entry is saved.
//!
//! The usual design has version stamps in the buckets instead of intervals. A stamp loses its meaning when a rebuild
//! mixes buckets with different stamps, unless the whole segment is saved first, in the middle of an insert; and it
//! costs memory even without a snapshot. Intervals are independent of buckets, and several snapshots do not interfere.
//! Their price is one tree lookup at each change ahead of the walk. The figures are in
//! `docs/decisions/0002-snapshots-by-position.md`.
//!
//! For single entries that were saved ahead of the walk, only the position is remembered, in a set (`visited.rs`): a
//! change then costs one memory access instead of several descents of a tree.
//!
//! Invariants:
//! - Everything before `next` is saved, and everything in an interval of `ahead` or at one of the positions in
//!   `visited`.
//! - The intervals of `ahead` are not empty, end after `next`, and neither overlap nor touch.
//! - An entry that is in none of these has not been changed since the snapshot began.

use crate::geometry::{AXIS_END, position};
use crate::hash::EntryHash;
use crate::table::Table;
use crate::visited::VisitedSet;
use core::ops::Range;
use std::collections::BTreeMap;

/// Saves one table as it was when the snapshot began.
///
/// The table does not know its snapshots: a caller that changes it calls [`Snapshot::before_change`] first, for each
/// snapshot that is not complete. Growing and shrinking need no call.
///
/// ```
/// use tierce_dash::{Snapshot, Table};
///
/// let hash = |entry: &(u64, &str)| entry.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
/// let mut table = Table::new();
/// for number in 0..100 {
///     let entry = (number, "old");
///     table.insert_unique(hash(&entry), entry, &hash);
/// }
///
/// let mut snapshot = Snapshot::begin();
/// let mut saved = Vec::new();
/// let target = hash(&(42, ""));
/// snapshot.before_change(&table, target, &hash, |entry| saved.push(*entry));
/// table.find_mut(target, |entry| entry.0 == 42).unwrap().1 = "new";
///
/// while !snapshot.is_complete() {
///     snapshot.advance(&table, &hash, |entry| saved.push(*entry));
/// }
/// assert_eq!(saved.len(), 100);
/// assert!(saved.iter().all(|entry| entry.1 == "old"));
/// ```
#[derive(Debug)]
pub struct Snapshot {
    next: u64,
    /// Starts of the intervals, with their ends.
    ahead: BTreeMap<u64, u64>,
    /// Positions of single entries. Those that the walk has passed stay until the end.
    visited: VisitedSet,
}

impl Snapshot {
    /// Begins a snapshot. All further calls must pass the same table.
    pub fn begin() -> Self {
        Self { next: 0, ahead: BTreeMap::new(), visited: VisitedSet::default() }
    }

    /// Returns true if everything has been saved.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.next == AXIS_END
    }

    /// Returns true if entries of this hash may still have to be saved before they are changed.
    #[inline]
    pub fn concerns(&self, hash: u64) -> bool {
        position(hash) >= self.next
    }

    /// Must be called before an entry with this hash is inserted, removed or changed: saves all entries of its bucket,
    /// at most once, some twelve entries.
    ///
    /// Before [`Table::clear`], either call [`Snapshot::advance`] until completion, or move the table elsewhere and
    /// continue with it there.
    #[inline]
    pub fn before_change<T>(
        &mut self,
        table: &Table<T>,
        hash: u64,
        hasher: &impl EntryHash<T>,
        save: impl FnMut(&T),
    ) {
        if self.concerns(hash) {
            self.save_around(position(hash), table, hasher, save);
        }
    }

    /// As [`Snapshot::before_change`], but saves only the entries that have exactly this hash: usually one, which the
    /// change will touch anyway. A position is remembered for each hash. So this suits a snapshot whose saved entries
    /// take memory until they are fetched, as long as [`Snapshot::visited_count`] stays small compared with the number
    /// of entries.
    ///
    /// Both may be mixed: entries saved by one are skipped by the other.
    #[inline]
    pub fn before_change_of_one<T>(
        &mut self,
        table: &Table<T>,
        hash: u64,
        hasher: &impl EntryHash<T>,
        save: impl FnMut(&T),
    ) {
        if self.concerns(hash) {
            self.save_one(hash, table, hasher, save);
        }
    }

    /// Saves at most a bucket's worth of entries more; does nothing if the snapshot is complete.
    pub fn advance<T>(
        &mut self,
        table: &Table<T>,
        hasher: &impl EntryHash<T>,
        save: impl FnMut(&T),
    ) {
        if self.is_complete() {
            return;
        }
        match self.unsaved_around(self.next, table) {
            Some(range) => {
                visit_the_rest(&self.visited, &range, table, hasher, save);
                self.next = range.end;
            }
            None => {
                let (_, end) = self.ahead.pop_first().expect("an interval covers what is saved");
                self.next = end;
            }
        }
    }

    /// Prefetches the memory that [`Snapshot::before_change_of_one`] will read for an entry of this hash, except that
    /// of the table.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if self.concerns(hash) {
            self.visited.prefetch(position(hash));
        }
    }

    /// Returns the number of remembered intervals. At worst every other bucket ahead of the walk is one.
    pub fn interval_count(&self) -> usize {
        self.ahead.len()
    }

    /// Returns the number of remembered single entries.
    pub fn visited_count(&self) -> usize {
        self.visited.len()
    }

    /// Returns the approximate memory of the remembered positions.
    pub fn memory_bytes(&self) -> usize {
        // Two numbers and a part of a node of the tree.
        const INTERVAL_BYTES: usize = 32;
        self.ahead.len() * INTERVAL_BYTES + self.visited.memory_bytes()
    }

    #[cold]
    fn save_around<T>(
        &mut self,
        position: u64,
        table: &Table<T>,
        hasher: &impl EntryHash<T>,
        save: impl FnMut(&T),
    ) {
        let Some(range) = self.unsaved_around(position, table) else { return };
        visit_the_rest(&self.visited, &range, table, hasher, save);
        self.remember(range);
    }

    #[cold]
    fn save_one<T>(
        &mut self,
        hash: u64,
        table: &Table<T>,
        hasher: &impl EntryHash<T>,
        mut save: impl FnMut(&T),
    ) {
        let position = position(hash);
        if !self.ahead.is_empty() {
            let saved_before = self.ahead.range(..=position).next_back().map(|(_, end)| *end);
            if saved_before.is_some_and(|end| end > position) {
                return;
            }
        }
        if !self.visited.insert(position) {
            return;
        }
        // No entry matches, so all with the same fingerprint are shown.
        table.find(hash, |entry| {
            if self::position(hasher.hash(entry)) == position {
                save(entry);
            }
            false
        });
    }

    /// Returns the unsaved range around a position not before `next`, within its home bucket; `None` if the position
    /// itself is saved.
    fn unsaved_around<T>(&self, position: u64, table: &Table<T>) -> Option<Range<u64>> {
        let saved_before = self.ahead.range(..=position).next_back().map(|(_, end)| *end);
        if saved_before.is_some_and(|end| end > position) {
            return None;
        }
        let saved_after = self.ahead.range(position..).next().map(|(start, _)| *start);
        let home = table.home_range(position);
        let start = home.start.max(self.next).max(saved_before.unwrap_or(0));
        let end = home.end.min(saved_after.unwrap_or(AXIS_END));
        Some(start..end)
    }

    /// Adds an interval that overlaps none, and joins it with those it touches.
    fn remember(&mut self, range: Range<u64>) {
        let end = self.ahead.remove(&range.end).unwrap_or(range.end);
        match self.ahead.range_mut(..range.start).next_back() {
            Some((_, before)) if *before == range.start => *before = end,
            _ => _ = self.ahead.insert(range.start, end),
        }
    }
}

/// Visits the entries of a range within a home bucket that were not saved individually.
fn visit_the_rest<T>(
    visited: &VisitedSet,
    range: &Range<u64>,
    table: &Table<T>,
    hasher: &impl EntryHash<T>,
    mut save: impl FnMut(&T),
) {
    if visited.is_empty() {
        return table.visit_range(range, hasher, save);
    }
    table.visit_range(range, hasher, |entry| {
        if !visited.contains(position(hasher.hash(entry))) {
            save(entry);
        }
    });
}
