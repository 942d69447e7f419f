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
    /// What the collections keep for the snapshot.
    pub(crate) bytes: Arc<AtomicUsize>,
}

/// A large collection as it was when the snapshot began, but for its members.
#[derive(Debug)]
pub(crate) struct Large {
    pub(crate) head: LargeHead,
    pub(crate) whereabouts: Whereabouts,
}

/// What is known about a large collection before its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LargeHead {
    /// The database it was in.
    pub db: DbIndex,
    /// Its key.
    pub key: Vec<u8>,
    /// When it expires, as Unix time in milliseconds.
    pub deadline_ms: Option<i64>,
    /// Its type.
    pub kind: CollectionKind,
    /// How many members it has.
    pub len: u64,
    /// When the first of its fields may expire: not after this. `None` if none has a deadline.
    pub fields_ms: Option<i64>,
}

/// Where a large collection is now.
#[derive(Debug)]
pub(crate) enum Whereabouts {
    /// Under this key.
    At(DbIndex, Vec<u8>),
    /// Deleted, overwritten, expired, or the like.
    Here(Collection),
}

impl Larges {
    /// Extra memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Begins to save a large collection, which `at` is in now, and was in `db` when the snapshot began.
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

    /// The same for one whose key is gone already.
    pub(crate) fn begin_with(&self, db: DbIndex, mut entry: Entry) {
        self.begin(db, db, &mut entry);
        if let (Some(id), Some(OutOfLine::Collection(collection))) =
            (entry.snapshot_id(), entry.take_out_of_line())
        {
            let refused = self.hand_over(id, collection);
            debug_assert!(refused.is_none(), "it was noted just now");
        }
    }

    /// A collection is under this key now; `false` if its snapshot is gone.
    pub(crate) fn move_to(&self, id: SnapshotId, db: DbIndex, key: &[u8]) -> bool {
        let mut waiting = self.waiting.lock();
        let Some(large) = waiting.get_mut(&id) else { return false };
        large.whereabouts = Whereabouts::At(db, key.to_vec());
        true
    }

    /// Takes a collection that is under no key any more, or returns it if its snapshot is gone.
    pub(crate) fn hand_over(&self, id: SnapshotId, collection: Collection) -> Option<Collection> {
        let mut waiting = self.waiting.lock();
        let Some(large) = waiting.get_mut(&id) else { return Some(collection) };
        self.bytes.fetch_add(collection.allocated_bytes(), Relaxed);
        large.whereabouts = Whereabouts::Here(collection);
        None
    }

    /// Two databases were exchanged. All shards are locked.
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

    /// The keys of some databases whose collections are being saved. All shards are locked.
    pub(crate) fn keys_in(&self, dbs: &DbSet) -> Vec<(DbIndex, Vec<u8>)> {
        let waiting = self.waiting.lock();
        let keys = waiting.values().filter_map(|large| match &large.whereabouts {
            Whereabouts::At(db, key) if dbs.contains(*db) => Some((*db, key.clone())),
            _ => None,
        });
        keys.collect()
    }

    /// The one that has waited longest.
    pub(crate) fn first(&self) -> Option<(SnapshotId, LargeHead)> {
        let waiting = self.waiting.lock();
        waiting.first_key_value().map(|(id, large)| (*id, large.head.clone()))
    }

    /// Forgets a collection. Returns the key that it is still under.
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
