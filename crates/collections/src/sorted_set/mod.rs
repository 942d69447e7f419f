//! A sorted set: members with scores, ordered by both.
//!
//! A small one is one block of alternating members and scores in order (`small`). A large one is a counting B+
//! tree of individually allocated members, and a table from a member's bytes to the member (`large`). Operations
//! on large ones take logarithmic time, ranges constant time per member.
//!
//! The order is by score, then by the bytes of the members; zero equals negative zero. A rank is a position in
//! this order, from 0.

mod index;
mod large;
mod member;
mod member_range;
mod small;
mod tree;

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;

use crate::PackedLimits;
use crate::form::Form;
use crate::incremental_snapshot::{IncrementalSnapshot, SnapshotProgress, snapshotted};
use crate::packed::{Element, Packed};
use crate::random::{Random, draw_repeatedly};
use crate::raw_box::RawBox;
use crate::text_int::IntText;

use large::{Large, LargeIter};
use small::{Small, SmallIter};
use tree::{Bound, Side};

pub use member_range::Walk;

/// An end of a range of scores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ScoreBound {
    /// Members of this score belong to the range.
    Included(f64),
    /// Members of this score do not belong to it.
    Excluded(f64),
}

/// An end of a range of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberBound<'a> {
    /// Before all members.
    Lowest,
    /// This member belongs to the range.
    Included(&'a [u8]),
    /// This member does not belong to it.
    Excluded(&'a [u8]),
    /// After all members.
    Highest,
}

/// A sorted set: members with scores, in the order of both.
///
/// No score is NaN: adding one stores 0. Small sets also store zero for a new negative zero.
pub struct SortedSet {
    repr: Repr,
}

enum Repr {
    Small(Small),
    Large(RawBox<Large>),
}

snapshotted!(SortedSet, Repr::Large[large], tag => IncrementalSnapshot::begin(tag));

impl SortedSet {
    /// Creates an empty sorted set.
    #[expect(clippy::new_without_default, reason = "no caller needs a default")]
    pub fn new() -> Self {
        Self { repr: Repr::Small(Small::new()) }
    }

    /// Returns the number of members.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "empty ones vanish")]
    pub fn len(&self) -> usize {
        match &self.repr {
            Repr::Small(small) => small.len(),
            Repr::Large(large) => large.len(),
        }
    }

    /// Returns the bytes it owns, as the allocator counts them.
    #[inline]
    pub fn allocated_bytes(&self) -> usize {
        match &self.repr {
            Repr::Small(small) => small.allocated_bytes(),
            Repr::Large(large) => large.allocated_bytes(),
        }
    }

    /// Returns the name of its encoding for OBJECT ENCODING.
    pub fn encoding(&self) -> &'static str {
        match self.repr {
            Repr::Small(_) => "listpack",
            Repr::Large(_) => "skiplist",
        }
    }

    /// Returns the score of a member.
    #[inline]
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match &self.repr {
            Repr::Small(small) => Some(small.score_at(small.find(member)?)),
            Repr::Large(large) => large.score(member),
        }
    }

    /// Returns the rank of a member, and its score.
    pub fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        match &self.repr {
            Repr::Small(_) => {
                let score = self.score(member)?;
                Some((self.rank_of(&Bound::Entry(score, member, Side::Before)), score))
            }
            Repr::Large(large) => large.rank(member),
        }
    }

    /// Sets the score of a member, which may be new. Returns its old score.
    pub fn insert(&mut self, member: &[u8], score: f64, limits: &PackedLimits) -> Option<f64> {
        let mut old = None;
        self.update(member, limits, |found| {
            old = found;
            Some(score)
        });
        old
    }

    /// Passes the score of a member to `decide` and sets the result; `None` leaves it unchanged.
    ///
    /// So a conditional change costs one search. A score that is equal to the old one is not set: zero stays zero if
    /// negative zero is requested.
    ///
    /// Negative zero becomes zero in a small set, as in Redis. Returns the score that was decided, as it is stored.
    #[inline]
    pub fn update(
        &mut self,
        member: &[u8],
        limits: &PackedLimits,
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> Option<f64> {
        self.update_adding(0.0, member, limits, decide)
    }

    /// Like [`SortedSet::update`], with a zero that is added to the score in a small set: a negative one keeps negative
    /// zero as it is.
    #[inline]
    pub fn update_adding(
        &mut self,
        zero: f64,
        member: &[u8],
        limits: &PackedLimits,
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> Option<f64> {
        self.put(member, limits, decide, |score| score + zero)
    }

    /// Restores the score of a member of a saved set, which may have been large. Returns its old score.
    pub fn load(&mut self, member: &[u8], score: f64, limits: &PackedLimits) -> Option<f64> {
        let mut old = None;
        let decide = |found| {
            old = found;
            Some(score)
        };
        self.put(member, limits, decide, |score| score);
        old
    }

    /// See [`SortedSet::update`]; a small set stores the result of `kept` for a score.
    #[inline]
    fn put(
        &mut self,
        member: &[u8],
        limits: &PackedLimits,
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
        kept: impl FnOnce(f64) -> f64,
    ) -> Option<f64> {
        let decide = |old| decide(old).map(|score| if score.is_nan() { 0.0 } else { score });
        let small = match &mut self.repr {
            Repr::Small(small) => small,
            Repr::Large(large) => {
                let mut decided = None;
                large.update(member, |old| {
                    decided = decide(old);
                    decided
                });
                return decided;
            }
        };
        let found = small.find(member);
        let old = found.map(|at| small.score_at(at));
        let mut score = decide(old)?;
        match (found, old) {
            (Some(at), Some(old)) if old != score => {
                score = kept(score);
                small.change(at, member, score);
            }
            (Some(_), _) => {}
            (None, _)
                if small.len() < limits.entries_max
                    && member.len() <= limits.value_len_max
                    && small.has_room_for(member.len()) =>
            {
                score = kept(score);
                small.add(member, score);
            }
            (None, _) => self.enlarge().add_new(member, score),
        }
        Some(score)
    }

    /// Converts to a large set.
    fn enlarge(&mut self) -> &mut Large {
        let mut large = RawBox::new(Large::new());
        let mut text = IntText::new();
        for (member, score) in self.iter() {
            large.add_new(member.bytes(&mut text), score);
        }
        self.repr = Repr::Large(large);
        match &mut self.repr {
            Repr::Large(large) => large,
            Repr::Small(_) => unreachable!("it was made large"),
        }
    }

    /// Removes a member. Returns its score.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match &mut self.repr {
            Repr::Small(small) => {
                let at = small.find(member)?;
                let score = small.score_at(at);
                small.remove_at(at);
                Some(score)
            }
            Repr::Large(large) => large.remove(member),
        }
    }

    /// Removes the members of some ranks; ranks beyond the end are skipped. Shows each member before its removal, in
    /// ascending order.
    pub fn remove_range(&mut self, ranks: Range<usize>, mut visit: impl FnMut(Element<'_>, f64)) {
        let ranks = self.existing(ranks);
        match &mut self.repr {
            Repr::Small(small) => {
                small.range(ranks.clone()).for_each(|(member, score)| visit(member, score));
                small.remove_range(ranks);
            }
            Repr::Large(large) => {
                large.remove_range(ranks, |member, score| visit(Element::Bytes(member), score));
            }
        }
    }

    /// Returns all members with their scores, in ascending order, from either end.
    pub fn iter(&self) -> Iter<'_> {
        self.range(0..self.len())
    }

    /// Returns the members of some ranks with their scores, in ascending order, from either end; ranks beyond the end
    /// are skipped.
    pub fn range(&self, ranks: Range<usize>) -> Iter<'_> {
        let ranks = self.existing(ranks);
        Iter(match &self.repr {
            Repr::Small(small) => IterRepr::Small(small.range(ranks)),
            Repr::Large(large) => IterRepr::Large(large.range(ranks)),
        })
    }

    fn existing(&self, ranks: Range<usize>) -> Range<usize> {
        let end = ranks.end.min(self.len());
        ranks.start.min(end)..end
    }

    /// Returns the ranks of the members with scores between two bounds.
    pub fn ranks_of_scores(&self, min: ScoreBound, max: ScoreBound) -> Range<usize> {
        let start = match min {
            ScoreBound::Included(score) => Bound::Score(score, Side::Before),
            ScoreBound::Excluded(score) => Bound::Score(score, Side::After),
        };
        let end = match max {
            ScoreBound::Included(score) => Bound::Score(score, Side::After),
            ScoreBound::Excluded(score) => Bound::Score(score, Side::Before),
        };
        let start = self.rank_of(&start);
        start..self.rank_of(&end).max(start)
    }

    /// Returns the number of entries before a point.
    #[inline]
    fn rank_of(&self, bound: &Bound<'_>) -> usize {
        match &self.repr {
            Repr::Small(small) => small.rank_of(bound),
            Repr::Large(large) => large.rank_of(bound),
        }
    }

    /// Visits some members, in no order, and returns the cursor for the next call, 0 after the last one. A scan begins
    /// with 0.
    ///
    /// However the set changes between the calls, a member that stays during the whole scan is visited at least once.
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(Element<'_>, f64)) -> u64 {
        match &self.repr {
            Repr::Small(_) => {
                self.iter().for_each(|(member, score)| visit(member, score));
                0
            }
            Repr::Large(large) => {
                large.scan(cursor, |member, score| visit(Element::Bytes(member), score))
            }
        }
    }

    /// Returns a random member, each with the same probability; `None` only if there is none.
    #[must_use]
    pub fn sample(&self, random: &mut Random) -> Option<(Element<'_>, f64)> {
        let rank = random.below(self.len());
        self.range(rank..rank + 1).next()
    }

    /// Draws this many times a random member, each with the same probability.
    pub fn sample_repeatedly<'s>(
        &'s self,
        count: usize,
        random: &mut Random,
        mut visit: impl FnMut((Element<'s>, f64)),
    ) {
        match self.repr {
            // A small one would be searched from its beginning each time.
            Repr::Small(_) => draw_repeatedly(self.iter(), count, random, visit),
            Repr::Large(_) => {
                for _ in 0..count {
                    let rank = random.below(self.len());
                    self.range(rank..rank + 1).for_each(&mut visit);
                }
            }
        }
    }

    /// Returns a copy.
    pub fn duplicate(&self) -> Self {
        Self {
            repr: match &self.repr {
                Repr::Small(small) => Repr::Small(small.duplicate()),
                Repr::Large(large) => Repr::Large(RawBox::new(large.duplicate())),
            },
        }
    }

    /// Visits members with their scores as they were when the snapshot began, each in one slice, in no order. `visit`
    /// returns the bytes it produced for one, and a slice ends once these reach `bytes_max`. After the last slice the
    /// snapshot is over.
    pub fn snapshot_slice(
        &mut self,
        bytes_max: usize,
        visit: impl FnMut(&[u8], f64) -> usize,
    ) -> SnapshotProgress {
        match &mut self.repr {
            Repr::Large(large) => large.snapshot_slice(bytes_max, visit),
            Repr::Small(_) => SnapshotProgress::Complete,
        }
    }

    /// See [`Collection::into_raw`](crate::Collection::into_raw).
    #[inline]
    #[must_use]
    pub fn into_raw(self) -> (Form, NonNull<u8>) {
        match self.repr {
            Repr::Small(small) => (Form::SortedSetPacked, small.into_packed().into_raw()),
            Repr::Large(large) => (Form::SortedSetTree, large.into_raw().cast()),
        }
    }

    /// See [`Collection::from_raw`](crate::Collection::from_raw).
    ///
    /// # Safety
    ///
    /// As there.
    #[inline]
    pub unsafe fn from_raw(form: Form, pointer: NonNull<u8>) -> Self {
        let repr = if form == Form::SortedSetTree {
            // SAFETY: the caller guarantees that with this form the pointer is that of a box.
            Repr::Large(unsafe { RawBox::from_raw(pointer.cast()) })
        } else {
            // SAFETY: otherwise it is that of a block.
            Repr::Small(Small::of(unsafe { Packed::from_raw(pointer) }))
        };
        Self { repr }
    }
}

impl fmt::Debug for SortedSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Members with their scores, from either end.
#[derive(Clone)]
pub struct Iter<'a>(IterRepr<'a>);

#[derive(Clone)]
enum IterRepr<'a> {
    Small(SmallIter<'a>),
    Large(LargeIter<'a>),
}

impl<'a> Iterator for Iter<'a> {
    type Item = (Element<'a>, f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            IterRepr::Small(small) => small.next(),
            IterRepr::Large(large) => {
                let (member, score) = large.next()?;
                Some((Element::Bytes(member), score))
            }
        }
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            IterRepr::Small(small) => small.size_hint(),
            IterRepr::Large(large) => large.size_hint(),
        }
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            IterRepr::Small(small) => small.next_back(),
            IterRepr::Large(large) => {
                let (member, score) = large.next_back()?;
                Some((Element::Bytes(member), score))
            }
        }
    }
}

impl ExactSizeIterator for Iter<'_> {}

#[cfg(test)]
mod tests;
