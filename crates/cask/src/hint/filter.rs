//! A Bloom filter over the keys of a segment, kept in its hint file.
//!
//! Before compaction drops a tombstone, it checks with the filter whether an older segment may hold the key. Ten bits
//! per key and seven probes give 1 % false positives, each of which only keeps a tombstone until the next compaction.

const BITS_PER_KEY: usize = 10;
const PROBES: u64 = 7;

/// Answers "no" or "maybe".
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Filter {
    bits: Vec<u8>,
}

impl Filter {
    pub(crate) fn with_capacity(keys: usize) -> Self {
        Filter { bits: vec![0; (keys * BITS_PER_KEY).div_ceil(8).max(8)] }
    }

    pub(crate) fn from_bytes(bits: Vec<u8>) -> Option<Self> {
        (!bits.is_empty()).then_some(Filter { bits })
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bits
    }

    pub(crate) fn insert(&mut self, hash: u64) {
        for bit in probes(hash, self.bits.len()) {
            self.bits[bit / 8] |= 1 << (bit % 8);
        }
    }

    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        probes(hash, self.bits.len()).all(|bit| self.bits[bit / 8] & (1 << (bit % 8)) != 0)
    }
}

/// Double hashing: the step is odd, and the high bits of each value choose the bit.
fn probes(hash: u64, bytes: usize) -> impl Iterator<Item = usize> {
    let bits = bytes as u64 * 8;
    let step = hash.rotate_left(32) | 1;
    (0..PROBES).map(move |i| {
        let value = hash.wrapping_add(step.wrapping_mul(i));
        ((u128::from(value) * u128::from(bits)) >> 64) as usize
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierce_storage::hash::HashKey;

    #[test]
    fn knows_its_keys_and_few_others() {
        let hash = |i: u32| HashKey([1, 2]).hash(&i.to_le_bytes());
        let mut filter = Filter::with_capacity(10_000);
        (0..10_000).for_each(|i| filter.insert(hash(i)));
        assert!((0..10_000).all(|i| filter.may_contain(hash(i))));
        let wrong = (10_000..30_000).filter(|&i| filter.may_contain(hash(i))).count();
        assert!(wrong < 20_000 * 2 / 100, "{wrong} of 20000");
    }
}
