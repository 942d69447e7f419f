//! The encoding of numbers and strings in a block.
//!
//! - A *number* has seven bits a byte, the lowest first; all bytes but the last have bit 7 set.
//! - A *back number* is a number stored from right to left, so that it can be read from its end.
//! - A *text* is a head and perhaps bytes. Bit 0 of the head's first byte is the type, six more bits of that byte are
//!   the lowest of a number, and if bit 7 is set the rest follows as a number. With bit 0 clear the number is a length
//!   and the bytes follow; with bit 0 set, the text is the canonical decimal text of an integer, and the number is its
//!   zigzag form.
//!
//! This process wrote the bytes, so readers trust them.

use crate::packed::Element;

/// Appends a number.
pub(super) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Returns the length of a number or back number in bytes.
pub(super) fn number_len(number: u64) -> usize {
    (u64::BITS - (number | 1).leading_zeros()).div_ceil(7) as usize
}

/// Appends a back number.
pub(super) fn put_back_number(out: &mut Vec<u8>, number: u64) {
    let start = out.len();
    put_number(out, number);
    out[start..].reverse();
}

/// Returns the back number before `end`, and its start.
pub(super) fn back_number(bytes: &[u8], end: usize) -> (u64, usize) {
    let (mut number, mut shift, mut at) = (0, 0, end);
    loop {
        at -= 1;
        number |= u64::from(bytes[at] & 0x7f) << shift;
        if bytes[at] & 0x80 == 0 {
            return (number, at);
        }
        shift += 7;
    }
}

/// Bit 0 of a text's head.
const INTEGER: u8 = 1;
/// Number of bits of the number in the first byte of a head.
const HEAD_BITS: u32 = 6;
const HEAD_NUMBER_MAX: u64 = (1 << HEAD_BITS) - 1;

/// Appends a text.
pub(super) fn put_text(out: &mut Vec<u8>, bytes: &[u8]) {
    match Element::compact(bytes) {
        Element::Int(value) => put_head(out, INTEGER, ((value << 1) ^ (value >> 63)) as u64),
        Element::Bytes(bytes) => {
            put_head(out, 0, bytes.len() as u64);
            out.extend_from_slice(bytes);
        }
    }
}

/// Returns an upper bound of the bytes that `put_text` appends. Only integers take fewer.
pub(super) fn text_len_max(bytes: &[u8]) -> usize {
    let len = bytes.len() as u64;
    let head = if len <= HEAD_NUMBER_MAX { 1 } else { 1 + number_len(len >> HEAD_BITS) };
    head + bytes.len()
}

fn put_head(out: &mut Vec<u8>, kind: u8, number: u64) {
    let low = ((number & HEAD_NUMBER_MAX) as u8) << 1 | kind;
    if number <= HEAD_NUMBER_MAX {
        out.push(low);
    } else {
        out.push(low | 0x80);
        put_number(out, number >> HEAD_BITS);
    }
}

/// Sequential reader.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    /// Bytes that have not been read.
    pub(super) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub(super) fn byte(&mut self) -> u8 {
        let (first, rest) = self.rest.split_first().expect("a block ends behind an entry");
        self.rest = rest;
        *first
    }

    #[inline]
    pub(super) fn number(&mut self) -> u64 {
        let first = self.byte();
        if first < 0x80 {
            return first.into();
        }
        let (mut number, mut shift) = (u64::from(first & 0x7f), 7);
        loop {
            let byte = self.byte();
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return number;
            }
            shift += 7;
        }
    }

    #[inline]
    pub(super) fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        taken
    }

    #[inline]
    pub(super) fn text(&mut self) -> Element<'a> {
        let first = self.byte();
        let mut number = u64::from(first >> 1 & HEAD_NUMBER_MAX as u8);
        if first >= 0x80 {
            number |= self.number() << HEAD_BITS;
        }
        if first & INTEGER == 0 {
            return Element::Bytes(self.take(number as usize));
        }
        Element::Int((number >> 1) as i64 ^ -((number & 1) as i64))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tierce_harness::effort;

    use super::*;

    fn check_text(bytes: &[u8]) {
        let mut out = vec![0xAA];
        put_text(&mut out, bytes);
        out.push(0xBB);
        let mut reader = Reader { rest: &out[1..] };
        assert_eq!(reader.text().to_vec(), bytes);
        assert_eq!(reader.rest, [0xBB]);
    }

    #[test]
    fn texts_come_back() {
        for value in [0, 1, -1, 31, 32, -32, -33, 4096, i64::MAX, i64::MIN, i64::MIN + 1] {
            check_text(value.to_string().as_bytes());
        }
        for odd in ["", "-", "-0", "00", "+1", "1a", " 1", "9223372036854775808", "--1"] {
            assert!(matches!(Element::compact(odd.as_bytes()), Element::Bytes(_)), "{odd}");
            check_text(odd.as_bytes());
        }
        for len in [63, 64, 8191, 8192, 20_000] {
            check_text(&vec![b'x'; len]);
        }
    }

    #[test]
    fn small_integers_take_a_byte_and_large_ones_ten() {
        let len = |text: &str| {
            let mut out = Vec::new();
            put_text(&mut out, text.as_bytes());
            out.len()
        };
        assert_eq!(["0", "31", "-32", "32", "4095"].map(len), [1, 1, 1, 2, 2]);
        assert_eq!(len("-9223372036854775808"), 10);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        #[test]
        fn numbers_come_back_from_both_sides(number: u64, shift in 0..64) {
            let number = number >> shift;
            let (mut out, mut back) = (Vec::new(), vec![1, 2]);
            put_number(&mut out, number);
            put_back_number(&mut back, number);
            prop_assert_eq!(out.len(), number_len(number));
            prop_assert_eq!(Reader { rest: &out }.number(), number);
            prop_assert_eq!(back_number(&back, back.len()), (number, 2));
        }

        #[test]
        fn any_text_comes_back(bytes: Vec<u8>, value: i64) {
            check_text(&bytes);
            check_text(value.to_string().as_bytes());
        }
    }
}
