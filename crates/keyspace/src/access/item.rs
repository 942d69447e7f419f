//! Strings as the protocols of memcached see them: with flags and a version, stored on conditions.
//!
//! These are the strings of RESP. A string stored by another protocol has no flags. [`crate::change::version`]
//! explains versions.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::access::db::Db;
use crate::access::string::NewString;
use crate::change::Change;
use crate::change::event::Event;
use crate::data::entry::{Attributes, Content, Entry, ItemNote, Marks};
use crate::data::expiry::Expiry;
use crate::data::key::Key;
use crate::data::value::{BLOB_LEN_MIN, StrView, ValueType};
use crate::error::{Error, Result};

/// A string with its memcached metadata.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Item<'a> {
    /// The value.
    pub value: StrView<'a>,
    /// Flags that a client stored with it; 0 by default.
    pub flags: u32,
    /// Version; 0 if the reader did not ask for it.
    pub version: u64,
    /// Expiry time, as Unix time in milliseconds.
    pub deadline_ms: Option<i64>,
    /// Marks that readers and invalidations have left on it.
    pub marks: Marks,
    /// Seconds since it was last used; see [`Db::idle_seconds`].
    pub idle_seconds: u32,
}

/// Metadata of a string without its value: see [`Db::summary`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Summary {
    /// Bytes of the value.
    pub len: usize,
    /// Its version.
    pub version: u64,
    /// Expiry time, as Unix time in milliseconds.
    pub deadline_ms: Option<i64>,
    /// Marks that readers and invalidations have left on it.
    pub marks: Marks,
    /// Seconds since it was last used; see [`Db::idle_seconds`].
    pub idle_seconds: u64,
    /// Bytes of memory of the key, with its part of the index.
    pub memory_bytes: usize,
}

/// Purpose for which a reader wants an item's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionFor {
    /// The reader does not want it.
    None,
    /// It is a field of the reply that most readers ignore.
    Anybody,
    /// The reader asked for it, to compare it.
    Comparison,
}

/// Precondition of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    Always,
    /// There is no such key.
    Absent,
    /// There is such a key.
    Present,
    /// There is such a key, and its value has this version.
    Version(u64),
}

/// Result of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// It happened.
    Done,
    /// There is no such key.
    Absent,
    /// There is such a key.
    Present,
    /// The value has another version.
    OtherVersion,
}

/// End of a string at which bytes are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Before its first byte.
    Front,
    /// After its last byte.
    Back,
}

/// Change to a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adjust {
    /// Added to, modulo 2^64.
    Up(u64),
    /// Subtracted from, down to 0.
    Down(u64),
}

/// Result of a change to a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adjusted {
    /// The new number.
    To(u64),
    /// There is no such key.
    Absent,
    /// The value has another version.
    OtherVersion,
    /// The value is no number.
    NotANumber,
}

