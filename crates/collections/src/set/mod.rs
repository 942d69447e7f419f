//! A set of byte strings.
//!
//! A small set is an ascending array while all members are integers, else one block of bytes. A large set is a
//! table of members.

mod algebra;
mod integers;
mod member;
mod table;

use std::ptr::NonNull;

pub use algebra::{difference, intersection, union};
use integers::Integers;
use table::MemberTable;

use crate::form::Form;
use crate::incremental_snapshot::{IncrementalSnapshot, SnapshotProgress, snapshotted};
use crate::limits::{PackedLimits, SetLimits};
use crate::packed::{self, Element, Packed};
use crate::random::{Random, draw_distinct, draw_repeatedly};
use crate::raw_box::RawBox;

/// Maximum number of members in one block, whatever the limits say.
const SMALL_LEN_MAX: usize = 1 << 20;

/// Maximum number of bytes in one block, as in Redis.
const SMALL_BYTES_MAX: usize = 1 << 30;

const _: () = assert!(SMALL_LEN_MAX <= Packed::LEN_MAX && 2 * SMALL_BYTES_MAX <= Packed::BYTES_MAX);

/// A set of byte strings.
#[derive(Debug)]
pub struct Set {
    repr: Repr,
}

#[derive(Debug)]
enum Repr {
    Integers(Integers),
    Packed(Packed),
    Table(RawBox<MemberTable>),
}

snapshotted!(Set, Repr::Table[table], tag => IncrementalSnapshot::begin(tag));

impl Set {
    /// Creates an empty set, which allocates nothing. Its first member determines its form.
    #[expect(clippy::new_without_default, reason = "no caller needs a default")]
    pub fn new() -> Self {
        Self { repr: Repr::Packed(Packed::new()) }
    }

    /// Returns the number of members.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "empty ones vanish")]
    pub fn len(&self) -> usize {
        match &self.repr {
            Repr::Integers(integers) => integers.len(),
            Repr::Packed(block) => block.len(),
            Repr::Table(table) => table.len(),
        }
    }

    /// Returns the bytes it owns, as the allocator counts them.
    #[inline]
    pub fn allocated_bytes(&self) -> usize {
        match &self.repr {
            Repr::Integers(integers) => integers.allocated_bytes(),
            Repr::Packed(block) => block.allocated_bytes(),
            Repr::Table(table) => table.allocated_bytes(),
        }
    }

