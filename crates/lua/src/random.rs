//! The generator of `math.random`, the same on every machine.

/// The linear congruential generator of `drand48`, as Redis has it.
pub(crate) struct Random {
    state: u64,
}

/// The greatest number that is drawn; the modulus is one more.
const DRAWN_MAX: u64 = i32::MAX as u64;

impl Default for Random {
    /// Creates the state of `drand48` without a seed.
    fn default() -> Self {
        Random { state: 0x1234_abcd_330e }
    }
}

impl Random {
    pub(crate) fn seed(&mut self, seed: i32) {
        self.state = (u64::from(seed as u32) << 16) + 0x330e;
    }

    /// Returns a number in [0, 1).
    pub(crate) fn draw(&mut self) -> f64 {
        let product = self.state.wrapping_mul(0x5_deec_e66d).wrapping_add(0xb);
        self.state = product & 0xffff_ffff_ffff;
        ((self.state >> 17) % DRAWN_MAX) as f64 / DRAWN_MAX as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers drawn by redis-server 7.0.
    #[test]
    fn the_numbers_of_redis() {
        let mut random = Random::default();
        assert_eq!(
            format!("{:.14} {:.14}", random.draw(), random.draw()),
            "0.39646477363839 0.84048536971234"
        );
        random.seed(5);
        let thousands = [random.draw(), random.draw()].map(|drawn| (drawn * 1000.0).floor() + 1.0);
        assert_eq!(thousands, [525.0, 273.0]);
    }
}
