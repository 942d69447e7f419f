//! The registry of the large collections of a snapshot; see `services/snapshot/large.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use tierce_collections::{Collection, CollectionKind, SnapshotId, SnapshotTag};

use crate::data::entry::{Entry, OutOfLine};
use crate::db_index::{DbIndex, DbSet};

#[derive(Debug, Default)]
pub(crate) struct Larges {
    pub(crate) waiting: Mutex<BTreeMap<SnapshotId, Large>>,
    /// Bytes that the collections keep for the snapshot.
    pub(crate) bytes: Arc<AtomicUsize>,
}

/// A large collection as of the beginning of the snapshot, without its members.
#[derive(Debug)]
pub(crate) struct Large {
    pub(crate) head: LargeHead,
    pub(crate) whereabouts: Whereabouts,
}

/// Metadata of a large collection, before its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LargeHead {
    /// Its database.
    pub db: DbIndex,
    /// Its key.
    pub key: Vec<u8>,
    /// Expiry time, as Unix time in milliseconds.
    pub deadline_ms: Option<i64>,
    /// Its type.
    pub kind: CollectionKind,
    /// Number of members.
    pub len: u64,
    /// Lower bound of the first expiry time of its fields. `None` if none has a deadline.
    pub fields_ms: Option<i64>,
}

/// Present location of a large collection.
#[derive(Debug)]
pub(crate) enum Whereabouts {
    /// Under this key.
    At(DbIndex, Vec<u8>),
    /// Removed from its key: deleted, overwritten, expired, or similar.
    Here(Collection),
}

impl Larges {
    /// Returns the extra memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Begins to save a large collection. It is in `at` now, and was in `db` at the beginning of the snapshot.
    pub(crate) fn begin(&self, db: DbIndex, at: DbIndex, entry: &mut Entry) {
        let tag = SnapshotTag::new(&self.bytes);
        let id = tag.id();
        let Some(collection) = entry.collection() else { return };
        let head = LargeHead {
            db,
            key: entry.key().to_vec(),
            deadline_ms: entry.deadline_ms(),
            kind: collection.kind(),
            len: collection.len() as u64,
            fields_ms: entry.next_field_deadline_ms(),
        };
        let begun = entry.begin_snapshot(tag);
        debug_assert!(begun, "only what has slices is large");
        let whereabouts = Whereabouts::At(at, head.key.clone());
        self.waiting.lock().insert(id, Large { head, whereabouts });
    }

    /// Like [`Larges::begin`], for a collection whose key is already removed.
    pub(crate) fn begin_with(&self, db: DbIndex, mut entry: Entry) {
        self.begin(db, db, &mut entry);
        if let (Some(id), Some(OutOfLine::Collection(collection))) =
            (entry.snapshot_id(), entry.take_out_of_line())
        {
            let refused = self.hand_over(id, collection);
            debug_assert!(refused.is_none(), "it was noted just now");
        }
    }

    /// Updates the key of a collection; `false` if its snapshot has ended.
    pub(crate) fn move_to(&self, id: SnapshotId, db: DbIndex, key: &[u8]) -> bool {
        let mut waiting = self.waiting.lock();
        let Some(large) = waiting.get_mut(&id) else { return false };
        large.whereabouts = Whereabouts::At(db, key.to_vec());
        true
    }

    /// Takes a collection without a key, or returns it if its snapshot has ended.
    pub(crate) fn hand_over(&self, id: SnapshotId, collection: Collection) -> Option<Collection> {
        let mut waiting = self.waiting.lock();
        let Some(large) = waiting.get_mut(&id) else { return Some(collection) };
        self.bytes.fetch_add(collection.allocated_bytes(), Relaxed);
        large.whereabouts = Whereabouts::Here(collection);
        None
    }

    /// Updates the databases after an exchange. All shards are locked.
    pub(crate) fn swap(&self, a: DbIndex, b: DbIndex) {
        for large in self.waiting.lock().values_mut() {
            if let Whereabouts::At(at, _) = &mut large.whereabouts {
                *at = match *at {
                    at if at == a => b,
                    at if at == b => a,
                    at => at,
                };
            }
        }
    }

    /// Returns the keys of some databases whose collections are being saved. All shards are locked.
    pub(crate) fn keys_in(&self, dbs: &DbSet) -> Vec<(DbIndex, Vec<u8>)> {
        let waiting = self.waiting.lock();
        let keys = waiting.values().filter_map(|large| match &large.whereabouts {
            Whereabouts::At(db, key) if dbs.contains(*db) => Some((*db, key.clone())),
            _ => None,
        });
        keys.collect()
    }

    /// Returns the collection that has waited longest.
    pub(crate) fn first(&self) -> Option<(SnapshotId, LargeHead)> {
        let waiting = self.waiting.lock();
        waiting.first_key_value().map(|(id, large)| (*id, large.head.clone()))
    }

    /// Forgets a collection. Returns its key, if it still has one.
    pub(crate) fn forget(&self, id: SnapshotId) -> Option<(DbIndex, Vec<u8>)> {
        let large = self.waiting.lock().remove(&id)?;
        match large.whereabouts {
            Whereabouts::At(db, key) => Some((db, key)),
            Whereabouts::Here(collection) => {
                self.bytes.fetch_sub(collection.allocated_bytes(), Relaxed);
                None
            }
        }
    }
}
