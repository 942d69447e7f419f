//! Edits of sets.
//!
//! | edit | | |
//! |---|---|---|
//! | 1 | members | varint count, and as many of them: they are in the set |
//! | 2 | remove | a member: it is not in the set |

use tierce_collections::{CollectionKind, Element, IntText, Set, SnapshotProgress};

use super::edits::{Fields, code};
use super::limits::LimitCells;
use super::part::CollectionPart;
use super::sealed::Sealed;
use super::{CollectionType, Editor, collection_type, sealed_type};
use crate::codec::{Malformed, Reader, Writer};

const MEMBERS: u8 = code(CollectionKind::Set, 1);
const REMOVE: u8 = code(CollectionKind::Set, 2);

/// An edit, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetEdit<'a> {
    /// These members are in the set.
    Members(Fields<'a, &'a [u8]>),
    /// This member is not.
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

impl CollectionType for Set {
    const KIND: CollectionKind = CollectionKind::Set;

    collection_type!(Set);
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
            self.record(|edits| write_member(edits, member));
            self.undo_by(|edits| write_removal(edits, member));
        }
        is_new
    }

    /// Removes a member; `false` if it is not there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let is_gone = self.value.remove(member);
        if is_gone {
            self.record(|edits| write_removal(edits, member));
            self.undo_by(|edits| write_member(edits, member));
        }
        is_gone
    }
}

fn write_member(edits: &mut Writer<'_>, member: &[u8]) {
    edits.begin(MEMBERS);
    edits.count(1);
    edits.bytes(member);
}

fn write_removal(edits: &mut Writer<'_>, member: &[u8]) {
    edits.begin(REMOVE);
    edits.bytes(member);
}

fn write_element(edits: &mut Writer<'_>, element: Element<'_>) {
    edits.bytes(element.bytes(&mut IntText::new()));
}

impl Sealed for Set {
    sealed_type!(Set);
    fn snapshot_slice(&mut self, bytes_max: usize, edits: &mut Writer<'_>) -> SnapshotProgress {
        Set::snapshot_slice(self, bytes_max, |element| {
            edits.measure(|edits| {
                edits.begin(MEMBERS);
                edits.count(1);
                write_element(edits, element);
            })
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
            cursor = self.scan(cursor, |element| {
                edits.begin(MEMBERS);
                edits.count(1);
                write_element(edits, element);
            });
            if cursor == 0 || edits.len() >= end {
                return cursor;
            }
        }
    }

    fn apply(
        &mut self,
        code: u8,
        edit: &mut Reader<'_>,
        limits: &LimitCells,
    ) -> Result<(), Malformed> {
        match SetEdit::read(code, edit)? {
            SetEdit::Members(members) => {
                members.for_each(|member| _ = self.add(member, limits.set()));
            }
            SetEdit::Remove(member) => _ = self.remove(member),
        }
        Ok(())
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
}