impl Db<'_> {
    /// Like [`Db::set`], and restores the saved flags and marks of the string.
    ///
    /// # Errors
    ///
    /// Those of [`Db::set`].
    pub fn restore_item<'v>(
        &mut self,
        key: Key<'_>,
        value: impl Into<NewString<'v>>,
        expiry: Expiry,
        note: ItemNote,
    ) -> Result<()> {
        let ItemNote { flags, marks } = note;
        self.put_string(key, value.into(), expiry, Attributes { flags, marks, ..Attributes::NONE })
    }

    /// Reads a string with its flags and, if wanted, its version. Counts a hit or a miss, and a use of the key.
    ///
    /// # Errors
    ///
    /// [`Error::WrongType`](crate::Error::WrongType), [`Error::Unreadable`](crate::Error::Unreadable).
    // Inlined, so that a reader does not pay for fields that it does not use.
    #[inline(always)]
    pub fn item(&mut self, key: Key<'_>, version: VersionFor) -> Result<Option<Item<'_>>> {
        if version == VersionFor::Comparison {
            self.own_version(key);
        }
        let at = self.at;
        let found = self.find_value(key)?;
        at.count_read(key, found.is_some());
        let Some(entry) = found else { return Ok(None) };
        let idle_seconds = entry.access().stamp.idle_seconds(at.now_ms);
        at.used(entry);
        let version = match version {
            VersionFor::None => 0,
            _ => at.version_of(key.hash(), entry).get(),
        };
        let Attributes { flags, marks, .. } = entry.attributes();
        let deadline_ms = entry.deadline_ms();
        let value = entry.string()?;
        Ok(Some(Item { value, flags, version, deadline_ms, marks, idle_seconds }))
    }

    /// Returns the metadata of a string, in memory or on disk, without counting a read or a use; `None` if the key
    /// has no string.
    pub fn summary(&mut self, key: Key<'_>, version: VersionFor) -> Option<Summary> {
        let version = self.version(key, version);
        let memory_bytes = self.memory_bytes(key)?;
        let idle_seconds = self.idle_seconds(key)?;
        let entry = self.peek(key).filter(|entry| entry.value_type() == ValueType::String)?;
        Some(Summary {
            len: entry.string_len(),
            version,
            deadline_ms: entry.deadline_ms(),
            marks: entry.attributes().marks,
            idle_seconds,
            memory_bytes,
        })
    }

    /// Number of keys of this shard that have expired so far. A caller that compares it before and after a miss knows
    /// if the key had just expired.
    #[inline]
    pub fn expired_so_far(&self) -> u64 {
        self.at.stats.expired.get()
    }

    /// Returns the version of a key, without counting a read; 0 if there is no such key.
    pub fn version(&mut self, key: Key<'_>, wanted: VersionFor) -> u64 {
        if wanted == VersionFor::Comparison {
            self.own_version(key);
        }
        let at = self.at;
        self.peek(key).map_or(0, |entry| at.version_of(key.hash(), entry).get())
    }

    /// Returns the version of a key that was just stored under the present lock, without a lookup.
    #[inline]
    pub fn version_of_store(&self, key: Key<'_>) -> u64 {
        self.at.striped_version(key.hash()).get()
    }

    /// Sets a key to a string with flags, if `condition` holds. A deadline in `expiry` that has passed deletes the
    /// key instead. Marks are cleared.
    ///
    /// # Errors
    ///
    /// [`Error::KeyTooLong`](crate::Error::KeyTooLong),
    /// [`Error::ValueTooLong`](crate::Error::ValueTooLong).
    // Inlined in the few places that store, as `put_string` is: a call costs 30 instructions.
    #[inline(always)]
    pub fn store<'v>(
        &mut self,
        key: Key<'_>,
        value: impl Into<NewString<'v>>,
        flags: u32,
        expiry: Expiry,
        condition: Condition,
    ) -> Result<Stored> {
        let mut attributes = Attributes::of_flags(flags);
        if condition != Condition::Always {
            let outcome = self.check_condition(key, condition);
            if outcome != Stored::Done {
                return Ok(outcome);
            }
            if let Condition::Version(_) = condition {
                // Any number will do, since a change renews the version.
                attributes.version = Some(NonZeroU64::MIN);
            }
        }
        self.put_string(key, value.into(), expiry, attributes)?;
        self.event_of_store(key, expiry);
        Ok(Stored::Done)
    }

    /// Adds bytes to an existing string, if `version` matches (when given). If the result would exceed `len_max`, it
    /// returns [`Stored::Absent`]. Flags and deadline stay, marks are cleared.
    ///
    /// # Errors
    ///
    /// [`Error::WrongType`](crate::Error::WrongType),
    /// [`Error::ValueTooLong`](crate::Error::ValueTooLong).
    pub fn extend(
        &mut self,
        key: Key<'_>,
        bytes: &[u8],
        end: End,
        version: Option<u64>,
        len_max: usize,
    ) -> Result<Stored> {
        let condition = version.map_or(Condition::Present, Condition::Version);
        let outcome = self.check_condition(key, condition);
        if outcome != Stored::Done {
            return Ok(outcome);
        }
        let len = self.peek(key).map_or(0, Entry::string_len);
        if len.saturating_add(bytes.len()) > len_max {
            return Ok(Stored::Absent);
        }
        match end {
            End::Back => {
                self.append(key, bytes)?;
                self.event(Event::Append, key);
            }
            End::Front => {
                self.prepend(key, bytes)?;
                // No Redis command does this.
                self.event(Event::Set, key);
            }
        }
        if self.peek(key).is_some_and(|entry| entry.attributes().marks != Marks::NONE) {
            self.mark(key, |marks| *marks = Marks::NONE);
        }
        Ok(Stored::Done)
    }

    /// Changes an unsigned 64-bit decimal number, if `version` matches (when given). Flags, marks and deadline stay.
    ///
    /// # Errors
    ///
    /// [`Error::WrongType`](crate::Error::WrongType).
    pub fn adjust(&mut self, key: Key<'_>, by: Adjust, version: Option<u64>) -> Result<Adjusted> {
        if version.is_some() {
            // Like memcached, which checks the version before it parses any text but an empty one.
            let is_empty =
                |entry: &Entry| entry.value_type() == ValueType::String && entry.string_len() == 0;
            if self.peek(key).is_some_and(is_empty) {
                return Ok(Adjusted::NotANumber);
            }
            match self.check_condition(key, version.map_or(Condition::Present, Condition::Version))
            {
                Stored::Done => {}
                Stored::Absent => return Ok(Adjusted::Absent),
                _ => return Ok(Adjusted::OtherVersion),
            }
        }
        let at = self.at;
        let Some(entry) = self.find_value_to_change(key)? else { return Ok(Adjusted::Absent) };
        let Some(value) = number(entry.string()?) else { return Ok(Adjusted::NotANumber) };
        let sum = match by {
            Adjust::Up(delta) => value.wrapping_add(delta),
            Adjust::Down(delta) => value.saturating_sub(delta),
        };
        let deadline_ms = entry.deadline_ms();
        let text;
        let content = match i64::try_from(sum) {
            Ok(sum) => Content::Int(sum),
            Err(_) => {
                text = sum.to_string();
                Content::Embedded(text.as_bytes())
            }
        };
        if entry.overwrite(&content, deadline_ms) {
            at.used(entry);
            at.changed(key.hash(), entry, Change::Stored);
            self.event(Event::IncrBy, key);
            return Ok(Adjusted::To(sum));
        }
        let store = |entry: &mut Entry| Ok(entry.store(content, deadline_ms));
        let displaced = self.modify(key, Change::Stored, store)?;
        self.discard_out_of_line(key, displaced.flatten());
        self.event(Event::IncrBy, key);
        Ok(Adjusted::To(sum))
    }

    /// Returns the result of a store under `condition`. A key whose version is compared gets an own version.
    fn check_condition(&mut self, key: Key<'_>, condition: Condition) -> Stored {
        let at = self.at;
        let found = self.find(key);
        match (condition, found) {
            (Condition::Always, _) | (Condition::Absent, None) => Stored::Done,
            (Condition::Absent, Some(entry)) => {
                at.used(entry);
                Stored::Present
            }
            (Condition::Present | Condition::Version(_), None) => Stored::Absent,
            (Condition::Present, Some(_)) => Stored::Done,
            (Condition::Version(wanted), Some(entry)) => {
                if at.version_of(key.hash(), entry).get() == wanted {
                    return Stored::Done;
                }
                self.own_version(key);
                Stored::OtherVersion
            }
        }
    }

    /// Gives a key an own version, equal to its present one, unless it has one or is absent.
    fn own_version(&mut self, key: Key<'_>) {
        let at = self.at;
        let Some(entry) = self.find(key) else { return };
        if entry.attributes().version.is_none() {
            let version = at.version_of(key.hash(), entry);
            self.annotate(key, |attributes| attributes.version = Some(version));
        }
    }

    /// Sets the version of a key until its next change; `false` if there is no such key. The caller must never give
    /// two values of a key the same version.
    pub fn set_version(&mut self, key: Key<'_>, version: NonZeroU64) -> bool {
        self.annotate(key, |attributes| attributes.version = Some(version))
    }

    /// Changes the marks of an item. This is not a change of the key, but it is logged. `false` if the key has no
    /// string.
    pub fn mark(&mut self, key: Key<'_>, edit: impl FnOnce(&mut Marks)) -> bool {
        let at = self.at;
        let item = self.find(key).filter(|entry| entry.value_type() == ValueType::String);
        let Some(before) = item.map(|entry| entry.marks()) else { return false };
        let mut marks = before;
        edit(&mut marks);
        self.annotate(key, |attributes| attributes.marks = marks);
        if before.logged() != marks.logged()
            && let Some(batch) = at.batch()
            && let Some(entry) = self.find(key)
        {
            batch.record_change(at.db, entry, Change::Marked);
        }
        true
    }

    /// Sets the flags and marks of an item as another server has stored them; without flags it keeps its own. Clients
    /// that cache the key are told when it becomes stale. `false` if the key has no string.
    pub fn set_note(&mut self, key: Key<'_>, flags: Option<u32>, marks: Marks) -> bool {
        let Some(entry) = self.find(key) else { return false };
        if entry.value_type() != ValueType::String {
            return false;
        }
        if marks.stale && !entry.marks().stale {
            _ = self.make_stale(key);
        }
        self.note(key, flags, marks)
    }

    /// Like [`Db::set_note`], without telling listeners.
    pub(crate) fn note(&mut self, key: Key<'_>, flags: Option<u32>, marks: Marks) -> bool {
        let at = self.at;
        let Some(before) = self.find(key).map(|entry| entry.attributes().note()) else {
            return false;
        };
        let after = ItemNote { flags: flags.unwrap_or(before.flags), marks: marks.logged() };
        self.annotate(key, |attributes| {
            attributes.flags = after.flags;
            attributes.marks = Marks { fetched: attributes.marks.fetched, ..marks };
        });
        if before != after
            && let Some(batch) = at.batch()
            && let Some(entry) = self.find(key)
        {
            let change = if before.flags == after.flags { Change::Marked } else { Change::Noted };
            batch.record_change(at.db, entry, change);
        }
        true
    }

    /// Marks an item as stale and gives it a new version, so that no client stores with an old one; `false` if there
    /// is no such key.
    ///
    /// # Errors
    ///
    /// [`Error::WrongType`]: only strings are items.
    pub fn make_stale(&mut self, key: Key<'_>) -> Result<bool> {
        let make_stale = |entry: &mut Entry| {
            if entry.value_type() != ValueType::String {
                return Err(Error::WrongType);
            }
            let marks = Marks { stale: true, won: false, ..entry.attributes().marks };
            entry.set_attributes(Attributes { marks, ..entry.attributes() });
            Ok(())
        };
        let is_done = self.modify(key, Change::Marked, make_stale)?.is_some();
        if is_done {
            self.event(Event::Stale, key);
        }
        Ok(is_done)
    }

    fn prepend(&mut self, key: Key<'_>, prefix: &[u8]) -> Result<()> {
        let Some(entry) = self.find_value(key)? else { return Ok(()) };
        let (old, deadline_ms) = (entry.string()?, entry.deadline_ms());
        let mut value = Vec::with_capacity(prefix.len() + old.len());
        value.extend_from_slice(prefix);
        old.write_to(&mut value);
        self.check_len(value.len() as u64)?;
        let store = |entry: &mut Entry| {
            let content = if value.len() < BLOB_LEN_MIN {
                Content::Raw(&value)
            } else {
                Content::Blob(Arc::new(std::mem::take(&mut value)))
            };
            Ok(entry.store(content, deadline_ms))
        };
        let displaced = self.modify(key, Change::Stored, store)?;
        self.discard_out_of_line(key, displaced.flatten());
        Ok(())
    }
}

