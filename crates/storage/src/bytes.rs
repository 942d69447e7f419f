//! Reading and writing little-endian numbers and varints in slices that may be too short.

/// A position in a slice; every read may reach the end of the slice.
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Cursor { rest: bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the number of unread bytes.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(len)?;
        self.rest = tail;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.rest.split_first_chunk()?;
        self.rest = tail;
        Some(*head)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }

    /// Reads a number in base 128, lowest digits first; the high bit means "more follows".
    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let digit = u64::from(byte & 0x7f);
            if shift == 63 && digit > 1 {
                return None;
            }
            value |= digit << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

/// Appends the encoding that [`Cursor::varint`] reads.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_come_back() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            let mut cursor = Cursor::new(&out);
            assert_eq!(cursor.varint(), Some(value));
            assert!(cursor.is_empty());
            assert_eq!(Cursor::new(&out[..out.len() - 1]).varint(), None);
        }
        assert_eq!(Cursor::new(&[0xff; 10]).varint(), None);
    }
}
