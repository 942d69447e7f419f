//! Copies of entries, some hundred in one piece of memory.
//!
//! An entry is copied under the lock of its shard, so copying is all that is done there: key and
//! value go one behind the other into a vector, and of a large string a reference is taken.
//! Whatever takes time, such as encoding and writing, happens later and without a lock.

use std::sync::Arc;

use crate::entry::Entry;
use crate::keyspace::DbIndex;
use crate::text_int::IntText;
use crate::value::{StrView, blob_bytes};

/// A batch of this many bytes is handed on.
pub(super) const BATCH_BYTES: usize = 16 * 1024;

/// Before each key in [`Batch::bytes`]: database, kind, lengths of key and value, deadline.
const HEAD_LEN: usize = 2 + 1 + 4 + 4 + 8;

/// What stands for the absence of a deadline. An entry with this one is gone since long.
const NO_DEADLINE: i64 = i64::MIN;

/// How the value of a copy stands in the batch.
mod kind {
    pub(super) const BYTES: u8 = 0;
    pub(super) const INT: u8 = 1;
    pub(super) const BLOB: u8 = 2;
}

/// Some entries as they were when the snapshot began; see [`Snapshot`](crate::Snapshot).
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    /// Large strings, in the order of their keys.
    blobs: Vec<Arc<Vec<u8>>>,
    /// What the blobs take, as the allocator counts it.
    blob_bytes: usize,
    len: usize,
}

/// An entry as it was when the snapshot began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavedEntry<'a> {
    /// The database it was in.
    pub db: DbIndex,
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: SavedValue<'a>,
    /// When it expires, as Unix time in milliseconds.
    pub deadline_ms: Option<i64>,
}

/// The value of a [`SavedEntry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SavedValue<'a> {
    /// A string.
    Str(&'a [u8]),
    /// A string that is the decimal text of this integer.
    Int(i64),
}

impl<'a> SavedValue<'a> {
    /// The bytes of a string, for which an integer is written into `scratch`.
    #[must_use]
    pub fn bytes<'s>(&self, scratch: &'s mut IntText) -> &'s [u8]
    where
        'a: 's,
    {
        match *self {
            SavedValue::Str(bytes) => bytes,
            SavedValue::Int(value) => scratch.of(value),
        }
    }
}

impl Batch {
    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entries.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter { bytes: &self.bytes, blobs: self.blobs.iter() }
    }

    /// Adds a copy of an entry of the database `db`.
    pub(super) fn push(&mut self, db: DbIndex, entry: &Entry) {
        if self.bytes.capacity() == 0 {
            self.bytes.reserve_exact(BATCH_BYTES + BATCH_BYTES / 8);
        }
        let (kind, int, value) = match entry.string() {
            StrView::Bytes(bytes) => (kind::BYTES, [0; 8], bytes),
            StrView::Int(value) => (kind::INT, value.to_le_bytes(), &[][..]),
            StrView::Shared(blob) => {
                let blob = blob.to_arc();
                self.blob_bytes += blob_bytes(&blob);
                self.blobs.push(blob);
                (kind::BLOB, [0; 8], &[][..])
            }
        };
        let key = entry.key();
        let value = if kind == kind::INT { &int } else { value };
        self.bytes.extend_from_slice(&db.number().to_le_bytes());
        self.bytes.push(kind);
        // Keys are bounded by `KEY_LEN_MAX`, and what stands beside its key is no blob.
        self.bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        let deadline_ms = entry.deadline_ms().unwrap_or(NO_DEADLINE);
        self.bytes.extend_from_slice(&deadline_ms.to_le_bytes());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.len += 1;
    }

    /// Whether it is time to hand the batch on. A batch of blobs is small but may hold much.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() + self.blob_bytes >= BATCH_BYTES
    }

    /// The memory that the batch keeps.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.blob_bytes
    }
}

impl<'a> IntoIterator for &'a Batch {
    type Item = SavedEntry<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// The entries of a [`Batch`].
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    bytes: &'a [u8],
    blobs: std::slice::Iter<'a, Arc<Vec<u8>>>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = SavedEntry<'a>;

    fn next(&mut self) -> Option<SavedEntry<'a>> {
        let (head, rest) = self.bytes.split_first_chunk::<HEAD_LEN>()?;
        let &[d0, d1, kind, k0, k1, k2, k3, v0, v1, v2, v3, ref deadline @ ..] = head;
        let db = DbIndex::from_number(u16::from_le_bytes([d0, d1]));
        let (key, rest) = rest.split_at(u32::from_le_bytes([k0, k1, k2, k3]) as usize);
        let (value, rest) = rest.split_at(u32::from_le_bytes([v0, v1, v2, v3]) as usize);
        let value = match kind {
            kind::BYTES => SavedValue::Str(value),
            kind::INT => {
                SavedValue::Int(i64::from_le_bytes(value.try_into().expect("eight bytes")))
            }
            _ => SavedValue::Str(self.blobs.next().expect("one for each key of that kind")),
        };
        let deadline_ms = i64::from_le_bytes(*deadline);
        let deadline_ms = (deadline_ms != NO_DEADLINE).then_some(deadline_ms);
        self.bytes = rest;
        Some(SavedEntry { db, key, value, deadline_ms })
    }
}
