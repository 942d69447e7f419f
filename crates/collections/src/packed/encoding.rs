//! The encoding of an element.
//!
//! An element is a head with type and length, a body (of strings), and its length again, for walking backwards.
//! The encoding is that of a Redis listpack element: it is compact, and DUMP and RDB files use it, so small
//! collections can be copied there verbatim.
//!
//! | first byte | rest of the head | element |
//! |---|---|---|
//! | `0xxxxxxx` | | an integer of 0 to 127 |
//! | `10xxxxxx` | | a string of up to 63 bytes |
//! | `110xxxxx` | 1 byte | an integer of 13 bits, the high ones first |
//! | `1110xxxx` | 1 byte | a string of up to 4095 bytes, the high bits of the length first |
//! | `11110000` | 4 bytes | a string; its length, little-endian |
//! | `11110001` to `11110100` | 2, 3, 4, 8 bytes | an integer, little-endian |
//!
//! The length at the end counts head and body, in groups of seven bits, high ones first; all its bytes but the
//! first have the top bit set, so a reader coming from behind knows where it begins.
//!
//! Every element has exactly one encoding: the canonical text of an integer is always stored as an integer, and
//! every head is the shortest possible. So elements are equal exactly if their bytes are.

use super::Element;
use crate::text_int::parse_int;

const STRING_6_BITS: u8 = 0b1000_0000;
const INT_13_BITS: u8 = 0b1100_0000;
const STRING_12_BITS: u8 = 0b1110_0000;
const STRING_32_BITS: u8 = 0xf0;
const INT_16_BITS: u8 = 0xf1;
const INT_24_BITS: u8 = 0xf2;
const INT_32_BITS: u8 = 0xf3;
const INT_64_BITS: u8 = 0xf4;

/// A few bytes on the stack: a head (at most 9) or a length at the end (at most 5).
#[derive(Clone, Copy)]
pub struct Short {
    bytes: [u8; 9],
    len: u8,
}

impl Short {
    #[inline]
    fn of<const N: usize>(bytes: [u8; N]) -> Self {
        let mut short = Self { bytes: [0; 9], len: N as u8 };
        short.bytes[..N].copy_from_slice(&bytes);
        short
    }

    #[inline]
    fn tagged(tag: u8, rest: &[u8]) -> Self {
        let mut short = Self { bytes: [tag; 9], len: 1 + rest.len() as u8 };
        short.bytes[1..=rest.len()].copy_from_slice(rest);
        short
    }

    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// An encoded element, to be stored in a block.
#[derive(Clone, Copy)]
pub struct Encoded<'a> {
    pub head: Short,
    pub body: &'a [u8],
}

impl<'a> Encoded<'a> {
    #[inline]
    pub fn of(element: Element<'a>) -> Self {
        match element {
            Element::Int(value) => Self { head: int_head(value), body: &[] },
            Element::Bytes(bytes) => match parse_int(bytes) {
                Some(value) => Self { head: int_head(value), body: &[] },
                None => Self { head: string_head(bytes.len()), body: bytes },
            },
        }
    }

    /// Returns the bytes of head and body.
    #[inline]
    fn len(&self) -> usize {
        usize::from(self.head.len) + self.body.len()
    }

    /// Returns the bytes after head and body.
    #[inline]
    pub fn tail(&self) -> Short {
        tail(self.len())
    }

    /// Returns the bytes of the whole element.
    #[inline]
    pub fn total(&self) -> usize {
        self.len() + tail_len(self.len())
    }

    /// Returns true if `bytes` begin with this element.
    #[inline]
    pub fn begins(&self, bytes: &[u8]) -> bool {
        // The first byte distinguishes nearly all others: it has the length of a short string.
        bytes.first() == Some(&self.head.bytes[0])
            && bytes
                .strip_prefix(self.head.as_slice())
                .is_some_and(|rest| rest.starts_with(self.body))
    }
}

