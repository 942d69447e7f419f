//! How the table asks for the hash of an entry that it is about to move.

/// Computes the hash of an entry again: whatever rearranges entries needs it.
///
/// Closures of the form `Fn(&T) -> u64` implement it. A type of one's own can implement
/// [`EntryHash::prefetch`] as well, which pays when the hash is computed from memory behind the
/// entry: a rebuild announces a bucket's worth of entries before it hashes them.
pub trait EntryHash<T> {
    /// The hash with which `entry` was inserted: the same at every call, or the entry is lost.
    fn hash(&self, entry: &T) -> u64;

    /// Called some time before [`EntryHash::hash`] for the same entry; asks the processor to fetch
    /// what that will read.
    #[inline]
    fn prefetch(&self, entry: &T) {
        _ = entry;
    }

    /// Called some time before a full scan is shown an entry; asks the
    /// processor to fetch what is going to be read then.
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