    /// Returns the name of its encoding for OBJECT ENCODING.
    pub fn encoding(&self) -> &'static str {
        match self.repr {
            Repr::Integers(_) => "intset",
            Repr::Packed(_) => "listpack",
            Repr::Table(_) => "hashtable",
        }
    }

    /// Returns a copy.
    pub fn duplicate(&self) -> Self {
        let repr = match &self.repr {
            Repr::Integers(integers) => Repr::Integers(integers.duplicate()),
            Repr::Packed(block) => Repr::Packed(block.duplicate()),
            Repr::Table(table) => Repr::Table(RawBox::new(table.duplicate())),
        };
        Self { repr }
    }

    /// Returns true if it has this member.
    #[inline]
    pub fn contains<'a>(&self, member: impl Into<Element<'a>>) -> bool {
        self.contains_compact(member.into().compacted())
    }

    /// As [`Set::contains`], for an element in compact form.
    #[inline]
    fn contains_compact(&self, member: Element<'_>) -> bool {
        match (&self.repr, member) {
            (Repr::Integers(integers), Element::Int(value)) => integers.find(value).is_ok(),
            (Repr::Integers(_), Element::Bytes(_)) => false,
            (Repr::Packed(block), _) => block.find(block.start(), member, 1).is_some(),
            (Repr::Table(table), _) => table.contains(member),
        }
    }

    /// Prefetches the memory that lookups of these members will read, if it exceeds the processor's caches. Call it
    /// before many lookups; it changes nothing.
    pub fn prefetch<'a>(&self, members: impl Iterator<Item = &'a [u8]>) {
        if let Repr::Table(table) = &self.repr {
            table.prefetch(members);
        }
    }

    /// Takes the right form for a number of members that are about to be added, beginning with `first`: a set that
    /// will be large begins as a table.
    #[inline]
    pub fn expect<'a>(&mut self, first: impl Into<Element<'a>>, count: usize, limits: SetLimits) {
        // A single member determines the form when it is added.
        if count < 2 || matches!(self.repr, Repr::Table(_)) {
            return;
        }
        self.begin_with(first.into().compacted());
        let is_too_large = match &self.repr {
            Repr::Integers(_) => count > integers_max(limits),
            Repr::Packed(_) => count > entries_max(limits.packed),
            Repr::Table(_) => false,
        };
        if is_too_large {
            self.enlarge();
        }
    }

    /// Takes the form for this member, if the set is empty.
    #[inline]
    fn begin_with(&mut self, first: Element<'_>) {
        if let (Repr::Packed(block), Element::Int(_)) = (&self.repr, first)
            && block.is_empty()
        {
            self.repr = Repr::Integers(Integers::new());
        }
    }

    /// Adds a member; `false` if it already exists.
    pub fn add<'a>(&mut self, member: impl Into<Element<'a>>, limits: SetLimits) -> bool {
        let member = member.into().compacted();
        self.begin_with(member);
        match (&mut self.repr, member) {
            (Repr::Integers(integers), Element::Int(value)) => {
                let is_new = integers.insert(value);
                if integers.len() > integers_max(limits) {
                    self.enlarge();
                }
                return is_new;
            }
            (Repr::Integers(_), Element::Bytes(_)) => self.leave_integers(member, limits.packed),
            (Repr::Packed(block), _) => {
                if block.find(block.start(), member, 1).is_some() {
                    return false;
                }
                let fits = block.len() < entries_max(limits.packed)
                    && member.len() <= limits.packed.value_len_max
                    && block.bytes_len().saturating_add(member.len()) <= SMALL_BYTES_MAX;
                if !fits {
                    self.enlarge();
                }
            }
            (Repr::Table(_), _) => {}
        }
        match &mut self.repr {
            Repr::Packed(block) => {
                block.push_back(member);
                true
            }
            Repr::Table(table) => table.insert(member),
            Repr::Integers(_) => unreachable!("a member that is no integer has been made room for"),
        }
    }

    /// Converts from integers to a form that can also hold `member`.
    #[cold]
    fn leave_integers(&mut self, member: Element<'_>, limits: PackedLimits) {
        let Repr::Integers(integers) = &self.repr else { return };
        let len = integers.len();
        let widest = if len == 0 { 0 } else { widest_text(integers) };
        if len < entries_max(limits) && member.len().max(widest) <= limits.value_len_max {
            let mut block = Packed::new();
            self.iter().for_each(|element| block.push_back(element));
            self.repr = Repr::Packed(block);
        } else {
            self.enlarge();
        }
    }

    /// Converts a small set to a large one.
    #[cold]
    fn enlarge(&mut self) {
        let mut table = MemberTable::default();
        for element in self.iter() {
            table.insert(element);
        }
        self.repr = Repr::Table(RawBox::new(table));
    }

    /// Removes a member; `false` if it does not exist.
    pub fn remove<'a>(&mut self, member: impl Into<Element<'a>>) -> bool {
        let member = member.into().compacted();
        match (&mut self.repr, member) {
            (Repr::Integers(integers), Element::Int(value)) => integers.remove(value),
            (Repr::Integers(_), Element::Bytes(_)) => false,
            (Repr::Packed(block), _) => {
                let Some(at) = block.find(block.start(), member, 1) else { return false };
                block.remove(at, 1);
                true
            }
            (Repr::Table(table), _) => table.remove(member),
        }
    }

    /// Removes a random member, all about equally likely; `visit` sees it before. `false` if there is none.
    pub fn pop(&mut self, random: &mut Random, visit: impl FnOnce(Element<'_>)) -> bool {
        match &mut self.repr {
            Repr::Integers(integers) if integers.len() > 0 => {
                let value = integers.get(random.below(integers.len()));
                visit(Element::Int(value));
                integers.remove(value)
            }
            Repr::Packed(block) if !block.is_empty() => {
                let at = block.seek(random.below(block.len()));
                visit(block.get(at));
                block.remove(at, 1);
                true
            }
            Repr::Table(table) => table.pop(random.word(), visit),
            Repr::Integers(_) | Repr::Packed(_) => false,
        }
    }

    /// Returns all members, in no order. A member with the text of an integer is an integer.
    pub fn iter(&self) -> Iter<'_> {
        let inner = match &self.repr {
            Repr::Integers(integers) => Inner::Integers(integers, 0),
            Repr::Packed(block) => Inner::Packed(block.iter()),
            Repr::Table(table) => Inner::Table(table.iter()),
        };
        Iter { inner, left: self.len() }
    }

    /// Visits some members, and returns the cursor for the next call, 0 after the last one. A scan begins with 0. A
    /// member that stays during the whole scan is visited at least once, and only once unless the set becomes large
    /// meanwhile.
    pub fn scan(&self, cursor: u64, visit: impl FnMut(Element<'_>)) -> u64 {
        match &self.repr {
            Repr::Table(table) => table.scan(cursor, visit),
            _ => {
                self.iter().for_each(visit);
                0
            }
        }
    }

    /// Returns a random member, all about equally likely; `None` if there is none.
    #[must_use]
    pub fn sample(&self, random: &mut Random) -> Option<Element<'_>> {
        match &self.repr {
            _ if self.len() == 0 => None,
            Repr::Integers(integers) => {
                Some(Element::Int(integers.get(random.below(integers.len()))))
            }
            Repr::Packed(block) => Some(block.get(block.seek(random.below(block.len())))),
            Repr::Table(table) => table.sample(random.word()),
        }
    }

    /// Draws this many times a random member, all about equally likely. All draws together take as many steps as there
    /// are draws and slots for members, however few members there are.
    pub fn sample_repeatedly<'s>(
        &'s self,
        count: usize,
        random: &mut Random,
        visit: impl FnMut(Element<'s>),
    ) {
        if matches!(self.repr, Repr::Table(_)) && count < self.len() {
            (0..count).filter_map(|_| self.sample(random)).for_each(visit);
        } else {
            draw_repeatedly(self.iter(), count, random, visit);
        }
    }

    /// Returns this many distinct members, or all if there are fewer, each choice about equally likely.
    #[must_use]
    pub fn sample_distinct(&self, count: usize, random: &mut Random) -> Vec<Element<'_>> {
        let hash_of = |element: &Element<'_>| table::hash_of(*element);
        let draw = |random: &mut Random| self.sample(random);
        let draw = matches!(self.repr, Repr::Table(_)).then_some(draw);
        draw_distinct(self.iter(), count, random, hash_of, draw)
    }

    /// Visits members as they were when the snapshot began, each in one slice, in no order. `visit` returns the bytes
    /// it produced for one, and a slice ends once these reach `bytes_max`. After the last slice the snapshot is over.
    pub fn snapshot_slice(
        &mut self,
        bytes_max: usize,
        visit: impl FnMut(Element<'_>) -> usize,
    ) -> SnapshotProgress {
        match &mut self.repr {
            Repr::Table(table) => table.snapshot_slice(bytes_max, visit),
            _ => SnapshotProgress::Complete,
        }
    }

    /// See [`Collection::into_raw`](crate::Collection::into_raw).
    #[inline]
    #[must_use]
    pub fn into_raw(self) -> (Form, NonNull<u8>) {
        match self.repr {
            Repr::Integers(integers) => (Form::SetIntegers, integers.into_raw()),
            Repr::Packed(block) => (Form::SetPacked, block.into_raw()),
            Repr::Table(table) => (Form::SetTable, table.into_raw().cast()),
        }
    }

    /// See [`Collection::from_raw`](crate::Collection::from_raw).
    ///
    /// # Safety
    ///
    /// As there.
    #[inline]
    pub unsafe fn from_raw(form: Form, pointer: NonNull<u8>) -> Self {
        // SAFETY: the caller guarantees that the pointer is from `into_raw` of the variant with this form.
        let repr = unsafe {
            match form {
                Form::SetIntegers => Repr::Integers(Integers::from_raw(pointer)),
                Form::SetPacked => Repr::Packed(Packed::from_raw(pointer)),
                _ => Repr::Table(RawBox::from_raw(pointer.cast())),
            }
        };
        Self { repr }
    }
}

