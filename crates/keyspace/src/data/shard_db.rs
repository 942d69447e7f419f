//! The databases of a shard.

use std::iter;

use tierce_dash::Table;

use crate::data::db_counters::ColdCounts;
use crate::data::deadline::Deadlines;
use crate::data::entry::Entry;

/// One database's part in a shard.
#[derive(Debug, Default)]
pub(crate) struct ShardDb {
    pub(crate) table: Table<Entry>,
    pub(crate) deadlines: Deadlines,
    /// Earliest deadlines of the elements of hashes and sets.
    pub(crate) field_deadlines: Deadlines,
    /// Number of hashes with field deadlines.
    pub(crate) volatile_hashes: usize,
    /// Number of sets with deadlines of members.
    pub(crate) volatile_sets: usize,
    /// Bytes of the entries in `table`, including their blobs.
    pub(crate) entry_bytes: usize,
    pub(crate) cold: ColdCounts,
}

impl ShardDb {
    /// Returns the bytes of entries, of the table, and of the deadline heaps.
    pub(crate) fn memory_bytes(&self) -> [usize; 3] {
        let heaps = self.deadlines.memory_bytes() + self.field_deadlines.memory_bytes();
        [self.entry_bytes, self.table.memory_bytes(), heaps]
    }
}

/// All databases of a shard, taken out of it.
#[derive(Debug)]
pub(crate) struct ShardDbs {
    pub(crate) first: ShardDb,
    pub(crate) others: Vec<Option<Box<ShardDb>>>,
}

impl ShardDbs {
    /// Returns true if there is almost nothing to free.
    pub(crate) fn is_empty(&self) -> bool {
        self.first.table.is_empty() && self.others.is_empty()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut ShardDb> {
        let others = self.others.iter_mut().flatten().map(|db| &mut **db);
        iter::once(&mut self.first).chain(others)
    }
}
