//! CRC-32C (Castagnoli), the checksum of every file of the store.
//!
//! The value of the polynomial is fixed by the formats. A record's header checksum additionally
//! covers where the record stands ([`Salt`] and offset), so that neither a block written to the
//! wrong place nor a record image inside a user's value passes for a record.

/// A segment's own random number, mixed into its records' header checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Salt(pub(crate) u32);

pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// The checksum of `before` followed by `bytes`, given the checksum of `before`.
pub(crate) fn crc32c_append(before: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(before, bytes)
}

/// Start of a header checksum: the place the header stands at.
pub(crate) fn crc32c_of_place(salt: Salt, offset: u64) -> u32 {
    let mut place = [0; 12];
    place[..4].copy_from_slice(&salt.0.to_le_bytes());
    place[4..].copy_from_slice(&offset.to_le_bytes());
    crc32c(&place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_castagnoli() {
        // The check value of CRC-32C and the all-zero vector of RFC 3720, appendix B.4.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c_append(crc32c(b"12345"), b"6789"), 0xe306_9283);
    }
}
