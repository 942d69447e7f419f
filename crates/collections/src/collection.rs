//! A collection of any type, and its representation as one pointer.

use std::ptr::NonNull;

use crate::form::{CollectionKind, Form};
use crate::{Hash, List, Set, SortedSet, Stream};

/// A collection of any type.
#[derive(Debug)]
pub enum Collection {
    /// A list.
    List(List),
    /// A set.
    Set(Set),
    /// A sorted set.
    SortedSet(SortedSet),
    /// A hash.
    Hash(Hash),
    /// A stream.
    Stream(Stream),
}

/// Runs `$body` for whatever type a collection has.
macro_rules! each {
    ($collection:expr, $value:ident => $body:expr) => {
        match $collection {
            Collection::List($value) => $body,
            Collection::Set($value) => $body,
            Collection::SortedSet($value) => $body,
            Collection::Hash($value) => $body,
            Collection::Stream($value) => $body,
        }
    };
}

impl Collection {
    /// A collection without elements.
    pub fn new(kind: CollectionKind) -> Self {
        match kind {
            CollectionKind::List => Collection::List(List::new()),
            CollectionKind::Set => Collection::Set(Set::new()),
            CollectionKind::SortedSet => Collection::SortedSet(SortedSet::new()),
            CollectionKind::Hash => Collection::Hash(Hash::new()),
            CollectionKind::Stream => Collection::Stream(Stream::new()),
        }
    }

    /// Its type.
    pub fn kind(&self) -> CollectionKind {
        match self {
            Collection::List(_) => CollectionKind::List,
            Collection::Set(_) => CollectionKind::Set,
            Collection::SortedSet(_) => CollectionKind::SortedSet,
            Collection::Hash(_) => CollectionKind::Hash,
            Collection::Stream(_) => CollectionKind::Stream,
        }
    }

    /// Number of elements.
    #[expect(clippy::len_without_is_empty, reason = "empty ones vanish, but for streams")]
    pub fn len(&self) -> usize {
        each!(self, value => value.len())
    }

    /// The bytes it owns, as the allocator counts them.
    pub fn allocated_bytes(&self) -> usize {
        each!(self, value => value.allocated_bytes())
    }

    /// The name of its encoding that OBJECT ENCODING replies with.
    pub fn encoding(&self) -> &'static str {
        each!(self, value => value.encoding())
    }

    /// A copy.
    pub fn duplicate(&self) -> Self {
        match self {
            Collection::List(value) => Collection::List(value.duplicate()),
            Collection::Set(value) => Collection::Set(value.duplicate()),
            Collection::SortedSet(value) => Collection::SortedSet(value.duplicate()),
            Collection::Hash(value) => Collection::Hash(value.duplicate()),
            Collection::Stream(value) => Collection::Stream(value.duplicate()),
        }
    }

    /// Gives the collection away as its form and one pointer, which owns it.
    #[inline]
    #[must_use]
    pub fn into_raw(self) -> (Form, NonNull<u8>) {
        each!(self, value => value.into_raw())
    }

    /// Takes back what [`Collection::into_raw`] gave away.
    ///
    /// # Safety
    ///
    /// Form and pointer must come from one call of `into_raw`, and must not be used again unless they
    /// come from another.
    #[inline]
    pub unsafe fn from_raw(form: Form, pointer: NonNull<u8>) -> Self {
        // SAFETY: by the caller's promise, for each type.
        unsafe {
            match form.kind() {
                CollectionKind::List => Collection::List(List::from_raw(form, pointer)),
                CollectionKind::Set => Collection::Set(Set::from_raw(form, pointer)),
                CollectionKind::SortedSet => {
                    Collection::SortedSet(SortedSet::from_raw(form, pointer))
                }
                CollectionKind::Hash => Collection::Hash(Hash::from_raw(form, pointer)),
                CollectionKind::Stream => Collection::Stream(Stream::from_raw(form, pointer)),
            }
        }
    }
}
