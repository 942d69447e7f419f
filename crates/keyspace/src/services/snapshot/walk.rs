//! Walk of a snapshot through the tables of a shard.

use crate::access::shard::Shard;
use crate::data::key::KeyHasher;
use crate::registries::flushed::Flushed;
use crate::registries::snapshot::batch::SnapshotBatch;
use crate::registries::snapshot::shard::{Met, Saver, TableOwner, TableWalk, Turn};

/// Maximum number of buckets copied under one lock: up to 170 entries, some ten microseconds.
const BUCKETS_PER_LOCK: usize = 12;

impl Shard {
    /// Copies the next entries into `batch`. Puts a finished flushed table into `done`, to be freed
    /// after the lock is released.
    pub(super) fn walk_on(
        &mut self,
        hasher: &KeyHasher,
        batch: &mut SnapshotBatch,
        done: &mut Vec<Flushed>,
    ) -> Turn {
        let Some(mut part) = self.snapshot.take() else { return Turn::Unfinished };
        let mut buckets = 0;
        while let Some(TableWalk { db, owner, walk }) = part.walks.last_mut() {
            let mut met = Met::default();
            let (backlog, begun) = (&*part.backlog, part.begun);
            let mut saver = Saver { batch, met: &mut met, backlog, begun, db: *db };
            while !walk.is_complete() && buckets < BUCKETS_PER_LOCK && !saver.batch.is_full() {
                let table = match owner {
                    TableOwner::Db(at) => &self.db(*at).table,
                    TableOwner::Aside(table, _) => table,
                };
                walk.advance(table, hasher, |entry| saver.save(entry, hasher));
                buckets += 1;
            }
            match owner {
                TableOwner::Db(at) => {
                    let table = &mut self.present_mut(*at).table;
                    met.begin(table, |entry| backlog.larges.begin(*db, *at, entry));
                }
                TableOwner::Aside(table, bytes) => {
                    let before = table.memory_bytes() + *bytes;
                    for (hash, address) in met.0 {
                        let entry = table.take(hash, hasher, |entry| entry.address() == address);
                        let entry = entry.expect("it was met just now");
                        *bytes -= entry.allocated_bytes();
                        backlog.larges.begin_with(*db, entry);
                    }
                    backlog.follow(before, table.memory_bytes() + *bytes);
                }
            }
            if !walk.is_complete() {
                part.follow();
                self.snapshot = Some(part);
                return Turn::Unfinished;
            }
            if let Some(TableWalk { owner: TableOwner::Aside(table, bytes), .. }) = part.walks.pop()
            {
                part.backlog.follow(table.memory_bytes() + bytes, 0);
                done.push(table);
            }
        }
        // Only the copies are left. They are passed on, and counted there.
        part.backlog.follow(part.followed, part.copies.memory_bytes());
        part.followed = part.copies.memory_bytes();
        Turn::Finished(part)
    }
}
