//! Values, whatever their encoding, a part at a time: no collection has to fit in memory.

use std::fmt;
use std::sync::Arc;

/// The attributes of a key besides its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// When the key expires, in milliseconds since 1970.
    pub expiry_ms: Option<u64>,
    /// For how many seconds the key had been idle when it was written; with LRU policies only.
    pub idle_seconds: Option<u64>,
    /// How often the key was used, as a logarithmic counter; with LFU policies only.
    pub frequency: Option<u8>,
}

/// The identity of an entry in a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Milliseconds since 1970.
    pub ms: u64,
    /// The number within the millisecond.
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
    /// The entries in ascending order, which readers check.
    pub entries: Vec<StreamEntry>,
    /// The metadata.
    pub state: StreamState,
    /// The consumer groups.
    pub groups: Vec<Group>,
}

/// An entry of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamEntry {
    /// Its identity.
    pub id: StreamId,
    /// Names and values of its fields. Entries that a file keeps together share their names, since
    /// a name that is there once may belong to many entries.
    pub fields: Vec<(Arc<[u8]>, Vec<u8>)>,
}

/// The metadata of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamState {
    /// The highest identity ever given.
    pub last_id: StreamId,
    /// The highest identity of a deleted entry, zero if there is none. Files before Redis 7.0 do not
    /// say.
    pub max_deleted_id: StreamId,
    /// How many entries were ever added. For files before Redis 7.0, the number of entries there are.
    pub entries_added: u64,
}

/// A consumer group of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: Vec<u8>,
    /// The last entry that was delivered to any consumer.
    pub last_delivered: StreamId,
    /// The number of entries that the group has read, if it is known.
    pub entries_read: Option<u64>,
    /// The file has no place for that, as those before Redis 7.0. Redis then finds out what it can.
    pub lacks_entries_read: bool,
    /// Its consumers.
    pub consumers: Vec<Consumer>,
}

/// A consumer of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consumer {
    /// Its name.
    pub name: Vec<u8>,
    /// When it last tried something, in milliseconds since 1970.
    pub seen_ms: u64,
    /// When it last got or claimed an entry. Files before Redis 7.2 do not say.
    pub active_ms: Option<u64>,
    /// What was delivered to it and not acknowledged, in the order of the file, which Redis makes
    /// ascending.
    pub pending: Vec<Pending>,
}

/// An entry that was delivered and not acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// The entry, which may have been deleted since.
    pub id: StreamId,
    /// When it was last delivered, in milliseconds since 1970.
    pub delivered_ms: u64,
    /// How often it was delivered.
    pub deliveries: u64,
}

/// A part of a value. The parts of one value are all of one kind, and come in the order in which the
/// file has them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValuePart<'a> {
    /// A string, which has this one part.
    String(&'a [u8]),
    /// The next element of a list.
    Element(&'a [u8]),
    /// A member of a set.
    Member(&'a [u8]),
    /// A member of a sorted set.
    Scored {
        /// The member.
        member: &'a [u8],
        /// Its score, which is a number.
        score: f64,
    },
    /// A field of a hash.
    Field {
        /// Its name.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// When it expires, in milliseconds since 1970.
        expiry_ms: Option<u64>,
    },
    /// The next entry of a stream.
    StreamEntry(&'a StreamEntry),
    /// The state of a stream, which comes after its entries and before its groups.
    StreamState(&'a StreamState),
    /// A group of a stream.
    Group(&'a Group),
}
