//! The positions of single entries that a snapshot has saved ahead of its walk.
//!
//! An open-addressing hash table of words. Positions are parts of hashes, so their leading bits determine the slot: no
//! hashing is needed, and a caller that looks up positions in ascending order, as the walk does, reads memory in
//! ascending order, too. A change looks up one unpredictable position and waits for memory, unless that was prefetched
//! ([`VisitedSet::prefetch`]).
//!
//! With more than a few thousand positions there are [`SHARDS`] such tables, each for a part of the axis, so that no
//! change moves millions of positions at once when a table grows.
//!
//! Invariants:
//! - The number of slots of a table is 0 or a power of two, and at least a quarter of them is vacant.
//! - Between the home slot of a position and its actual slot, none is vacant. Nothing is removed.

use crate::geometry::POSITION_BITS;
use crate::prefetch::prefetch_read;

/// A slot without a position; no position has more than [`POSITION_BITS`] bits.
const VACANT: u64 = u64::MAX;

/// Slots of the smallest table.
const SLOTS_MIN: usize = 8;

/// Number of leading bits of a position that select one of the [`SHARDS`].
const SHARD_BITS: u32 = 8;

const SHARDS: usize = 1 << SHARD_BITS;

/// Maximum number of slots of a single table, which is then split: moving that many takes some ten microseconds.
const SINGLE_SLOTS_MAX: usize = if cfg!(test) { 64 } else { 1 << 14 };

/// A set of positions.
#[derive(Debug, Default)]
pub(crate) struct VisitedSet {
    /// None, one for all, or [`SHARDS`].
    shards: Box<[Shard]>,
    len: usize,
}

/// Positions that agree in their leading bits.
#[derive(Debug, Default)]
struct Shard {
    slots: Box<[u64]>,
    len: usize,
}

impl VisitedSet {
    /// Returns the number of positions.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a position; `false` if it already exists.
    #[inline]
    pub(crate) fn insert(&mut self, position: u64) -> bool {
        if self.shards.len() < SHARDS {
            self.make_shards();
        }
        let (shard, bits) = self.shard_of(position);
        let is_new = self.shards[shard].insert(position, bits);
        self.len += usize::from(is_new);
        is_new
    }

    #[inline]
    pub(crate) fn contains(&self, position: u64) -> bool {
        if self.is_empty() {
            return false;
        }
        let (shard, bits) = self.shard_of(position);
        self.shards[shard].contains(position, bits)
    }

    /// Prefetches the memory that [`VisitedSet::insert`] will read.
    #[inline]
    pub(crate) fn prefetch(&self, position: u64) {
        if !self.is_empty() {
            let (shard, bits) = self.shard_of(position);
            self.shards[shard].prefetch(position, bits);
        }
    }

    /// Returns the memory of the slots.
    pub(crate) fn memory_bytes(&self) -> usize {
        let slots: usize = self.shards.iter().map(|shard| size_of_val(&*shard.slots)).sum();
        slots + size_of_val(&*self.shards)
    }

    /// Returns the shard of a position, and the number of leading bits that its positions have in common. There must
    /// be a shard.
    #[inline]
    fn shard_of(&self, position: u64) -> (usize, u32) {
        match self.shards.len() {
            SHARDS => ((position >> (POSITION_BITS - SHARD_BITS)) as usize, SHARD_BITS),
            _ => (0, 0),
        }
    }

    /// Creates the first shard, or all of them if the first has become too large.
    fn make_shards(&mut self) {
        match &self.shards[..] {
            [] => self.shards = [Shard::default()].into(),
            [single] if single.slots.len() > SINGLE_SLOTS_MAX => self.split_singles(),
            _ => {}
        }
    }

    #[cold]
    fn split_singles(&mut self) {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        let before = std::mem::replace(&mut self.shards, shards);
        for position in before.iter().flat_map(|shard| &shard.slots) {
            if *position != VACANT {
                let (shard, bits) = self.shard_of(*position);
                self.shards[shard].insert(*position, bits);
            }
        }
    }
}

/// The positions of a shard have `bits` leading bits in common.
impl Shard {
    fn insert(&mut self, position: u64, bits: u32) -> bool {
        if self.len >= self.slots.len() / 4 * 3 {
            self.grow(bits);
        }
        match self.find(position, bits) {
            Ok(_) => false,
            Err(vacant) => {
                self.slots[vacant] = position;
                self.len += 1;
                true
            }
        }
    }

    #[inline]
    fn contains(&self, position: u64, bits: u32) -> bool {
        self.len > 0 && self.find(position, bits).is_ok()
    }

    #[inline]
    fn prefetch(&self, position: u64, bits: u32) {
        if self.len > 0 {
            prefetch_read(&raw const self.slots[self.home(position, bits)]);
        }
    }

    /// Returns the home slot of a position. There must be slots.
    #[inline]
    fn home(&self, position: u64, bits: u32) -> usize {
        let slots_log = self.slots.len().trailing_zeros();
        (position >> (POSITION_BITS - bits - slots_log)) as usize & (self.slots.len() - 1)
    }

    /// Returns the slot of a position, or its insertion slot.
    #[inline]
    fn find(&self, position: u64, bits: u32) -> Result<usize, usize> {
        let mut at = self.home(position, bits);
        loop {
            match self.slots[at] {
                VACANT => return Err(at),
                there if there == position => return Ok(at),
                _ => at = (at + 1) % self.slots.len(),
            }
        }
    }

    #[cold]
    fn grow(&mut self, bits: u32) {
        let slots = (self.slots.len() * 2).max(SLOTS_MIN);
        let before = std::mem::replace(&mut self.slots, vec![VACANT; slots].into());
        for position in before.into_iter().filter(|position| *position != VACANT) {
            let vacant = self.find(position, bits).expect_err("a position stands in one slot");
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
    use tierce_harness::effort;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { effort(256) },
            ..ProptestConfig::default()
        })]

        /// Positions from the whole axis, and from its end, where slots wrap around.
        #[test]
        fn is_a_set(positions in vec((0..AXIS_END, 0..40_u32), 0..300)) {
            let (mut marks, mut model) = (VisitedSet::default(), BTreeSet::new());
            for (position, shift) in positions {
                let position = AXIS_END - 1 - (position >> shift);
                marks.prefetch(position);
                prop_assert_eq!(marks.contains(position), model.contains(&position));
                prop_assert_eq!(marks.insert(position), model.insert(position));
                prop_assert!(marks.contains(position));
            }
            prop_assert_eq!(marks.len(), model.len());
            prop_assert!(model.iter().all(|position| marks.contains(*position)));
            let fixed = if marks.shards.len() == SHARDS {
                // The smallest tables, and the pointers to them.
                SHARDS * (SLOTS_MIN * 8 + size_of::<Shard>())
            } else {
                SLOTS_MIN * 8 + size_of::<Shard>()
            };
            prop_assert!(marks.memory_bytes() <= 22 * marks.len() + fixed);
        }
    }
}
