//! Randomness from the operating system, for what must not be guessed and is needed rarely.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A random word.
#[must_use]
pub fn word() -> u64 {
    // Each state is keyed from the system's randomness and differs from the one before.
    RandomState::new().build_hasher().finish()
}
