//! The type of a collection, and its memory layout.

/// The type of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CollectionKind {
    /// A list.
    List = 1,
    /// A set.
    Set = 2,
    /// A sorted set.
    SortedSet = 3,
    /// A hash.
    Hash = 4,
    /// A stream.
    Stream = 5,
}

/// The memory layout of a collection. Never leaves the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Form {
    /// A list in one block.
    ListPacked,
    /// A list of several blocks.
    ListNodes,
    /// A set of integers.
    SetIntegers,
    /// A small set.
    SetPacked,
    /// A large set.
    SetTable,
    /// A small sorted set.
    SortedSetPacked,
    /// A large sorted set.
    SortedSetTree,
    /// A small hash.
    HashPacked,
    /// A large hash.
    HashTable,
    /// A stream.
    Stream,
}

impl Form {
    /// The type of a collection of this form.
    #[inline]
    pub const fn kind(self) -> CollectionKind {
        match self {
            Form::ListPacked | Form::ListNodes => CollectionKind::List,
            Form::SetIntegers | Form::SetPacked | Form::SetTable => CollectionKind::Set,
            Form::SortedSetPacked | Form::SortedSetTree => CollectionKind::SortedSet,
            Form::HashPacked | Form::HashTable => CollectionKind::Hash,
            Form::Stream => CollectionKind::Stream,
        }
    }
}
