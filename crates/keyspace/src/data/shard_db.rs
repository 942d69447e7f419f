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
    /// The earliest deadlines of hashes' fields.
    pub(crate) field_deadlines: Deadlines,
    /// Hashes whose fields have deadlines.
    pub(crate) volatile_hashes: usize,
    /// Bytes of the entries in `table`, their blobs included.
    pub(crate) entry_bytes: usize,
    pub(crate) cold: ColdCounts,
}

impl ShardDb {
    /// Bytes of entries, of the table, and of the heaps of deadlines.
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
    /// Whether there is next to nothing to free.
    pub(crate) fn is_empty(&self) -> bool {
        self.first.table.is_empty() && self.others.is_empty()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut ShardDb> {
        let others = self.others.iter_mut().flatten().map(|db| &mut **db);
        iter::once(&mut self.first).chain(others)
    }
}
