//! Reads the record of a key.
//!
//! Compaction may retire the segment of a location just after it was copied out of the index. The index then has a
//! newer location, so the reader looks it up again; it never waits.

use super::store::{Index, Store};
use crate::entry::{Attributes, Entry, Value};
use crate::index::hash::HashIndex;
use std::sync::Arc;
use tierce_storage::compression::decompress;
use tierce_storage::disk::span::ReadBuf;
use tierce_storage::location::Location;
use tierce_storage::segment::file::Segment;
use tierce_storage::segment::record::{HEADER_LEN_MAX, Header, Record};
use tierce_storage::{Error, Result};

/// A verified record that was read from disk.
pub(crate) struct Fetched {
    buf: ReadBuf,
    pub(crate) header: Header,
}

impl Fetched {
    pub(crate) fn key(&self) -> &[u8] {
        &self.buf.as_slice()[self.header.len()..][..self.header.key_len]
    }

    /// Returns the value, decompressed.
    pub(crate) fn into_entry(self, segment: &Segment, location: Location) -> Result<Entry> {
        let start = self.header.len() + self.header.key_len;
        let stored = start..start + self.header.value_len;
        let value = if self.header.compression == 0 {
            let skip = self.buf.start;
            let range = stored.start + skip..stored.end + skip;
            Value::part(Arc::new(self.buf.bytes), range)
        } else {
            let id = self.header.compression;
            let value = decompress(id, &self.buf.as_slice()[stored])
                .map_err(|error| error.at(id, &segment.path, location.offset()))?;
            Value::whole(value)
        };
        let attributes = Attributes { expiry_ms: self.header.expiry, version: self.header.version };
        Ok(Entry { value, attributes, seq: self.header.seq })
    }
}

/// Result of searching a key among equal fingerprints.
pub(crate) enum Found {
    At(Location),
    Nowhere,
    /// Compaction interfered; search again.
    Moved,
}

impl Store {
    /// Returns the newest value of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.files.check_open()?;
        let mut candidates = Vec::new();
        loop {
            let found = match &self.index {
                Index::Ordered(index) => match index.get(key) {
                    None => return Ok(None),
                    Some(location) => self.first_match(key, &[location])?,
                },
                Index::Hash(index) => {
                    candidates.clear();
                    index.candidates(self.order.hash_key.hash(key), &mut candidates);
                    self.first_match(key, &candidates)?
                }
            };
            match found {
                Match::Found(entry) => return Ok(Some(entry)),
                Match::Absent => return Ok(None),
                Match::Moved => {}
            }
        }
    }

    /// Returns true if the key has a value.
    pub(crate) fn exists(&self, key: &[u8]) -> Result<bool> {
        self.files.check_open()?;
        match &self.index {
            Index::Ordered(index) => Ok(index.get(key).is_some()),
            Index::Hash(index) => loop {
                let hash = self.order.hash_key.hash(key);
                match self.find_by_hash(index, hash, key)? {
                    Found::At(_) => return Ok(true),
                    // A damaged candidate must not count as absent; reading it reports the damage.
                    Found::Nowhere => return Ok(self.get(key)?.is_some()),
                    Found::Moved => {}
                }
            },
        }
    }

    fn first_match(&self, key: &[u8], candidates: &[Location]) -> Result<Match> {
        let mut moved = false;
        let mut damage = None;
        for &location in candidates {
            if let Some(cached) = self.cache.get(location)
                && *cached.key == *key
            {
                return Ok(Match::Found(cached.entry.clone()));
            }
            match self.fetch(location) {
                Ok(None) => moved = true,
                Ok(Some((fetched, segment))) if fetched.key() == key => {
                    let entry = fetched.into_entry(&segment, location)?;
                    self.cache.insert(location, key, &entry);
                    return Ok(Match::Found(entry));
                }
                // Another key with the same fingerprint, if the index keeps fingerprints.
                Ok(Some(_)) if matches!(self.index, Index::Hash(_)) => {}
                Ok(Some((_, segment))) => {
                    let offset = location.offset();
                    return Err(Error::corrupt(&segment.path, offset, "record of another key"));
                }
                Err(error) => damage = Some(error),
            }
        }
        match (moved, damage) {
            (true, _) => Ok(Match::Moved),
            (false, Some(error)) => Err(error),
            (false, None) => Ok(Match::Absent),
        }
    }

    /// Reads and verifies the record at a location; `None` if its segment has been retired.
    pub(crate) fn fetch(&self, location: Location) -> Result<Option<(Fetched, Arc<Segment>)>> {
        let segment = self.files.segment(location.segment());
        segment.map(|segment| Self::fetch_from(&segment, location)).transpose()
    }

    /// Reads and verifies the record at a location of a pinned segment.
    pub(crate) fn fetch_from(
        segment: &Arc<Segment>,
        location: Location,
    ) -> Result<(Fetched, Arc<Segment>)> {
        let offset = location.offset();
        let buf = segment.read(offset, location.len_bound() as usize)?;
        let header = Record::decode(buf.as_slice(), segment.salt, offset)
            .map_err(|damage| Error::corrupt(&segment.path, offset, damage.0))?
            .header;
        Ok((Fetched { buf, header }, segment.clone()))
    }

    /// Returns which of the entries with this fingerprint belongs to the key, reading headers and keys only. An
    /// unreadable record counts as another key's: a new write thereby heals it.
    pub(crate) fn find_by_hash(&self, index: &HashIndex, hash: u64, key: &[u8]) -> Result<Found> {
        let mut candidates = Vec::new();
        index.candidates(hash, &mut candidates);
        for location in candidates {
            let Some(segment) = self.files.segment(location.segment()) else {
                return Ok(Found::Moved);
            };
            let len = (HEADER_LEN_MAX + key.len()).min(location.len_bound() as usize);
            // An unreadable record may be the key's, and must not count as another key's.
            let buf = segment.read(location.offset(), len)?;
            let bytes = buf.as_slice();
            let Ok(header) = Header::decode(bytes, segment.salt, location.offset()) else {
                continue;
            };
            if header.key_len == key.len()
                && bytes.get(header.len()..).is_some_and(|rest| rest.starts_with(key))
            {
                return Ok(Found::At(location));
            }
        }
        Ok(Found::Nowhere)
    }
}

enum Match {
    Found(Entry),
    Absent,
    Moved,
}
