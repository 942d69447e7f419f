//! Keys with their hash, and the use of its bits.
//!
//! | bits of the hash, from the top | use |
//! |---|---|
//! | the first `shard_bits` | the shard |
//! | the following 48 | the position in the shard's table |
//! | the rest, at least 6 | none |
//!
//! So the keys of a shard are spread over its table as if there were no shards. The hash is seeded and specific to
//! the process: it is never stored in a file.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_micro_inline};

/// Maximum number of shard bits, for 1024 shards.
pub(crate) const SHARD_BITS_MAX: u32 = 10;

/// Maximum length of a key, in bytes.
pub const KEY_LEN_MAX: usize = 64 * 1024;

/// Maximum length of a value, and of an element of a collection, whatever the options say: lengths have 32 bits, and
/// a block of elements ends at 3.5 GiB.
pub const VALUE_LEN_MAX: usize = 3 << 30;

/// The hash of a key under the keyspace's seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub(crate) u64);

impl KeyHash {
    /// Returns a number that ascends from shard to shard, and within a shard in the order of its table. A caller that
    /// visits keys in this order visits each shard once. For that, it may truncate the lowest 10 bits.
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
    /// Combines a key with its hash, which must be that of `bytes` under the keyspace's seed.
    #[inline]
    pub(crate) fn new(bytes: &'a [u8], hash: KeyHash) -> Self {
        Self { bytes, hash }
    }

    /// Returns the bytes.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the hash.
    #[inline]
    pub fn hash(self) -> KeyHash {
        self.hash
    }
}

/// Computes hashes and splits them into their parts.
#[derive(Debug)]
pub(crate) struct KeyHasher {
    secrets: RapidSecrets,
    shard_bits: u32,
    /// Rest of 63 bits.
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
        // The variant for inputs of up to 80 bytes, as keys usually are; correct for any length.
        KeyHash(rapidhash_v3_micro_inline::<true, false>(bytes, &self.secrets))
    }

    /// Returns the index of the shard of a key.
    #[inline]
    pub(crate) fn shard(&self, hash: KeyHash) -> usize {
        // Two shifts, since a single shard would need a shift by 64.
        (hash.0 >> 1 >> self.shard_shift) as usize
    }

    /// Returns the hash for the shard's table.
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
        // Another key that is a prefix of the known one.
        assert_eq!(key(&bytes[..3], Some((&bytes, known))), keyspace.hash(b"key"));
    }

    #[test]
    fn another_seed_is_another_hash() {
        let hash = |seed| KeyHasher::new(seed, 8).hash_bytes(b"the same key");
        assert_eq!(hash(1), hash(1));
        assert_ne!(hash(1), hash(2));
    }
}
