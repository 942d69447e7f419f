//! A block: adjacent records in memory, ascending by key.
//!
//! Several loading threads fill a block in any order; once sealed it never changes. Its values share one buffer, which
//! lives until the last of them is dropped.

use super::cut::Cut;
use crate::entry::{Attributes, Entry, Value};
use std::sync::Arc;
use tierce_storage::compression::decompress_into;
use tierce_storage::location::Location;
use tierce_storage::segment::record::Record;

/// Upper bound of a block's record bytes. Small, because a caller that keeps one value keeps the whole buffer of its
/// block.
const BLOCK_BYTES: usize = 256 << 10;
/// Upper bound of a block's records.
const BLOCK_ITEMS: usize = 512;

/// Records of neighbouring keys.
pub(crate) struct Block {
    /// The key interval of this block: between the cuts there are no other keys than its own.
    pub(crate) lower: Cut,
    pub(crate) upper: Cut,
    keys: Vec<u8>,
    items: Vec<Item>,
    bytes: Arc<Vec<u8>>,
}

/// A key and the state of its record.
struct Item {
    key_end: u32,
    location: Location,
    content: Content,
}

enum Content {
    /// Not loaded: the reader has to read it itself.
    Separate,
    Ready {
        start: u32,
        len: u32,
        seq: u64,
        attributes: Option<Box<Attributes>>,
    },
}

/// The content of a block for a key.
pub(crate) enum Found<'a> {
    /// The record could not be loaded with the others; read it at this location.
    Separate(Location),
    Ready(Loaded<'a>),
}

/// A verified record in a block.
#[derive(Clone, Copy)]
pub(crate) struct Loaded<'a> {
    bytes: &'a Arc<Vec<u8>>,
    start: usize,
    len: usize,
    seq: u64,
    attributes: Option<&'a Attributes>,
}

impl<'a> Loaded<'a> {
    pub(crate) fn value(&self) -> &'a [u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    pub(crate) fn entry(&self) -> Entry {
        Entry {
            value: Value::part(self.bytes.clone(), self.start..self.start + self.len),
            attributes: self.attributes.copied().unwrap_or_default(),
            seq: self.seq,
        }
    }
}

impl Block {
    /// Creates a block for the keys above a cut.
    pub(crate) fn new(lower: Cut) -> Self {
        Block { lower, upper: Cut::End, keys: Vec::new(), items: Vec::new(), bytes: Arc::default() }
    }

    /// Adds the next key; its record comes later, or never.
    pub(crate) fn push(&mut self, key: &[u8], location: Location) {
        self.keys.extend_from_slice(key);
        let key_end = self.keys.len() as u32;
        self.items.push(Item { key_end, location, content: Content::Separate });
    }

    /// Returns true if the next key should go into another block, given that the records of this one take
    /// `record_bytes`.
    pub(crate) fn is_full(&self, record_bytes: usize) -> bool {
        self.items.len() >= BLOCK_ITEMS
            || record_bytes >= BLOCK_BYTES
            || self.keys.len() >= BLOCK_BYTES
    }

    /// Allocates the buffer for the values, once its maximum size is known.
    pub(crate) fn reserve(&mut self, record_bytes: usize, spares: &mut Vec<Vec<u8>>) {
        let mut bytes = spares.pop().unwrap_or_default();
        // Rounded, so that the buffer also fits another block of about the same size.
        bytes.reserve_exact(record_bytes.next_multiple_of(BLOCK_BYTES / 8));
        self.bytes = Arc::new(bytes);
    }

    /// Returns the emptied buffer of a block that is no longer needed.
    pub(crate) fn into_spare(self) -> Option<Vec<u8>> {
        let mut bytes = Arc::into_inner(self.bytes)?;
        bytes.clear();
        Some(bytes)
    }

    /// Copies a record's value. A value that does not decompress is left to the reader.
    pub(crate) fn fill(&mut self, at: usize, record: &Record<'_>) {
        let bytes = Arc::get_mut(&mut self.bytes).expect("a block being filled is not shared");
        let start = bytes.len();
        match record.header.compression {
            0 => bytes.extend_from_slice(record.value),
            id if decompress_into(id, record.value, bytes).is_err() => {
                bytes.truncate(start);
                return;
            }
            _ => {}
        }
        let header = &record.header;
        let attributes = Attributes { expiry_ms: header.expiry, version: header.version };
        let attributes = (attributes != Attributes::default()).then(|| Box::new(attributes));
        let (Ok(start), Ok(len)) = (u32::try_from(start), u32::try_from(bytes.len() - start))
        else {
            return;
        };
        self.items[at].content = Content::Ready { start, len, seq: header.seq, attributes };
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn key(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.items[before].key_end as usize);
        &self.keys[start..self.items[at].key_end as usize]
    }

    pub(crate) fn get(&self, at: usize) -> Found<'_> {
        let item = &self.items[at];
        match &item.content {
            Content::Separate => Found::Separate(item.location),
            Content::Ready { start, len, seq, attributes } => Found::Ready(Loaded {
                bytes: &self.bytes,
                start: *start as usize,
                len: *len as usize,
                seq: *seq,
                attributes: attributes.as_deref(),
            }),
        }
    }

    /// Returns the positions whose keys lie between two cuts.
    pub(crate) fn positions(&self, lower: &Cut, upper: &Cut) -> std::ops::Range<usize> {
        let start = if *lower <= self.lower { 0 } else { self.first_above(lower) };
        let end = if *upper >= self.upper { self.len() } else { self.first_above(upper) };
        start..end.max(start)
    }

    fn first_above(&self, cut: &Cut) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if cut.is_above(self.key(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }

    pub(crate) fn location(&self, at: usize) -> Location {
        self.items[at].location
    }

    /// Returns the memory that a key and its record will take.
    pub(crate) fn cost(key: &[u8], record_bytes: usize) -> usize {
        key.len() + size_of::<Item>() + record_bytes
    }
}
