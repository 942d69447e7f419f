//! Numbers in lines, in memcached's syntax: a sign and leading zeros are allowed.

use crate::number::{parse_i64, parse_u64};

/// Parses a number without a minus sign; a plus sign is allowed.
#[inline]
pub(super) fn unsigned(word: &[u8]) -> Option<u64> {
    parse_u64(word).or_else(|| parse_u64(significant(word.strip_prefix(b"+").unwrap_or(word))))
}

/// Parses a number with or without a sign.
#[inline]
pub(super) fn signed(word: &[u8]) -> Option<i64> {
    parse_i64(word).or_else(|| lenient(word))
}

/// Parses client flags; bits above the lower 32 are dropped.
#[inline]
pub(super) fn flags(word: &[u8]) -> Option<u32> {
    unsigned(word).map(|flags| flags as u32)
}

#[cold]
fn lenient(word: &[u8]) -> Option<i64> {
    match word.strip_prefix(b"-") {
        Some(digits) => match significant(digits) {
            b"0" => Some(0),
            digits => parse_i64(&[b"-", digits].concat()),
        },
        None => {
            let digits = word.strip_prefix(b"+").unwrap_or(word);
            // A second sign is refused.
            if digits.starts_with(b"-") { None } else { parse_i64(significant(digits)) }
        }
    }
}

/// Strips leading zeros, but keeps the last digit.
fn significant(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    &digits[zeros.min(digits.len().saturating_sub(1))..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_memcached_reads_them() {
        for (word, number) in [
            ("0", Some(0)),
            ("007", Some(7)),
            ("+7", Some(7)),
            ("+07", Some(7)),
            ("18446744073709551615", Some(u64::MAX)),
            ("018446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("-1", None),
            ("++1", None),
            ("+", None),
            ("", None),
            ("1x", None),
            ("1.5", None),
            ("0x10", None),
        ] {
            assert_eq!(unsigned(word.as_bytes()), number, "{word}");
        }
        for (word, number) in [
            ("-5", Some(-5)),
            ("-05", Some(-5)),
            ("-0", Some(0)),
            ("+5", Some(5)),
            ("000", Some(0)),
            ("+-5", None),
            ("--5", None),
            ("-", None),
            ("", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(signed(word.as_bytes()), number, "{word}");
        }
        assert_eq!(flags(b"4294967297"), Some(1));
        assert_eq!(flags(b"-1"), None);
    }
}
