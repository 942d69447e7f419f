//! Values on disk, read for a snapshot.
//!
//! A batch that was copied under a lock has the locations of such values. They are read when the caller fetches the
//! batch, some at a time, so that memory stays bounded. No segment is removed while there is a snapshot, so the
//! values exist, whatever happens to their keys.

use tierce_storage::{ColdLocation, ColdStore};

use crate::error::SnapshotError;
use crate::registries::snapshot::batch::SnapshotBatch;

/// Approximate bytes of values that are read for one batch, but at least one value.
const BYTES_MAX: u64 = 1 << 20;

/// A batch whose values are being read.
#[derive(Debug)]
pub(super) struct Resolving {
    batch: SnapshotBatch,
    /// Number of entries that were passed on.
    done: usize,
}

impl Resolving {
    pub(super) fn new(batch: SnapshotBatch) -> Self {
        Self { batch, done: 0 }
    }

    /// Returns the next entries with their values; `None` if there are no more.
    pub(super) fn next(
        &mut self,
        store: &ColdStore,
    ) -> Result<Option<SnapshotBatch>, SnapshotError> {
        let (mut locations, mut bytes, mut count) = (Vec::<ColdLocation>::new(), 0, 0);
        for copy in self.batch.copies().skip(self.done) {
            if bytes >= BYTES_MAX {
                break;
            }
            count += 1;
            locations.extend(copy.location());
            bytes += copy.location().map_or(0, ColdLocation::stored_len);
        }
        if count == 0 {
            return Ok(None);
        }
        let mut values = store.read_many(&locations).into_iter();
        let mut resolved = SnapshotBatch::default();
        for copy in self.batch.copies().skip(self.done).take(count) {
            let value = match copy.location() {
                Some(_) => values.next().transpose(),
                None => Ok(None),
            };
            let value = value.map_err(|error| SnapshotError::Unreadable(error.to_string()))?;
            resolved.push_again(&copy, value.as_deref());
        }
        self.done += count;
        Ok(Some(resolved))
    }
}
