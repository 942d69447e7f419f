//! A table as it stood at one moment, saved little by little while it goes on changing.
//!
//! The snapshot walks the axis of positions like a scan. A change ahead of the walk first has the
//! entries around it saved, as they still are what they were, and the snapshot remembers that
//! interval of the axis, to leave it out when the walk gets there. So each entry of the moment of
//! beginning is saved exactly once, in the state it had then, and nothing that came later.
//!
//! Intervals instead of version stamps in the buckets, which is how it is usually done: a stamp
//! loses its meaning when buckets with different stamps are mixed by a rebuild, unless the whole
//! segment is saved first, in the middle of an insert; and it costs memory when there is no
//! snapshot. Intervals know nothing of buckets and several snapshots do not interfere. Their price
//! is one look into a tree at each change ahead of the walk. The figures are in
//! `docs/decisions/0002-snapshots-by-position.md`.
//!
//! Of single entries that were saved ahead of the walk, only the position is remembered, in a set
//! (`visited.rs`): a change then costs a look at one place of memory in place of several descents of a tree.
//!
//! Invariants:
//! - Whatever lies before `next` is saved, what lies in an interval of `ahead`, and what is at one of
//!   the positions in `visited`.
//! - The intervals of `ahead` are not empty, end behind `next`, and neither overlap nor touch.
//! - An entry that is in none of these has not been changed since the snapshot began.

use crate::geometry::{AXIS_END, position};
use crate::hash::EntryHash;
use crate::table::Table;
use crate::visited::VisitedSet;
use core::ops::Range;
use std::collections::BTreeMap;

/// Saves one table as it was when the snapshot began.
///
/// The table does not know of its snapshots: who changes it calls [`Snapshot::before_change`] first,
/// for each snapshot that is not complete. Growing and shrinking need no attention.
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
    /// Begins a snapshot of whichever table will be handed in, which is to be the same in all calls.
    pub fn begin() -> Self {
        Self { next: 0, ahead: BTreeMap::new(), visited: VisitedSet::default() }
    }

    /// Whether everything has been saved.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.next == AXIS_END
    }

    /// Whether entries of this hash may still have to be saved before they are changed.
    #[inline]
    pub fn concerns(&self, hash: u64) -> bool {
        position(hash) >= self.next
    }

    /// Has to be called before an entry with this hash is inserted, removed or changed: saves what
    /// shares its bucket, at most once, some twelve entries.
    ///
    /// Before [`Table::clear`], either [`Snapshot::advance`] to completion, or take the table out of
    /// its place and go on with it there.
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

    /// Like [`Snapshot::before_change`], but saves only the entries that have this very hash: as a
    /// rule one, which the change is going to touch anyway. A position is remembered for each hash, so
    /// this suits a snapshot whose saved entries take memory until they are fetched, as long as
    /// [`Snapshot::visited_count`] stays small against the number of entries.
    ///
    /// Both may be mixed: what is saved by this one is left out by the other.
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

    /// Goes on by a bucket's worth of entries at most, without effect when the snapshot is complete.
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

    /// Begins to fetch what [`Snapshot::before_change_of_one`] will read for an entry of this hash,
    /// besides the table.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if self.concerns(hash) {
            self.visited.prefetch(position(hash));
        }
    }

    /// Number of intervals that are remembered. At worst every other bucket ahead of the walk is one.
    pub fn interval_count(&self) -> usize {
        self.ahead.len()
    }

    /// Number of single entries that are remembered.
    pub fn visited_count(&self) -> usize {
        self.visited.len()
    }

    /// Memory for what is remembered, about.
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
        // No entry is the one, so that all are shown whose fingerprints match.
        table.find(hash, |entry| {
            if self::position(hasher.hash(entry)) == position {
                save(entry);
            }
            false
        });
    }

    /// What is not yet saved around a position not before `next`, within its home bucket; `None` if
    /// the position itself is saved.
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

/// Visits the entries of a range within a home bucket that were not saved one by one.
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
