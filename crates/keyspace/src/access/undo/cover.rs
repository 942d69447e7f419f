//! Recording a key before it changes.

use crate::access::context::Context;
use crate::access::db::Db;
use crate::data::entry::Entry;
use crate::data::key::Key;

impl Db<'_> {
    /// The entry of a key, even if its deadline has come.
    pub(super) fn find_any(&mut self, key: Key<'_>) -> Option<&mut Entry> {
        let hash = self.at.keyspace.hasher.table_hash(key.hash());
        self.present().table.find_mut(hash, |entry| entry.is_key(key.bytes()))
    }

    /// To be called before anything happens to the entry of a key, if there is one.
    #[inline]
    pub(crate) fn cover(&mut self, key: Key<'_>) {
        if self.at.undo().is_some() {
            self.cover_now(key);
        }
    }

    #[cold]
    #[inline(never)]
    fn cover_now(&mut self, key: Key<'_>) {
        let at = self.at;
        let Some(undo) = at.undo().filter(|undo| !undo.is_covered(at.db, key)) else { return };
        if let Some(entry) = self.find_any(key) {
            undo.cover(at.db, key, entry);
        }
    }

    /// To be called before bytes of the string of a key change.
    #[inline]
    pub(crate) fn cover_bytes(&mut self, key: Key<'_>, offset: usize, len: usize) {
        if self.at.undo().is_some() {
            self.cover_bytes_now(key, offset, len);
        }
    }

    #[cold]
    #[inline(never)]
    fn cover_bytes_now(&mut self, key: Key<'_>, offset: usize, len: usize) {
        self.cover_now(key);
        let at = self.at;
        if let (Some(undo), Some(entry)) = (at.undo(), self.find_any(key)) {
            undo.write(at.db, key, entry, offset, len);
        }
    }
}

impl Context<'_> {
    /// Counts a use of an entry that a rollback makes undone.
    #[cold]
    pub(crate) fn track_undoable(&self, entry: &mut Entry, track: impl FnOnce(&mut Entry)) {
        let before = entry.access();
        track(entry);
        if let Some(undo) = self.undo()
            && entry.access() != before
        {
            undo.used(self.db, self.keyspace.key(entry.key()), before);
        }
    }
}
