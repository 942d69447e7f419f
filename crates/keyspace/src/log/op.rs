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

use crate::change::{Change, Removal};
use crate::code::{CODE_NAME_LEN_MAX, CodeKind};
use crate::collections;
use crate::collections::edits::Writer;
use crate::db_index::DbIndex;
use crate::entry::{Attributes, Content, Entry, Kind, Marks, Spilled};
use crate::key::KEY_LEN_MAX;
use crate::stream_place::StreamPlace;
use crate::value::{BLOB_LEN_MIN, StrView, Value};
use tierce_collections::{Collection, IntText};

pub(super) const CODE_MASK: u8 = 0x0f;
const DEADLINE: u8 = 0x10;
/// Of `Put`.
const RAW: u8 = 0x20;
/// Of `Edit`: it starts a new value.
const WHOLE: u8 = 0x20;
const FLAGS: u8 = 0x40;
const MARKS: u8 = 0x80;

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Code {
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
    /// [`crate::collections`].
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

/// Why bytes are no operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {offset} of the record")]
pub struct Malformed {
    /// Where, counted from the start of the record.
    pub offset: usize,
    /// What is wrong.
    pub what: &'static str,
}

/// Where operations are appended.
pub(crate) trait Out {
    /// Where what is short goes.
    fn ops(&mut self) -> &mut Vec<u8>;

    /// Appends bytes that may be many.
    fn long(&mut self, bytes: &[u8]);

    /// A collection that takes more bytes than this is appended in parts of about as many.
    fn part_len(&self) -> usize;

    /// Passes the buffer on if it is long.
    fn cut(&mut self);
}

/// Appends what `change` made of the key in `entry`.
#[inline]
pub(crate) fn encode_change(out: &mut impl Out, db: DbIndex, entry: &Entry, change: Change) {
    match change {
        Change::Stored => encode_entry(out, db, entry),
        Change::Written { offset, len } => encode_write(out, db, entry, offset, len),
        // Recorded while it was done.
        Change::Edited => {}
        Change::Deadline => {
            let deadline_ms = entry.deadline_ms();
            encode_key(out.ops(), Code::Deadline, 0, db, entry.key(), deadline_ms);
        }
        Change::Marked => {
            encode_key(out.ops(), Code::Mark, 0, db, entry.key(), None);
            out.ops().push(entry.marks().to_log());
        }
        Change::Noted => {
            let (ops, Attributes { flags, marks, .. }) = (out.ops(), entry.attributes());
            encode_key(ops, Code::Mark, FLAGS, db, entry.key(), None);
            push_varint(ops, flags.into());
            ops.push(marks.to_log());
        }
        Change::Removed(Removal::Moved) if entry.location().is_some() => {
            encode_taken(out.ops(), db, entry);
        }
        Change::Removed(_) => encode_key(out.ops(), Code::Remove, 0, db, entry.key(), None),
    }
}

#[cold]
fn encode_taken(out: &mut Vec<u8>, db: DbIndex, entry: &Entry) {
    let Some(spilled) = spilled_of(entry) else { return };
    encode_key(out, Code::Taken, 0, db, entry.key(), None);
    out.extend_from_slice(&spilled.encode());
}

/// What the log says of the value of an entry that is on disk, if it is.
fn spilled_of(entry: &Entry) -> Option<Spilled> {
    let location = entry.location()?;
    Some(entry.spilled().unwrap_or_else(|| Spilled::of(entry, location)))
}

/// Appends operations that put the key of `entry` there as it is. Of a value that is on disk they say
/// where.
#[inline]
pub(crate) fn encode_entry(to: &mut impl Out, db: DbIndex, entry: &Entry) {
    match entry.plain_string() {
        Some(value) if value.len() < BLOB_LEN_MIN => {
            let (out, raw) = (to.ops(), if entry.kind() == Kind::Raw { RAW } else { 0 });
            out.reserve(entry.key().len() + value.len() + 32);
            push_key(out, Code::Put as u8 | raw, db, entry.key());
            push_varint(out, value.len() as u64);
            out.extend_from_slice(value);
        }
        _ => encode_other_entry(to, db, entry),
    }
}

#[inline(never)]
fn encode_other_entry(to: &mut impl Out, db: DbIndex, entry: &Entry) {
    let (key, deadline_ms, attributes) = (entry.key(), entry.deadline_ms(), entry.attributes());
    let head = head_of(&attributes);
    let out = to.ops();
    if let Some(spilled) = spilled_of(entry) {
        encode_key(out, Code::Spilled, head, db, key, deadline_ms);
        push_attributes(out, head, &attributes);
        return out.extend_from_slice(&spilled.encode());
    }
    let string = match entry.value() {
        Value::Str(string) => string,
        Value::Collection(collection) => {
            return encode_collection(to, db, key, &collection, deadline_ms);
        }
    };
    let bytes = match string {
        StrView::Int(value) => {
            encode_key(out, Code::PutInt, head, db, key, deadline_ms);
            push_attributes(out, head, &attributes);
            return push_varint(out, zigzag(value));
        }
        StrView::Bytes(bytes) => {
            out.reserve(key.len() + bytes.len() + 32);
            bytes
        }
        StrView::Shared(blob) => blob.get(),
    };
    let raw = if entry.kind() == Kind::Raw { RAW } else { 0 };
    encode_key(out, Code::Put, head | raw, db, key, deadline_ms);
    push_attributes(out, head, &attributes);
    push_varint(out, bytes.len() as u64);
    if bytes.len() < BLOB_LEN_MIN { out.extend_from_slice(bytes) } else { to.long(bytes) }
}

/// The bits of a head that say which attributes follow.
#[inline]
fn head_of(attributes: &Attributes) -> u8 {
    let flags = if attributes.flags == 0 { 0 } else { FLAGS };
    let marks = if attributes.marks.to_log() == 0 { 0 } else { MARKS };
    flags | marks
}

#[inline]
fn push_attributes(out: &mut Vec<u8>, head: u8, attributes: &Attributes) {
    if head & FLAGS != 0 {
        push_varint(out, attributes.flags.into());
    }
    if head & MARKS != 0 {
        out.push(attributes.marks.to_log());
    }
}

fn encode_collection(
    to: &mut impl Out,
    db: DbIndex,
    key: &[u8],
    collection: &Collection,
    deadline_ms: Option<i64>,
) {
    let part_len = to.part_len();
    if collection.allocated_bytes() > part_len {
        return encode_in_parts(to, db, key, collection, deadline_ms);
    }
    let out = to.ops();
    let start = begin_edits(out, db, key, WHOLE, deadline_ms);
    collections::encode(collection, &mut Writer::new(out));
    end_edits(out, start);
}

/// Appends a collection as several operations, of which the first begins it anew. For where nothing comes
/// between them.
#[cold]
fn encode_in_parts(
    to: &mut impl Out,
    db: DbIndex,
    key: &[u8],
    collection: &Collection,
    deadline_ms: Option<i64>,
) {
    let part_len = to.part_len();
    let (mut cursor, mut flags, mut deadline_ms) = (0, WHOLE, deadline_ms);
    loop {
        let out = to.ops();
        let op = out.len();
        let start = begin_edits(out, db, key, flags, deadline_ms);
        cursor = collections::encode_chunk(collection, cursor, part_len, &mut Writer::new(out));
        if out.len() > start {
            end_edits(out, start);
            (flags, deadline_ms) = (0, None);
        } else {
            // The end of a table may be empty.
            out.truncate(op);
        }
        to.cut();
        if cursor == 0 {
            return;
        }
    }
}

#[cold]
fn encode_write(to: &mut impl Out, db: DbIndex, entry: &Entry, offset: usize, len: usize) {
    let Ok(value) = entry.string() else { return };
    let mut text = IntText::new();
    let bytes = value.bytes(&mut text);
    let out = to.ops();
    encode_key(out, Code::Write, 0, db, entry.key(), None);
    push_varint(out, offset as u64);
    push_varint(out, len as u64);
    to.long(&bytes[offset..offset + len]);
}

/// Appends the beginning of an operation on a collection, up to where its edits go. What is returned is
/// for [`end_edits`].
#[inline]
pub(crate) fn begin_edits(
    out: &mut Vec<u8>,
    db: DbIndex,
    key: &[u8],
    flags: u8,
    deadline_ms: Option<i64>,
) -> usize {
    encode_key(out, Code::Edit, flags, db, key, deadline_ms);
    // Most edits are short.
    out.push(0);
    out.len()
}

/// States how long the edits are that were appended since [`begin_edits`].
#[inline]
pub(crate) fn end_edits(out: &mut Vec<u8>, start: usize) {
    let len = out.len() - start;
    if len < 0x80 {
        out[start - 1] = len as u8;
    } else {
        let mut digits = Vec::with_capacity(10);
        push_varint(&mut digits, len as u64);
        out.splice(start - 1..start, digits);
    }
}

/// Appends that a database was emptied.
pub(crate) fn encode_flush(out: &mut Vec<u8>, db: DbIndex) {
    out.push(Code::Flush as u8);
    push_varint(out, db.get() as u64);
}

/// Appends that two databases were exchanged.
pub(crate) fn encode_swap(out: &mut Vec<u8>, a: DbIndex, b: DbIndex) {
    out.push(Code::Swap as u8);
    push_varint(out, a.get() as u64);
    push_varint(out, b.get() as u64);
}

/// A record that says that the data are those of no stream.
#[must_use]
pub fn no_place() -> Vec<u8> {
    let mut record = Vec::new();
    encode_place(&mut record, None);
    record
}

/// What a record or batch begins with that writes again what was there.
pub(super) const RESTATEMENT: [u8; 2] = [Code::Cut as u8, 0];

/// A record of its own that divides changes from those that come behind it, if it is appended while all shards are
/// locked. `number` is not 0.
#[must_use]
pub fn cut(number: u64) -> Vec<u8> {
    let mut record = vec![Code::Cut as u8];
    push_varint(&mut record, number);
    record
}

/// Appends up to where the data are those of a stream.
pub(crate) fn encode_place(out: &mut Vec<u8>, place: Option<&StreamPlace>) {
    out.push(Code::Place as u8);
    push_varint(out, place.map_or(0, |place| place.db.get() as u64));
    push_varint(out, place.map_or(0, |place| place.stream.len() as u64));
    if let Some(place) = place {
        out.extend_from_slice(&place.stream);
        push_varint(out, place.offset);
    }
}

/// Appends that a library or script has this source, or is gone.
pub(crate) fn encode_code(to: &mut impl Out, kind: CodeKind, name: &[u8], source: Option<&[u8]>) {
    let code = if source.is_some() { Code::Source } else { Code::NoSource };
    let out = to.ops();
    out.push(code as u8);
    push_varint(out, kind as u64);
    push_varint(out, name.len() as u64);
    out.extend_from_slice(name);
    if let Some(source) = source {
        push_varint(out, source.len() as u64);
        to.long(source);
    }
}

#[inline]
fn encode_key(
    out: &mut Vec<u8>,
    code: Code,
    flags: u8,
    db: DbIndex,
    key: &[u8],
    deadline_ms: Option<i64>,
) {
    let deadline = if deadline_ms.is_some() { DEADLINE } else { 0 };
    push_key(out, code as u8 | flags | deadline, db, key);
    if let Some(deadline_ms) = deadline_ms {
        out.extend_from_slice(&deadline_ms.to_le_bytes());
    }
}

#[inline(always)]
fn push_key(out: &mut Vec<u8>, head: u8, db: DbIndex, key: &[u8]) {
    let (db, len) = (db.get(), key.len());
    if db | len < 0x80 {
        // As nearly always: both varints are a byte, and one check of the capacity suffices for all.
        out.extend_from_slice(&[head, db as u8, len as u8]);
    } else {
        out.push(head);
        push_varint(out, db as u64);
        push_varint(out, len as u64);
    }
    out.extend_from_slice(key);
}

#[inline]
pub(crate) fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
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

/// Reads the operations of a record one after the other.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    record: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A reader of the operations of a record or a whole batch.
    pub fn new(record: &'a [u8]) -> Self {
        Self { record, at: 0 }
    }

    /// The next operation with its bytes; `None` at the end of the record.
    ///
    /// # Errors
    ///
    /// If the bytes are no operation. What follows cannot be read then.
    #[expect(clippy::should_implement_trait, reason = "the next one is an error, or there is none")]
    pub fn next(&mut self) -> Result<Option<(Op<'a>, &'a [u8])>, Malformed> {
        let start = self.at;
        if start == self.record.len() {
            return Ok(None);
        }
        let op = self.op()?;
        Ok(Some((op, &self.record[start..self.at])))
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

    /// A length and as many bytes.
    #[inline]
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.varint()?;
        let left = (self.record.len() - self.at) as u64;
        if len > left {
            return Err(self.malformed("a length beyond the end"));
        }
        self.take(len as usize)
    }

    fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(self.fixed()? as i64)
    }

    /// Eight bytes, little-endian.
    pub(crate) fn fixed(&mut self) -> Result<u64, Malformed> {
        let bytes = self.take(8)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes were taken")))
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let Some(byte) = self.record.get(self.at) else {
            return Err(self.malformed("the record ends early"));
        };
        self.at += 1;
        Ok(*byte)
    }

    /// Whether all was read.
    pub fn is_at_end(&self) -> bool {
        self.at == self.record.len()
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        // As nearly always.
        if let Some(byte) = self.record.get(self.at).filter(|byte| **byte < 0x80) {
            self.at += 1;
            return Ok((*byte).into());
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.malformed("a number of more than ten bytes"))
    }

    #[inline]
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let Some(bytes) = self.record.get(self.at..self.at + len) else {
            return Err(self.malformed("the record ends early"));
        };
        self.at += len;
        Ok(bytes)
    }

    /// What has not been read.
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.record[self.at..]
    }

    pub(crate) fn malformed(&self, what: &'static str) -> Malformed {
        Malformed { offset: self.at, what }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tierce_harness::effort;

    use super::*;
    use crate::usage::Access;

    impl Out for Vec<u8> {
        fn ops(&mut self) -> &mut Vec<u8> {
            self
        }

        fn long(&mut self, bytes: &[u8]) {
            self.extend_from_slice(bytes);
        }

        fn part_len(&self) -> usize {
            usize::MAX
        }

        fn cut(&mut self) {}
    }

    fn decode(record: &[u8]) -> Vec<String> {
        let mut reader = Reader::new(record);
        let mut ops = Vec::new();
        while let Some((op, _)) = reader.next().unwrap() {
            ops.push(format!("{op:?}"));
        }
        ops
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(200)))]

        #[test]
        #[cfg_attr(miri, ignore = "takes minutes, and rests on entries, which have tests of their own")]
        fn an_entry_comes_back(
            key in proptest::collection::vec(any::<u8>(), 0..300),
            value in proptest::collection::vec(any::<u8>(), 0..40_000),
            int in any::<i64>(),
            deadline_ms in proptest::option::of(any::<i64>()),
            raw in any::<bool>(),
            flags in prop_oneof![Just(0), any::<u32>()],
            (stale, won) in any::<(bool, bool)>(),
        ) {
            let kind = if raw { Kind::Raw } else { Kind::Embedded };
            for content in [Content::Int(int), Content::of_bytes(&value, kind)] {
                let mut entry = Entry::new(&key, content, deadline_ms, Access::default());
                let kept = Attributes { flags, marks: Marks { stale, won, fetched: false }, ..Attributes::NONE };
                entry.set_attributes(Attributes { marks: Marks { fetched: true, ..kept.marks }, ..kept });
                let mut record = Vec::new();
                encode_entry(&mut record, DbIndex::ZERO, &entry);
                let (op, bytes) = Reader::new(&record).next().unwrap().unwrap();
                prop_assert_eq!(bytes, &record[..]);
                let Op::Key { db: 0, key: found, effect: Effect::Put { value, deadline_ms: at, attributes } } = op
                else { panic!("{op:?}") };
                prop_assert_eq!(attributes, kept);
                prop_assert_eq!(found, &key[..]);
                prop_assert_eq!(at, deadline_ms);
                let plain = match &value {
                    Stored::Embedded(bytes) | Stored::Raw(bytes) => Some((0, found, *bytes)),
                    Stored::Int(_) => None,
                };
                let is_alone = deadline_ms.is_none() && head_of(&attributes) == 0;
                prop_assert_eq!(plain_put(&record), plain.filter(|_| is_alone));
                let followed = [&record[..], &[Code::Flush as u8, 0]].concat();
                prop_assert_eq!(plain_put(&followed), None);
                let again = Entry::new(&key, value.content(), at, Access::default());
                prop_assert_eq!(again.encoding(), entry.encoding());
                let (mut a, mut b) = (Vec::new(), Vec::new());
                again.string().unwrap().write_to(&mut a);
                entry.string().unwrap().write_to(&mut b);
                prop_assert_eq!(a, b);
            }
        }

        #[test]
        fn any_bytes_are_operations_or_an_error(record in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = Reader::new(&record);
            let mut steps = 0;
            while let Ok(Some(_)) = reader.next() {
                steps += 1;
                prop_assert!(steps <= record.len());
            }
        }
    }

    #[test]
    fn operations_stand_one_after_the_other() {
        let mut record = Vec::new();
        encode_flush(&mut record, DbIndex::ZERO);
        encode_swap(&mut record, DbIndex::ZERO, DbIndex::ZERO);
        let entry = Entry::new(b"k", Content::of_string(b"abcdef"), Some(7), Access::default());
        encode_change(&mut record, DbIndex::ZERO, &entry, Change::Written { offset: 2, len: 3 });
        encode_change(&mut record, DbIndex::ZERO, &entry, Change::Deadline);
        for why in [Removal::Expired, Removal::Deleted] {
            encode_change(&mut record, DbIndex::ZERO, &entry, Change::Removed(why));
        }
        let ops = decode(&record);
        assert_eq!(ops.len(), 6, "{ops:?}");
        assert!(ops[2].contains("Write { offset: 2, bytes: [99, 100, 101] }"), "{ops:?}");
        assert!(ops[3].contains("Deadline(Some(7))"), "{ops:?}");
    }

    #[test]
    fn the_example_of_the_format_page() {
        let entry = Entry::new(b"greeting", Content::of_string(b"hello"), None, Access::default());
        let mut record = Vec::new();
        encode_entry(&mut record, DbIndex::ZERO, &entry);
        assert_eq!(record, b"\x01\x00\x08greeting\x05hello");
    }

    #[test]
    fn a_source_comes_back() {
        let mut record = Vec::new();
        encode_code(&mut record, CodeKind::Library, b"lib", Some(b"#!lua name=lib\n"));
        encode_code(&mut record, CodeKind::Script, b"s", None);
        let mut reader = Reader::new(&record);
        let mut next = || reader.next().unwrap().map(|(op, _)| op);
        let source = Some(&b"#!lua name=lib\n"[..]);
        assert_eq!(next(), Some(Op::Code { kind: CodeKind::Library, name: b"lib", source }));
        assert_eq!(next(), Some(Op::Code { kind: CodeKind::Script, name: b"s", source: None }));
        assert_eq!(next(), None);
        for wrong in [
            &b"\x0c\x02\x01n\x01s"[..],
            b"\x0c\x00\x00\x01s",
            b"\x0d\x00\x00",
            b"\x0c\x00\x01n\x02s",
        ] {
            Reader::new(wrong).next().unwrap_err();
        }
    }

    #[test]
    fn zigzag_is_its_own_inverse() {
        for value in [0, 1, -1, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
    }
}
