//! Key distributions: numbers below the keyspace size, in one of four shapes.
//!
//! | name | shape |
//! |---|---|
//! | `uniform` | every key as likely as every other |
//! | `zipf[:theta]` | key *k* with weight 1 / (k+1)^theta, so key 0 is the hottest; theta 0.99 unless given |
//! | `gauss` | a bell around the middle, standard deviation a sixth of the keyspace |
//! | `sequential` | 0, 1, 2 … and from the start again, across all connections and threads together |
//!
//! Hot keys have adjacent numbers on purpose. A store that hashes is not affected, and a store that sorts should show
//! how it handles them.

mod zipf;

use std::fmt;
use std::str::FromStr;

use crate::random::Random;
use zipf::Zipf;

/// Default skew of a Zipf distribution, the customary value of YCSB.
const ZIPF_THETA_DEFAULT: f64 = 0.99;

/// Upper bound of theta. A larger one would send practically all requests to one key.
const ZIPF_THETA_MAX: f64 = 10.0;

/// Distribution of the requested keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Distribution {
    /// Every key equally often.
    Uniform,
    /// Few keys often, most rarely.
    Zipf {
        /// Exponent: 0 is uniform; a higher one is more skewed.
        theta: f64,
    },
    /// A bell around the middle key.
    Gauss,
    /// One key after the other.
    Sequential,
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, parameter) = match text.split_once(':') {
            Some((name, parameter)) => (name, Some(parameter)),
            None => (text, None),
        };
        match (name, parameter) {
            ("uniform", None) => Ok(Self::Uniform),
            ("gauss", None) => Ok(Self::Gauss),
            ("sequential", None) => Ok(Self::Sequential),
            ("zipf", None) => Ok(Self::Zipf { theta: ZIPF_THETA_DEFAULT }),
            ("zipf", Some(theta)) => match theta.parse() {
                Ok(theta) if (0.0..=ZIPF_THETA_MAX).contains(&theta) => Ok(Self::Zipf { theta }),
                _ => Err(format!("theta of zipf is a number from 0 to {ZIPF_THETA_MAX}")),
            },
            _ => Err("uniform, zipf, zipf:THETA, gauss or sequential".into()),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => out.write_str("uniform"),
            Self::Zipf { theta } => write!(out, "zipf:{theta}"),
            Self::Gauss => out.write_str("gauss"),
            Self::Sequential => out.write_str("sequential"),
        }
    }
}

/// Draws key numbers. Every worker has its own picker and seed.
#[derive(Clone, Debug)]
pub(crate) struct KeyPicker {
    keyspace: u64,
    shape: Shape,
    random: Random,
}

#[derive(Clone, Debug)]
enum Shape {
    Uniform,
    Zipf(Zipf),
    Gauss,
    Sequential { next: u64 },
}

impl KeyPicker {
    /// Makes a picker of numbers below `keyspace`, which is at least 1.
    pub(crate) fn new(distribution: Distribution, keyspace: u64, seed: u64) -> Self {
        assert!(keyspace > 0, "there must be a key to pick");
        let shape = match distribution {
            Distribution::Uniform => Shape::Uniform,
            Distribution::Zipf { theta } => Shape::Zipf(Zipf::new(keyspace, theta)),
            Distribution::Gauss => Shape::Gauss,
            Distribution::Sequential => Shape::Sequential { next: 0 },
        };
        Self { keyspace, shape, random: Random::new(seed) }
    }

    /// Sets the position of the next request in the whole run. Only the sequential shape uses it, so that several
    /// threads together visit every key exactly once.
    #[inline]
    pub(crate) fn seek(&mut self, position: u64) {
        if let Shape::Sequential { next } = &mut self.shape {
            *next = position % self.keyspace;
        }
    }

    /// Returns the number of the next key.
    #[inline]
    pub(crate) fn key(&mut self) -> u64 {
        match &mut self.shape {
            Shape::Uniform => self.random.below(self.keyspace),
            Shape::Zipf(zipf) => zipf.sample(&mut self.random),
            Shape::Gauss => gauss(self.keyspace, &mut self.random),
            Shape::Sequential { next } => {
                let key = *next;
                *next = if key + 1 == self.keyspace { 0 } else { key + 1 };
                key
            }
        }
    }

