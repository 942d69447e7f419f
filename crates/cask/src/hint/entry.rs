//! A hint: the entry of one record. Byte table in `docs/formats/cask-hint.md`.

use crate::{BATCH_LEN_MAX, KEY_LEN_MAX};
use std::cmp::Ordering;
use tierce_storage::bytes::{Cursor, put_varint};
use tierce_storage::hash::HashKey;
use tierce_storage::location::{ALIGNMENT, SEGMENT_LEN_MAX};
use tierce_storage::manifest::IndexKind;
use tierce_storage::segment::contents::RecordMeta;

/// Number of ranges in a hint file, which can be read separately.
pub(crate) const RANGES: usize = 64;

/// A record's key, and the fields that an index needs of the record.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    pub(crate) hash: u64,
    pub(crate) meta: RecordMeta,
}

/// The sort order of hint files in a store with this index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HintOrder {
    pub(crate) index: IndexKind,
    pub(crate) hash_key: HashKey,
}

impl HintOrder {
    /// Compares by hash and then key, or by key; `hash` arguments are those of the keys.
    pub(crate) fn compare(self, a: (u64, &[u8]), b: (u64, &[u8])) -> Ordering {
        match self.index {
            IndexKind::Hash => a.0.cmp(&b.0).then_with(|| a.1.cmp(b.1)),
            IndexKind::Ordered => a.1.cmp(b.1),
        }
    }

    /// Returns the range of a key; ranges follow each other in the order.
    pub(crate) fn range_of(self, hash: u64, key: &[u8]) -> usize {
        match self.index {
            IndexKind::Hash => (hash >> 58) as usize,
            IndexKind::Ordered => usize::from(key.first().copied().unwrap_or(0) >> 2),
        }
    }
}

pub(crate) fn encode(out: &mut Vec<u8>, key: &[u8], meta: RecordMeta) {
    put_varint(out, (key.len() as u64) << 1 | u64::from(meta.is_tombstone));
    put_varint(out, meta.offset / ALIGNMENT);
    put_varint(out, meta.len / ALIGNMENT);
    put_varint(out, meta.seq);
    out.extend_from_slice(key);
}

/// Decodes an entry into `entry`, whose buffer is reused. `None` for impossible bytes.
pub(crate) fn decode(cursor: &mut Cursor<'_>, hash_key: HashKey, entry: &mut Entry) -> Option<()> {
    let key_len = cursor.varint()?;
    let offset = cursor.varint()?.checked_mul(ALIGNMENT)?;
    let len = cursor.varint()?.checked_mul(ALIGNMENT)?;
    let seq = cursor.varint()?;
    let is_tombstone = key_len & 1 == 1;
    let key_len = usize::try_from(key_len >> 1).ok().filter(|&len| len <= KEY_LEN_MAX)?;
    let in_range = len <= BATCH_LEN_MAX as u64 && offset < SEGMENT_LEN_MAX;
    (in_range && offset + len <= SEGMENT_LEN_MAX).then_some(())?;
    entry.key.clear();
    entry.key.extend_from_slice(cursor.take(key_len)?);
    entry.hash = hash_key.hash(&entry.key);
    entry.meta = RecordMeta { seq, offset, len, is_tombstone };
    Some(())
}
