//! Encoding of values on disk: a byte for the kind, then the bytes of the string or the edits that create the
//! collection. See `docs/formats/cold-segment.md`.

use crate::codec::Writer;
use crate::data::collections::convert;
use crate::data::collections::limits::LimitCells;
use crate::data::entry::{Content, Entry, Kind};
use crate::data::value::{StrView, Value};

const STRING: u8 = 0;
const RAW_STRING: u8 = 1;
const COLLECTION: u8 = 2;

/// Appends the value of an entry, which must be in memory.
pub(crate) fn encode(entry: &Entry, out: &mut Vec<u8>) {
    match entry.value() {
        Value::Str(string) => {
            out.push(if entry.kind() == Kind::Raw { RAW_STRING } else { STRING });
            string.write_to(out);
        }
        Value::Collection(collection) => {
            out.push(COLLECTION);
            convert::encode(&collection, &mut Writer::new(out));
        }
    }
}

/// Appends a large string.
pub(crate) fn encode_blob(blob: &[u8], out: &mut Vec<u8>) {
    out.push(STRING);
    out.extend_from_slice(blob);
}

/// Returns the size on disk of a large string of this length.
pub(crate) fn blob_len(len: usize) -> usize {
    len.saturating_add(1)
}

/// Returns true if `bytes` are the result of [`encode`] for the entry, which is in memory.
pub(crate) fn is_value_of(entry: &Entry, bytes: &[u8]) -> bool {
    let Some((form, bytes)) = bytes.split_first() else { return false };
    match (entry.value(), *form) {
        (Value::Str(StrView::Bytes(string)), STRING) => {
            entry.kind() == Kind::Embedded && string == bytes
        }
        (Value::Str(StrView::Bytes(string)), RAW_STRING) => {
            entry.kind() == Kind::Raw && string == bytes
        }
        (Value::Str(StrView::Shared(blob)), STRING) => *blob == *bytes,
        (Value::Collection(collection), COLLECTION) => {
            let mut again = Vec::with_capacity(bytes.len());
            convert::encode(&collection, &mut Writer::new(&mut again));
            again == bytes
        }
        _ => false,
    }
}

/// Returns true if bytes from [`encode`] are a collection, and the bytes after the kind.
pub(crate) fn parts(bytes: &[u8]) -> (bool, &[u8]) {
    bytes.split_first().map_or((false, bytes), |(form, rest)| (*form == COLLECTION, rest))
}

/// Reverses [`encode`]; `None` for bytes that it does not produce.
pub(crate) fn decode<'a>(bytes: &'a [u8], limits: &LimitCells) -> Option<Content<'a>> {
    let (form, bytes) = bytes.split_first()?;
    Some(match *form {
        STRING => Content::of_bytes(bytes, Kind::Embedded),
        RAW_STRING => Content::of_bytes(bytes, Kind::Raw),
        COLLECTION => Content::Collection(convert::collection_of(bytes, limits).ok()?),
        _ => return None,
    })
}
