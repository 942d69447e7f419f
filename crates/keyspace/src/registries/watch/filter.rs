//! Filter that quickly excludes most hashes without watched keys.

use crate::data::key::KeyHash;

/// Minimum number of counters for each watched hash: one in 16 other hashes passes.
const COUNTERS_MIN: usize = 16;
/// Number of counters for each hash in a new filter: room for twice as many hashes.
const COUNTERS_NEW: usize = 2 * COUNTERS_MIN;
/// Number of counters for each hash from which the filter shrinks.
const COUNTERS_MAX: usize = 8 * COUNTERS_NEW;
/// A filter of this length is kept.
const LEN_MIN: usize = 64;

/// Number of watched hashes for each counter. The number of counters is a power of two, or zero.
///
/// **Invariant**: the counter of a hash that was added and not removed is above zero.
#[derive(Debug, Default)]
pub(crate) struct Filter(Box<[u8]>);

impl Filter {
    /// Returns `false` if no key of this hash is watched.
    #[inline]
    pub(crate) fn passes(&self, hash: KeyHash) -> bool {
        self.0.get(self.position(hash)).is_some_and(|counter| *counter > 0)
    }

    /// Returns the counter of a hash; beyond the end without counters.
    #[inline]
    fn position(&self, hash: KeyHash) -> usize {
        // The lowest bits affect neither the shard nor the position in its table.
        hash.0 as usize & self.0.len().wrapping_sub(1)
    }

    /// Returns true if the filter should be rebuilt for so many hashes.
    pub(crate) fn is_unfit(&self, hashes: usize) -> bool {
        let len = self.0.len();
        len < hashes * COUNTERS_MIN || (len > LEN_MIN && len > hashes * COUNTERS_MAX)
    }

    /// Returns a filter for these hashes.
    pub(crate) fn new(hashes: impl ExactSizeIterator<Item = KeyHash>) -> Self {
        let len = (hashes.len() * COUNTERS_NEW).next_power_of_two().max(LEN_MIN);
        let mut filter = Self(vec![0; len].into_boxed_slice());
        hashes.for_each(|hash| filter.add(hash));
        filter
    }

    pub(crate) fn add(&mut self, hash: KeyHash) {
        let position = self.position(hash);
        if let Some(counter) = self.0.get_mut(position) {
            *counter = counter.saturating_add(1);
        }
    }

    pub(crate) fn remove(&mut self, hash: KeyHash) {
        let position = self.position(hash);
        match self.0.get_mut(position) {
            // A saturated counter may represent more hashes.
            Some(&mut u8::MAX) | None => {}
            Some(counter) => *counter -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_passes_and_little_else() {
        let hash = |number: u64| KeyHash(crate::random::mix(number));
        let mut filter = Filter::new((0..1000).map(hash).collect::<Vec<_>>().into_iter());
        (1000..2000).for_each(|number| filter.add(hash(number)));
        (0..500).for_each(|number| filter.remove(hash(number)));
        assert!((500..2000).all(|number| filter.passes(hash(number))));
        let others = (2000..12_000).filter(|number| filter.passes(hash(*number))).count();
        assert!(others < 10_000 / COUNTERS_MIN, "{others} of 10,000 others pass");
        assert!(!filter.is_unfit(2000) && filter.is_unfit(5000) && filter.is_unfit(10));
        assert!(!Filter::default().passes(hash(1)));
    }

    #[test]
    fn a_counter_that_is_full_stays_so() {
        let mut filter = Filter::new([KeyHash(7)].into_iter());
        (0..300).for_each(|_| filter.add(KeyHash(7)));
        (0..301).for_each(|_| filter.remove(KeyHash(7)));
        assert!(filter.passes(KeyHash(7)));
    }
}
