//! Moving values out of segments in which little else counts, so that these can go.
//!
//! A value on disk does not know its key, which may have got another name since. So a pass over all keys
//! finds those with a place in one of the segments. It reads memory only, and is worth while because
//! many segments are cleaned by one pass.

use tierce_cask::ColdPlace;

use super::gather::SpillBatch;
use crate::keyspace::{DbIndex, Keyspace};

/// Keys visited under one lock.
const KEYS_PER_LOCK: usize = 64;

/// A pass over all keys for those with a place in some segments.
#[derive(Debug)]
pub struct Cleaning {
    /// Sorted.
    segments: Vec<u32>,
    /// Where the next step begins: database, shard, position in the shard's table.
    db: usize,
    shard: usize,
    position: u64,
}

/// A key and where its value is.
#[derive(Debug)]
struct Found {
    db: DbIndex,
    key: Vec<u8>,
    place: ColdPlace,
}

/// What a [`Cleaning`] still has to move.
#[derive(Debug, Default)]
struct Step {
    found: Vec<Found>,
}

impl Cleaning {
    /// Begins a pass for these segments.
    #[must_use]
    pub fn begin(mut segments: Vec<u32>) -> Self {
        segments.sort_unstable();
        Self { segments, db: 0, shard: 0, position: 0 }
    }

    /// Looks at some keys, reads the values of those that are in one of the segments, and adds them to
    /// the batch, about `bytes_max` bytes; `false` at the end of the pass. A key that
    /// SWAPDB moves meanwhile may be missed; its segment stays then until the next pass.
    ///
    /// # Errors
    ///
    /// When a value cannot be read, which then stays where it is.
    pub fn step(
        &mut self,
        keyspace: &Keyspace,
        batch: &mut SpillBatch,
        bytes_max: usize,
    ) -> Result<bool, tierce_cask::Error> {
        let Some(store) = keyspace.cold_store() else { return Ok(false) };
        let mut step = Step::default();
        let mut bytes = 0;
        while bytes < bytes_max {
            let Some(db) = keyspace.db_index(self.db) else { break };
            bytes += self.look(keyspace, db, &mut step);
        }
        step.found.sort_by_key(|found| (found.place.segment, found.place.stored_order()));
        let places: Vec<ColdPlace> = step.found.iter().map(|found| found.place).collect();
        for (found, value) in step.found.iter().zip(store.read_many(&places)) {
            let value = match value {
                Ok(value) => value,
                // It was changed or moved since, and its segment has gone.
                Err(tierce_cask::Error::Missing { .. }) => continue,
                Err(error) => return Err(error),
            };
            let item = batch.item(found.db, &found.key, Some(found.place));
            batch.values.push(|out| out.extend_from_slice(&value));
            batch.items.push(item);
        }
        Ok(keyspace.db_index(self.db).is_some())
    }

    /// Looks at some keys of one shard. Returns the bytes of the values that it found.
    fn look(&mut self, keyspace: &Keyspace, db: DbIndex, step: &mut Step) -> usize {
        let mut bytes = 0;
        let segments = &self.segments;
        let mut locker = keyspace.locker();
        let visit = |entry: &crate::entry::Entry| {
            let Some(place) = entry.place() else { return };
            if segments.binary_search(&place.segment).is_ok() {
                bytes += place.stored_len() as usize;
                step.found.push(Found { db, key: entry.key().to_vec(), place });
            }
        };
        self.position = locker.scan_shard(db, self.shard, self.position, KEYS_PER_LOCK, visit);
        drop(locker);
        if self.position == 0 {
            self.shard = (self.shard + 1) % keyspace.shard_count();
            self.db += usize::from(self.shard == 0);
        }
        bytes
    }
}
