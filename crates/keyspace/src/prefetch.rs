//! Announcing the keys of a batch, so that their cache misses overlap.
//!
//! A lookup in a large keyspace waits for memory twice: for the bucket of the index and for the
//! entry. For a batch of parsed requests both can be asked for ahead: first all buckets, then, when
//! those have arrived, the entries that their fingerprints point to. Finding either address takes
//! the shard's lock for a moment, which costs some 10 ns; a shard that another thread has locked is
//! passed over.

use tierce_dash::prefetch_read;

use crate::key::KeyHash;
use crate::keyspace::{DbIndex, Keyspace};
use crate::locker::Locker;

/// A keyspace of fewer keys than this is mostly in the processor's caches, where the locks cost
/// more than the misses. About the number of keys whose index and short values fill a megabyte.
const KEYS_MIN: u64 = 16 * 1024;

impl Locker<'_> {
    /// Asks the processor to fetch what the operations on these keys will read. Best called once
    /// for each batch, before its first operation, if [`Keyspace::gains_from_prefetch`]; changes nothing and never waits. Releases the
    /// shard of the last request.
    pub fn prefetch(&mut self, keys: &[(DbIndex, KeyHash)]) {
        self.release();
        let keyspace = self.keyspace();
        for &(db, hash) in keys {
            let slot = &keyspace.slots[keyspace.hasher.shard(hash)];
            if let Some(shard) = slot.shard.try_lock() {
                shard.db(db).table.prefetch(keyspace.hasher.table_hash(hash));
            }
        }
        for &(db, hash) in keys {
            let slot = &keyspace.slots[keyspace.hasher.shard(hash)];
            if let Some(shard) = slot.shard.try_lock()
                && let table = &shard.db(db).table
                && let Some(entry) = table.candidate(keyspace.hasher.table_hash(hash))
            {
                prefetch_read(entry.address());
            }
        }
    }
}

impl Keyspace {
    /// Whether announcing keys of this database pays, judged by the size of one shard's part.
    #[inline]
    #[must_use]
    pub fn gains_from_prefetch(&self, db: DbIndex) -> bool {
        let keys = self.slots[0].stats.dbs[db.get()].keys.get();
        keys * self.shard_count() as u64 >= KEYS_MIN
    }
}
