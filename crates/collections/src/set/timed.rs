//! A set some of whose members have deadlines: a plain set, and a hash with the deadlines.
//!
//! So giving a member of a large set its first deadline takes constant time, and a set becomes a plain one again
//! when no member has a deadline any more.
//!
//! Invariants:
//! - Each field of `deadlines` is a member, has a deadline, and has no value.
//! - While the members are being saved, `saved` has the deadline that each member with a changed one had when the
//!   snapshot began.

use std::cell::Cell;

use super::{Repr, Set};
use crate::hash::{Former, Hash};
use crate::incremental_snapshot::{SnapshotProgress, Snapshotted};
use crate::limits::PackedLimits;
use crate::packed::Element;
use crate::random::{Random, SPARSE, draw_distinct, draw_repeatedly};
use crate::raw_box::allocated_bytes_of;
use crate::text_int::IntText;

/// Limits of a small hash of deadlines.
const LIMITS: PackedLimits = PackedLimits { entries_max: 128, value_len_max: 64 };

/// Attempts to draw a live member before all are visited.
const SAMPLE_TRIES: usize = 100;

#[derive(Debug)]
pub(super) struct Timed {
    /// All members, including expired ones; a set without deadlines.
    pub(super) members: Set,
    deadlines: Hash,
    saved: Option<Box<Hash>>,
}

impl Timed {
    pub(super) fn new(members: Set) -> Self {
        Self { members, deadlines: Hash::new(), saved: None }
    }

    /// Returns the bytes of memory without those of a snapshot, which its tag counts.
    pub(super) fn allocated_bytes(&self) -> usize {
        allocated_bytes_of::<Self>()
            + self.members.allocated_bytes()
            + self.deadlines.allocated_bytes()
    }

    pub(super) fn duplicate(&self) -> Self {
        let (members, deadlines) = (self.members.duplicate(), self.deadlines.duplicate());
        Self { members, deadlines, saved: None }
    }

    pub(super) fn is_large(&self) -> bool {
        matches!(self.members.repr, Repr::Table(_))
    }

    /// Takes the plain set, if no member has a deadline.
    pub(super) fn take_plain(&mut self) -> Option<Set> {
        let is_plain = self.deadlines.len() == 0 && self.saved.is_none();
        is_plain.then(|| std::mem::replace(&mut self.members, Set::new()))
    }

    /// Returns the deadline of a member.
    pub(super) fn deadline_ms(&self, member: Element<'_>) -> Option<i64> {
        deadline_in(&self.deadlines, member)?
    }

    /// Returns all members with deadlines.
    pub(super) fn deadlines(&self) -> impl Iterator<Item = (Element<'_>, i64)> {
        let fields = self.deadlines.iter();
        fields.map(|field| (field.name, field.deadline_ms.unwrap_or(i64::MAX)))
    }

    /// See [`Hash::next_deadline_ms`].
    #[inline]
    pub(super) fn next_deadline_ms(&self) -> Option<i64> {
        self.deadlines.next_deadline_ms()
    }

    /// See [`Hash::deadline_after`].
    pub(super) fn deadline_after(&mut self, now_ms: i64) -> Option<i64> {
        self.deadlines.deadline_after(now_ms)
    }

    /// Returns true if some members may have expired.
    #[inline]
    pub(super) fn has_due(&self, now_ms: i64) -> bool {
        self.next_deadline_ms().is_some_and(|at| at <= now_ms)
    }

    /// Returns true if all members have expired.
    pub(super) fn is_all_due(&self, now_ms: i64) -> bool {
        self.deadlines.len() == self.members.len() && self.deadlines.is_all_due(now_ms)
    }

    /// Returns true if a member has expired.
    pub(super) fn is_due(&self, member: Element<'_>, now_ms: i64) -> bool {
        self.has_due(now_ms) && self.deadline_ms(member).is_some_and(|at| at <= now_ms)
    }

    pub(super) fn live_len(&self, now_ms: i64) -> usize {
        self.members.len() - (self.deadlines.len() - self.deadlines.live_len(now_ms))
    }

    /// Sets or removes the deadline of a member, and returns the former one.
    pub(super) fn set_deadline(
        &mut self,
        member: Element<'_>,
        deadline_ms: Option<i64>,
    ) -> Option<i64> {
        let former = self.deadline_ms(member);
        if former == deadline_ms {
            return former;
        }
        self.before_change(member, former);
        let mut text = IntText::new();
        let name = member.bytes(&mut text);
        match deadline_ms {
            Some(_) => self.deadlines.put(name, b"", deadline_ms, LIMITS),
            None => self.deadlines.remove(name),
        };
        former
    }

    /// Must be called before a member gets another deadline than `former`.
    fn before_change(&mut self, member: Element<'_>, former: Option<i64>) {
        if self.members.snapshot_id().is_some() {
            note_saved(&mut self.saved, member, former);
            self.count_saved();
        }
    }

    /// Counts the deadlines that were kept as memory of the snapshot.
    fn count_saved(&mut self) {
        if let (Some(saved), Repr::Table(table)) = (&self.saved, &mut self.members.repr) {
            table.count_kept(allocated_bytes_of::<Hash>() + saved.allocated_bytes());
        }
    }

