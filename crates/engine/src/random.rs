//! Randomness from the operating system, for values that must be unpredictable and are rarely
//! needed.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read};

use tierce_keyspace::interleaving;

/// A random word.
pub fn word() -> u64 {
    // Each state is keyed from the system's randomness and differs from the one before.
    interleaving::random_word().unwrap_or_else(|| RandomState::new().build_hasher().finish())
}

/// Fills `bytes` with unpredictable bytes: for passwords.
///
/// # Errors
/// When the system has no such device.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    File::open("/dev/urandom")?.read_exact(bytes)
}
