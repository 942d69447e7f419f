//! Listpack: the successor of the ziplist in Redis 5 and 7.
//!
//! Length in bytes (4), number of elements (2, 65535 for "more than that"), elements, 255. An element is its
//! encoding, its bytes, and the length of both with 7 bits a byte, for backward iteration.

use super::{Cursor, Item, Malformed, i24};

const END: u8 = 0xff;
const STRING_32: u8 = 0xf0;
const INT_16: u8 = 0xf1;
const INT_24: u8 = 0xf2;
const INT_32: u8 = 0xf3;
const INT_64: u8 = 0xf4;

/// Element count in the header that stands for "too many to count".
const COUNT_UNKNOWN: u16 = u16::MAX;
/// Length and number of elements.
const HEADER_LEN: usize = 6;
/// Longest text of an integer of 64 bits.
const INT_TEXT_MAX: usize = 20;

#[derive(Clone, Debug)]
pub(crate) struct Items<'a> {
    rest: Cursor<'a>,
    /// Declared number of elements less the ones found; `None` if the header does not state it.
    missing: Option<u16>,
}

impl<'a> Items<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut rest = Cursor(bytes);
        let len = u32::from_le_bytes(rest.array()?);
        let count = u16::from_le_bytes(rest.array()?);
        if len as usize != bytes.len() {
            return Err(Malformed);
        }
        Ok(Items { rest, missing: (count != COUNT_UNKNOWN).then_some(count) })
    }

    pub(crate) fn next(&mut self) -> Option<Result<Item<'a>, Malformed>> {
        if let [END] = self.rest.0 {
            let complete = self.missing.is_none_or(|missing| missing == 0);
            return if complete { None } else { Some(Err(Malformed)) };
        }
        Some(self.element())
    }

    fn element(&mut self) -> Result<Item<'a>, Malformed> {
        if let Some(missing) = &mut self.missing {
            *missing = missing.checked_sub(1).ok_or(Malformed)?;
        }
        let before = self.rest.0.len();
        let item = self.item()?;
        let len = before - self.rest.0.len();
        let width = back_len_width(len);
        let is_right = self.rest.take(width)?.iter().copied().eq(back_len(len, width));
        if is_right { Ok(item) } else { Err(Malformed) }
    }

    fn item(&mut self) -> Result<Item<'a>, Malformed> {
        let rest = &mut self.rest;
        let first = rest.byte()?;
        let integer = match first {
            0x00..=0x7f => first.into(),
            0x80..=0xbf => return Ok(Item::Bytes(rest.take((first & 0x3f).into())?)),
            // Signed 13-bit integer; the first byte has the upper 5 bits.
            0xc0..=0xdf => {
                i64::from(i16::from_be_bytes([first << 3, 0]) >> 3 | i16::from(rest.byte()?))
            }
            0xe0..=0xef => {
                let len = u16::from_be_bytes([first & 0x0f, rest.byte()?]);
                return Ok(Item::Bytes(rest.take(len.into())?));
            }
            STRING_32 => {
                let len = u32::from_le_bytes(rest.array()?);
                return Ok(Item::Bytes(rest.take(len as usize)?));
            }
            INT_16 => i16::from_le_bytes(rest.array()?).into(),
            INT_24 => i24(rest.array()?).into(),
            INT_32 => i32::from_le_bytes(rest.array()?).into(),
            INT_64 => i64::from_le_bytes(rest.array()?),
            _ => return Err(Malformed),
        };
        Ok(Item::Integer(integer))
    }
}

/// Returns the width of the back length, which follows an element.
fn back_len_width(len: usize) -> usize {
    match len {
        0..=0x7f => 1,
        0x80..=0x3fff => 2,
        0x4000..=0x1f_ffff => 3,
        0x20_0000..=0xfff_ffff => 4,
        _ => 5,
    }
}

/// Encodes the back length: highest bits first. All bytes but the first have the upper bit set, since it is read
/// backwards.
fn back_len(len: usize, width: usize) -> impl Iterator<Item = u8> {
    (0..width).rev().map(move |at| {
        let mark = if at + 1 == width { 0 } else { 0x80 };
        mark | (len >> (7 * at)) as u8 & 0x7f
    })
}

