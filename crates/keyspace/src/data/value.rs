//! Values for readers.

use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use tierce_collections::{
    Collection, CollectionKind, IntText, int_text_len, parse_int, size_class,
};

use crate::data::collections::BorrowGuard;

/// Minimum length of strings with their own allocation, so that a reply can send them by reference
/// and an append does not copy them each time. At this size a copy costs about as much as the
/// indirection and reference counting of a send by reference.
pub const BLOB_LEN_MIN: usize = 16 * 1024;

/// Bytes that `Arc<Vec<u8>>` allocates in addition: two counts and the vector's three words.
const BLOB_HEAD_BYTES: usize = size_class(5 * size_of::<usize>());

/// Maximum length of a string that OBJECT ENCODING reports as `embstr`, as Redis clients expect.
pub(crate) const EMBSTR_LEN_MAX: usize = 44;

/// A value of any type, borrowed from its shard.
#[derive(Debug)]
pub enum Value<'a> {
    /// A string.
    Str(StrView<'a>),
    /// Anything else.
    Collection(BorrowGuard<'a, Collection>),
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// A string.
    String,
    /// Anything else.
    Collection(CollectionKind),
}

impl ValueType {
    /// Returns the name that TYPE reports.
    pub fn name(self) -> &'static str {
        match self {
            ValueType::String => "string",
            ValueType::Collection(kind) => kind.name(),
        }
    }
}

/// A string as it is stored, borrowed from its shard.
#[derive(Debug, Clone, Copy)]
pub enum StrView<'a> {
    /// Bytes, next to their key.
    Bytes(&'a [u8]),
    /// An integer; the string is its decimal text.
    Int(i64),
    /// Bytes that can be shared, so that a reply may send them by reference.
    Shared(Blob<'a>),
}

impl<'a> StrView<'a> {
    /// Returns the length of the string in bytes.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "not needed; an empty value is a value")]
    pub fn len(&self) -> usize {
        match self {
            StrView::Bytes(bytes) => bytes.len(),
            StrView::Int(value) => int_text_len(*value),
            StrView::Shared(blob) => blob.len(),
        }
    }

    /// Returns the bytes; an integer is written into `scratch`.
    #[inline]
    pub fn bytes<'s>(&self, scratch: &'s mut IntText) -> &'s [u8]
    where
        'a: 's,
    {
        match *self {
            StrView::Bytes(bytes) => bytes,
            StrView::Int(value) => scratch.of(value),
            StrView::Shared(blob) => blob.get(),
        }
    }

    /// Appends the bytes to `out`.
    #[inline]
    pub fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.bytes(&mut IntText::new()));
    }

    /// Returns a copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes(&mut IntText::new()).to_vec()
    }

    /// Returns the string as an integer, if it is the canonical text of one.
    #[inline]
    pub fn as_int(&self) -> Option<i64> {
        match self {
            StrView::Int(value) => Some(*value),
            StrView::Bytes(bytes) => parse_int(bytes),
            StrView::Shared(_) => None,
        }
    }
}

/// A large string: bytes behind a reference count.
///
/// Borrowing costs nothing. [`Blob::to_arc`] takes a reference count, with which the bytes may
/// outlive the lock. A modification of the value then copies, and leaves the shared bytes
/// unchanged.
#[derive(Clone, Copy)]
pub struct Blob<'a> {
    /// From `Arc::into_raw`. A reference would not do: it may only access the vector, not the
    /// counts before it.
    pointer: NonNull<Vec<u8>>,
    owner: PhantomData<&'a Arc<Vec<u8>>>,
}

impl<'a> Blob<'a> {
    /// # Safety
    ///
    /// `pointer` must come from `Arc::into_raw` of an `Arc` whose count is kept, and which is not
    /// modified, during `'a`.
    #[inline]
    pub(crate) unsafe fn from_raw(pointer: NonNull<Vec<u8>>) -> Self {
        Self { pointer, owner: PhantomData }
    }

    #[inline]
    fn vec(self) -> &'a Vec<u8> {
        // SAFETY: the caller of `from_raw` guarantees that the vector lives and does not change
        // during `'a`.
        unsafe { self.pointer.as_ref() }
    }

    /// Returns the bytes.
    #[inline]
    pub fn get(self) -> &'a [u8] {
        self.vec()
    }

    /// Returns a new reference to the bytes.
    #[must_use]
    pub fn to_arc(self) -> Arc<Vec<u8>> {
        // SAFETY: the caller of `from_raw` guarantees a pointer of `Arc::into_raw` whose count is
        // kept during `'a`; the `Arc` made here owns the count added here.
        unsafe {
            Arc::increment_strong_count(self.pointer.as_ptr());
            Arc::from_raw(self.pointer.as_ptr())
        }
    }
}

impl Deref for Blob<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.get()
    }
}

impl std::fmt::Debug for Blob<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Blob({} bytes)", self.len())
    }
}

/// Returns the memory of a blob as the allocator counts it.
pub(crate) fn blob_bytes(bytes: &Vec<u8>) -> usize {
    BLOB_HEAD_BYTES + size_class(bytes.capacity())
}

/// Returns the range of a string of `len` bytes between `start` and `end`, both inclusive and
/// negative from the end, clamped to the string: the rule of GETRANGE.
///
/// ```
/// use tierce_keyspace::range_of;
/// assert_eq!(range_of(7, 0, 3), 0..4);
/// assert_eq!(range_of(7, -3, -1), 4..7);
/// assert_eq!(range_of(7, 5, 100), 5..7);
/// assert!(range_of(7, 5, 2).is_empty() && range_of(0, 0, -1).is_empty());
/// ```
pub fn range_of(len: usize, start: i64, end: i64) -> Range<usize> {
    // No string is longer than `isize::MAX`.
    let signed_len = len as i64;
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let from_end =
        |index: i64| if index < 0 { (index.saturating_add(signed_len)).max(0) } else { index };
    let (start, end) = (from_end(start), from_end(end).min(signed_len - 1));
    if start > end || len == 0 { 0..0 } else { start as usize..end as usize + 1 }
}
