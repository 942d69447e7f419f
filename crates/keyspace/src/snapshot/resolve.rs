//! Values on disk, read for a snapshot.
//!
//! A batch that was copied under a lock has the places of such values. They are read when somebody asks
//! for the batch, some at a time, so that memory stays bounded. As long as there is a snapshot no segment
//! is removed, so the values are there, whatever has become of their keys.

use tierce_cask::{ColdPlace, ColdStore};

use super::SnapshotError;
use super::batch::Batch;

/// Values of about so many bytes are read for one batch, but at least one.
const BYTES_MAX: u64 = 1 << 20;

/// A batch whose values are being read.
#[derive(Debug)]
pub(super) struct Resolving {
    batch: Batch,
    /// Entries that were handed on.
    done: usize,
}

impl Resolving {
    pub(super) fn new(batch: Batch) -> Self {
        Self { batch, done: 0 }
    }

    /// The next entries with their values; `None` when there are no more.
    pub(super) fn next(&mut self, store: &ColdStore) -> Result<Option<Batch>, SnapshotError> {
        let (mut places, mut bytes, mut count) = (Vec::<ColdPlace>::new(), 0, 0);
        for copy in self.batch.copies().skip(self.done) {
            if bytes >= BYTES_MAX {
                break;
            }
            count += 1;
            places.extend(copy.place());
            bytes += copy.place().map_or(0, ColdPlace::stored_len);
        }
        if count == 0 {
            return Ok(None);
        }
        let mut values = store.read_many(&places).into_iter();
        let mut resolved = Batch::default();
        for copy in self.batch.copies().skip(self.done).take(count) {
            let value = match copy.place() {
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
