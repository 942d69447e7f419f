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

/// The checksum of a place and a header behind it, in one go: what [`crc32c_of_place`] begins.
pub(crate) fn crc32c_at_place(salt: Salt, offset: u64, header: &[u8; 28]) -> u32 {
    let mut both = [0; 40];
    both[..4].copy_from_slice(&salt.0.to_le_bytes());
    both[4..12].copy_from_slice(&offset.to_le_bytes());
    both[12..].copy_from_slice(header);
    crc32c(&both)
}

/// The polynomial, its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// For each byte of a word, by its place: what it adds to the checksum of the word.
static WORD_TABLE: [[u32; 256]; 8] = word_table();

const fn word_table() -> [[u32; 256]; 8] {
    let mut table = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bytes_behind = 0;
        while bytes_behind < 8 {
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
                bit += 1;
            }
            table[7 - bytes_behind][byte] = crc;
            bytes_behind += 1;
        }
        byte += 1;
    }
    table
}

/// The checksum of the eight bytes of a word. So short a run is done by the time that [`crc32c`] has chosen
/// its way.
#[inline]
pub(crate) fn crc32c_of_word(word: u64) -> u32 {
    let bytes = (word ^ u64::from(u32::MAX)).to_le_bytes();
    !WORD_TABLE.iter().zip(bytes).fold(0, |crc, (table, byte)| crc ^ table[usize::from(byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_and_a_header_have_the_checksum_of_their_bytes() {
        let mut word = 0x0123_4567_89ab_cdef_u64;
        for round in 0..1000 {
            word =
                word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(round % 64) ^ u64::from(round);
            assert_eq!(crc32c_of_word(word), crc32c(&word.to_le_bytes()), "{word:#x}");
        }
        assert_eq!(crc32c_of_word(0), crc32c(&[0; 8]));
        let header: [u8; 28] = std::array::from_fn(|at| at as u8 * 7);
        let place = crc32c_of_place(Salt(0xdead_beef), 1 << 33);
        let both = crc32c_at_place(Salt(0xdead_beef), 1 << 33, &header);
        assert_eq!(both, crc32c_append(place, &header));
    }

    #[test]
    fn is_castagnoli() {
        // The check value of CRC-32C and the all-zero vector of RFC 3720, appendix B.4.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c_append(crc32c(b"12345"), b"6789"), 0xe306_9283);
    }
}
