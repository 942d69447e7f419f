//! Copies of entries, some hundred in one buffer.
//!
//! An entry is copied under the lock of its shard, so only the copy is made there: key and value go into a vector,
//! and a large string is shared by reference. Slow work, such as encoding and writing, happens later without a lock.
//! Collections are copied as the edits that create them ([`crate::data::collections`]). A value on disk is copied as
//! its location, until it is read.

use std::ops::Range;
use std::sync::Arc;

use tierce_storage::ColdLocation;

use crate::codec::Writer;
use crate::data::cold_value::parts;
use crate::data::collections::{SavedCollection, convert};
use crate::data::entry::{Entry, ItemNote, Marks, Spilled};
use crate::data::value::{StrView, Value, blob_bytes};
use crate::db_index::DbIndex;
use tierce_collections::IntText;

/// Size at which a batch is passed on.
pub(crate) const BATCH_BYTES: usize = 16 * 1024;

/// Length of the head before each key in [`SnapshotBatch::bytes`], which has these parts.
const HEAD_LEN: usize = VALUE_LEN.end;
const DB: Range<usize> = 0..2;
const KIND: usize = DB.end;
const DEADLINE: Range<usize> = KIND + 1..KIND + 1 + 8;
const FLAGS: Range<usize> = DEADLINE.end..DEADLINE.end + 4;
const MARKS: usize = FLAGS.end;
const KEY_LEN: Range<usize> = MARKS + 1..MARKS + 1 + 4;
const VALUE_LEN: Range<usize> = KEY_LEN.end..KEY_LEN.end + 8;

/// Encoding of "no deadline". An entry with this deadline would have expired long ago.
const NO_DEADLINE: i64 = i64::MIN;

/// Encoding of the value of a copy.
mod kind {
    pub(crate) const BYTES: u8 = 0;
    pub(crate) const INT: u8 = 1;
    pub(crate) const BLOB: u8 = 2;
    pub(crate) const COLLECTION: u8 = 3;
    /// Only until the values are read, see `services/snapshot/resolve.rs`.
    pub(crate) const SPILLED: u8 = 4;
}

/// Some entries as of the beginning of the snapshot; see [`Snapshot`](crate::Snapshot).
#[derive(Debug, Default)]
pub struct SnapshotBatch {
    bytes: Vec<u8>,
    /// Large strings, in the order of their keys.
    blobs: Vec<Arc<Vec<u8>>>,
    /// Bytes of the blobs, as the allocator counts them.
    blob_bytes: usize,
    len: usize,
    /// Number of values on disk.
    spilled: usize,
}

/// An entry as of the beginning of the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavedEntry<'a> {
    /// Its database.
    pub db: DbIndex,
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: SavedValue<'a>,
    /// Expiry time, as Unix time in milliseconds.
    pub deadline_ms: Option<i64>,
    /// Flags and marks of memcached clients.
    pub item: ItemNote,
}

/// The value of a [`SavedEntry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SavedValue<'a> {
    /// A string.
    Str(&'a [u8]),
    /// A string that is the decimal text of this integer.
    Int(i64),
    /// Anything else.
    Collection(SavedCollection<'a>),
}

impl<'a> SavedValue<'a> {
    /// Returns a copy of a value, in the form of a snapshot. The bytes go into `copy`.
    pub fn of(value: &'a Value<'_>, copy: &'a mut Vec<u8>) -> Self {
        match value {
            Value::Str(StrView::Bytes(bytes)) => SavedValue::Str(bytes),
            Value::Str(StrView::Int(value)) => SavedValue::Int(*value),
            Value::Str(StrView::Shared(blob)) => SavedValue::Str(blob),
            Value::Collection(collection) => {
                copy.clear();
                convert::encode(collection, &mut Writer::new(copy));
                SavedValue::Collection(SavedCollection { edits: copy })
            }
        }
    }

    /// Returns the bytes of a string; an integer is written into `scratch`. `None` for a collection.
    pub fn string<'s>(&self, scratch: &'s mut IntText) -> Option<&'s [u8]>
    where
        'a: 's,
    {
        match *self {
            SavedValue::Str(bytes) => Some(bytes),
            SavedValue::Int(value) => Some(scratch.of(value)),
            SavedValue::Collection(_) => None,
        }
    }
}

