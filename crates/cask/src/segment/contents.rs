//! The keys of a segment's records and where the records are, noted while it is written or read.

/// All of a record that an index needs but the key.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct RecordMeta {
    pub(crate) seq: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) is_tombstone: bool,
}

/// Records in the order in which they were noted, and their keys in a row.
#[derive(Default)]
pub(crate) struct Contents {
    pub(crate) keys: Vec<u8>,
    pub(crate) records: Vec<Noted>,
}

/// One of the records.
pub(crate) struct Noted {
    pub(crate) hash: u64,
    key_start: usize,
    key_len: usize,
    pub(crate) meta: RecordMeta,
}

impl Contents {
    pub(crate) fn add(&mut self, hash: u64, key: &[u8], meta: RecordMeta) {
        self.records.push(Noted { hash, key_start: self.keys.len(), key_len: key.len(), meta });
        self.keys.extend_from_slice(key);
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.records.len() * size_of::<Noted>() + self.keys.len()
    }
}

impl Noted {
    pub(crate) fn key<'a>(&self, keys: &'a [u8]) -> &'a [u8] {
        &keys[self.key_start..self.key_start + self.key_len]
    }
}
