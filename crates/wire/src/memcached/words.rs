//! Splitting a line at blanks.

/// Iterator over the words of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'a>(&'a [u8]);

#[inline]
pub(super) fn words(line: &[u8]) -> Words<'_> {
    Words(line)
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (word, rest) = first_word(self.0);
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }
}

/// Returns the first word of a line and the bytes behind it.
#[inline]
pub(super) fn first_word(mut line: &[u8]) -> (&[u8], &[u8]) {
    while let [b' ', rest @ ..] = line {
        line = rest;
    }
    line.split_at(word_len(line))
}

/// Returns the number of bytes before the first space. Words are keys and numbers of a few bytes: too short for the
/// call of a vectorized search to pay off.
#[inline]
fn word_len(line: &[u8]) -> usize {
    const LOW: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    const BLANKS: u64 = u64::from_ne_bytes([b' '; 8]);
    let (chunks, tail) = line.as_chunks::<8>();
    for (index, chunk) in chunks.iter().enumerate() {
        // The lowest high bit marks a zero byte exactly; a borrow only spoils the bits above it.
        let bytes = u64::from_le_bytes(*chunk) ^ BLANKS;
        let blanks = bytes.wrapping_sub(LOW) & !bytes & HIGH;
        if blanks != 0 {
            return index * 8 + (blanks.trailing_zeros() / 8) as usize;
        }
    }
    let in_tail = tail.iter().position(|&byte| byte == b' ');
    line.len() - tail.len() + in_tail.unwrap_or(tail.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_stands_between_blanks() {
        // Bytes that differ from a space in one bit, or are next to it.
        for byte in [b'a', b'!', 0x1f, 0xa0, 0x00, 0xff] {
            for len in 1..40 {
                for blanks in 1..10 {
                    let word = vec![byte; len];
                    let blanks = vec![b' '; blanks];
                    let line = [&blanks[..], &word, &blanks, b"x", &blanks, &word].concat();
                    let found: Vec<_> = words(&line).collect();
                    assert_eq!(found, [&word[..], b"x", &word], "{byte} {len}");
                    let line = [&word[..], &blanks].concat();
                    assert_eq!(first_word(&line), (&word[..], &blanks[..]));
                    assert_eq!(words(&line).count(), 1);
                }
            }
        }
        assert_eq!(words(b"").count(), 0);
        assert_eq!(first_word(b"   "), (&b""[..], &b""[..]));
    }
}
