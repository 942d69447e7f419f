//! Databases that were emptied, until they are freed.

use std::mem;
use std::ops::Deref;
use std::sync::Arc;

use tierce_dash::Table;
use tierce_storage::ColdStore;

use crate::data::entry::Entry;
use crate::data::key::KeyHasher;
use crate::data::shard_db::{ShardDb, ShardDbs};
use crate::registries::lazy_free::LAZY_FREE_BYTES_MIN;

/// Table of a database that was emptied. Dropping it frees its entries, and releases their locations on disk.
#[derive(Debug)]
pub(crate) struct Flushed {
    table: Table<Entry>,
    /// The store, if there may be locations to release.
    pub(crate) store: Option<Arc<ColdStore>>,
}

impl Deref for Flushed {
    type Target = Table<Entry>;

    fn deref(&self) -> &Table<Entry> {
        &self.table
    }
}

impl Drop for Flushed {
    fn drop(&mut self) {
        if let Some(store) = &self.store {
            self.table
                .iter()
                .filter_map(Entry::location)
                .for_each(|location| store.release(location));
        }
    }
}

impl Flushed {
    pub(crate) fn new(store: Option<&Arc<ColdStore>>, db: ShardDb) -> Self {
        let store = store.filter(|_| db.cold.placed > 0).cloned();
        Self { table: db.table, store }
    }

    /// Takes out an entry to be freed elsewhere, and releases its location on disk.
    pub(crate) fn take(
        &mut self,
        hash: u64,
        hasher: &KeyHasher,
        is_it: impl FnMut(&Entry) -> bool,
    ) -> Option<Entry> {
        let entry = self.table.remove(hash, is_it, hasher)?;
        if let (Some(store), Some(location)) = (&self.store, entry.location()) {
            store.release(location);
        }
        Some(entry)
    }

    /// Frees everything but large values, which are passed to `keep`.
    pub(crate) fn free_all_but_large(mut self, keep: &mut impl FnMut(Entry)) {
        for entry in mem::take(&mut self.table) {
            if let (Some(store), Some(location)) = (&self.store, entry.location()) {
                store.release(location);
            }
            if entry.allocated_bytes() >= LAZY_FREE_BYTES_MIN {
                keep(entry);
            }
        }
    }
}

/// All databases of a shard that was emptied as a whole. They are not accessed under the locks: their tables are many
/// and cold.
#[derive(Debug)]
pub(crate) struct FlushedShard {
    pub(crate) dbs: ShardDbs,
    pub(crate) store: Option<Arc<ColdStore>>,
}

impl FlushedShard {
    /// Takes out the tables of some databases; all others are freed here.
    fn take_tables(&mut self, of: impl Fn(&ShardDb) -> bool) -> impl Iterator<Item = Flushed> {
        let dbs = self.dbs.iter_mut().filter(move |db| of(db));
        dbs.map(|db| Flushed::new(self.store.as_ref(), mem::take(db)))
    }

    /// See [`Flushed::free_all_but_large`].
    pub(crate) fn free_all_but_large(mut self, keep: &mut impl FnMut(Entry)) {
        let may_have_large = |db: &ShardDb| db.entry_bytes >= LAZY_FREE_BYTES_MIN;
        self.take_tables(may_have_large).for_each(|table| table.free_all_but_large(keep));
    }
}

impl Drop for FlushedShard {
    fn drop(&mut self) {
        if self.store.is_some() {
            self.take_tables(|db| db.cold.placed > 0).for_each(drop);
        }
    }
}

/// Data that a flush removed. Dropping it frees them.
#[derive(Debug, Default)]
pub(crate) struct FlushedData {
    pub(crate) shards: Vec<FlushedShard>,
    /// Tables of databases that were flushed individually.
    pub(crate) tables: Vec<Flushed>,
    pub(crate) bytes: usize,
}

impl FlushedData {
    /// Adds a table, with the bytes of the entries in it.
    pub(crate) fn push_table(&mut self, table: Flushed, entry_bytes: usize) {
        self.bytes += entry_bytes + table.memory_bytes();
        self.tables.push(table);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shards.is_empty() && self.tables.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// See [`Flushed::free_all_but_large`].
    pub(crate) fn free_all_but_large(self, keep: &mut impl FnMut(Entry)) {
        self.shards.into_iter().for_each(|shard| shard.free_all_but_large(keep));
        self.tables.into_iter().for_each(|table| table.free_all_but_large(keep));
    }
}

/// Thread that frees flushed data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freeing {
    /// The caller, before the call returns. The reaper, if there is one, still frees large values.
    Now,
    /// The reaper, if there is one.
    Later,
}
