//! Recording a key before it changes.

use crate::access::context::Context;
use crate::access::db::Db;
use crate::data::entry::Entry;
use crate::data::key::Key;

/// The entry of a key, even if its deadline has come.
pub(super) fn find_any<'d>(db: &'d mut Db<'_>, key: Key<'_>) -> Option<&'d mut Entry> {
    let hash = db.at.keyspace.hasher.table_hash(key.hash());
    db.present().table.find_mut(hash, |entry| entry.is_key(key.bytes()))
}

/// To be called before anything happens to the entry of a key, if there is one.
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

/// To be called before bytes of the string of a key change.
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
