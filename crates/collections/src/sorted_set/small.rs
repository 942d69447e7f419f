//! A small sorted set: alternating members and scores in one block, ordered by both.
//!
//! An integral score is an integer element. Other scores, and negative zero, are their eight bytes, big-endian. If
//! these happen to be the text of an integer, a zero byte precedes them, because the block would store such a text as
//! an integer.

use std::cmp::Ordering;
use std::ops::Range;

use super::tree::{Bound, Side};
use crate::packed::{Element, Iter, Packed, Position};
use crate::text_int::{IntText, parse_int};

/// Elements of a pair.
const PAIR: usize = 2;

/// Maximum number of members of a small sorted set, whatever is configured: searching is linear. Tests have smaller
/// limits.
const MEMBERS_MAX: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };

/// Maximum number of bytes including a new member: far below the limit of a block.
const BYTES_MAX: usize = if cfg!(test) { 1 << 16 } else { 1 << 30 };

const _: () = assert!(PAIR * MEMBERS_MAX <= Packed::LEN_MAX && 2 * BYTES_MAX <= Packed::BYTES_MAX);

/// Whole numbers below this are exact as integers and as doubles.
const WHOLE_MAX: f64 = (1u64 << 53) as f64;

/// Buffer for a score that is not an integer.
type ScoreBytes = [u8; 9];

/// Returns a score in its stored form.
fn element_of(score: f64, bytes: &mut ScoreBytes) -> Element<'_> {
    let whole = score as i64;
    if (whole as f64).to_bits() == score.to_bits() && score.abs() < WHOLE_MAX {
        return Element::Int(whole);
    }
    bytes[1..].copy_from_slice(&score.to_be_bytes());
    let ambiguous = parse_int(&bytes[1..]).is_some();
    Element::Bytes(&bytes[usize::from(!ambiguous)..])
}

/// Returns the score encoded by an element.
#[inline]
fn score_of(element: Element<'_>) -> f64 {
    match element {
        Element::Int(whole) => whole as f64,
        Element::Bytes(bytes) => bytes.last_chunk().map_or(0.0, |last| f64::from_be_bytes(*last)),
    }
}

/// Compares a stored member with bytes.
fn compare(member: Element<'_>, bytes: &[u8]) -> Ordering {
    member.bytes(&mut IntText::new()).cmp(bytes)
}

impl Bound<'_> {
    /// Returns true if an entry is before this point.
    fn is_behind(&self, member: Element<'_>, score: f64) -> bool {
        match *self {
            Bound::Score(at, side) => score < at || score == at && side == Side::After,
            Bound::Entry(at, bytes, side) => {
                score < at || score == at && side.is_behind(compare(member, bytes))
            }
            Bound::Member(bytes, side) => side.is_behind(compare(member, bytes)),
        }
    }
}

pub(super) struct Small {
    packed: Packed,
}

impl Small {
    pub(super) const fn new() -> Self {
        Self { packed: Packed::new() }
    }

    pub(super) fn of(packed: Packed) -> Self {
        Self { packed }
    }

    pub(super) fn into_packed(self) -> Packed {
        self.packed
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.packed.len() / PAIR
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        self.packed.allocated_bytes()
    }

    pub(super) fn duplicate(&self) -> Self {
        Self { packed: self.packed.duplicate() }
    }

    /// Returns the position of a member.
    #[inline]
    pub(super) fn find(&self, member: &[u8]) -> Option<Position> {
        self.packed.find(self.packed.start(), member, PAIR)
    }

    /// Returns the score of the member at a position.
    #[inline]
    pub(super) fn score_at(&self, at: Position) -> f64 {
        score_of(self.packed.get(self.packed.next(at)))
    }

    /// Returns the number of entries before a point.
    pub(super) fn rank_of(&self, bound: &Bound<'_>) -> usize {
        self.range(0..self.len())
            .take_while(|(member, score)| bound.is_behind(*member, *score))
            .count()
    }

    /// Returns true if a new member of this length may be added.
    #[inline]
    pub(super) fn has_room_for(&self, member_len: usize) -> bool {
        self.len() < MEMBERS_MAX && self.packed.bytes_len().saturating_add(member_len) <= BYTES_MAX
    }

    /// Adds a member that does not exist.
    pub(super) fn add(&mut self, member: &[u8], score: f64) {
        let at = self.place(member, score);
        self.packed.insert(at, element_of(score, &mut ScoreBytes::default()));
        self.packed.insert(at, member);
    }

    /// Returns the position for a new entry.
    fn place(&self, member: &[u8], score: f64) -> Position {
        let point = Bound::Entry(score, member, Side::Before);
        // New entries are often the last.
        if self
            .range(0..self.len())
            .next_back()
            .is_none_or(|(last, score)| point.is_behind(last, score))
        {
            return self.packed.end();
        }
        let mut entries = self.packed.iter();
        loop {
            let at = entries.position();
            match (entries.next(), entries.next()) {
                (Some(member), Some(score)) if point.is_behind(member, score_of(score)) => {}
                _ => return at,
            }
        }
    }

    /// Sets the score of the member at a position.
    pub(super) fn change(&mut self, at: Position, member: &[u8], score: f64) {
        self.remove_at(at);
        self.add(member, score);
    }

    /// Removes the member at a position.
    pub(super) fn remove_at(&mut self, at: Position) {
        self.packed.remove(at, PAIR);
    }

    /// Removes the entries of some ranks, which exist.
    pub(super) fn remove_range(&mut self, ranks: Range<usize>) {
        self.packed.remove(self.packed.seek(PAIR * ranks.start), PAIR * ranks.len());
    }

    pub(super) fn range(&self, ranks: Range<usize>) -> SmallIter<'_> {
        SmallIter {
            front: self.packed.iter_from(self.packed.seek(PAIR * ranks.start)),
            back: self.packed.iter_until(self.packed.seek(PAIR * ranks.end)),
            left: ranks.len(),
        }
    }
}

/// Entries of some ranks, from either end.
#[derive(Clone)]
pub(super) struct SmallIter<'a> {
    /// Entries from the next one from the front on.
    front: Iter<'a>,
    /// Entries up to the next one from the back.
    back: Iter<'a>,
    /// Number of remaining entries, from either end.
    left: usize,
}

impl<'a> Iterator for SmallIter<'a> {
    type Item = (Element<'a>, f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let member = self.front.next()?;
        Some((member, score_of(self.front.next()?)))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl DoubleEndedIterator for SmallIter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let score = score_of(self.back.next_back()?);
        Some((self.back.next_back()?, score))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_come_back_bit_by_bit() {
        let digits = f64::from_be_bytes(*b"12345678");
        let negative = f64::from_be_bytes(*b"-1234567");
        let whole = [0.0, 1.0, -1.0, 12_345_678.0, -1_234_567.0, 9_007_199_254_740_991.0];
        let other = [
            0.5,
            digits,
            negative,
            1e300,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MIN_POSITIVE,
            9_007_199_254_740_992.0,
            -9.3e18,
            f64::MAX,
        ];
        for (score, is_whole) in
            whole.map(|score| (score, true)).into_iter().chain(other.map(|score| (score, false)))
        {
            let mut packed = Packed::new();
            packed.push_back(element_of(score, &mut ScoreBytes::default()));
            let kept = packed.get(packed.start());
            assert_eq!(matches!(kept, Element::Int(_)), is_whole, "{score}");
            assert_eq!(score_of(kept).to_bits(), score.to_bits(), "{score}");
        }
    }
}
