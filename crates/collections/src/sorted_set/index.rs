//! Index from the bytes of a member to the member.

use tierce_dash::{EntryHash, Table, prefetch_read};

use super::member::{Alias, Member};
use crate::incremental_snapshot::{IncrementalSnapshot, SnapshotProgress};
use crate::seed::hash_bytes;

/// The members of a set, by their bytes.
///
/// Invariant: it holds an alias of each member that was inserted and not removed since. The caller
/// guarantees that these are alive.
#[derive(Debug)]
pub(super) struct Index {
    table: Table<Alias>,
}

struct ByBytes;

impl EntryHash<Alias> for ByBytes {
    #[inline]
    fn hash(&self, alias: &Alias) -> u64 {
        hash_bytes(alias.bytes())
    }

    #[inline]
    fn prefetch(&self, alias: &Alias) {
        prefetch_read(alias.address());
    }
}

impl Index {
    pub(super) fn new() -> Self {
        Self { table: Table::new() }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    #[inline]
    pub(super) fn find(&self, hash: u64, member: &[u8]) -> Option<Alias> {
        self.table.find(hash, |alias| alias.bytes() == member).copied()
    }

    /// Adds a member that is absent; `hash` is that of its bytes.
    ///
    /// # Safety
    ///
    /// The member must be removed from the index before it is dropped.
    #[inline]
    pub(super) unsafe fn insert(&mut self, hash: u64, member: &Member) {
        // SAFETY: as the caller guarantees.
        let alias = unsafe { member.alias() };
        self.table.insert_unique(hash, alias, &ByBytes);
    }

    /// Removes a member from the index.
    #[inline]
    pub(super) fn remove(&mut self, member: &Member) {
        // SAFETY: it is used for a comparison here only.
        let alias = unsafe { member.alias() };
        let removed = self.table.remove(ByBytes.hash(&alias), |other| other.is(&alias), &ByBytes);
        debug_assert!(removed.is_some(), "a member that was not in the index");
    }

    /// Lets a snapshot copy a member of this hash before it is added, removed or changed.
    pub(super) fn save(&self, hash: u64, snapshot: &mut IncrementalSnapshot<Member>) {
        let copy = |alias: &Alias| Member::new(alias.bytes(), alias.score());
        snapshot.before_change(&self.table, hash, &ByBytes, copy);
    }

    /// See [`IncrementalSnapshot::walk_on`].
    pub(super) fn save_on(
        &self,
        snapshot: &mut IncrementalSnapshot<Member>,
        bytes_max: usize,
        visit: impl FnMut(&Alias) -> usize,
    ) -> SnapshotProgress {
        snapshot.walk_on(&self.table, &ByBytes, bytes_max, visit)
    }

    /// See [`Table::scan`].
    pub(super) fn scan(&self, cursor: u64, visit: impl FnMut(&Alias)) -> u64 {
        self.table.scan(cursor, &ByBytes, visit)
    }
}
