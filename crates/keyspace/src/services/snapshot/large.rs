//! The large collections of a snapshot, which are saved in slices after everything else.
//!
//! The walk over the keys, or a writer ahead of it, only begins a snapshot of a large collection and registers it in
//! [`Larges`], in constant time. From then on the collection itself keeps the data that the snapshot needs
//! ([`tierce_collections::SnapshotTag`]), through all its changes and renames. After all other keys, the snapshot
//! saves one large collection after the other, a slice under a lock.
//!
//! Invariants:
//! - A registered incomplete collection is at its `whereabouts`, or a thread that has its shard locked is about to
//!   update that.
//! - A collection that is being saved is never dropped, but handed over to [`Larges`].
//! - Lock order: a shard before [`Larges`], never after it.

use std::time::Duration;

use parking_lot::MutexGuard;
use tierce_collections::{SnapshotId, SnapshotProgress};

use crate::access::accounting::Accounting;
use crate::access::keyspace::Keyspace;
use crate::access::shard::Held;
use crate::codec::Writer;
use crate::data::collections::{SavedCollection, incremental_snapshot};
use crate::data::entry::Entry;
use crate::db_index::DbIndex;
use crate::error::SnapshotError;
use crate::registries::snapshot::backlog::Backlog;
use crate::registries::snapshot::larges::{LargeHead, Larges, Whereabouts};

/// Approximate size of a slice: some hundred members, each of which may cause a cache miss. So a lock lasts for some
/// ten microseconds.
const SLICE_BYTES: usize = 4096;

/// A large collection of a snapshot, to be read in slices.
pub struct SavedLarge<'s> {
    keyspace: &'s Keyspace,
    backlog: &'s Backlog,
    id: SnapshotId,
    head: LargeHead,
    state: SnapshotProgress,
    edits: Vec<u8>,
    is_contended: bool,
}

impl<'s> SavedLarge<'s> {
    /// Returns the large collection of the snapshot that has waited longest.
    pub(super) fn first(keyspace: &'s Keyspace, backlog: &'s Backlog) -> Option<Self> {
        let (id, head) = backlog.larges.first()?;
        Some(Self {
            keyspace,
            backlog,
            id,
            head,
            state: SnapshotProgress::Slice,
            edits: Vec::new(),
            is_contended: false,
        })
    }

    /// Returns true if another thread had locked the shard at the last attempt to take a slice.
    pub fn is_contended(&self) -> bool {
        self.is_contended
    }

    /// Yields the processor for a while.
    pub fn rest(&self, time: Duration) {
        self.backlog.rest(time);
    }

    /// Returns its metadata.
    pub fn head(&self) -> &LargeHead {
        &self.head
    }