/// Returns the first and the last byte of the encoding of a string of up to 63 bytes, and the bytes between them.
/// `None` if the element, which is in compact form, is longer or an integer.
#[inline]
pub fn short_string(element: Element<'_>) -> Option<([u8; 2], &[u8])> {
    match element {
        Element::Bytes(bytes) if bytes.len() <= 0x3f => {
            let len = bytes.len() as u8;
            Some(([STRING_6_BITS | len, 1 + len], bytes))
        }
        _ => None,
    }
}

#[inline]
fn string_head(len: usize) -> Short {
    match len {
        0..=0x3f => Short::of([STRING_6_BITS | len as u8]),
        0x40..=0xfff => Short::of([STRING_12_BITS | (len >> 8) as u8, len as u8]),
        _ => Short::tagged(STRING_32_BITS, &(len as u32).to_le_bytes()),
    }
}

#[inline]
fn int_head(value: i64) -> Short {
    let le = value.to_le_bytes();
    match value {
        0..=0x7f => Short::of([value as u8]),
        -0x1000..=0xfff => Short::of([INT_13_BITS | (value >> 8) as u8 & 0x1f, value as u8]),
        -0x8000..=0x7fff => Short::tagged(INT_16_BITS, &le[..2]),
        -0x80_0000..=0x7f_ffff => Short::tagged(INT_24_BITS, &le[..3]),
        -0x8000_0000..=0x7fff_ffff => Short::tagged(INT_32_BITS, &le[..4]),
        _ => Short::tagged(INT_64_BITS, &le),
    }
}

/// Returns the bytes of the length at the end. From the third byte on, Redis adds a byte before seven bits are full,
/// and so does this.
#[inline]
fn tail_len(len: usize) -> usize {
    match len {
        0..=0x7f => 1,
        0x80..0x3fff => 2,
        0x3fff..0x1f_ffff => 3,
        0x1f_ffff..0xfff_ffff => 4,
        _ => 5,
    }
}

#[inline]
fn tail(len: usize) -> Short {
    let count = tail_len(len);
    let mut tail = Short { bytes: [0; 9], len: count as u8 };
    for (at, byte) in tail.bytes[..count].iter_mut().enumerate() {
        let group = (len >> (7 * (count - 1 - at))) as u8 & 0x7f;
        *byte = if at == 0 { group } else { group | 0x80 };
    }
    tail
}

/// Returns the bytes of the whole element that begins at `at`.
#[inline]
pub fn total_at(bytes: &[u8], at: usize) -> usize {
    let first = bytes[at];
    if first < INT_13_BITS {
        // Short strings and small integers: at most 64 bytes, so the length takes one.
        return if first < STRING_6_BITS { 2 } else { 2 + usize::from(first & 0x3f) };
    }
    let len = long_len_at(bytes, at);
    len + tail_len(len)
}

/// Returns the bytes of head and body of an element that is no short string and no small integer.
fn long_len_at(bytes: &[u8], at: usize) -> usize {
    match bytes[at] {
        INT_13_BITS..STRING_12_BITS => 2,
        STRING_12_BITS..STRING_32_BITS => 2 + string_12_bits(bytes, at),
        STRING_32_BITS => 5 + string_32_bits(bytes, at),
        INT_16_BITS => 3,
        INT_24_BITS => 4,
        INT_32_BITS => 5,
        _ => 9,
    }
}

#[inline]
fn string_12_bits(bytes: &[u8], at: usize) -> usize {
    usize::from(bytes[at] & 0x0f) << 8 | usize::from(bytes[at + 1])
}

#[inline]
fn string_32_bits(bytes: &[u8], at: usize) -> usize {
    let [a, b, c, d] = *bytes[at + 1..].first_chunk().expect("a head is whole");
    u32::from_le_bytes([a, b, c, d]) as usize
}

