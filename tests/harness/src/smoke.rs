//! A short run of a fuzz target on seeded random bytes, for machines without a fuzzer.

use crate::{Random, effort};

const ROUNDS: u64 = 5_000;

/// Maximum length of a new random input.
const INPUT_LEN_MAX: usize = 64;

/// Prints the input if a target panics.
struct Trace<'a>(&'a [u8]);

impl Drop for Trace<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input was b\"{}\"", self.0.escape_ascii());
        }
    }
}

/// Passes inputs to `target`: random bytes, mostly of `alphabet`, and `seeds` with a few changes. `TIERCE_SEED`
/// selects another run.
///
/// # Panics
/// If the target panics. The input is printed.
pub fn fuzz_smoke(target: fn(&[u8]), alphabet: &[u8], seeds: &[&[u8]]) {
    let seed = std::env::var("TIERCE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("TIERCE_SEED={seed}");
    let mut random = Random::new(seed);
    for seed in seeds {
        target(seed);
    }
    for _ in 0..effort(ROUNDS) {
        let input = input(&mut random, alphabet, seeds);
        let _trace = Trace(&input);
        target(&input);
    }
}

fn input(random: &mut Random, alphabet: &[u8], seeds: &[&[u8]]) -> Vec<u8> {
    let mut input = match seeds.get(random.below(seeds.len() + 1)) {
        Some(seed) => seed.to_vec(),
        None => (0..random.below(INPUT_LEN_MAX)).map(|_| byte(random, alphabet)).collect(),
    };
    for _ in 0..random.below(5) {
        let at = random.below(input.len() + 1);
        match (random.below(5), at < input.len()) {
            (0, true) => input[at] = byte(random, alphabet),
            (1, true) => drop(input.remove(at)),
            (2, _) => input.extend_from_within(at..),
            (3, _) => input.truncate(at),
            _ => input.insert(at, byte(random, alphabet)),
        }
    }
    input
}

fn byte(random: &mut Random, alphabet: &[u8]) -> u8 {
    match random.below(4) {
        0 => random.next_u64() as u8,
        _ => alphabet[random.below(alphabet.len())],
    }
}
