//! Formats numbers as C does.

use std::fmt::{self, Write};
use std::ops::Deref;

/// Room for `-d.ddddddddddddddddde-308`, and for `-0.000` before seventeen digits.
const TEXT_MAX: usize = 32;

/// Number of significant digits of a double.
const DIGITS_MAX: usize = 17;

/// Text of a number, which owns no memory.
#[derive(Clone, Copy)]
pub(crate) struct NumberText {
    bytes: [u8; TEXT_MAX],
    len: usize,
}

impl NumberText {
    fn new() -> Self {
        Self { bytes: [0; TEXT_MAX], len: 0 }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn add_zeros(&mut self, count: usize) {
        for _ in 0..count {
            self.add(b"0");
        }
    }
}

impl Deref for NumberText {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Write for NumberText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.add(text.as_bytes());
        Ok(())
    }
}

/// Formats a double like C's `%.{digits}g`: this many significant digits, at most 17, without trailing zeros, and with
/// an exponent if the number is long.
pub(crate) fn format_general(value: f64, digits: usize) -> NumberText {
    let digits = digits.clamp(1, DIGITS_MAX);
    let mut text = NumberText::new();
    if value.is_sign_negative() {
        text.add(b"-");
    }
    if value.is_finite() {
        add_finite(&mut text, value.abs(), digits);
    } else {
        text.add(if value.is_nan() { b"nan" } else { b"inf" });
    }
    text
}

fn add_finite(text: &mut NumberText, value: f64, digits: usize) {
    if let Some(integer) = short_integer(value, digits) {
        text.add(itoa::Buffer::new().format(integer).as_bytes());
        return;
    }
    let (significant, exponent) = scientific(value, digits);
    let (first, rest) = significant.split_at(1);
    let digits = digits.cast_signed();
    if !(-4..digits).contains(&exponent) {
        text.add(first);
        add_fraction(text, rest);
        let sign = if exponent < 0 { '-' } else { '+' };
        // The buffer is large enough, so it cannot fail.
        let _ = write!(text, "e{sign}{:02}", exponent.abs());
    } else if exponent < 0 {
        text.add(b"0.");
        text.add_zeros((-exponent - 1).unsigned_abs());
        text.add(&significant);
    } else {
        let whole = exponent.unsigned_abs() + 1;
        let given = whole.min(significant.len());
        text.add(&significant[..given]);
        text.add_zeros(whole - given);
        add_fraction(text, &significant[given..]);
    }
}

fn add_fraction(text: &mut NumberText, digits: &[u8]) {
    if !digits.is_empty() {
        text.add(b".");
        text.add(digits);
    }
}

/// Returns `value` as an integer, if all of its digits are wanted.
fn short_integer(value: f64, digits: usize) -> Option<u64> {
    const FIFTEEN_DIGITS: f64 = 1e15;
    let is_short = value < FIFTEEN_DIGITS && value.trunc() == value;
    let integer = value as u64;
    (is_short && (digits >= 15 || integer < 10_u64.pow(digits as u32))).then_some(integer)
}

/// Returns the significant digits, correctly rounded and without trailing zeros, and the exponent of the first one.
fn scientific(value: f64, digits: usize) -> (NumberText, isize) {
    let mut text = NumberText::new();
    // As "d.ddde-dd". The buffer is large enough, so it cannot fail.
    let _ = write!(text, "{value:.*e}", digits - 1);
    let mark = text.iter().rposition(|byte| *byte == b'e').unwrap_or(text.len);
    let exponent =
        std::str::from_utf8(&text[mark..]).ok().and_then(|it| it.strip_prefix('e')?.parse().ok());
    let mut significant = NumberText::new();
    for byte in text[..mark].iter().filter(|byte| **byte != b'.') {
        significant.add(&[*byte]);
    }
    while significant.len > 1 && significant.ends_with(b"0") {
        significant.len -= 1;
    }
    (significant, exponent.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::format_general;

    #[test]
    fn as_c_prints_them() {
        for (value, digits, expected) in [
            (0.0, 14, "0"),
            (-0.0, 17, "-0"),
            (0.1, 17, "0.10000000000000001"),
            (3.5, 17, "3.5"),
            (100.0, 14, "100"),
            (100.0, 2, "1e+02"),
            (1e20, 17, "1e+20"),
            (1e16, 17, "10000000000000000"),
            (1e17, 17, "1e+17"),
            (0.0001, 14, "0.0001"),
            (0.000_012_34, 14, "1.234e-05"),
            (1.0 / 3.0, 14, "0.33333333333333"),
            (-1234.5, 14, "-1234.5"),
            (99_999_999_999_999.0, 14, "99999999999999"),
            (99_999_999_999_999.9, 14, "1e+14"),
            (123_456_789_012_345.0, 14, "1.2345678901234e+14"),
            (1e300, 17, "1.0000000000000001e+300"),
            (-5e-324, 17, "-4.9406564584124654e-324"),
            (f64::INFINITY, 17, "inf"),
            (f64::NEG_INFINITY, 14, "-inf"),
            (f64::NAN, 14, "nan"),
            (123_456.0, 3, "1.23e+05"),
            (0.000_123_456_789_012_345_67, 17, "0.00012345678901234567"),
        ] {
            assert_eq!(String::from_utf8_lossy(&format_general(value, digits)), expected);
        }
    }
}
