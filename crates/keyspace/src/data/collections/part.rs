//! A part of a collection, for snapshots and their readers.

use super::stream::StreamEdit;

/// A part of a collection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CollectionPart<'a> {
    /// The next element of a list.
    Element(&'a [u8]),
    /// A member of a set.
    Member(&'a [u8]),
    /// The deadline of a member that an earlier part has added. It does not count as an element.
    MemberDeadline {
        /// The member.
        member: &'a [u8],
        /// Expiry time, as Unix time in milliseconds.
        deadline_ms: Option<i64>,
    },
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
        /// Expiry time, as Unix time in milliseconds.
        deadline_ms: Option<i64>,
    },
    /// Metadata of a stream; an entry, in ascending order; a group; a consumer of an earlier group; or its pending
    /// entries, in ascending order. No other edits of streams occur.
    Stream(StreamEdit<'a>),
}
