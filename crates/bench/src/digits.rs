//! Numbers as exactly twelve decimal digits, the form redis-benchmark gives to `__rand_int__`.
//!
//! With a fixed width, a number can overwrite the previous one inside an encoded request. This is the only work left
//! for each request, so it must be cheap: a few multiplications and no division by a variable.

/// Number of digits of a number in a key.
pub(crate) const DIGITS_LEN: usize = 12;

/// Upper bound of numbers, so that they fit into [`DIGITS_LEN`] digits.
pub(crate) const NUMBER_LIMIT: u64 = 1_000_000_000_000;

const LOW_DIGITS_LIMIT: u64 = 100_000_000;

/// Writes `number`, which must be below [`NUMBER_LIMIT`], with leading zeros.
#[inline]
pub(crate) fn write(digits: &mut [u8; DIGITS_LEN], number: u64) {
    debug_assert!(number < NUMBER_LIMIT);
    let (high, low) = if number < LOW_DIGITS_LIMIT {
        (0, number)
    } else {
        (number / LOW_DIGITS_LIMIT, number % LOW_DIGITS_LIMIT)
    };
    let (head, tail) = digits.split_at_mut(4);
    head.copy_from_slice(&four(high));
    tail.copy_from_slice(&eight(low));
}

/// Returns four digits. Callers keep `number` below 10,000.
#[inline]
fn four(number: u64) -> [u8; 4] {
    if number == 0 {
        return *b"0000";
    }
    let mut digits = [b'0'; 4];
    let mut rest = number;
    for digit in digits.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    digits
}

/// Returns eight digits, computed all at once as parts of one word.
///
/// The number is split in halves three times: 4+4 digits, then 2+2+2+2, then single digits. Each step computes all
/// quotients with one multiplication by a scaled reciprocal, and subtracts them to get the remainders next to them.
/// The most significant digit ends up in the lowest byte. That is why the word is stored little-endian on every
/// machine.
#[inline]
fn eight(number: u64) -> [u8; 8] {
    // Parts of 32 bits: thousands above, the rest below.
    let quads = (number / 10_000) | ((number % 10_000) << 32);
    // Parts of 16 bits: 10,486 / 2^20 is 1/100, exact for numbers below 10,000.
    let hundreds = ((quads * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let pairs = hundreds | ((quads - 100 * hundreds) << 16);
    // Parts of 8 bits: 103 / 2^10 is 1/10, exact for numbers below 100.
    let tens = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
    let ones = tens | ((pairs - 10 * tens) << 8);
    (ones | 0x3030_3030_3030_3030).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(number: u64) {
        let mut digits = [b'?'; DIGITS_LEN];
        write(&mut digits, number);
        assert_eq!(std::str::from_utf8(&digits).unwrap(), format!("{number:012}"));
    }

    #[test]
    fn all_small_numbers_have_their_digits() {
        (0..100_000).for_each(check);
    }

    #[test]
    fn each_half_counts_through_all_four_digits() {
        for number in 0..10_000 {
            check(number * 10_000);
            check(number * LOW_DIGITS_LIMIT + 7);
        }
    }

    #[test]
    fn the_borders_are_right() {
        for number in [LOW_DIGITS_LIMIT - 1, LOW_DIGITS_LIMIT, NUMBER_LIMIT - 1] {
            check(number);
        }
    }
}
