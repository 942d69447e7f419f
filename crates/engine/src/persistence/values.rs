//! Converts values between the keyspace and Redis' formats: files, payloads of DUMP.

use std::fs::Metadata;
use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

use tierce_collections::hash::Former;
use tierce_collections::{Collection, CollectionKind};
use tierce_keyspace::{
    CollectionPart, IntText, ItemNote, Limits, Marks, STREAM_NAME_LEN, SavedCollection, SavedDb,
    SavedValue,
};
use tierce_rdb::{
    CollectionWriter, Kind, Result, VERSION_REDIS_7_0, VERSION_REDIS_7_4, ValuePart, ValueWriter,
};

use super::code::{self, NamedScript};
use super::member_deadlines::{DEADLINES_REMARK, MemberDeadlines};
use super::streams;

/// Returns the format version for a file: that of Redis 7.0, which later ones read too, unless fields of hashes have
/// deadlines.
pub fn version_for(dbs: &[SavedDb]) -> u16 {
    version_with(dbs.iter().any(|db| db.volatile_hashes > 0))
}

/// Returns the format version for a single value.
pub fn version_of(value: &SavedValue<'_>) -> u16 {
    version_with(match value {
        SavedValue::Collection(collection) => earliest_deadline_ms(collection).is_some(),
        _ => false,
    })
}

fn version_with(field_deadlines: bool) -> u16 {
    if field_deadlines { VERSION_REDIS_7_4 } else { VERSION_REDIS_7_0 }
}

/// Name of the auxiliary field before a key with the flags and marks of memcached clients. Redis skips unknown
/// auxiliary fields wherever they are.
pub(super) const ITEM_REMARK: &[u8] = b"tierce-memcached";

/// Name of the auxiliary field before a stream with the messages that are not added twice.
pub(super) const MESSAGES_REMARK: &[u8] = b"tierce-messages";

/// Auxiliary field with the version of Tierce that wrote the file; Redis does not write it.
pub const VERSION_REMARK: &[u8] = b"tierce-ver";
/// Auxiliary field with the time of writing, in seconds.
pub(super) const TIME_REMARK: &[u8] = b"ctime";

/// Redis' auxiliary field for the database that the stream after a full copy has selected.
pub(super) const STREAM_DB_REMARK: &[u8] = b"repl-stream-db";

/// Redis' auxiliary field for the replication id of the data.
pub(super) const STREAM_NAME_REMARK: &[u8] = b"repl-id";

/// Redis' auxiliary field for the replication offset of the data.
pub(super) const STREAM_OFFSET_REMARK: &[u8] = b"repl-offset";

/// Returns the text of [`ITEM_REMARK`]: the flags, and a number with bit 0 for a stale value and bit 1 for a value
/// that some reader was told to replace.
pub(super) fn item_text(note: ItemNote) -> String {
    let ItemNote { flags, marks } = note;
    format!("{flags} {}", u8::from(marks.stale) | u8::from(marks.won) << 1)
}

/// Returns the latest plausible time of writing of a file, in milliseconds. Keys that had expired by the time of
/// writing are left out, so a file from a host whose clock was years ahead would lose every key with a deadline. The
/// margin allows for small clock differences of hosts that share a disk.
pub fn written_ms_max(file: &Metadata) -> i64 {
    const DIFFERENCE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
    let changed = file.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    changed.map_or(0, |changed| (changed + DIFFERENCE_MAX).as_millis() as i64)
}

fn item_of(text: &str) -> Option<ItemNote> {
    let (flags, bits) = text.split_once(' ')?;
    let bits: u8 = bits.parse().ok().filter(|bits| *bits < 4)?;
    let marks = Marks { stale: bits & 1 != 0, won: bits & 2 != 0, ..Marks::NONE };
    Some(ItemNote { flags: flags.parse().ok()?, marks })
}

