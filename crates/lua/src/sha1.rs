//! SHA-1, which identifies scripts.

use std::fmt;

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

/// Returns the hash of `bytes`. `before` is called before each piece, with its length: about `piece_len` bytes.
pub(crate) fn sha1_in_pieces(
    bytes: &[u8],
    piece_len: usize,
    mut before: impl FnMut(usize),
) -> Sha1 {
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let (blocks, rest) = bytes.as_chunks::<64>();
    for piece in blocks.chunks((piece_len / 64).max(1)) {
        before(piece.len() * 64);
        for block in piece {
            mix(&mut state, block);
        }
    }
    let mut end = [0; 128];
    end[..rest.len()].copy_from_slice(rest);
    end[rest.len()] = 0x80;
    let end_len = if rest.len() < 56 { 64 } else { 128 };
    end[end_len - 8..end_len].copy_from_slice(&(bytes.len() as u64 * 8).to_be_bytes());
    for block in end[..end_len].chunks_exact(64) {
        mix(&mut state, block.try_into().expect("64 bytes"));
    }
    let mut hash = [0; 20];
    for (bytes, word) in hash.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    Sha1(hash)
}

fn mix(state: &mut [u32; 5], block: &[u8; 64]) {
    let mut words = [0_u32; 80];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = u32::from_be_bytes(bytes.try_into().expect("4 bytes"));
    }
    for at in 16..80 {
        let word = words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16];
        words[at] = word.rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (round, word) in words.into_iter().enumerate() {
        let (choice, constant) = match round {
            0..20 => ((b & c) | (!b & d), 0x5a82_7999),
            20..40 => (b ^ c ^ d, 0x6ed9_eba1),
            40..60 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6),
        };
        let next = a.rotate_left(5).wrapping_add(choice).wrapping_add(e);
        let next = next.wrapping_add(constant).wrapping_add(word);
        (a, b, c, d, e) = (next, a, b.rotate_left(30), c, d);
    }
    for (sum, word) in state.iter_mut().zip([a, b, c, d, e]) {
        *sum = sum.wrapping_add(word);
    }
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
