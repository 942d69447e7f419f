//! An element as read: a byte string, or an integer that represents its decimal text.

use crate::text_int::{IntText, int_text_len, parse_int};

/// An element: a byte string, which may be stored as the integer whose canonical decimal text it
/// is.
///
/// Two elements are equal if their bytes are, however they are stored.
#[derive(Debug, Clone, Copy)]
pub enum Element<'a> {
    /// The bytes themselves.
    Bytes(&'a [u8]),
    /// The integer with the bytes as its text.
    Int(i64),
}

impl<'a> Element<'a> {
    /// Returns `bytes` in the form that a packed collection stores: as an integer if that restores
    /// the same text.
    #[inline]
    pub fn compact(bytes: &'a [u8]) -> Self {
        match parse_int(bytes) {
            Some(value) => Element::Int(value),
            None => Element::Bytes(bytes),
        }
    }

    /// Returns the element in the form of [`Element::compact`].
    #[inline]
    pub(crate) fn compacted(self) -> Self {
        match self {
            Element::Bytes(bytes) => Element::compact(bytes),
            int @ Element::Int(_) => int,
        }
    }

    /// Returns the number of bytes of the string.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "an empty string is an element like others")]
    pub fn len(&self) -> usize {
        match *self {
            Element::Bytes(bytes) => bytes.len(),
            Element::Int(value) => int_text_len(value),
        }
    }

    /// Returns the bytes; `scratch` holds those of an integer.
    #[inline]
    pub fn bytes<'b>(&self, scratch: &'b mut IntText) -> &'b [u8]
    where
        'a: 'b,
    {
        match *self {
            Element::Bytes(bytes) => bytes,
            Element::Int(value) => scratch.of(value),
        }
    }

    /// Appends the bytes to `out`.
    #[inline]
    pub fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.bytes(&mut IntText::new()));
    }

    /// Returns the bytes as a string of their own.
    #[inline]
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes(&mut IntText::new()).to_vec()
    }

    /// Returns the integer with the bytes as its canonical text.
    #[inline]
    pub fn to_int(&self) -> Option<i64> {
        match *self {
            Element::Bytes(bytes) => parse_int(bytes),
            Element::Int(value) => Some(value),
        }
    }
}

impl PartialEq for Element<'_> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        match (*self, *other) {
            (Element::Bytes(left), Element::Bytes(right)) => left == right,
            (Element::Int(left), Element::Int(right)) => left == right,
            (Element::Bytes(bytes), Element::Int(value))
            | (Element::Int(value), Element::Bytes(bytes)) => parse_int(bytes) == Some(value),
        }
    }
}

impl Eq for Element<'_> {}

impl PartialEq<[u8]> for Element<'_> {
    #[inline]
    fn eq(&self, other: &[u8]) -> bool {
        *self == Element::Bytes(other)
    }
}

impl<'a> From<&'a [u8]> for Element<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        Element::Bytes(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for Element<'a> {
    #[inline]
    fn from(bytes: &'a Vec<u8>) -> Self {
        Element::Bytes(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Element<'a> {
    #[inline]
    fn from(bytes: &'a [u8; N]) -> Self {
        Element::Bytes(bytes)
    }
}

impl From<i64> for Element<'_> {
    #[inline]
    fn from(value: i64) -> Self {
        Element::Int(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equality_is_that_of_the_bytes() {
        assert_eq!(Element::Int(-12), Element::Bytes(b"-12"));
        assert_ne!(Element::Int(12), Element::Bytes(b"012"));
        assert_eq!(Element::Int(7), b"7"[..]);
        assert_eq!(Element::compact(b"7").to_vec(), b"7");
        assert_eq!(Element::compact(b"07").to_int(), None);
        assert_eq!((Element::Int(-100).len(), Element::Bytes(b"ab").len()), (4, 2));
    }
}