    /// Returns a number below the keyspace, uniform for any distribution of the keys.
    #[inline]
    pub(crate) fn number(&mut self) -> u64 {
        self.random.below(self.keyspace)
    }
}

/// Draws from a bell curve by Marsaglia's polar method. Numbers outside the keyspace (three standard deviations away,
/// 0.3 % of all) are drawn again.
fn gauss(keyspace: u64, random: &mut Random) -> u64 {
    let middle = keyspace as f64 / 2.0;
    let deviation = keyspace as f64 / 6.0;
    loop {
        let x = 2.0 * random.unit() - 1.0;
        let y = 2.0 * random.unit() - 1.0;
        let square = x * x + y * y;
        if square >= 1.0 || square == 0.0 {
            continue;
        }
        let key = middle + deviation * x * (-2.0 * square.ln() / square).sqrt();
        if key >= 0.0 && key < keyspace as f64 {
            return key as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u32 = 200_000;

    fn counts(distribution: &str, keyspace: u64) -> Vec<f64> {
        let mut picker = KeyPicker::new(distribution.parse().unwrap(), keyspace, 42);
        let mut counts = vec![0.0; keyspace as usize];
        for _ in 0..DRAWS {
            counts[picker.key() as usize] += 1.0;
        }
        counts
    }

    fn share(counts: &[f64]) -> f64 {
        counts.iter().sum::<f64>() / f64::from(DRAWS)
    }

    #[test]
    fn names_are_read_and_printed_alike() {
        for name in ["uniform", "zipf:0.5", "zipf:0.99", "gauss", "sequential"] {
            assert_eq!(name.parse::<Distribution>().unwrap().to_string(), name);
        }
        assert_eq!("zipf".parse(), Ok(Distribution::Zipf { theta: ZIPF_THETA_DEFAULT }));
        for wrong in ["", "zipf:", "zipf:-1", "zipf:nan", "zipf:11", "uniform:2", "normal"] {
            assert!(wrong.parse::<Distribution>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn uniform_asks_for_every_key_alike() {
        let counts = counts("uniform", 100);
        // 2,000 are expected, with standard deviation 45: six of them on either side.
        assert!(counts.iter().all(|count| (1730.0..2270.0).contains(count)), "{counts:?}");
    }

    #[test]
    fn zipf_follows_the_power_law() {
        for theta in [0.5, 0.99, 1.0, 1.5] {
            let keyspace = 1000;
            let weights: Vec<f64> = (1..=keyspace).map(|k| f64::from(k).powf(-theta)).collect();
            let total: f64 = weights.iter().sum();
            let counts = counts(&format!("zipf:{theta}"), u64::from(keyspace as u32));
            for (key, weight) in weights.iter().enumerate() {
                let expected = weight / total * f64::from(DRAWS);
                let tolerance = 6.0 * expected.sqrt() + 1.0;
                let count = counts[key];
                assert!((count - expected).abs() < tolerance, "{theta} {key} {count} {expected}");
            }
        }
    }

    #[test]
    fn gauss_has_the_shares_of_a_bell() {
        let counts = counts("gauss", 600);
        // The middle is 300 and the deviation 100; shares are those of a bell truncated at 3 deviations.
        assert!((share(&counts[200..400]) - 0.6845).abs() < 0.01);
        assert!((share(&counts[100..500]) - 0.9571).abs() < 0.01);
        assert!((share(&counts[..300]) - 0.5).abs() < 0.01);
    }

    #[test]
    fn sequential_goes_round_from_where_it_is_told() {
        let mut picker = KeyPicker::new(Distribution::Sequential, 3, 0);
        let keys: Vec<_> = (0..7).map(|_| picker.key()).collect();
        assert_eq!(keys, [0, 1, 2, 0, 1, 2, 0]);
        picker.seek(8);
        assert_eq!((picker.key(), picker.key()), (2, 0));
    }

    #[test]
    fn a_keyspace_of_one_has_one_key() {
        for name in ["uniform", "zipf", "zipf:0", "gauss", "sequential"] {
            let mut picker = KeyPicker::new(name.parse().unwrap(), 1, 3);
            assert!((0..100).all(|_| picker.key() == 0), "{name}");
        }
    }
}
