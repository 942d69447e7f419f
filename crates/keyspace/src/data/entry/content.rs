//! A value to be stored in an entry.

use std::sync::Arc;

use tierce_collections::{Collection, parse_int};

use super::attributes::Attributes;
use super::layout::{COLLECTION_LEN, Kind, Shape};
use super::parts::int_width;
use super::spilled::Spilled;
use crate::data::value::BLOB_LEN_MIN;

/// New content of an entry.
#[derive(Debug)]
pub(crate) enum Content<'a> {
    /// Bytes for a string that is stored with its key.
    Embedded(&'a [u8]),
    /// Bytes for such a string after a partial modification.
    Raw(&'a [u8]),
    /// An integer, standing for its canonical text.
    Int(i64),
    /// Bytes in their own allocation.
    Blob(Arc<Vec<u8>>),
    /// A list, set, sorted set, hash or stream.
    Collection(Collection),
    /// A value on disk.
    Spilled(Spilled),
}

impl Content<'_> {
    #[inline]
    pub(super) fn shape(
        &self,
        key_len: usize,
        deadline_ms: Option<i64>,
        attributes: Attributes,
    ) -> Shape {
        let (kind, payload_len) = match self {
            Content::Embedded(bytes) => (Kind::Embedded, bytes.len()),
            Content::Raw(bytes) => (Kind::Raw, bytes.len()),
            Content::Int(value) => (Kind::Int, int_width(*value)),
            Content::Blob(_) => (Kind::Blob, size_of::<*const Vec<u8>>()),
            Content::Collection(_) => (Kind::Collection, COLLECTION_LEN),
            Content::Spilled(_) => (Kind::Spilled, Spilled::ENCODED_LEN),
        };
        Shape { kind, key_len, payload_len, deadline_ms, attributes }
    }
}

impl<'a> Content<'a> {
    /// Returns the content for a string that is set as a whole.
    #[inline]
    pub(crate) fn of_string(bytes: &'a [u8]) -> Self {
        if let Some(value) = parse_int(bytes) {
            Content::Int(value)
        } else {
            Self::of_bytes(bytes, Kind::Embedded)
        }
    }

    /// Returns the content for bytes as they are: with the key, as this kind, or in their own
    /// allocation if there are many.
    #[inline]
    pub(crate) fn of_bytes(bytes: &'a [u8], kind: Kind) -> Self {
        match kind {
            _ if bytes.len() >= BLOB_LEN_MIN => Content::Blob(Arc::new(bytes.to_vec())),
            Kind::Raw => Content::Raw(bytes),
            _ => Content::Embedded(bytes),
        }
    }
}
