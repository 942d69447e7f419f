//! Recomputes the hash of an entry that the table is about to move.

/// Computes the hash of an entry again: every operation that moves entries needs it.
///
/// Closures of the form `Fn(&T) -> u64` implement it. A type can implement [`EntryHash::prefetch`]
/// as well, which pays if the hash is computed from memory behind the entry: a rebuild announces a
/// bucket's worth of entries before it hashes them.
pub trait EntryHash<T> {
    /// Returns the hash with which `entry` was inserted. It must be the same at every call, or the
    /// entry is lost.
    fn hash(&self, entry: &T) -> u64;

    /// Prefetches the memory that [`EntryHash::hash`] will read for the same entry. Called some
    /// time before.
    #[inline]
    fn prefetch(&self, entry: &T) {
        _ = entry;
    }

    /// Prefetches the memory that a visitor will read for an entry. Called some time before a full
    /// scan shows it.
    #[inline]
    fn prefetch_to_visit(&self, entry: &T) {
        self.prefetch(entry);
    }
}

impl<T, F: Fn(&T) -> u64> EntryHash<T> for F {
    #[inline]
    fn hash(&self, entry: &T) -> u64 {
        self(entry)
    }
}
