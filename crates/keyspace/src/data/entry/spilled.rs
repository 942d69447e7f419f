//! Reference of an entry to a value on disk.
//!
//! A value that was fetched stays on disk as well, until it changes. Then the entry has the location of the copy in
//! its [`Attributes`](super::Attributes), and may drop the value from memory at any time.

use tierce_collections::CollectionKind;
use tierce_storage::ColdLocation;

use crate::data::value::{EMBSTR_LEN_MAX, ValueType};

/// A string as it was set.
pub(super) const STRING: u8 = 0;
/// A string that was partially modified.
pub(super) const RAW_STRING: u8 = 1;
/// A value that is in memory, not on disk: only in operations that give a value from one key to another.
const IN_MEMORY: u8 = 0xf0;
/// Position of the number of a collection's type in the byte.
pub(super) const TYPE_SHIFT: u32 = 4;

/// Type and location of a value on disk.
///
/// | offset | size | field | meaning |
/// |---|---|---|---|
/// | 0 | 1 | form | 0: string, 1: partially modified string, 0xf0: in memory, else type << 4 and the encoding |
/// | 1 | 12 | location | see [`ColdLocation`] |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spilled {
    pub(super) form: u8,
    pub(crate) location: ColdLocation,
}

impl Spilled {
    pub(crate) const ENCODED_LEN: usize = 1 + ColdLocation::ENCODED_LEN;

    /// Placeholder for the location of a value that stays in memory while it moves to another key.
    pub(crate) const IN_MEMORY: Self = Self { form: IN_MEMORY, location: ColdLocation::NONE };

    /// Returns the same value at another location.
    pub(crate) fn moved_to(self, location: ColdLocation) -> Self {
        Self { location, ..self }
    }

    pub(crate) fn encode(self) -> [u8; Self::ENCODED_LEN] {
        let mut bytes = [self.form; Self::ENCODED_LEN];
        bytes[1..].copy_from_slice(&self.location.encode());
        bytes
    }

    /// Reverses [`Spilled::encode`]; `None` if there is no such type.
    pub(crate) fn decode(bytes: &[u8; Self::ENCODED_LEN]) -> Option<Self> {
        let (form, location) = bytes.split_first()?;
        let form = *form;
        let is_known = form <= RAW_STRING || kind_of(form).is_some();
        let location = ColdLocation::decode(location.first_chunk()?);
        Some(Self { form, location }).filter(|spilled| is_known || *spilled == Self::IN_MEMORY)
    }

    pub(crate) fn value_type(self) -> ValueType {
        kind_of(self.form).map_or(ValueType::String, ValueType::Collection)
    }

    /// Returns the length of a string; 0 for other types.
    pub(crate) fn string_len(self) -> usize {
        // A byte for the kind precedes the string.
        if self.form <= RAW_STRING { (self.location.len as usize).saturating_sub(1) } else { 0 }
    }

    /// Returns the name that OBJECT ENCODING reports.
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
