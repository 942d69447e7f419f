//! Read access to the value of an entry.

use tierce_collections::{Form, Hash, Set};
use tierce_storage::ColdLocation;

use super::Entry;
use super::attributes::Attributes;
use super::layout::Kind;
use super::spilled::{RAW_STRING, STRING, Spilled, TYPE_SHIFT};
use crate::data::collections::sealed::Sealed;
use crate::data::collections::{BorrowGuard, each_collection};
use crate::data::value::{EMBSTR_LEN_MAX, Value, ValueType};

impl Entry {
    /// Returns the type of the value.
    pub fn value_type(&self) -> ValueType {
        match self.raw_collection() {
            Some((form, _)) => ValueType::Collection(form.kind()),
            None => self.spilled().map_or(ValueType::String, Spilled::value_type),
        }
    }

    /// Returns the value, which must be in memory.
    ///
    /// # Panics
    ///
    /// If it is only on disk; see [`Entry::is_spilled`].
    #[inline]
    pub fn value(&self) -> Value<'_> {
        match self.string() {
            Ok(string) => Value::Str(string),
            Err(_) => {
                let collection = self.collection();
                Value::Collection(collection.expect("a value on disk is fetched before it is read"))
            }
        }
    }

    /// Returns the value as of a time: a set hides members that have expired by then.
    #[inline]
    pub(crate) fn value_as_of(&self, now_ms: i64) -> Value<'_> {
        let mut value = self.value();
        if let Value::Collection(collection) = &mut value {
            collection.hide_due(now_ms);
        }
        value
    }

    /// Returns the name that OBJECT ENCODING reports.
    pub fn encoding(&self) -> &'static str {
        if let Some(spilled) = self.spilled() {
            return spilled.encoding();
        }
        match (self.value(), self.kind()) {
            (Value::Collection(collection), _) => collection.encoding(),
            (Value::Str(_), Kind::Int) => "int",
            (Value::Str(string), Kind::Embedded) if string.len() <= EMBSTR_LEN_MAX => "embstr",
            (Value::Str(_), _) => "raw",
        }
    }
}

impl Spilled {
    /// Returns the record of `entry`, whose value is in memory, for a value that is only on disk.
    pub(crate) fn of(entry: &Entry, location: ColdLocation) -> Self {
        let form = match entry.value_type() {
            ValueType::Collection(kind) => {
                let names = kind.encodings();
                let name = entry.encoding();
                let number = names.iter().position(|known| *known == name).unwrap_or(0);
                (kind as u8) << TYPE_SHIFT | number as u8
            }
            ValueType::String if entry.kind() == Kind::Raw => RAW_STRING,
            ValueType::String => STRING,
        };
        Self { form, location }
    }
}

impl Entry {
    /// Returns type and location, if the value is only on disk.
    #[inline]
    pub(crate) fn spilled(&self) -> Option<Spilled> {
        let tag = self.tag();
        if tag.kind() != Kind::Spilled {
            return None;
        }
        // SAFETY: with this tag the payload is an encoded `Spilled`, borrowed with `self`.
        let bytes = unsafe { self.payload(tag).cast::<[u8; Spilled::ENCODED_LEN]>().as_ref() };
        Spilled::decode(bytes)
    }

    /// Returns true if the value is only on disk.
    #[inline]
    pub fn is_spilled(&self) -> bool {
        self.kind() == Kind::Spilled
    }

    /// Returns the length of a string, in memory or on disk; 0 for other types.
    pub fn string_len(&self) -> usize {
        match self.spilled() {
            Some(spilled) => spilled.string_len(),
            None => self.string().map_or(0, |string| string.len()),
        }
    }

    /// Returns the number of elements of a collection; 0 for a string.
    pub fn element_count(&self) -> usize {
        self.collection().map_or(0, |collection| collection.len())
    }

    /// Returns the location of the value on disk, even if it is in memory as well.
    #[inline]
    pub(crate) fn location(&self) -> Option<ColdLocation> {
        let tag = self.tag();
        if tag.kind() == Kind::Spilled {
            return self.spilled().map(|spilled| spilled.location);
        }
        if tag.has_tail() { self.attributes().location } else { None }
    }

    /// Returns true if the value is in memory and on disk.
    #[inline]
    pub(crate) fn has_copy_on_disk(&self) -> bool {
        self.tag().has_tail() && self.attributes().location.is_some()
    }

    /// Forgets the copy on disk, because it is obsolete.
    pub(crate) fn forget_copy(&mut self) {
        self.set_attributes(Attributes { location: None, ..self.attributes() });
    }
}

impl Entry {
    /// Returns the earliest deadline of an element, if this is a hash or a set; see
    /// [`Hash::next_deadline_ms`](tierce_collections::Hash::next_deadline_ms).
    #[inline]
    pub(crate) fn next_field_deadline_ms(&self) -> Option<i64> {
        match self.raw_collection() {
            Some((form @ (Form::HashPacked | Form::HashTable), pointer)) => {
                // SAFETY: these are the forms of hashes, and the entry owns the value while it is borrowed here.
                BorrowGuard::new(unsafe { Hash::from_raw(form, pointer) }).next_deadline_ms()
            }
            Some((form @ (Form::SetTimedSmall | Form::SetTimedLarge), pointer)) => {
                // SAFETY: these are forms of sets, and the entry owns the value while it is borrowed here.
                BorrowGuard::new(unsafe { Set::from_raw(form, pointer) }).next_deadline_ms()
            }
            _ => None,
        }
    }

    /// Returns true for a hash or set whose elements have all expired.
    #[cold]
    pub(crate) fn is_all_due(&self, now_ms: i64) -> bool {
        self.collection()
            .is_some_and(|it| each_collection!(&*it, value => value.is_all_due(now_ms)))
    }
}
