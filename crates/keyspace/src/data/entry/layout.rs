//! Layout of an entry in its allocation.
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 1 | tag | what follows, see below |
//! | 1 | 1 or 4 | key length | 4 bytes when `WIDE_KEY` |
//! | | 0, 1, 2 or 4 | payload length | only for kinds with a length, `1 << width` bytes |
//! | | 0 or 8 | deadline | Unix time in milliseconds, only when `DEADLINE` |
//! | | key length | key | |
//! | | payload length | payload | for kinds without a length, `1 << width` bytes |
//! | | 0 or 1 to 25 | tail | [`Attributes`], only when `TAIL` |
//!
//! | tag bits | meaning |
//! |---|---|
//! | 0-2 | [`Kind`]; 6 and 7 are free |
//! | 3 | `DEADLINE` |
//! | 4 | `TAIL` |
//! | 5 | `WIDE_KEY` |
//! | 6-7 | width: of the payload length, or of the payload itself (0, 1, 2, 3 for 1, 2, 4, 8 bytes) |
//!
//! All numbers are little-endian and nothing is aligned. A short string without deadline has three
//! bytes of header, so that 16 bytes of key and 10 of value share an allocation of 32. The layout
//! never leaves the process.
//!
//! The tail is at the end, so that access to key and value does not depend on it: entries without
//! attributes pay one zero bit.

use super::attributes::Attributes;
use tierce_collections::size_class;

const KIND_MASK: u8 = 0b0000_0111;
const DEADLINE: u8 = 1 << 3;
const TAIL: u8 = 1 << 4;
const WIDE_KEY: u8 = 1 << 5;
const WIDTH_SHIFT: u32 = 6;

/// Bytes of a deadline in the header.
pub(super) const DEADLINE_LEN: usize = 8;

/// Offset of the key length.
pub(super) const KEY_LEN_AT: usize = 1;

/// Encoding of the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Value bytes as they were set.
    Embedded = 0,
    /// Value bytes after a partial modification (APPEND, SETRANGE). Same layout as `Embedded`; only
    /// OBJECT ENCODING differs.
    Raw = 1,
    /// A collection: a byte with its [`Form`](tierce_collections::Form) and the pointer that owns it.
    Collection = 2,
    /// A value on disk: type and location, see [`Spilled`](super::Spilled).
    Spilled = 3,
    /// An `i64` in the fewest of 1, 2, 4 or 8 bytes, standing for its canonical text.
    Int = 4,
    /// A pointer that owns one count of an `Arc<Vec<u8>>`.
    Blob = 5,
}

/// Bytes of the payload of a collection.
pub(super) const COLLECTION_LEN: usize = 1 + size_of::<*const u8>();

impl Kind {
    /// Returns true if the header has a payload length.
    #[inline]
    const fn has_length(self) -> bool {
        matches!(self, Kind::Embedded | Kind::Raw | Kind::Collection | Kind::Spilled)
    }
}

/// The first byte of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag(pub(super) u8);

impl Tag {
    #[inline]
    pub(super) const fn kind(self) -> Kind {
        match self.0 & KIND_MASK {
            0 => Kind::Embedded,
            1 => Kind::Raw,
            2 => Kind::Collection,
            3 => Kind::Spilled,
            4 => Kind::Int,
            5 => Kind::Blob,
            _ => panic!("an entry's tag names a kind that does not exist"),
        }
    }

    #[inline]
    pub(super) const fn has_deadline(self) -> bool {
        self.0 & DEADLINE != 0
    }

    #[inline]
    pub(super) const fn has_tail(self) -> bool {
        self.0 & TAIL != 0
    }

    #[inline]
    pub(super) const fn has_wide_key(self) -> bool {
        self.0 & WIDE_KEY != 0
    }

    #[inline]
    pub(super) const fn has_length(self) -> bool {
        // Kinds with a length are the lowest.
        self.0 & KIND_MASK <= Kind::Spilled as u8
    }

    /// Returns true for a string whose bytes are next to the key, without deadline and attributes.
    #[inline]
    pub(super) const fn is_plain_string(self) -> bool {
        // The kinds of such strings are the lowest two.
        const _: () = assert!(Kind::Embedded as u8 | Kind::Raw as u8 == 1);
        self.0 & (KIND_MASK & !1 | DEADLINE | TAIL) == 0
    }

    /// Returns `1 << width`: the bytes of the payload length, or of the payload for kinds without a
    /// length.
    #[inline]
    pub(super) const fn width_bytes(self) -> usize {
        1 << (self.0 >> WIDTH_SHIFT)
    }

    /// Returns the offset of the payload length, for kinds that have one.
    #[inline]
    pub(super) const fn payload_len_at(self) -> usize {
        if self.has_wide_key() { KEY_LEN_AT + 4 } else { KEY_LEN_AT + 1 }
    }

