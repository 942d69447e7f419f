//! Prefetching several lookups, so that their cache misses overlap.

use tierce_dash::{EntryHash, Table};

/// A table of fewer entries, with the memory they own, is mostly in the processor's caches: about two megabytes.
const LEN_MIN: usize = 32 * 1024;

/// Maximum number of lookups prefetched at once: the length of a deep pipeline, and as much as stays in the
/// first-level cache until it is used.
const AHEAD_MAX: usize = 64;

/// Prefetches the memory that lookups of entries with these hashes will read: first all buckets, then, when those have
/// arrived, the memory owned by entries whose fingerprints match. Only the first [`AHEAD_MAX`] are prefetched, and
/// none in a small table.
pub(crate) fn prefetch<T>(
    table: &Table<T>,
    hasher: &impl EntryHash<T>,
    hashes: impl Iterator<Item = u64>,
) {
    if table.len() < LEN_MIN {
        return;
    }
    let (mut ahead, mut len) = ([0; AHEAD_MAX], 0);
    for (place, hash) in ahead.iter_mut().zip(hashes) {
        *place = hash;
        table.prefetch(hash);
        len += 1;
    }
    for hash in &ahead[..len] {
        if let Some(entry) = table.candidate(*hash) {
            hasher.prefetch(entry);
        }
    }
}
