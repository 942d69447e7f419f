//! Operations on strings.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::access::context::Context;
use crate::access::db::Db;
use crate::access::undo::{cover, cover_bytes};
use crate::change::Change;
use crate::data::entry::{Attributes, Content, Entry, Kind, OutOfLine, size_class};
use crate::data::expiry::Expiry;
use crate::data::key::Key;
use crate::data::value::{BLOB_LEN_MIN, StrView};
use crate::error::{Error, Result};
use tierce_collections::{IntText, int_text_len};

/// A string to be stored.
///
/// Its construction does the work that needs no lock: it copies the bytes of a large string. Where that matters,
/// construct it before the key's shard is locked.
#[derive(Debug)]
pub struct NewString<'a>(pub(crate) Content<'a>);

impl<'a> NewString<'a> {
    /// Uses bytes as they are, whatever they look like.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(Content::of_string(bytes))
    }

    /// Uses a vector, which is shared and not copied if it is large.
    pub fn from_arc(bytes: &'a Arc<Vec<u8>>) -> Self {
        if bytes.len() < BLOB_LEN_MIN {
            return Self::new(bytes);
        }
        Self(Content::Blob(Arc::clone(bytes)))
    }

    /// Uses bytes that a command has computed. OBJECT ENCODING reports `raw`, as after a partial write.
    pub fn computed(bytes: &'a Arc<Vec<u8>>) -> Self {
        if bytes.len() < BLOB_LEN_MIN {
            return Self(Content::Raw(bytes));
        }
        Self(Content::Blob(Arc::clone(bytes)))
    }

    #[inline]
    fn len(&self) -> usize {
        match &self.0 {
            Content::Embedded(bytes) | Content::Raw(bytes) => bytes.len(),
            Content::Int(value) => int_text_len(*value),
            Content::Blob(blob) => blob.len(),
            Content::Collection(_) | Content::Spilled(_) => unreachable!("made of bytes"),
        }
    }
}

impl<'a, B: AsRef<[u8]> + ?Sized> From<&'a B> for NewString<'a> {
    #[inline]
    fn from(bytes: &'a B) -> Self {
        Self::new(bytes.as_ref())
    }
}

