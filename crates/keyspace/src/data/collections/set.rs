//! Edits of sets.
//!
//! | edit | | |
//! |---|---|---|
//! | 1 | members | varint count, and as many members: adds those that do not exist, without deadline |
//! | 2 | remove | a member: removes it |
//! | 3 | timed members | as 1, with 8 bytes of deadline after each, 0 for none: adds them, and sets the deadlines |

use tierce_collections::hash::Former;
use tierce_collections::random::Random;
use tierce_collections::{CollectionKind, Element, Set, SnapshotProgress};

use super::Editor;
use super::edits::{Field, Fields, code, write_element};
use super::hash::{FieldDeadline, write_deadline};
use super::limits::LimitCells;
use super::part::CollectionPart;
use super::sealed::Sealed;
use crate::codec::{Malformed, Reader, Writer};
use crate::planted::Fault;

const MEMBERS: u8 = code(CollectionKind::Set, 1);
const REMOVE: u8 = code(CollectionKind::Set, 2);
const TIMED_MEMBERS: u8 = code(CollectionKind::Set, 3);

/// An edit, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetEdit<'a> {
    /// Adds these members. Those that exist keep their deadlines.
    Members(Fields<'a, &'a [u8]>),
    /// Adds these members, and sets their deadlines.
    TimedMembers(Fields<'a, TimedMember<'a>>),
    /// Removes this member.
    Remove(&'a [u8]),
}

/// A member and its deadline.
pub type TimedMember<'a> = (&'a [u8], MemberDeadline);

/// Expiry time of a member, as Unix time in milliseconds, if it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberDeadline(pub Option<i64>);

impl MemberDeadline {
    /// The last deadline: more than 2,000 years after the first one, which is 1.
    const MAX_MS: i64 = (1 << 46) - 1;

    /// Returns true if a member can have this deadline.
    pub fn is_valid(at_ms: i64) -> bool {
        (1..=Self::MAX_MS).contains(&at_ms)
    }
}

impl<'a> Field<'a> for MemberDeadline {
    fn read(edit: &mut Reader<'a>) -> Result<Self, Malformed> {
        let FieldDeadline(deadline_ms) = Field::read(edit)?;
        if deadline_ms.is_some_and(|at_ms| !Self::is_valid(at_ms)) {
            return Err(edit.malformed("a deadline that members do not have"));
        }
        Ok(Self(deadline_ms))
    }
}

impl<'a> SetEdit<'a> {
    /// Reads an edit whose code has been read.
    pub(super) fn read(code: u8, edit: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match code {
            MEMBERS => Self::Members(Fields::read(edit)?),
            TIMED_MEMBERS => Self::TimedMembers(Fields::read(edit)?),
            REMOVE => Self::Remove(edit.bytes()?),
            _ => return Err(edit.malformed("an edit that sets do not have")),
        })
    }
}

impl Editor<'_, Set> {
    /// Prepares for this many members to be added; see [`Set::expect`].
    pub fn expect(&mut self, first: &[u8], count: usize) {
        self.value.expect(first, count, self.limits.set());
    }

    /// Adds a member; `false` if it is there already.
    pub fn add(&mut self, member: &[u8]) -> bool {
        let is_new = self.value.add(member, self.limits.set());
        if is_new {
            self.record(|edits| write_member(edits, Element::Bytes(member)));
            self.undo_by(|edits| write_removal(edits, Element::Bytes(member)));
            return true;
        }
        self.value.has_deadlines() && self.revive(member)
    }

    /// Lets a member live again that has expired; `false` if it has not.
    #[cold]
    fn revive(&mut self, member: &[u8]) -> bool {
        let Some(former) = self.value.revive(member) else { return false };
        self.record(|edits| write_timed(edits, Element::Bytes(member), None));
        self.undo_by(|edits| write_timed(edits, Element::Bytes(member), Some(former)));
        true
    }

    /// Sets or removes the deadline of a member; `false` if it is not there.
    pub fn set_deadline(&mut self, member: &[u8], deadline_ms: Option<i64>) -> bool {
        let Former::Field(former) = self.value.set_deadline(member, deadline_ms) else {
            return false;
        };
        self.record(|edits| write_timed(edits, Element::Bytes(member), deadline_ms));
        self.undo_by(|edits| write_timed(edits, Element::Bytes(member), former));
        true
    }

    /// Removes a member; `false` if it is not there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let Former::Field(deadline_ms) = self.value.take(member) else { return false };
        self.record(|edits| write_removal(edits, Element::Bytes(member)));
        self.undo_by(|edits| write_whole(edits, Element::Bytes(member), deadline_ms));
        true
    }

    /// See [`Set::pop`].
    pub fn pop(&mut self, random: &mut Random, visit: impl FnOnce(Element<'_>)) -> bool {
        let (set, mut recorder) = self.split();
        set.pop(random, |member, deadline_ms| {
            recorder.record(|edits| write_removal(edits, member));
            recorder.undo_by(|edits| write_whole(edits, member, deadline_ms));
            visit(member);
        })
    }
}

#[inline]
fn write_member(edits: &mut Writer<'_>, member: Element<'_>) {
    edits.begin(MEMBERS);
    edits.count(1);
    write_element(edits, member);
}

