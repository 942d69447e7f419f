//! Emptying and exchanging whole databases, for which all shards are locked.

use std::mem;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tierce_cask::ColdStore;
use tierce_dash::Table;

use crate::change::Event;
use crate::db_index::DbIndex;
use crate::entry::Entry;
use crate::garbage::{GARBAGE_ENTRY_BYTES_MIN, Piece};
use crate::key::KeyHasher;
use crate::keyspace::Keyspace;
use crate::locker::Locker;
use crate::shard::{Held, ShardDb};

/// The table of a database that was emptied. Dropping it frees its entries, and releases what they have
/// on disk.
#[derive(Debug)]
pub(crate) struct Flushed {
    table: Table<Entry>,
    /// The store, if there may be anything to release.
    store: Option<Arc<ColdStore>>,
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
            self.table.iter().filter_map(Entry::place).for_each(|place| store.release(place));
        }
    }
}

impl Flushed {
    /// Takes out an entry that is to be freed elsewhere, and releases what it has on disk.
    pub(crate) fn take(
        &mut self,
        hash: u64,
        hasher: &KeyHasher,
        is_it: impl FnMut(&Entry) -> bool,
    ) -> Option<Entry> {
        let entry = self.table.remove(hash, is_it, hasher)?;
        if let (Some(store), Some(place)) = (&self.store, entry.place()) {
            store.release(place);
        }
        Some(entry)
    }

    /// Frees everything but large values, which the reaper frees as it does when they are deleted.
    fn free_all_but_large(mut self, keyspace: &Keyspace) {
        for entry in mem::take(&mut self.table) {
            if let (Some(store), Some(place)) = (&self.store, entry.place()) {
                store.release(place);
            }
            if entry.allocated_bytes() >= GARBAGE_ENTRY_BYTES_MIN {
                keyspace.discard(Piece::Entry(entry));
            }
        }
    }
}

/// Who frees what a flush removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freeing {
    /// The caller, before the call returns; but the reaper, if there is one, frees values that are large.
    Now,
    /// The reaper, if there is one.
    Later,
}

impl Locker<'_> {
    /// Removes all keys of some databases: FLUSHDB and FLUSHALL. All shards are locked meanwhile,
    /// but nothing is freed under the locks. What a snapshot has not seen yet is freed by that when
    /// it has. Returns the number of keys.
    ///
    /// Under a [`Many`](crate::Many) of all shards they stay locked, so the reaper frees in any case.
    pub fn flush(&mut self, dbs: impl IntoIterator<Item = DbIndex>, freeing: Freeing) -> u64 {
        let keyspace = self.keyspace();
        let freeing = if self.is_within() { Freeing::Later } else { freeing };
        let dbs: Vec<DbIndex> = dbs.into_iter().collect();
        let (mut tables, mut entry_bytes, mut keys) = (Vec::new(), 0, 0);
        let mut all = self.lock_all();
        let used = used_anywhere(all.locker().all_held());
        for db in dbs.iter().copied() {
            let is_used = used.get(db.get()) == Some(&true);
            let being_saved = if is_used { keyspace.keys_being_saved(db) } else { Vec::new() };
            let shards = if is_used { all.locker().all_held() } else { &mut [] };
            for held in shards.iter_mut().filter(|held| held.shard.is_used(db)) {
                let (mut table, mut bytes) = take_table(keyspace, held, db);
                keys += table.len() as u64;
                for (_, key) in being_saved.iter().filter(|(shard, _)| *shard == held.index) {
                    bytes -= keyspace.save_flushed(&mut table, key);
                }
                if let Some(table) = held.shard.save_flushed(db, table, bytes)
                    && !table.is_empty()
                {
                    entry_bytes += bytes;
                    tables.push(table);
                }
            }
            if let Some(pending) = all.locker().pending() {
                pending.push_flush(db);
            }
            keyspace.notify(&Event::Flushed { db });
        }
        all.locker().note_waiters_of(&dbs);
        for held in all.locker().all_held() {
            held.publish_next_deadline(keyspace);
            keyspace.follow_size(held.stats);
        }
        drop(all);
        match freeing {
            Freeing::Later => keyspace.discard(Piece::Tables(tables, entry_bytes)),
            Freeing::Now => {
                tables.into_iter().for_each(|table| table.free_all_but_large(keyspace));
            }
        }
        keys
    }

    /// Exchanges two databases: SWAPDB.
    pub fn swap(&mut self, a: DbIndex, b: DbIndex) {
        if a == b {
            return;
        }
        let keyspace = self.keyspace();
        let mut all = self.lock_all();
        for held in all.locker().all_held() {
            held.shard.swap(a, b);
            held.stats.dbs[a.get()].swap(&held.stats.dbs[b.get()]);
            held.stats.changes.add(1);
            let latest = keyspace.version_after(held.stats.changes.get());
            held.stats.versions.renew_all(latest);
        }
        all.locker().note_waiters_of(&[a, b]);
        keyspace.save_swapped(a, b);
        keyspace.swaps.fetch_add(1, Ordering::Relaxed);
        if let Some(pending) = all.locker().pending() {
            pending.push_swap(a, b);
        }
        keyspace.notify(&Event::Swapped { a, b });
    }

    /// Notes all keys of some databases as ready that somebody waits for. All shards are locked.
    pub(crate) fn note_waiters_of(&mut self, dbs: &[DbIndex]) {
        let Self { many, ready, .. } = self;
        for held in many {
            let Some(waiters) = held.shard.waiters.as_deref() else { continue };
            for (db, key) in dbs.iter().flat_map(|db| waiters.keys_of(*db)) {
                ready.note(*db, key);
            }
        }
    }

    /// Sets the counts of hits, misses, expired and evicted keys to zero: CONFIG RESETSTAT.
    pub fn reset_stats(&mut self) {
        for index in 0..self.keyspace().shard_count() {
            let stats = self.held(index).stats;
            for counter in [&stats.hits, &stats.misses, &stats.expired, &stats.evicted] {
                counter.set(0);
            }
        }
        self.end_steps();
    }
}

/// Which databases were used in any of these shards. Most of many were in none, and to ask each shard for each
/// of them takes longer than all else.
fn used_anywhere(shards: &[Held<'_>]) -> Vec<bool> {
    let count = shards.iter().map(|held| held.shard.db_count()).max().unwrap_or(0);
    let mut used = vec![false; count];
    for db in shards.iter().flat_map(|held| held.shard.used_from(0)) {
        used[db.get()] = true;
    }
    used
}

/// Leaves an empty database behind, and returns its table and the bytes of the entries in it.
fn take_table(keyspace: &Keyspace, held: &mut Held<'_>, db: DbIndex) -> (Flushed, usize) {
    let ShardDb { table, deadlines, field_deadlines, entry_bytes, cold, .. } =
        mem::take(held.shard.db_mut(db));
    let stats = held.stats;
    stats.spilled_keys.sub(cold.spilled_keys);
    stats.spilled_bytes.sub(cold.spilled_bytes);
    stats.changes.add(table.len() as u64);
    stats.entry_bytes.follow(entry_bytes, 0);
    stats.index_bytes.follow(table.memory_bytes(), 0);
    let heap_bytes = deadlines.memory_bytes() + field_deadlines.memory_bytes();
    stats.deadline_bytes.follow(heap_bytes, 0);
    stats.dbs[db.get()].reset();
    let store = keyspace.cold_store().filter(|_| cold.placed > 0).cloned();
    (Flushed { table, store }, entry_bytes)
}