impl Db<'_> {
    /// Reads a string: GET. Counts a hit or a miss, and a use of the key.
    ///
    /// # Errors
    ///
    /// [`Error::WrongType`].
    #[inline(always)]
    pub fn string(&mut self, key: Key<'_>) -> Result<Option<StrView<'_>>> {
        self.read(key)?.map(Entry::string).transpose()
    }

    /// Reads a string to change it; see [`Db::value_to_change`].
    ///
    /// # Errors
    ///
    /// [`Error::WrongType`].
    pub fn string_to_change(&mut self, key: Key<'_>) -> Result<Option<StrView<'_>>> {
        self.find_value(key)?.map(|entry| entry.string()).transpose()
    }

    /// Sets a key to a string, whatever it was before: SET. A deadline in `expiry` that has passed deletes the key
    /// instead.
    ///
    /// # Errors
    ///
    /// [`Error::KeyTooLong`], [`Error::ValueTooLong`].
    #[inline]
    pub fn set<'v>(
        &mut self,
        key: Key<'_>,
        value: impl Into<NewString<'v>>,
        expiry: Expiry,
    ) -> Result<()> {
        self.put_string(key, value.into(), expiry, Attributes::NONE)
    }

    /// Sets a key to a string with attributes, whatever it was before. A deadline in `expiry` that has passed deletes
    /// the key instead.
    #[inline(always)]
    pub(crate) fn put_string(
        &mut self,
        key: Key<'_>,
        value: NewString<'_>,
        expiry: Expiry,
        attributes: Attributes,
    ) -> Result<()> {
        self.check_len(value.len() as u64)?;
        if let Expiry::At(deadline_ms) = expiry
            && deadline_ms <= self.now_ms()
        {
            self.remove(key);
            return Ok(());
        }
        self.before_change(key.hash());
        cover(self, key);
        let Some(mut found) = self.look_up(key) else {
            let deadline_ms =
                if let Expiry::At(deadline_ms) = expiry { Some(deadline_ms) } else { None };
            return self.add(key, value.0, deadline_ms, attributes);
        };
        // SAFETY: the pointer is from a mutable borrow of the table in `self.shard`, which nothing has used
        // since, nor is it used before this reference has done its part.
        let entry = unsafe { found.as_mut() };
        let deadline_ms = match expiry {
            Expiry::Never => None,
            Expiry::Keep => entry.deadline_ms(),
            Expiry::At(deadline_ms) => Some(deadline_ms),
        };
        if entry.carries(&attributes) && entry.overwrite(&value.0, deadline_ms) {
            self.at.used(entry);
            self.at.changed(key.hash(), entry, Change::Stored);
            return Ok(());
        }
        self.replace_string(key, found, value, deadline_ms, attributes)
    }

    /// Replaces the string in an entry by one of another length, kind or attributes.
    #[inline(never)]
    fn replace_string(
        &mut self,
        key: Key<'_>,
        mut found: NonNull<Entry>,
        value: NewString<'_>,
        deadline_ms: Option<i64>,
        attributes: Attributes,
    ) -> Result<()> {
        let at = self.at;
        // SAFETY: as in `put_string`, which has found the entry.
        let entry = unsafe { found.as_mut() };
        let replace = |entry: &mut Entry| Ok(entry.replace(value.0, deadline_ms, attributes));
        let (displaced, before, after) = at.edit(key.hash(), entry, Change::Stored, replace)?;
        self.account(key.hash(), before, after);
        self.discard_out_of_line(key, displaced);
        Ok(())
    }

    /// Appends to a string, which is created if absent: APPEND. Returns its length.
    ///
    /// # Errors
    ///
    /// [`Error::WrongType`], [`Error::KeyTooLong`], [`Error::ValueTooLong`].
    pub fn append(&mut self, key: Key<'_>, suffix: &[u8]) -> Result<usize> {
        let Some(old_len) = self.string_len(key)? else {
            self.set(key, suffix, Expiry::Never)?;
            return Ok(suffix.len());
        };
        self.overwrite(key, old_len, suffix)
    }

    /// Writes `bytes` into a string at `offset`: SETRANGE. The string is created or extended by zero bytes if
    /// necessary. Returns the length of the string. Does nothing if `bytes` is empty.
    ///
    /// # Errors
    ///
    /// [`Error::WrongType`], [`Error::KeyTooLong`], [`Error::ValueTooLong`].
    pub fn set_range(&mut self, key: Key<'_>, offset: u64, bytes: &[u8]) -> Result<usize> {
        let old_len = self.string_len(key)?;
        if bytes.is_empty() {
            return Ok(old_len.unwrap_or(0));
        }
        let end = offset.saturating_add(bytes.len() as u64);
        self.check_len(end)?;
        // The check ensures that the offset fits a `usize`.
        let offset = offset as usize;
        if old_len.is_some() {
            return self.overwrite(key, offset, bytes);
        }
        self.check_key(key)?;
        // So the log has only the written bytes, and not the zero bytes before them.
        self.add(key, Content::Raw(b""), None, Attributes::NONE)?;
        self.overwrite(key, offset, bytes)
    }

    /// Adds to an integer, which counts as 0 if absent: INCRBY. Returns the sum.
    ///
    /// # Errors
    ///
    /// [`Error::WrongType`], [`Error::NotAnInteger`], [`Error::IntegerOverflow`],
    /// [`Error::KeyTooLong`].
    pub fn increment(&mut self, key: Key<'_>, by: i64) -> Result<i64> {
        let at = self.at;
        let Some(entry) = self.find_value_to_change(key)? else {
            self.add(key, Content::Int(by), None, Attributes::NONE)?;
            return Ok(by);
        };
        let value = entry.string()?.as_int().ok_or(Error::NotAnInteger)?;
        let sum = value.checked_add(by).ok_or(Error::IntegerOverflow)?;
        let deadline_ms = entry.deadline_ms();
        if entry.overwrite(&Content::Int(sum), deadline_ms) {
            at.used(entry);
            at.changed(key.hash(), entry, Change::Stored);
            return Ok(sum);
        }
        let store = |entry: &mut Entry| Ok(entry.store(Content::Int(sum), deadline_ms));
        let (displaced, before, after) = at.edit(key.hash(), entry, Change::Stored, store)?;
        self.account(key.hash(), before, after);
        debug_assert!(displaced.is_none(), "a blob is too long to be an integer");
        Ok(sum)
    }

    /// Adds a key that is known to be absent.
    fn add(
        &mut self,
        key: Key<'_>,
        content: Content<'_>,
        deadline_ms: Option<i64>,
        attributes: Attributes,
    ) -> Result<()> {
        self.check_key(key)?;
        let (bytes, access) = (key.bytes(), self.at.first_access());
        let entry = Entry::with_attributes(bytes, content, deadline_ms, attributes, access);
        self.insert(key, entry);
        Ok(())
    }

    /// Writes `bytes` at `offset` of an existing string, and returns its length.
    pub(crate) fn overwrite(&mut self, key: Key<'_>, offset: usize, bytes: &[u8]) -> Result<usize> {
        self.check_len((offset as u64).saturating_add(bytes.len() as u64))?;
        self.overwrite_any_len(key, offset, bytes)
    }

    /// Like [`Db::overwrite`], without a limit for the length.
    pub(crate) fn overwrite_any_len(
        &mut self,
        key: Key<'_>,
        offset: usize,
        bytes: &[u8],
    ) -> Result<usize> {
        let range = offset..offset + bytes.len();
        let change = Change::Written { offset, len: bytes.len() };
        let write = |entry: &mut Entry| write_range(entry, range, bytes);
        self.find_value(key)?;
        cover_bytes(self, key, offset, bytes.len());
        Ok(self.modify(key, change, write)?.unwrap_or(0))
    }

    /// Returns the length of a string, without counting anything.
    ///
    /// # Errors
    ///
    /// [`Error::WrongType`].
    pub fn string_len(&mut self, key: Key<'_>) -> Result<Option<usize>> {
        self.find_value(key)?.map(|entry| Ok(entry.string()?.len())).transpose()
    }

    pub(crate) fn value_len_max(&self) -> usize {
        self.at.keyspace.value_len_max()
    }

    #[inline]
    pub(crate) fn check_len(&self, len: u64) -> Result<()> {
        let max = self.value_len_max();
        if len > max as u64 { Err(Error::ValueTooLong { len, max }) } else { Ok(()) }
    }

    pub(crate) fn discard_out_of_line(&self, key: Key<'_>, displaced: Option<OutOfLine>) {
        let Context { thread, db, .. } = self.at;
        let not_needed = match (&thread.undo, displaced) {
            (Some(undo), Some(value)) => undo.keep_value(db, key, value),
            (_, displaced) => displaced,
        };
        thread.keyspace.free_displaced(not_needed);
    }
}