/// Returns the element that begins at `at`, and the bytes of head and body.
#[inline]
pub fn decode_at(bytes: &[u8], at: usize) -> Element<'_> {
    let first = bytes[at];
    if first < STRING_6_BITS {
        return Element::Int(i64::from(first));
    }
    let (from, len) = match first {
        ..INT_13_BITS => (at + 1, usize::from(first & 0x3f)),
        STRING_12_BITS..STRING_32_BITS => (at + 2, string_12_bits(bytes, at)),
        STRING_32_BITS => (at + 5, string_32_bits(bytes, at)),
        _ => return Element::Int(decode_int(&bytes[at..])),
    };
    Element::Bytes(&bytes[from..from + len])
}

fn decode_int(bytes: &[u8]) -> i64 {
    /// Returns the little-endian integer of `N` bytes after the tag, with its sign extended.
    fn signed<const N: usize>(bytes: &[u8]) -> i64 {
        let mut wide = [0; 8];
        wide[8 - N..].copy_from_slice(&bytes[1..=N]);
        i64::from_le_bytes(wide) >> (64 - 8 * N)
    }
    match bytes[0] {
        INT_16_BITS => signed::<2>(bytes),
        INT_24_BITS => signed::<3>(bytes),
        INT_32_BITS => signed::<4>(bytes),
        INT_64_BITS => signed::<8>(bytes),
        high => {
            let bits = i64::from(high & 0x1f) << 8 | i64::from(bytes[1]);
            bits << 51 >> 51
        }
    }
}

/// Returns the start of the element that ends at `end`.
#[inline]
pub fn begin_of(bytes: &[u8], end: usize) -> usize {
    let mut at = end - 1;
    let mut len = usize::from(bytes[at] & 0x7f);
    let mut shift = 7;
    while bytes[at] & 0x80 != 0 {
        at -= 1;
        len |= usize::from(bytes[at] & 0x7f) << shift;
        shift += 7;
    }
    at - len
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text_int::IntText;

    fn encode(element: Element<'_>) -> Vec<u8> {
        let encoded = Encoded::of(element);
        [encoded.head.as_slice(), encoded.body, encoded.tail().as_slice()].concat()
    }

    fn check(element: Element<'_>) -> usize {
        let bytes = encode(element);
        if let Some(([head, tail], body)) = short_string(element) {
            assert_eq!([[head].as_slice(), body, &[tail]].concat(), bytes);
        }
        assert_eq!(Encoded::of(element).total(), bytes.len());
        assert_eq!(total_at(&bytes, 0), bytes.len());
        assert_eq!(begin_of(&bytes, bytes.len()), 0);
        assert_eq!(decode_at(&bytes, 0), element);
        bytes.len()
    }

    #[test]
    fn integers_of_every_width() {
        for (bits, taken) in [(7, 2), (12, 3), (15, 4), (23, 5), (31, 6), (63, 10)] {
            let max = ((1u64 << bits) - 1) as i64;
            assert_eq!(check(Element::Int(max)), taken);
            if bits > 7 {
                assert_eq!(check(Element::Int(-max - 1)), taken);
            }
            let mut text = IntText::new();
            assert_eq!(encode(Element::Bytes(text.of(max))), encode(Element::Int(max)));
        }
        assert_eq!(check(Element::Int(-1)), 3);
    }

    #[test]
    fn strings_at_the_borders_of_their_heads() {
        let long = vec![b'x'; if cfg!(miri) { 5000 } else { 3 << 20 }];
        let lens = [0, 1, 63, 64, 125, 126, 4095, 4096, 16377, 16378, 16379, 2_097_145, 2_097_146];
        for len in lens.into_iter().filter(|&len| len <= long.len()) {
            check(Element::Bytes(&long[..len]));
        }
        assert_eq!(check(Element::Bytes(&long[..63])), 65);
        assert!(short_string(Element::Bytes(&long[..63])).is_some());
        assert!(short_string(Element::Bytes(&long[..64])).is_none());
        assert_eq!(check(Element::Bytes(&long[..64])), 67);
    }
}
