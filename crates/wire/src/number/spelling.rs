//! The number syntax of C's `strtod` family, which Redis accepts.
//!
//! A sign; then `inf`, `infinity` or `nan` in any case, or decimal digits with at most one point and an exponent,
//! or `0x`, hexadecimal digits with at most one point and a binary exponent. Like Redis, the parser allows nothing
//! before or after the number, spaces included.

/// The parts of a text that spells a number.
#[derive(Debug, PartialEq)]
pub(super) struct Spelling<'a> {
    pub(super) negative: bool,
    pub(super) magnitude: Magnitude<'a>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Magnitude<'a> {
    Infinite,
    Decimal(Digits<'a>),
    Hexadecimal(Digits<'a>),
}

/// Digits around a point, and an exponent: `whole.fraction * base^exponent`. The base is ten for decimal digits and
/// two for hexadecimal ones. At least one part is not empty.
#[derive(Debug, PartialEq)]
pub(super) struct Digits<'a> {
    whole: &'a [u8],
    fraction: &'a [u8],
    pub(super) exponent: i32,
}

/// Limit to which exponents are clamped: no accepted text is long enough to bring a number with a greater exponent
/// back into a range.
const EXPONENT_MAX: i32 = 1_000_000_000;

impl<'a> Spelling<'a> {
    /// Parses `text`; `None` if it spells no number. "Not a number" is `None` too: no command accepts it.
    pub(super) fn parse(text: &'a [u8]) -> Option<Spelling<'a>> {
        let (negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        let magnitude = match text {
            [b'i' | b'I', ..] => parse_infinity(text)?,
            [b'0', b'x' | b'X', rest @ ..] => {
                Magnitude::Hexadecimal(Digits::parse(rest, u8::is_ascii_hexdigit, b'p')?)
            }
            _ => Magnitude::Decimal(Digits::parse(text, u8::is_ascii_digit, b'e')?),
        };
        Some(Spelling { negative, magnitude })
    }
}

fn parse_infinity(text: &[u8]) -> Option<Magnitude<'static>> {
    let infinite = text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity");
    infinite.then_some(Magnitude::Infinite)
}

impl<'a> Digits<'a> {
    fn parse(text: &'a [u8], is_digit: fn(&u8) -> bool, marker: u8) -> Option<Digits<'a>> {
        let (whole, rest) = split_digits(text, is_digit);
        let (fraction, rest) = match rest {
            [b'.', rest @ ..] => split_digits(rest, is_digit),
            rest => (&rest[..0], rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let exponent = match rest {
            [] => 0,
            [byte, rest @ ..] if byte.eq_ignore_ascii_case(&marker) => parse_exponent(rest)?,
            _ => return None,
        };
        Some(Digits { whole, fraction, exponent })
    }

    /// Returns the digits from the first nonzero one.
    pub(super) fn significant(&self) -> impl Iterator<Item = u8> + Clone {
        self.whole.iter().chain(self.fraction).copied().skip_while(|&digit| digit == b'0')
    }

    /// Returns the number of digits behind the point.
    pub(super) fn fraction_len(&self) -> i32 {
        // A fraction of 2^31 digits is longer than any argument may be.
        i32::try_from(self.fraction.len()).unwrap_or(i32::MAX)
    }
}

fn split_digits(text: &[u8], is_digit: fn(&u8) -> bool) -> (&[u8], &[u8]) {
    let len = text.iter().position(|byte| !is_digit(byte)).unwrap_or(text.len());
    text.split_at(len)
}

fn parse_exponent(text: &[u8]) -> Option<i32> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let magnitude = digits.iter().fold(0i32, |value, digit| {
        value.saturating_mul(10).saturating_add(i32::from(digit - b'0')).min(EXPONENT_MAX)
    });
    Some(if negative { -magnitude } else { magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_decimal(text: &str, negative: bool, significant: &str, fraction_len: i32, exp: i32) {
        let spelling = Spelling::parse(text.as_bytes()).unwrap();
        let Magnitude::Decimal(digits) = spelling.magnitude else { panic!("{spelling:?}") };
        assert_eq!(spelling.negative, negative);
        assert!(digits.significant().eq(significant.bytes()));
        assert_eq!((digits.fraction_len(), digits.exponent), (fraction_len, exp));
    }

    #[test]
    fn decimals_have_optional_parts() {
        check_decimal("0", false, "", 0, 0);
        check_decimal("-12.50e+3", true, "1250", 2, 3);
        check_decimal("+.5", false, "5", 1, 0);
        check_decimal("5.", false, "5", 0, 0);
        check_decimal("00.007E-12", false, "7", 3, -12);
        check_decimal("1e99999999999999999999", false, "1", 0, EXPONENT_MAX);
    }

    #[test]
    fn other_texts_spell_no_number() {
        for text in [
            "", "-", "+", ".", "e5", ".e5", "1e", "1e+", "1 ", " 1", "--1", "+-1", "1.2.3", "0x",
            "0x.", "0x1p", "0xg", "1f", "in", "infi", "infinite", "nan", "1\0", "1,5", "1e5.0",
        ] {
            assert_eq!(Spelling::parse(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn infinities_are_spelled_in_two_ways() {
        for (text, negative) in [("inf", false), ("-INFINITY", true), ("+Inf", false)] {
            let expected = Spelling { negative, magnitude: Magnitude::Infinite };
            assert_eq!(Spelling::parse(text.as_bytes()), Some(expected));
        }
    }
}