/// Writes `bytes` to the `range` of a string, which is extended by zero bytes if necessary. Returns the string's
/// length.
fn write_range(entry: &mut Entry, range: Range<usize>, bytes: &[u8]) -> Result<usize> {
    let old = entry.string()?;
    let len = old.len().max(range.end);
    if entry.kind() == Kind::Blob {
        entry.change_blob(|blob| {
            let value = make_unique(blob, len);
            value.resize(len, 0);
            value[range].copy_from_slice(bytes);
        });
    } else if len < BLOB_LEN_MIN {
        entry.extend_raw(len)[range].copy_from_slice(bytes);
    } else {
        // Large amounts of zero bytes come from the system, and take no memory until they are written.
        let is_gap = range.start > old.len();
        let mut value = vec![0; if is_gap { len } else { grown_capacity(len) }];
        value.truncate(len);
        let mut text = IntText::new();
        let old = old.bytes(&mut text);
        value[..old.len()].copy_from_slice(old);
        value[range].copy_from_slice(bytes);
        entry.store(Content::Blob(Arc::new(value)), entry.deadline_ms());
    }
    Ok(len)
}

/// Returns the vector of a blob for changing it, with capacity for `len` bytes. A blob that a reply shares is copied
/// first, and the reply keeps the old bytes.
fn make_unique(blob: &mut Arc<Vec<u8>>, len: usize) -> &mut Vec<u8> {
    if Arc::get_mut(blob).is_none() {
        let mut copy = Vec::with_capacity(grown_capacity(len));
        copy.extend_from_slice(blob);
        *blob = Arc::new(copy);
    }
    let value = Arc::get_mut(blob).expect("a blob that is not shared, or was just copied");
    if value.capacity() < len {
        value.reserve_exact(grown_capacity(len) - value.len());
    }
    value
}

/// Returns the capacity for a string that grows to `len` bytes: a quarter more. So appending byte by byte copies each
/// byte about four times in total, and wastes at most a fifth of the memory. A write far beyond the end, as in a
/// bitmap, does not get this reserve.
fn grown_capacity(len: usize) -> usize {
    size_class(len + len / 4)
}
