//! Passwords, stored as hashes only.

use std::fmt;

use super::sha256;

/// The SHA-256 of a password.
#[derive(Clone, Copy)]
pub struct PasswordHash([u8; sha256::LEN]);

impl PasswordHash {
    /// Hashes a password.
    #[must_use]
    pub fn of(password: &[u8]) -> Self {
        Self(sha256::hash(password))
    }

    /// Parses 64 lower-case hexadecimal digits; returns `None` for anything else.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (pairs, rest) = text.as_chunks::<2>();
        if !rest.is_empty() || pairs.len() != sha256::LEN {
            return None;
        }
        let mut hash = [0; sha256::LEN];
        for (byte, [high, low]) in hash.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(Self(hash))
    }
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// The comparison takes equal time for all positions of the first difference.
impl PartialEq for PasswordHash {
    fn eq(&self, other: &Self) -> bool {
        let differing = self.0.iter().zip(&other.0).fold(0, |seen, (a, b)| seen | (a ^ b));
        std::hint::black_box(differing) == 0
    }
}

impl fmt::Display for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(redacted)")
    }
}

#[cfg(test)]
mod tests {
    use super::PasswordHash;

    #[test]
    fn a_hash_reads_back_and_nothing_else_is_one() {
        let hash = PasswordHash::of(b"secret");
        let text = hash.to_string();
        assert_eq!(PasswordHash::parse(text.as_bytes()), Some(hash));
        for wrong in ["", "ab", &text[1..], &text.to_uppercase(), &format!("{}g", &text[1..])] {
            assert_eq!(PasswordHash::parse(wrong.as_bytes()), None, "{wrong}");
        }
        assert!(PasswordHash::of(b"secret") != PasswordHash::of(b"Secret"));
        assert!(!format!("{hash:?}").contains(&text[..8]));
    }
}