/// Parses a value as memcached does: leading blanks, a plus and leading zeros are allowed, and everything after a
/// blank or a zero byte is ignored. (Its `decr` pads numbers with blanks.)
fn number(value: StrView<'_>) -> Option<u64> {
    // As `isspace` in C.
    let is_blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'\x0b';
    let bytes = match value {
        StrView::Int(value) => return u64::try_from(value).ok(),
        StrView::Shared(_) => return None,
        StrView::Bytes(bytes) => &bytes[bytes.iter().take_while(|byte| is_blank(byte)).count()..],
    };
    let bytes = bytes.strip_prefix(b"+").unwrap_or(bytes);
    let ends = |byte: &u8| is_blank(byte) || *byte == 0;
    let end = bytes.iter().position(ends).unwrap_or(bytes.len());
    if end == 0 {
        return None;
    }
    bytes[..end].iter().try_fold(0u64, |sum, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { sum.checked_mul(10)?.checked_add(digit.into()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_memcached_reads_them() {
        for (text, expected) in [
            ("12", Some(12)),
            (" 12", Some(12)),
            ("12  ", Some(12)),
            ("+12", Some(12)),
            ("007", Some(7)),
            ("000000000000000000000012", Some(12)),
            ("1 2", Some(1)),
            ("1\0", Some(1)),
            ("1\0x", Some(1)),
            ("\x0b1\x0b2", Some(1)),
            ("\0", None),
            ("+\0", None),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("-12", None),
            ("12x", None),
            ("+", None),
            ("", None),
            (" ", None),
        ] {
            assert_eq!(number(StrView::Bytes(text.as_bytes())), expected, "{text:?}");
        }
    }
}
