//! Values on disk, as far as commands need them: the store, fetching, and accounting of the locations in use.
//! `services/spill` moves values to disk.

use std::sync::atomic::Ordering;

use tierce_storage::{ColdBuffer, ColdLocation};

use crate::access::accounting::{Accounting, ColdAccounting};
use crate::access::db::Db;
use crate::access::keyspace::Keyspace;
use crate::data::cold_value;
use crate::data::entry::{Attributes, Content, Entry};
use crate::data::key::Key;
use crate::data::usage::Tracking;
use crate::error::{Error, Result};

/// A value that was read from disk, ready for [`Fetched::restore`]. Making one takes no lock.
#[derive(Debug)]
pub struct Fetched<'a>(Content<'a>);

impl<'a> Fetched<'a> {
    /// Decodes the bytes of a location.
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`] if they are no value.
    pub fn new(bytes: &'a [u8], keyspace: &Keyspace) -> Result<Self> {
        cold_value::decode(bytes, &keyspace.limits).map(Self).ok_or(Error::Unreadable)
    }

    /// Puts the value back into memory, if the key still has it at the `location` from which it was read.
    pub fn restore(self, db: &mut Db<'_>, key: Key<'_>, location: ColdLocation) -> bool {
        let at = db.at;
        let Some(entry) = db.find(key) else { return false };
        if entry.spilled().is_none_or(|spilled| spilled.location != location) {
            return false;
        }
        let before = Accounting::of(entry);
        let attributes = Attributes { location: Some(location), ..entry.attributes() };
        let displaced = entry.replace(self.0, entry.deadline_ms(), attributes);
        debug_assert!(displaced.is_none(), "a value on disk owns nothing in memory");
        if at.tracking != Tracking::Changes {
            at.track_undoable(entry, |entry| entry.set_access(at.first_access()));
        }
        let after = Accounting::of(entry);
        db.account(key.hash(), before, after);
        at.stats.fetched.add(1);
        true
    }
}

/// Fetches the value of a key from disk, and waits for the disk. Callers that must not wait have fetched it before.
#[cold]
pub(crate) fn fetch<'d>(db: &'d mut Db<'_>, key: Key<'_>) -> Result<Option<&'d mut Entry>> {
    let Some(location) = db.spilled_at(key) else { return Ok(db.find(key)) };
    let keyspace = db.at.keyspace;
    let store = keyspace.cold_store().ok_or(Error::Unreadable)?;
    let mut buffer = ColdBuffer::default();
    let bytes = store.read(location, &mut buffer).map_err(|_| Error::Unreadable)?;
    Fetched::new(bytes, keyspace)?.restore(db, key, location);
    db.at.stats.fetched_late.add(1);
    Ok(db.find(key))
}

/// Updates the figures for an entry whose location has changed, and releases the old one.
#[cold]
pub(super) fn account_cold(db: &mut Db<'_>, before: ColdAccounting, after: ColdAccounting) {
    let at = db.at;
    if let Some(location) = before.location
        && after.location != before.location
        && !before.is_moved
    {
        match at.undo() {
            None => at.keyspace.release(location),
            Some(undo) => undo.release(location),
        }
    }
    let cold = &mut db.db().cold;
    cold.placed = cold.placed - usize::from(before.location.is_some())
        + usize::from(after.location.is_some());
    if after.is_spilled && !at.keyspace.has_spilled() {
        at.keyspace.has_spilled.store(true, Ordering::Relaxed);
    }
    let (before, after) = (before.spilled_len(), after.spilled_len());
    cold.spilled_keys =
        cold.spilled_keys - u64::from(before.is_some()) + u64::from(after.is_some());
    cold.spilled_bytes = cold.spilled_bytes - before.unwrap_or(0) + after.unwrap_or(0);
    let follow =
        |b: Option<u64>, a: Option<u64>| (usize::from(b.is_some()), usize::from(a.is_some()));
    let (keys_before, keys_after) = follow(before, after);
    at.stats.spilled_keys.follow(keys_before, keys_after);
    at.stats.spilled_bytes.follow(before.unwrap_or(0) as usize, after.unwrap_or(0) as usize);
}
