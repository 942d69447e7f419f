//! CRC-64 with the Jones polynomial, as at the end of RDB files and DUMP payloads.
//!
//! Bits are reflected; the sum starts at 0 and is not inverted at the end. So an empty input has the sum 0, which
//! Redis also writes for "no checksum".

use crc_fast::{CrcAlgorithm, Digest};

/// Extends `sum`, the checksum of earlier bytes, by `bytes`. The checksum of no bytes is 0. Pieces of some hundred
/// bytes and more are an order of magnitude faster than small ones.
///
/// ```
/// use tierce_rdb::crc64;
/// assert_eq!(crc64(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
/// assert_eq!(crc64(crc64(0, b"1234"), b"56789"), 0xe9c6_d914_c4b8_d9ca);
/// ```
pub fn crc64(sum: u64, bytes: &[u8]) -> u64 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc64Redis, sum);
    digest.update(bytes);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The polynomial, with the lowest power in the highest bit.
    const POLYNOMIAL_REFLECTED: u64 = 0xad93_d235_94c9_35a9_u64.reverse_bits();

    fn bit_by_bit(bytes: &[u8]) -> u64 {
        let mut sum = 0_u64;
        for &byte in bytes {
            sum ^= u64::from(byte);
            for _ in 0..8 {
                sum = if sum & 1 == 1 { (sum >> 1) ^ POLYNOMIAL_REFLECTED } else { sum >> 1 };
            }
        }
        sum
    }

    #[test]
    fn is_the_sum_of_its_definition() {
        let bytes: Vec<u8> = (0..1000_u32).map(|n| (n * n * 7 + n) as u8).collect();
        for len in 0..bytes.len() {
            assert_eq!(crc64(0, &bytes[..len]), bit_by_bit(&bytes[..len]), "{len} bytes");
        }
    }

    #[test]
    fn can_be_taken_in_pieces() {
        let bytes: Vec<u8> = (0..1000).map(|n| (n * n) as u8).collect();
        for cut in 0..bytes.len() {
            assert_eq!(crc64(crc64(0, &bytes[..cut]), &bytes[cut..]), crc64(0, &bytes));
        }
    }
}
