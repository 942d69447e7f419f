//! The hash of names and members in large collections.
//!
//! The operating system seeds it once per process, so clients cannot choose colliding members. All collections
//! share the seed: a value keeps its hash when it moves between tables, and no collection stores a seed. Hashes
//! never leave the process.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

use rapidhash::v3::{RapidSecrets, rapidhash_v3_micro_inline};

static SECRETS: LazyLock<RapidSecrets> = LazyLock::new(|| {
    // Each state is keyed from the system's randomness.
    RapidSecrets::seed(RandomState::new().build_hasher().finish())
});

/// Returns the hash of some bytes.
#[inline]
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    // The variant for up to 80 bytes, the usual length of names and members; correct for any length.
    rapidhash_v3_micro_inline::<true, false>(bytes, &SECRETS)
}

/// Returns the hash of an integer, which differs from that of its text.
#[inline]
pub(crate) fn hash_int(value: i64) -> u64 {
    hash_bytes(&value.to_le_bytes())
}