impl SnapshotBatch {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Iterates over the entries.
    pub fn iter(&self) -> Iter<'_> {
        Iter(self.copies())
    }

    /// Iterates over the entries in their stored form.
    pub(crate) fn copies(&self) -> Copies<'_> {
        Copies { bytes: &self.bytes, blobs: self.blobs.iter() }
    }

    /// Returns true if values are still on disk.
    pub(crate) fn has_spilled(&self) -> bool {
        self.spilled > 0
    }

    /// Adds a copy of an entry of the database `db`.
    pub(crate) fn push(&mut self, db: DbIndex, entry: &Entry) {
        if self.bytes.capacity() == 0 {
            self.bytes.reserve_exact(BATCH_BYTES + BATCH_BYTES / 8);
        }
        let (deadline_ms, item) = (entry.deadline_ms(), entry.attributes().note());
        self.push_copy(db, entry.key(), deadline_ms, item, |batch| match entry.spilled() {
            Some(spilled) => {
                batch.spilled += 1;
                batch.bytes.extend_from_slice(&spilled.encode());
                kind::SPILLED
            }
            None => batch.push_value(entry.value()),
        });
    }

    /// Adds a copy from another batch, with the value `bytes` if given.
    pub(crate) fn push_again(&mut self, copy: &Copy<'_>, bytes: Option<&[u8]>) {
        self.push_copy(copy.db, copy.key, copy.deadline_ms, copy.item, |batch| {
            if let Some(blob) = copy.blob {
                batch.blob_bytes += blob_bytes(blob);
                batch.blobs.push(Arc::clone(blob));
            }
            let Some(bytes) = bytes else {
                batch.bytes.extend_from_slice(copy.value);
                return copy.kind;
            };
            let (is_collection, bytes) = parts(bytes);
            batch.bytes.extend_from_slice(bytes);
            if is_collection { kind::COLLECTION } else { kind::BYTES }
        });
    }

    /// Adds a copy. `push_value` adds its value and returns the kind.
    fn push_copy(
        &mut self,
        db: DbIndex,
        key: &[u8],
        deadline_ms: Option<i64>,
        item: ItemNote,
        push_value: impl FnOnce(&mut Self) -> u8,
    ) {
        let mut head = [0; HEAD_LEN];
        head[DB].copy_from_slice(&db.number().to_le_bytes());
        head[DEADLINE].copy_from_slice(&deadline_ms.unwrap_or(NO_DEADLINE).to_le_bytes());
        head[FLAGS].copy_from_slice(&item.flags.to_le_bytes());
        head[MARKS] = item.marks.to_log();
        // `KEY_LEN_MAX` limits the length of keys.
        head[KEY_LEN].copy_from_slice(&(key.len() as u32).to_le_bytes());
        let head_at = self.bytes.len();
        self.bytes.extend_from_slice(&head);
        self.bytes.extend_from_slice(key);
        let value_at = self.bytes.len();
        let kind = push_value(self);
        let value_len = (self.bytes.len() - value_at) as u64;
        let head = &mut self.bytes[head_at..value_at];
        head[KIND] = kind;
        head[VALUE_LEN].copy_from_slice(&value_len.to_le_bytes());
        self.len += 1;
    }

    /// Adds a copy of a value. Returns its kind.
    fn push_value(&mut self, value: Value<'_>) -> u8 {
        match value {
            Value::Str(StrView::Bytes(bytes)) => {
                self.bytes.extend_from_slice(bytes);
                kind::BYTES
            }
            Value::Str(StrView::Int(value)) => {
                self.bytes.extend_from_slice(&value.to_le_bytes());
                kind::INT
            }
            Value::Str(StrView::Shared(blob)) => {
                let blob = blob.to_arc();
                self.blob_bytes += blob_bytes(&blob);
                self.blobs.push(blob);
                kind::BLOB
            }
            Value::Collection(collection) => {
                convert::encode(&collection, &mut Writer::new(&mut self.bytes));
                kind::COLLECTION
            }
        }
    }

    /// Returns true if the batch should be passed on. A batch of blobs is short but may keep much memory.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() + self.blob_bytes >= BATCH_BYTES
    }

    /// Returns the memory that the batch keeps.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.blob_bytes
    }
}

