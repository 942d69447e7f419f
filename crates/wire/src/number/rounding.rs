//! Rounding a binary number to a floating-point format, to nearest, ties to even.

use super::spelling::Digits;

/// The number `bits * 2^exponent`. The lowest bit of `bits` may be sticky: it stands for anything
/// above zero that follows it. Invariant: with a sticky bit, `bits` has at least two bits more than
/// the target format, so that the sticky bit only decides about halves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unrounded {
    pub(super) bits: u128,
    pub(super) exponent: i32,
}

/// A floating-point format, without its sign.
pub(super) struct Format {
    /// Bits of the mantissa, the leading one included.
    pub(super) precision: u32,
    /// Exponent of the lowest bit in the smallest numbers.
    pub(super) exponent_min: i32,
    /// Exponent of the lowest bit in the greatest numbers.
    pub(super) exponent_max: i32,
}

impl Unrounded {
    /// Returns the nearest number of `format`, as mantissa and exponent of its lowest bit, or
    /// `None` if it exceeds the greatest. A zero mantissa means zero; one with less than the full
    /// precision means a subnormal number.
    pub(super) fn round(self, format: &Format) -> Option<(u64, i32)> {
        if self.bits == 0 {
            return Some((0, 0));
        }
        let len = u128::BITS as i32 - self.bits.leading_zeros() as i32;
        // Exponent of the lowest bit that is kept.
        let exponent = (self.exponent + len - format.precision as i32).max(format.exponent_min);
        let mut mantissa = shift_right_rounding(self.bits, exponent - self.exponent);
        let mut exponent = exponent;
        if mantissa >> format.precision != 0 {
            // Rounding up gave a power of two, so the bit shifted out is zero.
            mantissa >>= 1;
            exponent += 1;
        }
        (exponent <= format.exponent_max).then_some((mantissa as u64, exponent))
    }

    /// Returns the value of hexadecimal digits, which are bits already.
    pub(super) fn from_hexadecimal(digits: &Digits<'_>) -> Unrounded {
        let mut bits: u128 = 0;
        let mut exponent = digits.exponent.saturating_sub(digits.fraction_len().saturating_mul(4));
        for digit in digits.significant() {
            let value = char::from(digit).to_digit(16).unwrap_or(0);
            if bits >> 120 == 0 {
                bits = bits << 4 | u128::from(value);
            } else {
                bits |= u128::from(value != 0);
                exponent = exponent.saturating_add(4);
            }
        }
        Unrounded { bits, exponent }
    }
}

/// Returns `bits / 2^shift`, rounded to nearest, ties to even. A negative shift goes to the left;
/// the caller guarantees that no bits are lost.
pub(super) fn shift_right_rounding(bits: u128, shift: i32) -> u128 {
    match shift {
        ..=0 => bits << shift.unsigned_abs(),
        1..=127 => {
            let (kept, lost) = (bits >> shift, bits & ((1 << shift) - 1));
            let half = 1 << (shift - 1);
            let up = lost > half || (lost == half && kept & 1 == 1);
            kept + u128::from(up)
        }
        // Only values above half of the lowest bit round up to it.
        128 => u128::from(bits > 1 << 127),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four bits, from 2^-3 to 15 * 2^2.
    const TINY: Format = Format { precision: 4, exponent_min: -3, exponent_max: 2 };

    #[track_caller]
    fn check(bits: u128, exponent: i32, expected: Option<(u64, i32)>) {
        assert_eq!(Unrounded { bits, exponent }.round(&TINY), expected);
    }

    #[test]
    fn halves_go_to_even() {
        check(0b10010, 0, Some((0b1001, 1)));
        check(0b10011, 0, Some((0b1010, 1)));
        check(0b10101, 0, Some((0b1010, 1)));
        check(0b101011, -1, Some((0b1011, 1)));
        check(0b11111, 0, Some((0b1000, 2)));
    }

    #[test]
    fn ends_of_the_range_are_kept() {
        check(0, 5, Some((0, 0)));
        check(1, 5, Some((0b1000, 2)));
        check(1, 6, None);
        check(0b11111, 1, None);
        check(1, -3, Some((1, -3)));
        check(1, -4, Some((0, -3)));
        check(3, -5, Some((1, -3)));
        check(0b1001, -4, Some((0b100, -3)));
    }

    #[test]
    fn far_shifts_leave_nothing() {
        assert_eq!(shift_right_rounding(u128::MAX, 128), 1);
        assert_eq!(shift_right_rounding(1 << 127, 128), 0);
        assert_eq!(shift_right_rounding(u128::MAX, 129), 0);
        assert_eq!(shift_right_rounding(3 << 126, 127), 2);
    }
}
