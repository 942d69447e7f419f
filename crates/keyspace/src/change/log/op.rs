//! One operation as bytes; the table of `docs/formats/log-operations.md`.
//!
//! | part | bytes | |
//! |---|---|---|
//! | head | 1 | bits 0-3 [`Code`], bit 4 `DEADLINE`, bit 5 `RAW` or `WHOLE`, bit 6 `FLAGS`, bit 7 `MARKS` |
//! | database | varint | for `Swap` two of them, and nothing follows |
//! | key | varint length, then the bytes | not for `Flush` |
//! | deadline | 8 | little-endian Unix milliseconds, with `DEADLINE` |
//! | flags | varint | what a client of memcached stored with the value, with `FLAGS` |
//! | marks | 1 | what readers and invalidations have left on the value, with `MARKS` |
//! | value | | see [`Code`] |
//!
//! Of `Source` and `NoSource` the [`CodeKind`] stands in the place of the database, and its name in that of the key.
//!
//! Varints are LEB128, at most ten bytes.

use crate::change::stream_place::StreamPlace;
use crate::codec::{Malformed, Reader, unzigzag};
use crate::data::code::{CODE_NAME_LEN_MAX, CodeKind};
use crate::data::entry::{Attributes, Content, Kind, Marks, Spilled};
use crate::data::key::KEY_LEN_MAX;
use crate::db_index::DbIndex;

pub(crate) const CODE_MASK: u8 = 0x0f;
pub(crate) const DEADLINE: u8 = 0x10;
/// Of `Put`.
pub(crate) const RAW: u8 = 0x20;
/// Of `Edit`: it starts a new value.
pub(crate) const WHOLE: u8 = 0x20;
pub(crate) const FLAGS: u8 = 0x40;
pub(crate) const MARKS: u8 = 0x80;

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    /// Of no key. A number, varint: 0 says that what follows in the record or batch was there before, and any other
    /// is that of a [cut](super::cut).
    Cut = 0,
    /// The key has this string: varint length and bytes.
    Put = 1,
    /// The key has the text of this integer: varint, zigzag.
    PutInt = 2,
    /// The key is gone.
    Remove = 3,
    /// The key has this deadline, or without `DEADLINE` none.
    Deadline = 4,
    /// Bytes from an offset on are these: varint offset, varint length, bytes.
    Write = 5,
    /// The database is empty.
    Flush = 6,
    /// Two databases have exchanged their keys.
    Swap = 7,
    /// The collection of the key is edited: varint length and as many bytes of edits, see
    /// [`crate::data::collections`].
    Edit = 8,
    /// The key has a value that is on disk: 13 bytes, see [`Spilled`].
    Spilled = 9,
    // 10 is that of a piece.
    /// The string has these marks, a byte, and with `FLAGS` these flags.
    Mark = 11,
    /// A library of functions or a script has this source: varint length, bytes.
    Source = 12,
    /// There is no such library or script.
    NoSource = 13,
    /// The key is gone, and its value, which is on disk, is that of another key next: 13 bytes as for `Spilled`.
    Taken = 14,
    /// The data are those of a stream up to an offset: varint. The key field holds the name of the stream,
    /// and is empty if they are those of no stream.
    Place = 15,
}

/// An operation, decoded.
#[derive(Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// Something became of a key.
    Key {
        /// The number of its database.
        db: u64,
        /// The key.
        key: &'a [u8],
        /// What became of it.
        effect: Effect<'a>,
    },
    /// A database is empty.
    Flush {
        /// Its number.
        db: u64,
    },
    /// Two databases have exchanged their keys.
    Swap {
        /// The number of the one.
        a: u64,
        /// The number of the other.
        b: u64,
    },
    /// A library of functions or a script has this source, or is gone.
    Code {
        /// Which of the two.
        kind: CodeKind,
        /// Its name.
        name: &'a [u8],
        /// Its source, unless it is gone.
        source: Option<&'a [u8]>,
    },
    /// The data are those of a stream up to here, or of none.
    Place(Option<StreamPlace>),
    /// What follows in the record or batch was there before, and is written again.
    Restatement,
    /// All changes before this are before it, and all others behind it, whatever their keys.
    Cut(u64),
}

/// What became of a key. Deadlines are Unix milliseconds.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect<'a> {
    /// It has this string, and this deadline or none.
    Put {
        /// The string.
        value: Stored<'a>,
        /// When the key expires.
        deadline_ms: Option<i64>,
        /// What is kept with the string.
        attributes: Attributes,
    },
    /// It is gone.
    Remove,
    /// It is gone, and another key has its value next, which is on disk.
    Taken(Spilled),
    /// It has this deadline or none.
    Deadline(Option<i64>),
    /// Its string has these marks, and these flags if any are given.
    Mark {
        /// What readers and invalidations have left.
        marks: Marks,
        /// What was stored with the value.
        flags: Option<u32>,
    },
    /// Its string has these bytes from an offset on, and zero bytes before them where it was shorter.
    Write {
        /// Where the bytes begin.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// It has this value, which is on disk, and this deadline or none.
    Spilled {
        /// Which value.
        spilled: Spilled,
        /// When the key expires.
        deadline_ms: Option<i64>,
        /// What is kept with a string.
        attributes: Attributes,
    },
    /// Its collection was edited. Without a deadline the key keeps the one it has, unless the value is whole.
    Edit {
        /// Whether the edits begin a new collection.
        is_whole: bool,
        /// When the key expires.
        deadline_ms: Option<i64>,
        /// The edits, one behind the other.
        edits: &'a [u8],
    },
}

impl Effect<'_> {
    /// Whether nothing of what the key was is left.
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

/// A string as the log keeps it.
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

/// The database, key and string of a record that puts one string without anything beside it, as most do: those who read
/// every record need no [`Reader`] for these. `None` of any other record, and of most that are malformed.
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
    /// The next operation with its bytes; `None` at the end of the record.
    ///
    /// # Errors
    ///
    /// If the bytes are no operation. What follows cannot be read then.
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
        if code == Code::Place as u8 {
            return self.place(db);
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

    fn place(&mut self, db: u64) -> Result<Op<'a>, Malformed> {
        let name = self.bytes()?;
        if name.is_empty() {
            return Ok(Op::Place(None));
        }
        let stream =
            name.try_into().map_err(|_| self.malformed("a stream whose name is not 40 bytes"))?;
        let number = u16::try_from(db).map_err(|_| self.malformed("a database that cannot be"))?;
        let (offset, db) = (self.varint()?, DbIndex::from_number(number));
        Ok(Op::Place(Some(StreamPlace { stream, offset, db })))
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