    /// Returns the next members as of the beginning of the snapshot; `None` if there are no more. All slices together
    /// have [`LargeHead::len`] members, those of lists in order.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Lost`], which is a bug.
    pub fn next_slice(&mut self) -> Result<Option<SavedCollection<'_>>, SnapshotError> {
        self.edits.clear();
        while self.edits.is_empty() && self.state == SnapshotProgress::Slice {
            self.state = self.take_slice()?;
        }
        let edits = &self.edits[..];
        Ok((!edits.is_empty()).then_some(SavedCollection { edits }))
    }

    fn take_slice(&mut self) -> Result<SnapshotProgress, SnapshotError> {
        loop {
            let mut waiting = self.backlog.larges.waiting.lock();
            let Some(large) = waiting.get_mut(&self.id) else { return Err(SnapshotError::Lost) };
            match &mut large.whereabouts {
                // No other thread uses the collection, but others wait for the registry.
                Whereabouts::Here(collection) => {
                    let mut edits = Writer::new(&mut self.edits);
                    return Ok(incremental_snapshot::snapshot_slice(
                        collection,
                        SLICE_BYTES,
                        &mut edits,
                    ));
                }
                Whereabouts::At(db, key) => {
                    let (db, key) = (*db, key.clone());
                    drop(waiting);
                    if let Some(saved) = self.take_slice_at(db, &key)? {
                        return Ok(saved);
                    }
                }
            }
        }
    }

    /// Takes a slice of the collection under a key, unless it has moved.
    fn take_slice_at(
        &mut self,
        db: DbIndex,
        key: &[u8],
    ) -> Result<Option<SnapshotProgress>, SnapshotError> {
        let hasher = &self.keyspace.hasher;
        let hash = hasher.hash_bytes(key);
        let shard = hasher.shard(hash);
        self.is_contended = self.keyspace.slots[shard].shard.is_locked();
        let mut held = Held::lock(&self.keyspace.slots, shard);
        let table = &mut held.shard.present_mut(db).table;
        let id = self.id;
        let is_it = |entry: &Entry| entry.is_key(key) && entry.snapshot_id() == Some(id);
        let saved = match table.find_mut(hasher.table_hash(hash), is_it) {
            Some(entry) => {
                let before = Accounting::of(entry);
                let saved = entry.snapshot_slice(SLICE_BYTES, &mut Writer::new(&mut self.edits));
                let after = Accounting::of(entry);
                account(&mut held, self.keyspace, db, [before, after]);
                Some(saved)
            }
            // Under the lock no thread is about to move it.
            None if self.backlog.larges.is_at(id, db, key) => return Err(SnapshotError::Lost),
            None => None,
        };
        // Prefers a waiting thread to this one.
        MutexGuard::unlock_fair(held.shard);
        Ok(saved)
    }
}

/// Updates the figures for a collection with or without its snapshot: a set whose last deadline went meanwhile
/// becomes a plain one at the end. Its item in the heap of deadlines is outdated then.
fn account(
    held: &mut Held<'_>,
    keyspace: &Keyspace,
    db: DbIndex,
    [before, after]: [Accounting; 2],
) {
    if before.bytes == after.bytes {
        return;
    }
    let data = held.shard.present_mut(db);
    data.entry_bytes = data.entry_bytes - before.bytes + after.bytes;
    data.volatile_sets -= usize::from(before.elements.is_some() && after.elements.is_none());
    held.stats.entry_bytes.follow(before.bytes, after.bytes);
    held.stats.follow_size(&keyspace.pressure);
}

impl Larges {
    fn is_at(&self, id: SnapshotId, db: DbIndex, key: &[u8]) -> bool {
        let waiting = self.waiting.lock();
        let large = waiting.get(&id);
        large.is_some_and(|large| {
            matches!(&large.whereabouts, Whereabouts::At(at, name) if *at == db && name == key)
        })
    }

    /// Ends a snapshot, complete or not.
    pub(super) fn end(&self, keyspace: &Keyspace, id: SnapshotId) {
        let Some((db, key)) = self.forget(id) else { return };
        let hasher = &keyspace.hasher;
        let hash = hasher.hash_bytes(&key);
        let mut held = Held::lock(&keyspace.slots, hasher.shard(hash));
        let table = &mut held.shard.present_mut(db).table;
        let is_it = |entry: &Entry| entry.is_key(&key) && entry.snapshot_id() == Some(id);
        let mut remainder = None;
        if let Some(entry) = table.find_mut(hasher.table_hash(hash), is_it) {
            let before = Accounting::of(entry);
            remainder = entry.cancel_snapshot();
            let after = Accounting::of(entry);
            account(&mut held, keyspace, db, [before, after]);
        }
        // Freeing it may take a while.
        drop(held);
        drop(remainder);
    }

    /// Ends all snapshots of collections.
    pub(super) fn end_all(&self, keyspace: &Keyspace) {
        while let Some((id, _)) = self.first() {
            self.end(keyspace, id);
        }
    }
}

impl Drop for SavedLarge<'_> {
    /// Members that were not read are skipped.
    fn drop(&mut self) {
        self.backlog.larges.end(self.keyspace, self.id);
    }
}

impl std::fmt::Debug for SavedLarge<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SavedLarge").field("head", &self.head).finish_non_exhaustive()
    }
}
