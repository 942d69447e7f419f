//! The arithmetic of `INCRBYFLOAT`, `HINCRBYFLOAT` and `INCREX`.
//!
//! Redis adds in C's `long double` and prints 17 decimals. On x86-64 that type has a 64-bit mantissa, so 0.1 + 0.2
//! gives 0.3. This file does the same arithmetic in integers, so results agree to the last digit on every machine.
//!
//! Decimal fixed point with 17 places gives the same texts for small numbers. It was dropped, because large numbers
//! or many decimals would have needed a second implementation with different results.
//!
//! Reading two common numbers, adding them and printing the sum takes less than a microsecond. The cost grows with
//! the square of the number of digits, to about a millisecond at the ends of the range.

use std::cmp::Ordering;

use super::big::{Big, Remainder};
use super::rounding::{Format, Unrounded, shift_right_rounding};
use super::spelling::{Digits, Magnitude, Spelling};

/// The extended format of x87: 64 bits of mantissa, numbers up to 2^16384.
const FORMAT: Format = Format { precision: 64, exponent_min: -16_445, exponent_max: 16_320 };

/// Longest text accepted as a number; Redis' buffer for it has one byte more.
const TEXT_LEN_MAX: usize = 5 * 1024 - 1;

/// Number of printed decimals.
const DECIMALS: usize = 17;

/// Upper bound of digits before the point; numbers with more exceed the greatest, 1.2e4932.
const WHOLE_DIGITS_MAX: i32 = 4933;

/// Upper bound of zeros behind the point; numbers with more are below half the smallest, 3.6e-4951.
const ZERO_DECIMALS_MAX: i32 = 4951;

/// A number in the range and precision of x87's extended format. Both zeros are equal.
#[derive(Clone, Copy, Debug)]
pub struct LongDouble {
    negative: bool,
    size: Size,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Size {
    /// `mantissa * 2^exponent`. Zero has the mantissa zero. Other numbers have the highest bit set, unless their
    /// exponent is the lowest possible.
    Finite {
        mantissa: u64,
        exponent: i32,
    },
    Infinite,
}

impl LongDouble {
    /// Zero.
    pub const ZERO: Self =
        Self { negative: false, size: Size::Finite { mantissa: 0, exponent: 0 } };
    /// The greatest finite number.
    pub const GREATEST: Self = Self {
        negative: false,
        size: Size::Finite { mantissa: u64::MAX, exponent: FORMAT.exponent_max },
    };
    /// The least finite number.
    pub const LEAST: Self = Self { negative: true, ..Self::GREATEST };

    /// Parses a `long double` as Redis does: decimal or hexadecimal with an optional exponent, or an infinity.
    /// Returns `None` for everything else: empty texts, spaces anywhere, "nan", numbers that are too great or so
    /// small that zero is nearest, and texts of 5 KiB and more.
    pub fn parse(text: &[u8]) -> Option<LongDouble> {
        if text.len() > TEXT_LEN_MAX {
            return None;
        }
        let Spelling { negative, magnitude } = Spelling::parse(text)?;
        let (is_zero, unrounded) = match &magnitude {
            Magnitude::Infinite => return Some(LongDouble { negative, size: Size::Infinite }),
            Magnitude::Decimal(digits) => {
                (digits.significant().next().is_none(), convert_decimal(digits)?)
            }
            Magnitude::Hexadecimal(digits) => {
                (digits.significant().next().is_none(), Unrounded::from_hexadecimal(digits))
            }
        };
        let (mantissa, exponent) = unrounded.round(&FORMAT)?;
        if mantissa == 0 && !is_zero {
            return None;
        }
        Some(LongDouble { negative, size: Size::Finite { mantissa, exponent } })
    }

    /// Returns true unless it is an infinity.
    pub fn is_finite(&self) -> bool {
        matches!(self.size, Size::Finite { .. })
    }

