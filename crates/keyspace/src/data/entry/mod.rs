//! One key with its value and deadline, in one heap allocation behind an 8-byte handle.
//!
//! The index stores the handle. It has the address of the allocation, whose layout is in [`layout`], and the entry's
//! usage data in the bits that such an address does not need:
//!
//! | bits of the handle | meaning |
//! |---|---|
//! | 0 | set if the entry has a deadline, as in its tag |
//! | 1-3 | the low 3 bits of [`Access`] |
//! | 4-47 | the address; allocations are aligned to 16 bytes |
//! | 48-63 | the upper 16 bits of [`Access`], which are the stamp |
//!
//! So idle time and frequency cost no additional byte, and a search for the coldest entry reads only the buckets of
//! the index.
//!
//! Invariants, on which every unsafe block of this folder relies:
//! - `handle` without its upper 16 and lower 4 bits points to a live allocation owned by this entry
//!   alone, of `shape().allocated()` bytes.
//! - Bit 0 of the handle agrees with the tag.
//! - The header at its start is initialized and states the true shape; key, payload and tail follow it and are
//!   initialized up to their lengths.
//! - In an entry of kind `Blob`, the payload is a pointer from `Arc::into_raw` and owns one count.
//! - In an entry of kind `Spilled`, the payload is an encoded [`Spilled`]. It owns nothing in memory. The code that
//!   drops the entry must release its location.
//! - In an entry of kind `Collection`, the payload is the result of `Collection::into_raw`, and owns it.
//!
//! This module does not know the table, other keys, or if a deadline has passed for any but the calling thread.

mod attributes;
pub(crate) mod content;
mod layout;
mod out_of_line;
mod parts;
mod read;
mod spilled;

use std::alloc::dealloc;
use std::num::NonZeroU64;
use std::ptr::{self, NonNull};

pub use attributes::{Attributes, ItemNote, Marks};
use attributes::{TAIL_LEN_MAX, tail_len};
pub(crate) use content::Content;
pub(crate) use layout::Kind;
use layout::{DEADLINE_LEN, KEY_LEN_AT, Shape, Tag};
pub(crate) use out_of_line::OutOfLine;
use parts::{
    ALIGN, allocate, int_width, memory_layout, write_bytes, write_header, write_int, write_payload,
    write_tail,
};
pub use spilled::Spilled;
use tierce_collections::same_bytes;
pub use tierce_collections::size_class;
use tierce_dash::{EntryHash, prefetch_read};

use crate::data::key::KeyHasher;
use crate::data::stamp::Stamp;
use crate::data::usage::{Access, USES_MAX};
use crate::data::value::{Blob, StrView, Value};
use crate::error::{Error, Result};
use tierce_collections::IntText;

/// Number of bits of the address.
const ADDRESS_BITS: u32 = 48;
const ADDRESS_MASK: usize = (1 << ADDRESS_BITS) - ALIGN;

/// Bit of the handle that is set if there is a deadline.
const VOLATILE: usize = 1;

/// Position of the low bits of [`Access`] in the handle.
const USES_SHIFT: u32 = 1;
const USES_MASK: usize = (USES_MAX as usize) << USES_SHIFT;

const _: () = assert!(VOLATILE | USES_MASK == ALIGN - 1);

const _: () = assert!(usize::BITS == 64, "the handle keeps 16 bits above a 48-bit address");
const _: () = assert!(size_of::<Option<Entry>>() == 8);

/// A key with its value, in one allocation that it owns.
///
/// Outside of this crate, an entry is borrowed while its shard is locked, or owned after it was taken out of a
/// database (see [`Db::take`](crate::Db::take)).
pub struct Entry {
    handle: NonNull<u8>,
}

// SAFETY: an entry owns its bytes alone, and its `Arc<Vec<u8>>` or collection, if any, may be sent.
unsafe impl Send for Entry {}
// SAFETY: through a shared reference bytes are only read, and `Arc<Vec<u8>>` and collections may be
// shared.
unsafe impl Sync for Entry {}

impl Entry {
    #[cfg(test)]
    pub(crate) fn new(
        key: &[u8],
        content: Content<'_>,
        deadline_ms: Option<i64>,
        access: Access,
    ) -> Self {
        Self::with_attributes(key, content, deadline_ms, Attributes::NONE, access)
    }