fn entries_max(limits: PackedLimits) -> usize {
    limits.entries_max.min(SMALL_LEN_MAX)
}

fn integers_max(limits: SetLimits) -> usize {
    limits.integers_max.min(SMALL_LEN_MAX)
}

/// Returns the length of the longest text of some integers, which is that of the least or the greatest.
fn widest_text(integers: &Integers) -> usize {
    let ends = [integers.get(0), integers.get(integers.len() - 1)];
    ends.map(|value| Element::Int(value).len()).into_iter().max().unwrap_or(0)
}

/// The members of a set; see [`Set::iter`].
pub struct Iter<'a> {
    inner: Inner<'a>,
    left: usize,
}

enum Inner<'a> {
    /// With the index of the next one.
    Integers(&'a Integers, usize),
    Packed(packed::Iter<'a>),
    Table(table::Members<'a>),
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        let next = match &mut self.inner {
            Inner::Integers(integers, index) => (*index < integers.len()).then(|| {
                *index += 1;
                Element::Int(integers.get(*index - 1))
            }),
            Inner::Packed(iter) => iter.next(),
            Inner::Table(iter) => iter.next().map(member::Member::element),
        };
        self.left -= usize::from(next.is_some());
        next
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl<'a> IntoIterator for &'a Set {
    type Item = Element<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

#[cfg(test)]
mod tests;