    /// Returns the sum, or `None` if it would be infinite or not a number.
    pub fn checked_add(self, other: LongDouble) -> Option<LongDouble> {
        let (
            Size::Finite { mantissa: a, exponent: a_exponent },
            Size::Finite { mantissa: b, exponent: b_exponent },
        ) = (self.size, other.size)
        else {
            return None;
        };
        // The greater exponent comes first. A zero never comes first: its exponent has no meaning.
        let order = (a == 0).cmp(&(b == 0)).then(b_exponent.cmp(&a_exponent));
        let (greater, lesser, exponent, distance) = match order {
            Ordering::Greater => ((other.negative, b), (self.negative, a), b_exponent, {
                b_exponent.saturating_sub(a_exponent)
            }),
            _ => ((self.negative, a), (other.negative, b), a_exponent, {
                a_exponent.saturating_sub(b_exponent)
            }),
        };
        let (negative, bits) = add_aligned(greater, lesser, distance);
        let unrounded = Unrounded { bits, exponent: exponent - ALIGNMENT as i32 };
        let (mantissa, exponent) = unrounded.round(&FORMAT)?;
        Some(LongDouble { negative, size: Size::Finite { mantissa, exponent } })
    }

    /// Returns the number with the other sign.
    pub fn negated(self) -> LongDouble {
        LongDouble { negative: !self.negative, ..self }
    }

