//! Changes code, under the locks of all shards.

use std::fmt;
use std::sync::Arc;

use crate::access::shard_locks::{MultiShardGuard, ShardLocks};
use crate::data::code::{CODE_NAME_LEN_MAX, CodeKind};
use crate::error::Busy;

/// Changes libraries of functions and scripts by name. All shards are locked during its lifetime.
pub struct CodeEditor<'a, 'k>(MultiShardGuard<'a, 'k>);

impl fmt::Debug for CodeEditor<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CodeEditor").finish_non_exhaustive()
    }
}

impl<'a, 'k> CodeEditor<'a, 'k> {
    /// Locks all shards, to change code.
    ///
    /// # Panics
    ///
    /// Under a [`MultiShardGuard`] that has not locked all shards.
    pub fn lock(locks: &'a mut ShardLocks<'k>) -> Self {
        Self(locks.lock_all())
    }

    /// Like [`CodeEditor::lock`]. Fails if a shard is busy and these are a worker's locks.
    ///
    /// # Errors
    ///
    /// [`Busy`]; see [`ShardLocks::try_lock_all`].
    ///
    /// # Panics
    ///
    /// As for [`CodeEditor::lock`].
    pub fn try_lock(locks: &'a mut ShardLocks<'k>) -> Result<Self, Busy> {
        locks.try_lock_all().map(CodeEditor)
    }
}

impl CodeEditor<'_, '_> {
    /// Sets the source of a name, and replaces any previous one.
    ///
    /// # Panics
    ///
    /// If the name is empty or longer than [`CODE_NAME_LEN_MAX`].
    pub fn put(&mut self, kind: CodeKind, name: &[u8], source: impl Into<Arc<[u8]>>) {
        assert!((1..=CODE_NAME_LEN_MAX).contains(&name.len()), "a name of code");
        self.set(kind, name, Some(source.into()));
    }

    /// Removes a source. Returns true if there was one of this name.
    pub fn remove(&mut self, kind: CodeKind, name: &[u8]) -> bool {
        let is_there = self.0.locks().keyspace().code().get(kind, name).is_some();
        if is_there {
            self.set(kind, name, None);
        }
        is_there
    }

    fn set(&mut self, kind: CodeKind, name: &[u8], source: Option<Arc<[u8]>>) {
        let locks = self.0.locks();
        let (keyspace, undo) = (locks.keyspace(), locks.thread.undo.clone());
        // Changes are counted by shard, and code belongs to none.
        let held = &mut locks.all_held()[0];
        if let Some(undo) = &undo {
            undo.count(held.index, held.stats);
        }
        held.stats.changes.add(1);
        let before = keyspace.set_code(kind, name, source.clone());
        if let Some(undo) = &undo {
            undo.code_changes(kind, name, before);
        }
        if let Some(batch) = &locks.thread.effects.batch {
            batch.record_code(kind, name, source.as_deref());
        }
    }
}
