//! The contents of one write, encoded before any lock is taken.
//!
//! The writing thread compresses, copies and checksums; the leader of the lane only adds sequence numbers and
//! offsets, which are not known before.

use crate::checksum::Salt;
use crate::compression::{Compression, compress};
use crate::hash::HashKey;
use crate::location::SEGMENT_LEN_MAX;
use crate::segment::record::{
    BATCH_HEAD_LEN, Fields, Kind, Membership, encode, encode_batch_head, stamp,
};

/// What a put can carry beside its value. The engine stores these and gives them back; what they
/// mean is the caller's business.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Attributes {
    /// When the value ends, in milliseconds since 1970.
    pub expiry_ms: Option<u64>,
    /// The caller's version of the value.
    pub version: Option<u64>,
}

/// One change of one key within a [`Write`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub(crate) kind: Kind,
    pub(crate) hash: u64,
    /// Where the record is in the frame.
    pub(crate) start: usize,
    pub(crate) len: usize,
    key_start: usize,
    key_len: usize,
}

/// Records that are written together, as one run of bytes.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) frame: Vec<u8>,
    pub(crate) ops: Ops,
}

/// Mostly there is one, which then needs no allocation.
#[derive(Debug)]
pub(crate) enum Ops {
    One(Op),
    Batch(Vec<Op>),
}

impl Ops {
    pub(crate) fn as_slice(&self) -> &[Op] {
        match self {
            Ops::One(op) => std::slice::from_ref(op),
            Ops::Batch(ops) => ops,
        }
    }
}

impl Op {
    pub(crate) fn key<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        &frame[self.key_start..self.key_start + self.key_len]
    }
}

impl Write {
    pub(crate) fn put(encoder: Encoder, key: &[u8], value: &[u8], attributes: Attributes) -> Self {
        let mut frame = Vec::new();
        let op = encoder.put(&mut frame, Membership::Alone, key, value, attributes);
        Write { frame, ops: Ops::One(op) }
    }

    /// A record without a key, for a log, which has no lookups. Replaces the contents of `frame`.
    pub(crate) fn record(encoder: Encoder, record: &[u8], mut frame: Vec<u8>) -> Self {
        frame.clear();
        let mut compressed = Vec::new();
        let (compression, value) = compress(encoder.compression, record, &mut compressed);
        let (key, membership) = (&b""[..], Membership::Alone);
        let (expiry, version) = (None, None);
        let fields =
            Fields { kind: Kind::Put, membership, compression, expiry, version, key, value };
        encode(&mut frame, &fields);
        let key_start = fields.header_len();
        let len = frame.len();
        let op = Op { kind: Kind::Put, hash: 0, start: 0, len, key_start, key_len: 0 };
        Write { frame, ops: Ops::One(op) }
    }

    pub(crate) fn delete(encoder: Encoder, key: &[u8]) -> Self {
        let mut frame = Vec::new();
        let op = encoder.delete(&mut frame, Membership::Alone, key);
        Write { frame, ops: Ops::One(op) }
    }

    /// Whether it only deletes.
    pub(crate) fn only_deletes(&self) -> bool {
        self.ops.as_slice().iter().all(|op| op.kind == Kind::Delete)
    }

    /// Gives the records their numbers, counting from `seq`, and their places.
    pub(crate) fn stamp(&mut self, seq: u64, synced: u64, salt: Salt, offset: u64) {
        debug_assert!(offset + self.frame.len() as u64 <= SEGMENT_LEN_MAX);
        if matches!(self.ops, Ops::Batch(_)) {
            stamp(&mut self.frame, seq, synced, salt, offset);
        }
        for (op, seq) in self.ops.as_slice().iter().zip(seq..) {
            stamp(&mut self.frame[op.start..], seq, synced, salt, offset + op.start as u64);
        }
    }
}

/// Turns keys and values into records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoder {
    pub(crate) hash_key: HashKey,
    pub(crate) compression: Compression,
}

impl Encoder {
    fn put(
        self,
        frame: &mut Vec<u8>,
        membership: Membership,
        key: &[u8],
        value: &[u8],
        attributes: Attributes,
    ) -> Op {
        let mut compressed = Vec::new();
        let (compression, value) = compress(self.compression, value, &mut compressed);
        let fields = Fields {
            kind: Kind::Put,
            membership,
            compression,
            expiry: attributes.expiry_ms,
            version: attributes.version,
            key,
            value,
        };
        self.append(frame, &fields)
    }

    fn delete(self, frame: &mut Vec<u8>, membership: Membership, key: &[u8]) -> Op {
        let fields = Fields {
            kind: Kind::Delete,
            membership,
            compression: 0,
            expiry: None,
            version: None,
            key,
            value: b"",
        };
        self.append(frame, &fields)
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

/// Collects the members of a batch into one frame.
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
        self.ops.push(self.encoder.put(&mut self.frame, member, key, value, attributes));
    }

    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.ops.push(self.encoder.delete(&mut self.frame, Membership::BatchMember, key));
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

    /// The records of a log were written as those of an empty key before, and are read as such.
    #[test]
    fn a_record_of_a_log_is_that_of_an_empty_key_whatever_was_in_the_buffer() {
        for compression in [Compression::None, Compression::Snappy] {
            let encoder = Encoder { hash_key: HashKey([1, 2]), compression };
            let mut frame = b"left over".repeat(30);
            for len in [0, 1, 7, 8, 9, 31, 100, 1000, 3] {
                let value = vec![len as u8; len];
                let mut put = Write::put(encoder, b"", &value, Attributes::default());
                let mut record = Write::record(encoder, &value, frame);
                for write in [&mut put, &mut record] {
                    write.stamp(5, 64, Salt(9), 128);
                }
                assert_eq!(record.frame, put.frame, "{len} bytes");
                frame = record.frame;
            }
        }
    }
}
