//! One operation as bytes; the table of `docs/formats/log-operations.md`.
//!
//! | part | bytes | |
//! |---|---|---|
//! | head | 1 | bits 0-3 [`Code`], bit 4 `DEADLINE`, bit 5 `RAW` or `WHOLE`, bit 6 `FLAGS`, bit 7 `MARKS` |
//! | database | varint | for `Swap` two of them, and nothing follows |
//! | key | varint length, then the bytes | not for `Flush` |
//! | deadline | 8 | little-endian Unix milliseconds, with `DEADLINE` |
//! | flags | varint | memcached flags that a client stored with the value, with `FLAGS` |
//! | marks | 1 | marks of readers and invalidations on the value, with `MARKS` |
//! | value | | see [`Code`] |
//!
//! `Source` and `NoSource` have the [`CodeKind`] in the database field and the name of the code in the key field.
//!
//! Varints are LEB128, at most ten bytes.

use crate::change::stream_position::StreamPosition;
use crate::codec::{Malformed, Reader, unzigzag};
use crate::data::code::{CODE_NAME_LEN_MAX, CodeKind};
use crate::data::entry::{Attributes, Content, Kind, Marks, Spilled};
use crate::data::key::KEY_LEN_MAX;
use crate::db_index::DbIndex;

pub(crate) const CODE_MASK: u8 = 0x0f;
pub(crate) const DEADLINE: u8 = 0x10;
/// Flag of `Put`: the encoding is `raw`.
pub(crate) const RAW: u8 = 0x20;
/// Flag of `Edit`: it starts a new value.
pub(crate) const WHOLE: u8 = 0x20;
pub(crate) const FLAGS: u8 = 0x40;
pub(crate) const MARKS: u8 = 0x80;

/// Code of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    /// Has no key. Varint number: 0 marks the rest of the record or batch as a restatement; any other is the number
    /// of a [cut](super::cut).
    Cut = 0,
    /// Sets the key to this string: varint length and bytes.
    Put = 1,
    /// Sets the key to the text of this integer: varint, zigzag.
    PutInt = 2,
    /// Removes the key.
    Remove = 3,
    /// Sets the deadline of the key, or clears it without `DEADLINE`.
    Deadline = 4,
    /// Writes bytes at an offset: varint offset, varint length, bytes.
    Write = 5,
    /// Empties the database.
    Flush = 6,
    /// Exchanges the keys of two databases.
    Swap = 7,
    /// Edits the collection of the key: varint length and as many bytes of edits, see [`crate::data::collections`].
    Edit = 8,
    /// Sets the key to a value on disk: 13 bytes, see [`Spilled`].
    Spilled = 9,
    // 10 is the code of a piece.
    /// Sets the marks of the string, a byte, and with `FLAGS` its flags.
    Mark = 11,
    /// Sets the source of a library of functions or a script: varint length, bytes.
    Source = 12,
    /// Removes the library or script.
    NoSource = 13,
    /// Removes the key. Its value, on disk or in memory, belongs to another key next: 13 bytes as for `Spilled`.
    Taken = 14,
    /// States that the data match a stream up to an offset: varint. The key field has the name of the stream; it is
    /// empty if the data match no stream.
    Position = 15,
}

/// An operation, decoded.
#[derive(Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// A change of a key.
    Key {
        /// The number of its database.
        db: u64,
        /// Key.
        key: &'a [u8],
        /// Change.
        effect: Effect<'a>,
    },
    /// A database was emptied.
    Flush {
        /// Its number.
        db: u64,
    },
    /// Two databases have exchanged their keys.
    Swap {
        /// Number of one database.
        a: u64,
        /// Number of the other database.
        b: u64,
    },
    /// A library of functions or a script has this source, or was removed.
    Code {
        /// Kind of the code.
        kind: CodeKind,
        /// Name of the code.
        name: &'a [u8],
        /// Source, unless it was removed.
        source: Option<&'a [u8]>,
    },
    /// The data match a stream up to this offset, or match no stream.
    Position(Option<StreamPosition>),
    /// The rest of the record or batch restates what was there before.
    Restatement,
    /// Divides the log: all changes before it precede all changes after it, whatever their keys.
    Cut(u64),
}

