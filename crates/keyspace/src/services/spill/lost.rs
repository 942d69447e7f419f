//! Finds values that should be on disk but are missing.

use crate::access::keyspace::Keyspace;
use crate::db_index::DbIndex;
use crate::services::scan::scan_shard;

/// Number of keys visited under one lock.
const KEYS_PER_LOCK: usize = 256;

/// Keys whose values are missing; from [`LostValues::find`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct LostValues {
    /// Number of keys.
    pub keys: u64,
    /// Some of them.
    pub examples: Vec<(DbIndex, Vec<u8>)>,
}

impl LostValues {
    /// Visits all keys for those whose values are only on disk, but whose file is missing or too short. Returns up to
    /// `examples_max` of them as examples. Reads nothing from disk.
    pub fn find(keyspace: &Keyspace, examples_max: usize) -> Self {
        let mut lost = Self::default();
        let Some(store) = keyspace.cold_store() else { return lost };
        let mut locks = keyspace.locks();
        for db in keyspace.db_indices() {
            for shard in 0..keyspace.shard_count() {
                let mut position = 0;
                loop {
                    position =
                        scan_shard(&mut locks, db, shard, position, KEYS_PER_LOCK, |entry| {
                            if entry
                                .spilled()
                                .is_some_and(|spilled| !store.may_have(spilled.location))
                            {
                                lost.keys += 1;
                                if lost.examples.len() < examples_max {
                                    lost.examples.push((db, entry.key().to_vec()));
                                }
                            }
                        });
                    if position == 0 {
                        break;
                    }
                }
            }
        }
        lost
    }
}
