//! Databases that were emptied or exchanged.
//!
//! A database that is emptied in a shard is kept whole: its table, its heaps of deadlines, and a snapshot's walk
//! through it. A rollback puts all of that back. A commit does the remaining work of a flush.

use super::UndoLog;
use super::step::Step;
use crate::access::keyspace::Keyspace;
use crate::access::saving::save_flushed;
use crate::access::shard::{Held, put_db, take_db};
use crate::data::shard_db::ShardDb;
use crate::db_index::DbIndex;
use crate::registries::flushed::{Flushed, FlushedData, Freeing};
use crate::registries::lazy_free::LazyFreeItem;
use crate::registries::snapshot::shard::TableWalk;

/// A database as it was in a shard before it was emptied.
#[derive(Debug)]
pub(super) struct FlushedDb {
    shard: usize,
    index: DbIndex,
    db: ShardDb,
    figures: [u64; 3],
    /// Snapshot's walk through its table.
    walk: Option<TableWalk>,
    /// Keys of large collections that are being saved.
    being_saved: Vec<Vec<u8>>,
}

impl UndoLog {
    /// Empties a database in a shard. Returns the number of its keys.
    pub(crate) fn flush(
        &self,
        held: &mut Held<'_>,
        index: DbIndex,
        being_saved: Vec<Vec<u8>>,
    ) -> usize {
        self.count(held.index, held.stats);
        let walk = held.shard.snapshot.as_mut().and_then(|snapshot| snapshot.detach(index));
        let (db, figures) = take_db(held, index);
        let keys = db.table.len();
        held.stats.changes.add(keys as u64);
        let shard = held.index;
        let flushed = FlushedDb { shard, index, db, figures, walk, being_saved };
        self.push(Step::Flushed(Box::new(flushed)));
        keys
    }

    /// Records versions before two databases are exchanged in a shard.
    pub(crate) fn swap(&self, held: &Held<'_>) {
        self.count(held.index, held.stats);
        if let Some(versions) = held.stats.versions.get() {
            let versions = versions.iter().map(|version| version.get()).collect();
            self.push(Step::Stripes(held.index, versions));
        }
    }

    /// Records an exchange of two databases.
    pub(crate) fn swapped(&self, a: DbIndex, b: DbIndex) {
        self.push(Step::Swapped(a, b));
        self.begin_epoch();
    }
}

impl FlushedDb {
    pub(super) fn shard(&self) -> usize {
        self.shard
    }

    /// Puts the database back and replaces the present one, which has no keys any more.
    pub(super) fn put_back(self: Box<Self>, keyspace: &Keyspace, held: &mut Held<'_>) {
        let (present, _) = take_db(held, self.index);
        debug_assert!(present.table.is_empty() || crate::planted::is_any(), "steps are in order");
        if let (Some(walk), Some(snapshot)) = (self.walk, &mut held.shard.snapshot) {
            snapshot.attach(walk);
        }
        put_db(held, self.index, self.db, self.figures);
        keyspace.publish_next_deadline(held);
        held.stats.follow_size(&keyspace.pressure);
    }

    /// Does the remaining work of a flush.
    pub(super) fn free(self: Box<Self>, keyspace: &Keyspace, held: &mut Held<'_>) {
        let Self { db, walk, being_saved, .. } = *self;
        let mut bytes = db.entry_bytes;
        let mut table = Flushed::new(keyspace.cold_store(), db);
        for key in &being_saved {
            bytes -= save_flushed(keyspace, &mut table, key);
        }
        let table = match (walk, &mut held.shard.snapshot) {
            (Some(walk), Some(snapshot)) => snapshot.take_aside(walk, table, bytes),
            _ => Some(table),
        };
        if let Some(table) = table
            && !table.is_empty()
        {
            let mut data = FlushedData::default();
            data.push_table(table, bytes);
            keyspace.discard(LazyFreeItem::Flushed(data, Freeing::Later));
        }
    }
}
