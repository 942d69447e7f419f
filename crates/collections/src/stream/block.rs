//! A block: adjacent entries in one run of bytes.
//!
//! The bytes begin with the field names of the block's first entry, preceded by their number. Then come the
//! entries:
//!
//! | part | meaning |
//! |---|---|
//! | number | bytes of the body |
//! | body: byte | bit 0: the entry is deleted, bit 1: its names are those at the block's beginning |
//! | body: number | milliseconds since those of the block's base |
//! | body: number | sequence number; less that of the base if the milliseconds are the same |
//! | body: number, texts | how many fields, and names and values in turn; with bit 1 values only |
//! | back number | bytes of all of the above |
//!
//! `code.rs` defines number, back number and text. Entries are in ascending order, including deleted ones, which only
//! a flag marks until the block is compacted.

use crate::packed::Element;
use crate::size_class::size_class;
use crate::stream::code::{
    Reader, back_number, number_len, put_back_number, put_number, put_text, text_len_max,
};
use crate::stream::{StreamId, StreamLimits};
use crate::text_int::IntText;

const DELETED: u8 = 1;
const SAME_NAMES: u8 = 2;

/// An entry of a stream.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Its ID.
    pub id: StreamId,
    fields: Fields<'a>,
}

impl<'a> Entry<'a> {
    /// Returns names and values of its fields, in the given order.
    #[inline]
    pub fn fields(&self) -> Fields<'a> {
        self.fields
    }

    fn has_fields<'f>(&self, fields: impl NewFields<'f>) -> bool {
        let (mut name_text, mut value_text) = (IntText::new(), IntText::new());
        self.fields.len() == fields.len()
            && self.fields.zip(fields).all(|((name, value), (new_name, new_value))| {
                name.bytes(&mut name_text) == new_name && value.bytes(&mut value_text) == new_value
            })
    }

    fn owned_fields(&self) -> OwnedFields {
        OwnedFields(self.fields.map(|(name, value)| (name.to_vec(), value.to_vec())).collect())
    }
}

/// The fields of an entry, copied.
struct OwnedFields(Vec<(Vec<u8>, Vec<u8>)>);

impl OwnedFields {
    fn each(&self) -> impl NewFields<'_> {
        self.0.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))
    }
}

/// The fields of an entry.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    left: usize,
    /// The names, if they are stored separately from the values.
    names: Option<Reader<'a>>,
    values: Reader<'a>,
}

impl<'a> Iterator for Fields<'a> {
    type Item = (Element<'a>, Element<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let name = self.names.as_mut().unwrap_or(&mut self.values).text();
        Some((name, self.values.text()))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Fields<'_> {}

/// The fields of a new entry: names and values.
pub trait NewFields<'f>: ExactSizeIterator<Item = (&'f [u8], &'f [u8])> + Clone {}

impl<'f, T: ExactSizeIterator<Item = (&'f [u8], &'f [u8])> + Clone> NewFields<'f> for T {}

/// Neighbouring entries.
///
/// Invariant: a block has at least one entry that is not deleted, except while it is being changed.
#[derive(Debug, Clone)]
pub(super) struct Block {
    /// Base of the block's IDs: that of the entry that began the block, which may be deleted.
    base: StreamId,
    /// ID of the last entry, deleted or not.
    last: StreamId,
    live: usize,
    deleted: usize,
    bytes: Vec<u8>,
}

/// Outcome of [`Block::delete`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deleted {
    /// The entry does not exist.
    Absent,
    /// Deleted; there are other entries.
    Done,
    /// It was the last one, and the block should be removed.
    Last,
}

/// A stored entry.
#[derive(Clone, Copy)]
struct Found<'a> {
    flags: u8,
    entry: Entry<'a>,
    /// Start of the next one.
    end: usize,
}

