//! Encodes keys and values into the records of a write.

use crate::entry::Attributes;
use tierce_storage::compression::{Compression, compress};
use tierce_storage::hash::HashKey;
use tierce_storage::log::write::{Op, Ops, Write};
use tierce_storage::segment::record::{
    BATCH_HEAD_LEN, Fields, Kind, Membership, encode, encode_batch_head,
};

/// Encoder of keys and values into records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoder {
    pub(crate) hash_key: HashKey,
    pub(crate) compression: Compression,
}

impl Encoder {
    pub(crate) fn put(self, key: &[u8], value: &[u8], attributes: Attributes) -> Write {
        let mut frame = Vec::new();
        let op = self.add_put(&mut frame, Membership::Alone, key, value, attributes);
        Write { frame, ops: Ops::One(op) }
    }

    pub(crate) fn delete(self, key: &[u8]) -> Write {
        let mut frame = Vec::new();
        let op = self.add_delete(&mut frame, Membership::Alone, key);
        Write { frame, ops: Ops::One(op) }
    }

    fn add_put(
        self,
        frame: &mut Vec<u8>,
        membership: Membership,
        key: &[u8],
        value: &[u8],
        attributes: Attributes,
    ) -> Op {
        let mut compressed = Vec::new();
        let (compression, value) = compress(self.compression, value, &mut compressed);
        let Attributes { expiry_ms: expiry, version } = attributes;
        let kind = Kind::Put;
        self.append(frame, &Fields { kind, membership, compression, expiry, version, key, value })
    }

    fn add_delete(self, frame: &mut Vec<u8>, membership: Membership, key: &[u8]) -> Op {
        let (kind, compression, expiry, version, value) = (Kind::Delete, 0, None, None, &b""[..]);
        self.append(frame, &Fields { kind, membership, compression, expiry, version, key, value })
    }

    fn append(self, frame: &mut Vec<u8>, fields: &Fields<'_>) -> Op {
        let start = frame.len();
        let key_start = start + fields.header_len();
        encode(frame, fields);
        Op {
            kind: fields.kind,
            hash: self.hash_key.hash(fields.key),
            start,
            len: frame.len() - start,
            key_start,
            key_len: fields.key.len(),
        }
    }
}

/// Encoder that collects the members of a batch into one frame.
pub(crate) struct BatchEncoder {
    encoder: Encoder,
    frame: Vec<u8>,
    ops: Vec<Op>,
}

impl BatchEncoder {
    pub(crate) fn new(encoder: Encoder) -> Self {
        // The head comes first and is filled in at the end.
        BatchEncoder { encoder, frame: vec![0; BATCH_HEAD_LEN], ops: Vec::new() }
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], attributes: Attributes) {
        let member = Membership::BatchMember;
        self.ops.push(self.encoder.add_put(&mut self.frame, member, key, value, attributes));
    }

    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.ops.push(self.encoder.add_delete(&mut self.frame, Membership::BatchMember, key));
    }

    pub(crate) fn frame_len(&self) -> usize {
        self.frame.len()
    }

    pub(crate) fn finish(mut self) -> Write {
        let mut head = Vec::with_capacity(BATCH_HEAD_LEN);
        let members_len = (self.frame.len() - BATCH_HEAD_LEN) as u64;
        encode_batch_head(&mut head, self.ops.len() as u32, members_len);
        self.frame[..BATCH_HEAD_LEN].copy_from_slice(&head);
        Write { frame: self.frame, ops: Ops::Batch(self.ops) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierce_storage::checksum::Salt;

    /// Log records were formerly written as those of an empty key, and are read as such.
    #[test]
    fn a_record_of_a_log_is_that_of_an_empty_key() {
        for compression in [Compression::None, Compression::Snappy] {
            let encoder = Encoder { hash_key: HashKey([1, 2]), compression };
            for len in [0, 1, 7, 8, 9, 31, 100, 1000, 3] {
                let value = vec![len as u8; len];
                let mut put = encoder.put(b"", &value, Attributes::default());
                let mut compressed = Vec::new();
                let (method, stored) = compress(compression, &value, &mut compressed);
                let mut record = Write::record(method, stored);
                for write in [&mut put, &mut record] {
                    write.stamp(5, 64, Salt(9), 128);
                }
                assert_eq!(record.frame, put.frame, "{len} bytes");
            }
        }
    }
}
