//! Edits of sets.
//!
//! | edit | | |
//! |---|---|---|
//! | 1 | members | varint count, and as many members: adds them |
//! | 2 | remove | a member: removes it |

use tierce_collections::random::Random;
use tierce_collections::{CollectionKind, Element, IntText, Set, SnapshotProgress};

use super::Editor;
use super::edits::{Fields, code, write_element};
use super::limits::LimitCells;
use super::part::CollectionPart;
use super::sealed::Sealed;
use crate::codec::{Malformed, Reader, Writer};
use crate::planted::Fault;

const MEMBERS: u8 = code(CollectionKind::Set, 1);
const REMOVE: u8 = code(CollectionKind::Set, 2);

/// An edit, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetEdit<'a> {
    /// Adds these members.
    Members(Fields<'a, &'a [u8]>),
    /// Removes this member.
    Remove(&'a [u8]),
}

impl<'a> SetEdit<'a> {
    /// Reads an edit whose code has been read.
    pub(super) fn read(code: u8, edit: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match code {
            MEMBERS => Self::Members(Fields::read(edit)?),
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
            self.undo_by(|edits| write_removal(edits, member));
        }
        is_new
    }

    /// Removes a member; `false` if it is not there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let is_gone = self.value.remove(member);
        if is_gone {
            self.record(|edits| write_removal(edits, member));
            self.undo_by(|edits| write_member(edits, Element::Bytes(member)));
        }
        is_gone
    }

    /// See [`Set::pop`].
    pub fn pop(&mut self, random: &mut Random, visit: impl FnOnce(Element<'_>)) {
        let (set, mut recorder) = self.split();
        set.pop(random, |member| {
            recorder.record(|edits| write_removal(edits, member.bytes(&mut IntText::new())));
            recorder.undo_by(|edits| write_member(edits, member));
            visit(member);
        });
    }
}

#[inline]
fn write_member(edits: &mut Writer<'_>, member: Element<'_>) {
    edits.begin(MEMBERS);
    edits.count(1);
    write_element(edits, member);
}

fn write_removal(edits: &mut Writer<'_>, member: &[u8]) {
    edits.begin(REMOVE);
    edits.bytes(member);
}

impl Sealed for Set {
    const FAULT_OF_UNDO: Fault = Fault::UndoOfSets;

    fn snapshot_slice(&mut self, bytes_max: usize, edits: &mut Writer<'_>) -> SnapshotProgress {
        Set::snapshot_slice(self, bytes_max, |element| {
            edits.measure(|edits| write_member(edits, element))
        })
    }

    fn encode(&self, edits: &mut Writer<'_>) {
        edits.begin(MEMBERS);
        edits.count(self.len());
        self.iter().for_each(|element| write_element(edits, element));
    }

    fn encode_part(&self, mut cursor: u64, bytes_max: usize, edits: &mut Writer<'_>) -> u64 {
        let end = edits.len() + bytes_max;
        loop {
            cursor = self.scan(cursor, |element| write_member(edits, element));
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
            SetEdit::Remove(member) => _ = self.remove(member),
        }
    }

    fn part_count(code: u8, edit: &mut Reader<'_>) -> Result<u64, Malformed> {
        match code {
            MEMBERS => edit.varint(),
            _ => Err(edit.malformed("an edit that is no part of a set")),
        }
    }

    fn part<'a>(_code: u8, edit: &mut Reader<'a>) -> Result<CollectionPart<'a>, Malformed> {
        edit.bytes().map(CollectionPart::Member)
    }

    fn check(&self) {
        assert_eq!(self.iter().count(), self.len());
        assert!(self.iter().all(|member| self.contains(&member.to_vec()[..])));
    }
}
