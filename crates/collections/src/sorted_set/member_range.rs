//! Ranges of members in the order of bytes, as for `ZRANGEBYLEX` and similar commands.
//!
//! Such a range makes sense if all scores are equal: then two searches find its ends. If scores differ, members are
//! not in the order of their bytes, and the result is the members that a walk in score order meets: it begins at the
//! first member that is not before the range, and ends at the first one after the range. Redis replicates
//! `ZREMRANGEBYLEX` as such, so a replica of a redis-server has to remove the same members.
//!
//! In a small set the walk meets exactly the same members as in Redis' listpack. In a large one a binary search can
//! find several candidates for "the first member in the range". Redis decides by the random levels of its skiplist, so
//! not even two redis-servers agree.

use std::ops::Range;

use super::tree::{Bound, Side};
use super::{MemberBound, Repr, SortedSet};
use crate::packed::Element;
use crate::text_int::IntText;

type Entry<'a> = (Element<'a>, f64);

/// The direction of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Walk {
    /// From low scores to high ones.
    Upwards,
    /// From high scores to low ones.
    Downwards,
}

impl MemberBound<'_> {
    /// Returns true if a member is not before a range that begins here.
    fn admits_above(self, member: &[u8]) -> bool {
        match self {
            Self::Lowest => true,
            Self::Included(bound) => member >= bound,
            Self::Excluded(bound) => member > bound,
            Self::Highest => false,
        }
    }

    /// Returns true if a member is not after a range that ends here.
    fn admits_below(self, member: &[u8]) -> bool {
        match self {
            Self::Lowest => false,
            Self::Included(bound) => member <= bound,
            Self::Excluded(bound) => member < bound,
            Self::Highest => true,
        }
    }
}

/// Returns true if no member can be in the range.
fn is_empty(min: MemberBound<'_>, max: MemberBound<'_>) -> bool {
    use MemberBound::{Excluded, Highest, Included, Lowest};
    match (min, max) {
        (Highest, _) | (_, Lowest) => true,
        (Included(min), Included(max)) => min > max,
        (Included(min) | Excluded(min), Included(max) | Excluded(max)) => min >= max,
        (Lowest, _) | (_, Highest) => false,
    }
}

impl SortedSet {
    /// Returns the ranks of the members between two bounds in the order of bytes; see the head of this file for
    /// differing scores.
    pub fn ranks_of_members(&self, min: MemberBound<'_>, max: MemberBound<'_>) -> Range<usize> {
        self.page_of_members(min, max, Walk::Upwards, 0, usize::MAX)
    }

    /// Returns the part of those ranks that a walk returns if it skips `offset` members of the range and ends after
    /// `count` more.
    ///
    /// The ranks are ascending in both directions. If scores differ, the skipped members may be outside of the range,
    /// as in Redis.
    pub fn page_of_members(
        &self,
        min: MemberBound<'_>,
        max: MemberBound<'_>,
        walk: Walk,
        offset: usize,
        count: usize,
    ) -> Range<usize> {
        if is_empty(min, max) {
            return 0..0;
        }
        if !self.has_one_score() {
            return self.walk(min, max, walk, offset, count);
        }
        let (start, end) = (self.begin_of(min), self.end_of(max));
        let ranks = start..end.max(start);
        let offset = offset.min(ranks.len());
        let count = count.min(ranks.len() - offset);
        match walk {
            Walk::Upwards => ranks.start + offset..ranks.start + offset + count,
            Walk::Downwards => ranks.end - offset - count..ranks.end - offset,
        }
    }

    fn has_one_score(&self) -> bool {
        let mut entries = self.iter();
        match (entries.next(), entries.next_back()) {
            (Some((_, lowest)), Some((_, highest))) => lowest == highest,
            _ => true,
        }
    }

    /// Returns the rank at which a search finds a member that is not before the range.
    fn begin_of(&self, min: MemberBound<'_>) -> usize {
        match min {
            MemberBound::Lowest => 0,
            MemberBound::Included(member) => self.rank_of(&Bound::Member(member, Side::Before)),
            MemberBound::Excluded(member) => self.rank_of(&Bound::Member(member, Side::After)),
            MemberBound::Highest => self.len(),
        }
    }

    /// Returns the rank at which a search finds a member after the range.
    fn end_of(&self, max: MemberBound<'_>) -> usize {
        match max {
            MemberBound::Lowest => 0,
            MemberBound::Included(member) => self.rank_of(&Bound::Member(member, Side::After)),
            MemberBound::Excluded(member) => self.rank_of(&Bound::Member(member, Side::Before)),
            MemberBound::Highest => self.len(),
        }
    }

    /// Walks through the members; see the head of this file.
    fn walk(
        &self,
        min: MemberBound<'_>,
        max: MemberBound<'_>,
        walk: Walk,
        offset: usize,
        count: usize,
    ) -> Range<usize> {
        let admits_above =
            |(member, _): &Entry<'_>| min.admits_above(member.bytes(&mut IntText::new()));
        let admits_below =
            |(member, _): &Entry<'_>| max.admits_below(member.bytes(&mut IntText::new()));
        let last = self.iter().next_back();
        if !last.as_ref().is_some_and(admits_above)
            || !self.iter().next().as_ref().is_some_and(admits_below)
        {
            return 0..0;
        }
        match walk {
            Walk::Upwards => {
                let first = self.begin_of(min);
                if !self.range(first..first + 1).all(|entry| admits_below(&entry)) {
                    return 0..0;
                }
                let start = first.saturating_add(offset).min(self.len());
                let met = self.range(start..self.len()).take(count);
                start..start + met.take_while(admits_below).count()
            }
            Walk::Downwards => {
                let end = match &self.repr {
                    Repr::Small(_) => {
                        let behind = self.iter().rev().take_while(|entry| !admits_below(entry));
                        self.len() - behind.count()
                    }
                    Repr::Large(_) => self.end_of(max),
                };
                if !self.range(end.saturating_sub(1)..end).all(|entry| admits_above(&entry)) {
                    return 0..0;
                }
                let end = end.saturating_sub(offset);
                let met = self.range(0..end).rev().take(count);
                end - met.take_while(admits_above).count()..end
            }
        }
    }
}
