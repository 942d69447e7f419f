//! Intset: integers of one width in strictly ascending order, at least one.
//!
//! Width in bytes (4), number (4), integers; all little-endian.

use super::{Cursor, Item, Malformed};

#[derive(Clone, Debug)]
pub(crate) struct Items<'a> {
    width: usize,
    rest: Cursor<'a>,
    previous: Option<i64>,
}

impl<'a> Items<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut rest = Cursor(bytes);
        let width = u32::from_le_bytes(rest.array()?) as usize;
        let count = u32::from_le_bytes(rest.array()?) as usize;
        let whole = matches!(width, 2 | 4 | 8) && Some(rest.0.len()) == count.checked_mul(width);
        if whole && count > 0 { Ok(Items { width, rest, previous: None }) } else { Err(Malformed) }
    }

    pub(super) fn next(&mut self) -> Option<Result<Item<'a>, Malformed>> {
        if self.rest.0.is_empty() {
            return None;
        }
        let integer = match self.width {
            2 => self.rest.array().map(|bytes| i16::from_le_bytes(bytes).into()),
            4 => self.rest.array().map(|bytes| i32::from_le_bytes(bytes).into()),
            _ => self.rest.array().map(i64::from_le_bytes),
        };
        Some(integer.and_then(|integer| match self.previous.replace(integer) {
            Some(previous) if previous >= integer => Err(Malformed),
            _ => Ok(Item::Integer(integer)),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<i64>, Malformed> {
        let mut items = Items::new(bytes)?;
        let mut integers = Vec::new();
        while let Some(item) = items.next() {
            integers.extend(item?.integer());
        }
        Ok(integers)
    }

    #[test]
    fn integers_stand_in_ascending_order() {
        let encode = |integers: &[i32]| {
            let head = [4_u32, integers.len() as u32].map(u32::to_le_bytes);
            let integers = integers.iter().flat_map(|integer| integer.to_le_bytes());
            head.concat().into_iter().chain(integers).collect::<Vec<u8>>()
        };
        assert_eq!(read(&encode(&[-70_000, 1, 2])), Ok(vec![-70_000, 1, 2]));
        for wrong in [&[][..], &[1, 1], &[2, 1]] {
            assert_eq!(read(&encode(wrong)), Err(Malformed), "{wrong:?}");
        }
    }
}