    /// Removes a member.
    pub(super) fn take(&mut self, member: Element<'_>) -> Former {
        let former = self.set_deadline(member, None);
        match self.members.take(member) {
            Former::Absent => Former::Absent,
            Former::Field(_) => Former::Field(former),
        }
    }

    /// See [`Hash::reap`].
    pub(super) fn reap(&mut self, now_ms: i64, steps: usize, mut gone: impl FnMut(Element<'_>)) {
        let Self { members, deadlines, saved } = self;
        let is_being_saved = members.snapshot_id().is_some();
        deadlines.reap(now_ms, steps, |field| {
            if is_being_saved {
                note_saved(saved, field.name, field.deadline_ms);
            }
            members.remove(field.name);
            gone(field.name);
        });
        self.count_saved();
    }

    /// Returns a random live member, if there is one.
    pub(super) fn sample(&self, random: &mut Random, now_ms: i64) -> Option<Element<'_>> {
        self.try_sample(random, now_ms).or_else(|| self.live(now_ms).next())
    }

    /// Returns a random live member, if most are live.
    fn try_sample(&self, random: &mut Random, now_ms: i64) -> Option<Element<'_>> {
        let is_live = |member: &Element<'_>| !self.is_due(*member, now_ms);
        (0..SAMPLE_TRIES).find_map(|_| self.members.sample(random).filter(is_live))
    }

    fn live(&self, now_ms: i64) -> impl Iterator<Item = Element<'_>> {
        self.members.iter().filter(move |member| !self.is_due(*member, now_ms))
    }

    /// See [`Set::sample_repeatedly`].
    pub(super) fn sample_repeatedly<'s>(
        &'s self,
        count: usize,
        random: &mut Random,
        now_ms: i64,
        mut visit: impl FnMut(Element<'s>),
    ) {
        let mut left = count;
        if self.is_large() && count < self.members.len() {
            while left > 0
                && let Some(member) = self.try_sample(random, now_ms)
            {
                visit(member);
                left -= 1;
            }
        }
        if left > 0 {
            draw_repeatedly(self.live(now_ms), left, random, visit);
        }
    }

    /// See [`Set::sample_distinct`].
    pub(super) fn sample_distinct(
        &self,
        count: usize,
        random: &mut Random,
        now_ms: i64,
    ) -> Vec<Element<'_>> {
        if !self.has_due(now_ms) {
            return self.members.sample_distinct(count, random);
        }
        self.draw_few(count, random, now_ms).unwrap_or_else(|| {
            let live: Vec<_> = self.live(now_ms).collect();
            draw_distinct(live.into_iter(), count, random, hash_of, None::<fn(&mut Random) -> _>)
        })
    }

    /// Draws some of many live members; `None` if there are not many.
    fn draw_few(&self, count: usize, random: &mut Random, now_ms: i64) -> Option<Vec<Element<'_>>> {
        if !self.is_large() || count.saturating_mul(SPARSE) > self.members.len() {
            return None;
        }
        // Members drawn before are drawn again and again if few are live.
        let tries = Cell::new(SAMPLE_TRIES + SPARSE * count);
        let draw = |random: &mut Random| {
            tries.set(tries.get().checked_sub(1)?);
            self.try_sample(random, now_ms)
        };
        let drawn = draw_distinct(self.members.iter(), count, random, hash_of, Some(draw));
        (drawn.len() == count).then_some(drawn)
    }

    /// Forgets the deadlines that were kept for a snapshot.
    pub(super) fn end_saving(&mut self) -> Option<Box<Hash>> {
        self.saved.take()
    }

    /// See [`Set::snapshot_slice`].
    pub(super) fn snapshot_slice(
        &mut self,
        bytes_max: usize,
        mut visit: impl FnMut(Element<'_>, Option<i64>) -> usize,
    ) -> SnapshotProgress {
        let Self { members, deadlines, saved } = self;
        let Repr::Table(table) = &mut members.repr else { return SnapshotProgress::Complete };
        let progress = table.snapshot_slice(bytes_max, |member| {
            let changed = saved.as_ref().and_then(|saved| deadline_in(saved, member));
            let deadline_ms = changed.or_else(|| deadline_in(deadlines, member)).flatten();
            visit(member, deadline_ms)
        });
        if progress == SnapshotProgress::Complete {
            *saved = None;
        }
        progress
    }
}

fn hash_of(member: &Element<'_>) -> u64 {
    super::table::hash_of(*member)
}

/// Returns the deadline of a member in a hash of deadlines, if it is there.
fn deadline_in(deadlines: &Hash, member: Element<'_>) -> Option<Option<i64>> {
    // No deadline is at this time.
    let field = deadlines.get(member.bytes(&mut IntText::new()), i64::MIN);
    field.map(|field| field.deadline_ms)
}

/// Keeps the deadline of a member for the snapshot, unless an earlier one is kept.
fn note_saved(saved: &mut Option<Box<Hash>>, member: Element<'_>, deadline_ms: Option<i64>) {
    let saved = saved.get_or_insert_with(|| Box::new(Hash::new()));
    if deadline_in(saved, member).is_none() {
        saved.put(member.bytes(&mut IntText::new()), b"", deadline_ms, LIMITS);
    }
}
