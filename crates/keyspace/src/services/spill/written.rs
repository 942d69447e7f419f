//! Updates entries after their values have been written.

use tierce_storage::ColdLocation;

use super::gather::{SpillBatch, forget_value};
use crate::access::accounting::Accounting;
use crate::access::db::Db;
use crate::access::shard_locks::ShardLocks;
use crate::data::cold_value;
use crate::data::entry::{Attributes, Content};
use crate::data::key::Key;

/// Replaces the values of a batch by their `locations` on disk, and logs that. It skips values that have changed
/// since they were copied or are in busy shards, and releases their locations. Returns the number of values that were
/// dropped from memory or moved.
///
/// # Panics
///
/// Under a [`MultiShardGuard`](crate::MultiShardGuard).
pub fn leave_to_disk(
    locks: &mut ShardLocks<'_>,
    batch: &SpillBatch,
    locations: &[ColdLocation],
    now_ms: i64,
) -> usize {
    let keyspace = locks.keyspace();
    let mut spilled = 0;
    for (index, (item, location)) in batch.items.iter().zip(locations).enumerate() {
        let key = keyspace.key(&batch.keys[item.key.clone()]);
        let is_done = locks.try_reach(key.hash()) && {
            let mut db = locks.db(item.db, key.hash(), now_ms);
            match item.moved_from {
                Some(from) => relocate(&mut db, key, from, *location),
                None => spill_value(&mut db, key, batch.values.value(index), *location),
            }
        };
        if is_done {
            spilled += 1;
        } else {
            keyspace.release(*location);
        }
    }
    locks.release();
    spilled
}

/// Drops the value of a key from memory, if it is still the one that was written.
fn spill_value(db: &mut Db<'_>, key: Key<'_>, written: &[u8], location: ColdLocation) -> bool {
    let at = db.at;
    let Some(entry) = db.find(key) else { return false };
    // An entry with a location was spilled, changed back and spilled again meanwhile: skip it.
    // An entry that a snapshot has begun to save meanwhile stays until the snapshot has finished it.
    let is_taken = entry.location().is_some() || entry.snapshot_id().is_some();
    if is_taken || !cold_value::is_value_of(entry, written) {
        return false;
    }
    let before = Accounting::of(entry);
    let displaced = forget_value(entry, location);
    if let Some(batch) = at.batch() {
        batch.record_move(at.db, entry);
    }
    let after = Accounting::of(entry);
    db.account(key.hash(), before, after);
    at.keyspace.free_displaced(displaced);
    true
}

/// Updates the location of a copied value, if it is still at the old one.
fn relocate(db: &mut Db<'_>, key: Key<'_>, from: ColdLocation, to: ColdLocation) -> bool {
    let at = db.at;
    let Some(entry) = db.find(key) else { return false };
    if entry.location() != Some(from) {
        return false;
    }
    let before = Accounting::of(entry);
    match entry.spilled() {
        Some(spilled) => {
            let content = Content::Spilled(spilled.moved_to(to));
            entry.replace(content, entry.deadline_ms(), entry.attributes());
        }
        None => {
            let attributes = Attributes { location: Some(to), ..entry.attributes() };
            entry.set_attributes(attributes);
        }
    }
    if let Some(batch) = at.batch() {
        batch.record_move(at.db, entry);
    }
    let after = Accounting::of(entry);
    db.account(key.hash(), before, after);
    true
}
