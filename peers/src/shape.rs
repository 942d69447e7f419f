//! The workloads: how many records of which size, and what stands in them.

use crate::store::Result;

/// A workload, the same for every store.
#[derive(Clone, Copy)]
pub struct Shape {
    pub name: &'static str,
    pub records: u64,
    pub key_len: usize,
    pub value_len: usize,
    pub threads: u64,
    pub is_compressed: bool,
}

impl Shape {
    /// That of PedroDB's benchmark.
    pub fn small() -> Self {
        Shape {
            name: "small",
            records: 2_000_000,
            key_len: 16,
            value_len: 100,
            threads: 1,
            is_compressed: true,
        }
    }

    /// That of `tierce race`.
    pub fn race() -> Self {
        Shape {
            name: "race",
            records: 960_000,
            key_len: 8,
            value_len: 4096,
            threads: 64,
            is_compressed: false,
        }
    }

    pub fn named(name: &str) -> Result<Self> {
        match name {
            "small" => Ok(Self::small()),
            "race" => Ok(Self::race()),
            _ => Err(format!("there is no shape {name}").into()),
        }
    }

    /// The key of record `n`: every record has one of its own, in random order.
    pub fn key(&self, n: u64, key: &mut Vec<u8>) {
        key.clear();
        // Both steps can be undone, so no two numbers become the same key.
        let mixed = (n ^ (n >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        key.extend_from_slice(&(mixed ^ (mixed >> 32)).to_be_bytes());
        key.resize(self.key_len, b'k');
    }

    /// The value of record `n`. Compression halves it, as it does those of RocksDB's `db_bench`.
    pub fn value(&self, n: u64, value: &mut Vec<u8>) {
        value.clear();
        let mut state = n;
        while value.len() < self.value_len / 2 {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            value.extend_from_slice(&mixed.to_le_bytes());
        }
        value.truncate(self.value_len / 2);
        value.extend_from_within(..);
        value.resize(self.value_len, b'.');
    }

    /// The record that is read as the `n`th: all of them once, not in the order they were written.
    pub fn read_order(&self, n: u64) -> u64 {
        // The multiplier is a prime above any number of records, so it shares no factor with it.
        (u128::from(n) * 4_294_967_291 % u128::from(self.records)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_and_reads_are_permutations() {
        let shape = Shape { records: 10_007, ..Shape::race() };
        let (mut keys, mut reads) = (HashSet::new(), HashSet::new());
        let mut key = Vec::new();
        for n in 0..shape.records {
            shape.key(n, &mut key);
            assert_eq!(key.len(), shape.key_len);
            assert!(keys.insert(key.clone()) && reads.insert(shape.read_order(n)));
        }
        assert!(reads.iter().all(|&n| n < shape.records));
    }

    #[test]
    fn values_have_their_length_and_differ() {
        for shape in [Shape::small(), Shape::race()] {
            let (mut one, mut two) = (Vec::new(), Vec::new());
            shape.value(1, &mut one);
            shape.value(2, &mut two);
            assert!(one.len() == shape.value_len && two.len() == shape.value_len && one != two);
        }
    }
}