/// Change of a key. Deadlines are Unix milliseconds.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect<'a> {
    /// The key has this string, and this deadline or none.
    Put {
        /// New string.
        value: Stored<'a>,
        /// Expiry time of the key.
        deadline_ms: Option<i64>,
        /// Attributes of the string.
        attributes: Attributes,
    },
    /// The key is gone.
    Remove,
    /// The key is gone, and its value, on disk or in memory, belongs to another key next.
    Taken(Spilled),
    /// The key has this deadline or none.
    Deadline(Option<i64>),
    /// The string has these marks, and these flags if any are given.
    Mark {
        /// Marks that readers and invalidations have left.
        marks: Marks,
        /// Flags that a client stored with the value.
        flags: Option<u32>,
    },
    /// The string has these bytes at an offset. A gap before them is filled with zero bytes.
    Write {
        /// Offset of the bytes.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// The key has this value on disk, or the value that was just taken from another key, and this deadline or none.
    Spilled {
        /// Location of the value.
        spilled: Spilled,
        /// Expiry time of the key.
        deadline_ms: Option<i64>,
        /// Attributes of a string.
        attributes: Attributes,
    },
    /// The collection was edited. Without a deadline the key keeps its own, unless the value is whole.
    Edit {
        /// True if the edits begin a new collection.
        is_whole: bool,
        /// Expiry time of the key.
        deadline_ms: Option<i64>,
        /// Edits, one after the other.
        edits: &'a [u8],
    },
}

impl Effect<'_> {
    /// Returns true if nothing remains of the key's previous state.
    pub(crate) fn is_anew(&self) -> bool {
        matches!(
            self,
            Effect::Put { .. }
                | Effect::Spilled { .. }
                | Effect::Remove
                | Effect::Taken(_)
                | Effect::Edit { is_whole: true, .. }
        )
    }
}

/// A string in the form of the log.
#[derive(Debug, PartialEq, Eq)]
pub enum Stored<'a> {
    /// Bytes.
    Embedded(&'a [u8]),
    /// Bytes of the encoding `raw`.
    Raw(&'a [u8]),
    /// The text of an integer.
    Int(i64),
}

impl<'a> Stored<'a> {
    pub(crate) fn content(&self) -> Content<'a> {
        match *self {
            Stored::Int(value) => Content::Int(value),
            Stored::Embedded(bytes) => Content::of_bytes(bytes, Kind::Embedded),
            Stored::Raw(bytes) => Content::of_bytes(bytes, Kind::Raw),
        }
    }
}

/// Returns the database, key and string of a record that only puts one string without attributes, as most do. Readers
/// of every record need no [`Reader`] for these. `None` for any other record, and for most malformed ones.
#[inline]
pub fn plain_put(record: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let mut reader = Reader::new(record);
    if reader.byte().ok()? & !RAW != Code::Put as u8 {
        return None;
    }
    let (db, key, value) = (reader.varint().ok()?, reader.bytes().ok()?, reader.bytes().ok()?);
    (key.len() <= KEY_LEN_MAX && reader.is_at_end()).then_some((db, key, value))
}

impl<'a> Reader<'a> {
    /// Returns the next operation with its bytes; `None` at the end of the record.
    ///
    /// # Errors
    ///
    /// If the bytes are no operation. The rest cannot be read then.
    #[expect(clippy::should_implement_trait, reason = "the next one is an error, or there is none")]
    pub fn next(&mut self) -> Result<Option<(Op<'a>, &'a [u8])>, Malformed> {
        let before = self.rest();
        if before.is_empty() {
            return Ok(None);
        }
        let op = self.op()?;
        Ok(Some((op, &before[..before.len() - self.rest().len()])))
    }

