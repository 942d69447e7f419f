//! Integers in canonical decimal text.
//!
//! A value such as `12345` may be stored as a number only if its text can be restored byte by byte. So the parser
//! accepts exactly what [`write`](IntText::of) produces: no plus sign, leading zeros, spaces or `-0`, and nothing
//! outside `i64`.

/// The longest text of an `i64`: `-9223372036854775808`.
pub const INT_TEXT_MAX: usize = 20;

/// Parses the canonical decimal text of an `i64`; anything else is `None`.
///
/// ```
/// use tierce_collections::parse_int;
/// assert_eq!(parse_int(b"-15"), Some(-15));
/// assert_eq!([b"+5".as_slice(), b"007", b"-0", b"", b"12ab"].map(parse_int), [None; 5]);
/// ```
#[inline]
pub fn parse_int(text: &[u8]) -> Option<i64> {
    // Nearly every value that is not a number fails on its first byte, before any loop.
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if text.len() <= INT_TEXT_MAX => {}
        _ => return None,
    }
    parse_digits(negative, digits)
}

fn parse_digits(negative: bool, digits: &[u8]) -> Option<i64> {
    let mut magnitude: u64 = 0;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Stack buffer for the text of an `i64`.
#[derive(Clone, Default)]
pub struct IntText {
    buffer: itoa::Buffer,
}

impl IntText {
    /// Creates a buffer for one text.
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }

    /// Formats `value` and returns its text.
    #[inline]
    pub fn of(&mut self, value: i64) -> &[u8] {
        self.buffer.format(value).as_bytes()
    }
}

/// Returns the number of bytes of the canonical text of `value`.
#[inline]
pub fn int_text_len(value: i64) -> usize {
    let digits = value.unsigned_abs().checked_ilog10().unwrap_or(0) as usize + 1;
    digits + usize::from(value < 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierce_harness::effort;

    #[test]
    fn only_canonical_texts_are_numbers() {
        for text in ["0", "-1", "9", "10", "9223372036854775807", "-9223372036854775808"] {
            let value = parse_int(text.as_bytes()).expect(text);
            assert_eq!(IntText::new().of(value), text.as_bytes());
        }
        for text in
            ["", "-", "-0", "+5", "007", "00", "-01", " 1", "1 ", "12ab", "9223372036854775808"]
        {
            assert_eq!(parse_int(text.as_bytes()), None, "{text:?}");
        }
        for text in ["-9223372036854775809", "99999999999999999999", "100000000000000000000"] {
            assert_eq!(parse_int(text.as_bytes()), None, "{text:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        #[test]
        fn texts_and_lengths_round_trip(value in any::<i64>(), shift in 0u32..64) {
            let value = value >> shift;
            let mut text = IntText::new();
            let bytes = text.of(value);
            prop_assert_eq!(int_text_len(value), bytes.len());
            prop_assert_eq!(parse_int(bytes), Some(value));
        }

        #[test]
        fn whatever_parses_is_what_is_written(text in "[-+ 0-9a]{0,21}") {
            if let Some(value) = parse_int(text.as_bytes()) {
                let mut again = IntText::new();
                prop_assert_eq!(again.of(value), text.as_bytes());
            }
        }
    }
}
