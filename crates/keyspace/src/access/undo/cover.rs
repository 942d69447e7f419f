//! Recording a key before it changes.

use crate::access::context::Context;
use crate::access::db::Db;
use crate::data::entry::Entry;
use crate::data::key::Key;

/// Returns the entry of a key, even if it has expired.
pub(super) fn find_any<'d>(db: &'d mut Db<'_>, key: Key<'_>) -> Option<&'d mut Entry> {
    let hash = db.at.keyspace.hasher.table_hash(key.hash());
    db.present().table.find_mut(hash, |entry| entry.is_key(key.bytes()))
}

/// Records the entry of a key, if there is one. Call it before any change of the entry.
#[inline]
pub(crate) fn cover(db: &mut Db<'_>, key: Key<'_>) {
    if db.at.undo().is_some() {
        cover_now(db, key);
    }
}

#[cold]
#[inline(never)]
fn cover_now(db: &mut Db<'_>, key: Key<'_>) {
    let at = db.at;
    let Some(undo) = at.undo().filter(|undo| !undo.is_covered(at.db, key)) else { return };
    if let Some(entry) = find_any(db, key) {
        undo.cover(at.db, key, entry);
    }
}

/// Records old bytes of a key's string. Call it before they change.
#[inline]
pub(crate) fn cover_bytes(db: &mut Db<'_>, key: Key<'_>, offset: usize, len: usize) {
    if db.at.undo().is_some() {
        cover_bytes_now(db, key, offset, len);
    }
}

#[cold]
#[inline(never)]
fn cover_bytes_now(db: &mut Db<'_>, key: Key<'_>, offset: usize, len: usize) {
    cover_now(db, key);
    let at = db.at;
    if let (Some(undo), Some(entry)) = (at.undo(), find_any(db, key)) {
        undo.write(at.db, key, entry, offset, len);
    }
}

impl Context<'_> {
    /// Counts a use of an entry in a way that a rollback reverts.
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
