//! A part of a collection, as snapshots and their readers have it.

use tierce_collections::stream::{State, StreamId};

use super::stream::{Delivery, StreamFields, StreamIds};

/// A part of a collection.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
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
    /// The metadata of a stream.
    StreamState(State),
    /// An entry of a stream; they come in ascending order.
    StreamEntry {
        /// Its identity.
        id: StreamId,
        /// Its fields.
        fields: StreamFields<'a>,
    },
    /// A group of a stream.
    Group {
        /// Its name.
        name: &'a [u8],
        /// The highest entry that was delivered to any of its consumers.
        last_delivered: StreamId,
        /// How many entries it has read, if that is known.
        entries_read: Option<u64>,
    },
    /// A consumer of a group that came before.
    Consumer {
        /// The group.
        group: &'a [u8],
        /// Its name.
        name: &'a [u8],
        /// When it last tried something, in milliseconds since 1970.
        seen_ms: u64,
        /// When it last got or claimed an entry; `None` for never.
        active_ms: Option<u64>,
    },
    /// Entries that are pending with a consumer that came before, in ascending order.
    Pending {
        /// The consumer's group.
        group: &'a [u8],
        /// The consumer.
        consumer: &'a [u8],
        /// When and how often they were delivered.
        delivery: Delivery,
        /// Which.
        ids: StreamIds<'a>,
    },
}
