//! A value with its attributes, as put and as read.

use std::ops::{Deref, Range};
use std::sync::Arc;

/// Attributes that a put stores with its value. The engine stores and returns them; their meaning
/// is up to the caller.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Attributes {
    /// Expiry of the value, in milliseconds since 1970.
    pub expiry_ms: Option<u64>,
    /// The caller's version of the value.
    pub version: Option<u64>,
}

/// A value, as bytes. Clones share them.
///
/// The values of a range may share a buffer of about 256 KiB with their neighbours, which lives as
/// long as any of them. To keep few of many, copy them.
#[derive(Clone, Debug)]
pub struct Value {
    buf: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl Value {
    pub(crate) fn whole(buf: Vec<u8>) -> Self {
        Value { range: 0..buf.len(), buf: Arc::new(buf) }
    }

    /// Creates a value from a part of a shared buffer.
    pub(crate) fn part(buf: Arc<Vec<u8>>, range: Range<usize>) -> Self {
        Value { buf, range }
    }

    /// Returns the bytes as a vector; copied if they are shared.
    pub fn into_vec(self) -> Vec<u8> {
        match Arc::try_unwrap(self.buf) {
            Ok(mut buf) => {
                buf.truncate(self.range.end);
                buf.drain(..self.range.start);
                buf
            }
            Err(shared) => shared[self.range].to_vec(),
        }
    }

    /// Returns the memory of the bytes, including the data that was read together with them.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.buf.capacity()
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buf[self.range.clone()]
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Value {}

/// A value with its metadata.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The value.
    pub value: Value,
    /// Attributes that it was put with.
    pub attributes: Attributes,
    /// Sequence number of the write in the order of all writes.
    pub seq: u64,
}