/// Appends the edits that add a member with its deadline, if any.
#[inline]
fn write_whole(edits: &mut Writer<'_>, member: Element<'_>, deadline_ms: Option<i64>) {
    write_member(edits, member);
    if deadline_ms.is_some() {
        write_timed(edits, member, deadline_ms);
    }
}

#[cold]
fn write_timed(edits: &mut Writer<'_>, member: Element<'_>, deadline_ms: Option<i64>) {
    edits.begin(TIMED_MEMBERS);
    edits.count(1);
    write_element(edits, member);
    write_deadline(edits, deadline_ms);
}

fn write_removal(edits: &mut Writer<'_>, member: Element<'_>) {
    edits.begin(REMOVE);
    write_element(edits, member);
}

impl Sealed for Set {
    const FAULT_OF_UNDO: Fault = Fault::UndoOfSets;

    fn snapshot_slice(&mut self, bytes_max: usize, edits: &mut Writer<'_>) -> SnapshotProgress {
        Set::snapshot_slice(self, bytes_max, |element, deadline_ms| {
            edits.measure(|edits| write_whole(edits, element, deadline_ms))
        })
    }

    #[inline]
    fn next_deadline_ms(&self) -> Option<i64> {
        Set::next_deadline_ms(self)
    }

    #[inline]
    fn is_all_due(&self, now_ms: i64) -> bool {
        Set::is_all_due(self, now_ms)
    }

    #[inline]
    fn as_of(&mut self, now_ms: i64) {
        Set::as_of(self, now_ms);
    }

    fn deadline_after(&mut self, now_ms: i64) -> Option<i64> {
        Set::deadline_after(self, now_ms)
    }

    fn reap(&mut self, now_ms: i64, steps: usize, mut edits: Option<&mut Vec<u8>>) -> bool {
        let mut has_changed = false;
        Set::reap(self, now_ms, steps, |member| {
            has_changed = true;
            if let Some(edits) = edits.as_deref_mut() {
                write_removal(&mut Writer::new(edits), member);
            }
        });
        has_changed
    }

    fn encode(&self, edits: &mut Writer<'_>) {
        edits.begin(MEMBERS);
        edits.count(self.live_len());
        self.iter().for_each(|element| write_element(edits, element));
        if self.has_deadlines() {
            // After the members: the first edit states the number of these.
            edits.begin(TIMED_MEMBERS);
            edits.count(self.deadlines().count());
            for (member, deadline_ms) in self.deadlines() {
                write_element(edits, member);
                write_deadline(edits, Some(deadline_ms));
            }
        }
    }

    fn encode_part(&self, mut cursor: u64, bytes_max: usize, edits: &mut Writer<'_>) -> u64 {
        let end = edits.len() + bytes_max;
        loop {
            cursor =
                self.scan(cursor, |member| write_whole(edits, member, self.deadline_ms(member)));
            if cursor == 0 || edits.len() >= end {
                return cursor;
            }
        }
    }

    fn apply(&mut self, edit: SetEdit<'_>, limits: &LimitCells) {
        match edit {
            SetEdit::Members(members) => {
                members.for_each(|member| _ = self.add(member, limits.set()));
            }
            SetEdit::TimedMembers(members) => members.for_each(|(member, deadline)| {
                self.add(member, limits.set());
                self.set_deadline(member, deadline.0);
            }),
            SetEdit::Remove(member) => _ = self.remove(member),
        }
    }

    fn part_count(code: u8, edit: &mut Reader<'_>) -> Result<u64, Malformed> {
        match code {
            MEMBERS | TIMED_MEMBERS => edit.varint(),
            _ => Err(edit.malformed("an edit that is no part of a set")),
        }
    }

    fn part<'a>(code: u8, edit: &mut Reader<'a>) -> Result<CollectionPart<'a>, Malformed> {
        let member = edit.bytes()?;
        if code == MEMBERS {
            return Ok(CollectionPart::Member(member));
        }
        let MemberDeadline(deadline_ms) = Field::read(edit)?;
        Ok(CollectionPart::MemberDeadline { member, deadline_ms })
    }

    fn check(&self) {
        assert_eq!(self.iter().count(), self.len());
        assert!(self.iter().all(|member| self.contains(&member.to_vec()[..])));
        assert!(self.deadlines().all(|(member, at_ms)| {
            self.contains(member) && self.deadline_ms(member) == Some(at_ms)
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_out_of_range_is_malformed() {
        let read = |deadline_ms: i64| {
            let mut bytes = Vec::new();
            write_timed(&mut Writer::new(&mut bytes), Element::Bytes(b"member"), Some(deadline_ms));
            let mut edit = Reader::new(&bytes);
            let code = edit.byte().expect("it begins with a code");
            SetEdit::read(code, &mut edit).map(|_| ())
        };
        for malformed in [i64::MIN, -1, 1 << 46, i64::MAX] {
            assert!(read(malformed).is_err(), "{malformed}");
        }
        // The format writes 0 if there is no deadline.
        for valid in [0, 1, (1 << 46) - 1] {
            assert_eq!(read(valid), Ok(()), "{valid}");
        }
    }
}
