//! The number of cases of tests with random input.

use std::ops::{Add, Div, Mul};

/// Variable with the factor, a whole number. Without the prefix of directives, which servers read.
const VARIABLE: &str = "TEST_EFFORT";

/// Returns the number of cases, seeds or rounds of a test: `cases` times `TEST_EFFORT`. Without the variable, as before
/// a change is merged, half of `cases`, rounded up.
///
/// # Panics
/// If the variable is no number from 1 to 65535.
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
