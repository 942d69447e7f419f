//! CRC-32C (Castagnoli), the checksum of every file of the store.
//!
//! The formats fix the polynomial. A record's header checksum also covers the record's location ([`Salt`] and
//! offset). So a block written to the wrong offset, or a record image inside a user's value, never passes for
//! a record.
//!
//! Most inputs are records of a few hundred bytes or less. For these, the crate spends more time on alignment
//! and dispatch than on the sum, so the CPU's instruction is used directly if it exists.
#![allow(unsafe_code, reason = "a call that the processor was asked about; see `crc32c_append`")]

/// A segment's own random number, mixed into its records' header checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Salt(pub u32);

/// Length from which the crate processes three parts of the bytes at the same time.
const LONG_BYTES_MIN: usize = 768;

#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// Returns the checksum of some bytes followed by `bytes`, given the checksum `before` of the former.
#[inline]
pub fn crc32c_append(before: u32, bytes: &[u8]) -> u32 {
    if bytes.len() >= LONG_BYTES_MIN {
        return crc32c::crc32c_append(before, bytes);
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the check above has found the instruction.
        return unsafe { short(before, bytes) };
    }
    crc32c::crc32c_append(before, bytes)
}

/// Does the work of [`crc32c_append`] for few bytes, eight at a time.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "sse4.2")]
fn short(before: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks::<8>();
    let mut crc = u64::from(!before);
    for word in words {
        crc = _mm_crc32_u64(crc, u64::from_le_bytes(*word));
    }
    let mut crc = crc as u32;
    for byte in rest {
        crc = _mm_crc32_u8(crc, *byte);
    }
    !crc
}

/// Starts a header checksum with the location of the header.
pub fn crc32c_of_location(salt: Salt, offset: u64) -> u32 {
    let mut location = [0; 12];
    location[..4].copy_from_slice(&salt.0.to_le_bytes());
    location[4..].copy_from_slice(&offset.to_le_bytes());
    crc32c(&location)
}

/// Returns the checksum of these words' bytes, so that the fields of a header need not be joined in memory
/// first.
#[inline]
pub fn crc32c_of_words<const N: usize>(words: [u64; N]) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the check above has found the instruction.
        return unsafe { of_words(words) };
    }
    words.iter().fold(0, |crc, word| crc32c::crc32c_append(crc, &word.to_le_bytes()))
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "sse4.2")]
fn of_words<const N: usize>(words: [u64; N]) -> u32 {
    let crc = words
        .into_iter()
        .fold(u64::from(!0u32), |crc, word| std::arch::x86_64::_mm_crc32_u64(crc, word));
    !(crc as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_the_checksum_of_their_bytes() {
        let words = [0, 1, u64::MAX, 0x0123_4567_89ab_cdef, 1 << 63];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(crc32c_of_words(words), crc32c(&bytes));
        assert_eq!(crc32c_of_words([words[3]]), crc32c(&bytes[24..32]));
    }

    #[test]
    fn all_lengths_and_places_have_the_same_sum_as_the_crate() {
        let bytes: Vec<u8> = (0..LONG_BYTES_MIN + 20).map(|at| (at * at + 3) as u8).collect();
        for len in (0..70).chain(LONG_BYTES_MIN - 9..LONG_BYTES_MIN + 9) {
            for at in 0..9 {
                let part = &bytes[at..at + len];
                assert_eq!(crc32c(part), crc32c::crc32c(part), "{len} bytes at {at}");
                let after = crc32c_append(0x1234_5678, part);
                assert_eq!(after, crc32c::crc32c_append(0x1234_5678, part), "{len} bytes at {at}");
            }
        }
    }

    #[test]
    fn is_castagnoli() {
        // The check value of CRC-32C and the all-zero vector of RFC 3720, appendix B.4.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c_append(crc32c(b"12345"), b"6789"), 0xe306_9283);
    }
}