    #[inline]
    pub(crate) fn with_attributes(
        key: &[u8],
        content: Content<'_>,
        deadline_ms: Option<i64>,
        attributes: Attributes,
        access: Access,
    ) -> Self {
        let shape = content.shape(key.len(), deadline_ms, attributes);
        let base = allocate(&shape);
        // SAFETY: the fresh allocation has room for the header, key, payload and tail of `shape`;
        // with all of them written the invariants of an entry hold.
        unsafe {
            write_header(base, &shape);
            let key_at = base.add(shape.tag().key_at());
            ptr::copy_nonoverlapping(key.as_ptr(), key_at.as_ptr(), key.len());
            let payload = key_at.add(key.len());
            write_payload(payload, content);
            write_tail(payload.add(shape.payload_len), &attributes);
        }
        Self { handle: tagged(base, access, deadline_ms.is_some()) }
    }

    /// Returns the key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        let tag = self.tag();
        // SAFETY: the header states the position of the initialized key, and the borrow of `self` keeps the
        // allocation alive and unchanged.
        unsafe {
            let at = self.base().add(tag.key_at());
            std::slice::from_raw_parts(at.as_ptr(), self.key_len(tag))
        }
    }

    /// Returns the value, as a string.
    ///
    /// # Errors
    ///
    /// [`Error::WrongType`]; [`Error::Unreadable`] if the value is on disk, from which a [`Db`](crate::Db) fetches
    /// it.
    #[inline]
    pub fn string(&self) -> Result<StrView<'_>> {
        let tag = self.tag();
        let payload = self.payload(tag);
        Ok(match tag.kind() {
            // SAFETY: the payload of these kinds is that many initialized bytes, borrowed with
            // `self`.
            Kind::Embedded | Kind::Raw => StrView::Bytes(unsafe {
                std::slice::from_raw_parts(payload.as_ptr(), self.payload_len(tag))
            }),
            Kind::Int => StrView::Int(self.int(tag)),
            // SAFETY: the payload owns a count of the `Arc`, which `self` keeps while borrowed.
            Kind::Blob => StrView::Shared(unsafe { Blob::from_raw(self.blob_pointer(tag)) }),
            Kind::Collection => return Err(Error::WrongType),
            Kind::Spilled => return Err(Error::Unreadable),
        })
    }

    /// Returns the value of a string whose bytes are next to the key, if it has no deadline and attributes.
    #[inline]
    pub(crate) fn plain_string(&self) -> Option<&[u8]> {
        match self.tag().is_plain_string().then(|| self.string()) {
            Some(Ok(StrView::Bytes(bytes))) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the expiry time, as Unix time in milliseconds.
    #[inline]
    pub fn deadline_ms(&self) -> Option<i64> {
        let tag = self.tag();
        if !tag.has_deadline() {
            return None;
        }
        // SAFETY: with this tag the 8 bytes before the key are the deadline.
        Some(i64::from_le_bytes(unsafe { self.read(tag.key_at() - DEADLINE_LEN) }))
    }

    /// Returns true if the entry has expired at `now_ms`.
    #[inline]
    pub fn is_expired(&self, now_ms: i64) -> bool {
        self.deadline_ms().is_some_and(|deadline_ms| deadline_ms <= now_ms)
    }

    /// Returns the bytes of memory that the entry owns, as the allocator counts them.
    ///
    /// A blob counts in full even while a reply shares it. Takes constant time.
    #[inline]
    pub fn allocated_bytes(&self) -> usize {
        let tag = self.tag();
        let bytes = tag.key_at() + self.key_len(tag) + self.payload_len(tag) + self.tail_len(tag);
        let bytes = size_class(bytes);
        if tag.kind().has_out_of_line() { bytes + self.out_of_line_bytes() } else { bytes }
    }

    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        self.tag().kind()
    }

    /// Returns true if this is the entry of `key`.
    #[inline]
    pub(crate) fn is_key(&self, key: &[u8]) -> bool {
        same_bytes(self.key(), key)
    }

    /// Returns the usage data.
    #[inline]
    pub(crate) fn access(&self) -> Access {
        let bits = self.handle.addr().get();
        Access {
            stamp: Stamp::from_bits((bits >> ADDRESS_BITS) as u16),
            uses: ((bits & USES_MASK) >> USES_SHIFT) as u8,
        }
    }

    /// Returns true if the entry has a deadline, without reading the entry itself.
    #[inline]
    pub(crate) fn is_volatile(&self) -> bool {
        self.handle.addr().get() & VOLATILE != 0
    }

    /// Sets the usage data. Writes the handle only if they change, so that reading a key many times within a second
    /// leaves its cache line clean.
    #[inline]
    pub(crate) fn set_access(&mut self, access: Access) {
        if self.access() != access {
            self.handle = tagged(self.base(), access, self.is_volatile());
        }
    }

    /// Sets only the stamp, with the same care.
    #[inline]
    pub(crate) fn touch(&mut self, stamp: Stamp) {
        let stamp = stamp.bits();
        let bits = self.handle.addr().get();
        if (bits >> ADDRESS_BITS) as u16 != stamp {
            let below = (1 << ADDRESS_BITS) - 1;
            // SAFETY: the address between the tags is not zero.
            self.handle = unsafe {
                NonNull::new_unchecked(
                    self.handle
                        .as_ptr()
                        .map_addr(|bits| bits & below | usize::from(stamp) << ADDRESS_BITS),
                )
            };
        }
    }

    /// Returns the address of the entry, with its key, for a prefetch.
    #[inline]
    pub(crate) fn address(&self) -> *const u8 {
        self.base().as_ptr()
    }

    /// Prefetches a short key with some hundred bytes of value.
    #[inline]
    pub(crate) fn prefetch(&self) {
        const CACHE_LINE_LEN: usize = 64;
        prefetch_read(self.address());
        prefetch_read(self.address().wrapping_add(CACHE_LINE_LEN));
    }

    /// Returns the flags that a memcached client stored with the value; 0 for most entries.
    #[inline]
    pub fn flags(&self) -> u32 {
        self.attributes().flags
    }

    /// Returns the marks that readers and invalidations have left.
    pub fn marks(&self) -> Marks {
        self.attributes().marks
    }

    /// Returns the attributes besides value and deadline.
    #[inline]
    pub(crate) fn attributes(&self) -> Attributes {
        let tag = self.tag();
        if !tag.has_tail() {
            return Attributes::NONE;
        }
        self.read_tail(tag)
    }

    /// Sets the attributes; value and deadline stay.
    pub(crate) fn set_attributes(&mut self, attributes: Attributes) {
        let old = self.shape();
        // SAFETY: the whole payload moves along, an owned blob pointer with it.
        unsafe {
            self.reshape(&Shape { attributes, ..old }, old.payload_len);
        }
    }

    /// Renews the entry's own version, if it has one.
    #[inline]
    pub(crate) fn renew_version(&mut self, version: NonZeroU64) {
        if self.tag().has_tail() {
            let attributes = self.attributes();
            if attributes.version.is_some() {
                self.set_attributes(Attributes { version: Some(version), ..attributes });
            }
        }
    }

    /// Returns true if the entry has exactly these attributes.
    #[inline]
    pub(crate) fn carries(&self, attributes: &Attributes) -> bool {
        if self.tag().has_tail() {
            self.attributes() == *attributes
        } else {
            *attributes == Attributes::NONE
        }
    }

    /// Gives the entry a new value and deadline, if only the payload changes: not layout, length or deadline.
    /// Attributes stay, so there must be no copy of the old value on disk. Fast path of [`Entry::store`]; `false` if
    /// it does not apply. Always inlined, since callers have checked the tag and know the kind of content.
    #[inline(always)]
    pub(crate) fn overwrite(&mut self, content: &Content<'_>, deadline_ms: Option<i64>) -> bool {
        let tag = self.tag();
        let (kind, payload_len) = match content {
            Content::Embedded(bytes) => (Kind::Embedded, bytes.len()),
            Content::Int(value) => (Kind::Int, int_width(*value)),
            _ => return false,
        };
        let fits =
            tag.kind() == kind && self.payload_len(tag) == payload_len && !self.has_copy_on_disk();
        if !fits || self.deadline_ms() != deadline_ms {
            return false;
        }
        // SAFETY: the payload has this kind and length already. The content cannot overlap it, since the entry is
        // borrowed mutably.
        unsafe {
            let payload = self.payload(tag);
            match content {
                Content::Embedded(bytes) => write_bytes(payload, bytes),
                Content::Int(value) => write_int(payload, *value),
                _ => unreachable!("returned above"),
            }
        }
        true
    }

    /// Gives the entry a new value and deadline, in place if the size class allows. Attributes stay.
    ///
    /// Returns the old out-of-line value, so that the caller decides where to free it.
    pub(crate) fn store(
        &mut self,
        content: Content<'_>,
        deadline_ms: Option<i64>,
    ) -> Option<OutOfLine> {
        self.replace(content, deadline_ms, self.attributes())
    }

    /// Like [`Entry::store`], with new attributes as well.
    pub(crate) fn replace(
        &mut self,
        content: Content<'_>,
        deadline_ms: Option<i64>,
        attributes: Attributes,
    ) -> Option<OutOfLine> {
        let old = self.shape();
        let shape = content.shape(old.key_len, deadline_ms, attributes);
        let displaced = self.take_out_of_line();
        // SAFETY: `take_out_of_line` left no owning payload behind. `reshape` leaves room for the new
        // payload, which is written before anyone reads it.
        unsafe {
            let payload = self.reshape(&shape, 0);
            write_payload(payload, content);
        }
        displaced
    }

    /// Sets or clears the deadline and keeps the value.
    pub(crate) fn set_deadline(&mut self, deadline_ms: Option<i64>) {
        let tag = self.tag();
        if let Some(deadline_ms) = deadline_ms
            && tag.has_deadline()
        {
            // SAFETY: with this tag the 8 bytes before the key are the deadline.
            unsafe {
                let at = self.base().add(tag.key_at() - DEADLINE_LEN);
                at.cast::<[u8; DEADLINE_LEN]>().write(deadline_ms.to_le_bytes());
            }
            return;
        }
        let old = self.shape();
        // SAFETY: the whole payload moves along, an owning pointer with it.
        unsafe {
            self.reshape(&Shape { deadline_ms, ..old }, old.payload_len);
        }
    }

    /// Extends the string to `len` bytes, which must not be fewer than before, and returns them for writing. The new
    /// bytes are zero.
    ///
    /// # Panics
    ///
    /// If the value is no string, a blob, or longer than `len`.
    pub(crate) fn extend_raw(&mut self, len: usize) -> &mut [u8] {
        if let Ok(StrView::Int(value)) = self.string() {
            let deadline_ms = self.deadline_ms();
            self.store(Content::Raw(IntText::new().of(value)), deadline_ms);
        }
        let old = self.shape();
        assert!(
            !old.kind.has_out_of_line() && old.payload_len <= len,
            "only embedded strings grow here"
        );
        let shape = Shape { kind: Kind::Raw, payload_len: len, ..old };
        // SAFETY: the old bytes move along, the rest is zeroed, so all `len` bytes are initialized;
        // the returned borrow keeps the entry.
        unsafe {
            let payload = self.reshape(&shape, old.payload_len);
            payload.add(old.payload_len).write_bytes(0, len - old.payload_len);
            std::slice::from_raw_parts_mut(payload.as_ptr(), len)
        }
    }

    /// Returns the same value, deadline, flags and usage data under another key. The version is dropped: it belongs
    /// to the old key's shard.
    pub(crate) fn with_key(mut self, key: &[u8]) -> Self {
        let (deadline_ms, access) = (self.deadline_ms(), self.access());
        let attributes = Attributes { version: None, ..self.attributes() };
        let content = match self.take_out_of_line() {
            Some(value) => value.into_content(),
            None => self.content(),
        };
        Self::with_attributes(key, content, deadline_ms, attributes, access)
    }

    /// Returns a copy under another key of a value in memory. A blob is shared until one of the two is modified; a
    /// collection is copied. A copy on disk stays with the original.
    pub(crate) fn duplicate(&self, key: &[u8], access: Access) -> Self {
        debug_assert!(self.kind() != Kind::Spilled, "a location on disk belongs to one key");
        let attributes = Attributes { version: None, location: None, ..self.attributes() };
        Self::with_attributes(key, self.content(), self.deadline_ms(), attributes, access)
    }

    /// Returns a copy that is equal in everything, and shares a location on disk with the original.
    pub(crate) fn exact_copy(&self) -> Self {
        let (deadline_ms, attributes) = (self.deadline_ms(), self.attributes());
        Self::with_attributes(self.key(), self.content(), deadline_ms, attributes, self.access())
    }

    fn content(&self) -> Content<'_> {
        if let Some(spilled) = self.spilled() {
            return Content::Spilled(spilled);
        }
        match (self.value(), self.kind()) {
            (Value::Str(StrView::Bytes(bytes)), Kind::Raw) => Content::Raw(bytes),
            (Value::Str(StrView::Bytes(bytes)), _) => Content::Embedded(bytes),
            (Value::Str(StrView::Int(value)), _) => Content::Int(value),
            (Value::Str(StrView::Shared(blob)), _) => Content::Blob(blob.to_arc()),
            (Value::Collection(collection), _) => Content::Collection(collection.duplicate()),
        }
    }

    #[inline]
    fn base(&self) -> NonNull<u8> {
        // SAFETY: the address between the tags is that of an allocation and so not zero.
        unsafe {
            NonNull::new_unchecked(self.handle.as_ptr().map_addr(|address| address & ADDRESS_MASK))
        }
    }

    /// # Safety
    ///
    /// The `N` bytes from offset `at` must be initialized parts of the entry.
    #[inline]
    unsafe fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        // SAFETY: guaranteed by the caller; a byte array has no alignment.
        unsafe { self.base().add(at).cast::<[u8; N]>().read() }
    }

    #[inline]
    fn tag(&self) -> Tag {
        // SAFETY: every entry starts with its tag.
        Tag(unsafe { self.read::<1>(0) }[0])
    }

    #[inline]
    fn key_len(&self, tag: Tag) -> usize {
        // SAFETY: the tag states the width of the key length, which follows it.
        unsafe {
            if tag.has_wide_key() {
                u32::from_le_bytes(self.read(KEY_LEN_AT)) as usize
            } else {
                usize::from(u8::from_le_bytes(self.read(KEY_LEN_AT)))
            }
        }
    }

    #[inline]
    fn payload_len(&self, tag: Tag) -> usize {
        let width = tag.width_bytes();
        if !tag.has_length() {
            return width;
        }
        let at = tag.payload_len_at();
        // SAFETY: the tag states position and width of the payload length.
        unsafe {
            match width {
                1 => usize::from(u8::from_le_bytes(self.read(at))),
                2 => usize::from(u16::from_le_bytes(self.read(at))),
                _ => u32::from_le_bytes(self.read(at)) as usize,
            }
        }
    }

    #[inline]
    fn payload(&self, tag: Tag) -> NonNull<u8> {
        // SAFETY: header and key lie before the payload in the same allocation.
        unsafe { self.base().add(tag.key_at() + self.key_len(tag)) }
    }

    /// Returns the position of the tail, in entries that have one.
    #[inline]
    fn tail(&self, tag: Tag) -> NonNull<u8> {
        // SAFETY: the payload lies before the tail in the same allocation.
        unsafe { self.payload(tag).add(self.payload_len(tag)) }
    }

    #[inline]
    fn tail_len(&self, tag: Tag) -> usize {
        if !tag.has_tail() {
            return 0;
        }
        // SAFETY: with this tag a tail of at least one byte follows the payload.
        tail_len(unsafe { self.tail(tag).read() })
    }

    fn read_tail(&self, tag: Tag) -> Attributes {
        let len = self.tail_len(tag);
        debug_assert!((1..=TAIL_LEN_MAX).contains(&len));
        // SAFETY: the tail is as many initialized bytes as its first one says, and the borrow of
        // `self` keeps them unchanged.
        Attributes::decode(unsafe { std::slice::from_raw_parts(self.tail(tag).as_ptr(), len) })
    }

    #[inline]
    fn int(&self, tag: Tag) -> i64 {
        let at = tag.key_at() + self.key_len(tag);
        // SAFETY: the payload of an integer is as many initialized bytes as the tag's width.
        unsafe {
            match tag.width_bytes() {
                1 => i64::from(i8::from_le_bytes(self.read(at))),
                2 => i64::from(i16::from_le_bytes(self.read(at))),
                4 => i64::from(i32::from_le_bytes(self.read(at))),
                _ => i64::from_le_bytes(self.read(at)),
            }
        }
    }

    /// Returns the pointer in the payload of a blob.
    #[inline]
    fn blob_pointer(&self, tag: Tag) -> NonNull<Vec<u8>> {
        debug_assert!(tag.kind() == Kind::Blob);
        // SAFETY: the payload of a blob is an initialized pointer, at any alignment.
        unsafe { self.payload(tag).cast::<NonNull<Vec<u8>>>().read_unaligned() }
    }

    fn shape(&self) -> Shape {
        let tag = self.tag();
        Shape {
            kind: tag.kind(),
            key_len: self.key_len(tag),
            payload_len: self.payload_len(tag),
            deadline_ms: self.deadline_ms(),
            attributes: self.attributes(),
        }
    }

    /// Changes the layout to `shape`, which has the same key. Returns the payload, whose first `keep` bytes are those
    /// of the old payload. Writes the tail. Stays in place if the size class does not change.
    ///
    /// # Safety
    ///
    /// `keep` is at most the old and the new payload length. The caller initializes the rest of the
    /// payload before the entry is read or dropped. An owning pointer in the old payload is kept
    /// whole by a shape of the same kind, or was taken out before.
    #[inline]
    unsafe fn reshape(&mut self, shape: &Shape, keep: usize) -> NonNull<u8> {
        let old = self.shape();
        let base = self.base();
        let (old_size, new_size) = (old.allocated(), shape.allocated());
        let (old_at, new_at) = (old.tag().key_at(), shape.tag().key_at());
        let moved = old.key_len + keep;
        // SAFETY: both layouts fit into allocations of their size class. Key and kept payload are
        // contiguous in both. In place the ranges may overlap, and the header and the tail, which may
        // grow over the old key and payload, are written after the move.
        unsafe {
            if old_size == new_size {
                if old_at != new_at {
                    ptr::copy(base.add(old_at).as_ptr(), base.add(new_at).as_ptr(), moved);
                }
                write_header(base, shape);
                self.handle = tagged(base, self.access(), shape.deadline_ms.is_some());
                let payload = base.add(new_at + old.key_len);
                write_tail(payload.add(shape.payload_len), &shape.attributes);
                return payload;
            }
            let fresh = allocate(shape);
            write_header(fresh, shape);
            let key = fresh.add(new_at);
            ptr::copy_nonoverlapping(base.add(old_at).as_ptr(), key.as_ptr(), moved);
            self.handle = tagged(fresh, self.access(), shape.deadline_ms.is_some());
            dealloc(base.as_ptr(), memory_layout(old_size));
            let payload = key.add(old.key_len);
            write_tail(payload.add(shape.payload_len), &shape.attributes);
            payload
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        drop(self.take_out_of_line());
        let shape = self.shape();
        // SAFETY: the entry owns the allocation, and is gone after this.
        unsafe {
            dealloc(self.base().as_ptr(), memory_layout(shape.allocated()));
        }
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry")
            .field("key", &self.key().escape_ascii().to_string())
            .field("kind", &self.kind())
            .field("deadline_ms", &self.deadline_ms())
            .field("attributes", &self.attributes())
            .finish_non_exhaustive()
    }
}

/// Returns the handle for an allocation.
///
/// # Panics
///
/// If the address needs more than 48 bits, which Linux on x86_64 and aarch64 returns only on request.
#[inline]
fn tagged(base: NonNull<u8>, access: Access, is_volatile: bool) -> NonNull<u8> {
    assert!(base.addr().get() & !ADDRESS_MASK == 0, "an address of more than 48 bits");
    let stamp = usize::from(access.stamp.bits()) << ADDRESS_BITS;
    let uses = usize::from(access.uses.min(USES_MAX)) << USES_SHIFT;
    let volatile = if is_volatile { VOLATILE } else { 0 };
    base.map_addr(|address| address | stamp | uses | volatile)
}

impl EntryHash<Entry> for KeyHasher {
    #[inline]
    fn hash(&self, entry: &Entry) -> u64 {
        self.table_hash(self.hash_bytes(entry.key()))
    }

    #[inline]
    fn prefetch(&self, entry: &Entry) {
        prefetch_read(entry.address());
    }

    #[inline]
    fn prefetch_to_visit(&self, entry: &Entry) {
        entry.prefetch();
    }
}

#[cfg(test)]
mod tests;