/// An auxiliary field, as far as it concerns the load.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Remark<'a> {
    /// Metadata of the next key.
    Item(ItemNote),
    /// Messages of the next key, a stream, that are not added twice.
    Messages(&'a [u8]),
    /// Time of writing. A key that had expired by then stays expired, even if the clock is earlier now.
    Written {
        /// Unix time in milliseconds.
        ms: i64,
    },
    /// Database that the stream after a full copy has selected.
    StreamDb(usize),
    /// Replication id of the data.
    StreamName([u8; STREAM_NAME_LEN]),
    /// Replication offset of the data.
    StreamOffset(u64),
    /// A named script.
    Script(NamedScript<'a>),
    /// Deadlines of members of a set before it.
    MemberDeadlines(MemberDeadlines<'a>),
    /// Any other field.
    Other,
}

impl<'a> Remark<'a> {
    /// Decodes an auxiliary field.
    ///
    /// # Errors
    /// A description of the field, if a later version may have written it.
    pub fn read(name: &[u8], bytes: &'a [u8]) -> std::result::Result<Self, String> {
        let text = String::from_utf8_lossy(bytes);
        match name {
            code::SCRIPT_REMARK => NamedScript::read(bytes).map(Self::Script).ok_or_else(|| {
                "a script by name in a form that this version does not know".to_owned()
            }),
            DEADLINES_REMARK => {
                MemberDeadlines::read(bytes).map(Self::MemberDeadlines).ok_or_else(|| {
                    "deadlines of members in a form that this version does not know".to_owned()
                })
            }
            ITEM_REMARK => item_of(&text).map(Self::Item).ok_or_else(|| {
                format!(
                    "memcached's flags and marks in a form that this version does not know: {text}"
                )
            }),
            MESSAGES_REMARK if streams::are_messages(bytes) => Ok(Self::Messages(bytes)),
            MESSAGES_REMARK => {
                Err("a stream's messages in a form that this version does not know".to_owned())
            }
            TIME_REMARK => Ok(text.parse().map_or(Self::Other, |seconds: i64| Self::Written {
                ms: seconds.saturating_mul(1000),
            })),
            STREAM_DB_REMARK => Ok(text.parse().map_or(Self::Other, Self::StreamDb)),
            STREAM_NAME_REMARK => Ok(bytes.try_into().map_or(Self::Other, Self::StreamName)),
            STREAM_OFFSET_REMARK => Ok(text.parse().map_or(Self::Other, Self::StreamOffset)),
            _ => Ok(Self::Other),
        }
    }
}

/// Returns the type of a collection in the format.
fn saved_kind(kind: CollectionKind) -> Kind {
    match kind {
        CollectionKind::List => Kind::List,
        CollectionKind::Set => Kind::Set,
        CollectionKind::SortedSet => Kind::SortedSet,
        CollectionKind::Hash => Kind::Hash,
        CollectionKind::Stream => Kind::Stream,
    }
}

/// Writes a value. `deadline` is called for each deadline of a member of a set, which the format cannot state.
pub fn write<W: Write>(
    writer: ValueWriter<'_, W>,
    value: &SavedValue<'_>,
    deadline: impl FnMut(&[u8], i64),
) -> Result<()> {
    match value {
        SavedValue::Str(bytes) => writer.string(bytes),
        SavedValue::Int(int) => writer.string(IntText::new().of(*int)),
        SavedValue::Collection(stream) if stream.kind() == CollectionKind::Stream => {
            writer.stream(&streams::saved(stream))
        }
        SavedValue::Collection(collection) => {
            let kind = collection.kind();
            let earliest_ms =
                if kind == CollectionKind::Hash { earliest_deadline_ms(collection) } else { None };
            let mut writer = begin(writer, kind, collection.len(), earliest_ms)?;
            write_elements(&mut writer, collection, deadline)?;
            writer.finish()
        }
    }
}

/// Begins a collection other than a stream. `earliest_ms` is the earliest deadline of a field, if any. It requires a
/// format version with field deadlines.
pub(super) fn begin<W: Write>(
    writer: ValueWriter<'_, W>,
    kind: CollectionKind,
    len: u64,
    earliest_ms: Option<i64>,
) -> Result<CollectionWriter<'_, W>> {
    writer.begin_collection(saved_kind(kind), len, earliest_ms.map(field_ms))
}

/// Writes all elements, or those of the next slice of a large collection. `deadline` as for [`write`].
pub(super) fn write_elements<W: Write>(
    writer: &mut CollectionWriter<'_, W>,
    elements: &SavedCollection<'_>,
    mut deadline: impl FnMut(&[u8], i64),
) -> Result<()> {
    elements.parts().try_for_each(|part| match part {
        CollectionPart::Element(bytes) | CollectionPart::Member(bytes) => writer.element(bytes),
        CollectionPart::Scored { member, score } => writer.scored(member, score),
        CollectionPart::Field { name, value, deadline_ms } => {
            writer.field(name, value, deadline_ms.map(field_ms))
        }
        CollectionPart::MemberDeadline { member, deadline_ms } => {
            deadline_ms.into_iter().for_each(|at_ms| deadline(member, at_ms));
            Ok(())
        }
        // Streams are saved as a whole.
        CollectionPart::Stream(_) => Ok(()),
    })
}

/// Returns the deadline of a field in the format, where 0 means none, so it must be positive.
fn field_ms(deadline_ms: i64) -> u64 {
    deadline_ms.max(1) as u64
}

fn earliest_deadline_ms(collection: &SavedCollection<'_>) -> Option<i64> {
    let fields = collection.parts().map_while(|part| match part {
        CollectionPart::Field { deadline_ms, .. } => Some(deadline_ms),
        _ => None,
    });
    fields.flatten().min()
}

/// Reason why the bytes of a value are invalid, even if their checksum is right.
#[derive(Debug, thiserror::Error)]
pub enum Flaw {
    /// They violate the format.
    #[error(transparent)]
    Format(#[from] tierce_rdb::Error),
    /// A collection has a unique item twice.
    #[error("it has the same {0} twice")]
    Twice(&'static str),
    /// A collection other than a stream has no elements. Such keys do not exist.
    #[error("it has no elements")]
    Empty,
}

/// A collection that is assembled from the parts of a file outside of the keyspace. The keyspace changes only once
/// the whole value is known to be valid.
#[derive(Debug)]
pub struct Assembly {
    collection: Collection,
    limits: Limits,
}

impl Assembly {
    /// Creates an empty collection. Returns `None` for a type that is not a supported collection.
    pub fn begin(kind: Kind, limits: Limits) -> Option<Self> {
        let kind = match kind {
            Kind::List => CollectionKind::List,
            Kind::Set => CollectionKind::Set,
            Kind::SortedSet => CollectionKind::SortedSet,
            Kind::Hash => CollectionKind::Hash,
            Kind::Stream => CollectionKind::Stream,
            Kind::String | Kind::Module => return None,
        };
        Some(Self { collection: Collection::new(kind), limits })
    }

    /// Adds a part.
    ///
    /// # Errors
    /// If it is a duplicate of a unique item. For streams, the decoder checks this.
    pub fn add(&mut self, part: ValuePart<'_>) -> Result<(), Flaw> {
        let Self { collection, limits } = self;
        let (is_new, what) = match (collection, part) {
            (Collection::List(list), ValuePart::Element(bytes)) => {
                list.push_back(bytes, limits.list);
                return Ok(());
            }
            (Collection::Stream(stream), part) => {
                streams::load(stream, part, limits.stream);
                return Ok(());
            }
            (Collection::SortedSet(set), ValuePart::Scored { member, score }) => {
                (set.load(member, score, &limits.sorted_set).is_none(), "member")
            }
            (Collection::Hash(hash), ValuePart::Field { name, value, expiry_ms }) => {
                let deadline_ms = expiry_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
                let former = hash.put(name, value, deadline_ms, limits.hash);
                (matches!(former, Former::Absent), "field")
            }
            (Collection::Set(set), ValuePart::Member(member)) => {
                (set.add(member, limits.set), "member")
            }
            (collection, part) => unreachable!("{part:?} in {collection:?} with {limits:?}"),
        };
        if is_new { Ok(()) } else { Err(Flaw::Twice(what)) }
    }

    /// Adds the messages of a stream that are not added twice.
    pub fn add_messages(&mut self, messages: &[u8]) {
        if let Collection::Stream(stream) = &mut self.collection {
            streams::load_messages(stream, messages);
        }
    }

    /// Returns the collection.
    ///
    /// # Errors
    /// If it is empty.
    pub fn finish(self) -> Result<Collection, Flaw> {
        // A stream may have no entries.
        let stays = self.collection.len() > 0 || self.collection.kind() == CollectionKind::Stream;
        if stays { Ok(self.collection) } else { Err(Flaw::Empty) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_memcached_left_on_an_item_as_text() {
        for (flags, stale, won) in [(0, true, false), (u32::MAX, false, true), (7, true, true)] {
            let note = ItemNote { flags, marks: Marks { stale, won, fetched: false } };
            let text = item_text(note);
            let read = Remark::read(ITEM_REMARK, text.as_bytes());
            assert_eq!(read, Ok(Remark::Item(note)));
        }
        for text in ["", "1", "1 4", "4294967296 0", "-1 0", "1 0 0", "1 256"] {
            assert!(Remark::read(ITEM_REMARK, text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn other_remarks() {
        let written = Remark::read(TIME_REMARK, b"1700000000");
        assert_eq!(written, Ok(Remark::Written { ms: 1_700_000_000_000 }));
        assert_eq!(Remark::read(STREAM_DB_REMARK, b"3"), Ok(Remark::StreamDb(3)));
        assert_eq!(Remark::read(STREAM_OFFSET_REMARK, b"7"), Ok(Remark::StreamOffset(7)));
        let name = [b'a'; STREAM_NAME_LEN];
        assert_eq!(Remark::read(STREAM_NAME_REMARK, &name), Ok(Remark::StreamName(name)));
        assert_eq!(Remark::read(STREAM_NAME_REMARK, &name[1..]), Ok(Remark::Other));
        assert_eq!(Remark::read(STREAM_OFFSET_REMARK, b"-1"), Ok(Remark::Other));
        for (name, text) in
            [(STREAM_DB_REMARK, "-1"), (TIME_REMARK, "later"), (b"redis-ver", "7.0.15")]
        {
            assert_eq!(Remark::read(name, text.as_bytes()), Ok(Remark::Other));
        }
    }
}
