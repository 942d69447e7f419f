//! Values packed into one or a few strings.

use std::io::Read;

use crate::decode::plain::{FIELD_EXPIRY_MAX, parse_score};
use crate::decode::time_ms;
use crate::error::{Error, Result};
use crate::input::Input;
use crate::packed::{Item, Items, Malformed, Packing};
use crate::value::ValuePart;

/// Node types of a list of Redis 7: one large element, or a listpack.
const NODE_PLAIN: u64 = 1;
const NODE_PACKED: u64 = 2;

/// A packed collection, with its packing and end offset for error messages.
struct Pack {
    bytes: Vec<u8>,
    packing: Packing,
    end: u64,
}

impl Pack {
    fn read<R: Read>(input: &mut Input<R>, packing: Packing) -> Result<Self> {
        let mut pack = Pack { bytes: Vec::new(), packing, end: 0 };
        pack.read_next(input)?;
        Ok(pack)
    }

    fn read_next<R: Read>(&mut self, input: &mut Input<R>) -> Result<()> {
        input.string(&mut self.bytes, "a packed collection")?;
        self.end = input.offset();
        Ok(())
    }

    fn malformed(&self) -> Error {
        Error::Corrupt { offset: self.end, expected: self.packing.expected() }
    }

    /// Visits the elements in groups of `N`.
    fn each<const N: usize, E: From<Error>>(
        &self,
        visit: &mut impl FnMut([Item<'_>; N]) -> Result<(), E>,
    ) -> Result<(), E> {
        let blame = |Malformed| self.malformed();
        let mut items = Items::new(self.packing, &self.bytes).map_err(blame)?;
        while let Some(first) = items.next() {
            let mut group = [first.map_err(blame)?; N];
            for item in &mut group[1..] {
                *item = items.expect().map_err(blame)?;
            }
            visit(group)?;
        }
        Ok(())
    }

    fn each_string<E: From<Error>>(
        &self,
        visit: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.each(&mut |[item]| visit(item.bytes(&mut itoa::Buffer::new())))
    }
}

pub(super) fn list<R: Read, E: From<Error>>(
    input: &mut Input<R>,
    visit: &mut impl FnMut(ValuePart<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let pack = Pack::read(input, Packing::Ziplist)?;
    pack.each_string(&mut |element| visit(ValuePart::Element(element)))
}

/// Reads a list of ziplists.
pub(super) fn quicklist<R: Read, E: From<Error>>(
    input: &mut Input<R>,
    visit: &mut impl FnMut(ValuePart<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut pack = Pack { bytes: Vec::new(), packing: Packing::Ziplist, end: 0 };
    for _ in 0..input.length("the number of nodes of a list")? {
        pack.read_next(input)?;
        pack.each_string(&mut |element| visit(ValuePart::Element(element)))?;
    }
    Ok(())
}

/// Reads a list of listpacks and single large elements.
pub(super) fn quicklist2<R: Read, E: From<Error>>(
    input: &mut Input<R>,
    visit: &mut impl FnMut(ValuePart<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut pack = Pack { bytes: Vec::new(), packing: Packing::Listpack, end: 0 };
    for _ in 0..input.length("the number of nodes of a list")? {
        match input.length("the kind of a node of a list")? {
            NODE_PLAIN => {
                pack.read_next(input)?;
                if pack.bytes.is_empty() {
                    return Err(input.corrupt("an element of a list that is large").into());
                }
                visit(ValuePart::Element(&pack.bytes))?;
            }
            NODE_PACKED => {
                pack.read_next(input)?;
                pack.each_string(&mut |element| visit(ValuePart::Element(element)))?;
            }
            _ => return Err(input.corrupt("a node of a list, plain or packed").into()),
        }
    }
    Ok(())
}

pub(super) fn set<R: Read, E: From<Error>>(
    input: &mut Input<R>,
    packing: Packing,
    visit: &mut impl FnMut(ValuePart<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let pack = Pack::read(input, packing)?;
    pack.each_string(&mut |member| visit(ValuePart::Member(member)))
}

pub(super) fn sorted_set<R: Read, E: From<Error>>(
    input: &mut Input<R>,
    packing: Packing,
    visit: &mut impl FnMut(ValuePart<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let pack = Pack::read(input, packing)?;
    pack.each(&mut |[member, score]| {
        let score = match score {
            Item::Integer(integer) => Some(integer as f64),
            Item::Bytes(text) => parse_score(text).filter(|score| !score.is_nan()),
        };
        let expected = "scores that are numbers before it";
        let score = score.ok_or(Error::Corrupt { offset: pack.end, expected })?;
        visit(ValuePart::Scored { member: member.bytes(&mut itoa::Buffer::new()), score })
    })
}

pub(super) fn hash<R: Read, E: From<Error>>(
    input: &mut Input<R>,
    packing: Packing,
    visit: &mut impl FnMut(ValuePart<'_>) -> Result<(), E>,
) -> Result<(), E> {
    Pack::read(input, packing)?.each(&mut |[name, value]| {
        let (mut names, mut values) = (itoa::Buffer::new(), itoa::Buffer::new());
        let (name, value) = (name.bytes(&mut names), value.bytes(&mut values));
        visit(ValuePart::Field { name, value, expiry_ms: None })
    })
}

/// Reads names, values and deadlines. The earliest deadline comes first, and is ignored.
pub(super) fn hash_expiring<R: Read, E: From<Error>>(
    input: &mut Input<R>,
    visit: &mut impl FnMut(ValuePart<'_>) -> Result<(), E>,
) -> Result<(), E> {
    time_ms(input, "the earliest expiry of a field")?;
    hash_expiring_unreleased(input, visit)
}

pub(super) fn hash_expiring_unreleased<R: Read, E: From<Error>>(
    input: &mut Input<R>,
    visit: &mut impl FnMut(ValuePart<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let pack = Pack::read(input, Packing::Listpack)?;
    pack.each(&mut |[name, value, expiry]| {
        let (mut names, mut values) = (itoa::Buffer::new(), itoa::Buffer::new());
        let (name, value) = (name.bytes(&mut names), value.bytes(&mut values));
        let expiry = expiry.integer().and_then(|expiry| u64::try_from(expiry).ok());
        let expiry = expiry.filter(|&expiry| expiry <= FIELD_EXPIRY_MAX);
        let expiry_ms = Some(expiry.ok_or_else(|| pack.malformed())?).filter(|&expiry| expiry != 0);
        visit(ValuePart::Field { name, value, expiry_ms })
    })
}
