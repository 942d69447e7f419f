//! Values back into memory.

use tierce_cask::{ColdBuffer, ColdPlace};

use super::value;
use crate::db::{Account, Db};
use crate::entry::{Attributes, Content, Entry};
use crate::error::{Error, Result};
use crate::key::Key;
use crate::keyspace::Keyspace;

/// A value that was read from disk, ready for [`Db::restore`]. Making one takes no lock.
#[derive(Debug)]
pub struct Fetched<'a>(Content<'a>);

impl<'a> Fetched<'a> {
    /// From the bytes of a place.
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`] if they are no value.
    pub fn new(bytes: &'a [u8], keyspace: &Keyspace) -> Result<Self> {
        value::decode(bytes, &keyspace.limits).map(Self).ok_or(Error::Unreadable)
    }
}

impl Db<'_> {
    /// Where the value of a key is, if it is on disk only.
    #[inline]
    pub fn spilled_at(&mut self, key: Key<'_>) -> Option<ColdPlace> {
        self.find(key)?.spilled().map(|spilled| spilled.place)
    }

    /// Puts a value back into memory that was read from `place`, if that is where the key has it.
    pub fn restore(&mut self, key: Key<'_>, place: ColdPlace, value: Fetched<'_>) -> bool {
        let at = self.at;
        let Some(entry) = self.find(key) else { return false };
        if entry.spilled().is_none_or(|spilled| spilled.place != place) {
            return false;
        }
        let before = Account::of(entry);
        let attributes = Attributes { place: Some(place), ..entry.attributes() };
        let displaced = entry.replace(value.0, entry.deadline_ms(), attributes);
        debug_assert!(displaced.is_none(), "a value on disk owns nothing in memory");
        entry.set_access(at.first_access());
        let after = Account::of(entry);
        self.settle(key.hash(), before, after);
        at.stats.fetched.add(1);
        true
    }

    /// Fetches the value of a key that is on disk, waiting for that. Those who must not wait have
    /// fetched it before.
    #[cold]
    pub(crate) fn fetch(&mut self, key: Key<'_>) -> Result<Option<&mut Entry>> {
        let Some(place) = self.spilled_at(key) else { return Ok(self.find(key)) };
        let keyspace = self.at.keyspace;
        let store = keyspace.cold_store().ok_or(Error::Unreadable)?;
        let mut buffer = ColdBuffer::default();
        let bytes = store.read(place, &mut buffer).map_err(|_| Error::Unreadable)?;
        self.restore(key, place, Fetched::new(bytes, keyspace)?);
        self.at.stats.fetched_late.add(1);
        Ok(self.find(key))
    }
}
