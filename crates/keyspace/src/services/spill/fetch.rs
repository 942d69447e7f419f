//! Reads spilled values back into memory.

use tierce_cask::{ColdBuffer, ColdLocation};

use crate::access::accounting::Accounting;
use crate::access::db::Db;
use crate::access::keyspace::Keyspace;
use crate::data::cold_value;
use crate::data::entry::{Attributes, Content, Entry};
use crate::data::key::Key;
use crate::error::{Error, Result};

/// A value that was read from disk, ready for [`Db::restore`]. Making one takes no lock.
#[derive(Debug)]
pub struct Fetched<'a>(Content<'a>);

impl<'a> Fetched<'a> {
    /// From the bytes of a location.
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`] if they are no value.
    pub fn new(bytes: &'a [u8], keyspace: &Keyspace) -> Result<Self> {
        cold_value::decode(bytes, &keyspace.limits).map(Self).ok_or(Error::Unreadable)
    }
}

impl Db<'_> {
    /// Where the value of a key is, if it is on disk only.
    #[inline]
    pub fn spilled_at(&mut self, key: Key<'_>) -> Option<ColdLocation> {
        self.find(key)?.spilled().map(|spilled| spilled.location)
    }

    /// Puts a value back into memory that was read from `location`, if that is where the key has it.
    pub fn restore(&mut self, key: Key<'_>, location: ColdLocation, value: Fetched<'_>) -> bool {
        let at = self.at;
        let Some(entry) = self.find(key) else { return false };
        if entry.spilled().is_none_or(|spilled| spilled.location != location) {
            return false;
        }
        let before = Accounting::of(entry);
        let attributes = Attributes { location: Some(location), ..entry.attributes() };
        let displaced = entry.replace(value.0, entry.deadline_ms(), attributes);
        debug_assert!(displaced.is_none(), "a value on disk owns nothing in memory");
        at.track_undoable(entry, |entry| entry.set_access(at.first_access()));
        let after = Accounting::of(entry);
        self.account(key.hash(), before, after);
        at.stats.fetched.add(1);
        true
    }

    /// Fetches the value of a key that is on disk, waiting for that. Those who must not wait have
    /// fetched it before.
    #[cold]
    pub(crate) fn fetch(&mut self, key: Key<'_>) -> Result<Option<&mut Entry>> {
        let Some(location) = self.spilled_at(key) else { return Ok(self.find(key)) };
        let keyspace = self.at.keyspace;
        let store = keyspace.cold_store().ok_or(Error::Unreadable)?;
        let mut buffer = ColdBuffer::default();
        let bytes = store.read(location, &mut buffer).map_err(|_| Error::Unreadable)?;
        self.restore(key, location, Fetched::new(bytes, keyspace)?);
        self.at.stats.fetched_late.add(1);
        Ok(self.find(key))
    }
}