impl<'a> IntoIterator for &'a SnapshotBatch {
    type Item = SavedEntry<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Iterator over the entries of a [`SnapshotBatch`].
#[derive(Debug, Clone)]
pub struct Iter<'a>(Copies<'a>);

impl<'a> Iterator for Iter<'a> {
    type Item = SavedEntry<'a>;

    fn next(&mut self) -> Option<SavedEntry<'a>> {
        let Copy { db, key, kind, value, blob, deadline_ms, item } = self.0.next()?;
        let value = match (kind, blob) {
            (kind::INT, _) => {
                SavedValue::Int(i64::from_le_bytes(value.try_into().expect("eight bytes")))
            }
            (kind::COLLECTION, _) => SavedValue::Collection(SavedCollection { edits: value }),
            (_, Some(blob)) => SavedValue::Str(blob),
            (_, None) => SavedValue::Str(value),
        };
        Some(SavedEntry { db, key, value, deadline_ms, item })
    }
}

/// An entry in its stored form.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copy<'a> {
    db: DbIndex,
    key: &'a [u8],
    kind: u8,
    value: &'a [u8],
    /// Large string, which is not in `value`.
    blob: Option<&'a Arc<Vec<u8>>>,
    deadline_ms: Option<i64>,
    item: ItemNote,
}

impl Copy<'_> {
    /// Returns the location of the value, if it is on disk.
    pub(crate) fn location(&self) -> Option<ColdLocation> {
        let spilled = (self.kind == kind::SPILLED).then(|| self.value.first_chunk());
        Some(Spilled::decode(spilled??)?.location)
    }
}

/// Iterator of [`SnapshotBatch::copies`].
#[derive(Debug, Clone)]
pub(crate) struct Copies<'a> {
    bytes: &'a [u8],
    blobs: std::slice::Iter<'a, Arc<Vec<u8>>>,
}

impl<'a> Iterator for Copies<'a> {
    type Item = Copy<'a>;

    fn next(&mut self) -> Option<Copy<'a>> {
        let (head, rest) = self.bytes.split_first_chunk::<HEAD_LEN>()?;
        let (kind, marks) = (head[KIND], head[MARKS]);
        let head = |part: Range<usize>| &head[part];
        let number = |part| u64::from_le_bytes(head(part).try_into().expect("eight bytes"));
        let db = u16::from_le_bytes(head(DB).try_into().expect("two bytes"));
        let key_len = u32::from_le_bytes(head(KEY_LEN).try_into().expect("four bytes"));
        let (key, rest) = rest.split_at(key_len as usize);
        let (value, rest) = rest.split_at(number(VALUE_LEN) as usize);
        let blob = (kind == kind::BLOB).then(|| self.blobs.next());
        let blob = blob.map(|blob| blob.expect("one for each key of that kind"));
        let deadline_ms = number(DEADLINE) as i64;
        let deadline_ms = (deadline_ms != NO_DEADLINE).then_some(deadline_ms);
        let flags = u32::from_le_bytes(head(FLAGS).try_into().expect("four bytes"));
        let marks = Marks::of_log(marks).expect("as they were written");
        self.bytes = rest;
        let db = DbIndex::from_number(db);
        let item = ItemNote { flags, marks };
        Some(Copy { db, key, kind, value, blob, deadline_ms, item })
    }
}
