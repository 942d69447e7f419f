//! Zipmap: the packed form of hashes before Redis 2.6.
//!
//! Number of fields (1, 254 for "count them"), names and values, 255. Each of them is its length (1 byte, or 254
//! and 4 bytes) and its bytes. Between a value's length and its bytes is the number of unused bytes after it.

use super::{Cursor, Item, Malformed};

const END: u8 = 0xff;
const LEN_32: u8 = 0xfe;
/// Number of fields in the header that stands for "too many for one byte".
const COUNT_UNKNOWN: u8 = 0xfe;

#[derive(Clone, Debug)]
pub(crate) struct Items<'a> {
    rest: Cursor<'a>,
    next: Next,
    /// Declared number of fields less the ones found; `None` if the header does not state it.
    missing: Option<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Next {
    Name,
    Value,
}

impl<'a> Items<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut rest = Cursor(bytes);
        let count = rest.byte()?;
        let missing = (count != COUNT_UNKNOWN).then_some(count);
        Ok(Items { rest, next: Next::Name, missing })
    }

    pub(super) fn next(&mut self) -> Option<Result<Item<'a>, Malformed>> {
        match self.next {
            Next::Name if self.rest.0 == [END] => {
                let complete = self.missing.is_none_or(|missing| missing == 0);
                if complete { None } else { Some(Err(Malformed)) }
            }
            Next::Name => {
                if let Some(missing) = &mut self.missing {
                    match missing.checked_sub(1) {
                        Some(left) => *missing = left,
                        None => return Some(Err(Malformed)),
                    }
                }
                self.next = Next::Value;
                Some(self.string(Next::Name))
            }
            Next::Value => {
                self.next = Next::Name;
                Some(self.string(Next::Value))
            }
        }
    }

    fn string(&mut self, what: Next) -> Result<Item<'a>, Malformed> {
        let len = match self.rest.byte()? {
            END => return Err(Malformed),
            LEN_32 => u32::from_le_bytes(self.rest.array()?) as usize,
            len => len.into(),
        };
        let unused = match what {
            Next::Name => 0,
            Next::Value => self.rest.byte()?,
        };
        let bytes = self.rest.take(len)?;
        self.rest.take(unused.into())?;
        Ok(Item::Bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Items, Packing};
    use super::*;

    #[test]
    fn fields_are_read_around_unused_bytes() {
        let mut bytes = b"\x02\x03foo\x03\x02bar..\x04over\xfe\x00\x01\x00\x00\x00".to_vec();
        bytes.extend_from_slice(&[b'v'; 256]);
        bytes.push(END);
        let items: Vec<_> = Items::new(Packing::Zipmap, &bytes).unwrap().collect();
        let expected: [&[u8]; 4] = [b"foo", b"bar", b"over", &[b'v'; 256]];
        assert_eq!(items, expected.map(|bytes| Ok(Item::Bytes(bytes))));
    }
}
