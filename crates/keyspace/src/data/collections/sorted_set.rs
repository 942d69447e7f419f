//! Edits of sorted sets.
//!
//! | edit | fields | meaning |
//! |---|---|---|
//! | 0 | number of members; score and member of each | sets these scores |
//! | 1 | score, member | sets this score |
//! | 2 | member | removes the member |
//!
//! A score is the eight bytes of an `f64`, little-endian; one that is NaN counts as 0.

use std::ops::Range;

use tierce_collections::{CollectionKind, Element, IntText, SnapshotProgress, SortedSet};

use super::Editor;
use super::edits::{Field, Fields, code, write_element};
use super::limits::LimitCells;
use super::part::CollectionPart;
use super::sealed::Sealed;
use crate::codec::{Malformed, Reader, Writer};
use crate::planted::Fault;

const MAKE: u8 = code(CollectionKind::SortedSet, 0);
const SET: u8 = code(CollectionKind::SortedSet, 1);
const REMOVE: u8 = code(CollectionKind::SortedSet, 2);

/// An edit, decoded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SortedSetEdit<'a> {
    /// Sets these scores, none of which is NaN.
    Scores(Fields<'a, (f64, &'a [u8])>),
    /// Removes this member.
    Remove(&'a [u8]),
}

impl<'a> SortedSetEdit<'a> {
    /// Reads an edit whose code has been read.
    pub(super) fn read(code: u8, edit: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match code {
            MAKE => Self::Scores(Fields::read(edit)?),
            SET => Self::Scores(Fields::read_one(edit)?),
            REMOVE => Self::Remove(edit.bytes()?),
            _ => return Err(edit.malformed("an unknown edit of a sorted set")),
        })
    }
}

impl Sealed for SortedSet {
    const FAULT_OF_UNDO: Fault = Fault::UndoOfSortedSets;

    fn snapshot_slice(&mut self, bytes_max: usize, edits: &mut Writer<'_>) -> SnapshotProgress {
        SortedSet::snapshot_slice(self, bytes_max, |member, score| {
            edits.measure(|edits| write_score(edits, Element::Bytes(member), score))
        })
    }

    fn encode(&self, edits: &mut Writer<'_>) {
        edits.begin(MAKE);
        edits.count(self.len());
        self.iter().for_each(|(member, score)| write_scored(edits, member, score));
    }

    fn encode_part(&self, mut cursor: u64, bytes_max: usize, edits: &mut Writer<'_>) -> u64 {
        let end = edits.len() + bytes_max;
        loop {
            cursor = self.scan(cursor, |member, score| write_score(edits, member, score));
            if cursor == 0 || edits.len() >= end {
                return cursor;
            }
        }
    }

    /// The cursor is a rank: inserting members in their order costs a fraction of any other order.
    fn encode_chunk(&self, cursor: u64, bytes_max: usize, edits: &mut Writer<'_>) -> u64 {
        let (end, mut rank) = (edits.len() + bytes_max, cursor as usize);
        for (member, score) in self.range(rank..self.len()) {
            write_score(edits, member, score);
            rank += 1;
            if edits.len() >= end {
                break;
            }
        }
        if rank < self.len() { rank as u64 } else { 0 }
    }

    fn apply(&mut self, edit: SortedSetEdit<'_>, limits: &LimitCells) {
        match edit {
            SortedSetEdit::Scores(members) => {
                let limits = limits.sorted_set();
                members.for_each(|(score, member)| _ = self.load(member, score, &limits));
            }
            SortedSetEdit::Remove(member) => _ = self.remove(member),
        }
    }

    fn part_count(code: u8, edit: &mut Reader<'_>) -> Result<u64, Malformed> {
        match code {
            MAKE => edit.varint(),
            SET => Ok(1),
            _ => Err(edit.malformed("an edit that makes no sorted set")),
        }
    }

    fn part<'a>(_code: u8, edit: &mut Reader<'a>) -> Result<CollectionPart<'a>, Malformed> {
        let (score, member) = Field::read(edit)?;
        Ok(CollectionPart::Scored { member, score })
    }

    fn check(&self) {
        assert_eq!(self.iter().count(), self.len());
        for (rank, (member, score)) in self.iter().enumerate() {
            let found = self.rank(&member.to_vec()).map(|(rank, score)| (rank, score.to_bits()));
            assert_eq!(found, Some((rank, score.to_bits())));
        }
    }
}

fn write_scored(edits: &mut Writer<'_>, member: Element<'_>, score: f64) {
    edits.fixed(score.to_bits());
    write_element(edits, member);
}

impl Editor<'_, SortedSet> {
    /// See [`SortedSet::update`].
    #[inline]
    pub fn update(&mut self, member: &[u8], decide: impl FnOnce(Option<f64>) -> Option<f64>) {
        self.update_adding(0.0, member, decide);
    }

    /// See [`SortedSet::update_adding`].
    #[inline]
    pub fn update_adding(
        &mut self,
        zero: f64,
        member: &[u8],
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) {
        let mut before = None;
        let changed = self.value.update_adding(zero, member, &self.limits.sorted_set(), |old| {
            before = old;
            // An equal score is unchanged, even zero with another sign: a change that is not logged must not happen.
            decide(old).filter(|new| Some(*new) != old)
        });
        if let Some(score) = changed {
            self.record(|edits| write_score(edits, Element::Bytes(member), score));
            self.undo_by(|edits| match before {
                Some(score) => write_score(edits, Element::Bytes(member), score),
                None => write_removal(edits, member),
            });
        }
    }

    /// Removes a member. Returns its score.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let score = self.value.remove(member)?;
        self.record(|edits| write_removal(edits, member));
        self.undo_by(|edits| write_score(edits, Element::Bytes(member), score));
        Some(score)
    }

    /// See [`SortedSet::remove_range`].
    pub fn remove_range(&mut self, ranks: Range<usize>, mut visit: impl FnMut(Element<'_>, f64)) {
        let (set, mut recorder) = self.split();
        set.remove_range(ranks, |member, score| {
            recorder.record(|edits| write_removal(edits, member.bytes(&mut IntText::new())));
            recorder.undo_by(|edits| write_score(edits, member, score));
            visit(member, score);
        });
    }
}

fn write_score(edits: &mut Writer<'_>, member: Element<'_>, score: f64) {
    edits.begin(SET);
    write_scored(edits, member, score);
}

fn write_removal(edits: &mut Writer<'_>, member: &[u8]) {
    edits.begin(REMOVE);
    edits.bytes(member);
}
