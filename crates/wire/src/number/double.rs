//! Doubles: scores of sorted sets, coordinates, and replies of that type.

use std::fmt;
use std::io::Write;
use std::ops::Deref;

use super::rounding::{Format, Unrounded};
use super::spelling::{Magnitude, Spelling};

const FORMAT: Format = Format { precision: 53, exponent_min: -1074, exponent_max: 971 };

/// Bits of the mantissa that are stored; the leading one is implied.
const STORED_BITS: u32 = 52;

/// Parses a double as Redis does: decimal or hexadecimal with an optional exponent, or an infinity.
/// Returns `None` for everything else: empty texts, spaces anywhere, "nan", numbers that are too
/// great, or so small that zero is nearest.
///
/// ```
/// use tierce_wire::number::parse_f64;
/// assert_eq!(parse_f64(b"-1.5e3"), Some(-1500.0));
/// assert_eq!(parse_f64(b"1.5 "), None);
/// ```
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    let Spelling { negative, magnitude } = Spelling::parse(text)?;
    let (digits, value) = match &magnitude {
        Magnitude::Infinite => {
            return Some(if negative { f64::NEG_INFINITY } else { f64::INFINITY });
        }
        Magnitude::Decimal(digits) => (digits, std::str::from_utf8(text).ok()?.parse().ok()?),
        Magnitude::Hexadecimal(digits) => {
            let (mantissa, exponent) = Unrounded::from_hexadecimal(digits).round(&FORMAT)?;
            let magnitude = assemble(mantissa, exponent);
            (digits, if negative { -magnitude } else { magnitude })
        }
    };
    let is_zero = || digits.significant().next().is_none();
    (value.is_finite() && (value != 0.0 || is_zero())).then_some(value)
}

/// Builds a double from the parts that [`Unrounded::round`] returns.
fn assemble(mantissa: u64, exponent: i32) -> f64 {
    if mantissa >> STORED_BITS == 0 {
        return f64::from_bits(mantissa);
    }
    let biased = (exponent - FORMAT.exponent_min + 1) as u64;
    f64::from_bits(biased << STORED_BITS | (mantissa & ((1 << STORED_BITS) - 1)))
}

/// Digits that suffice to distinguish any double from all others.
const DIGITS_MAX: usize = 17;

/// Upper bound of zeros that are appended to digits; beyond it an exponent is used.
const ZEROS_MAX: usize = 7;

/// Longest text: a sign, all digits and zeros. An exponent needs less: a point and "e-308".
const TEXT_LEN_MAX: usize = 1 + DIGITS_MAX + ZEROS_MAX;

/// Integers up to this magnitude are printed in full, as in Redis; the common rules apply to
/// greater ones.
const PLAIN_INTEGER_MAX: f64 = (i64::MAX / 2) as f64;

/// Text of a double, on the stack.
#[derive(Clone, Copy)]
pub struct DoubleText {
    bytes: [u8; TEXT_LEN_MAX],
    len: usize,
}

/// Prints a double in the form of Redis 7.2: the shortest digits that read back as the same number;
/// integers up to 2^62 in full; an exponent where a number would get long, as in `1e+21` or
/// `1.2345678901234567e+4`; `inf`, `-inf`, `nan` and `-0`.
///
/// Redis' own algorithm, Grisu2, misses the shortest digits for about one double in a thousand,
/// always one with 16 or 17 digits. Then the text differs from Redis', but is the same number.
///
/// ```
/// use tierce_wire::number::format_f64;
/// assert_eq!(&*format_f64(3.0), b"3");
/// assert_eq!(&*format_f64(0.1), b"0.1");
/// ```
pub fn format_f64(value: f64) -> DoubleText {
    if value.is_nan() {
        return DoubleText::of(b"nan");
    }
    if value == 0.0 && value.is_sign_negative() {
        return DoubleText::of(b"-0");
    }
    if value.abs() <= PLAIN_INTEGER_MAX && value.trunc() == value {
        return DoubleText::of(itoa::Buffer::new().format(value as i64).as_bytes());
    }
    let mut text = DoubleText::of(b"");
    if value < 0.0 {
        text.push(b"-");
    }
    if value.is_infinite() {
        text.push(b"inf");
    } else {
        Shortest::of(value.abs()).print(&mut text);
    }
    text
}

/// The shortest decimal digits of a double: `digits * 10^exponent`.
struct Shortest {
    digits: [u8; TEXT_LEN_MAX],
    len: usize,
    exponent: i32,
}

impl Shortest {
    /// Takes the digits from the standard library's text, which has the form `d.ddde-dd`.
    fn of(value: f64) -> Shortest {
        let mut buffer = [0; TEXT_LEN_MAX];
        let mut rest = &mut buffer[..];
        // The buffer is long enough for every double.
        let _ = write!(rest, "{value:e}");
        let text_len = TEXT_LEN_MAX - rest.len();
        let text = &buffer[..text_len];
        let marker = text.iter().position(|&byte| byte == b'e').unwrap_or(text_len);
        let mut shortest = Shortest { digits: [0; TEXT_LEN_MAX], len: 0, exponent: 0 };
        for &byte in text[..marker].iter().filter(|byte| byte.is_ascii_digit()) {
            shortest.digits[shortest.len] = byte;
            shortest.len += 1;
        }
        let scientific = std::str::from_utf8(&text[marker..]).ok();
        let scientific = scientific.and_then(|text| text.get(1..)?.parse::<i32>().ok());
        shortest.exponent = scientific.unwrap_or(0) - (shortest.len as i32 - 1);
        shortest
    }

