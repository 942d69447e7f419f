//! The large collections of a snapshot, which are saved in slices after everything else.
//!
//! The walk over the keys, or a writer that is ahead of it, only begins a snapshot of a large collection
//! and notes it in [`Larges`], which takes constant time whatever its size. From then on the collection itself
//! keeps what the snapshot needs of it ([`tierce_collections::SnapshotTag`]), however it is changed and whatever
//! its key is called meanwhile. When all other keys are saved, the snapshot takes one large collection
//! after the other, a slice under a lock.
//!
//! Invariants:
//! - An incomplete collection noted there is where `whereabouts` says, or a thread that has its shard locked
//!   is about to update that.
//! - A collection that is being saved is never dropped, but handed over to [`Larges`].
//! - A shard is locked before [`Larges`], never after it.

use std::time::Duration;

use parking_lot::MutexGuard;
use tierce_collections::{SnapshotId, SnapshotProgress};

use crate::access::keyspace::Keyspace;
use crate::access::shard::Held;
use crate::codec::Writer;
use crate::data::collections::{SavedCollection, incremental_snapshot};
use crate::data::entry::Entry;
use crate::db_index::DbIndex;
use crate::error::SnapshotError;
use crate::registries::snapshot::backlog::Backlog;
use crate::registries::snapshot::larges::{LargeHead, Larges, Whereabouts};

/// A slice has about this many bytes: some hundred members, each of which may have to be waited for, in
/// memory of its own. So a lock is held for some ten microseconds.
const SLICE_BYTES: usize = 4096;

/// A large collection of a snapshot, to be taken in slices.
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
    /// The large collection of the snapshot that has waited longest.
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

    /// Whether another thread held the shard when the last slice was to be taken.
    pub fn is_contended(&self) -> bool {
        self.is_contended
    }

    /// Lets others have the processor for a while.
    pub fn rest(&self, time: Duration) {
        self.backlog.rest(time);
    }

    /// What is known of it before its members.
    pub fn head(&self) -> &LargeHead {
        &self.head
    }

    /// The next members as they were when the snapshot began; `None` when there are no more. All slices
    /// together have [`LargeHead::len`] of them, those of lists in their order.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Lost`], which would be a bug.
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
                // No other thread uses it, but others wait for the registry.
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

    /// Takes a slice of the collection under a key, unless it has left.
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
                Some(entry.snapshot_slice(SLICE_BYTES, &mut Writer::new(&mut self.edits)))
            }
            // Under the lock no thread is about to move it.
            None if self.backlog.larges.is_at(id, db, key) => return Err(SnapshotError::Lost),
            None => None,
        };
        // To a waiting thread, rather than to this one again.
        MutexGuard::unlock_fair(held.shard);
        Ok(saved)
    }
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
        let found = table.find_mut(hasher.table_hash(hash), is_it);
        let remainder = found.and_then(Entry::cancel_snapshot);
        // Freeing it may take a while.
        drop(held);
        drop(remainder);
    }

    /// Ends all of them.
    pub(super) fn end_all(&self, keyspace: &Keyspace) {
        while let Some((id, _)) = self.first() {
            self.end(keyspace, id);
        }
    }
}

impl Drop for SavedLarge<'_> {
    /// What was not taken is left out.
    fn drop(&mut self) {
        self.backlog.larges.end(self.keyspace, self.id);
    }
}

impl std::fmt::Debug for SavedLarge<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SavedLarge").field("head", &self.head).finish_non_exhaustive()
    }
}
