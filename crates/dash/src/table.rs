//! The public table, and the policy of growing and shrinking.

use crate::directory::{Directory, FirstSlot, Segments};
use crate::geometry;
use crate::hash::EntryHash;
use crate::rebuild;
use crate::segment::Segment;

/// An index from 64-bit hashes to entries.
///
/// Entries are found by their hash and a closure that recognizes the right one among those with equal bits. The table
/// does not store hashes: every call passes one, or an [`EntryHash`] computes them when entries are moved.
///
/// # Panics
/// No method panics by itself as long as an entry's hash stays the same, unless 900,000 entries have hashes that agree
/// in their upper 48 bits. A panic of the caller's closures leaves the table as it was before the call or after it.
pub struct Table<T> {
    directory: Directory<T>,
    len: usize,
}

impl<T> Table<T> {
    /// Creates an empty table, which has allocated nothing.
    pub const fn new() -> Self {
        Self { directory: Directory::new(), len: 0 }
    }

    /// Returns the number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is no entry.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes requested from the allocator, exact at any time; 0 if the table is empty. It does not include
    /// memory that entries own elsewhere.
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        self.directory.memory_bytes()
    }

    /// Prefetches the memory that [`Table::find`] will read in the table for this hash. It is the first stage for a
    /// batch of lookups; [`Table::candidate`] is the second.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let Some(segment) = self.directory.get(hash) {
            segment.prefetch(hash);
        }
    }

    /// Returns the probable entry of this hash: the first whose fingerprint matches. The caller can use it to prefetch
    /// memory behind the entry before it calls [`Table::find`].
    #[inline]
    pub fn candidate(&self, hash: u64) -> Option<&T> {
        self.find(hash, |_| true)
    }

    /// Returns the entry of this hash that satisfies `eq`. Equal fingerprints cause a call of `eq` for a wrong entry
    /// once in eleven to eighteen misses, and half as often in hits.
    #[inline]
    pub fn find(&self, hash: u64, eq: impl FnMut(&T) -> bool) -> Option<&T> {
        let (_, entry) = self.directory.get(hash)?.locate(hash, eq)?;
        Some(entry)
    }

    /// As [`Table::find`], to change the entry in place. Its hash must stay the same.
    #[inline]
    pub fn find_mut(&mut self, hash: u64, eq: impl FnMut(&T) -> bool) -> Option<&mut T> {
        self.directory.get_mut(hash)?.locate_mut(hash, eq)
    }

    /// Adds an entry that the caller knows to be absent, and returns a reference to it. `hasher` computes the hashes
    /// of other entries when a segment grows.
    #[inline]
    pub fn insert_unique(&mut self, hash: u64, entry: T, hasher: &impl EntryHash<T>) -> &mut T {
        let mut entry = entry;
        loop {
            let first = match self.directory.first_slot(hash) {
                Some(first) => first,
                None => self.begin(),
            };
            match self.directory.entries_mut(first).place(hash, entry) {
                Ok(location) => {
                    self.len += 1;
                    return self.directory.entries_mut(first).entry_mut(location);
                }
                Err(refused) => entry = refused,
            }
            self.grow(first, hasher);
        }
    }

    /// Removes and returns the entry of this hash that satisfies `eq`. `hasher` computes the hashes of other entries
    /// when a segment shrinks.
    #[inline]
    pub fn remove(
        &mut self,
        hash: u64,
        eq: impl FnMut(&T) -> bool,
        hasher: &impl EntryHash<T>,
    ) -> Option<T> {
        let first = self.directory.first_slot(hash)?;
        let segment = self.directory.entries_mut(first);
        let entry = segment.remove(hash, eq)?;
        let may_shrink = may_shrink(segment);
        self.len -= 1;
        if self.len == 0 {
            self.clear();
        } else if may_shrink {
            self.shrink(first, hasher);
        }
        Some(entry)
    }

    /// Drops all entries and frees all memory.
    pub fn clear(&mut self) {
        drop(core::mem::take(self));
    }

    /// Returns a random entry, all about equally likely if `random` is a random number: one of the segment at that
    /// point of the axis, or of a later one if that is empty. `None` only if the table is empty.
    pub fn sample(&self, random: u64) -> Option<&T> {
        // The fill of a segment is about proportional to the interval that it covers.
        let mut at = geometry::position(random);
        while !self.is_empty() {
            let segment = self.segment_at(at)?;
            if let Some(entry) = segment.sample(random) {
                return Some(entry);
            }
            at = geometry::segment_range(at, segment.depth()).end % geometry::AXIS_END;
        }
        None
    }

    /// Returns the segment of a position, its `len` up to date.
    pub(crate) fn segment_at(&self, position: u64) -> Option<&Segment<T>> {
        let hash = position << (u64::BITS - geometry::POSITION_BITS);
        Some(self.directory.segment(self.directory.first_slot(hash)?))
    }

    /// Returns the directory, for checks.
    #[cfg(test)]
    pub(crate) fn directory(&self) -> &Directory<T> {
        &self.directory
    }

    /// Returns the directory, to change entries in place.
    pub(crate) fn directory_mut(&mut self) -> &mut Directory<T> {
        &mut self.directory
    }

    /// Returns all segments, in the order of the axis.
    pub(crate) fn segments(&self) -> Segments<'_, T> {
        self.directory.segments()
    }

    /// Splits the table into its segments.
    pub(crate) fn into_segments(mut self) -> Vec<Segment<T>> {
        self.directory.take_segments()
    }

    #[cold]
    fn begin(&mut self) -> FirstSlot {
        self.directory.begin(Segment::new(geometry::size_for(1), 0));
        self.directory.first_slot(0).expect("a directory that has begun has a segment")
    }

    /// Makes room in the segment that begins at `first`, which has just refused an entry. One step may not be enough
    /// for the next entry, but each adds buckets, so the loop ends.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, first: FirstSlot, hasher: &impl EntryHash<T>) {
        let segment = self.directory.segment(first);
        let buckets = segment.bucket_count();
        if geometry::is_skewed(segment.len(), buckets) {
            self.extend_stash(first);
        } else if let Some(larger) = geometry::next_size(buckets) {
            self.resize(first, larger, hasher);
        } else if self.directory.may_split(first, self.len) {
            self.split(first, hasher);
        } else {
            self.extend_stash(first);
        }
    }

    /// Frees memory of the segment that begins at `first`, which has become sparse.
    #[cold]
    #[inline(never)]
    fn shrink(&mut self, mut first: FirstSlot, hasher: &impl EntryHash<T>) {
        while let Some(siblings) = self.mergeable(first) {
            first = self.merge(siblings, hasher);
        }
        let segment = self.directory.segment(first);
        let fitting = geometry::size_for(segment.len());
        if fitting < segment.bucket_count() && may_shrink(segment) {
            self.resize(first, fitting, hasher);
        }
    }

    fn mergeable(&self, first: FirstSlot) -> Option<[FirstSlot; 2]> {
        let siblings = self.directory.siblings(first)?;
        let len = siblings.map(|first| self.directory.segment(first).len()).iter().sum();
        geometry::should_merge(len).then_some(siblings)
    }

    fn resize(&mut self, first: FirstSlot, buckets: usize, hasher: &impl EntryHash<T>) {
        let homes = buckets - geometry::stash_of(buckets);
        let homes = self.directory.segment(first).homes_among(homes, hasher);
        self.directory.replace(first, |segment| rebuild::resize(segment, &homes, buckets));
    }

    fn split(&mut self, first: FirstSlot, hasher: &impl EntryHash<T>) {
        let hashes = self.directory.segment(first).hashes(hasher);
        self.directory.split(first, |segment| rebuild::split(segment, &hashes));
    }

    fn merge(&mut self, siblings: [FirstSlot; 2], hasher: &impl EntryHash<T>) -> FirstSlot {
        let hashes = siblings.map(|first| self.directory.segment(first).hashes(hasher));
        self.directory.merge(siblings, |halves| rebuild::merge(halves, &hashes))
    }

    fn extend_stash(&mut self, first: FirstSlot) {
        self.directory.replace(first, |mut segment| {
            segment.extend_stash();
            segment
        });
    }
}

/// Returns true if a segment should be checked for shrinking after a removal: if it is less than half full, at every
/// eighth removal, so that skewed hashes that prevent shrinking do not cost a rebuild each time.
#[inline]
fn may_shrink<T>(segment: &Segment<T>) -> bool {
    segment.len() * 2 < geometry::capacity(segment.bucket_count())
        && segment.len().is_multiple_of(8)
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: core::fmt::Debug> core::fmt::Debug for Table<T> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_set().entries(self).finish()
    }
}
