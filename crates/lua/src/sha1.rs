//! SHA-1, which identifies scripts.

use std::fmt;

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};

/// Value of each hexadecimal digit, and 255 for other bytes.
const DIGITS: [u8; 256] = {
    let mut digits = [255; 256];
    let mut value = 0;
    while value < 16 {
        let digit = b"0123456789abcdef"[value];
        digits[digit as usize] = value as u8;
        digits[digit.to_ascii_uppercase() as usize] = value as u8;
        value += 1;
    }
    digits
};

/// A SHA-1 hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sha1(pub [u8; 20]);

impl Sha1 {
    /// Parses a hash of 40 hexadecimal digits of either case.
    pub fn from_hex(text: &[u8]) -> Option<Sha1> {
        let mut bytes = [0; 20];
        if text.len() != 2 * bytes.len() {
            return None;
        }
        let (pairs, _) = text.as_chunks::<2>();
        let mut is_wrong = 0;
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            let (high, low) = (DIGITS[usize::from(*high)], DIGITS[usize::from(*low)]);
            is_wrong |= high | low;
            *byte = high << 4 | (low & 15);
        }
        (is_wrong <= 15).then_some(Sha1(bytes))
    }

    /// Returns the hash as 40 lower-case hexadecimal digits.
    pub fn to_hex(&self) -> [u8; 40] {
        let mut text = [0; 40];
        for (digits, byte) in text.chunks_exact_mut(2).zip(self.0) {
            digits[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
            digits[1] = b"0123456789abcdef"[usize::from(byte & 15)];
        }
        text
    }
}

impl fmt::Debug for Sha1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.to_hex()))
    }
}

/// Returns the hash of `bytes`.
pub fn sha1(bytes: &[u8]) -> Sha1 {
    sha1_in_pieces(bytes, usize::MAX, |_| {})
}

/// Returns the hash of `bytes`. `before` is called before each piece, with its length: at most `piece_len` bytes.
pub(crate) fn sha1_in_pieces(
    bytes: &[u8],
    piece_len: usize,
    mut before: impl FnMut(usize),
) -> Sha1 {
    let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    for piece in bytes.chunks(piece_len) {
        before(piece.len());
        context.update(piece);
    }
    Sha1(context.finish().as_ref().try_into().expect("20 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], hex: &str) {
        assert_eq!(sha1(bytes).to_hex(), hex.as_bytes());
        assert_eq!(Sha1::from_hex(hex.to_uppercase().as_bytes()), Some(sha1(bytes)));
    }

    #[test]
    fn known_hashes() {
        check(b"", "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        check(b"return 1", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        check(&[b'a'; 55], "c1c8bbdc22796e28c0e15163d20899b65621d65a");
        check(&[b'a'; 56], "c2db330f6083854c99d4b5bfb6e8f29f201be699");
        check(&[b'a'; 64], "0098ba824b5c16427bd7a1122a5a442a25ec644d");
        check(&[b'a'; 1000], "291e9a6c66994949b57ba5e650361e98fc36b1ba");
    }

    #[test]
    fn what_spells_no_hash() {
        assert_eq!(Sha1::from_hex(b"e0e1"), None);
        assert_eq!(Sha1::from_hex(&[b'g'; 40]), None);
        assert_eq!(Sha1::from_hex(&[b'+'; 40]), None);
    }
}