/// Builds a listpack.
#[derive(Debug)]
pub(crate) struct Builder {
    bytes: Vec<u8>,
    count: u64,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Builder { bytes: vec![0; HEADER_LEN], count: 0 }
    }

    /// Returns the present length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends a string, as an integer if it is the text of one.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        match parse_i64(bytes) {
            Some(integer) => self.push_integer(integer),
            None => self.push_bytes(bytes),
        }
    }

    pub(crate) fn push_integer(&mut self, integer: i64) {
        let start = self.bytes.len();
        let little = integer.to_le_bytes();
        // True if all bits from this one up equal the sign.
        let fits = |bits: u32| integer >> (bits - 1) == integer >> 63;
        if (0..=0x7f).contains(&integer) {
            self.bytes.push(little[0]);
        } else if fits(13) {
            self.bytes.extend_from_slice(&[0xc0 | little[1] & 0x1f, little[0]]);
        } else if fits(16) {
            self.push_encoded(INT_16, &little[..2]);
        } else if fits(24) {
            self.push_encoded(INT_24, &little[..3]);
        } else if fits(32) {
            self.push_encoded(INT_32, &little[..4]);
        } else {
            self.push_encoded(INT_64, &little);
        }
        self.end_element(start);
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        let start = self.bytes.len();
        match bytes.len() {
            len @ ..=0x3f => self.bytes.push(0x80 | len as u8),
            len @ ..=0xfff => self.bytes.extend_from_slice(&(0xe000 | len as u16).to_be_bytes()),
            len => self.push_encoded(STRING_32, &(len as u32).to_le_bytes()),
        }
        self.bytes.extend_from_slice(bytes);
        self.end_element(start);
    }

    fn push_encoded(&mut self, encoding: u8, bytes: &[u8]) {
        self.bytes.push(encoding);
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends the back length of the element that begins at `start`.
    fn end_element(&mut self, start: usize) {
        let len = self.bytes.len() - start;
        self.bytes.extend(back_len(len, back_len_width(len)));
        self.count += 1;
    }

    /// Returns the listpack with its header.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(END);
        let len = self.bytes.len() as u32;
        let count = u16::try_from(self.count).unwrap_or(COUNT_UNKNOWN);
        self.bytes[..4].copy_from_slice(&len.to_le_bytes());
        self.bytes[4..HEADER_LEN].copy_from_slice(&count.to_le_bytes());
        self.bytes
    }
}

/// Parses an integer in canonical decimal form.
pub(crate) fn parse_i64(text: &[u8]) -> Option<i64> {
    let (&first, _) = text.split_first()?;
    if text.len() > INT_TEXT_MAX || !(first == b'-' || first.is_ascii_digit()) {
        return None;
    }
    let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (itoa::Buffer::new().format(number).as_bytes() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use tierce_harness::effort;

    fn come_back(strings: &[Vec<u8>]) {
        let mut builder = Builder::new();
        strings.iter().for_each(|string| builder.push(string));
        let bytes = builder.finish();
        let mut items = Items::new(&bytes).unwrap();
        for string in strings {
            let item = items.next().unwrap().unwrap();
            assert_eq!(item.bytes(&mut itoa::Buffer::new()), string);
        }
        assert_eq!(items.next(), None);
    }

    #[test]
    fn integers_at_the_limits_come_back() {
        let powers = (0..63).map(|bits| 1_i64 << bits);
        let limits = powers.flat_map(|n| [n - 1, n, n + 1, -n - 1, -n, -n + 1]);
        let strings: Vec<_> = limits.map(|n| n.to_string().into_bytes()).collect();
        come_back(&strings);
        come_back(&[i64::MIN.to_string().into(), i64::MAX.to_string().into()]);
    }

    #[test]
    fn strings_of_all_sizes_come_back() {
        let lens = [0, 1, 63, 64, 126, 127, 4095, 4096, 16379, 16384, 2_097_151, 2_097_152];
        come_back(&lens.map(|len| vec![b'x'; len]));
    }

    #[test]
    fn a_count_above_its_field_is_left_out() {
        come_back(&vec![b"1".to_vec(); 65_534]);
        come_back(&vec![b"1".to_vec(); 65_536]);
    }

    #[test]
    fn integers_take_the_shortest_form() {
        for (integer, len) in
            [(0, 1), (127, 1), (128, 2), (-1, 2), (4095, 2), (-4096, 2), (4096, 3)]
        {
            let mut builder = Builder::new();
            builder.push_integer(integer);
            assert_eq!(builder.len() - HEADER_LEN - 1, len, "{integer}");
        }
    }

    #[test]
    fn a_length_behind_an_element_that_lies_is_found() {
        for len in [1, 100, 200, 20_000] {
            let mut builder = Builder::new();
            builder.push(&vec![b'x'; len]);
            let mut bytes = builder.finish();
            let last_of_len = bytes.len() - 2;
            bytes[last_of_len] ^= 1;
            assert_eq!(Items::new(&bytes).unwrap().next(), Some(Err(Malformed)), "{len}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        #[test]
        fn any_strings_come_back(strings in vec(vec(any::<u8>(), 0..200), 0..20)) {
            come_back(&strings);
        }

        #[test]
        fn any_integers_come_back(integers in vec((any::<i64>(), 0..64_u32), 0..20)) {
            let text = |(n, shift): &(i64, u32)| (n >> shift).to_string().into_bytes();
            come_back(&integers.iter().map(text).collect::<Vec<_>>());
        }
    }
}
