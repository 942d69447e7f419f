//! SipHash-1-3, keyed with a secret of the store: the hash that distributes keys.
//!
//! It is part of the format, since hint files are sorted by it; a test fixes its values. It is keyed so that
//! clients, who choose the keys, cannot make them collide.

use siphasher::sip::SipHasher13;

/// Secret with which a store hashes its keys; it is in the manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HashKey(pub [u64; 2]);

impl HashKey {
    /// Returns the hash of `bytes` under this key.
    pub fn hash(self, bytes: &[u8]) -> u64 {
        SipHasher13::new_with_keys(self.0[0], self.0[1]).hash(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::Hasher;

    #[test]
    fn one_three_rounds_agree_with_the_standard_library() {
        for len in 0..70 {
            let input: Vec<u8> = (0..len).map(|i: u8| i.wrapping_mul(7)).collect();
            let mut std = std::hash::DefaultHasher::new();
            std.write(&input);
            assert_eq!(HashKey([0, 0]).hash(&input), std.finish(), "length {len}");
        }
    }

    #[test]
    fn values_are_fixed_by_the_format() {
        // If these values changed, every existing hint file would be in the wrong order.
        let key = HashKey([1, 2]);
        assert_eq!(key.hash(b""), 7_760_257_379_124_798_368);
        assert_eq!(key.hash(b"tierce"), 15_075_782_723_934_706_643);
    }
}
