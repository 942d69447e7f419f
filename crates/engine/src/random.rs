//! Randomness from the operating system, for values that must be unpredictable and are rarely
//! needed.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read};

use tierce_keyspace::interleaving;

/// Returns a random word.
pub fn word() -> u64 {
    // The standard library seeds each state from the system's randomness, and no two are equal.
    interleaving::random_word().unwrap_or_else(|| RandomState::new().build_hasher().finish())
}

/// Fills `bytes` with unpredictable bytes, for passwords.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    File::open("/dev/urandom")?.read_exact(bytes)
}
