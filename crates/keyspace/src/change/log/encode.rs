//! Encodes operations for the log as bytes, in the format of [`op`](super::op).

use tierce_collections::{Collection, IntText};

use super::op::{Code, DEADLINE, FLAGS, MARKS, RAW, WHOLE};
use crate::change::stream_position::StreamPosition;
use crate::change::{Change, Removal};
use crate::codec::{Writer, push_varint, zigzag};
use crate::data::code::CodeKind;
use crate::data::collections::convert;
use crate::data::entry::{Attributes, Entry, Kind, Spilled};
use crate::data::value::{BLOB_LEN_MIN, StrView, Value};
use crate::db_index::DbIndex;

/// Destination for operations.
pub(crate) trait Out {
    /// Returns the buffer for short data.
    fn ops(&mut self) -> &mut Vec<u8>;

    /// Appends bytes, which may be many.
    fn long(&mut self, bytes: &[u8]);

    /// Returns the size above which a collection is appended in parts of about that size.
    fn part_len(&self) -> usize;

    /// Passes the buffer on if it is long.
    fn cut(&mut self);

    /// Returns true if this value, which is in memory and gets another key next, need not be appended again.
    fn takes(&mut self, _: &Entry) -> bool {
        false
    }

    /// Returns true if the next value is such a value.
    fn is_given(&mut self) -> bool {
        false
    }
}

/// Appends the result of `change` for the key in `entry`.
#[inline]
pub(crate) fn encode_change(out: &mut impl Out, db: DbIndex, entry: &Entry, change: Change) {
    match change {
        Change::Stored => encode_entry(out, db, entry),
        Change::Written { offset, len } => encode_write(out, db, entry, offset, len),
        // Recorded while the edit was made.
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
        Change::Removed(Removal::Moved) if entry.location().is_some() || out.takes(entry) => {
            encode_taken(out.ops(), db, entry);
        }
        Change::Removed(_) => encode_remove(out.ops(), db, entry.key()),
    }
}

/// Appends that there is no such key.
pub(crate) fn encode_remove(out: &mut Vec<u8>, db: DbIndex, key: &[u8]) {
    encode_key(out, Code::Remove, 0, db, key, None);
}

/// Appends that a key is gone, and another one gets its value next.
#[cold]
fn encode_taken(out: &mut Vec<u8>, db: DbIndex, entry: &Entry) {
    let spilled = spilled_of(entry).unwrap_or(Spilled::IN_MEMORY);
    encode_key(out, Code::Taken, 0, db, entry.key(), None);
    out.extend_from_slice(&spilled.encode());
}

/// Returns the reference to the value of an entry on disk, if it is on disk.
fn spilled_of(entry: &Entry) -> Option<Spilled> {
    let location = entry.location()?;
    Some(entry.spilled().unwrap_or_else(|| Spilled::of(entry, location)))
}

/// Appends operations that set the key of `entry` to its present state. For a value on disk they state the location.
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
    let given = if to.is_given() { Some(Spilled::IN_MEMORY) } else { None };
    let out = to.ops();
    if let Some(spilled) = given.or_else(|| spilled_of(entry)) {
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

/// Returns the head bits for the attributes that follow.
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
    convert::encode(collection, &mut Writer::new(out));
    end_edits(out, start);
}

/// Appends a collection as several operations, of which the first creates it. Nothing may come between them.
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
        cursor = convert::encode_chunk(collection, cursor, part_len, &mut Writer::new(out));
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

/// Appends the beginning of an operation on a collection, before its edits. Returns the position for [`end_edits`].
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

/// Sets the length of the edits that were appended since [`begin_edits`].
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

/// Appends that a database is emptied.
pub(crate) fn encode_flush(out: &mut Vec<u8>, db: DbIndex) {
    out.push(Code::Flush as u8);
    push_varint(out, db.get() as u64);
}

/// Appends that two databases are exchanged.
pub(crate) fn encode_swap(out: &mut Vec<u8>, a: DbIndex, b: DbIndex) {
    out.push(Code::Swap as u8);
    push_varint(out, a.get() as u64);
    push_varint(out, b.get() as u64);
}

/// Returns a record which states that the data match no stream.
#[must_use]
pub fn no_position() -> Vec<u8> {
    let mut record = Vec::new();
    encode_position(&mut record, None);
    record
}

/// Begin of a record or batch that restates existing data.
pub(crate) const RESTATEMENT: [u8; 2] = [Code::Cut as u8, 0];

/// Returns a record that divides earlier changes from later ones, if it is appended while all shards are locked.
/// `number` is not 0.
#[must_use]
pub fn cut(number: u64) -> Vec<u8> {
    let mut record = vec![Code::Cut as u8];
    push_varint(&mut record, number);
    record
}

/// Appends the replication offset of the data.
pub(crate) fn encode_position(out: &mut Vec<u8>, position: Option<&StreamPosition>) {
    out.push(Code::Position as u8);
    push_varint(out, position.map_or(0, |position| position.db.get() as u64));
    push_varint(out, position.map_or(0, |position| position.stream.len() as u64));
    if let Some(position) = position {
        out.extend_from_slice(&position.stream);
        push_varint(out, position.offset);
    }
}

/// Appends the source of a library or script, or its removal.
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
        // The usual case: both varints are a byte, and one check of the capacity suffices for all.
        out.extend_from_slice(&[head, db as u8, len as u8]);
    } else {
        out.push(head);
        push_varint(out, db as u64);
        push_varint(out, len as u64);
    }
    out.extend_from_slice(key);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tierce_harness::effort;

    use super::*;
    use crate::change::log::op::{Effect, Op, Stored, plain_put};
    use crate::codec::{Reader, unzigzag};
    use crate::data::entry::{Content, Marks};
    use crate::data::usage::Access;

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
