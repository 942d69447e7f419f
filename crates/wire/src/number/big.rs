//! Natural numbers of any size, with the few operations that decimal conversion needs.

/// Little-endian digits in base 2^32, without leading zeros; zero has no digits.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Big {
    limbs: Vec<u32>,
}

const LIMB_BITS: usize = u32::BITS as usize;

/// Greatest power of ten that fits in a limb.
const TEN_POWER: u32 = 10u32.pow(TEN_POWER_EXPONENT);
const TEN_POWER_EXPONENT: u32 = 9;

/// Greatest power of five that fits in a limb.
const FIVE_POWER: u32 = 5u32.pow(FIVE_POWER_EXPONENT);
const FIVE_POWER_EXPONENT: u32 = 13;

/// Remainder of a division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remainder {
    Zero,
    Positive,
}

impl Big {
    /// Returns the number with these ASCII digits.
    pub(super) fn from_digits(mut digits: impl Iterator<Item = u8>) -> Big {
        let mut big = Big { limbs: Vec::new() };
        loop {
            let (mut scale, mut chunk) = (1, 0);
            for digit in digits.by_ref().take(TEN_POWER_EXPONENT as usize) {
                scale *= 10;
                chunk = chunk * 10 + u32::from(digit - b'0');
            }
            if scale == 1 {
                return big;
            }
            big.multiply_add(scale, chunk);
        }
    }

    /// Returns `bits * 2^shift`.
    pub(super) fn from_shifted(bits: u64, shift: usize) -> Big {
        let mut big = Big { limbs: vec![bits as u32, (bits >> LIMB_BITS) as u32] };
        big.trim();
        big.shift_left(shift);
        big
    }

    /// Returns the number of bits, from the leading one on.
    pub(super) fn bit_len(&self) -> usize {
        match self.limbs.last() {
            Some(top) => self.limbs.len() * LIMB_BITS - top.leading_zeros() as usize,
            None => 0,
        }
    }

    pub(super) fn multiply_five_power(&mut self, exponent: u32) {
        for _ in 0..exponent / FIVE_POWER_EXPONENT {
            self.multiply_add(FIVE_POWER, 0);
        }
        self.multiply_add(5u32.pow(exponent % FIVE_POWER_EXPONENT), 0);
    }

    /// Divides by a power of five. Dividing by its factors one after the other gives the quotient
    /// of their product, and the remainder is zero only if all their remainders are zero.
    pub(super) fn divide_five_power(&mut self, exponent: u32) -> Remainder {
        let mut remainder = 0;
        for _ in 0..exponent / FIVE_POWER_EXPONENT {
            remainder |= self.divide(FIVE_POWER);
        }
        remainder |= self.divide(5u32.pow(exponent % FIVE_POWER_EXPONENT));
        if remainder == 0 { Remainder::Zero } else { Remainder::Positive }
    }

    /// Multiplies by a power of two.
    pub(super) fn shift_left(&mut self, shift: usize) {
        let (limbs, bits) = (shift / LIMB_BITS, shift % LIMB_BITS);
        self.multiply_add(1 << bits, 0);
        if !self.limbs.is_empty() {
            self.limbs.splice(0..0, std::iter::repeat_n(0, limbs));
        }
    }

    /// Returns at most the leading 128 bits, with all lower bits folded into the lowest one, and
    /// the number of lower bits.
    pub(super) fn leading_bits(&self) -> (u128, usize) {
        let dropped = self.bit_len().saturating_sub(u128::BITS as usize);
        let (first, offset) = (dropped / LIMB_BITS, dropped % LIMB_BITS);
        let mut bits = 0;
        for (index, &limb) in self.limbs[first..].iter().enumerate() {
            // The limb's bits below `offset` are among the dropped ones. It has no bits above the
            // result's end, as the result contains the number's leading bit.
            match index * LIMB_BITS {
                0 => bits |= u128::from(limb >> offset),
                place => bits |= u128::from(limb) << (place - offset),
            }
        }
        let lost_in_limb =
            self.limbs.get(first).is_some_and(|limb| limb & ((1 << offset) - 1) != 0);
        let lost = lost_in_limb || self.limbs[..first].iter().any(|&limb| limb != 0);
        (bits | u128::from(lost), dropped)
    }