    /// Prints the digits in Redis' layout; the thresholds are those of Redis.
    fn print(&self, text: &mut DoubleText) {
        let digits = &self.digits[..self.len];
        let scientific = self.exponent + self.len as i32 - 1;
        let magnitude = scientific.unsigned_abs() as usize;
        if self.exponent >= 0 && magnitude < self.len + ZEROS_MAX {
            text.push(digits);
            text.push_zeros(self.exponent as usize);
        } else if self.exponent < 0 && (self.exponent > -7 || magnitude < 4) {
            let decimals = self.exponent.unsigned_abs() as usize;
            let (whole, fraction) = digits.split_at(self.len.saturating_sub(decimals));
            text.push(if whole.is_empty() { b"0" } else { whole });
            text.push(b".");
            text.push_zeros(decimals - fraction.len());
            text.push(fraction);
        } else {
            text.push(&digits[..1]);
            if self.len > 1 {
                text.push(b".");
                text.push(&digits[1..]);
            }
            text.push(if scientific < 0 { b"e-" } else { b"e+" });
            text.push(itoa::Buffer::new().format(magnitude).as_bytes());
        }
    }
}

impl DoubleText {
    fn of(text: &[u8]) -> DoubleText {
        let mut this = DoubleText { bytes: [0; TEXT_LEN_MAX], len: 0 };
        this.push(text);
        this
    }

    fn push(&mut self, text: &[u8]) {
        self.bytes[self.len..self.len + text.len()].copy_from_slice(text);
        self.len += text.len();
    }

    fn push_zeros(&mut self, count: usize) {
        self.bytes[self.len..self.len + count].fill(b'0');
        self.len += count;
    }
}

impl Deref for DoubleText {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl fmt::Debug for DoubleText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierce_harness::effort;

    #[track_caller]
    fn check(value: f64, expected: &str) {
        assert_eq!(format!("{:?}", format_f64(value)), expected);
    }

    #[test]
    fn integers_have_no_point() {
        check(0.0, "0");
        check(-0.0, "-0");
        check(3.0, "3");
        check(-1500.0, "-1500");
        check(1e18, "1000000000000000000");
        check(4611686018427387904.0, "4611686018427387904");
        check(4611686018427388928.0, "4611686018427389000");
        check(5e18, "5e+18");
        check(1e21, "1e+21");
        check(12345678901234567890123.0, "12345678901234568000000");
        check(-123456789012345678901234.0, "-123456789012345690000000");
        check(1234567890123456789012345.0, "1.2345678901234568e+24");
    }

    #[test]
    fn fractions_are_short_or_scientific() {
        check(0.1, "0.1");
        check(-1.5, "-1.5");
        check(0.30000000000000004, "0.30000000000000004");
        check(1234.5678901234567, "1234.5678901234567");
        check(12345.678901234567, "1.2345678901234567e+4");
        check(123456.789, "123456.789");
        check(0.00001, "0.00001");
        check(0.000001, "0.000001");
        check(0.0000001, "1e-7");
        check(0.00012345678, "1.2345678e-4");
        check(0.0012345678, "0.0012345678");
        check(1e300, "1e+300");
        check(-1e-300, "-1e-300");
        check(f64::MAX, "1.7976931348623157e+308");
        check(-f64::MIN_POSITIVE, "-2.2250738585072014e-308");
        check(5e-324, "5e-324");
    }

    #[test]
    fn what_is_no_number_has_a_name() {
        check(f64::INFINITY, "inf");
        check(f64::NEG_INFINITY, "-inf");
        check(f64::NAN, "nan");
        check(-f64::NAN, "nan");
    }

    #[test]
    fn texts_are_read_as_c_reads_them() {
        for (text, expected) in [
            ("0", 0.0),
            ("-0", -0.0),
            ("+1", 1.0),
            ("007", 7.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("1e5", 1e5),
            ("1.E-5", 1e-5),
            ("0x10", 16.0),
            ("-0X.8p+1", -1.0),
            ("0x1.fffffffffffff8p0", 2.0),
            ("0x1p-1074", 5e-324),
            ("0x.fffffffffffff8p-1022", f64::MIN_POSITIVE),
            ("1e-320", 1e-320),
            ("0e-999", 0.0),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
        ] {
            let value = parse_f64(text.as_bytes()).unwrap_or_else(|| panic!("{text:?} is refused"));
            assert_eq!(value.to_bits(), expected.to_bits(), "{text:?}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            " 1",
            "1 ",
            "nan",
            "-nan",
            "1e",
            "abc",
            "1e309",
            "-1e309",
            "1e-400",
            "0x1p1024",
            "0x1p-1076",
        ] {
            assert_eq!(parse_f64(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_f64(b"1\xff"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        #[test]
        fn what_is_printed_reads_back(bits: u64) {
            let value = f64::from_bits(bits);
            let text = format_f64(value);
            if value.is_nan() {
                prop_assert_eq!(&*text, b"nan");
            } else {
                prop_assert_eq!(parse_f64(&text).map(f64::to_bits), Some(bits));
            }
        }

        #[test]
        fn hexadecimal_is_exact(bits in 0..0x7ff0_0000_0000_0000u64) {
            let (fraction, biased) = (bits & ((1 << 52) - 1), (bits >> 52) as i32);
            let (mantissa, exponent) = match biased {
                0 => (fraction, -1074),
                _ => (fraction | 1 << 52, biased - 1075),
            };
            let text = format!("0x{mantissa:x}p{exponent}");
            prop_assert_eq!(parse_f64(text.as_bytes()).map(f64::to_bits), Some(bits));
        }
    }
}
