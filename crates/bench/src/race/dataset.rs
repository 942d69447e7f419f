//! The data of the race: keys and values that follow from a seed, so every process can compute the expected data.
//!
//! * Keys are 8 bytes, all different, and spread evenly over all 8-byte values.
//! * Every word of a 4 KiB value depends on its key, its version and the seed, so a value of another key, an older
//!   one, or one shifted by a block is detected.
//! * Making or comparing a value takes a tenth of the time that the fastest disk needs for it: the words are a random
//!   page, each combined with one number that encodes key and version.

use crate::random::Random;

/// Length of a key in bytes.
pub(super) const KEY_LEN: usize = 8;
/// Length of a value in bytes.
pub(super) const VALUE_LEN: usize = 4096;

const WORDS: usize = VALUE_LEN / 8;

pub(super) type Key = [u8; KEY_LEN];

/// Keys and values of one race.
#[derive(Clone, Debug)]
pub(super) struct Dataset {
    /// Start of this race in the sequence of keys.
    first: u64,
    page: Box<[u64; WORDS]>,
}

impl Dataset {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let first = random.bits();
        let page = Box::new(std::array::from_fn(|_| random.bits()));
        Self { first, page }
    }

    /// Returns the key of a number. Different numbers have different keys.
    pub(super) fn key(&self, number: u64) -> Key {
        mix(self.first.wrapping_add(number)).to_be_bytes()
    }

    /// Writes the value of a key in a version.
    pub(super) fn fill(&self, value: &mut [u8; VALUE_LEN], key: Key, version: u64) {
        let stamp = stamp(key, version);
        for (bytes, word) in value.chunks_exact_mut(8).zip(self.page.iter()) {
            bytes.copy_from_slice(&(word ^ stamp).to_le_bytes());
        }
    }

    /// Returns true if this is the whole value of a key in a version.
    pub(super) fn is_value(&self, value: &[u8], key: Key, version: u64) -> bool {
        let stamp = stamp(key, version);
        let words = value.chunks_exact(8).zip(self.page.iter());
        // No early exit: differences are accumulated, so that the compiler can compare whole vectors.
        let differences = words.fold(0, |sum, (bytes, word)| sum | (word_of(bytes) ^ word ^ stamp));
        value.len() == VALUE_LEN && differences == 0
    }

    /// Returns true if one word of the value, chosen by the key, is right. This check is cheap enough for every one
    /// of many readers of the same value.
    pub(super) fn looks_like_value(&self, value: &[u8], key: Key, version: u64) -> bool {
        let at = (u64::from_be_bytes(key) % WORDS as u64) as usize;
        value.len() == VALUE_LEN
            && word_of(&value[at * 8..][..8]) == self.page[at] ^ stamp(key, version)
    }
}

fn word_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("chunks of 8"))
}

fn stamp(key: Key, version: u64) -> u64 {
    mix(u64::from_be_bytes(key) ^ mix(version))
}

/// The finalizer of SplitMix64. Each step can be inverted, so different numbers stay different.
fn mix(number: u64) -> u64 {
    let bits = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// All numbers below a limit, each once, in pseudorandom order.
///
/// Numbers go through a permutation of the next power of two. A number outside the limit is permuted again until it
/// is inside: on average fewer than two rounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shuffle {
    limit: u64,
    bits: u32,
    salt: u64,
}

impl Shuffle {
    pub(super) fn new(limit: u64, salt: u64) -> Self {
        assert!(limit > 0, "there is something to shuffle");
        // At least two bits, so that each half has one.
        let bits = (64 - (limit - 1).leading_zeros()).max(2);
        Self { limit, bits, salt }
    }

    /// Returns the number at a position below the limit.
    pub(super) fn at(&self, position: u64) -> u64 {
        let mut number = position;
        loop {
            number = self.permute(number);
            if number < self.limit {
                return number;
            }
        }
    }

    /// Four rounds of a Feistel network. The halves may differ by one bit in length.
    fn permute(&self, number: u64) -> u64 {
        let low_bits = self.bits / 2;
        let high_bits = self.bits - low_bits;
        let mask = |bits: u32| (1_u64 << bits) - 1;
        let (mut low, mut high) = (number & mask(low_bits), number >> low_bits);
        for round in 0..4 {
            let salt = self.salt.wrapping_add(round);
            low ^= mix(high ^ salt) & mask(low_bits);
            high ^= mix(low ^ !salt) & mask(high_bits);
        }
        (high << low_bits) | low
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_value_is_known_by_key_version_and_seed() {
        let dataset = Dataset::new(1);
        let (key, other) = (dataset.key(0), dataset.key(1));
        let mut value = [0; VALUE_LEN];
        dataset.fill(&mut value, key, 7);
        assert!(dataset.is_value(&value, key, 7) && dataset.looks_like_value(&value, key, 7));
        for (dataset, key, version) in
            [(&dataset, other, 7), (&dataset, key, 8), (&Dataset::new(2), key, 7)]
        {
            assert!(!dataset.is_value(&value, key, version));
            assert!(!dataset.looks_like_value(&value, key, version));
        }
        assert!(!dataset.is_value(&value[..VALUE_LEN - 8], key, 7));
    }

    #[test]
    fn every_flipped_bit_shows() {
        let dataset = Dataset::new(3);
        let key = dataset.key(5);
        let mut value = [0; VALUE_LEN];
        dataset.fill(&mut value, key, 0);
        for byte in 0..VALUE_LEN {
            value[byte] ^= 1 << (byte % 8);
            assert!(!dataset.is_value(&value, key, 0), "byte {byte}");
            value[byte] ^= 1 << (byte % 8);
        }
    }

    #[test]
    fn keys_differ_and_spread() {
        let dataset = Dataset::new(9);
        let keys: BTreeSet<Key> = (0..10_000).map(|number| dataset.key(number)).collect();
        assert_eq!(keys.len(), 10_000);
        let low = keys.iter().filter(|key| key[0] < 0x80).count();
        assert!((4700..5300).contains(&low), "{low}");
    }

    #[test]
    fn a_shuffle_meets_every_number_once() {
        for limit in [1, 2, 3, 5, 64, 1000, 4097] {
            let shuffle = Shuffle::new(limit, 11);
            let met: BTreeSet<u64> = (0..limit).map(|position| shuffle.at(position)).collect();
            assert_eq!(met, (0..limit).collect());
        }
        let moved = (0..1000).filter(|&at| Shuffle::new(1000, 1).at(at) != at).count();
        assert!(moved > 950);
    }
}
