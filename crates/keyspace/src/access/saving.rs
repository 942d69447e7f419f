//! Saves data for a running snapshot before it changes or is removed.

use std::collections::HashMap;
use std::sync::Arc;

use tierce_collections::SnapshotId;

use crate::access::keyspace::Keyspace;
use crate::access::shard::Shard;
use crate::data::entry::{Entry, OutOfLine};
use crate::data::key::KeyHasher;
use crate::db_index::{DbIndex, DbSet};
use crate::registries::flushed::Flushed;
use crate::registries::lazy_free::LazyFreeItem;
use crate::registries::snapshot::backlog::Backlog;

/// Saves entries of this hash for the snapshot. Call it before any change of them, if there is a snapshot.
#[cold]
#[inline(never)]
pub(crate) fn save_before_change(shard: &mut Shard, db: DbIndex, hash: u64, hasher: &KeyHasher) {
    // Taken out and put back, since it accesses a table of the same shard.
    if let Some(mut part) = shard.snapshot.take() {
        part.before_change(db, &mut shard.present_mut(db).table, hash, hasher);
        shard.snapshot = Some(part);
    }
}

fn running_snapshot(keyspace: &Keyspace) -> Option<Arc<Backlog>> {
    keyspace.snapshot.lock().clone()
}

/// Updates the key of an entry that is being saved. Call it before the entry moves to another key.
#[cold]
pub(super) fn save_moved(keyspace: &Keyspace, id: SnapshotId, db: DbIndex, entry: &mut Entry) {
    let backlog = running_snapshot(keyspace);
    let key = entry.key().to_vec();
    if !backlog.is_some_and(|backlog| backlog.larges.move_to(id, db, &key)) {
        // The snapshot ended while the entry was under no key.
        drop(entry.cancel_snapshot());
    }
}

/// Updates the snapshot after an exchange of two databases, with all shards locked.
pub(crate) fn save_swapped(keyspace: &Keyspace, a: DbIndex, b: DbIndex) {
    if let Some(backlog) = running_snapshot(keyspace) {
        backlog.larges.swap(a, b);
    }
}

/// Returns the keys of collections that are being saved in some databases, by shard and database. All shards are
/// locked.
pub(crate) fn keys_being_saved(
    keyspace: &Keyspace,
    dbs: &DbSet,
) -> HashMap<(usize, DbIndex), Vec<Vec<u8>>> {
    let mut keys: HashMap<_, Vec<_>> = HashMap::new();
    let Some(backlog) = running_snapshot(keyspace) else { return keys };
    for (db, key) in backlog.larges.keys_in(dbs) {
        let shard = keyspace.hasher.shard(keyspace.hasher.hash_bytes(&key));
        keys.entry((shard, db)).or_default().push(key);
    }
    keys
}

/// Takes a collection that is being saved out of a flushed table. Returns its bytes.
pub(crate) fn save_flushed(keyspace: &Keyspace, table: &mut Flushed, key: &[u8]) -> usize {
    let hash = keyspace.hasher.table_hash(keyspace.hasher.hash_bytes(key));
    let taken = table.take(hash, &keyspace.hasher, |entry| entry.is_key(key));
    let Some(mut entry) = taken else { return 0 };
    let bytes = entry.allocated_bytes();
    if let (Some(id), Some(value)) = (entry.snapshot_id(), entry.take_out_of_line()) {
        save_removed(keyspace, id, value);
    }
    bytes
}

/// Hands a removed collection that is being saved to the snapshot instead of dropping it. If no snapshot needs it, it
/// is freed lazily.
#[cold]
pub(super) fn save_removed(keyspace: &Keyspace, id: SnapshotId, value: OutOfLine) {
    let OutOfLine::Collection(collection) = value else { return };
    let refused = match running_snapshot(keyspace) {
        Some(backlog) => backlog.larges.hand_over(id, collection),
        None => Some(collection),
    };
    if let Some(collection) = refused {
        keyspace.discard(LazyFreeItem::OutOfLine(OutOfLine::Collection(collection)));
    }
}
