//! SipHash-1-3, keyed with a secret of the store: the hash that places keys.
//!
//! It is part of the format (hint files are sorted by it), so it is written out here and does not
//! follow a library's choice. Keyed, because keys may come from strangers: without the secret
//! nobody can make keys that fall together.

/// The secret a store hashes its keys with; it stands in the manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HashKey(pub(crate) [u64; 2]);

impl HashKey {
    /// Hash of `bytes` under this key.
    pub(crate) fn hash(self, bytes: &[u8]) -> u64 {
        siphash::<1, 3>(self.0, bytes)
    }
}

fn siphash<const C: usize, const D: usize>(key: [u64; 2], bytes: &[u8]) -> u64 {
    let mut v = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        absorb::<C>(&mut v, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    // The last word carries the length modulo 256 in its top byte.
    last[7] = bytes.len() as u8;
    absorb::<C>(&mut v, u64::from_le_bytes(last));
    v[2] ^= 0xff;
    for _ in 0..D {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[inline]
fn absorb<const C: usize>(v: &mut [u64; 4], word: u64) {
    v[3] ^= word;
    for _ in 0..C {
        round(v);
    }
    v[0] ^= word;
}

#[inline]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::Hasher;

    #[test]
    fn two_four_rounds_give_the_published_vector() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let input: Vec<u8> = (0..15).collect();
        assert_eq!(siphash::<2, 4>(key, &input), 0xa129_ca61_49be_45e5);
    }

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
        // Were these to change, every hint file in the world would be in the wrong order.
        let key = HashKey([1, 2]);
        assert_eq!(key.hash(b""), 7_760_257_379_124_798_368);
        assert_eq!(key.hash(b"tierce"), 15_075_782_723_934_706_643);
    }
}
