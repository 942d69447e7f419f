//! A set of byte strings.
//!
//! A small set is an ascending array while all members are integers, else one block of bytes. A large set is a
//! table of members. If members have deadlines, these are next to it.
//!
//! Members stay until removed, even after their deadline. Readers that state the time with [`Set::as_of`] do not see
//! expired ones; the owner removes them with [`Set::next_deadline_ms`] and [`Set::reap`].

mod algebra;
mod integers;
mod member;
mod table;
mod timed;

use std::ptr::NonNull;

pub use algebra::{difference, intersection, union};
use integers::Integers;
use table::MemberTable;
use timed::Timed;

use crate::form::Form;
use crate::hash::Former;
use crate::incremental_snapshot::{
    IncrementalSnapshot, Remainder, SnapshotId, SnapshotProgress, SnapshotTag, Snapshotted,
};
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
    /// With deadlines, as of a time. All members are live at `i64::MIN`.
    Timed(RawBox<Timed>, i64),
}

impl Snapshotted for Set {
    #[inline]
    fn snapshot_id(&self) -> Option<SnapshotId> {
        match &self.repr {
            Repr::Table(table) => table.snapshot.as_ref().map(|snapshot| snapshot.tag.id()),
            Repr::Timed(timed, _) => timed.members.snapshot_id(),
            _ => None,
        }
    }

    fn begin_snapshot(&mut self, tag: SnapshotTag) -> bool {
        match &mut self.repr {
            Repr::Table(table) => {
                table.snapshot = Some(Box::new(IncrementalSnapshot::begin(tag)));
                true
            }
            Repr::Timed(timed, _) => {
                timed.end_saving();
                timed.members.begin_snapshot(tag)
            }
            _ => false,
        }
    }

    fn cancel_snapshot(&mut self) -> Option<Remainder> {
        match &mut self.repr {
            Repr::Table(table) => table.snapshot.take().map(Remainder::new),
            Repr::Timed(timed, _) => {
                let kept = (timed.end_saving(), timed.members.cancel_snapshot());
                self.drop_absent_deadlines();
                Some(Remainder::new(kept))
            }
            _ => None,
        }
    }
}

impl Set {
    /// Creates an empty set, which allocates nothing. Its first member determines its form.
    #[expect(clippy::new_without_default, reason = "no caller needs a default")]
    pub fn new() -> Self {
        Self { repr: Repr::Packed(Packed::new()) }
    }

    /// Returns the number of members, including expired ones that are not removed yet.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "empty ones vanish")]
    pub fn len(&self) -> usize {
        match &self.repr {
            Repr::Integers(integers) => integers.len(),
            Repr::Packed(block) => block.len(),
            Repr::Table(table) => table.len(),
            Repr::Timed(timed, _) => timed.members.len(),
        }
    }

    /// Hides the members that have expired by this time, from all methods that do not say otherwise.
    #[inline]
    pub fn as_of(&mut self, now_ms: i64) {
        if let Repr::Timed(_, as_of_ms) = &mut self.repr {
            *as_of_ms = now_ms;
        }
    }

    /// Returns the number of live members. Takes constant time unless some are expired, and then a few steps for each
    /// of these.
    #[inline]
    pub fn live_len(&self) -> usize {
        match &self.repr {
            Repr::Timed(timed, now_ms) => timed.live_len(*now_ms),
            _ => self.len(),
        }
    }

    /// Returns the bytes it owns, as the allocator counts them.
    #[inline]
    pub fn allocated_bytes(&self) -> usize {
        match &self.repr {
            Repr::Integers(integers) => integers.allocated_bytes(),
            Repr::Packed(block) => block.allocated_bytes(),
            Repr::Table(table) => table.allocated_bytes(),
            Repr::Timed(timed, _) => timed.allocated_bytes(),
        }
    }

