//! Whether it is worth trying to compress a string, going by how it went with others.
//!
//! Trying takes half of the time it takes to write an entry, and values of one length tend to be of one
//! kind: when those of about a length do not shrink, only a few of them are still tried, until one does.

/// When so many in a row did not shrink, most are no longer tried.
const VAIN_MAX: u32 = 16;

/// Then one in so many is tried. What starts to shrink is noticed after as many strings on average.
const TRY_EVERY: u32 = 64;

/// Lengths that agree in their highest bit are about the same.
const CLASSES: usize = usize::BITS as usize + 1;

/// What is known of the strings so far, by length.
#[derive(Debug)]
pub(crate) struct Worth {
    /// Strings in a row that did not shrink, or were not tried.
    vain: [u32; CLASSES],
}

impl Default for Worth {
    fn default() -> Self {
        Worth { vain: [0; CLASSES] }
    }
}

impl Worth {
    /// Whether a string of this length is to be compressed, and the outcome noted.
    pub(crate) fn is_tried(&mut self, len: usize) -> bool {
        let vain = self.of(len);
        if *vain < VAIN_MAX {
            return true;
        }
        *vain += 1;
        if *vain < VAIN_MAX + TRY_EVERY {
            return false;
        }
        *vain = VAIN_MAX;
        true
    }

    /// Notes how it went.
    pub(crate) fn note(&mut self, len: usize, shrinks: bool) {
        let vain = self.of(len);
        *vain = if shrinks { 0 } else { (*vain + 1).min(VAIN_MAX) };
    }

    fn of(&mut self, len: usize) -> &mut u32 {
        &mut self.vain[(usize::BITS - len.leading_zeros()) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `count` strings of a length that do not shrink are tried.
    fn tried_in_vain(worth: &mut Worth, len: usize, count: u32) -> u32 {
        let tries = (0..count).filter(|_| {
            let tried = worth.is_tried(len);
            if tried {
                worth.note(len, false);
            }
            tried
        });
        tries.count() as u32
    }

    #[test]
    fn what_does_not_shrink_is_seldom_tried() {
        let mut worth = Worth::default();
        assert_eq!(tried_in_vain(&mut worth, 100, VAIN_MAX), VAIN_MAX);
        assert_eq!(tried_in_vain(&mut worth, 100, 10 * TRY_EVERY), 10);
        // Others are not judged by it.
        assert!(worth.is_tried(1000));
        // All are tried again once one has shrunk.
        while !worth.is_tried(100) {}
        worth.note(100, true);
        assert_eq!(tried_in_vain(&mut worth, 100, VAIN_MAX), VAIN_MAX);
    }

    #[test]
    fn every_length_has_a_class() {
        let mut worth = Worth::default();
        for len in [0, 1, usize::MAX] {
            assert!(worth.is_tried(len));
            worth.note(len, false);
        }
    }
}
