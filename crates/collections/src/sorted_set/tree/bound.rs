//! Points between the entries of a tree, and finding them in a node.

use std::cmp::Ordering;

/// Number of scores that are compared together: as many as fit in a cache line.
const GROUP: usize = 8;

/// The side of its entries that a point is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sorted_set) enum Side {
    Before,
    After,
}

impl Side {
    /// Returns true if an entry that compares like this with the named one is before the point.
    #[inline]
    pub(in crate::sorted_set) fn is_behind(self, entry: Ordering) -> bool {
        match self {
            Side::Before => entry == Ordering::Less,
            Side::After => entry != Ordering::Greater,
        }
    }
}

/// A point between two entries, or at an end.
#[derive(Debug, Clone, Copy)]
pub(in crate::sorted_set) enum Bound<'a> {
    /// All entries of this score are on one side.
    Score(f64, Side),
    /// One entry.
    Entry(f64, &'a [u8], Side),
    /// All entries with this member, whatever their score. Meaningful only if all scores are equal; otherwise it is an
    /// arbitrary point.
    Member(&'a [u8], Side),
}

impl Bound<'_> {
    /// Returns the number of a node's ordered entries before this point.
    #[inline]
    pub(super) fn partition<'m>(
        &self,
        scores: &[f64],
        member: impl Fn(usize) -> &'m [u8],
    ) -> usize {
        match *self {
            Bound::Score(score, side) => {
                let (lower, equal) = lower_and_equal(scores, score);
                if side == Side::Before { lower } else { lower + equal }
            }
            Bound::Entry(score, bytes, side) => {
                let (lower, equal) = lower_and_equal(scores, score);
                // Handles are followed only for equal scores.
                lower + partition_index(equal, |at| side.is_behind(member(lower + at).cmp(bytes)))
            }
            Bound::Member(bytes, side) => {
                partition_index(scores.len(), |at| side.is_behind(member(at).cmp(bytes)))
            }
        }
    }
}

/// Counts the ascending scores that are lower than this one, and those that are equal.
#[inline]
fn lower_and_equal(scores: &[f64], score: f64) -> (usize, usize) {
    let lower = count_before(scores, |other| other < score);
    match scores.get(lower) {
        // Usually there is at most one.
        Some(next) if *next == score => {
            (lower, count_before(&scores[lower..], |other| other <= score))
        }
        _ => (lower, 0),
    }
}

/// Counts the scores before the first one for which `is_before` does not hold.
///
/// Compares the last score of each group up to the right one, and counts in that group without branches. It is no
/// binary search: a processor continues with the next group while it waits for one, but each step of a binary search
/// waits.
#[inline]
fn count_before(scores: &[f64], is_before: impl Fn(f64) -> bool) -> usize {
    let (groups, rest) = scores.as_chunks::<GROUP>();
    let passed = groups.iter().take_while(|group| is_before(group[GROUP - 1])).count();
    let count = match groups.get(passed) {
        Some(group) => group.iter().map(|score| u64::from(is_before(*score))).sum(),
        None => rest.iter().map(|score| u64::from(is_before(*score))).sum::<u64>(),
    };
    passed * GROUP + count as usize
}

/// Returns the first index up to `len` for which `is_before` no longer holds.
#[inline]
fn partition_index(len: usize, is_before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = (low + high) / 2;
        if is_before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_compared_as_one_by_one() {
        for len in 0..=64 {
            for each in [1, 3, 9, 64] {
                let scores: Vec<f64> = (0..len).map(|at| f64::from(at / each)).collect();
                for step in -1..=2 * (len + 1) {
                    let score = f64::from(step) / 2.0;
                    let lower = scores.iter().filter(|other| **other < score).count();
                    let equal = scores.iter().filter(|other| **other == score).count();
                    assert_eq!(
                        lower_and_equal(&scores, score),
                        (lower, equal),
                        "{score} in {scores:?}"
                    );
                }
            }
        }
        let extremes = [f64::NEG_INFINITY, -0.0, 0.0, 1.0, f64::INFINITY, f64::INFINITY];
        assert_eq!(lower_and_equal(&extremes, 0.0), (1, 2));
        assert_eq!(lower_and_equal(&extremes, f64::INFINITY), (4, 2));
    }
}
