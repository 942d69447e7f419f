//! Values, independent of their encoding, one part at a time: no collection has to fit in memory.

use std::fmt;
use std::sync::Arc;

/// Attributes of a key, in addition to its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Expiry, in milliseconds since 1970.
    pub expiry_ms: Option<u64>,
    /// Seconds for which the key had been idle when it was written; with LRU policies only.
    pub idle_seconds: Option<u64>,
    /// Logarithmic counter of the key's uses; with LFU policies only.
    pub frequency: Option<u8>,
}

/// ID of an entry in a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Milliseconds since 1970.
    pub ms: u64,
    /// Sequence number within the millisecond.
    pub seq: u64,
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// A whole stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// Entries in ascending order, which readers check.
    pub entries: Vec<StreamEntry>,
    /// The metadata.
    pub state: StreamState,
    /// The consumer groups.
    pub groups: Vec<Group>,
}

/// An entry of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamEntry {
    /// ID of the entry.
    pub id: StreamId,
    /// Names and values of its fields. Entries of one listpack share their names, since a name that is stored once
    /// may belong to many entries.
    pub fields: Vec<(Arc<[u8]>, Vec<u8>)>,
}

/// The metadata of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamState {
    /// Highest ID that was ever assigned.
    pub last_id: StreamId,
    /// Highest ID of a deleted entry, zero if there is none. Files before Redis 7.0 do not state it.
    pub max_deleted_id: StreamId,
    /// Number of entries that were ever added. For files before Redis 7.0, the number of present entries.
    pub entries_added: u64,
}

/// A consumer group of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: Vec<u8>,
    /// The last entry that was delivered to any consumer.
    pub last_delivered: StreamId,
    /// Number of entries that the group has read, if known.
    pub entries_read: Option<u64>,
    /// True if the encoding has no field for `entries_read`, as before Redis 7.0. Redis then estimates it.
    pub lacks_entries_read: bool,
    /// Its consumers.
    pub consumers: Vec<Consumer>,
}

/// A consumer of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consumer {
    /// Its name.
    pub name: Vec<u8>,
    /// Time of its last attempt to read, in milliseconds since 1970.
    pub seen_ms: u64,
    /// Time at which it last received or claimed an entry. Files before Redis 7.2 do not state it.
    pub active_ms: Option<u64>,
    /// Entries delivered to it and not acknowledged, in the order of the file, which is ascending in Redis' files.
    pub pending: Vec<Pending>,
}

/// An entry that was delivered and not acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// ID of the entry, which may have been deleted since.
    pub id: StreamId,
    /// Time of the last delivery, in milliseconds since 1970.
    pub delivered_ms: u64,
    /// Number of deliveries.
    pub deliveries: u64,
}

/// A part of a value. All parts of one value are of one kind, and come in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValuePart<'a> {
    /// A string, which has only this part.
    String(&'a [u8]),
    /// The next element of a list.
    Element(&'a [u8]),
    /// A member of a set.
    Member(&'a [u8]),
    /// A member of a sorted set.
    Scored {
        /// The member.
        member: &'a [u8],
        /// Its score, which is not NaN.
        score: f64,
    },
    /// A field of a hash.
    Field {
        /// Its name.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// Expiry, in milliseconds since 1970.
        expiry_ms: Option<u64>,
    },
    /// The next entry of a stream.
    StreamEntry(&'a StreamEntry),
    /// The state of a stream, which comes after its entries and before its groups.
    StreamState(&'a StreamState),
    /// A group of a stream.
    Group(&'a Group),
}
