//! Moves values out of segments with little live data, so that these can be removed.
//!
//! A value on disk does not store its key, which may have been renamed since. So a pass over all keys finds those
//! with a location in one of the segments. It reads only memory, and pays because one pass cleans many segments.

use tierce_storage::{ColdLocation, ColdRefusal};

use super::gather::SpillBatch;
use crate::access::keyspace::Keyspace;
use crate::db_index::DbIndex;
use crate::services::scan::scan_shard;

/// Number of keys visited under one lock.
const KEYS_PER_LOCK: usize = 64;

/// A pass over all keys for those with a location in some segments.
#[derive(Debug)]
pub struct Cleaning {
    /// Sorted.
    segments: Vec<u32>,
    /// Position of the next step: database, shard, position in the shard's table.
    db: usize,
    shard: usize,
    position: u64,
    /// Values found but not moved yet, in reverse order of moving.
    found: Vec<Found>,
    has_met_busy: bool,
}

/// A key and the location of its value.
#[derive(Debug)]
struct Found {
    db: DbIndex,
    key: Vec<u8>,
    location: ColdLocation,
}

impl Cleaning {
    /// Begins a pass for these segments.
    pub fn begin(mut segments: Vec<u32>) -> Self {
        segments.sort_unstable();
        let found = Vec::new();
        Self { segments, db: 0, shard: 0, position: 0, found, has_met_busy: false }
    }

    /// Returns true if shards were skipped because they were busy.
    pub fn has_met_busy(&self) -> bool {
        self.has_met_busy
    }

    /// Visits some keys, reads their values from the segments, and adds them to the batch: about `bytes_max` bytes,
    /// but at least one value. `false` at the end of the pass. A key that SWAPDB moves meanwhile may be missed; then
    /// its segment stays until the next pass. So does a segment with a value that no batch accepts.
    ///
    /// # Errors
    ///
    /// If a value cannot be read. It stays in its segment.
    pub fn step(
        &mut self,
        keyspace: &Keyspace,
        batch: &mut SpillBatch,
        bytes_max: usize,
    ) -> Result<bool, tierce_storage::Error> {
        let Some(store) = keyspace.cold_store() else { return Ok(false) };
        if self.found.is_empty() {
            self.find(keyspace, bytes_max);
        }
        let next = self.take_next(bytes_max);
        let locations: Vec<ColdLocation> = next.iter().map(|found| found.location).collect();
        for (found, value) in next.into_iter().zip(store.read_many(&locations)) {
            let value = match value {
                Ok(value) => value,
                // It was changed or moved since, and its segment was removed.
                Err(tierce_storage::Error::Missing { .. }) => continue,
                Err(error) => return Err(error),
            };
            match batch.push_moved(found.db, &found.key, found.location, &value) {
                Ok(()) | Err(ColdRefusal::TooLong) => {}
                Err(ColdRefusal::Full) => self.found.push(found),
            }
        }
        Ok(!self.found.is_empty() || keyspace.db_index(self.db).is_some())
    }

    /// Visits keys until it has found values of about `bytes_max` bytes.
    fn find(&mut self, keyspace: &Keyspace, bytes_max: usize) {
        let mut bytes = 0;
        while bytes < bytes_max {
            let Some(db) = keyspace.db_index(self.db) else { break };
            bytes += self.clean_some(keyspace, db);
        }
        let order = |found: &Found| (found.location.segment, found.location.stored_order());
        self.found.sort_by_key(|found| std::cmp::Reverse(order(found)));
    }

    /// Takes the next values of about `bytes_max` bytes, but at least one.
    fn take_next(&mut self, bytes_max: usize) -> Vec<Found> {
        let (mut next, mut bytes) = (Vec::new(), 0);
        while bytes < bytes_max
            && let Some(found) = self.found.pop()
        {
            bytes += found.location.stored_len() as usize;
            next.push(found);
        }
        next
    }

    /// Visits some keys of one shard, unless it is busy. Returns the bytes of the values found.
    fn clean_some(&mut self, keyspace: &Keyspace, db: DbIndex) -> usize {
        let mut bytes = 0;
        let (segments, found) = (&self.segments, &mut self.found);
        let mut locks = keyspace.locks();
        let visit = |entry: &crate::data::entry::Entry| {
            let Some(location) = entry.location() else { return };
            if segments.binary_search(&location.segment).is_ok() {
                bytes += location.stored_len() as usize;
                found.push(Found { db, key: entry.key().to_vec(), location });
            }
        };
        self.position = match locks.try_reach_shard(self.shard) {
            true => scan_shard(&mut locks, db, self.shard, self.position, KEYS_PER_LOCK, visit),
            false => {
                self.has_met_busy = true;
                0
            }
        };
        drop(locks);
        if self.position == 0 {
            self.shard = (self.shard + 1) % keyspace.shard_count();
            self.db += usize::from(self.shard == 0);
        }
        bytes
    }
}
