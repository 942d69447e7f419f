//! Byte strings in JSON: a string if they are valid UTF-8, otherwise `{"base64":"…"}`.
//!
//! An object is never mistaken for a string, so no text needs escaping.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

/// The only member of an object that encodes bytes.
const BASE64: &str = "base64";

/// Appends bytes as JSON.
pub(super) fn write(line: &mut Vec<u8>, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => write_text(line, text),
        Err(_) => write_base64(line, bytes),
    }
}

/// Appends text as a JSON string.
pub(super) fn write_text(line: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(line, text).expect("memory takes any text");
}

/// Appends bytes as an object, whether they are UTF-8 or not.
pub(super) fn write_base64(line: &mut Vec<u8>, bytes: &[u8]) {
    // The alphabet needs no escapes.
    line.extend_from_slice(b"{\"base64\":\"");
    line.extend_from_slice(STANDARD.encode(bytes).as_bytes());
    line.extend_from_slice(b"\"}");
}

/// Bytes that were read.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BytesVisitor)
    }
}

struct BytesVisitor;

impl<'de> Visitor<'de> for BytesVisitor {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, or {\"base64\":\"...\"}")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Bytes, E> {
        Ok(Bytes(text.as_bytes().to_vec()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Bytes, E> {
        Ok(Bytes(text.into_bytes()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Bytes, A::Error> {
        let Some((name, text)) = map.next_entry::<String, String>()? else {
            return Err(A::Error::missing_field(BASE64));
        };
        if name != BASE64 {
            return Err(A::Error::unknown_field(&name, &[BASE64]));
        }
        if map.next_key::<String>()?.is_some() {
            return Err(A::Error::custom("an object for bytes has the one member base64"));
        }
        STANDARD
            .decode(text)
            .map(Bytes)
            .map_err(|error| A::Error::custom(format!("base64: {error}")))
    }
}
