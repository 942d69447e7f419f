//! Values as a reader sees them.

use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use tierce_collections::{
    Collection, CollectionKind, IntText, int_text_len, parse_int, size_class,
};

use crate::data::collections::BorrowGuard;

/// Strings of this many bytes and more have an allocation of their own, so that a reply can send
/// them by reference and so that an append does not copy them each time. At this size a copy costs
/// about what the indirection and the reference counting of a send by reference cost.
pub const BLOB_LEN_MIN: usize = 16 * 1024;

/// What `Arc<Vec<u8>>` allocates besides the bytes: two counts and the vector's three words.
const BLOB_HEAD_BYTES: usize = size_class(5 * size_of::<usize>());

/// The longest string that OBJECT ENCODING calls `embstr`, as clients of Redis expect.
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
    /// The name TYPE replies with.
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
    /// The bytes, beside their key.
    Bytes(&'a [u8]),
    /// An integer; the string is its decimal text.
    Int(i64),
    /// Bytes that can be shared, so that a reply may send them by reference.
    Shared(Blob<'a>),
}

impl<'a> StrView<'a> {
    /// The length of the string in bytes.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "not needed; an empty value is a value")]
    pub fn len(&self) -> usize {
        match self {
            StrView::Bytes(bytes) => bytes.len(),
            StrView::Int(value) => int_text_len(*value),
            StrView::Shared(blob) => blob.len(),
        }
    }

    /// The bytes, for which an integer is written into `scratch`.
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

    /// A copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes(&mut IntText::new()).to_vec()
    }

    /// The string as an integer, if it is the canonical text of one.
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
/// Borrowing costs nothing; [`Blob::to_arc`] takes a count of its own, with which the bytes may
/// outlive the lock. A modification of the value then leaves the shared bytes alone and copies.
#[derive(Clone, Copy)]
pub struct Blob<'a> {
    /// From `Arc::into_raw`. A reference would not do: it may only be used for the vector, and not
    /// for the counts before it.
    pointer: NonNull<Vec<u8>>,
    owner: PhantomData<&'a Arc<Vec<u8>>>,
}

impl<'a> Blob<'a> {
    /// # Safety
    ///
    /// `pointer` must come from `Arc::into_raw` of an `Arc` whose count is kept, and which is not
    /// modified, as long as `'a` lasts.
    #[inline]
    pub(crate) unsafe fn from_raw(pointer: NonNull<Vec<u8>>) -> Self {
        Self { pointer, owner: PhantomData }
    }

    #[inline]
    fn vec(self) -> &'a Vec<u8> {
        // SAFETY: `from_raw` was promised that the vector lives and rests during `'a`.
        unsafe { self.pointer.as_ref() }
    }

    /// The bytes.
    #[inline]
    pub fn get(self) -> &'a [u8] {
        self.vec()
    }

    /// A count of its own on the bytes.
    #[must_use]
    pub fn to_arc(self) -> Arc<Vec<u8>> {
        // SAFETY: `from_raw` was promised a pointer of `Arc::into_raw` whose count is kept during
        // `'a`; the `Arc` made here owns the count added here.
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

/// The memory of a blob as the allocator counts it.
pub(crate) fn blob_bytes(bytes: &Vec<u8>) -> usize {
    BLOB_HEAD_BYTES + size_class(bytes.capacity())
}

/// The part of a string of `len` bytes between `start` and `end`, both inclusive and counted from
/// the end where negative, cut to what there is: the rule of GETRANGE.
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
