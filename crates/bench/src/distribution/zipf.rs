//! Zipf numbers by rejection-inversion.
//!
//! The method is from W. Hörmann and G. Derflinger, "Rejection-inversion to generate variates from monotone discrete
//! distributions" (ACM TOMACS 6, 1996). YCSB uses the method of Gray et al. instead. In contrast to that, this one
//! needs no table and no sum over the keyspace, so a run over ten billion keys starts at once, and it is exact for
//! every exponent, 1 included.
//!
//! The weights k^-theta lie under the curve x^-theta, whose integral can be inverted. We draw a point of that
//! integral and round it to a rank. Where the curve exceeds the bars of the ranks, we reject a few draws in a
//! hundred.

use crate::random::Random;

/// Draws ranks 0 .. count with weights 1 / (rank + 1)^theta.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    count: f64,
    theta: f64,
    /// Integral of the curve up to the left border of the first bar, as if that bar were full.
    area_first: f64,
    /// Integral up to the right border of the last bar.
    area_last: f64,
    /// A draw at most this far below its rank is accepted without computing the curve.
    accept_within: f64,
}

impl Zipf {
    pub(super) fn new(count: u64, theta: f64) -> Self {
        let area = |x| integral(x, theta);
        Self {
            count: count as f64,
            theta,
            area_first: area(1.5) - 1.0,
            area_last: area(count as f64 + 0.5),
            accept_within: 2.0 - inverse(area(2.5) - 2_f64.powf(-theta), theta),
        }
    }

    pub(super) fn sample(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.area_last + random.unit() * (self.area_first - self.area_last);
            let x = inverse(area, self.theta);
            let rank = x.round().clamp(1.0, self.count);
            if rank - x <= self.accept_within
                || area >= integral(rank + 0.5, self.theta) - rank.powf(-self.theta)
            {
                return rank as u64 - 1;
            }
        }
    }
}

/// Returns the integral of t^-theta for t from 1 to `x`: (x^(1-theta) - 1) / (1 - theta), and ln x at theta 1.
fn integral(x: f64, theta: f64) -> f64 {
    let exponent = 1.0 - theta;
    let ln = x.ln();
    ln * expm1_over(exponent * ln)
}

/// Returns the `x` whose [`integral`] is `area`.
fn inverse(area: f64, theta: f64) -> f64 {
    let exponent = 1.0 - theta;
    // Rounding can push the argument below the pole of the logarithm at the far left.
    let scaled = (area * exponent).max(-1.0);
    (area * ln1p_over(scaled)).exp()
}

/// (e^x - 1) / x, continued smoothly through 0, where theta is 1.
fn expm1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 }
}

/// ln(1 + x) / x, continued smoothly through 0.
fn ln1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inverse_undoes_the_integral() {
        for theta in [0.0, 0.5, 0.99, 1.0, 1.000_000_001, 2.0] {
            for x in [1.5, 2.0, 10.0, 1e4] {
                let back = inverse(integral(x, theta), theta);
                assert!((back / x - 1.0).abs() < 1e-6, "theta {theta}: {x} came back as {back}");
            }
        }
    }

    #[test]
    fn the_largest_keyspace_stays_in_range() {
        let count = 1_000_000_000_000;
        for theta in [0.0, 0.2, 0.99, 1.0, 3.0, 10.0] {
            let zipf = Zipf::new(count, theta);
            let mut random = Random::new(5);
            assert!((0..10_000).all(|_| zipf.sample(&mut random) < count), "theta {theta}");
        }
    }
}
