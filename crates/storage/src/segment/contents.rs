//! The keys and locations of a segment's records, collected while the segment is written or read.

/// Index data of a record, without its key.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RecordMeta {
    pub seq: u64,
    pub offset: u64,
    pub len: u64,
    pub is_tombstone: bool,
}

/// Records in the order of collection, and their concatenated keys.
#[derive(Default)]
pub struct Contents {
    pub keys: Vec<u8>,
    pub records: Vec<Noted>,
}

/// One of the records.
pub struct Noted {
    pub hash: u64,
    key_start: usize,
    key_len: usize,
    pub meta: RecordMeta,
}

impl Contents {
    pub fn add(&mut self, hash: u64, key: &[u8], meta: RecordMeta) {
        self.records.push(Noted { hash, key_start: self.keys.len(), key_len: key.len(), meta });
        self.keys.extend_from_slice(key);
    }

    pub fn memory_bytes(&self) -> usize {
        self.records.len() * size_of::<Noted>() + self.keys.len()
    }
}

impl Noted {
    pub fn key<'a>(&self, keys: &'a [u8]) -> &'a [u8] {
        &keys[self.key_start..self.key_start + self.key_len]
    }
}
