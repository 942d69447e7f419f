//! A part of a collection, as snapshots and their readers have it.

use super::stream::StreamEdit;

/// A part of a collection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CollectionPart<'a> {
    /// The next element of a list.
    Element(&'a [u8]),
    /// A member of a set.
    Member(&'a [u8]),
    /// A member of a sorted set.
    Scored {
        /// The member.
        member: &'a [u8],
        /// Its score.
        score: f64,
    },
    /// A field of a hash.
    Field {
        /// Its name.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// When it expires, as Unix time in milliseconds.
        deadline_ms: Option<i64>,
    },
    /// The metadata of a stream; an entry, in ascending order; a group; a consumer of a group that came before; or
    /// what is pending with one, in ascending order. No other edits of streams occur.
    Stream(StreamEdit<'a>),
}
