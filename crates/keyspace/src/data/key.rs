//! Keys with their hash, and what the bits of the hash are used for.
//!
//! | bits of the hash, from the top | use |
//! |---|---|
//! | the first `shard_bits` | the shard |
//! | the following 48 | the position in the shard's table |
//! | the rest, at least 6 | none |
//!
//! So the keys of a shard are spread over its table as if there were no shards. The hash is seeded
//! and lives as long as the process: it reaches no file.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_micro_inline};

/// At most this many shard bits, 1024 shards.
pub(crate) const SHARD_BITS_MAX: u32 = 10;

/// The longest key in bytes.
pub const KEY_LEN_MAX: usize = 64 * 1024;

/// Longest value, and longest element of a collection, whatever the options say: lengths are kept in 32 bits,
/// and a block of elements ends at 3.5 GiB.
pub const VALUE_LEN_MAX: usize = 3 << 30;

/// The hash of a key under the keyspace's seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub(crate) u64);

impl KeyHash {
    /// A number that ascends from shard to shard, and within one in the order of its table: a caller that
    /// goes through many keys in this order goes to each shard once. Its lowest 10 bits can be cut off
    /// for that.
    #[inline]
    pub fn ascending(self) -> u64 {
        self.0
    }
}

/// A key together with its hash, made by [`Keyspace::key`](crate::Keyspace::key).
///
/// The hash is computed once per request, when its batch is prefetched, and carried from there.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    bytes: &'a [u8],
    hash: KeyHash,
}

impl<'a> Key<'a> {
    /// `hash` is the hash of `bytes` under the keyspace's seed.
    #[inline]
    pub(crate) fn new(bytes: &'a [u8], hash: KeyHash) -> Self {
        Self { bytes, hash }
    }

    /// The bytes.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The hash.
    #[inline]
    pub fn hash(self) -> KeyHash {
        self.hash
    }
}

/// Computes hashes and takes them apart.
#[derive(Debug)]
pub(crate) struct KeyHasher {
    secrets: RapidSecrets,
    shard_bits: u32,
    /// What is left of 63 bits.
    shard_shift: u32,
}

impl KeyHasher {
    pub(crate) fn new(seed: u64, shard_bits: u32) -> Self {
        assert!(shard_bits <= SHARD_BITS_MAX);
        Self { secrets: RapidSecrets::seed(seed), shard_bits, shard_shift: 63 - shard_bits }
    }

    #[inline]
    pub(crate) fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        Key { bytes, hash: self.hash_bytes(bytes) }
    }

    #[inline]
    pub(crate) fn hash_bytes(&self, bytes: &[u8]) -> KeyHash {
        // The variant for keys of up to 80 bytes, which is what keys are; correct for any length.
        KeyHash(rapidhash_v3_micro_inline::<true, false>(bytes, &self.secrets))
    }

    /// The index of the shard of a key.
    #[inline]
    pub(crate) fn shard(&self, hash: KeyHash) -> usize {
        // Two shifts, for a single shard would be a shift by 64.
        (hash.0 >> 1 >> self.shard_shift) as usize
    }

    /// The hash that the shard's table gets.
    #[inline]
    pub(crate) fn table_hash(&self, hash: KeyHash) -> u64 {
        hash.0 << self.shard_bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::keyspace::Keyspace;

    #[test]
    fn the_top_bits_choose_the_shard_and_the_others_remain() {
        let hash = KeyHash(0xABCD_EF01_2345_6789);
        for (shard_bits, shard, table_hash) in [
            (0, 0, 0xABCD_EF01_2345_6789),
            (4, 0xA, 0xBCDE_F012_3456_7890),
            (8, 0xAB, 0xCDEF_0123_4567_8900),
            (10, 0x2AF, 0x37BC_048D_159E_2400),
        ] {
            let hasher = KeyHasher::new(1, shard_bits);
            assert_eq!(hasher.shard(hash), shard, "{shard_bits} bits");
            assert_eq!(hasher.table_hash(hash), table_hash, "{shard_bits} bits");
        }
    }

    #[test]
    fn a_known_hash_is_that_of_the_same_place_only() {
        let keyspace = Keyspace::new(crate::Options::default()).unwrap();
        let (bytes, copy) = (b"key key".to_vec(), b"key key".to_vec());
        let known = KeyHash(7);
        assert_ne!(keyspace.hash(&bytes), known);
        let key = |bytes, hashed| keyspace.key_as(bytes, hashed).hash();
        assert_eq!(key(&bytes, Some((&bytes, known))), known);
        for other in
            [None, Some((&copy[..], known)), Some((&bytes[..3], known)), Some((b"", known))]
        {
            assert_eq!(key(&bytes, other), keyspace.hash(&bytes), "{other:?}");
        }
        // Another key with the same bytes at its front.
        assert_eq!(key(&bytes[..3], Some((&bytes, known))), keyspace.hash(b"key"));
    }

    #[test]
    fn another_seed_is_another_hash() {
        let hash = |seed| KeyHasher::new(seed, 8).hash_bytes(b"the same key");
        assert_eq!(hash(1), hash(1));
        assert_ne!(hash(1), hash(2));
    }
}
