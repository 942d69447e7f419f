//! The positions of single entries that a snapshot has saved ahead of its walk.
//!
//! An open hash table of words. Positions are parts of hashes, so their leading bits say where one
//! stands: no hashing is needed, and whoever asks for positions in ascending order, as the walk does,
//! reads memory in ascending order, too. A change asks for one position out of nowhere and waits for
//! memory, unless that was asked for before ([`Marks::prefetch`]).
//!
//! Invariants:
//! - The number of slots is 0 or a power of two, and at least a quarter of them is vacant.
//! - Between the slot where a position belongs and the one where it stands, none is vacant. Nothing is
//!   removed.

use crate::geometry::POSITION_BITS;
use crate::prefetch::prefetch_read;

/// A slot without a position; no position has more than [`POSITION_BITS`] bits.
const VACANT: u64 = u64::MAX;

/// Slots of the smallest table.
const SLOTS_MIN: usize = 8;

/// A set of positions.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    slots: Box<[u64]>,
    len: usize,
}

impl Marks {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a position; `false` if it is there already.
    #[inline]
    pub(crate) fn insert(&mut self, position: u64) -> bool {
        if self.len >= self.slots.len() / 4 * 3 {
            self.grow();
        }
        match self.find(position) {
            Ok(_) => false,
            Err(vacant) => {
                self.slots[vacant] = position;
                self.len += 1;
                true
            }
        }
    }

    #[inline]
    pub(crate) fn contains(&self, position: u64) -> bool {
        !self.is_empty() && self.find(position).is_ok()
    }

    /// Begins to fetch what [`Marks::insert`] will read.
    #[inline]
    pub(crate) fn prefetch(&self, position: u64) {
        if !self.is_empty() {
            prefetch_read(&raw const self.slots[self.home(position)]);
        }
    }

    /// The memory of the slots.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    /// Where a position belongs. There must be slots.
    #[inline]
    fn home(&self, position: u64) -> usize {
        let slots_log = self.slots.len().trailing_zeros();
        (position >> (POSITION_BITS - slots_log)) as usize
    }

    /// The slot of a position, or else the one that it would get.
    #[inline]
    fn find(&self, position: u64) -> Result<usize, usize> {
        let mut at = self.home(position);
        loop {
            match self.slots[at] {
                VACANT => return Err(at),
                there if there == position => return Ok(at),
                _ => at = (at + 1) % self.slots.len(),
            }
        }
    }

    #[cold]
    fn grow(&mut self) {
        let slots = (self.slots.len() * 2).max(SLOTS_MIN);
        let before = std::mem::replace(&mut self.slots, vec![VACANT; slots].into());
        for position in before.into_iter().filter(|position| *position != VACANT) {
            let vacant = self.find(position).expect_err("a position stands in one slot");
            self.slots[vacant] = position;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::AXIS_END;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { 256 },
            ..ProptestConfig::default()
        })]

        /// Positions from the whole axis, and from its end, where slots wrap around.
        #[test]
        fn is_a_set(positions in vec((0..AXIS_END, 0..40_u32), 0..300)) {
            let (mut marks, mut model) = (Marks::default(), BTreeSet::new());
            for (position, shift) in positions {
                let position = AXIS_END - 1 - (position >> shift);
                marks.prefetch(position);
                prop_assert_eq!(marks.contains(position), model.contains(&position));
                prop_assert_eq!(marks.insert(position), model.insert(position));
                prop_assert!(marks.contains(position));
            }
            prop_assert_eq!(marks.len(), model.len());
            prop_assert!(model.iter().all(|position| marks.contains(*position)));
            prop_assert!(marks.memory_bytes() <= (22 * marks.len()).max(SLOTS_MIN * 8));
        }
    }
}