impl Block {
    /// Creates a block that begins with this entry.
    pub(super) fn new<'f>(id: StreamId, fields: impl NewFields<'f>) -> Self {
        let mut bytes = Vec::new();
        put_number(&mut bytes, fields.len() as u64);
        fields.clone().for_each(|(name, _)| put_text(&mut bytes, name));
        let mut block = Self { base: id, last: id, live: 0, deleted: 0, bytes };
        block.append(id, fields);
        block
    }

    /// Returns the number of entries that are not deleted.
    #[inline]
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// Returns an upper bound of the IDs, including deleted entries.
    #[inline]
    pub(super) fn last(&self) -> StreamId {
        self.last
    }

    /// Returns the allocated size of the bytes.
    #[inline]
    pub(super) fn allocated_bytes(&self) -> usize {
        size_class(self.bytes.capacity())
    }

    /// Returns a lower bound of the IDs, which is the key of the block.
    #[inline]
    pub(super) fn base(&self) -> StreamId {
        self.base
    }

    /// Returns true if it may take another entry of this many bytes. Deleted entries count.
    pub(super) fn fits(&self, entry_bytes: usize, limits: StreamLimits) -> bool {
        let below = |value: usize, max: usize| max == 0 || value < max;
        below(self.live + self.deleted, limits.node_entries_max)
            && below(self.bytes.len().saturating_add(entry_bytes), limits.node_bytes_max)
    }

    /// Returns true if insertions in its middle have made it too large, and it can be split.
    pub(super) fn should_split(&self, limits: StreamLimits) -> bool {
        let above = |value: usize, max: usize| max != 0 && value > max;
        self.live >= 2
            && (above(self.live + self.deleted, limits.node_entries_max)
                || above(self.bytes.len(), limits.node_bytes_max))
    }

    /// Frees unused capacity, since nothing will be appended soon.
    pub(super) fn seal(&mut self) {
        self.bytes.shrink_to_fit();
    }

    /// Adds an entry that comes after all others.
    pub(super) fn append<'f>(&mut self, id: StreamId, fields: impl NewFields<'f>) {
        debug_assert!(id > self.last || self.live + self.deleted == 0, "entries ascend");
        let (same, parts) = (self.has_names_of(fields.clone()), self.id_parts(id));
        reserve(&mut self.bytes, entry_len_max(parts, same, fields.clone()));
        put_entry(&mut self.bytes, parts, same, fields);
        self.last = id;
        self.live += 1;
    }

    /// Adds an entry that comes before the last one, and not before the base. `false` if one with this ID exists,
    /// which stays unchanged.
    pub(super) fn insert<'f>(&mut self, id: StreamId, fields: impl NewFields<'f>) -> bool {
        let at = self.seek(id);
        if at < self.bytes.len() {
            let found = self.found(at);
            if found.entry.id == id {
                if found.flags & DELETED == 0 {
                    return false;
                }
                if found.entry.has_fields(fields.clone()) {
                    self.mark_live(at);
                    return true;
                }
                let end = found.end;
                self.bytes.drain(at..end);
                self.deleted -= 1;
            }
        }
        let mut entry = Vec::new();
        put_entry(&mut entry, self.id_parts(id), self.has_names_of(fields.clone()), fields);
        reserve(&mut self.bytes, entry.len());
        self.bytes.splice(at..at, entry);
        self.last = self.last.max(id);
        self.live += 1;
        true
    }

    /// Splits off the second half of the entries as a new block. There must be two.
    pub(super) fn split(&mut self) -> Block {
        debug_assert!(self.live >= 2, "two halves with entries");
        self.compact();
        let keep = self.live / 2;
        let mut middle = self.entries_at();
        for _ in 1..keep {
            middle = self.end_of(middle);
        }
        let last_kept = self.found(middle);
        let (last, mut at) = (last_kept.entry.id, last_kept.end);
        let middle = at;
        let first = self.next(&mut at).expect("the second half has entries");
        let mut half = Block::new(first.id, first.owned_fields().each());
        while let Some(entry) = self.next(&mut at) {
            half.append(entry.id, entry.owned_fields().each());
        }
        half.seal();
        self.bytes.truncate(middle);
        self.seal();
        self.last = last;
        self.live = keep;
        half
    }

    /// Removes the last entry if it has this ID and is not deleted, as if it had never been added.
    pub(super) fn withdraw(&mut self, id: StreamId) -> Deleted {
        let last = self.start_of_last();
        let found = self.found(last);
        if found.entry.id != id || found.flags & DELETED != 0 {
            return Deleted::Absent;
        }
        self.bytes.truncate(last);
        self.live -= 1;
        if self.live == 0 {
            return Deleted::Last;
        }
        self.last = self.found(self.start_of_last()).entry.id;
        Deleted::Done
    }

    /// Returns the start of the last entry, deleted or not.
    fn start_of_last(&self) -> usize {
        let (len, end) = back_number(&self.bytes, self.bytes.len());
        end - len as usize
    }

    /// Deletes the entry with this ID, after `visit` has seen it.
    pub(super) fn delete(&mut self, id: StreamId, visit: impl FnOnce(&Entry<'_>)) -> Deleted {
        let at = self.seek(id);
        if at >= self.bytes.len() {
            return Deleted::Absent;
        }
        let found = self.found(at);
        if found.entry.id != id || found.flags & DELETED != 0 {
            return Deleted::Absent;
        }
        visit(&found.entry);
        self.mark_deleted(at);
        self.compact_if_worth_it();
        if self.live == 0 { Deleted::Last } else { Deleted::Done }
    }

    /// Deletes entries from the beginning on, while `more` returns true for the next one. Returns their number, and
    /// the last of them.
    pub(super) fn delete_while(
        &mut self,
        mut more: impl FnMut(StreamId) -> bool,
    ) -> (usize, Option<StreamId>) {
        let (mut count, mut last) = (0, None);
        let mut at = self.entries_at();
        while at < self.bytes.len() {
            let found = self.found(at);
            let (id, end) = (found.entry.id, found.end);
            if found.flags & DELETED == 0 {
                if !more(id) {
                    break;
                }
                self.mark_deleted(at);
                count += 1;
                last = Some(id);
            }
            at = end;
        }
        self.compact_if_worth_it();
        (count, last)
    }

    /// Removes the bytes of deleted entries.
    pub(super) fn compact(&mut self) {
        if self.deleted == 0 {
            return;
        }
        let (mut from, mut to) = (self.entries_at(), self.entries_at());
        while from < self.bytes.len() {
            let found = self.found(from);
            let (flags, id, end) = (found.flags, found.entry.id, found.end);
            if flags & DELETED == 0 {
                self.bytes.copy_within(from..end, to);
                to += end - from;
                self.last = id;
            }
            from = end;
        }
        self.bytes.truncate(to);
        self.deleted = 0;
        if size_class(to) < self.allocated_bytes() / 2 {
            self.bytes.shrink_to_fit();
        }
    }

    /// Returns the first entry that is not deleted.
    pub(super) fn first(&self) -> Option<Entry<'_>> {
        self.next(&mut self.entries_at())
    }

    /// Returns the start of the entries that are not before `id`.
    pub(super) fn seek(&self, id: StreamId) -> usize {
        let mut at = self.entries_at();
        if id > self.last {
            return self.bytes.len();
        }
        while at < self.bytes.len() {
            let mut reader = Reader { rest: &self.bytes[at..] };
            reader.number();
            reader.byte();
            if self.read_id(&mut reader) >= id {
                break;
            }
            at = self.end_of(at);
        }
        at
    }

    /// Returns the end of the entries that are not after `id`.
    pub(super) fn seek_end(&self, id: StreamId) -> usize {
        id.next().map_or(self.bytes.len(), |next| self.seek(next))
    }

    /// Returns the first entry from `at` on that is not deleted, and moves `at` after it.
    pub(super) fn next(&self, at: &mut usize) -> Option<Entry<'_>> {
        while *at < self.bytes.len() {
            let found = self.found(*at);
            *at = found.end;
            if found.flags & DELETED == 0 {
                return Some(found.entry);
            }
        }
        None
    }

    /// Returns the last entry before `at` that is not deleted, and moves `at` before it.
    pub(super) fn previous(&self, at: &mut usize) -> Option<Entry<'_>> {
        let begin = self.entries_at();
        while *at > begin {
            let (len, end) = back_number(&self.bytes, *at);
            *at = end - len as usize;
            let found = self.found(*at);
            if found.flags & DELETED == 0 {
                return Some(found.entry);
            }
        }
        None
    }

    /// Returns the start of the entries.
    pub(super) fn entries_at(&self) -> usize {
        self.bytes.len() - self.names().1.rest.len()
    }

    /// Returns the end of the entries.
    pub(super) fn end(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the names at the beginning, a reader after them, and their number.
    fn names(&self) -> (Reader<'_>, Reader<'_>, usize) {
        let mut reader = Reader { rest: &self.bytes };
        let count = reader.number() as usize;
        let names = reader;
        for _ in 0..count {
            reader.text();
        }
        (names, reader, count)
    }

    /// Returns the end of the entry at `at`.
    #[inline]
    fn end_of(&self, at: usize) -> usize {
        let mut reader = Reader { rest: &self.bytes[at..] };
        let body_len = reader.number() as usize;
        let total = self.bytes.len() - at - reader.rest.len() + body_len;
        at + total + number_len(total as u64)
    }

    #[inline]
    fn read_id(&self, reader: &mut Reader<'_>) -> StreamId {
        let (ms, seq) = (reader.number(), reader.number());
        let seq = if ms == 0 { self.base.seq + seq } else { seq };
        StreamId { ms: self.base.ms + ms, seq }
    }

    #[inline]
    fn found(&self, at: usize) -> Found<'_> {
        let mut reader = Reader { rest: &self.bytes[at..] };
        let body_len = reader.number() as usize;
        let total = self.bytes.len() - at - reader.rest.len() + body_len;
        let end = at + total + number_len(total as u64);
        let flags = reader.byte();
        let id = self.read_id(&mut reader);
        let fields = if flags & SAME_NAMES != 0 {
            let mut names = Reader { rest: &self.bytes };
            let left = names.number() as usize;
            Fields { left, names: Some(names), values: reader }
        } else {
            let left = reader.number() as usize;
            Fields { left, names: None, values: reader }
        };
        Found { flags, entry: Entry { id, fields }, end }
    }

    fn flags_mut(&mut self, at: usize) -> &mut u8 {
        let mut reader = Reader { rest: &self.bytes[at..] };
        reader.number();
        let flags_at = self.bytes.len() - reader.rest.len();
        &mut self.bytes[flags_at]
    }

    fn mark_deleted(&mut self, at: usize) {
        *self.flags_mut(at) |= DELETED;
        self.live -= 1;
        self.deleted += 1;
    }

    fn mark_live(&mut self, at: usize) {
        *self.flags_mut(at) &= !DELETED;
        self.live += 1;
        self.deleted -= 1;
    }

    /// Compacts if more entries are deleted than live. So deleted entries are at most as many as live ones, and each
    /// deletion pays for the copy of at most two entries.
    fn compact_if_worth_it(&mut self) {
        if self.deleted > self.live && self.live > 0 {
            self.compact();
        }
    }

    /// Returns the ID in its stored form.
    fn id_parts(&self, id: StreamId) -> (u64, u64) {
        let ms = id.ms - self.base.ms;
        (ms, if ms == 0 { id.seq - self.base.seq } else { id.seq })
    }

    /// Returns true if an entry with these fields needs no names of its own.
    fn has_names_of<'f>(&self, fields: impl NewFields<'f>) -> bool {
        let (mut names, _, count) = self.names();
        count == fields.len()
            && fields.into_iter().all(|(name, _)| names.text().bytes(&mut IntText::new()) == name)
    }
}

