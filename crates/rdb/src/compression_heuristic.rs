//! Predicts from earlier strings of a length if compressing another one is worth a try.
//!
//! An attempt takes half the time of writing an entry, and values of similar length tend to be alike. If the
//! strings of a length class do not shrink, only few of them are tried, until one does.

/// Number of failed attempts in a row after which most strings are no longer tried.
const MISSES_MAX: u32 = 16;

/// From then on one in this many is tried. So a change is noticed after as many strings on average.
const TRY_EVERY: u32 = 64;

/// Number of length classes. Lengths with the same highest bit share a class.
const CLASSES: usize = usize::BITS as usize + 1;

/// State of each length class.
#[derive(Debug)]
pub(crate) struct CompressionHeuristic {
    /// Number of strings in a row that did not shrink, or were not tried.
    misses: [u32; CLASSES],
}

impl Default for CompressionHeuristic {
    fn default() -> Self {
        CompressionHeuristic { misses: [0; CLASSES] }
    }
}

impl CompressionHeuristic {
    /// Returns true if a string of this length should be compressed. The caller then reports the outcome.
    pub(crate) fn is_tried(&mut self, len: usize) -> bool {
        let misses = self.of(len);
        if *misses < MISSES_MAX {
            return true;
        }
        *misses += 1;
        if *misses < MISSES_MAX + TRY_EVERY {
            return false;
        }
        *misses = MISSES_MAX;
        true
    }

    /// Records the outcome of an attempt.
    pub(crate) fn note(&mut self, len: usize, shrinks: bool) {
        let misses = self.of(len);
        *misses = if shrinks { 0 } else { (*misses + 1).min(MISSES_MAX) };
    }

    fn of(&mut self, len: usize) -> &mut u32 {
        &mut self.misses[(usize::BITS - len.leading_zeros()) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many of `count` incompressible strings of a length are tried.
    fn tried_without_effect(heuristic: &mut CompressionHeuristic, len: usize, count: u32) -> u32 {
        let tries = (0..count).filter(|_| {
            let tried = heuristic.is_tried(len);
            if tried {
                heuristic.note(len, false);
            }
            tried
        });
        tries.count() as u32
    }

    #[test]
    fn what_does_not_shrink_is_seldom_tried() {
        let mut heuristic = CompressionHeuristic::default();
        assert_eq!(tried_without_effect(&mut heuristic, 100, MISSES_MAX), MISSES_MAX);
        assert_eq!(tried_without_effect(&mut heuristic, 100, 10 * TRY_EVERY), 10);
        // Other lengths are not affected.
        assert!(heuristic.is_tried(1000));
        // All are tried again once one has shrunk.
        while !heuristic.is_tried(100) {}
        heuristic.note(100, true);
        assert_eq!(tried_without_effect(&mut heuristic, 100, MISSES_MAX), MISSES_MAX);
    }

    #[test]
    fn every_length_has_a_class() {
        let mut heuristic = CompressionHeuristic::default();
        for len in [0, 1, usize::MAX] {
            assert!(heuristic.is_tried(len));
            heuristic.note(len, false);
        }
    }
}
