//! Prefetching several lookups, so that their cache misses overlap.

use tierce_dash::{EntryHash, Table};

/// A table of fewer entries than this, with what they own, is mostly in the processor's caches: about
/// two megabytes.
const LEN_MIN: usize = 32 * 1024;

/// As many are announced at once: a deep pipeline's worth, and what stays in the first-level cache until
/// its turn comes.
const AHEAD_MAX: usize = 64;

/// Asks the processor to fetch what looking for entries with these hashes will read: first all buckets,
/// then, when those have arrived, what the entries own whose fingerprints match. The first
/// [`AHEAD_MAX`] count; in a small table none do.
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
