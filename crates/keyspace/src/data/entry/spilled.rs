//! What an entry remembers of a value that is on disk.
//!
//! A value that was read again stays on disk, too, as long as it is not changed: then the entry has the
//! location of the copy among its [`Attributes`](super::Attributes), and may forget the value at any time.

use tierce_collections::CollectionKind;
use tierce_storage::ColdLocation;

use crate::data::value::{EMBSTR_LEN_MAX, ValueType};

/// A string as it was set.
pub(super) const STRING: u8 = 0;
/// A string that was modified in part.
pub(super) const RAW_STRING: u8 = 1;
/// Where the number of a collection's type is in the byte.
pub(super) const TYPE_SHIFT: u32 = 4;

/// Type and location of a value on disk.
///
/// | offset | size | field | meaning |
/// |---|---|---|---|
/// | 0 | 1 | form | 0 a string, 1 a string that was modified in part, else number of the type << 4 and number of the encoding |
/// | 1 | 12 | location | see [`ColdLocation`] |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spilled {
    pub(super) form: u8,
    pub(crate) location: ColdLocation,
}

impl Spilled {
    pub(crate) const ENCODED_LEN: usize = 1 + ColdLocation::ENCODED_LEN;

    /// The same value at another location.
    pub(crate) fn moved_to(self, location: ColdLocation) -> Self {
        Self { location, ..self }
    }

    pub(crate) fn encode(self) -> [u8; Self::ENCODED_LEN] {
        let mut bytes = [self.form; Self::ENCODED_LEN];
        bytes[1..].copy_from_slice(&self.location.encode());
        bytes
    }

    /// The reverse of [`Spilled::encode`]; `None` if there is no such type.
    pub(crate) fn decode(bytes: &[u8; Self::ENCODED_LEN]) -> Option<Self> {
        let (form, location) = bytes.split_first()?;
        let form = *form;
        let is_known = form <= RAW_STRING || kind_of(form).is_some();
        Some(Self { form, location: ColdLocation::decode(location.first_chunk()?) })
            .filter(|_| is_known)
    }

    pub(crate) fn value_type(self) -> ValueType {
        kind_of(self.form).map_or(ValueType::String, ValueType::Collection)
    }

    /// The length of a string; 0 for what is none.
    pub(crate) fn string_len(self) -> usize {
        // Before the string stands a byte that says what it is.
        if self.form <= RAW_STRING { (self.location.len as usize).saturating_sub(1) } else { 0 }
    }

    /// The name OBJECT ENCODING replies with.
    pub(crate) fn encoding(self) -> &'static str {
        match kind_of(self.form) {
            Some(kind) => {
                let names = kind.encodings();
                names[usize::from(self.form) % (1 << TYPE_SHIFT) % names.len()]
            }
            None if self.form == STRING && self.string_len() <= EMBSTR_LEN_MAX => "embstr",
            None => "raw",
        }
    }
}

fn kind_of(form: u8) -> Option<CollectionKind> {
    CollectionKind::from_number(form >> TYPE_SHIFT)
}
