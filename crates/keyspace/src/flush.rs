//! Emptying and exchanging whole databases, for which all shards are locked.

use std::mem;
use std::sync::atomic::Ordering;

use tierce_dash::Table;

use crate::change::Event;
use crate::entry::Entry;
use crate::garbage::Piece;
use crate::keyspace::DbIndex;
use crate::locker::Locker;
use crate::shard::{Held, ShardDb};

/// Who frees what a flush removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freeing {
    /// The caller, before the call returns.
    Now,
    /// The reaper, if there is one.
    Later,
}

impl Locker<'_> {
    /// Removes all keys of some databases: FLUSHDB and FLUSHALL. All shards are locked meanwhile,
    /// but nothing is freed under the locks. What a snapshot has not seen yet is freed by that when
    /// it has. Returns the number of keys.
    pub fn flush(&mut self, dbs: impl IntoIterator<Item = DbIndex>, freeing: Freeing) -> u64 {
        let keyspace = self.keyspace();
        let (mut tables, mut entry_bytes, mut keys) = (Vec::new(), 0, 0);
        let mut all = self.lock_all();
        for db in dbs {
            for held in all.locker().all_held() {
                let (table, bytes) = take_table(held, db);
                keys += table.len() as u64;
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
        for held in all.locker().all_held() {
            held.publish_next_deadline(keyspace);
            keyspace.follow_size(held.stats);
        }
        drop(all);
        if freeing == Freeing::Later {
            keyspace.discard(Piece::Tables(tables, entry_bytes));
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
        keyspace.swaps.fetch_add(1, Ordering::Relaxed);
        if let Some(pending) = all.locker().pending() {
            pending.push_swap(a, b);
        }
        keyspace.notify(&Event::Swapped { a, b });
    }

    /// Sets the counts of hits, misses, expired and evicted keys to zero: CONFIG RESETSTAT.
    pub fn reset_stats(&mut self) {
        for index in 0..self.keyspace().shard_count() {
            let stats = self.held(index).stats;
            for counter in [&stats.hits, &stats.misses, &stats.expired, &stats.evicted] {
                counter.set(0);
            }
        }
        self.release();
    }
}

/// Leaves an empty database behind, and returns its table and the bytes of the entries in it.
fn take_table(held: &mut Held<'_>, db: DbIndex) -> (Table<Entry>, usize) {
    let ShardDb { table, deadlines, entry_bytes } = mem::take(held.shard.db_mut(db));
    let stats = held.stats;
    stats.changes.add(table.len() as u64);
    stats.entry_bytes.follow(entry_bytes, 0);
    stats.index_bytes.follow(table.memory_bytes(), 0);
    stats.deadline_bytes.follow(deadlines.memory_bytes(), 0);
    stats.dbs[db.get()].reset();
    (table, entry_bytes)
}
