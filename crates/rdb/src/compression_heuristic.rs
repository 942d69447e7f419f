//! Whether to try compressing a string, judged by earlier strings of its length.
//!
//! Trying takes half the time of writing an entry, and values of one length tend to be alike: when those of about a
//! length do not shrink, only few of them are tried, until one does.

/// When this many in a row did not shrink, most are no longer tried.
const MISSES_MAX: u32 = 16;

/// Then one in so many is tried. What starts to shrink is noticed after as many strings on average.
const TRY_EVERY: u32 = 64;

/// Lengths that agree in their highest bit are about the same.
const CLASSES: usize = usize::BITS as usize + 1;

/// What is known of the strings so far, by length.
#[derive(Debug)]
pub(crate) struct CompressionHeuristic {
    /// Strings in a row that did not shrink, or were not tried.
    misses: [u32; CLASSES],
}

impl Default for CompressionHeuristic {
    fn default() -> Self {
        CompressionHeuristic { misses: [0; CLASSES] }
    }
}

impl CompressionHeuristic {
    /// Whether a string of this length is to be compressed, and the outcome noted.
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

    /// Notes how it went.
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

    /// How many of `count` strings of a length that do not shrink are tried.
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
        // Others are not judged by it.
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
