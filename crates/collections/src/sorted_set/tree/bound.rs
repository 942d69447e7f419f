//! Points between the entries of a tree, and finding them in a node.

use std::cmp::Ordering;

/// The side of its entries that a point is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sorted_set) enum Side {
    Before,
    After,
}

impl Side {
    /// Whether an entry that compares like this with the named one is before the point.
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
    /// All entries with this member, whatever their score. Means something only where all scores are
    /// equal; elsewhere it is some point.
    Member(&'a [u8], Side),
}

impl Bound<'_> {
    /// The number of a node's ordered entries before this point.
    #[inline]
    pub(super) fn partition<'m>(
        &self,
        scores: &[f64],
        member: impl Fn(usize) -> &'m [u8],
    ) -> usize {
        match *self {
            Bound::Score(score, side) => {
                let (lower, equal) = compare_all(scores, score);
                if side == Side::Before { lower } else { lower + equal }
            }
            Bound::Entry(score, bytes, side) => {
                let (lower, equal) = compare_all(scores, score);
                // Only equal scores make it necessary to follow handles.
                lower + partition_index(equal, |at| side.is_behind(member(lower + at).cmp(bytes)))
            }
            Bound::Member(bytes, side) => {
                partition_index(scores.len(), |at| side.is_behind(member(at).cmp(bytes)))
            }
        }
    }
}

/// How many scores are lower than this one, and how many are equal.
///
/// Looks at all, and does not halve: the lines of a node are fetched side by side then, where a binary
/// search would wait for each in turn, and the loop has no branches and works on several at a time.
#[inline]
fn compare_all(scores: &[f64], score: f64) -> (usize, usize) {
    let mut counts = (0, 0);
    for other in scores {
        counts.0 += u64::from(*other < score);
        counts.1 += u64::from(*other == score);
    }
    (counts.0 as usize, counts.1 as usize)
}

/// The first index up to `len` for which `is_before` no longer holds.
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