    /// Returns the decimal digits.
    pub(super) fn into_decimal(mut self) -> String {
        let mut chunks = Vec::new();
        while !self.limbs.is_empty() {
            chunks.push(self.divide(TEN_POWER));
        }
        let mut text = chunks.pop().unwrap_or(0).to_string();
        for chunk in chunks.iter().rev() {
            text.push_str(&format!("{chunk:09}"));
        }
        text
    }

    fn multiply_add(&mut self, factor: u32, summand: u32) {
        let mut carry = u64::from(summand);
        for limb in &mut self.limbs {
            carry += u64::from(*limb) * u64::from(factor);
            *limb = carry as u32;
            carry >>= LIMB_BITS;
        }
        if carry != 0 {
            self.limbs.push(carry as u32);
        }
    }

    /// Divides, and returns the remainder.
    #[inline]
    fn divide(&mut self, divisor: u32) -> u32 {
        let mut remainder = 0u64;
        for limb in self.limbs.iter_mut().rev() {
            let value = remainder << LIMB_BITS | u64::from(*limb);
            *limb = (value / u64::from(divisor)) as u32;
            remainder = value % u64::from(divisor);
        }
        self.trim();
        remainder as u32
    }

    fn trim(&mut self) {
        while self.limbs.last() == Some(&0) {
            self.limbs.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierce_harness::effort;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        #[test]
        fn decimal_digits_are_read_and_printed(text in "[1-9][0-9]{0,200}") {
            prop_assert_eq!(Big::from_digits(text.bytes()).into_decimal(), text);
        }

        #[test]
        fn dividing_undoes_multiplying(text in "[1-9][0-9]{0,60}", exponent in 0..100u32) {
            let big = Big::from_digits(text.bytes());
            let mut product = big.clone();
            product.multiply_five_power(exponent);
            prop_assert_eq!(product.divide_five_power(exponent), Remainder::Zero);
            prop_assert_eq!(&product, &big);
            product.multiply_five_power(exponent + 1);
            product.multiply_add(1, 1);
            prop_assert_eq!(product.divide_five_power(exponent + 1), Remainder::Positive);
            prop_assert_eq!(product, big);
        }

        #[test]
        fn shifts_move_the_leading_bits(bits in 1u64.., shift in 0..300usize) {
            let big = Big::from_shifted(bits, shift);
            let len = 64 - bits.leading_zeros() as usize + shift;
            prop_assert_eq!(big.bit_len(), len);
            let dropped = len.saturating_sub(128);
            let expected = match shift.checked_sub(dropped) {
                Some(left) => u128::from(bits) << left,
                None => unreachable!("64 bits are never dropped"),
            };
            prop_assert_eq!(big.leading_bits(), (expected, dropped));
        }

        #[test]
        fn dropped_bits_are_remembered(bits in 1u64 << 63.., shift in 70..300usize, low in 1u32..) {
            let mut big = Big::from_shifted(bits, shift);
            big.limbs[0] |= low;
            let (leading, dropped) = big.leading_bits();
            prop_assert_eq!(dropped, shift - 64);
            let exact = u128::from(bits) << 64;
            let direct = u128::from(low).checked_shr(dropped as u32).unwrap_or(0);
            let lost = low as u128 & ((1u128 << dropped.min(100)) - 1) != 0;
            prop_assert_eq!(leading, exact | direct | u128::from(lost));
        }
    }

    #[test]
    fn zero_is_empty() {
        let mut zero = Big::from_digits(b"000".iter().copied());
        zero.shift_left(100);
        assert_eq!((zero.bit_len(), zero.leading_bits()), (0, (0, 0)));
        assert_eq!(zero.into_decimal(), "0");
    }
}