    fn op(&mut self) -> Result<Op<'a>, Malformed> {
        let head = self.byte()?;
        let (code, has_deadline) = (head & CODE_MASK, head & DEADLINE != 0);
        let db = self.varint()?;
        if code == Code::Flush as u8 {
            return Ok(Op::Flush { db });
        }
        if code == Code::Swap as u8 {
            return Ok(Op::Swap { a: db, b: self.varint()? });
        }
        if code == Code::Source as u8 || code == Code::NoSource as u8 {
            return self.code(db, code == Code::Source as u8);
        }
        if code == Code::Position as u8 {
            return self.position(db);
        }
        if head == Code::Cut as u8 {
            return Ok(if db == 0 { Op::Restatement } else { Op::Cut(db) });
        }
        let key = self.bytes()?;
        if key.len() > KEY_LEN_MAX {
            return Err(self.malformed("a key that is too long"));
        }
        let deadline_ms = if has_deadline { Some(self.i64()?) } else { None };
        let given_flags = if head & FLAGS != 0 { Some(self.flags()?) } else { None };
        let flags = given_flags.unwrap_or(0);
        let marks = if head & MARKS != 0 { self.marks()? } else { Marks::NONE };
        let attributes = Attributes { flags, marks, ..Attributes::NONE };
        let effect = match code == Code::Mark as u8 {
            true => Effect::Mark { marks: self.marks()?, flags: given_flags },
            false => self.effect(code, head & RAW != 0, deadline_ms, attributes)?,
        };
        Ok(Op::Key { db, key, effect })
    }

    fn code(&mut self, kind: u64, has_source: bool) -> Result<Op<'a>, Malformed> {
        let kind =
            CodeKind::of_number(kind).ok_or(self.malformed("a source of an unknown kind"))?;
        let name = self.bytes()?;
        if !(1..=CODE_NAME_LEN_MAX).contains(&name.len()) {
            return Err(self.malformed("a name of a source that is empty or too long"));
        }
        let source = if has_source { Some(self.bytes()?) } else { None };
        Ok(Op::Code { kind, name, source })
    }

    fn position(&mut self, db: u64) -> Result<Op<'a>, Malformed> {
        let name = self.bytes()?;
        if name.is_empty() {
            return Ok(Op::Position(None));
        }
        let stream =
            name.try_into().map_err(|_| self.malformed("a stream whose name is not 40 bytes"))?;
        let number = u16::try_from(db).map_err(|_| self.malformed("a database that cannot be"))?;
        let (offset, db) = (self.varint()?, DbIndex::from_number(number));
        Ok(Op::Position(Some(StreamPosition { stream, offset, db })))
    }

    fn effect(
        &mut self,
        code: u8,
        raw: bool,
        deadline_ms: Option<i64>,
        attributes: Attributes,
    ) -> Result<Effect<'a>, Malformed> {
        const PUT: u8 = Code::Put as u8;
        const PUT_INT: u8 = Code::PutInt as u8;
        const REMOVE: u8 = Code::Remove as u8;
        const SET_DEADLINE: u8 = Code::Deadline as u8;
        const WRITE: u8 = Code::Write as u8;
        const EDIT: u8 = Code::Edit as u8;
        const SPILLED: u8 = Code::Spilled as u8;
        const TAKEN: u8 = Code::Taken as u8;
        Ok(match code {
            PUT => {
                let bytes = self.bytes()?;
                let value = if raw { Stored::Raw(bytes) } else { Stored::Embedded(bytes) };
                Effect::Put { value, deadline_ms, attributes }
            }
            PUT_INT => {
                let value = Stored::Int(unzigzag(self.varint()?));
                Effect::Put { value, deadline_ms, attributes }
            }
            REMOVE => Effect::Remove,
            SET_DEADLINE => Effect::Deadline(deadline_ms),
            WRITE => Effect::Write { offset: self.varint()?, bytes: self.bytes()? },
            SPILLED => Effect::Spilled { spilled: self.spilled()?, deadline_ms, attributes },
            TAKEN => Effect::Taken(self.spilled()?),
            EDIT => Effect::Edit { is_whole: raw, deadline_ms, edits: self.bytes()? },
            _ => return Err(self.malformed("an operation of an unknown kind")),
        })
    }

    fn spilled(&mut self) -> Result<Spilled, Malformed> {
        let bytes = self.take(Spilled::ENCODED_LEN)?.first_chunk();
        let spilled = bytes.and_then(Spilled::decode);
        spilled.ok_or(self.malformed("a value of an unknown type on disk"))
    }

    fn flags(&mut self) -> Result<u32, Malformed> {
        let flags = self.varint()?;
        u32::try_from(flags).map_err(|_| self.malformed("flags of more than 32 bits"))
    }

    fn marks(&mut self) -> Result<Marks, Malformed> {
        let bits = self.byte()?;
        Marks::of_log(bits).ok_or(self.malformed("marks of an unknown kind"))
    }
}
