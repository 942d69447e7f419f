//! Freeing what is in no database any more.

use tierce_collections::{Form, Stream};

use crate::access::keyspace::Keyspace;
use crate::data::collections::CollectionType;
use crate::data::entry::{Entry, OutOfLine};
use crate::registries::lazy_free::{LAZY_FREE_BYTES_MIN, LazyFreeItem};

/// A stream with more blocks, groups and pending entries than this is left to the reaper as well, as in Redis.
const PARTS_MAX: usize = 64;

impl Keyspace {
    /// Frees an entry that is in no database any more, here, or, if it is large, by the reaper, or when it has been
    /// saved.
    pub(crate) fn free(&self, mut entry: Entry) {
        if let Some(id) = entry.snapshot_id()
            && let Some(value) = entry.take_out_of_line()
        {
            return self.save_removed(id, value);
        }
        if entry.allocated_bytes() >= LAZY_FREE_BYTES_MIN || has_many_parts(&entry) {
            self.discard(LazyFreeItem::Entry(entry));
        }
    }

    /// The same for a value that no entry has any more.
    pub(crate) fn free_displaced(&self, displaced: Option<OutOfLine>) {
        let Some(value) = displaced else { return };
        if let Some(id) = value.snapshot_id() {
            self.save_removed(id, value);
        } else if value.allocated_bytes() >= LAZY_FREE_BYTES_MIN {
            self.discard(LazyFreeItem::OutOfLine(value));
        }
    }
}

fn has_many_parts(entry: &Entry) -> bool {
    if !matches!(entry.raw_collection(), Some((Form::Stream, _))) {
        return false;
    }
    let collection = entry.collection();
    let stream = collection.as_ref().and_then(|collection| Stream::of(collection));
    stream.is_some_and(|stream| {
        let of_groups = stream.groups().map(|(_, group)| 1 + group.pending_len());
        stream.block_count() + of_groups.sum::<usize>() > PARTS_MAX
    })
}
