//! A point between keys.
//!
//! The two bounds of a range differ in what they include. A cut is the same point seen from either side, so
//! cuts can be compared with each other.

use std::ops::Bound;

/// A point between keys; no key is at it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Cut {
    At(Vec<u8>, Edge),
    /// Above all keys.
    End,
}

/// The side of its key that a cut is on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Edge {
    Before,
    After,
}

impl Cut {
    pub(crate) fn before(key: &[u8]) -> Self {
        Cut::At(key.to_vec(), Edge::Before)
    }

    pub(crate) fn after(key: &[u8]) -> Self {
        Cut::At(key.to_vec(), Edge::After)
    }

    /// Returns the upper end of a range as a cut.
    pub(crate) fn of_upper(bound: Bound<&[u8]>) -> Self {
        match bound {
            Bound::Included(key) => Cut::after(key),
            Bound::Excluded(key) => Cut::before(key),
            Bound::Unbounded => Cut::End,
        }
    }

    /// Returns the cut as the lower end of a range.
    pub(crate) fn as_lower(&self) -> Bound<&[u8]> {
        match self {
            Cut::At(key, Edge::Before) => Bound::Included(key),
            Cut::At(key, Edge::After) => Bound::Excluded(key),
            Cut::End => unreachable!("nothing begins above all keys"),
        }
    }

    /// Returns the cut as the upper end of a range.
    pub(crate) fn as_upper(&self) -> Bound<&[u8]> {
        match self {
            Cut::At(key, Edge::Before) => Bound::Excluded(key),
            Cut::At(key, Edge::After) => Bound::Included(key),
            Cut::End => Bound::Unbounded,
        }
    }

    /// Returns true if a key is below the cut.
    pub(crate) fn is_above(&self, key: &[u8]) -> bool {
        match self {
            Cut::At(cut, Edge::Before) => key < &cut[..],
            Cut::At(cut, Edge::After) => key <= &cut[..],
            Cut::End => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_ordered_like_the_keys_around_them() {
        let cuts =
            [Cut::before(b""), Cut::after(b""), Cut::before(b"a"), Cut::after(b"a"), Cut::End];
        assert!(cuts.is_sorted_by(|a, b| a < b));
        for cut in &cuts[..4] {
            let (Bound::Included(key) | Bound::Excluded(key)) = cut.as_lower() else {
                unreachable!("made of a key");
            };
            let included_below = matches!(cut.as_upper(), Bound::Included(_));
            assert_eq!(cut.is_above(key), included_below);
            assert_eq!(matches!(cut.as_lower(), Bound::Included(_)), !included_below);
        }
    }
}