    /// Returns the name of its encoding for OBJECT ENCODING.
    pub fn encoding(&self) -> &'static str {
        match &self.repr {
            Repr::Integers(_) => "intset",
            Repr::Packed(_) => "listpack",
            Repr::Table(_) => "hashtable",
            Repr::Timed(timed, _) if timed.is_large() => "hashtable",
            Repr::Timed(..) => "listpackex",
        }
    }

    /// Returns a copy.
    pub fn duplicate(&self) -> Self {
        let repr = match &self.repr {
            Repr::Integers(integers) => Repr::Integers(integers.duplicate()),
            Repr::Packed(block) => Repr::Packed(block.duplicate()),
            Repr::Table(table) => Repr::Table(RawBox::new(table.duplicate())),
            Repr::Timed(timed, now_ms) => Repr::Timed(RawBox::new(timed.duplicate()), *now_ms),
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
            (Repr::Timed(timed, now_ms), _) => {
                timed.members.contains_compact(member) && !timed.is_due(member, *now_ms)
            }
        }
    }

    /// Prefetches the memory that lookups of these members will read, if it exceeds the processor's caches. Call it
    /// before many lookups; it changes nothing.
    pub fn prefetch<'a>(&self, members: impl Iterator<Item = &'a [u8]>) {
        match &self.repr {
            Repr::Table(table) => table.prefetch(members),
            Repr::Timed(timed, _) => timed.members.prefetch(members),
            _ => {}
        }
    }

    /// Takes the right form for a number of members that are about to be added, beginning with `first`: a set that
    /// will be large begins as a table.
    #[inline]
    pub fn expect<'a>(&mut self, first: impl Into<Element<'a>>, count: usize, limits: SetLimits) {
        let first = first.into();
        // A single member determines the form when it is added.
        if count < 2 || matches!(self.repr, Repr::Table(_)) {
            return;
        }
        self.begin_with(first.compacted());
        let is_too_large = match &mut self.repr {
            Repr::Integers(_) => count > integers_max(limits),
            Repr::Packed(_) => count > entries_max(limits.packed),
            Repr::Table(_) => false,
            Repr::Timed(timed, _) => return timed.members.expect(first, count, limits),
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

    /// Adds a member; `false` if it already exists, even if it has expired: see [`Set::revive`].
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
            (Repr::Timed(timed, _), _) => return timed.members.add(member, limits),
        }
        match &mut self.repr {
            Repr::Packed(block) => {
                block.push_back(member);
                true
            }
            Repr::Table(table) => table.insert(member),
            Repr::Integers(_) => unreachable!("a member that is no integer has been made room for"),
            Repr::Timed(..) => unreachable!("the plain set in it has taken the member"),
        }
    }

    /// Returns true if some members have, or may have, deadlines.
    #[inline]
    pub fn has_deadlines(&self) -> bool {
        matches!(self.repr, Repr::Timed(..))
    }

    /// Returns the deadline of a member, even if that has expired.
    pub fn deadline_ms<'a>(&self, member: impl Into<Element<'a>>) -> Option<i64> {
        match &self.repr {
            Repr::Timed(timed, _) => timed.deadline_ms(member.into()),
            _ => None,
        }
    }

    /// Returns the live members with deadlines.
    pub fn deadlines(&self) -> impl Iterator<Item = (Element<'_>, i64)> {
        let timed = match &self.repr {
            Repr::Timed(timed, now_ms) => Some((timed, *now_ms)),
            _ => None,
        };
        timed
            .into_iter()
            .flat_map(|(timed, now_ms)| timed.deadlines().filter(move |(_, at_ms)| *at_ms > now_ms))
    }

    /// Sets or removes the deadline of a member, even if that has expired. Returns the former one.
    pub fn set_deadline<'a>(
        &mut self,
        member: impl Into<Element<'a>>,
        deadline_ms: Option<i64>,
    ) -> Former {
        let member = member.into().compacted();
        if !self.contains_stored(member) {
            return Former::Absent;
        }
        if deadline_ms.is_some() && !self.has_deadlines() {
            let members = std::mem::replace(self, Self::new());
            self.repr = Repr::Timed(RawBox::new(Timed::new(members)), i64::MIN);
        }
        let Repr::Timed(timed, _) = &mut self.repr else { return Former::Field(None) };
        let former = timed.set_deadline(member, deadline_ms);
        self.drop_absent_deadlines();
        Former::Field(former)
    }

    fn contains_stored(&self, member: Element<'_>) -> bool {
        match &self.repr {
            Repr::Timed(timed, _) => timed.members.contains_compact(member),
            _ => self.contains_compact(member),
        }
    }

    /// Removes the deadline of a member that has expired, so that it is live again. Returns the former deadline;
    /// `None` if it has not expired.
    pub fn revive<'a>(&mut self, member: impl Into<Element<'a>>) -> Option<i64> {
        let Repr::Timed(timed, now_ms) = &mut self.repr else { return None };
        let member = member.into();
        let is_due = timed.is_due(member, *now_ms);
        let former = is_due.then(|| timed.set_deadline(member, None))?;
        self.drop_absent_deadlines();
        former
    }

    /// Becomes a plain set if no member has a deadline.
    fn drop_absent_deadlines(&mut self) {
        if let Repr::Timed(timed, _) = &mut self.repr
            && let Some(plain) = timed.take_plain()
        {
            *self = plain;
        }
    }

    /// Returns the next deadline; see [`Hash::next_deadline_ms`](crate::Hash::next_deadline_ms).
    #[inline]
    pub fn next_deadline_ms(&self) -> Option<i64> {
        if let Repr::Timed(timed, _) = &self.repr { timed.next_deadline_ms() } else { None }
    }

    /// Returns true if all members are expired; see [`Hash::is_all_due`](crate::Hash::is_all_due).
    #[inline]
    pub fn is_all_due(&self, now_ms: i64) -> bool {
        matches!(&self.repr, Repr::Timed(timed, _) if timed.is_all_due(now_ms))
    }

    /// Returns the earliest deadline after `now_ms`; see [`Hash::deadline_after`](crate::Hash::deadline_after).
    pub fn deadline_after(&mut self, now_ms: i64) -> Option<i64> {
        if let Repr::Timed(timed, _) = &mut self.repr { timed.deadline_after(now_ms) } else { None }
    }

    /// Removes expired members and passes them to `gone`; see [`Hash::reap`](crate::Hash::reap).
    pub fn reap(&mut self, now_ms: i64, steps: usize, gone: impl FnMut(Element<'_>)) {
        if let Repr::Timed(timed, _) = &mut self.repr {
            timed.reap(now_ms, steps, gone);
            self.drop_absent_deadlines();
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
            (Repr::Timed(..), _) => self.take(member) != Former::Absent,
        }
    }

    /// Removes a member, and returns its deadline.
    pub fn take<'a>(&mut self, member: impl Into<Element<'a>>) -> Former {
        let member = member.into();
        let Repr::Timed(timed, now_ms) = &mut self.repr else {
            let is_gone = self.remove(member);
            return if is_gone { Former::Field(None) } else { Former::Absent };
        };
        if timed.is_due(member, *now_ms) {
            return Former::Absent;
        }
        let former = timed.take(member);
        self.drop_absent_deadlines();
        former
    }

    /// Removes a random member, all about equally likely; `visit` sees it before, with its deadline. `false` if there
    /// is none.
    pub fn pop(
        &mut self,
        random: &mut Random,
        visit: impl FnOnce(Element<'_>, Option<i64>),
    ) -> bool {
        match &mut self.repr {
            Repr::Integers(integers) if integers.len() > 0 => {
                let value = integers.get(random.below(integers.len()));
                visit(Element::Int(value), None);
                integers.remove(value)
            }
            Repr::Packed(block) if !block.is_empty() => {
                let at = block.seek(random.below(block.len()));
                visit(block.get(at), None);
                block.remove(at, 1);
                true
            }
            Repr::Table(table) => table.pop(random.word(), |member| visit(member, None)),
            Repr::Timed(timed, now_ms) => {
                let Some(member) = timed.sample(random, *now_ms) else { return false };
                visit(member, timed.deadline_ms(member));
                let member = member.to_vec();
                self.remove(&member)
            }
            Repr::Integers(_) | Repr::Packed(_) => false,
        }
    }

    /// Returns all live members, in no order. A member with the text of an integer is an integer.
    pub fn iter(&self) -> Iter<'_> {
        let inner = match &self.repr {
            Repr::Integers(integers) => Inner::Integers(integers, 0),
            Repr::Packed(block) => Inner::Packed(block.iter()),
            Repr::Table(table) => Inner::Table(table.iter()),
            Repr::Timed(timed, now_ms) if timed.has_due(*now_ms) => {
                Inner::Live(Box::new(timed.members.iter()), timed, *now_ms)
            }
            Repr::Timed(timed, _) => return timed.members.iter(),
        };
        Iter { inner, left: self.live_len() }
    }

    /// Visits some live members, and returns the cursor for the next call, 0 after the last one. A scan begins with 0. A
    /// member that stays during the whole scan is visited at least once, and only once unless the set becomes large
    /// meanwhile.
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(Element<'_>)) -> u64 {
        match &self.repr {
            Repr::Table(table) => table.scan(cursor, visit),
            Repr::Timed(timed, now_ms) if let Repr::Table(table) = &timed.members.repr => table
                .scan(cursor, |member| {
                    if !timed.is_due(member, *now_ms) {
                        visit(member);
                    }
                }),
            _ => {
                self.iter().for_each(visit);
                0
            }
        }
    }

    /// Returns a random live member, all about equally likely; `None` if there is none.
    #[must_use]
    pub fn sample(&self, random: &mut Random) -> Option<Element<'_>> {
        match &self.repr {
            _ if self.len() == 0 => None,
            Repr::Integers(integers) => {
                Some(Element::Int(integers.get(random.below(integers.len()))))
            }
            Repr::Packed(block) => Some(block.get(block.seek(random.below(block.len())))),
            Repr::Table(table) => table.sample(random.word()),
            Repr::Timed(timed, now_ms) => timed.sample(random, *now_ms),
        }
    }

    /// Draws this many times a random live member, all about equally likely. All draws together take as many steps as there
    /// are draws and slots for members, however few members there are.
    pub fn sample_repeatedly<'s>(
        &'s self,
        count: usize,
        random: &mut Random,
        visit: impl FnMut(Element<'s>),
    ) {
        if let Repr::Timed(timed, now_ms) = &self.repr {
            timed.sample_repeatedly(count, random, *now_ms, visit);
        } else if matches!(self.repr, Repr::Table(_)) && count < self.len() {
            (0..count).filter_map(|_| self.sample(random)).for_each(visit);
        } else {
            draw_repeatedly(self.iter(), count, random, visit);
        }
    }

    /// Returns this many distinct live members, or all if there are fewer, each choice about equally likely.
    #[must_use]
    pub fn sample_distinct(&self, count: usize, random: &mut Random) -> Vec<Element<'_>> {
        if let Repr::Timed(timed, now_ms) = &self.repr {
            return timed.sample_distinct(count, random, *now_ms);
        }
        let hash_of = |element: &Element<'_>| table::hash_of(*element);
        let draw = |random: &mut Random| self.sample(random);
        let draw = matches!(self.repr, Repr::Table(_)).then_some(draw);
        draw_distinct(self.iter(), count, random, hash_of, draw)
    }

    /// Visits members and their deadlines as they were when the snapshot began, each in one slice, in no order. `visit` returns the bytes
    /// it produced for one, and a slice ends once these reach `bytes_max`. After the last slice the snapshot is over.
    pub fn snapshot_slice(
        &mut self,
        bytes_max: usize,
        mut visit: impl FnMut(Element<'_>, Option<i64>) -> usize,
    ) -> SnapshotProgress {
        match &mut self.repr {
            Repr::Table(table) => table.snapshot_slice(bytes_max, |member| visit(member, None)),
            Repr::Timed(timed, _) => {
                let progress = timed.snapshot_slice(bytes_max, visit);
                self.drop_absent_deadlines();
                progress
            }
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
            Repr::Timed(timed, _) => {
                let form = if timed.is_large() { Form::SetTimedLarge } else { Form::SetTimedSmall };
                (form, timed.into_raw().cast())
            }
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
                Form::SetTimedSmall | Form::SetTimedLarge => {
                    Repr::Timed(RawBox::from_raw(pointer.cast()), i64::MIN)
                }
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
    /// All members of a set, of which those that have expired by a time are skipped.
    Live(Box<Iter<'a>>, &'a Timed, i64),
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
            Inner::Live(iter, timed, now_ms) => iter.find(|member| !timed.is_due(*member, *now_ms)),
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
