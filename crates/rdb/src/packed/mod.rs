//! Collections packed into one string: intset, listpack, ziplist, zipmap.
//!
//! All are sequences of integers and byte strings. Decoding never reads outside the bytes, and detects a header
//! that disagrees with them.

pub(crate) mod intset;
pub(crate) mod listpack;
mod ziplist;
mod zipmap;

/// An element of a packed collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    Bytes(&'a [u8]),
    Integer(i64),
}

impl<'a> Item<'a> {
    /// Returns the element as a string; an integer is printed into the buffer.
    pub(crate) fn bytes<'b>(self, buffer: &'b mut itoa::Buffer) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            Item::Bytes(bytes) => bytes,
            Item::Integer(integer) => buffer.format(integer).as_bytes(),
        }
    }

    pub(crate) fn integer(self) -> Option<i64> {
        match self {
            Item::Bytes(_) => None,
            Item::Integer(integer) => Some(integer),
        }
    }
}

/// Error for bytes that do not match their packing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Packing of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Intset,
    Listpack,
    Ziplist,
    Zipmap,
}

impl Packing {
    /// Returns the expectation for an error message.
    pub(crate) fn expected(self) -> &'static str {
        match self {
            Packing::Intset => "a well-formed intset before it",
            Packing::Listpack => "a well-formed listpack before it",
            Packing::Ziplist => "a well-formed ziplist before it",
            Packing::Zipmap => "a well-formed zipmap before it",
        }
    }
}

/// Iterator over the elements of a packed collection. After an error, the rest is undefined.
#[derive(Clone, Debug)]
pub(crate) enum Items<'a> {
    Intset(intset::Items<'a>),
    Listpack(listpack::Items<'a>),
    Ziplist(ziplist::Items<'a>),
    Zipmap(zipmap::Items<'a>),
}

impl<'a> Items<'a> {
    pub(crate) fn new(packing: Packing, bytes: &'a [u8]) -> Result<Self, Malformed> {
        Ok(match packing {
            Packing::Intset => Items::Intset(intset::Items::new(bytes)?),
            Packing::Listpack => Items::Listpack(listpack::Items::new(bytes)?),
            Packing::Ziplist => Items::Ziplist(ziplist::Items::new(bytes)?),
            Packing::Zipmap => Items::Zipmap(zipmap::Items::new(bytes)?),
        })
    }

    /// Returns the next element, which must exist.
    pub(crate) fn expect(&mut self) -> Result<Item<'a>, Malformed> {
        self.next().unwrap_or(Err(Malformed))
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<Item<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Items::Intset(items) => items.next(),
            Items::Listpack(items) => items.next(),
            Items::Ziplist(items) => items.next(),
            Items::Zipmap(items) => items.next(),
        }
    }
}

/// Takes bytes off the front of a slice, and fails instead of reading beyond it.
#[derive(Clone, Copy, Debug)]
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (&taken, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }
}

/// Decodes a little-endian signed 24-bit integer.
fn i24(bytes: [u8; 3]) -> i32 {
    let [low, middle, high] = bytes;
    i32::from_le_bytes([0, low, middle, high]) >> 8
}
