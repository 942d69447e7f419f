//! Integers in canonical form.

/// Digits that always fit in a `u64`, so that accumulating them cannot overflow: 10^19 - 1 < 2^64.
const DIGITS_SAFE_MAX: usize = 19;

/// Parses an `i64` in its canonical spelling, in which it is printed.
///
/// Anything else is `None`: the empty text, a plus sign, spaces, leading zeros, `-0`, and values
/// out of range. So an accepted text can be stored as an integer and printed again without a
/// difference.
///
/// ```
/// use tierce_wire::number::parse_i64;
/// assert_eq!(parse_i64(b"-42"), Some(-42));
/// assert_eq!(parse_i64(b"007"), None);
/// ```
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    match text {
        [b'-', digits @ ..] => {
            let magnitude = parse_canonical(digits).filter(|&m| m != 0 && m <= 1 << 63)?;
            Some((magnitude as i64).wrapping_neg())
        }
        digits => parse_canonical(digits).and_then(|m| i64::try_from(m).ok()),
    }
}

/// Parses a `u64` in its canonical spelling; [`parse_i64`] lists the refused spellings.
#[inline]
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    match text.split_last() {
        Some((&last, head)) if head.len() == DIGITS_SAFE_MAX => {
            let last = digit(last)?;
            parse_canonical(head).filter(|&h| h != 0)?.checked_mul(10)?.checked_add(last)
        }
        _ => parse_canonical(text),
    }
}

/// Parses up to [`DIGITS_SAFE_MAX`] digits without a leading zero.
#[inline]
fn parse_canonical(digits: &[u8]) -> Option<u64> {
    match digits {
        [b'0'] => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= DIGITS_SAFE_MAX => {}
        _ => return None,
    }
    digits.iter().try_fold(0u64, |value, &byte| Some(value * 10 + digit(byte)?))
}

#[inline]
fn digit(byte: u8) -> Option<u64> {
    let digit = byte.wrapping_sub(b'0');
    (digit <= 9).then_some(u64::from(digit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierce_harness::effort;

    #[test]
    fn bounds_of_the_types_are_read() {
        assert_eq!(parse_i64(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(parse_i64(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_i64(b"9223372036854775808"), None);
        assert_eq!(parse_i64(b"-9223372036854775809"), None);
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_u64(b"18446744073709551616"), None);
        assert_eq!(parse_u64(b"99999999999999999999"), None);
        assert_eq!(parse_u64(b"184467440737095516150"), None);
        assert_eq!(parse_u64(b"00000000000000000001"), None);
    }

    #[test]
    fn other_spellings_are_refused() {
        for text in ["", "-", "+1", " 1", "1 ", "01", "-0", "-01", "00", "1a", "1.0", "0x1", "--1"]
        {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
            assert_eq!(parse_u64(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_i64(b"1\0"), None);
        assert_eq!(parse_u64(b"-1"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        #[test]
        fn what_is_printed_is_read(signed: i64, unsigned: u64) {
            prop_assert_eq!(parse_i64(signed.to_string().as_bytes()), Some(signed));
            prop_assert_eq!(parse_u64(unsigned.to_string().as_bytes()), Some(unsigned));
        }

        #[test]
        fn what_is_read_is_the_canonical_spelling(text in "[-+ 0-9]{0,21}") {
            if let Some(value) = parse_i64(text.as_bytes()) {
                prop_assert_eq!(value.to_string(), text.clone());
            }
            if let Some(value) = parse_u64(text.as_bytes()) {
                prop_assert_eq!(value.to_string(), text);
            }
        }
    }
}