    /// Returns the text that Redis stores: up to 17 decimals without trailing zeros, never an exponent.
    pub fn to_text(self) -> String {
        let Size::Finite { mantissa, exponent } = self.size else {
            return if self.negative { "-inf".into() } else { "inf".into() };
        };
        let magnitude = match usize::try_from(exponent) {
            Ok(exponent) => Big::from_shifted(mantissa, exponent).into_decimal(),
            Err(_) => format_fraction(mantissa, exponent),
        };
        match magnitude.as_str() {
            "0" => magnitude,
            _ if self.negative => format!("-{magnitude}"),
            _ => magnitude,
        }
    }
}

impl PartialEq for LongDouble {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

impl PartialOrd for LongDouble {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        // Mantissas are comparable if the exponents are equal.
        let parts = |number: &Self| match number.size {
            Size::Finite { mantissa: 0, .. } => (false, (i32::MIN, 0)),
            Size::Finite { mantissa, exponent } => (number.negative, (exponent, mantissa)),
            Size::Infinite => (number.negative, (i32::MAX, 0)),
        };
        let ((is_negative, size), (other_is_negative, other_size)) = (parts(self), parts(other));
        Some(match is_negative {
            _ if is_negative != other_is_negative => other_is_negative.cmp(&is_negative),
            false => size.cmp(&other_size),
            true => other_size.cmp(&size),
        })
    }
}

impl From<i64> for LongDouble {
    /// Exact: 64 bits hold every integer.
    fn from(value: i64) -> LongDouble {
        let mantissa = value.unsigned_abs();
        let shift = mantissa.leading_zeros() % u64::BITS;
        let size = Size::Finite { mantissa: mantissa << shift, exponent: -(shift as i32) };
        LongDouble { negative: value < 0, size }
    }
}

/// Converts decimal digits to binary, exact but for the sticky bit; `None` far outside the range.
fn convert_decimal(digits: &Digits<'_>) -> Option<Unrounded> {
    let exponent = digits.exponent.saturating_sub(digits.fraction_len());
    let count = digits.significant().count() as i32;
    if count == 0 {
        return Some(Unrounded { bits: 0, exponent: 0 });
    }
    let whole_digits = exponent.saturating_add(count);
    if !(-ZERO_DECIMALS_MAX..=WHOLE_DIGITS_MAX).contains(&whole_digits) {
        return None;
    }
    let mut big = Big::from_digits(digits.significant());
    if exponent >= 0 {
        big.multiply_five_power(exponent.unsigned_abs());
        let (bits, dropped) = big.leading_bits();
        return Some(Unrounded { bits, exponent: exponent + dropped as i32 });
    }
    let fives = exponent.unsigned_abs();
    // A power of five has less than 2.33 bits for each factor. The quotient needs the bits of the mantissa, one bit
    // for halves and one sticky bit.
    let quotient_len_min = FORMAT.precision as usize + 2;
    let divisor_len_max = fives as usize * 233 / 100 + 1;
    let shift = (divisor_len_max + quotient_len_min).saturating_sub(big.bit_len());
    big.shift_left(shift);
    let remainder = big.divide_five_power(fives);
    let (bits, dropped) = big.leading_bits();
    let bits = bits | u128::from(remainder == Remainder::Positive);
    Some(Unrounded { bits, exponent: exponent - shift as i32 + dropped as i32 })
}

/// Bits by which mantissas are shifted up before the addition: the sum of two still fits in 128 bits.
const ALIGNMENT: u32 = 63;

/// Adds signed mantissas; the second one is `distance` bits lower. Bits that are shifted out are folded into the
/// lowest one. That is exact enough: it happens only if the distance exceeds `ALIGNMENT`, and then the result keeps
/// more than 120 bits.
fn add_aligned(greater: (bool, u64), lesser: (bool, u64), distance: i32) -> (bool, u128) {
    let a = u128::from(greater.1) << ALIGNMENT;
    let b = u128::from(lesser.1) << ALIGNMENT;
    let b = match distance {
        0..=127 => b >> distance | u128::from(b & ((1 << distance) - 1) != 0),
        _ => u128::from(b != 0),
    };
    match (greater.0 == lesser.0, a >= b) {
        (true, _) => (greater.0, a + b),
        (false, true) => (greater.0 && a != b, a - b),
        (false, false) => (lesser.0, b - a),
    }
}

/// Formats `mantissa * 2^exponent` with a negative exponent, rounded to [`DECIMALS`].
fn format_fraction(mantissa: u64, exponent: i32) -> String {
    const SCALE: u128 = 10u128.pow(DECIMALS as u32);
    let scaled = shift_right_rounding(u128::from(mantissa) * SCALE, -exponent);
    let (whole, decimals) = (scaled / SCALE, scaled % SCALE);
    let text = format!("{whole}.{decimals:0DECIMALS$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierce_harness::effort;

    #[track_caller]
    fn parse(text: &str) -> LongDouble {
        LongDouble::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text:?} is refused"))
    }

    #[track_caller]
    fn check_sum(a: &str, b: &str, expected: &str) {
        assert_eq!(parse(a).checked_add(parse(b)).unwrap().to_text(), expected, "{a} + {b}");
        assert_eq!(parse(b).checked_add(parse(a)).unwrap().to_text(), expected, "{b} + {a}");
    }

    /// The results are those of redis-server 7.0 on x86-64.
    #[test]
    fn sums_are_those_of_redis() {
        check_sum("0.1", "0.2", "0.3");
        check_sum("10.5", "0.1", "10.6");
        check_sum("5.0e3", "200", "5200");
        check_sum("3", "1.1", "4.1");
        check_sum("10.6", "-5", "5.6");
        check_sum("1", "-1", "0");
        check_sum("-0", "-0", "0");
        check_sum("1e19", "1", "10000000000000000001");
        check_sum("0x10", "0x.8p1", "17");
        check_sum("3.0000000000000000000000001", "0", "3");
        check_sum("0.00000000000000001", "0", "0.00000000000000001");
        check_sum("0.000000000000000004", "0", "0");
        check_sum("-0.000000000000000004", "0", "0");
        check_sum("1e-4940", "1", "1");
    }

    #[test]
    fn ends_of_the_range_are_known() {
        assert!(LongDouble::parse(b"1.18973149535723176502e+4932").is_some());
        assert_eq!(LongDouble::parse(b"1.18973149535723176602e+4932"), None);
        assert!(LongDouble::parse(b"3.7e-4951").is_some());
        assert!(LongDouble::parse(b"1.9e-4951").is_some());
        assert_eq!(LongDouble::parse(b"1.8e-4951"), None);
        assert_eq!(LongDouble::parse(b"1e-999999999999"), None);
        assert_eq!(LongDouble::parse(b"0e999999999999").unwrap().to_text(), "0");
        let greatest = parse("1.18973149535723176502e+4932");
        assert_eq!(greatest.checked_add(greatest), None);
        assert!(greatest.to_text().starts_with("118973149535723176502126385"));
        assert_eq!(greatest.to_text().len(), 4933);
        assert_eq!(LongDouble::parse(&[b'1'; TEXT_LEN_MAX + 1]), None);
        assert_eq!(parse(&format!("{}1", "0".repeat(TEXT_LEN_MAX - 1))).to_text(), "1");
    }

    #[test]
    fn infinities_are_read_but_not_added() {
        assert!(!parse("-inf").is_finite());
        assert_eq!(parse("-inf").to_text(), "-inf");
        assert_eq!(parse("inf").checked_add(parse("1")), None);
        assert_eq!(parse("1").checked_add(parse("-infinity")), None);
    }

    #[test]
    fn integers_are_exact() {
        for value in [0, 1, -1, 42, i64::MAX, i64::MIN] {
            assert_eq!(LongDouble::from(value).to_text(), value.to_string());
            assert_eq!(LongDouble::from(value), parse(&value.to_string()));
        }
    }

    #[test]
    fn numbers_have_an_order() {
        let texts = [
            "-inf",
            "-1.18973149535723176502e+4932",
            "-2",
            "-1.5",
            "-3.7e-4951",
            "0",
            "3.7e-4951",
            "7.4e-4951",
            "1",
            "1.00000000000000001",
            "1e19",
            "1.18973149535723176502e+4932",
            "inf",
        ];
        let numbers = texts.map(parse);
        for (at, a) in numbers.iter().enumerate() {
            for (other, b) in numbers.iter().enumerate() {
                let order = a.partial_cmp(b);
                assert_eq!(order, Some(at.cmp(&other)), "{} and {}", texts[at], texts[other]);
                assert_eq!(a.negated().partial_cmp(&b.negated()), order.map(Ordering::reverse));
            }
        }
        assert_eq!(parse("-0"), LongDouble::from(0));
        assert_eq!(LongDouble::GREATEST, parse("1.18973149535723176502e+4932"));
        assert_eq!(LongDouble::LEAST, LongDouble::GREATEST.negated());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        /// Below 32 the errors of two conversions and a sum, three halves of 2^-59, are less than half of the last
        /// decimal.
        #[test]
        fn small_decimals_add_as_on_paper(
            a in -15_999_999i64..16_000_000,
            b in -15_999_999i64..16_000_000,
        ) {
            let text = |value: i64| {
                let sign = if value < 0 { "-" } else { "" };
                let value = value.unsigned_abs();
                let text = format!("{sign}{}.{:06}", value / 1_000_000, value % 1_000_000);
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            };
            let sum = parse(&text(a)).checked_add(parse(&text(b))).unwrap();
            prop_assert_eq!(sum.to_text(), text(a + b));
        }

        /// A double is exact in 64 bits, in every spelling.
        #[test]
        fn doubles_are_read_exactly(value in proptest::num::f64::NORMAL | proptest::num::f64::SUBNORMAL) {
            let bits = value.abs().to_bits();
            let (fraction, biased) = (bits & ((1 << 52) - 1), (bits >> 52) as i32);
            let (mantissa, exponent) = match biased {
                0 => (fraction, -1074),
                _ => (fraction | 1 << 52, biased - 1075),
            };
            let shift = mantissa.leading_zeros();
            let size = Size::Finite { mantissa: mantissa << shift, exponent: exponent - shift as i32 };
            let expected = LongDouble { negative: value < 0.0, size };
            // Rust prints a double's exact value if the precision suffices.
            prop_assert_eq!(parse(&format!("{value:.1100}")), expected);
            let hexadecimal = format!("{}0x{mantissa:x}p{exponent}", if value < 0.0 { "-" } else { "" });
            prop_assert_eq!(parse(&hexadecimal), expected);
        }

        #[test]
        fn no_text_panics(text in "[-+0-9.eExXpPa-finy]{0,30}", more in any::<Vec<u8>>()) {
            for text in [text.as_bytes(), &more] {
                if let Some(value) = LongDouble::parse(text) {
                    let _ = value.checked_add(value).map(LongDouble::to_text);
                }
            }
        }
    }
}
