//! The number of cases of tests with random input.

use std::ops::{Add, Div, Mul};

/// The factor, a whole number. Not named as the directives in the environment are: a server would look for one.
const VARIABLE: &str = "TEST_EFFORT";

/// The number of cases, seeds or rounds that a test goes through: `cases` times `TEST_EFFORT`, which is 1 before
/// a change lands, or half of them where that is not set, rounded up.
///
/// # Panics
/// When the variable is no number from 1 to 65535.
#[must_use]
pub fn effort<N>(cases: N) -> N
where
    N: From<u16> + Mul<Output = N> + Add<Output = N> + Div<Output = N>,
{
    match std::env::var(VARIABLE) {
        Ok(text) => cases * N::from(factor(&text)),
        Err(_) => (cases + N::from(1)) / N::from(2),
    }
}

fn factor(text: &str) -> u16 {
    let factor = text.parse().ok().filter(|factor| *factor > 0);
    factor.unwrap_or_else(|| panic!("{VARIABLE} is a number from 1 to 65535, and not {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_is_a_whole_number_from_1_on() {
        assert_eq!((factor("1"), factor("300")), (1, 300));
        for wrong in ["", "0", "-1", "1.5", "many", "65536"] {
            let panic = std::panic::catch_unwind(|| factor(wrong)).expect_err("no factor");
            let said = panic.downcast_ref::<String>().expect("a message");
            assert!(said.starts_with("TEST_EFFORT is a number"), "{said}");
        }
    }
}
