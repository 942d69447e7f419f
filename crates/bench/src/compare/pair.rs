//! A value for server A and one for server B.

use serde::Serialize;

/// A value for each of the two servers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Pair<T> {
    pub(crate) a: T,
    pub(crate) b: T,
}

impl<T> Pair<T> {
    pub(crate) fn as_ref(&self) -> Pair<&T> {
        Pair { a: &self.a, b: &self.b }
    }

    pub(crate) fn map<U>(self, mut change: impl FnMut(T) -> U) -> Pair<U> {
        Pair { a: change(self.a), b: change(self.b) }
    }

    /// Calls a function for A, then for B, and stops at the first failure.
    pub(crate) fn try_map<U, E>(
        self,
        mut change: impl FnMut(T) -> Result<U, E>,
    ) -> Result<Pair<U>, E> {
        Ok(Pair { a: change(self.a)?, b: change(self.b)? })
    }
}

impl Pair<f64> {
    /// Returns A divided by B, if that is a number.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let ratio = self.a / self.b;
        ratio.is_finite().then_some(ratio)
    }
}

/// Returns the middle value, or the mean of the two in the middle. `None` if there are no values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// Returns the median of one figure of all samples, for each side.
pub(crate) fn medians<T>(samples: &[Pair<T>], figure: fn(&T) -> f64) -> Pair<f64> {
    let of = |values: Vec<f64>| median(values).unwrap_or(f64::NAN);
    Pair {
        a: of(samples.iter().map(|sample| figure(&sample.a)).collect()),
        b: of(samples.iter().map(|sample| figure(&sample.b)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn a_ratio_needs_a_divisor() {
        assert_eq!(Pair { a: 1.0, b: 4.0 }.ratio(), Some(0.25));
        assert_eq!(Pair { a: 1.0, b: 0.0 }.ratio(), None);
    }
}