    /// Returns the offset of the key: the size of the header.
    #[inline]
    pub(super) const fn key_at(self) -> usize {
        KEY_AT[self.0 as usize] as usize
    }

    const fn compute_key_at(self) -> usize {
        let length = if self.has_length() { self.width_bytes() } else { 0 };
        let deadline = if self.has_deadline() { DEADLINE_LEN } else { 0 };
        self.payload_len_at() + length + deadline
    }
}

/// [`Tag::key_at`] for each tag: one load instead of four dependent additions before every key
/// comparison.
static KEY_AT: [u8; 256] = {
    let mut table = [0; 256];
    let mut tag = 0;
    while tag < table.len() {
        table[tag] = Tag(tag as u8).compute_key_at() as u8;
        tag += 1;
    }
    table
};

/// Properties that determine the layout of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) kind: Kind,
    pub(super) key_len: usize,
    /// 1, 2, 4 or 8 for kinds without a length.
    pub(super) payload_len: usize,
    pub(super) deadline_ms: Option<i64>,
    pub(super) attributes: Attributes,
}

impl Shape {
    #[inline]
    pub(super) fn tag(&self) -> Tag {
        let width = if self.kind.has_length() {
            match self.payload_len {
                0..=0xff => 0,
                0x100..=0xffff => 1,
                _ => 2,
            }
        } else {
            self.payload_len.trailing_zeros() as u8
        };
        let deadline = if self.deadline_ms.is_some() { DEADLINE } else { 0 };
        let wide = if self.key_len > usize::from(u8::MAX) { WIDE_KEY } else { 0 };
        let tail = if self.attributes.is_none() { 0 } else { TAIL };
        Tag(self.kind as u8 | deadline | tail | wide | width << WIDTH_SHIFT)
    }

    /// Returns the bytes that the allocator uses for an entry of this shape.
    #[inline]
    pub(super) fn allocated(&self) -> usize {
        let tail_len = self.attributes.tail_len();
        size_class(self.tag().key_at() + self.key_len + self.payload_len + tail_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(kind: Kind, key_len: usize, payload_len: usize, deadline_ms: Option<i64>) -> Shape {
        Shape { kind, key_len, payload_len, deadline_ms, attributes: Attributes::NONE }
    }

    #[test]
    fn attributes_leave_key_and_payload_where_they_are() {
        let plain = shape(Kind::Embedded, 16, 10, Some(1));
        let flagged = Shape { attributes: Attributes { flags: 3, ..Attributes::NONE }, ..plain };
        assert!(flagged.tag().has_tail() && !plain.tag().has_tail());
        assert_eq!(flagged.tag().key_at(), plain.tag().key_at());
        assert_eq!(flagged.tag().kind(), plain.tag().kind());
        assert_eq!(shape(Kind::Embedded, 16, 11, None).allocated(), 32);
        let flagged =
            Shape { attributes: flagged.attributes, ..shape(Kind::Embedded, 16, 11, None) };
        assert_eq!(flagged.allocated(), 32, "small flags fit into the slack");
    }

    #[test]
    fn headers_are_as_small_as_the_head_of_this_file_says() {
        assert_eq!(shape(Kind::Embedded, 16, 10, None).tag().key_at(), 3);
        assert_eq!(shape(Kind::Embedded, 16, 1000, None).tag().key_at(), 4);
        assert_eq!(shape(Kind::Embedded, 256, 70_000, None).tag().key_at(), 9);
        assert_eq!(shape(Kind::Int, 16, 8, None).tag().key_at(), 2);
        assert_eq!(shape(Kind::Raw, 16, 10, Some(1)).tag().key_at(), 11);
    }

    #[test]
    fn the_headline_sizes_fit_their_classes() {
        assert_eq!(shape(Kind::Embedded, 16, 10, None).allocated(), 32);
        assert_eq!(shape(Kind::Embedded, 16, 100, None).allocated(), 128);
        assert_eq!(shape(Kind::Embedded, 16, 1000, None).allocated(), 1024);
        assert_eq!(shape(Kind::Int, 14, 8, None).allocated(), 32);
    }

    #[test]
    fn a_tag_tells_its_shape() {
        for kind in
            [Kind::Embedded, Kind::Raw, Kind::Collection, Kind::Spilled, Kind::Int, Kind::Blob]
        {
            for key_len in [0, 255, 256] {
                for payload_len in [1, 2, 4, 8] {
                    for deadline_ms in [None, Some(7)] {
                        let tag = shape(kind, key_len, payload_len, deadline_ms).tag();
                        assert_eq!(tag.kind(), kind);
                        assert_eq!(tag.has_length(), kind.has_length());
                        assert_eq!(tag.has_deadline(), deadline_ms.is_some());
                        assert_eq!(tag.has_wide_key(), key_len > 255);
                        let width = if kind.has_length() { 1 } else { payload_len };
                        assert_eq!(tag.width_bytes(), width);
                    }
                }
            }
        }
    }
}