/// Appends an entry.
fn put_entry<'f>(
    out: &mut Vec<u8>,
    (ms, seq): (u64, u64),
    same_names: bool,
    fields: impl NewFields<'f>,
) {
    let start = out.len();
    out.push(if same_names { SAME_NAMES } else { 0 });
    put_number(out, ms);
    put_number(out, seq);
    if !same_names {
        put_number(out, fields.len() as u64);
    }
    for (name, value) in fields {
        if !same_names {
            put_text(out, name);
        }
        put_text(out, value);
    }
    // The length before the body is known only now.
    let body_len = out.len() - start;
    let head_len = number_len(body_len as u64);
    put_number(out, body_len as u64);
    out[start..].rotate_right(head_len);
    put_back_number(out, (head_len + body_len) as u64);
}

/// Returns an upper bound of the bytes that `put_entry` appends. Only integers take fewer.
fn entry_len_max<'f>((ms, seq): (u64, u64), same_names: bool, fields: impl NewFields<'f>) -> usize {
    let head = 1 + number_len(ms) + number_len(seq) + number_len(fields.len() as u64);
    let texts = fields
        .map(|(name, value)| text_len_max(value) + if same_names { 0 } else { text_len_max(name) });
    let body_len = head + texts.sum::<usize>();
    body_len + 2 * number_len(body_len as u64 + 10)
}

/// Reserves room for `more` bytes; a reallocation adds a quarter, so that appending copies each byte a few times in
/// total.
fn reserve(bytes: &mut Vec<u8>, more: usize) {
    if bytes.capacity() - bytes.len() < more {
        let wanted = size_class(bytes.len() + more.max(bytes.len() / 4));
        bytes.reserve_exact(wanted - bytes.len());
    }
}
