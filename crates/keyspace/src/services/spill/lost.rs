//! Finding values that should be on disk and are not there.

use crate::access::keyspace::Keyspace;
use crate::db_index::DbIndex;

/// Keys visited under one lock.
const KEYS_PER_LOCK: usize = 256;

/// Keys whose values are gone; from [`Keyspace::lost_values`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct LostValues {
    /// How many keys.
    pub keys: u64,
    /// Some of them.
    pub examples: Vec<(DbIndex, Vec<u8>)>,
}

impl Keyspace {
    /// Goes over all keys for those whose values are on disk only, where there is no room for them: their
    /// file is missing, or too short. Names up to `examples_max` of them. Reads nothing from disk.
    pub fn lost_values(&self, examples_max: usize) -> LostValues {
        let mut lost = LostValues::default();
        let Some(store) = self.cold_store() else { return lost };
        let mut locks = self.locks();
        for db in self.db_indices() {
            for shard in 0..self.shard_count() {
                let mut position = 0;
                loop {
                    position = locks.scan_shard(db, shard, position, KEYS_PER_LOCK, |entry| {
                        if entry.spilled().is_some_and(|spilled| !store.may_have(spilled.location))
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
