//! Computes a cardinality estimate from the registers.
//!
//! The estimator is algorithm 6 of Otmar Ertl, "New cardinality estimation algorithms for HyperLogLog sketches"
//! (2017): it needs neither correction tables nor a switch between ranges.

use super::{REGISTERS, VALUE_MAX};

/// Number of values that a register of six bits can have.
pub(super) const VALUES: usize = 64;

/// The constant of the estimator for infinitely many registers: one over twice the logarithm of 2.
const ALPHA_INFINITE: f64 = 0.721_347_520_444_481_7;

/// Returns the estimated number of elements. `histogram` has the number of registers per value.
pub(super) fn estimate(histogram: &[u32; VALUES]) -> u64 {
    let registers = REGISTERS as f64;
    let longest = usize::from(VALUE_MAX);
    let mut sum = registers * tau((registers - f64::from(histogram[longest])) / registers);
    for value in (1..longest).rev() {
        sum = 0.5 * (sum + f64::from(histogram[value]));
    }
    sum += registers * sigma(f64::from(histogram[0]) / registers);
    (ALPHA_INFINITE * registers * registers / sum).round_ties_even() as u64
}

/// Contribution of the registers that are still zero.
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if before == z {
            return z;
        }
    }
}

/// Contribution of the registers that have the highest value.
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if before == z {
            return z / 3.0;
        }
    }
}
