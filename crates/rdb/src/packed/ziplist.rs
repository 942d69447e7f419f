//! Ziplist: the packed form of lists, hashes and sorted sets before Redis 7.
//!
//! Length in bytes (4), offset of the last element (4), number of elements (2, 65535 for "more than that"),
//! elements, 255. An element is the length of the previous one (1 byte, or 254 and 4 bytes), its encoding and its
//! bytes. Lengths of strings are big-endian, all else little-endian.

use super::{Cursor, Item, Malformed, i24};

const END: u8 = 0xff;
const PREVIOUS_LEN_32: u8 = 0xfe;
const STRING_32: u8 = 0x80;
const INT_16: u8 = 0xc0;
const INT_32: u8 = 0xd0;
const INT_64: u8 = 0xe0;
const INT_24: u8 = 0xf0;
const INT_8: u8 = 0xfe;

const COUNT_UNKNOWN: u16 = u16::MAX;

#[derive(Clone, Debug)]
pub(crate) struct Items<'a> {
    rest: Cursor<'a>,
    /// Length of the ziplist, and offset of the last element according to the header.
    len: usize,
    last: usize,
    /// Offset and length of the previous element; none before the first.
    previous: Option<(usize, usize)>,
    /// Declared number of elements less the ones found; `None` if the header does not state it.
    missing: Option<u16>,
}

impl<'a> Items<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut rest = Cursor(bytes);
        let len = u32::from_le_bytes(rest.array()?);
        let last = u32::from_le_bytes(rest.array()?) as usize;
        let count = u16::from_le_bytes(rest.array()?);
        if len as usize != bytes.len() || last >= bytes.len() {
            return Err(Malformed);
        }
        let (len, missing) = (bytes.len(), (count != COUNT_UNKNOWN).then_some(count));
        Ok(Items { rest, len, last, previous: None, missing })
    }

    pub(super) fn next(&mut self) -> Option<Result<Item<'a>, Malformed>> {
        if let [END] = self.rest.0 {
            let complete = self.missing.is_none_or(|missing| missing == 0);
            let complete = complete && self.previous.is_none_or(|(start, _)| start == self.last);
            return if complete { None } else { Some(Err(Malformed)) };
        }
        Some(self.element())
    }

    fn element(&mut self) -> Result<Item<'a>, Malformed> {
        if let Some(missing) = &mut self.missing {
            *missing = missing.checked_sub(1).ok_or(Malformed)?;
        }
        let start = self.len - self.rest.0.len();
        let previous_len = match self.rest.byte()? {
            END => return Err(Malformed),
            PREVIOUS_LEN_32 => u32::from_le_bytes(self.rest.array()?) as usize,
            len => len.into(),
        };
        if previous_len != self.previous.map_or(0, |(_, len)| len) {
            return Err(Malformed);
        }
        let item = self.item()?;
        self.previous = Some((start, self.len - self.rest.0.len() - start));
        Ok(item)
    }

    fn item(&mut self) -> Result<Item<'a>, Malformed> {
        let rest = &mut self.rest;
        let first = rest.byte()?;
        let integer = match first {
            0x00..=0x3f => return Ok(Item::Bytes(rest.take(first.into())?)),
            0x40..=0x7f => {
                let len = u16::from_be_bytes([first & 0x3f, rest.byte()?]);
                return Ok(Item::Bytes(rest.take(len.into())?));
            }
            // The lower bits have no meaning.
            STRING_32..=0xbf => {
                let len = u32::from_be_bytes(rest.array()?);
                return Ok(Item::Bytes(rest.take(len as usize)?));
            }
            INT_16 => i16::from_le_bytes(rest.array()?).into(),
            INT_32 => i32::from_le_bytes(rest.array()?).into(),
            INT_64 => i64::from_le_bytes(rest.array()?),
            INT_24 => i24(rest.array()?).into(),
            INT_8 => i8::from_le_bytes(rest.array()?).into(),
            // 0 to 12 in the encoding itself.
            0xf1..=0xfd => i64::from(first & 0x0f) - 1,
            _ => return Err(Malformed),
        };
        Ok(Item::Integer(integer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a ziplist of elements given as encoding and bytes.
    fn ziplist(elements: &[Vec<u8>]) -> Vec<u8> {
        let mut body = Vec::new();
        let (mut previous, mut last) = (0, 10);
        for element in elements {
            last = 10 + body.len();
            if previous < 254 {
                body.push(previous as u8);
            } else {
                body.push(PREVIOUS_LEN_32);
                body.extend_from_slice(&(previous as u32).to_le_bytes());
            }
            body.extend_from_slice(element);
            previous = 10 + body.len() - last;
        }
        let mut bytes = (11 + body.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(&(last as u32).to_le_bytes());
        bytes.extend_from_slice(&(elements.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes.push(END);
        bytes
    }

    #[test]
    fn all_encodings_are_read() {
        let long = [&[0x41, 0x2c][..], &[b'x'; 300]].concat();
        let longest = [&[STRING_32, 0, 0, 0x40, 0][..], &[b'y'; 0x4000]].concat();
        let bytes = ziplist(&[
            vec![2, b'a', b'b'],
            long,
            longest,
            vec![INT_8, 0x80],
            vec![INT_16, 0, 0x80],
            vec![INT_24, 0, 0, 0x80],
            vec![INT_32, 0, 0, 0, 0x80],
            vec![INT_64, 0, 0, 0, 0, 0, 0, 0, 0x80],
            vec![0xf1],
            vec![0xfd],
        ]);
        let items = super::super::Items::new(super::super::Packing::Ziplist, &bytes).unwrap();
        let found: Vec<Item<'_>> = items.map(Result::unwrap).collect();
        let integers = [
            i64::from(i8::MIN),
            i64::from(i16::MIN),
            -(1 << 23),
            i64::from(i32::MIN),
            i64::MIN,
            0,
            12,
        ];
        let strings = [Item::Bytes(b"ab"), Item::Bytes(&[b'x'; 300]), Item::Bytes(&[b'y'; 0x4000])];
        let expected: Vec<_> = strings.into_iter().chain(integers.map(Item::Integer)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn lengths_and_places_that_lie_are_found() {
        let read = |bytes: &[u8]| -> Result<usize, Malformed> {
            let items = super::super::Items::new(super::super::Packing::Ziplist, bytes)?;
            items.map(|item| item.map(drop)).collect::<Result<Vec<_>, _>>().map(|all| all.len())
        };
        let whole = ziplist(&[vec![2, b'a', b'b'], vec![1, b'c']]);
        assert_eq!(read(&whole), Ok(2));
        // Length, offset of the last element, number of elements, length of the previous element.
        for at in [0, 4, 8, 10, 14] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            assert_eq!(read(&bytes), Err(Malformed), "byte {at}");
        }
    }
}
