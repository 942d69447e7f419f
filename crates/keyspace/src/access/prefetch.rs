//! Prefetches the keys of a batch, so that their cache misses overlap.
//!
//! A lookup in a large keyspace waits for memory twice: for the bucket of the index and for the entry. A batch of
//! parsed requests can prefetch both: first all buckets, then the entries that match their fingerprints. Computing
//! either address takes the shard's lock for a moment, some 10 ns, once for consecutive keys of a shard. Shards that
//! another thread has locked are skipped.
//!
//! Elements of a large hash or set are prefetched in the same way, if a batch begins with several requests for one.

use tierce_collections::Collection;

use crate::access::db::Db;
use crate::access::keyspace::Keyspace;
use crate::access::shard::Shard;
use crate::access::shard_locks::ShardLocks;
use crate::data::key::{Key, KeyHash};
use crate::db_index::DbIndex;

impl ShardLocks<'_> {
    /// Prefetches the memory that operations on these keys will read. Best called once for each batch, before its
    /// first operation, if [`Keyspace::gains_from_prefetch`]. Changes nothing and never waits. Releases the shard of
    /// the last request.
    pub fn prefetch(&mut self, keys: impl Iterator<Item = (DbIndex, KeyHash)> + Clone) {
        if self.is_within() {
            return self.prefetch_held(keys);
        }
        self.release();
        let keyspace = self.keyspace();
        for_each_key(keyspace, keys.clone(), |shard, db, hash| {
            shard.db(db).table.prefetch(hash);
            if let Some(part) = &shard.snapshot {
                part.prefetch(db, hash);
            }
        });
        for_each_key(keyspace, keys, |shard, db, hash| {
            if let Some(entry) = shard.db(db).table.candidate(hash) {
                entry.prefetch();
            }
        });
    }

    /// Like [`ShardLocks::prefetch`], for the shards that the present [`MultiShardGuard`](crate::MultiShardGuard) has
    /// locked.
    fn prefetch_held(&mut self, keys: impl Iterator<Item = (DbIndex, KeyHash)>) {
        let keyspace = self.keyspace();
        for (db, hash) in keys {
            if let Some(at) = self.position(keyspace.hasher.shard(hash)) {
                let table_hash = keyspace.hasher.table_hash(hash);
                self.together[at].shard.db(db).table.prefetch(table_hash);
            }
        }
    }
}

/// Calls `visit` with the shard of each key and the key's hash in the table.
#[inline]
fn for_each_key(
    keyspace: &Keyspace,
    keys: impl Iterator<Item = (DbIndex, KeyHash)>,
    mut visit: impl FnMut(&Shard, DbIndex, u64),
) {
    let (mut locked, mut index) = (None, usize::MAX);
    for (db, hash) in keys {
        let shard = keyspace.hasher.shard(hash);
        if shard != index {
            // Unlock the old shard before trying the next one.
            drop(locked.take());
            (locked, index) = (keyspace.slots[shard].shard.try_lock(), shard);
        }
        if let Some(shard) = &locked {
            visit(shard, db, keyspace.hasher.table_hash(hash));
        }
    }
}

/// Prefetches elements of a key's value, if that is a large hash or set.
pub fn prefetch_elements<'e>(
    db: &mut Db<'_>,
    key: Key<'_>,
    elements: impl Iterator<Item = &'e [u8]>,
) {
    let hash = db.at.keyspace.hasher.table_hash(key.hash());
    let Some(entry) = db.present().table.find(hash, |entry| entry.is_key(key.bytes())) else {
        return;
    };
    match entry.collection().as_deref() {
        Some(Collection::Hash(hash)) => hash.prefetch(elements),
        Some(Collection::Set(set)) => set.prefetch(elements),
        _ => {}
    }
}
